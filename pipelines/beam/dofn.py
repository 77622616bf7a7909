"""What workers do, but only those that have the versions of whoever sent it."""

from __future__ import annotations

import apache_beam as beam

from pipelines.runners.failures import FAILURE
from pipelines.versions import check_worker, worker_versions


class Work(beam.DoFn):  # type: ignore[misc]
    """A function that decides bytes; refuses, before it begins, to run with other versions.

    Raises:
        WorkerVersionError: on a worker, if it has other versions than where this was made.
    """

    def __init__(self) -> None:
        self._versions = dict(worker_versions())

    def setup(self) -> None:
        """Compares the versions. Those that have a setup of their own begin it with this one."""
        with FAILURE.noted():
            check_worker(self._versions)
