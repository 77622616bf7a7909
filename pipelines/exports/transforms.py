"""The tasks of exports as a Beam pipeline; each is a function that works without Beam."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import apache_beam as beam

from pipelines import runners
from pipelines.exports.row_export import RowJob, Task, do_task
from pipelines.runners import FAILURE
from pipelines.runners.work import Work

__all__ = ["DoTasks"]


@dataclass(kw_only=True)
class DoTasks(beam.PTransform):  # type: ignore[misc]
    """Tasks of an export, dealt to the workers; gives the names of the entries they wrote.

    Idempotent: names and bytes follow from the task alone, and a file gets its name when it is
    whole. At most as parallel as there are tasks; only descriptors of tasks are shuffled.

    Attributes:
        job: what is exported.
        step: as `do_task` takes it.
        tasks: that are to be done.
    """

    job: RowJob
    step: str
    tasks: Sequence[Task]

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[str]:
        """The pipeline of the step."""
        descriptors = runners.deal(begin, [task.to_bytes() for task in self.tasks])
        return descriptors | "Do" >> beam.ParDo(_DoTask(self.job, self.step)).with_output_types(str)


class _DoTask(Work):
    def __init__(self, job: RowJob, step: str) -> None:
        super().__init__()
        self._job = job
        self._step = step

    def process(self, descriptor: bytes) -> Iterator[str]:
        with FAILURE.task():
            yield do_task(self._job, self._step, descriptor)
