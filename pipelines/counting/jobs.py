"""What workers need to know to count: the rules, the tasks of a build, and what must be complete.

All of it is small and frozen, since it is pickled and sent to every worker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pipelines.errors import AccountingError, IncompleteCountsError
from pipelines.readers.tasks import SourceReading
from pipelines.storage.directory import Directory


@dataclass(frozen=True, kw_only=True)
class CountRules:
    """How pre-tokens are counted, and where runs and shards go.

    Attributes:
        counts: Directory of the shards.
        runs: Directory of the sorted runs, which no other count uses.
        pattern, special_tokens: How text is split into pre-tokens.
        normalizer, normalize_quotes: Normalization of the text between special tokens.
        shards: Number of shards.
        memory: Bytes that the tables of one process may take together.
        max_pretoken_bytes: Length of the longest pre-token to count.
        on_long_pretoken: "error" or "skip", for longer ones.
    """

    counts: Directory
    runs: Directory
    pattern: str
    special_tokens: tuple[str, ...]
    shards: int
    memory: int
    max_pretoken_bytes: int
    on_long_pretoken: str
    normalizer: str | None = None
    normalize_quotes: bool = False


@dataclass(frozen=True, kw_only=True)
class CountJob(CountRules):
    """The rules, and the tasks of a build to count by them.

    Attributes:
        rejects: Directory of rejected documents.
        configuration: Fingerprint of everything but the inputs that determines the counts.
        plan_id: Id of files, ranges and rules. Runs and commits of another plan are never used.
        num_tasks: Number of tasks in the plan.
        tasks_hash: Sum of the tasks' hashes modulo 2^128.
        checkpoint_bytes: Bytes of text after which the end of a task brings a commit.
        readings: How to read each source.
    """

    rejects: Directory
    configuration: str
    plan_id: str
    num_tasks: int
    tasks_hash: int
    checkpoint_bytes: int
    readings: tuple[SourceReading, ...]

    @property
    def expected(self) -> Expected:
        """Every task of the plan, once."""
        return Expected(unit="task", items=self.num_tasks, hash_sum=self.tasks_hash)


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What the runs of a shard must hold together: every item exactly once.

    A bundle that Beam repeats leaves runs that look like any other. Number and sum of hashes of the
    items show one that is missing, there twice, or in the place of another.

    Attributes:
        unit: What an item is.
        items: Number of items.
        hash_sum: Sum of their hashes modulo 2^128.
    """

    unit: Literal["task", "document"]
    items: int
    hash_sum: int

    def error(
        self, shard: int, items: int, hash_sum: int, where: str
    ) -> IncompleteCountsError | AccountingError:
        """Return the error for a shard whose runs hold other items."""
        resumes = self.unit == "task"
        return (IncompleteCountsError if resumes else AccountingError)(
            f"Shard {shard} of the counts can't be written: its runs do not hold every "
            f"{self.unit} exactly once.",
            expected=f"{self.items:,} {self.unit}s with hash {self.hash_sum:032x}",
            found=f"{items:,} {self.unit}s with hash {hash_sum:032x}",
            where=where,
            hint="Run the same command again: finished commits are kept. If it happens again, "
            "start over with --restart."
            if resumes
            else "Run the pipeline again.",
        )


@dataclass(frozen=True, kw_only=True)
class Section:
    """The part of a sorted run that belongs to one shard.

    Attributes:
        run: Name of the run's file.
        offset, length: Where the section is in the file, in bytes.
        hash: xxh3-128 of these bytes.
    """

    run: str
    offset: int
    length: int
    hash: str
