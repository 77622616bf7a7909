"""Small pipelines of the DirectRunner, for tests of runners."""

from __future__ import annotations

from typing import Any

import apache_beam as beam

from pipelines import runners
from pipelines.config import BeamConfig


def config(mode: str = "multi_threading", workers: int = 2) -> BeamConfig:
    workers = 1 if mode == "in_memory" else workers
    return BeamConfig(workers=workers, options={"direct_running_mode": mode})


def run(action: Any, mode: str = "multi_threading") -> None:
    with runners.pipeline(config(mode)) as pipeline:
        (
            pipeline
            | "Make" >> beam.Create([0], reshuffle=False)
            | "Deal" >> beam.Reshuffle()
            | "Act" >> beam.Map(action)
        )
