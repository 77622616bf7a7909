"""Workers have the versions of the command, or say what differs."""

from __future__ import annotations

import apache_beam as beam
import pytest

from pipelines import runners, software
from pipelines.config import BeamConfig
from pipelines.errors import WorkerVersionError
from pipelines.stages.transforms import _Work


class OfAnotherVersion(_Work):
    """Work that was sent by a command with another pyarrow and Python."""

    def __init__(self) -> None:
        super().__init__()
        self._versions |= {"pyarrow": "0.1", "python": "3.99"}

    def process(self, element: int) -> None:
        raise AssertionError("work was done")


def test_the_same_versions_are_taken() -> None:
    software.check_worker(software.worker_versions())


@pytest.mark.parametrize("mode", ["multi_threading", "in_memory"])
def test_the_first_bundle_tells_what_differs(mode: str) -> None:
    config = BeamConfig(workers=1, options={"direct_running_mode": mode})
    with (
        pytest.raises(WorkerVersionError, match=r"expected: pyarrow 0\.1, python 3\.99") as error,
        runners.pipeline(config) as pipeline,
    ):
        pipeline | beam.Create([1], reshuffle=False) | beam.ParDo(OfAnotherVersion())
    assert f"found: pyarrow {software.deciding_versions()['pyarrow']}" in str(error.value)
