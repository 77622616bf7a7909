"""Beam pipeline of an export of rows, which distributes its tasks to workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import apache_beam as beam

from pipelines import runners
from pipelines.beam.dofn import VersionCheckedDoFn
from pipelines.exports.files import ExportFiles
from pipelines.exports.records import Step
from pipelines.exports.row_tasks import RowJob, Task, do_task
from pipelines.runners import FAILURE


def run_tasks(files: ExportFiles, job: RowJob, step: Step, tasks: Sequence[Task]) -> None:
    """Do tasks of a step in a pipeline, and wait until it finishes."""
    places = (job.dataset.output.url, job.destination.url)
    with runners.pipeline(files.beam, files.beam_args, places) as pipeline:
        pipeline | f"Tasks of {step}" >> DoTasks(job=job, step=step, tasks=tasks)


@dataclass(kw_only=True)
class DoTasks(beam.PTransform):  # type: ignore[misc]
    """Tasks of an export → names of the entries that workers wrote.

    Repeating a task is safe: names and bytes depend on the task alone, and files appear atomically.
    At most as parallel as there are tasks; only descriptors of tasks are shuffled.

    Attributes:
        job: The export.
        step: The step that all tasks belong to.
        tasks: The tasks.
    """

    job: RowJob
    step: Step
    tasks: Sequence[Task]

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[str]:
        """Return the names of the entries."""
        descriptors = runners.distribute(begin, [task.to_bytes() for task in self.tasks])
        return descriptors | "Do" >> beam.ParDo(DoTask(self.job, self.step)).with_output_types(str)


class DoTask(VersionCheckedDoFn):
    """DoFn that does a task of an export."""

    def __init__(self, job: RowJob, step: Step) -> None:
        super().__init__()
        self._job = job
        self._step = step

    def process(self, descriptor: bytes) -> Iterator[str]:
        """Do the task of a descriptor, and yield the name of its entry."""
        with FAILURE.task(self._run):
            yield do_task(self._job, self._step, descriptor)
