"""Ends of the limits of sources, found by reading up to them before a build starts.

`limit_documents` and `limit_bytes` count documents in source order, which workers that read single
ranges cannot do. So the launcher measures the ranges in order, several at a time, and finds the
offset in one file at which reading stops (`InputFile.stop`). Ranges and tasks are planned up to
this offset, and workers need no information about earlier ranges.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from bpe_core.cores import usable_cores
from pipelines.accounting import DocumentTotals
from pipelines.batches import DocumentBatch
from pipelines.config import SourceConfig
from pipelines.config.fingerprints import fingerprint
from pipelines.console import progress
from pipelines.readers import read_range
from pipelines.readers.selection import Selection
from pipelines.readers.tasks import source_readings
from pipelines.rejects.reasons import REASONS_OF_FILES
from pipelines.tasks.listing import InputFile
from pipelines.tasks.plan import COLUMN_FORMATS, Range, plan_tasks

Ends = Mapping[str, Mapping[str, Any]]


def limit_files(
    files: Sequence[InputFile], sources: Sequence[SourceConfig], known: Ends | None = None
) -> tuple[list[InputFile], Ends]:
    """Set `stop` and `end` of files according to the limits of their sources.

    Args:
        files: files of all sources, in order.
        sources: sources of the configuration.
        known: ends from an earlier call (its second result); used if the source has not changed.

    Returns:
        The files, and the ends that were found, as JSON values to be stored.

    Raises:
        InputError: a file that must be read for a limit cannot be read.
    """
    limited: list[InputFile] = []
    ends: dict[str, Mapping[str, Any]] = {}
    for number, source in enumerate(sources):
        own = [file for file in files if file.source == number]
        if source.limit_documents is None and source.limit_bytes is None:
            limited += own
            continue
        key = _make_key(source, own)
        end = _End.from_json((known or {}).get(key), len(own))
        if end is None:
            end = _Search(source, own).end()
        ends[key] = asdict(end)
        limited += end.apply_to(own)
    return limited, ends


def _make_key(source: SourceConfig, files: Sequence[InputFile]) -> str:
    """Return a fingerprint of everything that determines the end of a limit."""
    return fingerprint(
        {
            "source": source.model_dump(mode="json", exclude={"storage_options", "name", "files"}),
            "files": [[file.name, file.size, file.version_tag] for file in files],
        }
    )


@dataclass(frozen=True, kw_only=True)
class _End:
    """End of a limit: `stop` and `end` of the file with this index; None if it is not reached."""

    file: int | None = None
    stop: int = 0
    end: int = 0

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | None, num_files: int) -> _End | None:
        """Return the stored end; None if it is invalid."""
        match value:
            case {"file": None}:
                return cls()
            case {"file": int(file), "stop": int(stop), "end": int(end)}:
                if 0 <= file < num_files and stop >= 0 and end >= 0:
                    return cls(file=file, stop=stop, end=end)
        return None

    def apply_to(self, files: Sequence[InputFile]) -> list[InputFile]:
        """Return the files of the source, with those after the end marked as unread."""
        if self.file is None:
            return list(files)
        last = replace(files[self.file], stop=self.stop, end=self.end)
        unread = [replace(file, stop=0, end=0) for file in files[self.file + 1 :]]
        return [*files[: self.file], last, *unread]


@dataclass(frozen=True, kw_only=True)
class _Left:
    """Remainder of the limits; None if there is no such limit."""

    documents: int | None
    bytes: int | None

    def after(self, found: _Measure) -> _Left:
        return _Left(
            documents=None if self.documents is None else self.documents - found.documents,
            bytes=None if self.bytes is None else self.bytes - found.bytes,
        )


@dataclass(frozen=True, kw_only=True)
class _Measure:
    """Content of a range, up to the limits that were left when it was read.

    Attributes:
        allowed: limits that were left.
        documents, bytes: number of documents and bytes of their text.
        span: length of the range in units of its offsets: bytes or rows.
        exceeding: offset of the first document that exceeds the limit of bytes; None if none does.
    """

    allowed: _Left
    documents: int
    bytes: int
    span: int
    exceeding: int | None

    def fits(self, left: _Left) -> bool:
        """Return True if the whole range was read and is within the remaining limits."""
        return (
            self.exceeding is None
            and (left.documents is None or self.documents < left.documents)
            and (left.bytes is None or self.bytes <= left.bytes)
        )


class _Search:
    """Search for the end of a limit through the ranges of a source."""

    def __init__(self, source: SourceConfig, files: Sequence[InputFile]) -> None:
        self._source = source
        self._files = files
        (reading,) = source_readings([source], "gpt2", ())
        # Limits count every document, whether or not it is selected or valid.
        self._options = replace(reading.options, invalid_utf8="reject", selection=Selection())
        self._left = _Left(documents=source.limit_documents, bytes=source.limit_bytes)
        self._found = threading.Event()

    def end(self) -> _End:
        """Return the end of the limit that is reached first."""
        source = self._source
        total = source.limit_documents or source.limit_bytes or 0
        name = "" if source.name is None else f" of {source.name}"
        with (
            progress.show(f"finding the end of the limit{name}", total) as show,
            ThreadPoolExecutor(usable_cores(), "limits") as threads,
        ):
            try:
                for part, found in self._measure_in_order(threads):
                    if not found.fits(self._left) and found.allowed != self._left:
                        found = self._measure(part, self._left)
                    if part.start == 0:
                        offset = 0
                    if not found.fits(self._left):
                        stop = found.exceeding
                        return self._end_at(part, offset + found.span if stop is None else stop)
                    offset += found.span
                    self._left = self._left.after(found)
                    show(total - (self._left.documents or self._left.bytes or 0), total)
            finally:
                self._found.set()
        return _End()

    def _end_at(self, part: Range, stop: int) -> _End:
        file = self._files[part.file]
        by_bytes = file.compression is None and self._source.format not in COLUMN_FORMATS
        end = min(part.end, stop) if by_bytes or not stop else part.end
        return _End(file=part.file, stop=stop, end=end)

    def _measure_in_order(self, threads: ThreadPoolExecutor) -> Iterator[tuple[Range, _Measure]]:
        """Yield the ranges with their content, measured with the limits left when each starts."""
        # The plan has this source only, so its files get the index 0.
        alone = [replace(file, source=0) for file in self._files]
        plan = plan_tasks(alone, [self._source])
        ranges = (part for task in plan.tasks for part in task.ranges)
        pending: deque[tuple[Range, Future[_Measure]]] = deque()
        for part in ranges:
            pending.append((part, threads.submit(self._measure, part, self._left)))
            if len(pending) > usable_cores():
                first, found = pending.popleft()
                yield first, found.result()
        for first, found in pending:
            yield first, found.result()

    def _measure(self, part: Range, allowed: _Left) -> _Measure:
        file = self._files[part.file]
        options = replace(self._options, max_documents=allowed.documents)
        totals = DocumentTotals()
        exceeding = None
        unreadable = 0  # rows or bytes of a bad file
        for batch in read_range(file, part, options, self._source.storage_options):
            if self._found.is_set():
                break
            if allowed.bytes is not None:
                exceeding = _find_exceeding(batch, allowed.bytes - totals.all_bytes)
                if exceeding is not None:
                    break
            totals.add_batch(batch)
            unreadable += sum(r.length for r in batch.rejects if r.reason in REASONS_OF_FILES)
        by_rows = options.format in COLUMN_FORMATS
        rows = totals.all_documents + unreadable
        return _Measure(
            allowed=allowed,
            documents=rows if by_rows else totals.all_documents,
            bytes=totals.all_bytes,
            span=rows if by_rows else totals.file_bytes + unreadable,
            exceeding=exceeding,
        )


def _find_exceeding(batch: DocumentBatch, room: int) -> int | None:
    """Return the offset of the first document that ends after `room` bytes; None if none does."""
    if batch.is_piece:
        whole = batch.whole_bytes or 0
        return int(batch.offsets[0]) if batch.part == 0 and whole > room else None
    rejects = [reject for reject in batch.rejects if reject.reason not in REASONS_OF_FILES]
    offsets = np.concatenate([batch.offsets, [reject.offset for reject in rejects]])
    lengths = np.concatenate([batch.num_bytes, [reject.length for reject in rejects]])
    order = np.argsort(offsets, kind="stable")
    beyond = np.flatnonzero(np.cumsum(lengths[order]) > room)
    return int(offsets[order[beyond[0]]]) if len(beyond) else None
