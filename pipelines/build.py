"""Commands of a build as functions: plan, count, train, encode, build, replay, sizes.

    import pipelines

    summary = pipelines.build("configs/quickstart.yaml")
    tokenizer = summary.load_tokenizer()

The module is itself the function `build`. A configuration is given as a `BuildConfig`, the path of
a YAML file, or a dict with its keys and values, whose relative paths are relative to the current
directory. Local pipelines run in threads of the calling process, in scripts and notebooks alike.

A finished stage is not repeated: a command does the missing work and writes the manifest of each
stage last. With `no_wait`, the first required pipeline is submitted and the command ends; the next
command continues from the results of the job. With `take_over`, it continues even if such a job has
not reported its end.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any, TypeAlias

from pipelines.analysis.size_comparison import check_compares, compare_sizes
from pipelines.analysis.sizes import SizesReport
from pipelines.config import BuildConfig, read_config
from pipelines.console.progress import describe, expect, shown_to_program
from pipelines.errors import ConfigError
from pipelines.manifest.stage import COUNT, ENCODE
from pipelines.stages.base import resolve_base
from pipelines.stages.configuration_record import describe_changes
from pipelines.stages.context import BuildContext, Submitted
from pipelines.stages.count import check_trains, discard_counts
from pipelines.stages.count import count as count_stage
from pipelines.stages.count_update import update_counts
from pipelines.stages.encode import discard_tokens
from pipelines.stages.encode import encode as encode_stage
from pipelines.stages.following import outdates_following
from pipelines.stages.imports import discard_imported
from pipelines.stages.output import Output
from pipelines.stages.plan import check_output, plan_build
from pipelines.stages.probe import check_samples
from pipelines.stages.replay import replay as replay_stage
from pipelines.stages.report_page import write_report_page
from pipelines.stages.summary import BuildPlan, BuildSummary
from pipelines.stages.superwords import discard_other_superwords, discard_superwords
from pipelines.stages.train import discard_tokenizer
from pipelines.stages.train import train as train_stage
from pipelines.storage.directory import Directory
from pipelines.storage.locks import OutputLock

Config: TypeAlias = "BuildConfig | Mapping[str, Any] | str | os.PathLike[str]"


def plan(config: Config) -> BuildPlan:
    """Return what a build would read, do and write; only samples of the input are read.

    Args:
        config: configuration of the build; see `build`.

    Raises:
        ConfigError: the configuration is wrong.
        InputError: files are missing or cannot be read.
    """
    checked = _read(config)
    context = BuildContext.of(checked, "plan")
    return plan_build(checked, context.inputs, context.output, context.planned_workers)


def count(
    config: Config,
    *,
    restart: bool = False,
    update: bool = False,
    no_wait: bool = False,
    take_over: bool = False,
    beam_args: Sequence[str] = (),
    progress: bool = False,
) -> BuildSummary:
    """Count the pre-tokens of the corpus.

    Other arguments and errors are those of `build`.

    Args:
        config: configuration of the build.
        update: if files were added, count them alone, and add their counts; subtract those of files
            that changed or are gone, if they were kept (`counts.keep_file_counts`).
    """
    checked = _read(config)
    check_trains(checked)
    if update and (restart or no_wait):
        raise ConfigError(
            "An update neither starts again nor is submitted.",
            expected="update alone",
            found="restart" if restart else "no_wait",
        )
    context = BuildContext.of(
        checked,
        "count",
        beam_args,
        no_wait=no_wait,
        take_over=take_over,
        redone=(COUNT,) if restart else (),
    )
    stage = update_counts if update else count_stage
    return _run_stage(context, stage, [discard_counts] if restart else [], progress)


def train(
    config: Config,
    *,
    restart: bool = False,
    no_wait: bool = False,
    take_over: bool = False,
    beam_args: Sequence[str] = (),
    progress: bool = False,
) -> BuildSummary:
    """Train the tokenizer; count first if necessary. Arguments and errors are those of `build`."""
    checked = _read(config)
    check_trains(checked)
    context = BuildContext.of(checked, "train", beam_args, no_wait=no_wait, take_over=take_over)
    discards = (discard_tokenizer, partial(discard_other_superwords, context)) if restart else ()
    return _run_stage(context, train_stage, discards, progress)


def encode(
    config: Config,
    *,
    restart: bool = False,
    no_wait: bool = False,
    take_over: bool = False,
    beam_args: Sequence[str] = (),
    progress: bool = False,
) -> BuildSummary:
    """Encode the corpus; count and train first if necessary.

    Arguments and errors are those of `build`.
    """
    checked = _read(config)
    context = BuildContext.of(
        checked,
        "encode",
        beam_args,
        no_wait=no_wait,
        take_over=take_over,
        redone=(ENCODE,) if restart else (),
    )
    return _run_stage(
        context, encode_stage, [discard_tokens, discard_imported] if restart else [], progress
    )


def build(
    config: Config,
    *,
    restart: bool = False,
    no_wait: bool = False,
    take_over: bool = False,
    beam_args: Sequence[str] = (),
    progress: bool = False,
) -> BuildSummary:
    """Count, train and encode; what is finished is not repeated.

    Args:
        config: configuration of the build: the path of a YAML file, its keys and values, or a
            `BuildConfig`.
        restart: discard the output of all stages, and start again.
        no_wait: submit the first required pipeline to an engine, and return.
        take_over: take the output over from an unfinished job of `no_wait`.
        beam_args: Beam options such as `--name=value`.
        progress: True to show progress on standard error.

    Returns:
        The result: numbers of documents, tokens and rejects, seconds, and where everything is.

    Raises:
        ConfigError: the configuration is wrong; the error lists each problem with its key.
        InputError: files are missing or cannot be read.
        DifferentConfigurationError: the output is that of another configuration.
        RejectLimitError: too many documents are rejected.
        OutputError: the output cannot be written, or another build writes to it.
        PipelineError: root of these and of all others.

    Example:
        >>> summary = build(
        ...     {
        ...         "output": "out/books",
        ...         "input": {"files": ["books/*.txt"], "format": "text"},
        ...         "tokenizer": {"vocab_size": 8000, "special_tokens": ["<|endoftext|>"]},
        ...     }
        ... )  # doctest: +SKIP
        >>> summary.load_tokenizer().encode("In the beginning")  # doctest: +SKIP
        [1143, 259, 2077]
    """
    checked = _read(config)
    context = BuildContext.of(
        checked,
        "build",
        beam_args,
        no_wait=no_wait,
        take_over=take_over,
        redone=(COUNT, ENCODE) if restart else (),
    )
    trains = checked.tokenizer.path is None
    discard_trained = [discard_tokenizer, discard_superwords, discard_counts]
    trained = discard_trained if trains else [discard_imported]
    discards = [discard_tokens, *trained]
    return _run_stage(context, encode_stage, discards if restart else [], progress)


def add(
    config: Config,
    *,
    take_over: bool = False,
    beam_args: Sequence[str] = (),
    progress: bool = False,
) -> BuildSummary:
    """Encode files that were added to a finished dataset, with the tokenizer that it has.

    Other arguments and errors are those of `build`.

    Raises:
        InputError: there is no finished dataset.
    """
    context = BuildContext.of(_read(config), "add", beam_args, take_over=take_over)
    return _run_stage(context, encode_stage, [], progress)


def replay(
    config: Config,
    repaired: Mapping[str, str] | None = None,
    *,
    beam_args: Sequence[str] = (),
    progress: bool = False,
) -> BuildSummary:
    """Encode documents that a build rejected, by a changed policy or from repaired files.

    Args:
        config: configuration of the dataset; only keys that determine rejects may differ.
        repaired: path or URL of a repaired file, by the name of the file in the column `source`.
        beam_args: Beam options.
        progress: True to show progress on standard error.
    """
    files = repaired or {}
    context = BuildContext.of(_read(config), "replay", beam_args, repaired=tuple(files.values()))
    return _run_stage(context, partial(replay_stage, repaired=files), [], progress)


def sizes(
    config: Config,
    vocab_sizes: Sequence[int],
    *,
    beam_args: Sequence[str] = (),
    progress: bool = False,
) -> SizesReport:
    """Compare vocabularies of several sizes by the counts of a build; count first if necessary.

    Args:
        config: configuration of the build; see `build`.
        vocab_sizes: sizes of the vocabulary, special tokens included; at least one.
        beam_args: Beam options for counting.
        progress: True to show progress on standard error.

    Raises:
        ConfigError: a size is not possible, or the tokenizer does not merge bytes.
        InputError, PipelineError: see `build`.
    """
    checked = _read(config)
    check_compares(checked.tokenizer, vocab_sizes)
    if checked.counts.path is None:
        count(checked, beam_args=beam_args, progress=progress)
    root = Directory(url=checked.output_path, storage_options=checked.output_storage_options)
    with shown_to_program(progress, "loading counts"):
        return compare_sizes(root, vocab_sizes, checked)


def _read(config: Config) -> BuildConfig:
    """Return the configuration, with the settings of the tokenizer that it extends, if any."""
    return resolve_base(read_config(config))


def _run_stage(
    context: BuildContext,
    run: Callable[[BuildContext], object],
    discards: Sequence[Callable[[Output, OutputLock], Sequence[str]]],
    progress: bool,
) -> BuildSummary:
    """Check the inputs, discard what the user wants to redo, and run a stage. Return the summary.

    Args:
        context: context of the command.
        run: function of the last stage of the command, which runs the earlier ones.
        discards: functions that remove the files of stages, and return warnings.
        progress: True to show progress if the caller is not a command, which shows its own.
    """
    started = time.monotonic()
    with shown_to_program(progress, "listing the input files"):
        expect(context.stages)
        describe("listing the input files")
        context.check()
        check_samples(context)
        if context.command != "replay":  # which is for changed policies
            context.report.add_warnings(describe_changes(context.config, context.output.root))
        with suppress(Submitted), context.lock:
            for discard in discards:
                context.report.add_warnings(discard(context.output, context.lock))
            if context.no_wait:  # a job could not stop before a stage that is refused
                check_output(context.config, context.inputs, context.output, context.command)
            run(context)
            write_report_page(context)
    return replace(
        context.report.summary,
        outdates_next=outdates_following(context),
        seconds=time.monotonic() - started,
    )


class CallableModule(ModuleType):
    """Module of the commands, which is itself the function `build`."""

    plan = staticmethod(plan)
    count = staticmethod(count)
    train = staticmethod(train)
    encode = staticmethod(encode)
    build = staticmethod(build)
    add = staticmethod(add)
    replay = staticmethod(replay)
    sizes = staticmethod(sizes)
    __call__ = staticmethod(build)


# `pipelines.build` was this module before it was a function, and is both.
sys.modules[__name__].__class__ = CallableModule
