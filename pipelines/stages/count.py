"""The stage that counts the pre-tokens of the corpus."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pipelines.config.fingerprints import counts_configuration
from pipelines.counting.content import counts_content, shard_entries
from pipelines.errors import ConfigError
from pipelines.manifest.names import RUN_FILES
from pipelines.stages.context import Made, Run, importing
from pipelines.stages.jobs import _count_job

if TYPE_CHECKING:
    from pipelines.manifest.stage import Identity


def count(run: Run) -> dict[str, Any]:
    """Counts what is not counted yet; gives the manifest."""
    manifest = run.stage(
        "count",
        run.counts,
        counts_configuration(run.config),
        lambda identity: _run_count(run, identity),
    )
    run.remove_scratch(run.counts / "_runs", RUN_FILES)
    _note_counts(run, manifest)
    return manifest


def discard_counts(run: Run) -> None:
    """Removes what the stage wrote."""
    from pipelines.manifest.stage import discard_stage, read_for_discarding

    run.lock.acquire()
    found = read_for_discarding(run.counts) or {}
    shards = found.get("configuration", {}).get("counts", {}).get("shards")
    of = f"{shards:05d}" if isinstance(shards, int) else r"\d+"
    run.discard_count_rejects()
    run.remove_scratch(run.counts / "_runs", RUN_FILES)
    discard_stage(run.counts, rf"shard-\d+-of-{of}\.parquet")


def check_trains(run: Run) -> None:
    """Whether a tokenizer is to be trained at all."""
    if run.config.tokenizer.path is not None:
        raise ConfigError(
            "Nothing is to be counted or trained.",
            expected="a tokenizer to train",
            found="tokenizer.path, a finished tokenizer",
            hint="Run `beam-bpe encode`, or remove tokenizer.path.",
        )


def _run_count(run: Run, identity: Identity) -> Made:
    with importing():
        from pipelines import counting, runners
        from pipelines.accounting import DocumentTotals, check_accounts, planned_bytes_of_sources
        from pipelines.beam.metrics import read_metrics
        from pipelines.beam.read_tasks import ReadTasks
        from pipelines.console import progress
        from pipelines.readers.tasks import TaskWork
        from pipelines.stages.submit import submit
        from pipelines.stages.transforms import CountTasks

    works = [TaskWork.of_plan(run.plan, task) for task in run.plan.tasks]
    job = _count_job(run, identity, [work.hash for work in works])
    commits: list[str] = []
    done: set[int] = set()
    earlier = 0
    for commit in counting.usable_commits(job):
        commits.append(commit.name)
        done.update(commit.tasks)
        earlier += commit.totals.all_bytes
    left = [work for work in works if work.index not in done]

    def counted(pipeline: Any) -> Any:
        tasks = pipeline | "ReadTasks" >> ReadTasks(works=left)
        return tasks | "CountPretokens" >> CountTasks(job=job, commits=commits)

    measured = None
    if shard_entries(job) is None:
        if run.no_wait:
            submit(run, "count", counted, job)
        with (
            progress.shown("counting tasks", len(left)),
            runners.pipeline(run.config.beam, run.beam_args, run.places) as pipeline,
        ):
            counted(pipeline)
        measured = read_metrics(pipeline.result, len(left))
    planned = planned_bytes_of_sources(run.plan.files, run.config.input)
    content = counts_content(job, run.config.input, planned)
    ours = re.compile(rf"count-\d+-of-{len(works):05d}\.parquet")
    run.check_limits(content, sorted(filter(ours.fullmatch, run.rejects.sizes())))
    check_accounts({**content, "inputs": identity.inputs, "configuration": identity.configuration})
    fresh = DocumentTotals.from_json(content["totals"]).all_bytes - earlier
    return Made(content=content, resumed=bool(commits), bytes=fresh, measured=measured)


def _note_counts(run: Run, manifest: Mapping[str, Any]) -> None:
    totals = manifest["totals"]
    run.note_documents(totals)
    warnings = run.summary.warnings
    if totals["long_pretokens"]:
        warnings += (
            f"{totals['long_pretokens']:,} pre-tokens longer than counts.max_pretoken_bytes "
            "were not counted",
        )
    run.summary = replace(
        run.summary,
        distinct_pretokens=totals["distinct_pretokens"],
        outputs={**run.summary.outputs, "counts": run.counts.url},
        warnings=warnings,
    )
