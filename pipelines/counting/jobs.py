"""What workers need to know to count: rules, a job of a build, sections of runs."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.readers.tasks import SourceReading
from pipelines.storage.directory import Directory

RUNS = "_runs"
_MASK_128 = (1 << 128) - 1


@dataclass(frozen=True, kw_only=True)
class Counting:
    """How pre-tokens are counted, and where to; small, and the same for all workers.

    Attributes:
        counts: the directory of the shards.
        pattern, special_tokens: how text is split and cut.
        normalizer, normalize_quotes: what text between special tokens goes through.
        shards: number of shards.
        memory: bytes for the tables of one process.
        max_pretoken_bytes, on_long_pretoken: what is too long, and what then.
    """

    counts: Directory
    pattern: str
    special_tokens: tuple[str, ...]
    shards: int
    memory: int
    max_pretoken_bytes: int
    on_long_pretoken: str
    normalizer: str | None = None
    normalize_quotes: bool = False

    @property
    def runs(self) -> Directory:
        """Where the runs are."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class CountJob(Counting):
    """All that workers need to know to count the tasks of a build.

    Attributes:
        rejects: the directory of rejected documents.
        configuration: fingerprint of all that decides the counts but the inputs.
        plan_id: files, ranges and rules; runs of other plans are never mixed in.
        num_tasks, tasks_hash: what the commits must add up to (sum of task hashes modulo 2^128).
        checkpoint_bytes: text after which a commit is written at the end of a task.
        readings: how each source is read.
    """

    rejects: Directory
    configuration: str
    plan_id: str
    num_tasks: int
    tasks_hash: int
    checkpoint_bytes: int
    readings: tuple[SourceReading, ...]

    @property
    def runs(self) -> Directory:
        """Where runs and commits of this plan are."""
        return self.counts / RUNS / self.plan_id


@dataclass(frozen=True, kw_only=True)
class Section:
    """A sorted section of a run: where it is, and the xxh3-128 of its bytes."""

    run: str
    offset: int
    length: int
    hash: str
