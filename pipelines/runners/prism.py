"""The PrismRunner: Beam's engine for one machine, in a process that the command starts."""

from __future__ import annotations

from typing import Final

from apache_beam.runners.runner import create_runner

from pipelines.runners.environment import check_environment
from pipelines.runners.kind import Kind

PRISM: Final = Kind(
    own_workers=True,
    check=check_environment,
    make=lambda _: create_runner("PrismRunner"),
)
