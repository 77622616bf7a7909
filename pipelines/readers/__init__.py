"""Range of a file → DocumentBatch, for every input format and storage.

`read_range` is the only entry point. A document belongs to the range in which it starts:

- text, JSON lines (`text`, `json_lines`): the range contains the first byte of the document or of
  its line. The reader continues past the end of the range to finish the last document;
- Parquet, Arrow IPC files (`columns`): the range contains the start of the row group or record
  batch, with the file divided among them in proportion to their size (Parquet) or equally (Arrow).
  An Arrow IPC stream cannot be divided and belongs to the range that starts at byte 0.

So ranges are independent of each other, and dividing a file differently gives the same documents.

A document longer than `ReadOptions.piece_bytes` is scanned to its end first, then read again and
yielded in chunks. The chunks depend only on the text, so they are the same for every format.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Final

from pipelines.batches import DocumentBatch
from pipelines.errors import BadFileError
from pipelines.readers.columns import ArrowReader, ColumnReader, ParquetReader
from pipelines.readers.documents import BatchMaker
from pipelines.readers.json_lines import JsonLinesReader
from pipelines.readers.options import InvalidDocumentError, LongDocumentError, ReadOptions
from pipelines.readers.reading_ahead import read_ahead
from pipelines.readers.separators import SeparatedReader
from pipelines.readers.streams import StreamPair, open_handle
from pipelines.readers.text import TextReader
from pipelines.storage.remote_files import StoredFile
from pipelines.tasks.listing import InputFile
from pipelines.tasks.plan import COLUMN_FORMATS, Range, is_splittable

__all__ = ["InvalidDocumentError", "LongDocumentError", "ReadOptions", "read_range"]

# Smallest range that is parsed in a thread: starting a thread takes as long as parsing some kB.
_WORTH_A_THREAD: Final = 1 << 20


def read_range(
    file: InputFile,
    byte_range: Range,
    options: ReadOptions,
    storage_options: Mapping[str, Any] | None = None,
    fetched: StoredFile | None = None,
) -> Iterator[DocumentBatch]:
    """Yield the documents that start in the range, in order.

    A batch contains complete documents or a single chunk of a long one, with the number of empty
    documents and the rejects. The documents and their cuts depend on the file, the format, the
    special tokens and `piece_bytes`, not on ranges or `read_bytes`.

    Args:
        file: the file as planned; its size must not have changed.
        byte_range: part of the file; all of it if it cannot be divided (`is_splittable`).
        options: rules for reading documents.
        storage_options: options of the file's fsspec file system.
        fetched: the file, if it is already open.

    Raises:
        BadFileError: the file no longer exists, has changed, is not readable, is corrupt or
            truncated, or lacks a required column. With `ReadOptions.keep_readable`, everything
            before the fault is yielded, then a reject with one of `REASONS_OF_FILES` for the rest
            of the range.
        InputError: the storage fails.
        LongDocumentError: a long document cannot be cut.
        InvalidDocumentError: see `ReadOptions.invalid_utf8`.

    Example: with the separator `|`, the range [2, 6) of the text `one|two|three` contains only the
    document `two`.
    """
    if not is_splittable(file.compression, options) and byte_range.start != 0:
        raise ValueError(
            "a compressed file, or one without a separator, cannot be divided into ranges"
        )
    with ExitStack() as opened:
        reader: SeparatedReader | ColumnReader | None = None
        try:
            reader = _open_reader(file, byte_range, options, storage_options or {}, fetched, opened)
            is_large = byte_range.end - byte_range.start >= _WORTH_A_THREAD
            ahead = is_large and options.format != "text"
            yield from read_ahead(reader.batches()) if ahead else reader.batches()
        except BadFileError as error:
            if not options.keep_readable:
                raise
            if reader is None:
                offset, length = _find_rest(file, byte_range, options)
            else:
                offset, length = reader.rest
            yield BatchMaker(file, options).reject_rest(offset, length, error)


def _open_reader(
    file: InputFile,
    byte_range: Range,
    options: ReadOptions,
    storage_options: Mapping[str, Any],
    fetched: StoredFile | None,
    opened: ExitStack,
) -> SeparatedReader | ColumnReader:
    """Return the reader for the format; `opened` closes its files."""
    if options.format in COLUMN_FORMATS:
        columns = ParquetReader if options.format == "parquet" else ArrowReader
        handle = opened.enter_context(open_handle(file, storage_options, fetched))
        return columns(file, byte_range, options, handle)
    lines = TextReader if options.format == "text" else JsonLinesReader
    streams = StreamPair(
        file,
        storage_options,
        options.read_bytes,
        byte_range.end,
        salvage=options.keep_readable,
        fetched=fetched,
        max_expansion=options.max_expansion,
    )
    return lines(file, byte_range, options, opened.enter_context(streams))


def _find_rest(file: InputFile, byte_range: Range, options: ReadOptions) -> tuple[int, int]:
    """Return the offset and known length of an unreadable range."""
    if options.format in COLUMN_FORMATS or file.compression is not None:
        return 0, 0
    return byte_range.start, byte_range.end - byte_range.start
