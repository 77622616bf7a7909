"""FlinkRunner: Flink in processes of the launcher, or a cluster."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

from apache_beam import Pipeline
from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    PipelineOptions,
    PortableOptions,
)
from apache_beam.runners.runner import create_runner

from pipelines.config import BeamConfig
from pipelines.redaction import remember
from pipelines.runners import portable
from pipelines.runners.environment import (
    EMBEDDED_FLINK,
    check_environment,
    find_local_workers,
    find_remote_workers,
)
from pipelines.runners.flink_page import FlinkPage, job_url, rest_url
from pipelines.runners.spec import RunnerSpec
from pipelines.runners.watching import JobPage

_OWN_NAME: Final = re.compile(r"beam-bpe-[0-9a-f]{8}")
_SECONDS_TO_CANCEL: Final = 10.0
_USER: Final = re.compile(r"(?<=//)[^/@]*@|^[^/@]*@")


def _defaults(config: BeamConfig, _args: Sequence[str]) -> dict[str, Any]:
    # The name identifies the job at the cluster.
    name = {"job_name": f"beam-bpe-{secrets.token_hex(4)}"}
    return {**name, "parallelism": config.workers} if config.workers else name


def _workers(asked: Mapping[str, Any]) -> int | None:
    return asked["parallelism"] if asked["parallelism"] > 0 else None


def _check(config: BeamConfig, asked: Mapping[str, Any]) -> None:
    user = _USER.search(asked["flink_master"])
    if user is not None:
        remember(unquote(user[0].rstrip("@").partition(":")[2]))
    check_environment(config, asked, _default_workers(asked))


def _default_workers(asked: Mapping[str, Any]) -> str:
    """Return the type of workers that Beam uses if none is given."""
    return "LOOPBACK" if asked["flink_master"] in EMBEDDED_FLINK else "DOCKER"


def _in_launcher(asked: Mapping[str, Any]) -> str | None:
    if asked["flink_master"] in EMBEDDED_FLINK and not asked["job_endpoint"]:
        return f"flink_master {asked['flink_master']}, which runs in processes of the launcher"
    return find_local_workers(asked, _default_workers(asked))


def _detach(options: PipelineOptions) -> None:
    # Otherwise Beam starts a job server here, which reports that a job runs before the cluster has
    # it.
    if not options.view_as(PortableOptions).job_endpoint:
        options.view_as(FlinkRunnerOptions).flink_submit_uber_jar = True


def _cancel(result: Any, options: PipelineOptions) -> None:
    """Cancel a job at the cluster, too: Beam's job server forgets jobs that it has passed on."""
    import requests

    asked = options.get_all_options()
    if asked["flink_master"] in EMBEDDED_FLINK:
        return
    result.cancel()
    if not _OWN_NAME.fullmatch(asked["job_name"]):
        return  # the name is not unique
    url = rest_url(asked["flink_master"])
    found = requests.get(f"{url}/jobs/overview", timeout=_SECONDS_TO_CANCEL).json()
    for job in found["jobs"]:
        if job["name"] == asked["job_name"] and job["end-time"] == -1:
            place = f"{url}/jobs/{job['jid']}"
            requests.patch(place, params={"mode": "cancel"}, timeout=_SECONDS_TO_CANCEL)


def _job_of(result: Any, options: PipelineOptions) -> tuple[str, str | None]:
    """Return the cluster's id of a job submitted as a jar, otherwise that of the job server."""
    from apache_beam.runners.portability import flink_uber_jar_job_server  # slow to import

    service = result._job_service
    if not isinstance(service, flink_uber_jar_job_server.FlinkUberJarJobServer):
        return portable.job_of(result, options)
    name: str = service._jobs[result._job_id]._flink_job_id
    return name, job_url(service._master_url, name)


def _page(pipeline: Pipeline) -> JobPage | None:
    asked = pipeline.options.get_all_options()
    master, name = asked["flink_master"], asked["job_name"]
    # A job server may forward its jobs to a cluster that no option here names.
    if master in EMBEDDED_FLINK:
        return None
    return FlinkPage(master, name, is_unique=_OWN_NAME.fullmatch(name) is not None)


FLINK: Final = RunnerSpec(
    defaults=_defaults,
    check=_check,
    workers=_workers,
    elsewhere=lambda asked: find_remote_workers(asked, _default_workers(asked)),
    make=lambda _: create_runner("FlinkRunner"),
    in_launcher=_in_launcher,
    detach=_detach,
    job_of=_job_of,
    cancel=_cancel,
    page=_page,
)
