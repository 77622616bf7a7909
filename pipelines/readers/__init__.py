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
from typing import Any

from pipelines.batches import DocumentBatch
from pipelines.readers.columns import ArrowReader, ParquetReader
from pipelines.readers.json_lines import JsonLinesReader
from pipelines.readers.options import InvalidDocumentError, LongDocumentError, ReadOptions
from pipelines.readers.text import TextReader
from pipelines.streams import StreamPair, open_handle
from pipelines.tasks import COLUMN_FORMATS, InputFile, Range, is_splittable

__all__ = ["InvalidDocumentError", "LongDocumentError", "ReadOptions", "read_range"]


def read_range(
    file: InputFile,
    byte_range: Range,
    options: ReadOptions,
    storage_options: Mapping[str, Any] | None = None,
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

    Raises:
        InputError: the file is gone, has another size, is corrupt or cut short, or lacks a column
            that is to be read.
        LongDocumentError: a document has to be read whole and is too long.
        InvalidDocumentError: see `ReadOptions.invalid_utf8`.

    Example: of a file with the text `one|two|three`, separator `|`, the range [2, 6) holds the
    document `two` alone.
    """
    if not is_splittable(file.compression, options) and byte_range.start != 0:
        raise ValueError("a compressed file, or one without separator, is read as a whole")
    storage_options = storage_options or {}
    if options.format in COLUMN_FORMATS:
        reader = ParquetReader if options.format == "parquet" else ArrowReader
        with open_handle(file, storage_options) as handle:
            yield from reader(file, byte_range, options, handle).batches()
    else:
        lines = TextReader if options.format == "text" else JsonLinesReader
        with StreamPair(file, storage_options, options.read_bytes, byte_range.end) as streams:
            yield from lines(file, byte_range, options, streams).batches()
