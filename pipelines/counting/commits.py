"""Commits: the tasks that a worker has counted and the runs that hold them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bpe_core.counts import FORMAT_VERSION
from pipelines.accounting import DocumentTotals
from pipelines.config.fingerprints import fingerprint
from pipelines.counting.jobs import _MASK_128, CountJob, Section
from pipelines.counting.table import PretokenCounter
from pipelines.errors import OutputError
from pipelines.manifest.models import CommitRecord
from pipelines.manifest.names import COMMIT_FILE
from pipelines.metrics import Meter
from pipelines.readers.tasks import TaskWork, read_task
from pipelines.rejects.table import RejectFile
from pipelines.supervisor import current_task

# Metadata of a shard that say nothing of the counts.
_OF_A_FILE = (b"bpe.shard", b"bpe.format", b"bpe.totals")


@dataclass(frozen=True, kw_only=True)
class Commit:
    """Tasks that were counted wholly, and the runs that hold their counts and nothing else.

    Attributes:
        name: of its file.
        plan_id: of the plan that the tasks are of.
        tasks: their hashes by index.
        runs: for each run its sections, one a shard.
        sources: totals of the documents read, by the index of their source.
        long_pretokens: pre-tokens that were skipped because of their length.
    """

    name: str
    plan_id: str
    tasks: Mapping[int, int]
    runs: tuple[tuple[Section, ...], ...]
    sources: tuple[DocumentTotals, ...]
    long_pretokens: int

    @property
    def totals(self) -> DocumentTotals:
        """Of all sources together."""
        return DocumentTotals.sum_of(self.sources)

    def to_json(self) -> dict[str, Any]:
        """What the file says, with a fingerprint of it."""
        content = {
            "plan_id": self.plan_id,
            "tasks": {str(index): f"{value:032x}" for index, value in self.tasks.items()},
            "runs": [[asdict(section) for section in run] for run in self.runs],
            "sources": [totals.to_json() for totals in self.sources],
            "long_pretokens": self.long_pretokens,
        }
        return {**content, "fingerprint": fingerprint(content)}

    @classmethod
    def from_json(cls, name: str, value: Mapping[str, Any]) -> Commit:
        """The commit that a file of this name says.

        Raises:
            OutputError: the file is damaged.
        """
        content = {key: item for key, item in value.items() if key != "fingerprint"}
        if value.get("fingerprint") != fingerprint(content):
            raise OutputError(
                "A commit of the counts is damaged.",
                expected=f"content with the fingerprint {value.get('fingerprint')}",
                found=fingerprint(content),
                where=name,
                hint="Remove the file, so that its tasks are counted again, or begin anew with "
                "--restart.",
            )
        return cls(
            name=name,
            plan_id=value["plan_id"],
            tasks={int(index): int(text, 16) for index, text in value["tasks"].items()},
            runs=tuple(tuple(Section(**s) for s in run) for run in value["runs"]),
            sources=tuple(map(DocumentTotals.from_json, value["sources"])),
            long_pretokens=value["long_pretokens"],
        )

    def descriptors(self, shards: int) -> Iterator[tuple[int, bytes]]:
        """What each shard has to know of this commit, as (shard, JSON).

        All of them go through the shuffle: what one shard's entry is enough to tell the launcher,
        the first has alone.
        """
        totals = self.totals
        common = {
            "commit": self.name,
            "tasks": len(self.tasks),
            "tasks_hash": f"{sum(self.tasks.values()) & _MASK_128:032x}",
            "documents": totals.documents,
            "hash_sum": f"{totals.hash_sum:032x}",
        }
        first = {
            "sources": [source.to_json() for source in self.sources],
            "long_pretokens": self.long_pretokens,
        }
        for shard in range(shards):
            sections = [asdict(run[shard]) for run in self.runs if run[shard].length]
            more = first if shard == 0 else {}
            yield shard, json.dumps({**common, **more, "sections": sections}).encode()


def usable_commits(job: CountJob) -> Iterator[Commit]:
    """The commits of this plan, in order of name, without those that repeat a task.

    One after another: a commit has an entry for each section of its runs, so all of those of a
    large corpus may be more than fits in memory.

    Raises:
        OutputError: one is damaged.
    """
    taken: set[int] = set()
    names = sorted(filter(COMMIT_FILE.fullmatch, job.runs.sizes()))
    for name, value in zip(names, job.runs.read_json_files(names, CommitRecord), strict=True):
        if value is None:
            continue
        commit = Commit.from_json(name, value)
        if commit.plan_id == job.plan_id and taken.isdisjoint(commit.tasks):
            taken.update(commit.tasks)
            yield commit


def read_commit(job: CountJob, name: str) -> Commit:
    """The commit in a file that was there when the launcher looked.

    Raises:
        OutputError: it is damaged, or gone.
    """
    value = job.runs.read_json(name, CommitRecord)
    if value is None:
        raise OutputError(
            "A commit of the counts is gone.",
            expected="the file, as it was when the build went on",
            where=job.runs.path(name),
            hint="Leave files of an output alone while a build runs, and run the command again.",
        )
    return Commit.from_json(name, value)


class TaskCounter(PretokenCounter):
    """Counts the tasks of one bundle attempt."""

    def __init__(self, job: CountJob, meter: Meter | None = None) -> None:
        super().__init__(job, meter)
        self._job = job
        self._start_commit()

    def count(self, work: TaskWork) -> Iterator[tuple[int, bytes]]:
        """Counts a task. Gives descriptors if that made a commit due."""
        totals = DocumentTotals()
        with (
            current_task(work.describe("count")),
            self._meter.time("count"),  # what is neither reading nor writing
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
            for batch in self._meter.timed("read", read_task(work, self._job.readings)):
                totals.add_batch(batch)
                rejects.add(batch.rejects)
                self.add(batch)
                self._meter.add_batch(batch)
        self._totals[work.source].add(totals)
        self._tasks[work.index] = work.hash
        self._all_bytes += totals.all_bytes
        self._meter.finish_task()
        if self._all_bytes >= self._job.checkpoint_bytes:
            yield from self.commit()

    def commit(self) -> Iterator[tuple[int, bytes]]:
        """Writes what was counted since the last commit; gives its descriptors."""
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
        )
        with self._meter.time("write"):
            self._job.runs.write_json(commit.name, commit.to_json())
        self._meter.tell_times()
        self._start_commit()
        yield from commit.descriptors(self._job.shards)

    def _start_commit(self) -> None:
        self.start()
        self._tasks: dict[int, int] = {}
        self._totals = [DocumentTotals() for _ in self._job.readings]
        self._all_bytes = 0


def count_tasks(job: CountJob, works: Sequence[TaskWork]) -> Iterator[tuple[int, bytes]]:
    """Counts tasks as one bundle would: for callers without Beam."""
    counter = TaskCounter(job)
    try:
        for work in works:
            yield from counter.count(work)
        yield from counter.commit()
    finally:
        counter.close()
