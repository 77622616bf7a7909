"""Range of a file → DocumentBatch, for every form of input, on any storage.

`read_range` is the one entrance. The documents of a range are those that begin in it:

- text, JSON lines (`text`, `json_lines`): the first byte of the document, or of its line, lies in
  the range; to finish the last one, reading goes on past the range's end;
- Parquet, Arrow IPC files (`columns`): the row group or record batch lies in the range, where the
  file is shared out among them (`columns` says how); an Arrow IPC stream can't be cut, and belongs
  to the range that begins at byte 0.

A document longer than `ReadOptions.piece_bytes` is scanned to its end first and then given in
pieces. The pieces depend on its text alone, so every form gives the same.
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

# Of a range; texts need no parsing, and to begin a thread takes as long as to parse some kB.
_WORTH_A_THREAD: Final = 1 << 20


def read_range(
    file: InputFile,
    byte_range: Range,
    options: ReadOptions,
    storage_options: Mapping[str, Any] | None = None,
    fetched: StoredFile | None = None,
) -> Iterator[DocumentBatch]:
    """Yield the documents that begin in the range, in order.

    Batches hold whole documents, or a single piece of a long one; with them go the number of empty
    documents and the documents that were left out. Which documents there are, and where they are
    cut, depends on the file, the form, the special tokens and `piece_bytes`, not on ranges or
    `read_bytes`.

    Args:
        file: as planned; its size must still be the same.
        byte_range: part of it; the whole file if it can't be cut (`is_splittable`).
        options: how documents are read.
        storage_options: of the file's fsspec file system.
        fetched: the file, if it is open already.

    Raises:
        BadFileError: the file is gone, has changed, may not be read, is corrupt or cut short, or
            lacks a column that is to be read. With `ReadOptions.keep_readable` what comes before
            that is given, and a reject with one of `REASONS_OF_FILES` for the rest of the range.
        InputError: its storage fails.
        LongDocumentError: a long document has no place where it can be cut.
        InvalidDocumentError: see `ReadOptions.invalid_utf8`.

    Example: of a file with the text `one|two|three`, separator `|`, the range [2, 6) holds the
    document `two` alone.
    """
    if not is_splittable(file.compression, options) and byte_range.start != 0:
        raise ValueError("a compressed file, or one without separator, is read as a whole")
    with ExitStack() as opened:
        reader: SeparatedReader | ColumnReader | None = None
        try:
            reader = _reader(file, byte_range, options, storage_options or {}, fetched, opened)
            is_large = byte_range.end - byte_range.start >= _WORTH_A_THREAD
            ahead = is_large and options.format != "text"
            yield from read_ahead(reader.batches()) if ahead else reader.batches()
        except BadFileError as error:
            if not options.keep_readable:
                raise
            place, length = _all_of(file, byte_range, options) if reader is None else reader.rest
            yield BatchMaker(file, options).rest_of_file(place, length, error)


def _reader(
    file: InputFile,
    byte_range: Range,
    options: ReadOptions,
    storage_options: Mapping[str, Any],
    fetched: StoredFile | None,
    opened: ExitStack,
) -> SeparatedReader | ColumnReader:
    """The reader of a form; `opened` closes what it has open."""
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
    )
    return lines(file, byte_range, options, opened.enter_context(streams))


def _all_of(file: InputFile, byte_range: Range, options: ReadOptions) -> tuple[int, int]:
    """Place and known length of a range of which nothing could be read."""
    if options.format in COLUMN_FORMATS or file.compression is not None:
        return 0, 0
    return byte_range.start, byte_range.end - byte_range.start
