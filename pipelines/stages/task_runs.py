"""Pipelines over tasks, shown and measured. Local work begins while Beam is being imported."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, TypeVar

from pipelines.console import progress
from pipelines.metrics import Meter, MetricSums, PipelineRun
from pipelines.readers.tasks import TaskWork, largest_first
from pipelines.stages.context import BuildContext
from pipelines.tasks.shared_queue import TaskQueue

if TYPE_CHECKING:
    from pipelines.stages.pipelines import Pipelines, Steps

__all__ = ["run_tasks"]

_Begun = TypeVar("_Begun")


def run_tasks(
    context: BuildContext,
    works: Sequence[TaskWork],
    steps: Callable[[Pipelines, TaskQueue[_Begun] | None], Steps],
    begin: Callable[[Iterator[bytes], Meter], _Begun],
    *,
    title: str,
    shards: int = 0,
) -> PipelineRun:
    """Run a pipeline over tasks, show progress, and return what was measured.

    Args:
        context: Context of the command.
        works: The tasks.
        steps: Function that returns the steps. Workers that are threads of this process share a
            queue of the tasks.
        begin: Function that does tasks from the queue before there is a pipeline. Its result is for
            the worker that goes on.
        title: Title of the display, such as "counting".
        shards: Number of shards of counts that the steps merge after the last task.
    """
    queue: TaskQueue[_Begun] | None = None
    begun: AbstractContextManager[None] = nullcontext()
    sums = MetricSums()
    if works and (threads := context.threads) is not None:
        queue = TaskQueue([work.to_bytes() for work in largest_first(works)], threads)
        begun = queue.begun(lambda tasks: begin(tasks, Meter(sums.add)))
    else:
        _ = context.pipelines  # before there is progress to show
    shown = progress.show(
        title,
        len(works),
        planned=sum(work.planned_bytes for work in works),
        earlier=works[0].of - len(works) if works else 0,
        shards=shards,
        local=context.config.beam.runner == "DirectRunner",
    )
    with shown, begun:
        pipelines = context.pipelines
        return pipelines.run_tasks(steps(pipelines, queue), len(works), sums)
