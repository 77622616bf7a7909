"""Start and end of a stage, the same for all stages."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pipelines.console import progress
from pipelines.manifest.models import Manifest
from pipelines.manifest.stage import Identity, Stage
from pipelines.manifest.stage_comparison import find_finished_manifest, is_bound
from pipelines.manifest.stage_records import load_plan
from pipelines.manifest.stage_writing import finish_stage, remove_remains
from pipelines.metrics import PipelineRun
from pipelines.stages.configuration_record import write_configuration
from pipelines.stages.context import BuildContext
from pipelines.stages.output import Output
from pipelines.stages.summary import StageSummary
from pipelines.storage.locks import OutputLock

_M = TypeVar("_M", bound=Manifest)


@dataclass(frozen=True, kw_only=True)
class StageResult:
    """Result of a stage that had something to do.

    Attributes:
        resumed: True if an earlier command had started it.
        bytes: Size of the text that it read, for the rate; 0 if the rate would mean nothing.
        pipeline: Figures of its pipeline.
        run: Its part of `run.json`.
    """

    resumed: bool = False
    bytes: int = 0
    pipeline: PipelineRun = field(default_factory=PipelineRun)
    run: Mapping[str, Any] = field(default_factory=dict)


def find_finished(
    context: BuildContext,
    stage: Stage[_M],
    identity: Identity,
    discard: Callable[[Output, OutputLock], Sequence[str]],
) -> _M | None:
    """Return the manifest of a finished stage, or take the lock and return None.

    What another configuration began is discarded if it has finished nothing.

    Args:
        context: Context of the command.
        stage: The stage.
        identity: Identity of the stage.
        discard: Function that removes the files of the stage, and returns warnings.

    Raises:
        DifferentConfigurationError: The stage has another configuration or other inputs.
        OutputError: Another build holds the lock, or files are missing or not ours.
    """
    directory = context.output.of_stage(stage)
    # Again under the lock: another build may have finished the stage in the meantime.
    for _ in range(2):
        manifest = find_finished_manifest(stage, directory, identity, command=context.command)
        if manifest is not None and not _has_added_inputs(stage, identity, manifest):
            remove_remains(directory, context.lock.try_acquire)
            context.report.add_stage(StageSummary(name=stage.name, state="already finished"))
            return manifest
        context.lock.acquire()
    plan = load_plan(stage, directory)
    if plan is not None and not is_bound(stage, directory, plan, identity):
        context.report.add_warnings(discard(context.output, context.lock))
    if not context.report.has_changes:  # the first stage that this command begins
        write_configuration(context.config, context.output.root)
    progress.start_stage(stage.name)
    return None


def _has_added_inputs(stage: Stage[_M], identity: Identity, manifest: _M) -> bool:
    return stage.may_grow and bool(identity.inputs.keys() - manifest.input_sizes.keys())


def finish(
    context: BuildContext,
    stage: Stage[_M],
    identity: Identity,
    manifest: _M,
    result: StageResult,
    started: float,
    *,
    name: str | None = None,
) -> _M:
    """Write the manifest of a stage, add the stage to the report, and return the manifest.

    Args:
        context: Context of the command.
        stage: The completed stage.
        identity: Identity of the stage.
        manifest: Manifest of the stage.
        result: Result of the stage.
        started: Start time, by `time.monotonic`.
        name: Name in the report, or None for the name of the stage.
    """
    seconds = time.monotonic() - started
    measured, job = result.pipeline.measured, result.pipeline.job
    run = {
        "seconds": round(seconds, 3),
        "runner": context.config.beam.runner,
        "workers": context.workers,
        "metrics": None if measured is None else measured.to_json(),
        "job": None if job is None else job.to_json(),
        "limits": {},
        **result.run,
    }
    directory = context.output.of_stage(stage)
    finish_stage(stage, directory, identity, manifest, run)
    context.report.add_stage(
        StageSummary(
            name=name or stage.name,
            state="resumed" if result.resumed else "done",
            seconds=seconds,
            bytes=result.bytes,
            parts={} if measured is None else measured.seconds,
            job=job,
        )
    )
    return manifest
