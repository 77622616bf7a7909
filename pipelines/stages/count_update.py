"""Counts of an input that has changed: what was added is counted, what is gone is subtracted.

The former counts stay as they are until the new ones are complete below `counts/_update`, with a
manifest. From then on, every command that needs counts moves them to their place first.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add, sub
from typing import Final

from pipelines.accounting import check_accounts, planned_bytes_of_sources, sum_hashes
from pipelines.config import BuildConfig
from pipelines.config.fingerprints import counts_configuration
from pipelines.counting.algebra import Combination, Operation
from pipelines.counting.commits import Commit, merge_commits
from pipelines.counting.content import counts_content
from pipelines.counting.given import GivenCounts
from pipelines.counting.jobs import CountJob
from pipelines.counting.shard_files import shard_name
from pipelines.errors import DifferentConfigurationError, shortened
from pipelines.manifest.models import CountsManifest
from pipelines.manifest.names import (
    COMMIT_FILE,
    KEPT_FILES,
    MANIFEST,
    RUN_FILES,
    RUNS,
    UPDATE,
    UPDATE_FILES,
)
from pipelines.manifest.notes import CommitNote, KeptFiles
from pipelines.manifest.run_record import RunRecord
from pipelines.manifest.stage import COUNT, Identity
from pipelines.manifest.stage_comparison import find_input_changes
from pipelines.manifest.stage_records import load_manifest
from pipelines.manifest.stage_writing import begin_stage
from pipelines.stages.context import BuildContext
from pipelines.stages.count import complete_update, count, count_works, keep_file_counts
from pipelines.stages.jobs import count_job, list_works
from pipelines.stages.output import check_thresholds, remove_scratch
from pipelines.stages.summary import StageSummary
from pipelines.storage.directory import Directory
from pipelines.tasks.plan import choose_shards, estimate_text, plan_tasks

_FILES_SHOWN: Final = 3


def update_counts(context: BuildContext) -> GivenCounts:
    """Bring finished counts up to date with the input. Return the counts.

    Raises:
        DifferentConfigurationError: More than files has changed, or the counts of files that are
            gone or have changed were not kept.
    """
    output, config, inputs = context.output, context.config, context.inputs
    context.lock.acquire()
    complete_update(output, context.lock)
    former = load_manifest(COUNT, output.counts)
    if former is None:
        return count(context)
    started = time.monotonic()
    text = estimate_text(inputs.plan.files, config.input)
    shards = config.counts.shards or choose_shards(text)
    identity = Identity.of(counts_configuration(config, shards), inputs.listed)
    added, removed = find_input_changes(output.counts, former, identity)
    if not added and not removed and shards == len(former.shards):
        return count(context)
    _check_limits(context, [*added, *removed])
    update = output.counts / UPDATE
    remove_scratch(update, UPDATE_FILES, context.lock)
    kept = list(_find_kept(output.counts, former, removed))
    parts = [GivenCounts.listed(output.counts, former)]
    parts += [_count_added(context, update, identity, added)] if added else []
    counted = len(parts)
    parts += [
        _subtracted(context, update / f"removed-{number}", identity, found)
        for number, found in enumerate(kept)
    ]
    operation = Operation(
        name="subtract",
        combine=lambda rows: reduce(sub, [reduce(add, rows[:counted]), *rows[counted:]]),
        signs=(*[1] * counted, -1),
    )
    combination = Combination(parts, operation)
    begin_stage(update, identity, commits=inputs.commits, task_rule=inputs.task_rule)
    names = {shard: shard_name(shard, shards) for shard in range(shards)}
    entries = combination.write(update / "new", names, shards)
    planned = zip([source.name for source in config.input], inputs.planned_bytes, strict=True)
    manifest = combination.seal(entries, identity.configuration, identity.inputs, dict(planned))
    rejects = [name for name in output.rejects.sizes() if name.startswith("count-")]
    check_thresholds(config, output.rejects, manifest, rejects)
    check_accounts(manifest.to_json())
    # From here on the update is complete.
    update.sync()
    update.write_json(MANIFEST, manifest.to_json())
    update.sync()
    complete_update(output, context.lock)
    for found in kept:
        found.forget()
    if not config.counts.keep_file_counts:
        context.report.add_warnings(remove_scratch(output.counts / RUNS, RUN_FILES, context.lock))
    seconds = time.monotonic() - started
    context.report.add_stage(StageSummary(name=COUNT.name, state="done", seconds=seconds))
    context.report.add_counts(manifest, output.counts)
    return GivenCounts.listed(output.counts, manifest)


@dataclass(frozen=True, kw_only=True)
class _KeptCounts:
    """Kept counts of files that one job counted.

    Attributes:
        runs: Directory of the runs and commits.
        note: Files whose counts are there.
        labels: Those to subtract.
    """

    runs: Directory
    note: KeptFiles
    labels: tuple[str, ...]

    @property
    def tasks(self) -> set[int]:
        """The numbers of the tasks that counted the files to subtract."""
        return {task for label in self.labels for task in self.note.files[label].tasks}

    def commits(self) -> Iterator[Commit]:
        """Yield the commits of these tasks, each once."""
        left = self.tasks
        names = sorted(filter(COMMIT_FILE.fullmatch, self.runs.sizes()))
        for name, note in zip(names, CommitNote.load_files(self.runs, names), strict=True):
            if note is not None and left >= {int(task) for task in note.tasks} > set():
                commit = Commit.of_note(name, note)
                left -= commit.tasks.keys()
                yield commit

    def forget(self) -> None:
        """Remove the counts of the files."""
        commits = list(self.commits())
        runs = [section.run for commit in commits for run in commit.runs for section in run]
        left = {name: file for name, file in self.note.files.items() if name not in self.labels}
        self.runs.write_json(KEPT_FILES, self.note.model_copy(update={"files": left}).to_json())
        self.runs.remove_files(sorted({*runs, *(commit.name for commit in commits)}))


def _check_limits(context: BuildContext, changed: Sequence[str]) -> None:
    for source in context.config.input:
        if source.limit_documents is not None or source.limit_bytes is not None:
            raise DifferentConfigurationError(
                "Files have changed in an input with a limit, which selects the documents.",
                expected="no limit_documents nor limit_bytes",
                found=changed[0] if changed else "another number of shards",
                where=context.output.counts.url,
                hint="Count again: `beam-bpe count CONFIG --restart`.",
            )


def _seal(
    job: CountJob,
    config: BuildConfig,
    identity: Identity,
    planned: Sequence[int | None],
) -> GivenCounts:
    """Return what a job counted."""
    content = counts_content(job, config.input, planned)
    manifest = CountsManifest.seal(identity.configuration, inputs={}, **content.fields())
    return GivenCounts.listed(job.counts, manifest)


def _count_added(
    context: BuildContext, update: Directory, identity: Identity, added: Sequence[str]
) -> GivenCounts:
    """Count files alone."""
    config, output, labels = context.config, context.output, set(added)
    files = [file for file in context.inputs.listed.files if file.label in labels]
    keep = config.counts.keep_file_counts
    plan = plan_tasks(files, config.input, by_file=keep)
    # Rejects are named by number and of so many tasks, and those of the former count stay.
    of = len(plan.tasks)
    while any(name.endswith(f"-of-{of:05d}.parquet") for name in output.rejects.sizes()):
        of += 1
    works = [replace(work, of=of) for work in list_works(plan)]
    shards = identity.configuration["counts"]["shards"]
    fingerprint = identity.configuration_fingerprint
    job = count_job(config, output, plan, works, fingerprint, shards=shards)
    job = replace(job, counts=update / "added")
    count_works(context, job, works)
    if keep:
        keep_file_counts(job, works)
    given = _seal(job, config, identity, planned_bytes_of_sources(plan.files, config.input))
    assert given.manifest is not None
    check_accounts(given.manifest.to_json())
    return given


def _find_kept(
    counts: Directory, former: CountsManifest, removed: Sequence[str]
) -> Iterator[_KeptCounts]:
    """Yield the kept counts of files that are gone or have changed.

    Raises:
        DifferentConfigurationError: Those of some file were not kept.
    """
    left = set(removed)
    record = RunRecord.load(counts) if removed else None
    marks = {} if record is None else record.marks
    paths = (counts / RUNS).paths_below() if removed else ()
    for path in paths:
        plan_id, _, name = path.rpartition("/")
        if name != KEPT_FILES:
            continue
        runs = counts / RUNS / plan_id
        note = KeptFiles.load_file(runs, name)
        found = tuple(
            label
            for label in sorted(left)
            if note is not None
            and (file := note.files.get(label)) is not None
            and (file.size, file.mark) == (former.inputs[label], marks.get(label, file.mark))
        )
        if note is not None and found:
            left.difference_update(found)
            yield _KeptCounts(runs=runs, note=note, labels=found)
    if left:
        raise DifferentConfigurationError(
            "Files that were counted have changed or are gone, and their own counts were not kept; "
            "nothing was changed.",
            expected="counts.keep_file_counts: true when they were counted",
            found=shortened(sorted(left), _FILES_SHOWN),
            where=counts.url,
            hint="Restore the files, or count again: `beam-bpe count CONFIG --restart`, with "
            "counts.keep_file_counts: true if files will change again.",
        )


def _subtracted(
    context: BuildContext, directory: Directory, identity: Identity, kept: _KeptCounts
) -> GivenCounts:
    """Write the kept counts of files as shards."""
    config = context.config
    empty = plan_tasks([], config.input)
    commits = list(kept.commits())
    hashes = [value for commit in commits for value in commit.tasks.values()]
    job = replace(
        count_job(config, context.output, empty, [], "", shards=kept.note.shards),
        counts=directory,
        runs=kept.runs,
        num_tasks=len(kept.tasks),
        tasks_hash=sum_hashes(hashes),
    )
    descriptors: list[list[bytes]] = [[] for _ in range(job.shards)]
    for commit in commits:
        for shard, text in commit.descriptors(job.shards):
            descriptors[shard].append(text)
    for shard, texts in enumerate(descriptors):
        merge_commits(job, shard, texts)
    given = _seal(job, config, identity, [None] * len(config.input))
    kept.runs.remove_files([f"{name}.json" for name in given.names])
    return given
