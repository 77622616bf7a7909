"""PortableRunner: a job server of any engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import create_runner

from pipelines.config import BeamConfig
from pipelines.errors import ConfigError
from pipelines.runners.environment import check_environment, find_local_workers, find_remote_workers
from pipelines.runners.spec import PLACE_OF_OPTIONS, RunnerSpec


def _check(config: BeamConfig, asked: Mapping[str, Any]) -> None:
    if not asked["job_endpoint"]:
        raise ConfigError(
            "PortableRunner needs a job server.",
            expected="its address, such as job_endpoint: localhost:8099; or embed for one in the "
            "launcher",
            found="no job_endpoint",
            where=PLACE_OF_OPTIONS,
        )
    check_environment(config, asked)


def job_of(result: Any, _options: PipelineOptions) -> tuple[str, str | None]:
    """Return the job server's id of a job, and None, as the page to watch it is unknown."""
    return result._job_id, None


PORTABLE: Final = RunnerSpec(
    decides_workers=True,
    check=_check,
    elsewhere=find_remote_workers,
    make=lambda _: create_runner("PortableRunner"),
    in_launcher=find_local_workers,
    job_of=job_of,
)
