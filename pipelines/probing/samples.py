"""Samples of the input: windows of some files, chosen by sizes and order alone, and read at once.

A few MB are enough for an estimate and for most mistakes. Windows are spread evenly over the bytes
of each source. Of a compressed file only the beginning can be read; of Parquet and Arrow files the
footers are read, and rows of some row groups.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.batches import DocumentBatch, Reject
from pipelines.config import SourceConfig
from pipelines.config.values import is_url
from pipelines.errors import BadFileError, DamagedFileError
from pipelines.probing.contents import HEAD_BYTES
from pipelines.readers import read_range
from pipelines.readers.arrow_footer import rows_of
from pipelines.readers.options import ReadOptions
from pipelines.readers.streams import InputHandle, open_handle, open_stream
from pipelines.readers.tasks import SourceReading
from pipelines.rejects.reasons import REASONS_OF_FILES
from pipelines.storage.remote_files import StoredFile
from pipelines.tasks.listing import InputFile
from pipelines.tasks.plan import COLUMN_FORMATS, Range, planned_size

WINDOW_BYTES: Final = 128 << 10
_LOCAL_WINDOWS: Final = 64
_REMOTE_WINDOWS: Final = 16
_FEWEST_WINDOWS: Final = 4
# The farther distinct pre-tokens are extrapolated, the more windows are needed.
_MUCH_BYTES: Final = 10 << 30
_MOST_WINDOWS: Final = 256
_REMOTE_AT_ONCE: Final = 16
# Compressed bytes to read of a file, and the text that they may become.
_SMALLEST_HEAD: Final = 256 << 10
_LARGEST_HEAD: Final = 2 << 20
_LARGEST_EXPANSION: Final = 32
_MOST_TEXT: Final = 48 << 20
_SLOW_COMPRESSIONS: Final = ("bz2", "xz")
_DECOMPRESSED_AT_ONCE: Final = 64 << 10
_LINES_BYTES: Final = 1 << 20
_PARTS_OF_COLUMNS: Final = 4
_FEWEST_ROWS: Final = 16
_MOST_ROWS: Final = 4096


@dataclass(kw_only=True)
class FileSample:
    """Documents read from a part of a file.

    Attributes:
        file: The file.
        head: First bytes of the file as stored.
        text_head: First bytes of its text, decompressed; those of `head` if it is not compressed.
        lines: Beginning of the first part that was read, for JSON lines.
        stored: Stored bytes that were read; all of them if `complete`.
        complete: True if the file was read to its end.
        rows: Rows of a Parquet or Arrow file by its footer, or an estimate; None otherwise.
        documents: Documents that start in the stored bytes, rejected and empty ones included.
        text_bytes: Bytes of their text.
        not_selected, not_selected_bytes: Those that the selection of the source left out.
        empty: Empty documents.
        batches: Documents to count and encode.
        rejects: Rejects of documents.
        fault: Error that ended reading, or None.
    """

    file: InputFile
    head: bytes = b""
    text_head: bytes = b""
    lines: bytes = b""
    stored: int = 0
    complete: bool = False
    rows: int | None = None
    documents: int = 0
    text_bytes: int = 0
    not_selected: int = 0
    not_selected_bytes: int = 0
    empty: int = 0
    batches: list[DocumentBatch] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    fault: BadFileError | None = None

    def add(self, batch: DocumentBatch, base: int = 0) -> None:
        """Add a batch whose offsets are relative to the byte `base` of the text."""
        rejects = [reject for reject in batch.rejects if reject.reason not in REASONS_OF_FILES]
        self.documents += batch.all_documents - (len(batch.rejects) - len(rejects))
        self.text_bytes += int(batch.num_bytes.sum()) + batch.not_selected_bytes
        self.text_bytes += sum(reject.length for reject in rejects)
        self.not_selected += batch.not_selected
        self.not_selected_bytes += batch.not_selected_bytes
        self.empty += batch.empty
        self.rejects += [replace(reject, offset=reject.offset + base) for reject in rejects]
        if len(batch):
            self.batches.append(replace(batch, offsets=batch.offsets + base))


def read_samples(
    files: Sequence[InputFile],
    sources: Sequence[SourceConfig],
    readings: Sequence[SourceReading],
) -> list[FileSample]:
    """Read samples of the files.

    Args:
        files: Files of the plan, in order.
        sources: Sources of the configuration.
        readings: Rules for reading each source.

    Raises:
        InputError: The storage fails.
    """
    read = [file for file in files if not file.unread and file.size]
    chosen = list(_choose(read, sources))

    def sample(choice: _Choice) -> FileSample:
        source = choice.file.source
        return _read_file(choice, sources[source], readings[source])

    remote = any(is_url(choice.file.url) for choice in chosen)
    if not remote:
        return list(map(sample, chosen))
    with ThreadPoolExecutor(_REMOTE_AT_ONCE, "probe") as threads:
        return list(threads.map(sample, chosen))


# --- which parts of which files


@dataclass(frozen=True, kw_only=True)
class _Choice:
    """File to sample, and the bytes at which its windows begin; () to read all of it."""

    file: InputFile
    starts: tuple[int, ...]


def _choose(files: Sequence[InputFile], sources: Sequence[SourceConfig]) -> Iterator[_Choice]:
    total = sum(map(planned_size, files))
    windows = _REMOTE_WINDOWS if any(is_url(file.url) for file in files) else _LOCAL_WINDOWS
    if total >= _MUCH_BYTES:
        windows = _MOST_WINDOWS
    for number in range(len(sources)):
        own = [file for file in files if file.source == number]
        if not own:
            continue
        share = sum(map(planned_size, own)) / max(total, 1)
        yield from _choose_of_source(own, max(_FEWEST_WINDOWS, round(windows * share)))


def _choose_of_source(files: Sequence[InputFile], windows: int) -> Iterator[_Choice]:
    """Yield files and windows that are spread evenly over the bytes; all if that is as little."""
    sizes = list(map(planned_size, files))
    ends = list(accumulate(sizes))
    if ends[-1] <= windows * WINDOW_BYTES and len(files) <= windows:
        for file in files:
            yield _Choice(file=file, starts=())
        return
    # The first and the last file, and one of each compression, are always among them.
    starts = {0: [0], len(files) - 1: [0]}
    seen = {files[number].compression for number in starts}
    for number, file in enumerate(files):
        if file.compression not in seen:
            seen.add(file.compression)
            starts[number] = [0]
    for place in range(windows):
        byte = ends[-1] * (2 * place + 1) // (2 * windows)
        number = int(np.searchsorted(ends, byte, side="right"))
        starts.setdefault(number, []).append(byte - (ends[number] - sizes[number]))
    for number in sorted(starts):
        yield _Choice(file=files[number], starts=tuple(sorted(set(starts[number]))))


# --- reading


class _InMemory:
    """Part of a file in memory, as an open file."""

    is_local = True

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read_into(self, view: memoryview, offset: int) -> None:
        """Fill the view with the bytes from `offset` on."""
        view[:] = self._data[offset : offset + len(view)]

    def close(self) -> None:
        """Do nothing."""


def _read_file(choice: _Choice, source: SourceConfig, reading: SourceReading) -> FileSample:
    sample = FileSample(file=choice.file)
    # Rejects are judged by the probe, so that every problem of a sample is known.
    options = replace(reading.options, invalid_utf8="reject", keep_readable=False)
    if source.invalid_utf8 == "replace":
        options = replace(options, invalid_utf8="replace")
    try:
        with closing(open_handle(choice.file, reading.storage_options)) as handle:
            sample.head = sample.text_head = _read_at(handle, 0, HEAD_BYTES)
            if source.format in COLUMN_FORMATS:
                _read_columns(sample, choice, options, handle, reading.storage_options)
            elif choice.file.compression is not None:
                _read_compressed(sample, choice, options, handle)
            else:
                _read_windows(sample, choice, options, handle)
    except BadFileError as error:
        sample.fault = error
    return sample


def _read_at(handle: InputHandle, start: int, length: int) -> bytes:
    handle.seek(start)
    return handle.read(length)


def _read_windows(
    sample: FileSample, choice: _Choice, options: ReadOptions, handle: InputHandle
) -> None:
    size = planned_size(choice.file)
    length = WINDOW_BYTES
    starts: tuple[int, ...] = tuple(min(start, max(0, size - length)) for start in choice.starts)
    sample.complete = size <= 2 * length * len(starts) or not starts
    if sample.complete:
        starts, length = (0,), size
    for start in dict.fromkeys(starts):
        data = _read_at(handle, start, length)
        _read_text(sample, data, options, start=start, is_end=start + len(data) >= size)


def _read_compressed(
    sample: FileSample, choice: _Choice, options: ReadOptions, handle: InputHandle
) -> None:
    file = choice.file
    wanted = min(max(_SMALLEST_HEAD, len(choice.starts) * WINDOW_BYTES // 2), _LARGEST_HEAD)
    if file.compression in _SLOW_COMPRESSIONS:
        wanted //= 4
    if file.size <= 2 * wanted or not choice.starts:
        wanted = file.size
    stored = _read_at(handle, 0, wanted)
    text, ended = _decompress(file, stored, min(wanted * _LARGEST_EXPANSION, _MOST_TEXT))
    sample.text_head = text[:HEAD_BYTES]
    if file.stop is not None and len(text) >= file.stop:
        text, ended = text[: file.stop], True
    sample.complete = ended
    _read_text(sample, text, options, start=0, is_end=ended)
    sample.stored = file.size if ended else len(stored)


def _decompress(file: InputFile, stored: bytes, limit: int) -> tuple[bytes, bool]:
    """Return the text of the first stored bytes, and True if it is all text of the file.

    Raises:
        DamagedFileError: The bytes are not compressed as stated.
    """
    is_all = len(stored) == file.size
    part: StoredFile = _InMemory(stored)
    text = bytearray()
    block = np.empty(_DECOMPRESSED_AT_ONCE, np.uint8)
    with closing(
        open_stream(replace(file, size=len(stored)), {}, _DECOMPRESSED_AT_ONCE, fetched=part)
    ) as stream:
        while len(text) < limit:
            try:
                got = stream.read_into(block)
            except DamagedFileError:
                if is_all or not text:
                    raise
                return bytes(text), False
            text += block[:got].tobytes()
            if not got:
                return bytes(text), is_all
    return bytes(text), False


def _read_text(
    sample: FileSample, data: bytes, options: ReadOptions, *, start: int, is_end: bool
) -> None:
    """Add the documents in a window of the text; of one cut at either end, the part inside."""
    if options.format == "jsonl":
        # Part of a line is not a record.
        begin = 0 if start == 0 else data.find(b"\n") + 1
        end = len(data) if is_end else data.rfind(b"\n") + 1
        data, start = data[begin:end], start + begin
        sample.lines = sample.lines or data[:_LINES_BYTES]
    else:
        data = data[_continuation_bytes(data) if start else 0 :]
        if not is_end:
            data = _without_partial_character(data)
    sample.stored += len(data)
    if not data:
        return
    file = replace(
        sample.file, size=len(data), compression=None, stop=None, end=None, version_tag=""
    )
    whole = Range(file=0, start=0, end=len(data))
    cut = start > 0 and options.format == "text"
    options = replace(options, strip_bom=options.strip_bom and start == 0)
    for batch in read_range(file, whole, options, fetched=_InMemory(data)):
        sample.add(batch, start)
    if cut and sample.documents:
        sample.documents -= 1  # the one that began before the window


def _continuation_bytes(data: bytes) -> int:
    """Return the number of bytes at the start that belong to a character before them."""
    return next((i for i, byte in enumerate(data[:3]) if byte & 0xC0 != 0x80), 0)


def _without_partial_character(data: bytes) -> bytes:
    """Remove the beginning of a UTF-8 character at the end."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            length = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-back] if length > back else data
    return data


