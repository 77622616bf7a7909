"""Descriptors of tasks for workers, and reading the documents of a task.

A descriptor is a short JSON text, compressed if it names many files (200 bytes per file become
about 15). Nothing else about the input crosses a shuffle: no text, counts or ids.
"""

from __future__ import annotations

import json
import pickle
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa

from bpe_core._native import SpecialSet, Splitter
from bpe_core.patterns import resolve_pattern
from pipelines.batches import FIRST_BYTES, DocumentBatch, Reject
from pipelines.config import SourceConfig
from pipelines.errors import InputError
from pipelines.readers import ReadOptions, read_range
from pipelines.readers.options import FieldPath, hash_cutting_rules
from pipelines.readers.selection import Selection
from pipelines.readers.small_files import fetch_ahead
from pipelines.rejects.reasons import REASONS_OF_FILES, SPECIAL_TOKEN
from pipelines.rejects.thresholds import too_many_bad_files
from pipelines.tasks.listing import InputFile
from pipelines.tasks.plan import Plan, Range, Task

_FILE_FIELDS = tuple(field.name for field in fields(InputFile))
_get_values = attrgetter(*_FILE_FIELDS)
_LONG_DESCRIPTOR = 1 << 12


@dataclass(frozen=True, kw_only=True)
class TaskWork:
    """Task with everything that a worker needs.

    Attributes:
        index: index of the task in the plan.
        of: number of tasks of the plan.
        hash: see `Plan.task_hash`.
        parts: files with the start and end of the interval to read.
    """

    index: int
    of: int
    hash: int
    parts: tuple[tuple[InputFile, int, int], ...]

    @classmethod
    def of_plan(cls, plan: Plan, task: Task) -> TaskWork:
        """Return the work of one task of a plan."""
        parts = tuple((plan.files[r.file], r.start, r.end) for r in task.ranges)
        return cls(index=task.index, of=len(plan.tasks), hash=plan.task_hash(task), parts=parts)

    @property
    def source(self) -> int:
        """Index of the source of all its files."""
        return self.parts[0][0].source

    @property
    def planned_bytes(self) -> int:
        """Size of its intervals, as stored."""
        return sum(end - start for _, start, end in self.parts)

    @property
    def summary(self) -> str:
        """Description for the footers of its output files: JSON with index and input intervals."""
        inputs = [[file.label, start, end] for file, start, end in self.parts]
        return json.dumps({"index": self.index, "of": self.of, "inputs": inputs})

    def to_bytes(self) -> bytes:
        """Return the descriptor to shuffle, compressed if it is long: it may name 100,000 files.

        Short ones compress better together, in the pipeline that contains them.
        """
        parts = [[*_get_values(file), start, end] for file, start, end in self.parts]
        text = json.dumps([self.index, self.of, self.hash, parts]).encode()
        return text if len(text) < _LONG_DESCRIPTOR else zlib.compress(text, 1)

    @classmethod
    def from_bytes(cls, descriptor: bytes) -> TaskWork:
        """Return the work described by the result of `to_bytes`."""
        is_text = descriptor.startswith(b"[")
        text = descriptor if is_text else zlib.decompress(descriptor)
        index, of, task_hash, parts = json.loads(text)
        files = tuple(
            (InputFile(**dict(zip(_FILE_FIELDS, values, strict=True))), start, end)
            for *values, start, end in parts
        )
        return cls(index=index, of=of, hash=task_hash, parts=files)

    def describe(self, stage: str) -> str:
        """Describe the task in messages about the worker that processed it."""
        first, start, _ = self.parts[0]
        last, _, end = self.parts[-1]
        where = f"{first.url} byte {start} … {last.url} byte {end}"
        return f"{stage} task {self.index} of {self.of} ({where})"


def largest_first(works: Iterable[TaskWork]) -> list[TaskWork]:
    """Return tasks in the order in which workers should begin them."""
    return sorted(works, key=lambda work: (-work.planned_bytes, work.index))


@dataclass(frozen=True, kw_only=True)
class SourceReading:
    """Rules for reading the files of a source, and the number of files that may be bad."""

    options: ReadOptions
    storage_options: Mapping[str, Any] = field(repr=False)
    max_bad_files: int = 0


