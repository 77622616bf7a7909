"""Commits (checkpoints) of counting: finished tasks and the runs that contain their counts.

A runner may repeat a bundle, and a worker may die in the middle of one. So the counts of a bundle
belong to its attempt, and are not used until a commit names the runs and exactly the tasks that
they contain. Descriptors of commits are shuffled; a later invocation reads the same commits and
counts only the tasks that they lack.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bpe_core.count_files import FORMAT_VERSION
from bpe_core.count_groups import Group
from pipelines.accounting import DocumentTotals, sum_hashes
from pipelines.config.fingerprints import fingerprint
from pipelines.console import progress
from pipelines.counting.jobs import CountJob, Section
from pipelines.counting.shards import Descriptor, merge_shard
from pipelines.counting.table import PretokenCounter
from pipelines.errors import OutputError
from pipelines.manifest.entries import GroupDocuments
from pipelines.manifest.names import COMMIT_FILE
from pipelines.manifest.notes import CommitNote
from pipelines.metrics import Meter
from pipelines.readers.tasks import TaskWork, read_task
from pipelines.rejects.table import RejectFile
from pipelines.supervisor import current_task


@dataclass(frozen=True, kw_only=True)
class Commit:
    """Completely counted tasks, and the runs that contain their counts and nothing else.

    Attributes:
        name: Name of the commit's file.
        plan_id: Id of the plan that the tasks belong to.
        tasks: Hash of each task, by its index.
        runs: The sections of each run, one per shard.
        sources: Totals of the documents read, by the index of their source.
        long_pretokens: Number of pre-tokens that were skipped because of their length.
        groups: Number of documents of each group, if counts are kept apart.
    """

    name: str
    plan_id: str
    tasks: Mapping[int, int]
    runs: tuple[tuple[Section, ...], ...]
    sources: tuple[DocumentTotals, ...]
    long_pretokens: int
    groups: Mapping[Group, int] = field(default_factory=dict)

    @property
    def totals(self) -> DocumentTotals:
        """Return the totals of all sources together."""
        return DocumentTotals.sum_of(self.sources)

    def to_note(self) -> CommitNote:
        """Return the content of the commit's file, with its fingerprint."""
        content: dict[str, Any] = {
            "plan_id": self.plan_id,
            "tasks": {str(index): f"{value:032x}" for index, value in self.tasks.items()},
            "runs": [[asdict(section) for section in run] for run in self.runs],
            "sources": [totals.to_json() for totals in self.sources],
            "long_pretokens": self.long_pretokens,
        }
        if self.groups:
            content["groups"] = GroupDocuments.list(self.groups)
        return CommitNote.model_validate({**content, "fingerprint": fingerprint(content)})

    @classmethod
    def of_note(cls, name: str, note: CommitNote) -> Commit:
        """Return the commit from the content of its file.

        Raises:
            OutputError: The file is damaged.
        """
        content = note.to_json()
        expected = content.pop("fingerprint")
        if expected != fingerprint(content):
            raise OutputError(
                "A commit of the counts is damaged.",
                expected=f"content with the fingerprint {expected}",
                found=fingerprint(content),
                where=name,
                hint="Remove the file, so that its tasks are counted again, or start over with "
                "--restart.",
            )
        return cls(
            name=name,
            plan_id=note.plan_id,
            tasks={int(index): int(text, 16) for index, text in note.tasks.items()},
            runs=tuple(tuple(Section(**s.fields()) for s in run) for run in note.runs),
            sources=tuple(totals.document_totals() for totals in note.sources),
            long_pretokens=note.long_pretokens,
            groups={entry.group: entry.documents for entry in note.groups},
        )

    def descriptors(self, shards: int) -> Iterator[tuple[int, bytes]]:
        """Yield every shard's number with its `Descriptor` of this commit."""
        totals = self.totals
        for shard in range(shards):
            yield (
                shard,
                Descriptor(
                    items=len(self.tasks),
                    items_hash=sum_hashes(self.tasks.values()),
                    documents=totals.documents,
                    hash_sum=totals.hash_sum,
                    sections=tuple(run[shard] for run in self.runs if run[shard].length),
                    sources=self.sources if shard == 0 else (),
                    long_pretokens=self.long_pretokens if shard == 0 else 0,
                    groups=self.groups if shard == 0 else {},
                ).to_bytes(),
            )


