"""The PortableRunner: a job server of any engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import create_runner

from pipelines.config import BeamConfig
from pipelines.errors import ConfigError
from pipelines.runners.environment import check_environment, workers_elsewhere, workers_held_here
from pipelines.runners.spec import PLACE_OF_OPTIONS, Kind


def _check(config: BeamConfig, asked: Mapping[str, Any]) -> None:
    if not asked["job_endpoint"]:
        raise ConfigError(
            "PortableRunner needs a job server.",
            expected="its address, such as job_endpoint: localhost:8099; embed: one in the command",
            found="no job_endpoint",
            where=PLACE_OF_OPTIONS,
        )
    check_environment(config, asked)


def job_of(result: Any, _options: PipelineOptions) -> tuple[str, str | None]:
    """The job server's own id of a job; where to watch it, nobody says."""
    return result._job_id, None


PORTABLE: Final = Kind(
    decides_workers=True,
    check=_check,
    elsewhere=workers_elsewhere,
    make=lambda _: create_runner("PortableRunner"),
    held_here=workers_held_here,
    job_of=job_of,
)
