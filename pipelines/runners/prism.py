"""The PrismRunner: Beam's engine for one machine, in a process that the command starts."""

from __future__ import annotations

from typing import Final

from apache_beam.runners.runner import create_runner

from pipelines.runners.environment import check_environment, workers_elsewhere
from pipelines.runners.spec import Kind

PRISM: Final = Kind(
    decides_workers=True,
    check=lambda config, asked: check_environment(config, asked, "LOOPBACK"),
    elsewhere=lambda asked: workers_elsewhere(asked, "LOOPBACK"),
    make=lambda _: create_runner("PrismRunner"),
)
