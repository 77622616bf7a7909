"""Distribution of task descriptors to workers, and reading of each task's documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.typehints import with_output_types

from pipelines import runners
from pipelines.batches import DocumentBatch
from pipelines.beam.dofn import VersionCheckedDoFn
from pipelines.beam.metrics import beam_meter
from pipelines.readers.tasks import SourceReading, TaskWork, largest_first, read_task
from pipelines.tasks.shared_queue import TaskQueue


@with_output_types(bytes)
@dataclass(kw_only=True)
class ReadTasks(beam.PTransform):  # type: ignore[misc]
    """Source of task descriptors, distributed to the workers, the largest first.

    Attributes:
        works: The tasks.
        queue: Queue of their descriptors if the workers are threads of this process, which share
            it; else None.
    """

    works: Sequence[TaskWork]
    queue: TaskQueue[Any] | None = None

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[bytes]:
        if self.queue is not None:
            return runners.share(begin, self.queue)
        return runners.distribute(begin, [work.to_bytes() for work in largest_first(self.works)])

    def display_data(self) -> dict[str, Any]:
        """Return the number of tasks."""
        return {"tasks": len(self.works)}


class ReadTask(VersionCheckedDoFn):
    """DoFn that reads the documents of a task."""

    def __init__(self, readings: Sequence[SourceReading]) -> None:
        super().__init__()
        self._readings = readings

    def process(self, descriptor: bytes) -> Iterator[DocumentBatch]:
        """Yield the batches of the task that a descriptor names."""
        meter = beam_meter()
        work = TaskWork.from_bytes(descriptor)
        for batch in meter.time_items("read", read_task(work, self._readings)):
            meter.add_batch(batch)
            yield batch
        meter.finish_task()
