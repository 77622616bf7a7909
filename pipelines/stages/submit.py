"""Submission of pipelines that run on without the command (`--no-wait`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from pipelines.counting.jobs import CountJob
from pipelines.manifest.stage import COUNT, ENCODE, TRAIN, Stage, load_manifest
from pipelines.stages.context import BuildContext, Submitted
from pipelines.stages.jobs import list_works
from pipelines.stages.train_job import TrainJob

if TYPE_CHECKING:
    from pipelines.stages.pipelines import Steps


def submit(
    context: BuildContext,
    stage: Stage[Any],
    steps: Steps,
    counting: CountJob | None = None,
    planned_bytes: Sequence[int | None] = (),
) -> NoReturn:
    """Submit a stage, with the stages that workers can do after it, and end the command.

    The lock passes to the job, which reports at its end that it has finished.

    Args:
        context: of the command, which has begun the stage.
        stage: the first one of the job.
        steps: of that stage; of training, those that it begins with.
        counting: the job of the stage, if it counts.
        planned_bytes: bytes of each source that its counts must account for.

    Raises:
        ConfigError: the runner can't leave a job behind, or did not accept it.
        Submitted: the job was submitted.
    """
    plan = context.inputs.plan
    stages = (stage, *_stages_after(context, stage))
    encodes = ENCODE in stages[1:]
    job = TrainJob(
        config=context.config,
        guard=context.lock.guard,
        counting=counting,
        planned_bytes=tuple(planned_bytes),
        plan=plan.digest if encodes else "",
        tasks=len(plan.tasks) if encodes else 0,
        limits=context.inputs.limits if encodes else {},
    )
    works = list_works(plan) if encodes else []
    submitted = context.pipelines.submit(stages, steps, job, works)
    context.lock.leave_to(submitted)
    context.report.add_submitted(submitted, stages)
    raise Submitted


def _stages_after(context: BuildContext, stage: Stage[Any]) -> Iterator[Stage[Any]]:
    """Yield the stages that workers can do once a stage is done."""
    if stage == COUNT and context.command != COUNT.name:
        if context.config.tokenizer.train_where == "launcher":
            return
        yield TRAIN
    elif stage != TRAIN:
        return
    # Only the launcher can plan a further generation of a dataset.
    if context.command != TRAIN.name and load_manifest(ENCODE, context.output.tokens) is None:
        yield ENCODE