def source_readings(
    sources: Sequence[SourceConfig],
    pattern: str,
    special_tokens: Sequence[str],
    *,
    token_flags: Mapping[str, Collection[str]] | None = None,
    normalizer: str | None = None,
    normalize_quotes: bool = False,
    splitter: Splitter | None = None,
    after_special: bool = True,
    expect_fields: bool = False,
) -> tuple[SourceReading, ...]:
    """Return the rules for each source.

    Long documents are cut as pattern and normalizer allow, or a splitter instead of the pattern.
    For `expect_fields` see `ReadOptions`.
    """
    resolved = resolve_pattern(pattern)
    splits = resolved.regex if splitter is None else pickle.dumps(splitter).hex()
    flags = tuple((text, tuple(sorted(names))) for text, names in (token_flags or {}).items())
    cutting = hash_cutting_rules(
        splits, special_tokens, flags, normalizer, normalize_quotes, after_special=after_special
    )
    return tuple(
        SourceReading(
            options=ReadOptions(
                format=source.format,
                separator=source.separators,
                strip_bom=source.strip_bom,
                text_fields=source.text_fields,
                join=source.join.encode(),
                id_field=source.id_path,
                selection=Selection(
                    sample_fraction=source.sample_fraction,
                    min_chars=source.min_chars,
                    max_chars=source.max_chars,
                ),
                invalid_utf8=source.invalid_utf8,
                special_tokens=tuple(token.encode() for token in special_tokens),
                token_flags=flags,
                cut=resolved.has_safe_cuts if splitter is None else splitter.has_cuts,
                pattern=pattern,
                splitter=splitter,
                after_special=after_special,
                normalizer=normalizer,
                normalize_quotes=normalize_quotes,
                cutting=cutting,
                max_document_bytes=source.max_document_bytes,
                max_expansion=source.max_expansion,
                keep_readable=source.max_bad_files > 0,
                expect_fields=expect_fields,
            ),
            storage_options=source.storage_options,
            max_bad_files=source.max_bad_files,
        )
        for source in sources
    )


def keep_columns(
    readings: Sequence[SourceReading], sources: Sequence[SourceConfig], kept: pa.Schema | None
) -> tuple[SourceReading, ...]:
    """Return the rules with which also the columns are read that token files keep.

    Args:
        readings: Rules for each source.
        sources: The sources.
        kept: Columns of all sources, or None if there are none.
    """
    return tuple(
        replace(
            reading,
            options=replace(
                reading.options,
                keep=() if kept is None else source.keep_paths,
                kept=kept if source.keep_columns else None,
            ),
        )
        for reading, source in zip(readings, sources, strict=True)
    )


def read_group_field(
    readings: Sequence[SourceReading], path: FieldPath | None
) -> tuple[SourceReading, ...]:
    """Return the rules with which also a field of the records is read, as text; None: no field.

    Text files have no records, so their documents lack it.
    """
    if path is None:
        return tuple(readings)
    kept = pa.schema([pa.field(".".join(path), pa.string())])
    return tuple(
        reading
        if reading.options.format == "text"
        else replace(reading, options=replace(reading.options, keep=(path,), kept=kept))
        for reading in readings
    )


def read_task(work: TaskWork, readings: Sequence[SourceReading]) -> Iterator[DocumentBatch]:
    """Yield the documents of a task, in order.

    Raises:
        InputError: see `read_range`.
        BadFileLimitError: the task alone has more bad files than allowed for its source.
    """
    bad: dict[str, str] = {}
    parts = ((*part, readings[part[0].source].storage_options) for part in work.parts)
    for (file, start, end, storage_options), fetched in fetch_ahead(parts):
        reading = readings[file.source]
        part = Range(file=0, start=start, end=end)
        for batch in read_range(file, part, reading.options, storage_options, fetched):
            for reject in batch.rejects:
                if reject.reason in REASONS_OF_FILES:
                    bad[reject.source] = f"{reject.source}: {reject.reason}: {reject.message}"
            if len(bad) > reading.max_bad_files:
                raise too_many_bad_files(reading.max_bad_files, list(bad.values()), len(bad))
            yield batch


def refuse_special_tokens(batch: DocumentBatch, specials: SpecialSet, policy: str) -> DocumentBatch:
    """Reject the documents that contain a special token, if the policy is `reject`.

    A chunk of a long document is rejected if any part of the document contains one.

    Raises:
        InputError: the policy is `error` and a document contains a special token.
    """
    if policy not in ("reject", "error") or not len(batch):
        return batch
    if batch.is_piece:
        first = np.array([-1 if batch.special_at is None else batch.special_at], np.int64)
    else:
        first = specials.find_first(batch.data, batch.starts, batch.ends)
    contains = first >= 0
    if not contains.any():
        return batch
    if policy == "error":
        i = int(np.argmax(contains))
        raise InputError(
            "A document contains a special token.",
            expected="no special tokens in the text (special_tokens_in_text: error)",
            found=f"a special token at byte {first[i]:,} of the document",
            where=batch.where(i),
            hint="Set special_tokens_in_text (encode.special_tokens_in_text in a build) to split, "
            "text or reject, or fix the text.",
        )
    # A long document is rejected once, with its first chunk.
    rejected = np.flatnonzero(contains if batch.part == 0 else contains[:0])
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
        for i in rejected
    )
    return replace(batch.select(~contains), rejects=(*batch.rejects, *rejects))
