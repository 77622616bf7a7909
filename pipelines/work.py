"""A task as it travels to a worker, and reading all documents of it.

Descriptors are small JSON texts: the only thing about the input that crosses a shuffle.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bpe_core._native import SpecialSet
from bpe_core.patterns import resolve_pattern
from pipelines.batches import FIRST_BYTES, DocumentBatch, Reject
from pipelines.config import SourceConfig
from pipelines.errors import InputError
from pipelines.readers import ReadOptions, read_range
from pipelines.reasons import SPECIAL_TOKEN
from pipelines.tasks import InputFile, Plan, Range, Task

_MASK_128 = (1 << 128) - 1


@dataclass(frozen=True, kw_only=True)
class TaskWork:
    """All that a worker needs to know of a task.

    Attributes:
        index: of the task in the plan, of `of` tasks.
        hash: see `Plan.task_hash`.
        parts: files with the intervals to read of them.
    """

    index: int
    of: int
    hash: int
    parts: tuple[tuple[InputFile, int, int], ...]

    @classmethod
    def of_plan(cls, plan: Plan, task: Task) -> TaskWork:
        """The work of one task of a plan."""
        parts = tuple((plan.files[r.file], r.start, r.end) for r in task.ranges)
        return cls(index=task.index, of=len(plan.tasks), hash=plan.task_hash(task), parts=parts)

    def to_bytes(self) -> bytes:
        """The descriptor that is shuffled."""
        parts = [[asdict(file), start, end] for file, start, end in self.parts]
        return json.dumps([self.index, self.of, self.hash, parts]).encode()

    @classmethod
    def from_bytes(cls, descriptor: bytes) -> TaskWork:
        """The work that `to_bytes` described."""
        index, of, task_hash, parts = json.loads(descriptor)
        files = tuple((InputFile(**file), start, end) for file, start, end in parts)
        return cls(index=index, of=of, hash=task_hash, parts=files)

    def describe(self, stage: str) -> str:
        """For a person who wants to know where a worker was."""
        first, start, _ = self.parts[0]
        last, _, end = self.parts[-1]
        where = f"{first.url} byte {start} … {last.url} byte {end}"
        return f"{stage} task {self.index} of {self.of} ({where})"


@dataclass(frozen=True, kw_only=True)
class SourceReading:
    """How the files of one source are read."""

    options: ReadOptions
    storage_options: Mapping[str, Any] = field(repr=False)


def source_readings(
    sources: Sequence[SourceConfig],
    pattern: str,
    special_tokens: Sequence[str],
    *,
    normalizer: str | None = None,
    normalize_quotes: bool = False,
) -> tuple[SourceReading, ...]:
    """How each source is read; long documents are cut where pattern and normalizer allow it."""
    resolved = resolve_pattern(pattern)
    return tuple(
        SourceReading(
            options=ReadOptions(
                format=source.format,
                separator=source.separators,
                strip_bom=source.strip_bom,
                text_fields=source.text_fields,
                join=source.join.encode(),
                id_field=source.id_path,
                invalid_utf8=source.invalid_utf8,
                special_tokens=tuple(token.encode() for token in special_tokens),
                cut=resolved.has_safe_cuts or resolved.has_cuts_before_white_space,
                cut_before_white_space=resolved.has_cuts_before_white_space,
                normalizer=normalizer,
                normalize_quotes=normalize_quotes,
                max_document_bytes=source.max_document_bytes,
            ),
            storage_options=source.storage_options,
        )
        for source in sources
    )


def read_task(work: TaskWork, readings: Sequence[SourceReading]) -> Iterator[DocumentBatch]:
    """The documents of a task, in order.

    Raises:
        InputError: as `read_range` does.
    """
    for file, start, end in work.parts:
        reading = readings[file.source]
        part = Range(file=0, start=start, end=end)
        yield from read_range(file, part, reading.options, reading.storage_options)


def refuse_special_tokens(batch: DocumentBatch, specials: SpecialSet, policy: str) -> DocumentBatch:
    """The batch without documents that hold a special token, if the policy is reject.

    Pieces of a long document are judged by the whole document.

    Raises:
        InputError: the policy is error and a document holds one.
    """
    if policy not in ("reject", "error") or not len(batch):
        return batch
    if batch.is_piece:
        first = np.array([-1 if batch.special_at is None else batch.special_at], np.int64)
    else:
        first = specials.find_first(batch.data, batch.starts, batch.ends)
    held = first >= 0
    if not held.any():
        return batch
    if policy == "error":
        i = int(np.argmax(held))
        raise InputError(
            "A document holds a special token.",
            expected="no special token in text (encode.special_tokens_in_text: error)",
            found=f"one at byte {first[i]:,} of the document",
            where=f"{batch.source}, document at offset {batch.offsets[i]:,}",
            hint="Choose split, text or reject for encode.special_tokens_in_text, or mend the "
            "text.",
        )
    # A long document is rejected once, with its first piece.
    places = np.flatnonzero(held if batch.part == 0 else held[:0])
    rejects = tuple(
        Reject(
            source=batch.source,
            offset=int(batch.offsets[i]),
            length=batch.whole_bytes or int(batch.num_bytes[i]),
            reason=SPECIAL_TOKEN,
            message=f"a special token at byte {first[i]} of the document",
            first_bytes=batch.document(int(i))[:FIRST_BYTES],
            id=None if batch.ids is None else batch.ids[int(i)].as_py(),
        )
        for i in places
    )
    return replace(select(batch, ~held), rejects=(*batch.rejects, *rejects))


def select(batch: DocumentBatch, kept: NDArray[np.bool_]) -> DocumentBatch:
    """The batch with only some of its documents; `empty` and `rejects` stay."""
    return replace(
        batch,
        starts=batch.starts[kept],
        ends=batch.ends[kept],
        offsets=batch.offsets[kept],
        num_bytes=batch.num_bytes[kept],
        hashes=batch.hashes[kept],
        ids=None if batch.ids is None else batch.ids.filter(pa.array(kept)),
    )


@dataclass(kw_only=True)
class DocumentTotals:
    """What was read; totals of parts add up to those of the whole.

    Attributes:
        documents: kept ones: neither empty nor rejected.
        empty, rejected: numbers of documents.
        bytes: source text of all documents, rejected ones too.
        hash_sum: of the kept documents' xxh3-128, modulo 2^128.
    """

    documents: int = 0
    empty: int = 0
    rejected: int = 0
    bytes: int = 0
    hash_sum: int = 0

    def add_batch(self, batch: DocumentBatch) -> None:
        """Counts the documents of a batch; a long document at its first piece."""
        self.empty += batch.empty
        self.rejected += len(batch.rejects)
        self.bytes += int(batch.num_bytes.sum()) + sum(r.length for r in batch.rejects)
        if batch.part == 0:
            self.documents += len(batch)
            self.hash_sum = (self.hash_sum + _sum_of_hashes(batch.hashes)) & _MASK_128

    def add(self, other: DocumentTotals) -> None:
        """Adds the totals of another part."""
        self.documents += other.documents
        self.empty += other.empty
        self.rejected += other.rejected
        self.bytes += other.bytes
        self.hash_sum = (self.hash_sum + other.hash_sum) & _MASK_128

    def to_json(self) -> dict[str, Any]:
        """JSON values; the sum of hashes in hex, since JSON numbers are not that long."""
        return {**asdict(self), "hash_sum": f"{self.hash_sum:032x}"}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> DocumentTotals:
        """The totals that `to_json` gave."""
        return cls(**{**value, "hash_sum": int(value["hash_sum"], 16)})

    @property
    def all_documents(self) -> int:
        """Documents in the input, with the empty and the rejected ones."""
        return self.documents + self.empty + self.rejected

    @property
    def corpus_fingerprint(self) -> str:
        """Number of kept documents and the sum of their hashes: independent of order and cuts."""
        return f"{self.documents}-{self.hash_sum:032x}"


def _sum_of_hashes(hashes: NDArray[np.uint64]) -> int:
    """The sum of (high, low) pairs. In halves of 32 bits, so that uint64 sums can't overflow."""
    low_halves = (hashes & np.uint64(0xFFFFFFFF)).sum(axis=0, dtype=np.uint64)
    high_halves = (hashes >> np.uint64(32)).sum(axis=0, dtype=np.uint64)
    high, low = ((int(high_halves[i]) << 32) + int(low_halves[i]) for i in (0, 1))
    return (high << 64) + low
