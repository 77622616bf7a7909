"""PrismRunner: Beam's engine for one machine, in a process that the launcher starts."""

from __future__ import annotations

from typing import Final

from apache_beam.runners.runner import create_runner

from pipelines.runners.environment import check_environment, find_remote_workers
from pipelines.runners.spec import RunnerSpec

PRISM: Final = RunnerSpec(
    decides_workers=True,
    check=lambda config, asked: check_environment(config, asked, "LOOPBACK"),
    elsewhere=lambda asked: find_remote_workers(asked, "LOOPBACK"),
    make=lambda _: create_runner("PrismRunner"),
)
