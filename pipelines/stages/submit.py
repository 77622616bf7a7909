"""Submission of pipelines that continue without the launcher (`--no-wait`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from pipelines.counting.jobs import CountJob
from pipelines.manifest.stage import COUNT, ENCODE, TRAIN, Stage
from pipelines.manifest.stage_records import load_manifest
from pipelines.readers.kept_columns import find_kept_columns
from pipelines.stages.context import BuildContext, Submitted
from pipelines.stages.jobs import list_works
from pipelines.stages.train_job import TrainJob

if TYPE_CHECKING:
    from pipelines.stages.pipelines import Steps


def submit(
    context: BuildContext, stage: Stage[Any], steps: Steps, counting: CountJob | None = None
) -> NoReturn:
    """Submit a stage, with the following stages that workers can do, and end the command.

    The lock is transferred to the job, which reports its end.

    Args:
        context: Context of the command, which has started the stage.
        stage: First stage of the job.
        steps: Steps of that stage; for training, those before it.
        counting: Job of the stage, if it counts.

    Raises:
        ConfigError: The runner cannot run a job without the launcher, or rejected it.
        Submitted: The job was submitted.
    """
    plan = context.inputs.plan
    stages = (stage, *_stages_after(context, stage))
    encodes = ENCODE in stages[1:]
    job = TrainJob(
        config=context.config,
        guard=context.lock.guard,
        counting=counting,
        planned_bytes=context.inputs.planned_bytes,
        plan=plan.digest if encodes else "",
        tasks=len(plan.tasks) if encodes else 0,
        limits=context.inputs.limits if encodes else {},
        task_rule=context.inputs.task_rule,
        kept=find_kept_columns(context.config.input, plan.files) if encodes else None,
    )
    works = list_works(plan) if encodes else []
    submitted = context.pipelines.submit(stages, steps, job, works)
    context.lock.transfer_to_job(submitted)
    context.report.add_submitted(submitted, stages)
    raise Submitted


def _stages_after(context: BuildContext, stage: Stage[Any]) -> Iterator[Stage[Any]]:
    """Yield the stages that workers can do after a stage."""
    if stage == COUNT and context.command != COUNT.name:
        if context.config.tokenizer.train_where == "launcher":
            return
        yield TRAIN
    elif stage != TRAIN:
        return
    # Only the launcher can plan an additional generation of a dataset.
    if context.command != TRAIN.name and load_manifest(ENCODE, context.output.tokens) is None:
        yield ENCODE
