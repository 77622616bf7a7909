"""Stage that counts the pre-tokens of the corpus."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

from pipelines.accounting import check_accounts
from pipelines.config import BuildConfig
from pipelines.config.fingerprints import counts_configuration
from pipelines.counting.commits import begin_counting, usable_commits
from pipelines.counting.content import counts_content, shard_entries
from pipelines.counting.given import GivenCounts
from pipelines.counting.jobs import CountJob
from pipelines.errors import ConfigError
from pipelines.manifest.models import CountsManifest
from pipelines.manifest.names import (
    KEPT_FILES,
    RUN_FILES,
    RUNS,
    SHARD_FILE,
    UPDATE,
    UPDATE_FILES,
)
from pipelines.manifest.notes import KeptFile, KeptFiles
from pipelines.manifest.run_record import StagePlan
from pipelines.manifest.stage import COUNT, Identity
from pipelines.manifest.stage_records import Remains, load_manifest, load_plan
from pipelines.manifest.stage_writing import begin_stage, discard_stage, finish_stage
from pipelines.metrics import PipelineRun
from pipelines.readers.tasks import TaskWork
from pipelines.stages.context import BuildContext
from pipelines.stages.jobs import count_job, list_works
from pipelines.stages.lifecycle import StageResult, find_finished, finish
from pipelines.stages.output import (
    Output,
    check_thresholds,
    discard_count_rejects,
    remove_scratch,
)
from pipelines.stages.submit import submit
from pipelines.stages.summary import StageSummary
from pipelines.stages.task_runs import run_tasks
from pipelines.storage.locks import OutputLock
from pipelines.tasks.plan import Plan, plan_tasks

if TYPE_CHECKING:
    from pipelines.stages.pipelines import Steps

_COPIED_AT_ONCE: Final = 8 << 20


def count(context: BuildContext) -> GivenCounts:
    """Count the pre-tokens unless this is already done. Return the counts."""
    if context.config.counts.path is not None:
        return _use_given(context)
    complete_update(context.output, context.lock)
    inputs, output = context.inputs, context.output
    identity = Identity.of(counts_configuration(context.config, inputs.shards), inputs.listed)
    manifest = find_finished(context, COUNT, identity, discard_counts)
    if manifest is None:
        limits = inputs.limits
        started = time.monotonic()
        begin_stage(
            output.counts,
            identity,
            limits,
            len(counting_plan(context).tasks),
            inputs.commits,
            task_rule=inputs.task_rule,
        )
        manifest, result = _count_tasks(context, identity)
        finish(context, COUNT, identity, manifest, result, started)
    if not context.config.counts.keep_file_counts:
        context.report.add_warnings(remove_scratch(output.counts / RUNS, RUN_FILES, context.lock))
    context.report.add_counts(manifest, output.counts)
    return GivenCounts.listed(output.counts, manifest)


def _use_given(context: BuildContext) -> GivenCounts:
    """Return the counts at `counts.path`."""
    if context.command == "count":
        raise ConfigError(
            "There is nothing to count.",
            expected="the input to count",
            found="counts.path, finished counts",
            hint="Run `beam-bpe train`, or remove counts.path.",
        )
    given = GivenCounts.of_build(context.config, context.output.root)
    assert given.manifest is not None, "`of_build` refuses others"
    context.report.add_stage(StageSummary(name=COUNT.name, state="already finished"))
    context.report.add_counts(given.manifest, given.directory)
    return given


def discard_counts(output: Output, lock: OutputLock) -> list[str]:
    """Remove the files of the stage. Return warnings."""
    lock.acquire()
    declared = Remains.load(COUNT, output.counts).declared
    counts = {} if declared is None else declared.configuration.get("counts", {})
    of = f"{counts['shards']:05d}" if "shards" in counts else r"\d+"
    discard_count_rejects(output)
    warnings = remove_scratch(output.counts / RUNS, RUN_FILES, lock)
    warnings += remove_scratch(output.counts / UPDATE, UPDATE_FILES, lock)
    discard_stage(COUNT, output.counts, rf"shard-\d+-of-{of}\.parquet")
    return warnings


def check_trains(config: BuildConfig) -> None:
    """Check that a configuration trains a tokenizer.

    Raises:
        ConfigError: It uses a finished one.
    """
    if config.tokenizer.path is not None:
        raise ConfigError(
            "There is nothing to count or to train.",
            expected="a tokenizer to train",
            found="tokenizer.path, a finished tokenizer",
            hint="Run `beam-bpe encode`, or remove tokenizer.path.",
        )


def counting_plan(context: BuildContext) -> Plan:
    """Return the plan by which the input is counted."""
    config, inputs = context.config, context.inputs
    if not config.counts.keep_file_counts:
        return inputs.plan
    return plan_tasks(inputs.plan.files, config.input, inputs.task_rule, by_file=True)


def count_works(
    context: BuildContext,
    job: CountJob,
    works: Sequence[TaskWork],
    *,
    title: str = "counting",
    submit_steps: Callable[[Steps], NoReturn] | None = None,
) -> StageResult:
    """Count the tasks that no commit contains, and merge the shards. Return metrics.

    Args:
        context: Context of the command.
        job: Job that counts them.
        works: All tasks of the job.
        title: Name of the work, for the progress display.
        submit_steps: Function that submits the job and ends the command; None if it must not be.
    """
    commits: list[str] = []
    done: set[int] = set()
    bytes_before = 0
    for commit in usable_commits(job):
        commits.append(commit.name)
        done.update(commit.tasks)
        bytes_before += commit.totals.all_bytes
    run = PipelineRun()
    if shard_entries(job) is None:
        left = [work for work in works if work.index not in done]
        if context.no_wait and submit_steps is not None:
            submit_steps(context.pipelines.count(left, job, commits))
        run = run_tasks(
            context,
            left,
            lambda pipelines, queue: pipelines.count(left, job, commits, queue),
            partial(begin_counting, job),
            title=title,
            shards=job.shards,
        )
    return StageResult(resumed=bool(commits), bytes=-bytes_before, pipeline=run)


def keep_file_counts(job: CountJob, works: Sequence[TaskWork]) -> None:
    """Record which tasks contain a file, beside the runs of the job, which stay."""
    files: dict[str, KeptFile] = {}
    for work in works:
        for file, _, _ in work.parts:
            kept = files.setdefault(
                file.label, KeptFile(size=file.size, mark=file.version_tag, tasks=[])
            )
            kept.tasks.append(work.index)
    note = KeptFiles(shards=job.shards, files=files)
    job.runs.write_json(KEPT_FILES, note.to_json())


def _count_tasks(context: BuildContext, identity: Identity) -> tuple[CountsManifest, StageResult]:
    """Count the tasks that no commit contains, and merge the shards. Return the manifest."""
    config, inputs, output = context.config, context.inputs, context.output
    plan = counting_plan(context)
    works = list_works(plan)
    fingerprint = identity.configuration_fingerprint
    job = count_job(config, output, plan, works, fingerprint, shards=inputs.shards)
    result = count_works(
        context, job, works, submit_steps=lambda steps: submit(context, COUNT, steps, job)
    )
    manifest = CountsManifest.seal(
        identity.configuration,
        inputs=dict(identity.inputs),
        **counts_content(job, config.input, inputs.planned_bytes).fields(),
    )
    ours = re.compile(rf"count-\d+-of-{len(works):05d}\.parquet")
    names = sorted(filter(ours.fullmatch, output.rejects.sizes()))
    check_thresholds(config, output.rejects, manifest, names)
    check_accounts(manifest.to_json())
    if config.counts.keep_file_counts:
        keep_file_counts(job, works)
    result = replace(
        result,
        bytes=manifest.totals.document_totals().all_bytes + result.bytes,
        # `discard_count_rejects` needs the number of tasks, which is part of the names of reject
        # files.
        run={"limits": inputs.limits, "commits": inputs.commits, "tasks": len(works)},
    )
    return manifest, result


def complete_update(output: Output, lock: OutputLock) -> None:
    """Move counts of a complete update to their place, if there are such; see `update_counts`."""
    update, counts = output.counts / UPDATE, output.counts
    manifest = load_manifest(COUNT, update)
    plan = load_plan(COUNT, update)
    if manifest is None or not isinstance(plan, StagePlan):
        return
    lock.acquire()
    for shard in manifest.shards:
        with counts.write(shard.name) as file:
            for start in range(0, shard.bytes, _COPIED_AT_ONCE):
                end = min(start + _COPIED_AT_ONCE, shard.bytes)
                file.write((update / "new").read_bytes(shard.name, start, end))
    names = {shard.name for shard in manifest.shards}
    counts.remove_files([n for n in counts.sizes() if SHARD_FILE.fullmatch(n) and n not in names])
    identity = Identity(configuration=plan.configuration, inputs=plan.inputs, marks=plan.marks)
    run = {
        "seconds": 0.0,
        "runner": "none",
        "workers": None,
        "metrics": None,
        "limits": {},
        "commits": plan.commits,
    }
    finish_stage(COUNT, counts, identity, manifest, run)
    remove_scratch(update, UPDATE_FILES, lock)