class TaskCounter(PretokenCounter):
    """Counter of the tasks in one attempt of a bundle.

    Attributes:
        descriptors: Descriptors of commits from before the bundle began.
    """

    def __init__(self, job: CountJob, meter: Meter | None = None) -> None:
        super().__init__(job, meter)
        self._job = job
        self.descriptors: list[tuple[int, bytes]] = []
        self._start_commit()

    def count(self, work: TaskWork) -> Iterator[tuple[int, bytes]]:
        """Count a task. Yield descriptors if a commit was due."""
        totals = DocumentTotals()
        with (
            current_task(work.describe("count")),
            self._meter.time("count"),  # the time that is neither reading nor writing
            RejectFile(
                self._job.rejects,
                f"count-{work.index:05d}-of-{work.of:05d}",
                {
                    "bpe.format": FORMAT_VERSION,
                    "bpe.configuration": self._job.configuration,
                    "bpe.task": work.summary,
                },
            ) as rejects,
        ):
            for batch in self._meter.time_items("read", read_task(work, self._job.readings)):
                totals.add_batch(batch)
                rejects.add(batch.rejects)
                if self._job.reject_limit is not None:
                    self._job.reject_limit.judge(work.index, totals.rejected, batch)
                self.add(batch, work.source)
                self._meter.add_batch(batch)
        self._totals[work.source].add(totals)
        self._tasks[work.index] = work.hash
        self._all_bytes += totals.all_bytes
        self._meter.finish_task(work.planned_bytes)
        if self._all_bytes >= self._job.checkpoint_bytes:
            yield from self.commit()

    def commit(self) -> Iterator[tuple[int, bytes]]:
        """Write a commit of the tasks since the last one, and yield its descriptors."""
        if not self._tasks:
            return
        self.flush()
        commit = Commit(
            name=f"commit-{secrets.token_hex(16)}.json",
            plan_id=self._job.plan_id,
            tasks=self._tasks,
            runs=tuple(self.runs),
            sources=tuple(self._totals),
            long_pretokens=self.long_pretokens,
            groups=self.documents,
        )
        with self._meter.time("write"):
            self._job.runs.write_json(commit.name, commit.to_note().to_json())
        progress.note(kept=len(commit.tasks))
        self._meter.report_times()
        self._start_commit()
        yield from commit.descriptors(self._job.shards)

    def _start_commit(self) -> None:
        self.start()
        self._tasks: dict[int, int] = {}
        self._totals = [DocumentTotals() for _ in self._job.readings]
        self._all_bytes = 0


def begin_counting(job: CountJob, tasks: Iterable[bytes], meter: Meter) -> TaskCounter:
    """Count tasks like the first ones of a bundle, which is to continue with the counter."""
    counter = TaskCounter(job, meter)
    try:
        for task in tasks:
            counter.descriptors += counter.count(TaskWork.from_bytes(task))
    except BaseException:
        counter.close()
        raise
    return counter


def count_tasks(job: CountJob, works: Sequence[TaskWork]) -> Iterator[tuple[int, bytes]]:
    """Count tasks like one bundle, without Beam. Yield the descriptors."""
    counter = TaskCounter(job)
    try:
        for work in works:
            yield from counter.count(work)
        yield from counter.commit()
    finally:
        counter.close()


def usable_commits(job: CountJob) -> Iterator[Commit]:
    """Yield the commits of this plan in order of name, except those that repeat a task.

    They are read one by one: a commit has an entry for each section of its runs, so all commits of
    a large corpus may not fit in memory.

    Raises:
        OutputError: A commit is damaged.
    """
    seen: set[int] = set()
    names = sorted(filter(COMMIT_FILE.fullmatch, job.runs.sizes()))
    for name, note in zip(names, CommitNote.load_files(job.runs, names), strict=True):
        if note is None:
            continue
        commit = Commit.of_note(name, note)
        if commit.plan_id == job.plan_id and seen.isdisjoint(commit.tasks):
            seen.update(commit.tasks)
            yield commit


def read_commit(job: CountJob, name: str) -> Commit:
    """Read a commit that existed when the launcher listed commits.

    Raises:
        OutputError: The commit is damaged or missing.
    """
    note = CommitNote.load_file(job.runs, name)
    if note is None:
        raise OutputError(
            "A commit of the counts is missing.",
            expected="the file that existed when the build continued",
            where=job.runs.path(name),
            hint="Do not touch files of an output while a build runs. Run the command again.",
        )
    return Commit.of_note(name, note)


def merge_commits(
    job: CountJob, shard: int, descriptors: Iterable[bytes], meter: Meter | None = None
) -> dict[str, Any]:
    """Merge a shard of a build from the descriptors of all commits, and write its entry.

    Returns:
        The shard's entry of the manifest.

    Raises:
        IncompleteCountsError: The commits lack tasks of the plan or hold some twice, or a run is
            damaged.
    """
    meter = meter or Meter()
    commits = Descriptor.read_all(descriptors)
    with meter.time("merge"):
        entry = merge_shard(job, shard, commits, job.expected)
    if shard == 0:
        entry["sources"] = [totals.to_json() for totals in _add_sources(job, commits)]
        entry["long_pretokens"] = sum(commit.long_pretokens for commit in commits)
    if shard == 0 and job.grouped:
        documents: Counter[Group] = Counter()
        for commit in commits:
            documents.update(commit.groups)
        entry["group_documents"] = GroupDocuments.list(documents)
    # The launcher opens it by name, since a listing may also contain files of a repeated bundle.
    job.runs.write_json(f"{entry['name']}.json", entry)
    meter.add(distinct_pretokens=entry["rows"])
    progress.note(shards=1)
    meter.report_times()
    return entry


def _add_sources(job: CountJob, commits: Sequence[Descriptor]) -> list[DocumentTotals]:
    sources = [DocumentTotals() for _ in job.readings]
    for commit in commits:
        for totals, part in zip(sources, commit.sources, strict=True):
            totals.add(part)
    return sources
