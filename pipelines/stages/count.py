"""The stage that counts the pre-tokens of the corpus."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pipelines.config.identity import (
    counts_configuration,
    fingerprint,
)
from pipelines.dataset.names import RUN_FILES
from pipelines.errors import (
    ConfigError,
)
from pipelines.stages.run import Made, Run, importing

if TYPE_CHECKING:
    from pipelines.config import SourceConfig
    from pipelines.counting import CountJob
    from pipelines.manifest import Identity


_MASK_128 = (1 << 128) - 1


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
    from pipelines.manifest import discard_stage, stated

    run.lock.acquire()
    counts = stated(run.counts).get("configuration", {}).get("counts", {})
    of = f"{counts['shards']:05d}" if "shards" in counts else r"\d+"
    run.discard_count_rejects()
    if stated(run.counts):
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
        from pipelines.accounting import (
            DocumentTotals,
            check_accounts,
            planned_bytes_of_sources,
        )
        from pipelines.beam_metrics import read_metrics
        from pipelines.console import progress
        from pipelines.readers.work import TaskWork
        from pipelines.stages.detached import submit
        from pipelines.stages.transforms import CountTasks, ReadTasks

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


def _count_job(run: Run, identity: Identity, task_hashes: Sequence[int]) -> CountJob:
    from pipelines.counting import CountJob
    from pipelines.readers.work import source_readings

    config = run.config
    tokenizer = config.tokenizer
    return CountJob(
        counts=run.counts,
        rejects=run.rejects,
        configuration=identity.configuration_fingerprint,
        plan_id=run.plan.plan_id(identity.configuration_fingerprint),
        num_tasks=len(task_hashes),
        tasks_hash=sum(task_hashes) & _MASK_128,
        pattern=tokenizer.effective_pattern,
        special_tokens=tokenizer.special_tokens,
        normalizer=tokenizer.normalization_form,
        normalize_quotes=tokenizer.normalize_quotes,
        shards=config.counts.shards,
        memory=config.counts.memory,
        checkpoint_bytes=config.counts.checkpoint_bytes,
        max_pretoken_bytes=config.counts.max_pretoken_bytes,
        on_long_pretoken=config.counts.on_long_pretoken,
        readings=source_readings(
            config.input,
            tokenizer.effective_pattern,
            tokenizer.special_tokens,
            normalizer=tokenizer.normalization_form,
            normalize_quotes=tokenizer.normalize_quotes,
        ),
    )


def shard_entries(job: CountJob) -> list[dict[str, Any]] | None:
    """The entries of all shards; None unless all of them are there, with their files."""
    from pipelines.counting import shard_name

    names = [f"{shard_name(shard, job.shards)}.json" for shard in range(job.shards)]
    if not job.runs.sizes().keys() >= set(names):
        return None
    present = job.counts.sizes()
    entries = [entry for entry in job.runs.read_json_files(names) if entry is not None]
    there = [entry for entry in entries if present.get(entry["name"]) == entry["bytes"]]
    return there if len(there) == job.shards else None


def counts_content(
    job: CountJob, sources: Sequence[SourceConfig], planned_bytes: Sequence[int | None]
) -> dict[str, Any]:
    """The part of the manifest that the shards' entries add up to.

    Args:
        job: whose shards are all there.
        sources: of the configuration.
        planned_bytes: of each source.
    """
    from pipelines.accounting import DocumentTotals

    entries = shard_entries(job)
    assert entries is not None, "a finished pipeline has written every shard and its entry"
    # The first has been told what it takes one to tell.
    found = entries[0].pop("sources")
    long_pretokens = entries[0].pop("long_pretokens")
    totals = DocumentTotals.sum_of(map(DocumentTotals.from_json, found))
    content = {
        "corpus": totals.corpus_fingerprint,
        "sources": [
            {"name": source.name, "planned_bytes": bytes_, **of_it}
            for source, bytes_, of_it in zip(sources, planned_bytes, found, strict=True)
        ],
        "shards": entries,
        "totals": {
            **totals.to_json(),
            "distinct_pretokens": sum(entry["rows"] for entry in entries),
            "pretokens": sum(entry["pretokens"] for entry in entries),
            "long_pretokens": long_pretokens,
        },
    }
    return {**content, "fingerprint": fingerprint(content)}


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
