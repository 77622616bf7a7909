"""Commands of a build as functions: plan, count, train, encode, build, replay.

A finished stage is not repeated: a command does the missing work and writes the manifest of each
    stage last. With `no_wait`, the first required pipeline is submitted and the command ends; the
    next command continues from the results of the job. With `take_over`, it continues even if such
    a job has not reported its end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from pipelines.config import BuildConfig
from pipelines.console import progress
from pipelines.manifest.stage import COUNT, ENCODE
from pipelines.stages.context import BuildContext, Submitted
from pipelines.stages.count import check_trains, discard_counts
from pipelines.stages.count import count as count_stage
from pipelines.stages.encode import discard_tokens
from pipelines.stages.encode import encode as encode_stage
from pipelines.stages.imports import discard_imported
from pipelines.stages.output import Output
from pipelines.stages.plan import check_output, plan_build
from pipelines.stages.probe import check_samples
from pipelines.stages.replay import replay as replay_stage
from pipelines.stages.summary import BuildPlan, BuildSummary
from pipelines.stages.train import discard_tokenizer
from pipelines.stages.train import train as train_stage
from pipelines.storage.locks import OutputLock


def plan(config: BuildConfig) -> BuildPlan:
    """Return what a build would read, do and write; only samples of the input are read."""
    context = BuildContext.of(config, "plan")
    return plan_build(config, context.inputs, context.output, context.planned_workers)


def count(
    config: BuildConfig,
    *,
    restart: bool = False,
    no_wait: bool = False,
    take_over: bool = False,
    beam_args: Sequence[str] = (),
) -> BuildSummary:
    """Count the pre-tokens of the corpus."""
    check_trains(config)
    context = BuildContext.of(
        config,
        "count",
        beam_args,
        no_wait=no_wait,
        take_over=take_over,
        redone=(COUNT,) if restart else (),
    )
    return _run_stage(context, count_stage, [discard_counts] if restart else [])


def train(
    config: BuildConfig,
    *,
    restart: bool = False,
    no_wait: bool = False,
    take_over: bool = False,
    beam_args: Sequence[str] = (),
) -> BuildSummary:
    """Train the tokenizer; count first if necessary."""
    check_trains(config)
    context = BuildContext.of(config, "train", beam_args, no_wait=no_wait, take_over=take_over)
    return _run_stage(context, train_stage, [discard_tokenizer] if restart else [])


def encode(
    config: BuildConfig,
    *,
    restart: bool = False,
    no_wait: bool = False,
    take_over: bool = False,
    beam_args: Sequence[str] = (),
) -> BuildSummary:
    """Encode the corpus; count and train first if necessary."""
    context = BuildContext.of(
        config,
        "encode",
        beam_args,
        no_wait=no_wait,
        take_over=take_over,
        redone=(ENCODE,) if restart else (),
    )
    return _run_stage(context, encode_stage, [discard_tokens, discard_imported] if restart else [])


def build(
    config: BuildConfig,
    *,
    restart: bool = False,
    no_wait: bool = False,
    take_over: bool = False,
    beam_args: Sequence[str] = (),
) -> BuildSummary:
    """Count, train and encode; what is finished is not repeated."""
    context = BuildContext.of(
        config,
        "build",
        beam_args,
        no_wait=no_wait,
        take_over=take_over,
        redone=(COUNT, ENCODE) if restart else (),
    )
    trains = config.tokenizer.path is None
    trained = [discard_tokenizer, discard_counts] if trains else [discard_imported]
    discards = [discard_tokens, *trained]
    return _run_stage(context, encode_stage, discards if restart else [])


def replay(
    config: BuildConfig, repaired: Mapping[str, str] | None = None, *, beam_args: Sequence[str] = ()
) -> BuildSummary:
    """Encode documents that a build rejected, by a changed policy or from repaired files.

    Args:
        config: configuration of the dataset; only keys that determine rejects may differ.
        repaired: path or URL of a repaired file, by the name of the file in the column `source`.
        beam_args: Beam options.
    """
    files = repaired or {}
    context = BuildContext.of(config, "replay", beam_args, repaired=tuple(files.values()))
    return _run_stage(context, partial(replay_stage, repaired=files), [])


def _run_stage(
    context: BuildContext,
    run: Callable[[BuildContext], object],
    discards: Sequence[Callable[[Output, OutputLock], Sequence[str]]],
) -> BuildSummary:
    """Check the inputs, discard what the user wants to redo, and run a stage. Return the summary.

    Args:
        context: context of the command.
        run: function of the last stage of the command, which runs the earlier ones.
        discards: functions that remove the files of stages, and return warnings.
    """
    progress.expect(context.stages)
    progress.describe("listing the input files")
    context.check()
    check_samples(context)
    with suppress(Submitted), context.lock:
        for discard in discards:
            context.report.add_warnings(discard(context.output, context.lock))
        if context.no_wait:  # a job could not stop before a stage that is refused
            check_output(context.config, context.inputs, context.output, context.command)
        run(context)
    return context.report.summary