# --- rows


def _read_columns(
    sample: FileSample,
    choice: _Choice,
    options: ReadOptions,
    handle: InputHandle,
    storage_options: Mapping[str, Any],
) -> None:
    file = choice.file
    sample.stored = file.size
    footer = _read_footer(handle, options.format, file.size)
    sample.rows = footer.rows
    if sample.rows is not None and file.stop is not None:
        sample.rows = min(sample.rows, file.stop)
    each = max(1, min(len(choice.starts), _PARTS_OF_COLUMNS))
    most = 2 * each * WINDOW_BYTES if choice.starts else _LARGEST_EXPANSION * file.size
    whole = footer.rows is not None and footer.bytes <= most
    rows = max(_FEWEST_ROWS, min(_MOST_ROWS, WINDOW_BYTES // max(footer.row_bytes, 1)))
    bounds = [file.size * i // each for i in range(each + 1)]
    parts = [(0, file.size)] if whole else list(pairwise(bounds))
    for start, end in parts:
        limited = options if whole else replace(options, max_documents=rows)
        part = Range(file=0, start=start, end=end)
        before = sample.text_bytes
        for batch in read_range(file, part, limited, storage_options):
            sample.add(batch)
            if not whole and sample.text_bytes - before > 2 * WINDOW_BYTES:
                break
    sample.complete = whole


@dataclass(frozen=True, kw_only=True)
class _Footer:
    """Facts in the footer of a file of columns: rows, bytes in memory, and bytes of a row."""

    rows: int | None = None
    bytes: int = 0
    row_bytes: int = 4096


def _read_footer(handle: InputHandle, form: str, size: int) -> _Footer:
    """Return the facts in a footer; nothing if it cannot be read, which reading rows reports."""
    try:
        handle.seek(0)
        if form == "parquet":
            metadata = pq.ParquetFile(pa.PythonFile(handle, "r"), pre_buffer=False).metadata
            groups = metadata.num_row_groups
            total = sum(metadata.row_group(i).total_byte_size for i in range(groups))
            rows = int(metadata.num_rows)
            return _Footer(rows=rows, bytes=total, row_bytes=total // max(rows, 1))
        reader = pa.ipc.open_file(pa.PythonFile(handle, "r"))
        count = reader.num_record_batches
        if not count:
            return _Footer(rows=0)
        first = rows_of(handle, size, 0)
        rows = first if count == 1 else first * (count - 1) + rows_of(handle, size, count - 1)
        return _Footer(rows=rows, bytes=size, row_bytes=size // max(rows, 1))
    except (pa.ArrowException, OSError, ValueError, OverflowError, struct.error):
        return _Footer()
