"""The FlinkRunner: Flink in the command's own processes, or a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import create_runner

from pipelines.config import BeamConfig
from pipelines.errors import ConfigError
from pipelines.runners import portable
from pipelines.runners.environment import check_environment, workers_held_here
from pipelines.runners.kind import PLACE_OF_OPTIONS, Kind, is_this_machine

_EMBEDDED: Final = ("[local]", "[auto]")


def _defaults(config: BeamConfig, _args: Sequence[str]) -> dict[str, Any]:
    return {"parallelism": config.workers} if config.workers else {}


def _workers(asked: Mapping[str, Any]) -> int | None:
    return asked["parallelism"] if asked["parallelism"] > 0 else None


def _check(config: BeamConfig, asked: Mapping[str, Any]) -> None:
    check_environment(config, asked)
    if asked["environment_type"] == "LOOPBACK" and not _is_here(asked["flink_master"]):
        raise ConfigError(
            "Workers of a cluster can't reach this process.",
            expected="environment_type DOCKER, EXTERNAL or PROCESS for a cluster elsewhere",
            found=f"LOOPBACK, which runs the work in this process, with {asked['flink_master']}",
            where=PLACE_OF_OPTIONS,
            hint="Set environment_type, and environment_config to the image or the address of the "
            "worker pool.",
        )


def _held_here(asked: Mapping[str, Any]) -> str | None:
    if asked["flink_master"] in _EMBEDDED and not asked["job_endpoint"]:
        return f"flink_master {asked['flink_master']}, which runs in processes of the command"
    return workers_held_here(asked)


def _job_of(result: Any, options: PipelineOptions) -> tuple[str, str | None]:
    """The cluster's own id of a job that it got as a jar, else that of the job server."""
    from apache_beam.runners.portability import flink_uber_jar_job_server  # slow to import

    service = result._job_service
    if not isinstance(service, flink_uber_jar_job_server.FlinkUberJarJobServer):
        return portable.job_of(result, options)
    name: str = service._jobs[result._job_id]._flink_job_id
    return name, f"{service._master_url}/jobs/{name}"


def _is_remote(asked: Mapping[str, Any]) -> bool:
    return not _is_here(asked["flink_master"]) or asked["environment_type"] == "DOCKER"


def _is_here(master: str) -> bool:
    return master in _EMBEDDED or is_this_machine(master)


FLINK: Final = Kind(
    defaults=_defaults,
    check=_check,
    workers=_workers,
    is_remote=_is_remote,
    make=lambda _: create_runner("FlinkRunner"),
    held_here=_held_here,
    job_of=_job_of,
)
