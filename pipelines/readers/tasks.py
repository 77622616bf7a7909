"""A task as it travels to a worker, and reading all documents of it.

Descriptors are small JSON texts, long ones compressed: the only thing about the input that crosses
a shuffle.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any

import numpy as np

from bpe_core._native import SpecialSet
from bpe_core.patterns import resolve_pattern
from pipelines.batches import FIRST_BYTES, DocumentBatch, Reject
from pipelines.config import SourceConfig
from pipelines.errors import InputError
from pipelines.readers import ReadOptions, read_range
from pipelines.readers.options import cutting_of
from pipelines.readers.selection import Selection
from pipelines.readers.small_files import fetched_ahead
from pipelines.rejects.reasons import REASONS_OF_FILES, SPECIAL_TOKEN
from pipelines.rejects.thresholds import too_many_bad_files
from pipelines.tasks.listing import InputFile
from pipelines.tasks.plan import Plan, Range, Task

_FILE_FIELDS = tuple(field.name for field in fields(InputFile))
_values_of = attrgetter(*_FILE_FIELDS)
_LONG_DESCRIPTOR = 1 << 12


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

    @property
    def source(self) -> int:
        """Index of the source that all its files are of."""
        return self.parts[0][0].source

    @property
    def summary(self) -> str:
        """What the footers of its files say of it, as JSON: index, inputs with their intervals."""
        inputs = [[file.label, start, end] for file, start, end in self.parts]
        return json.dumps({"index": self.index, "of": self.of, "inputs": inputs})

    def to_bytes(self) -> bytes:
        """The descriptor that is shuffled; compressed if it is long: it may name 100,000 files.

        Short ones are compressed better together, in the pipeline that they are part of.
        """
        parts = [[*_values_of(file), start, end] for file, start, end in self.parts]
        text = json.dumps([self.index, self.of, self.hash, parts]).encode()
        return text if len(text) < _LONG_DESCRIPTOR else zlib.compress(text, 1)

    @classmethod
    def from_bytes(cls, descriptor: bytes) -> TaskWork:
        """The work that `to_bytes` described."""
        is_text = descriptor.startswith(b"[")
        text = descriptor if is_text else zlib.decompress(descriptor)
        index, of, task_hash, parts = json.loads(text)
        files = tuple(
            (InputFile(**dict(zip(_FILE_FIELDS, values, strict=True))), start, end)
            for *values, start, end in parts
        )
        return cls(index=index, of=of, hash=task_hash, parts=files)

    def describe(self, stage: str) -> str:
        """For a person who wants to know where a worker was."""
        first, start, _ = self.parts[0]
        last, _, end = self.parts[-1]
        where = f"{first.url} byte {start} … {last.url} byte {end}"
        return f"{stage} task {self.index} of {self.of} ({where})"


@dataclass(frozen=True, kw_only=True)
class SourceReading:
    """How the files of one source are read, and how many of them may be bad."""

    options: ReadOptions
    storage_options: Mapping[str, Any] = field(repr=False)
    max_bad_files: int = 0


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
    cutting = cutting_of(resolved.regex, special_tokens, normalizer, normalize_quotes)
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
                cut=resolved.has_safe_cuts or resolved.has_cuts_before_white_space,
                cut_before_white_space=resolved.has_cuts_before_white_space,
                normalizer=normalizer,
                normalize_quotes=normalize_quotes,
                cutting=cutting,
                max_document_bytes=source.max_document_bytes,
                keep_readable=source.max_bad_files > 0,
            ),
            storage_options=source.storage_options,
            max_bad_files=source.max_bad_files,
        )
        for source in sources
    )


def read_task(work: TaskWork, readings: Sequence[SourceReading]) -> Iterator[DocumentBatch]:
    """The documents of a task, in order.

    Raises:
        InputError: as `read_range` does.
        BadFileLimitError: more files of the task are bad than of its whole source may be.
    """
    bad: dict[str, str] = {}
    parts = ((*part, readings[part[0].source].storage_options) for part in work.parts)
    for (file, start, end, storage_options), fetched in fetched_ahead(parts):
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
            expected="no special token in text (special_tokens_in_text: error)",
            found=f"one at byte {first[i]:,} of the document",
            where=batch.where(i),
            hint="Choose split, text or reject for special_tokens_in_text (in a build "
            "encode.special_tokens_in_text), or mend the text.",
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
    return replace(batch.select(~held), rejects=(*batch.rejects, *rejects))
