"""The start and the end of a stage, the same for all of them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pipelines.manifest.stage import (
    Identity,
    Stage,
    find_finished_manifest,
    finish_stage,
    index_inputs,
    remove_remains,
)
from pipelines.metrics import Measured
from pipelines.stages.context import BuildContext
from pipelines.stages.summary import StageSummary


@dataclass(frozen=True, kw_only=True)
class StageResult:
    """The result of a stage that did something.

    Attributes:
        content: its part of the manifest.
        resumed: if an earlier command had begun it.
        bytes: text that it read, for the rate; 0 if the rate would mean nothing.
        measured: metrics of its pipeline; None if there are none.
        run: its part of `run.json`.
    """

    content: Mapping[str, Any]
    resumed: bool = False
    bytes: int = 0
    measured: Measured | None = None
    run: Mapping[str, Any] = field(default_factory=dict)


def find_finished(context: BuildContext, stage: Stage, identity: Identity) -> dict[str, Any] | None:
    """Return the manifest of a finished stage, or take the lock and return None.

    Raises:
        DifferentConfigurationError: the stage has another configuration or other inputs.
        OutputError: another build is at work, or files are missing or foreign.
    """
    directory = context.output.of_stage(stage)
    for _ in range(2):  # again under the lock: another build may have finished it before
        manifest = find_finished_manifest(stage, directory, identity, command=context.command)
        if manifest is not None and not _has_added_inputs(stage, identity, manifest):
            remove_remains(directory, context.lock.try_acquire)
            context.report.add_stage(StageSummary(name=stage.name, state="already finished"))
            return manifest
        context.lock.acquire()
    return None


def _has_added_inputs(stage: Stage, identity: Identity, manifest: Mapping[str, Any]) -> bool:
    return stage.may_grow and bool(identity.inputs.keys() - index_inputs(manifest).keys())


def finish(
    context: BuildContext,
    stage: Stage,
    identity: Identity,
    result: StageResult,
    started: float,
    *,
    name: str | None = None,
) -> dict[str, Any]:
    """Write the manifest of a stage, add the stage to the report, and return the manifest.

    Args:
        context: of the command.
        stage: that is complete.
        identity: of the stage.
        result: of the stage.
        started: when it began, by `time.monotonic`.
        name: for the report; None: that of the stage.
    """
    seconds = time.monotonic() - started
    measured = result.measured
    run = {
        "seconds": round(seconds, 3),
        "runner": context.config.beam.runner,
        "workers": context.workers,
        "metrics": None if measured is None else measured.to_json(),
        "limits": {},
        **result.run,
    }
    directory = context.output.of_stage(stage)
    manifest = finish_stage(stage, directory, identity, result.content, run)
    context.report.add_stage(
        StageSummary(
            name=name or stage.name,
            state="resumed" if result.resumed else "done",
            seconds=seconds,
            bytes=result.bytes,
            parts={} if measured is None else measured.seconds,
        )
    )
    return manifest
