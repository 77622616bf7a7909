"""Base class of the DoFns that determine the bytes of the output."""

from __future__ import annotations

import apache_beam as beam

from pipelines.runners.failures import FAILURE
from pipelines.versions import check_worker, worker_versions


class VersionCheckedDoFn(beam.DoFn):  # type: ignore[misc]
    """DoFn that refuses to run with other software versions than the launcher's.

    Raises:
        WorkerVersionError: A worker has other versions.
    """

    def __init__(self) -> None:
        self._versions = dict(worker_versions())
        self._run = FAILURE.run

    def setup(self) -> None:
        """Compare the versions. A subclass with its own `setup` must call this first."""
        with FAILURE.noted(self._run):
            check_worker(self._versions)
