"""Probe of a build's input before its first stage: problems, warnings and an estimate."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bpe_core.memory import available_memory
from pipelines.config import BuildConfig
from pipelines.console import progress
from pipelines.console.displays import format_seconds
from pipelines.console.units import format_bytes
from pipelines.counting.given import GivenCounts
from pipelines.counting.training_counts import check_groups
from pipelines.errors import PipelineError
from pipelines.manifest.stage import COUNT, ENCODE, TRAIN
from pipelines.manifest.stage_records import load_manifest
from pipelines.probing.checks import Checks
from pipelines.probing.samples import read_samples
from pipelines.readers.kept_columns import find_kept_columns
from pipelines.readers.tasks import keep_columns
from pipelines.stages.context import BuildContext
from pipelines.stages.estimates import Estimate, estimate_build
from pipelines.stages.imports import load_encoder
from pipelines.stages.inputs import Inputs
from pipelines.stages.jobs import check_affixes, count_readings, encode_readings
from pipelines.storage.directory import Directory
from pipelines.tasks.plan import Plan
from pipelines.tokenizers.files import Model, specials_in_text


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Result of a probe.

    Attributes:
        problem: Error with which the build would end, or None.
        warnings: Warnings for the user.
        limits: Those of them about space and memory that may not suffice.
        estimate: Expected work and output; None with a problem.
    """

    problem: PipelineError | None = None
    warnings: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    estimate: Estimate | None = None


def probe_input(
    config: BuildConfig,
    inputs: Inputs,
    plan: Plan,
    model: Model | None,
    workers: int | None,
) -> Probe:
    """Read samples of the input, check them, and estimate the work and the output.

    Args:
        config: Configuration of the build.
        inputs: Inputs of the build.
        plan: Plan of the files to read.
        model: Finished tokenizer to encode with, or None if one is trained.
        workers: Number of workers, or None if the engine decides it.

    Raises:
        InputError: The storage fails.
        ConfigError: A token to put around documents is not a special token of the tokenizer.
    """
    if model is not None:
        check_affixes(config.encode, model)
    started = time.perf_counter()
    readings = count_readings(config) if model is None else encode_readings(config, model)
    kept = find_kept_columns(config.input, plan.files)
    if kept is not None:  # instead of the field of counts.group_by
        readings = keep_columns(readings, config.input, kept)
    samples = read_samples(plan.files, config.input, readings)
    reading = time.perf_counter() - started
    specials = config.tokenizer.special_tokens if model is None else specials_in_text(model)
    checks = Checks(config, samples, tuple(specials))
    problem = checks.find_problem()
    given = None
    if config.counts.path is not None and model is None:
        try:
            given = GivenCounts.of_build(config, inputs.output)
            assert given.manifest is not None, "`of_build` refuses others"
            sizes = given.manifest.group_bytes
            check_groups(config.tokenizer, sizes, given.directory.url)
        except PipelineError as error:
            problem = problem or error
    if problem is not None:
        return Probe(problem=problem)
    estimate = estimate_build(
        config,
        plan,
        samples,
        model,
        shards=inputs.shards,
        workers=workers,
        reading=reading,
        given=given,
    )
    limits = tuple(_warn_of_limits(config, estimate, inputs.output))
    return Probe(warnings=(*checks.warnings(), *limits), limits=limits, estimate=estimate)


def check_samples(context: BuildContext) -> None:
    """Check samples of the input of a command that will read it, and show the estimate.

    Raises:
        PipelineError: The build would end with this error.
    """
    plan = None if context.command == "replay" else _plan_to_read(context)
    if plan is None:
        return
    progress.describe("reading samples of the input")
    config, output = context.config, context.output
    model = None if config.tokenizer.path is None else load_encoder(output)
    probe = probe_input(config, context.inputs, plan, model, context.planned_workers)
    if probe.problem is not None:
        raise probe.problem
    output.root.check_writable()
    context.report.add_warnings(probe.warnings)
    if probe.estimate is not None:
        progress.leave("estimate", describe_estimate(probe.estimate))
    for limit in probe.limits:  # before the work, which may end there
        progress.leave("warning", limit)


def _plan_to_read(context: BuildContext) -> Plan | None:
    """Return the plan of the files that the command reads, or None if it reads none."""
    inputs, output = context.inputs, context.output
    if context.command in (COUNT.name, TRAIN.name):
        is_counted = COUNT not in inputs.redone and load_manifest(COUNT, output.counts) is not None
        return None if is_counted else inputs.plan
    dataset = None if ENCODE in inputs.redone else load_manifest(ENCODE, output.tokens)
    if dataset is None:
        return inputs.plan
    added = inputs.plan_added(dataset, output.tokens.url)
    return added if added.files else None


def describe_estimate(estimate: Estimate) -> str:
    """Return the estimate in a line."""
    about = "" if estimate.exact else "about "
    parts = [
        f"{about}{estimate.documents:,} documents, {format_bytes(estimate.text_bytes)} of text"
    ]
    tasks = f"{estimate.tasks:,} task" + ("" if estimate.tasks == 1 else "s")
    if estimate.elapsed is not None and estimate.workers is not None:
        workers = f"{estimate.workers:,} worker" + ("" if estimate.workers == 1 else "s")
        parts.append(f"{tasks} on {workers}, about {format_seconds(estimate.elapsed)}")
    else:
        parts.append(tasks)
    if estimate.output_bytes is not None:
        parts.append(f"output about {format_bytes(estimate.output_bytes)}")
    return "; ".join(parts)


def _warn_of_limits(config: BuildConfig, estimate: Estimate, output: Directory) -> Iterator[str]:
    """Yield warnings about what the machine or the corpus may not allow."""
    needed, free = estimate.output_bytes, _free_bytes(output)
    if needed is not None and free is not None and needed > free:
        yield (
            f"the output may need {format_bytes(needed)}, and {format_bytes(free)} are free in "
            f"{output.url}"
        )
    memory, available = estimate.memory.get("train"), available_memory()
    at_launcher = config.tokenizer.train_where == "launcher"
    if memory is not None and available is not None and memory > available and at_launcher:
        yield (
            f"training may need {format_bytes(memory)} of memory, and {format_bytes(available)} "
            "are available: raise tokenizer.min_count, or train on a machine with more memory"
        )


def _free_bytes(output: Directory) -> int | None:
    """Return the free space of a local output, or None for other storages."""
    if not output.is_local:
        return None
    place = Path(output.local_path(""))
    existing = next((one for one in (place, *place.parents) if one.is_dir()), None)
    return None if existing is None else shutil.disk_usage(existing).free
