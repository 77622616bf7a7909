"""The base of the DoFns that decide bytes of the output."""

from __future__ import annotations

import apache_beam as beam

from pipelines.runners.failures import FAILURE
from pipelines.versions import check_worker, worker_versions


class VersionCheckedDoFn(beam.DoFn):  # type: ignore[misc]
    """A DoFn that refuses to run with other versions than where the pipeline was built.

    Raises:
        WorkerVersionError: On a worker, if it has other versions.
    """

    def __init__(self) -> None:
        self._versions = dict(worker_versions())

    def setup(self) -> None:
        """Compare the versions. A subclass with a setup of its own must call this first."""
        with FAILURE.noted():
            check_worker(self._versions)
