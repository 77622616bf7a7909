"""Pipelines that go on without the command which submitted them (`--no-wait`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from pipelines.stages.context import Run, Submitted, importing
from pipelines.stages.plan import check_output
from pipelines.stages.summary import StageSummary

if TYPE_CHECKING:
    from pipelines.counting.jobs import CountJob


def submit(
    run: Run, stage: str, steps: Callable[[Any], Any], counting: CountJob | None = None
) -> NoReturn:
    """Submits a stage, with those that workers can go on with, and ends the command.

    The lock is left to the job, which at its end notes that it has finished.

    Args:
        run: that has begun the stage.
        stage: the first one.
        steps: of that stage, pipeline → its entries; for training, what it begins with.
        counting: its job, if it counts.

    Raises:
        ConfigError: the runner can't, or did not take the job.
        Submitted: the job was submitted.
    """
    with importing():
        from pipelines import runners
        from pipelines.beam.read_tasks import ReadTasks
        from pipelines.readers.tasks import TaskWork
        from pipelines.stages.train_job import TrainJob
        from pipelines.stages.transforms import NoteFinished, TrainTokenizer, WriteTrainedTasks

    stages = (stage, *_following(run, stage))
    job = TrainJob.of(run, counting, encodes="encode" in stages[1:])

    def build(pipeline: Any) -> None:
        done = steps(pipeline)
        if "train" in stages:
            done = done | "TrainTokenizer" >> TrainTokenizer(job=job)
        if "encode" in stages[1:]:
            works = [TaskWork.of_plan(run.plan, task) for task in run.plan.tasks]
            tasks = pipeline | "ReadTasksAgain" >> ReadTasks(works=works)
            done = tasks | "WriteTrainedTasks" >> WriteTrainedTasks(job=job, trained=done)
        _ = done | "NoteFinished" >> NoteFinished(guard=run.lock.guard)

    if len(stages) > 1:
        check_output(run)
    submitted = runners.submit(run.config.beam, build, run.beam_args, run.places, stages=stages)
    run.lock.leave_to(submitted)
    for name in stages:
        run.note_stage(StageSummary(name=name, state="submitted"))
    run.summary = replace(run.summary, submitted=submitted)
    raise Submitted


def _following(run: Run, stage: str) -> Iterator[str]:
    """The stages that workers can go on with, once this one is done."""
    if stage == "count" and run.command != "count":
        if run.config.tokenizer.train_where == "launcher":
            return
        yield "train"
    elif stage != "train":
        return
    # Which files a later generation would have, only the command finds out.
    if run.command != "train" and run.finished_dataset() is None:
        yield "encode"
