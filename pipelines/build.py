"""The commands of a build: plan, count, train, encode, build, replay.

Each stage asks first whether it is finished, does what is missing, and writes its manifest last.
With `no_wait` the first pipeline that is needed is submitted, and the command ends; the next one
goes on from what the job has made by then. With `take_over` it does so though such a job has not
said that it is finished.
Beam is imported only where a pipeline runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from pipelines.config import BuildConfig
from pipelines.stages.context import Run, Submitted
from pipelines.stages.count import check_trains, discard_counts
from pipelines.stages.count import count as count_stage
from pipelines.stages.encode import discard_tokens
from pipelines.stages.encode import encode as encode_stage
from pipelines.stages.plan import describe
from pipelines.stages.replay import replay as replay_stage
from pipelines.stages.summary import BuildPlan, BuildSummary
from pipelines.stages.train import discard_tokenizer
from pipelines.stages.train import train as train_stage


def plan(config: BuildConfig) -> BuildPlan:
    """What a build would read, do and write; from the inputs' sizes and, if any, their limits."""
    return describe(Run(config))


def count(
    config: BuildConfig,
    *,
    restart: bool = False,
    no_wait: bool = False,
    take_over: bool = False,
    beam_args: Sequence[str] = (),
) -> BuildSummary:
    """Counts the pre-tokens of the corpus."""
    run = Run(config, beam_args, "count", no_wait=no_wait, take_over=take_over)
    check_trains(run)
    run.check_inputs_and_options()
    with suppress(Submitted), run.lock:
        if restart:
            discard_counts(run)
        count_stage(run)
    return run.summary


def train(
    config: BuildConfig,
    *,
    restart: bool = False,
    no_wait: bool = False,
    take_over: bool = False,
    beam_args: Sequence[str] = (),
) -> BuildSummary:
    """Trains the tokenizer; counts first if that is not finished."""
    run = Run(config, beam_args, "train", no_wait=no_wait, take_over=take_over)
    check_trains(run)
    run.check_inputs_and_options()
    with suppress(Submitted), run.lock:
        if restart:
            discard_tokenizer(run)
        train_stage(run)
    return run.summary


def encode(
    config: BuildConfig,
    *,
    restart: bool = False,
    no_wait: bool = False,
    take_over: bool = False,
    beam_args: Sequence[str] = (),
) -> BuildSummary:
    """Encodes the corpus; counts and trains first if that is not finished."""
    run = Run(config, beam_args, "encode", no_wait=no_wait, take_over=take_over)
    run.check_inputs_and_options()
    with suppress(Submitted), run.lock:
        if restart:
            discard_tokens(run)
        encode_stage(run)
    return run.summary


def build(
    config: BuildConfig,
    *,
    restart: bool = False,
    no_wait: bool = False,
    take_over: bool = False,
    beam_args: Sequence[str] = (),
) -> BuildSummary:
    """Does everything; what is finished is not done again."""
    run = Run(config, beam_args, no_wait=no_wait, take_over=take_over)
    run.check_inputs_and_options()
    with suppress(Submitted), run.lock:
        if restart:
            discard_tokens(run)
            if config.tokenizer.path is None:
                discard_tokenizer(run)
                discard_counts(run)
        encode_stage(run)
    return run.summary


def replay(
    config: BuildConfig, repaired: Mapping[str, str] | None = None, *, beam_args: Sequence[str] = ()
) -> BuildSummary:
    """Encodes rejected documents after all, by a changed policy or from repaired files.

    Args:
        config: of the dataset, but for what decides which documents are rejected.
        repaired: path or URL of a repaired file, by the name of the file in the column `source`.
        beam_args: options of Beam.
    """
    run = Run(config, beam_args)
    run.repaired = tuple((repaired or {}).values())
    run.check_inputs_and_options()
    with run.lock:
        replay_stage(run, repaired or {})
    return run.summary
