"""Instructions for workers that count: the rules, the tasks of a build, and the expected totals.

All of it is small and frozen, since it is pickled and sent to every worker.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

from bpe_core.count_files import FORMAT_VERSION, GROUPED_FORMAT_VERSION
from bpe_core.count_groups import MAX_GROUPS, Group
from bpe_core.counts import normalization_metadata
from bpe_core.patterns import resolve_pattern
from bpe_core.short_repr import short_repr
from bpe_core.superwords import superword_metadata
from pipelines.errors import AccountingError, IncompleteCountsError, InputError
from pipelines.readers.tasks import SourceReading
from pipelines.rejects.thresholds import RejectLimit
from pipelines.storage.directory import Directory

_RANK_BYTES: Final = 4


@short_repr
@dataclass(frozen=True, kw_only=True)
class FirstRound:
    """The tokenizer of the first round: its directory, and its fingerprint."""

    directory: Directory
    fingerprint: str


@dataclass(frozen=True, kw_only=True)
class CountRules:
    """Rules of counting, and the destination of runs and shards.

    Attributes:
        counts: Directory of the shards.
        runs: Directory of the sorted runs, which no other count uses.
        pattern, special_tokens: How text is split into pre-tokens.
        normalizer, normalize_quotes: Normalization of the text between special tokens.
        superwords: The tokenizer whose runs of words are counted, or None to count pre-tokens.
        shards: Number of shards.
        memory: Bytes that the tables of one process may use together.
        max_pretoken_bytes: Length of the longest pre-token to count.
        on_long_pretoken: "error" or "skip", for longer ones.
        sources: Names of the sources, by index, if counts are kept apart by source; else ().
        group_by: Field by whose text they are kept apart too, or None.
        document_frequency: Count the documents with each pre-token, too.
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
    superwords: FirstRound | None = None
    sources: tuple[str, ...] = ()
    group_by: str | None = None
    document_frequency: bool = False

    @property
    def grouped(self) -> bool:
        """Return True if counts are kept apart by group."""
        return bool(self.sources)

    @property
    def file_format(self) -> str:
        """Return the format of the shards."""
        extended = self.grouped or self.document_frequency
        return GROUPED_FORMAT_VERSION if extended else FORMAT_VERSION

    def group_name(self, group: Group) -> bytes:
        """Return the name of a group in runs. Names are ordered as groups are."""
        return self._ranks[group.source] + (group.value or "").encode()

    def group_of(self, name: bytes) -> Group:
        """Return the group with this name in runs.

        Raises:
            ValueError: No group has this name.
        """
        rank, value = name[:_RANK_BYTES], name[_RANK_BYTES:].decode()
        source = next((source for source, known in self._ranks.items() if known == rank), None)
        if source is None or (value and self.group_by is None):
            raise ValueError(f"a group named {name!r}")
        return Group(source, None if self.group_by is None else value)

    def too_many_groups(self, where: str) -> InputError:
        """Return the error for more groups than counts may have."""
        return InputError(
            "There are too many groups to keep counts apart.",
            expected=f"at most {MAX_GROUPS:,} groups",
            found=f"more, by counts.group_by: {self.group_by}",
            where=where,
            hint="Group by a field with few values, such as a language.",
        )

    @cached_property
    def _ranks(self) -> dict[str, bytes]:
        ranked = enumerate(sorted(set(self.sources)))
        return {source: rank.to_bytes(_RANK_BYTES, "big") for rank, source in ranked}

    @property
    def metadata(self) -> dict[str, str]:
        """Return how text is counted, as in `PretokenCounts.metadata`."""
        return {
            "pattern": self.pattern,
            "special_tokens": json.dumps(self.special_tokens, ensure_ascii=False),
            "unicode_version": resolve_pattern(self.pattern).unicode_version,
            **normalization_metadata(self.normalizer, self.normalize_quotes),
            **({} if self.superwords is None else superword_metadata(self.superwords.fingerprint)),
            **({} if self.group_by is None else {"group_by": self.group_by}),
        }


@short_repr
@dataclass(frozen=True, kw_only=True)
class CountJob(CountRules):
    """Rules of counting, and the tasks of a build to count.

    Attributes:
        rejects: Directory of rejected documents.
        configuration: Fingerprint of everything but the inputs that determines the counts.
        plan_id: Id of files, ranges and rules. Runs and commits of another plan are never used.
        num_tasks: Number of tasks in the plan.
        tasks_hash: Sum of the tasks' hashes modulo 2^128.
        checkpoint_bytes: Bytes of text after which the next finished task triggers a commit.
        readings: How to read each source.
        reject_limit: Limit of rejects that ends the stage early, or None.
    """

    rejects: Directory
    configuration: str
    plan_id: str
    num_tasks: int
    tasks_hash: int
    checkpoint_bytes: int
    readings: tuple[SourceReading, ...]
    reject_limit: RejectLimit | None = None

    @property
    def expected(self) -> Expected:
        """Return the expectation that every task of the plan is counted once."""
        return Expected(unit="task", items=self.num_tasks, hash_sum=self.tasks_hash)


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Required content of a shard's runs together: every item exactly once.

    A bundle that Beam repeats leaves runs that look like any others. The number of items and the
    sum of their hashes reveal an item that is missing, duplicated or replaced by another.

    Attributes:
        unit: Name of an item, for messages.
        items: Number of items.
        hash_sum: Sum of their hashes modulo 2^128.
    """

    unit: Literal["task", "document"]
    items: int
    hash_sum: int

    def error(
        self, shard: int, items: int, hash_sum: int, where: str
    ) -> IncompleteCountsError | AccountingError:
        """Return the error for a shard whose runs contain other items."""
        resumes = self.unit == "task"
        return (IncompleteCountsError if resumes else AccountingError)(
            f"Shard {shard} of the counts cannot be written: its runs do not contain every "
            f"{self.unit} exactly once.",
            expected=f"{self.items:,} {self.unit}s with hash {self.hash_sum:032x}",
            found=f"{items:,} {self.unit}s with hash {hash_sum:032x}",
            where=where,
            hint="Run the same command again: finished commits are kept. If it happens again, "
            "start over with --restart."
            if resumes
            else "Run the pipeline again.",
        )


@short_repr
@dataclass(frozen=True, kw_only=True)
class Section:
    """Part of a sorted run that belongs to one shard.

    Attributes:
        run: Name of the run's file.
        offset, length: Byte range of the section in the file.
        hash: xxh3-128 of these bytes.
    """

    run: str
    offset: int
    length: int
    hash: str
