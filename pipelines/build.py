"""The commands of a build: plan, count, train, encode, build, replay.

Each stage asks first whether it is finished, does what is missing, and writes its manifest last.
Beam is imported only where a pipeline runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipelines.config import BuildConfig
from pipelines.console.summary import BuildPlan, BuildSummary
from pipelines.stages.count import check_trains, discard_counts
from pipelines.stages.count import count as count_stage
from pipelines.stages.encode import discard_tokens
from pipelines.stages.encode import encode as encode_stage
from pipelines.stages.plan import describe
from pipelines.stages.replay import replay as replay_stage
from pipelines.stages.run import Run
from pipelines.stages.train import discard_tokenizer
from pipelines.stages.train import train as train_stage


def plan(config: BuildConfig) -> BuildPlan:
    """What a build would read, do and write; from the inputs' sizes and, if any, their limits."""
    return describe(Run(config))


def count(
    config: BuildConfig, *, restart: bool = False, beam_args: Sequence[str] = ()
) -> BuildSummary:
    """Counts the pre-tokens of the corpus."""
    run = Run(config, beam_args, "count")
    check_trains(run)
    run.check_inputs_and_options()
    with run.lock:
        if restart:
            discard_counts(run)
        count_stage(run)
    return run.summary


def train(
    config: BuildConfig, *, restart: bool = False, beam_args: Sequence[str] = ()
) -> BuildSummary:
    """Trains the tokenizer; counts first if that is not finished."""
    run = Run(config, beam_args, "train")
    check_trains(run)
    run.check_inputs_and_options()
    with run.lock:
        if restart:
            discard_tokenizer(run)
        train_stage(run)
    return run.summary


def encode(
    config: BuildConfig, *, restart: bool = False, beam_args: Sequence[str] = ()
) -> BuildSummary:
    """Encodes the corpus; counts and trains first if that is not finished."""
    run = Run(config, beam_args, "encode")
    run.check_inputs_and_options()
    with run.lock:
        if restart:
            discard_tokens(run)
        encode_stage(run)
    return run.summary


def build(
    config: BuildConfig, *, restart: bool = False, beam_args: Sequence[str] = ()
) -> BuildSummary:
    """Does everything; what is finished is not done again."""
    run = Run(config, beam_args)
    run.check_inputs_and_options()
    with run.lock:
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
    run.check_inputs_and_options()
    with run.lock:
        replay_stage(run, repaired or {})
    return run.summary
