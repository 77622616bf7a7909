"""Parquet and Arrow IPC files: of their columns only those that are asked for are read.

Places are numbers of rows. Ranges are byte intervals as for text, so that planning reads no file;
which rows lie in a range, the reader finds out from the file's footer.
"""

from __future__ import annotations

import io
import itertools
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bpe_core.errors import BpeError
from pipelines.batches import DocumentBatch
from pipelines.errors import DamagedFileError
from pipelines.readers.arrow_footer import ARROW_FILE_MAGIC, rows_before, rows_of
from pipelines.readers.documents import BatchMaker, Texts
from pipelines.readers.fields import (
    decoded,
    id_strings,
    is_integer,
    is_text,
    joined,
    prepared,
    show_path,
    spans,
    stored,
    stored_type,
    value_bytes,
)
from pipelines.readers.options import FieldPath, ReadOptions
from pipelines.readers.streams import InputHandle
from pipelines.rejects.reasons import NULL_FIELD
from pipelines.tasks.listing import InputFile
from pipelines.tasks.plan import Range

_BATCH_BYTES: Final = 2 << 20
_SMALLEST_BATCH_BYTES: Final = 1 << 20
# Rows of one batch at most, where their bytes are not known before they are read.
_MOST_ROWS: Final = 8192
_FEW_ROWS: Final = 64
_TINY_ROW_BYTES: Final = 512

_MOST_ROWS_OF_A_FILE: Final = 1 << 50

_FEATHER_MAGIC: Final = b"FEA1"
_END_OF_STREAM: Final = b"\xff\xff\xff\xff\0\0\0\0"


class ColumnReader(ABC):
    """What the two forms share: which columns to read, and batches of rows → batches of texts."""

    _form: str
    _untrusted: bool

    def __init__(
        self, file: InputFile, byte_range: Range, options: ReadOptions, handle: InputHandle
    ):
        self._file = file
        self._range = byte_range
        self._options = options
        self._maker = BatchMaker(file, options)
        self._handle = handle
        # The row at which reading ends.
        self._until = sys.maxsize if file.stop is None else file.stop
        self._reached = 0  # the first row that was not given
        self._known_end = 0

    @property
    def rest(self) -> tuple[int, int]:
        """The first row that was not given, and the rows of the range known to be left."""
        return self._reached, max(0, self._known_end - self._reached)

    @abstractmethod
    def batches(self) -> Iterator[DocumentBatch]:
        """The batches of the range."""

    def _begin_at(self, row: int) -> None:
        """Notes the first row of the range."""
        if self._options.max_documents is not None:
            self._until = min(self._until, row + self._options.max_documents)

    def _end_of_file(self, row: int, *, is_last: bool) -> Iterator[DocumentBatch]:
        """Says how many rows had to be read of the file, after the last of them.

        Args:
            row: the one after those that were read.
            is_last: whether the file ends there.
        """
        stop = self._file.stop
        if is_last or (stop is not None and row >= stop):
            yield self._maker.nothing(0, rows=row if stop is None else min(row, stop))

    def _in_range(self, byte: int) -> bool:
        return self._range.start <= byte < self._range.end

    @contextmanager
    def _reading(self, what: str) -> Iterator[None]:
        """Whatever Arrow finds wrong is the file's fault: an InputError that names it."""
        try:
            yield
        except BpeError:
            raise
        except Exception as error:
            raise self._damaged(what, f"{type(error).__name__}: {error}") from error

    def _next(self, what: str, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
        """The next batch, read as `_reading` says; None at the end."""
        with self._reading(what):
            return next(batches, None)

    def _rejected(self, error: DamagedFileError, end: int) -> DocumentBatch:
        """The batch that rejects the rows before row `end` that were not given.

        Raises the error if bad files are to be errors.
        """
        if not self._options.keep_readable:
            raise error
        rest = self._maker.rest_of_file(self._reached, max(0, end - self._reached), error)
        self._reached = end
        return rest

    def _damaged(self, what: str, found: str) -> DamagedFileError:
        return DamagedFileError(
            f"An input file is damaged, cut short, or no {self._form} file.",
            expected=what,
            found=found,
            where=self._file.url,
            hint="Get the file again, leave it out of input.files, or set input.format.",
        )

    # --- which columns

    @property
    def _paths(self) -> list[FieldPath]:
        """The fields that are read: those of the text, then the id."""
        id_field = self._options.id_field
        return [*self._options.text_fields, *([] if id_field is None else [id_field])]

    def _check_schema(self, schema: pa.Schema) -> None:
        """Raises the error for a column that is not there or of another type."""
        for path in self._options.text_fields:
            data_type = self._type_of(schema, path)
            if not is_text(data_type):
                raise self._wrong_type(path, data_type, "text (string or binary)", "text_field")
        if self._options.id_field is not None:
            data_type = self._type_of(schema, self._options.id_field)
            if not (is_text(data_type) or is_integer(data_type)):
                expected = "text or whole numbers"
                raise self._wrong_type(self._options.id_field, data_type, expected, "id_field")

    def _wrong_type(
        self, path: FieldPath, data_type: pa.DataType, expected: str, key: str
    ) -> DamagedFileError:
        return DamagedFileError(
            f"A column of a {self._form} file has a type that can't be read.",
            expected=f"{expected} in the column {show_path(path)} (input.{key})",
            found=str(data_type),
            where=self._file.url,
            hint=f"Name another column in input.{key}, or leave the file out of input.files.",
        )

    def _type_of(self, schema: pa.Schema, path: FieldPath) -> pa.DataType:
        holder: Any = schema
        for part in path:
            is_schema = isinstance(holder, pa.Schema)
            if not is_schema and not pa.types.is_struct(stored_type(holder)):
                raise self._no_column(schema, path, f"{part!r} is looked for in a {holder}")
            holder = holder if is_schema else stored_type(holder)
            indices = holder.get_all_field_indices(part)
            if not indices:
                raise self._no_column(schema, path, _names(holder))
            if len(indices) > 1:
                raise self._no_column(schema, path, f"{len(indices)} columns of the name {part!r}")
            holder = holder.field(indices[0]).type
        return holder

    def _no_column(self, schema: pa.Schema, path: FieldPath, found: str) -> DamagedFileError:
        key = "text_field" if path in self._options.text_fields else "id_field"
        return DamagedFileError(
            f"A {self._form} file lacks a column.",
            expected=f"the column {show_path(path)} (input.{key}), once",
            found=found,
            where=self._file.url,
            hint=f"Name one of its columns in input.{key}, or leave the file out of input.files.",
        )

    # --- rows

    def _row_batches(self, rows: pa.RecordBatch, first_row: int) -> Iterator[DocumentBatch]:
        """The batches of rows, the first of which has this number in the file."""
        rows = rows.slice(0, self._until - first_row)
        what = f"rows of the columns' types, from row {first_row:,} on"
        num_texts = len(self._options.text_fields)
        with self._reading(what):
            if self._untrusted:
                rows.validate()
            columns = [
                prepared(_column(rows, path), untrusted=self._untrusted) for path in self._paths
            ]
            bounds = _bounds(columns[:num_texts])
        for begin, end in pairwise(bounds):
            with self._reading(what):
                parts = [decoded(column.slice(begin, end - begin)) for column in columns]
                data, starts, ends = spans(joined(parts[:num_texts], self._options.join))
                ids = id_strings(parts[num_texts]) if len(parts) > num_texts else None
            places = np.arange(first_row + begin, first_row + end, dtype=np.int64)
            texts = Texts(data=data, starts=starts, ends=ends, places=places, ids=ids)
            yield from self._without_nulls(texts, parts[:num_texts])
            self._reached = first_row + end

    def _without_nulls(self, texts: Texts, columns: list[pa.Array[Any]]) -> Iterator[DocumentBatch]:
        if not any(column.null_count for column in columns):
            yield from self._maker.record_batches(texts)
            return
        nulls = np.stack([pc.is_null(column).to_numpy(zero_copy_only=False) for column in columns])
        lacking = np.logical_or.reduce(nulls, axis=0)
        rejects = []
        for i in np.flatnonzero(lacking):
            field = show_path(self._options.text_fields[int(np.argmax(nulls[:, i]))])
            record_id = None if texts.ids is None else texts.ids[int(i)].as_py()
            message = f"the field {field} is null"
            place = int(texts.places[i])
            rejects.append(self._maker.reject(place, 0, NULL_FIELD, message, record_id=record_id))
        kept = texts.select(~lacking)
        yield from self._maker.record_batches(kept, rejects=rejects)


def _names(holder: pa.Schema | pa.StructType) -> str:
    names = [holder.field(i).name for i in range(len(holder))]
    return f"the columns {', '.join(names[:20])}{' …' if len(names) > 20 else ''}"


def _column(rows: pa.RecordBatch, path: FieldPath) -> pa.Array[Any]:
    """The column of a path; null where a struct that holds it is null."""
    array = rows.column(path[0])
    for part in path[1:]:
        array = stored(array)
        array = pc.struct_field(array, [array.type.get_field_index(part)])
    return array


def _bounds(columns: list[pa.Array[Any]]) -> list[int]:
    """Where rows are cut into batches, with both ends: by bytes, and tiny ones by their number."""
    rows = len(columns[0])
    few = rows <= _MOST_ROWS and sum(column.nbytes for column in columns) <= 2 * _BATCH_BYTES
    if few and not any(pa.types.is_dictionary(column.type) for column in columns):
        return [0, rows]
    row_bytes = np.stack([value_bytes(column) for column in columns]).sum(axis=0)
    blocks = np.cumsum(row_bytes) // _BATCH_BYTES
    cuts = np.union1d(np.flatnonzero(np.diff(blocks)) + 1, np.arange(0, rows, _MOST_ROWS))
    return [*cuts.tolist(), rows]


def _rows_at_once(row_bytes: int) -> int:
    """How many rows make a batch, where a row has about so many bytes."""
    return max(1, min(_MOST_ROWS, _BATCH_BYTES // max(row_bytes, 1)))


class ParquetReader(ColumnReader):
    """The rows of the row groups that lie in a range.

    Inside a row group pages are read one after the other, so memory does not grow with it.
    """

    _form = "Parquet"
    _untrusted = False  # Arrow makes the arrays itself

    def batches(self) -> Iterator[DocumentBatch]:
        """The batches of the range."""
        with self._reading("a Parquet file with a readable footer"):
            parquet = pq.ParquetFile(
                pa.PythonFile(self._handle, "r"),
                pre_buffer=False,
                buffer_size=self._options.read_bytes,
                arrow_extensions_enabled=False,
            )
            self._check_schema(parquet.schema_arrow)
            groups = self._groups(parquet.metadata)
        first_row = list(itertools.accumulate((rows for _, rows, _ in groups), initial=0))
        numbers = [i for i, (begin, _, _) in enumerate(groups) if self._in_range(begin)]
        if numbers:
            self._begin_at(first_row[numbers[0]])
            self._known_end = min(first_row[numbers[-1] + 1], self._until)
        for number in numbers:
            first, end = first_row[number], first_row[number + 1]
            if first >= self._until:
                return
            self._reached = first
            _, rows, row_bytes = groups[number]
            try:
                yield from self._group_batches(parquet, number, first, rows, row_bytes)
            except DamagedFileError as error:
                yield self._rejected(error, min(end, self._until))
            yield from self._end_of_file(end, is_last=number + 1 == len(groups))

    def _groups(self, metadata: pq.FileMetaData) -> list[tuple[int, int, int]]:
        """Of each row group where it lies, its number of rows, and about the bytes of a row.

        It lies where it would if the file were shared out among the row groups by their bytes in
        memory. (The footer has their true places too, but pyarrow ends the process when it is asked
        for those of a damaged footer.)
        """
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        if any(group.num_rows < 0 for group in groups) or metadata.num_rows > _MOST_ROWS_OF_A_FILE:
            raise ValueError("numbers of rows that can't be")
        sizes = [max(group.total_byte_size, 0) + 1 for group in groups]
        total = sum(sizes)
        before = itertools.accumulate(sizes, initial=0)
        return [
            (self._file.size * begin // total, group.num_rows, size // max(group.num_rows, 1))
            for begin, group, size in zip(before, groups, sizes, strict=False)
        ]

    def _group_batches(
        self, parquet: pq.ParquetFile, number: int, first_row: int, num_rows: int, row_bytes: int
    ) -> Iterator[DocumentBatch]:
        what = f"row group {number} of {num_rows:,} rows, from row {first_row:,} on"
        row = first_row
        # Rows at a time follow from the bytes of all columns, so they may be few of those read.
        pending: list[pa.RecordBatch] = []
        pending_bytes = 0
        batches = self._group_rows(parquet, number, num_rows, row_bytes)
        damage: DamagedFileError | None = None
        rows: pa.RecordBatch | None = None
        while damage is None and row < first_row + num_rows:
            try:
                rows = self._next(what, batches)
            except DamagedFileError as error:
                damage, rows = error, None
            if rows is not None:
                pending.append(rows)
                pending_bytes += rows.nbytes
            if pending and (rows is None or pending_bytes >= _SMALLEST_BATCH_BYTES):
                yield from self._row_batches(_together(pending), row)
                row += sum(part.num_rows for part in pending)
                pending, pending_bytes = [], 0
            if row >= self._until:
                return
            if rows is None:
                break
        if damage is not None:
            raise damage
        if row - first_row != num_rows:
            raise self._damaged(what, f"{row - first_row:,} rows")

    def _group_rows(
        self, parquet: pq.ParquetFile, number: int, num_rows: int, row_bytes: int
    ) -> Iterator[pa.RecordBatch]:
        def rows_of(batch_rows: int) -> Iterator[pa.RecordBatch]:
            batches: Iterator[pa.RecordBatch] = parquet.iter_batches(
                batch_rows,
                row_groups=[number],
                columns=[".".join(path) for path in self._paths],
                use_threads=False,
            )
            return batches

        # A long value that rows share stands once in the file, so few rows are taken at a time;
        # of tiny ones, where that would cost time, a look at some shows whether they are.
        batch_rows = min(_rows_at_once(row_bytes), _FEW_ROWS)
        if row_bytes < _TINY_ROW_BYTES and num_rows > _FEW_ROWS:
            some = next(rows_of(_FEW_ROWS))
            batch_rows = _rows_at_once(max(row_bytes, some.nbytes // _FEW_ROWS))
        yield from rows_of(batch_rows)


def _together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


class ArrowReader(ColumnReader):
    """The rows of the record batches that lie in a range of an Arrow IPC file, or of a stream.

    A record batch is held whole.
    """

    _form = "Arrow"
    _untrusted = True

    def batches(self) -> Iterator[DocumentBatch]:
        """The batches of the range."""
        magic = self._handle.read(len(ARROW_FILE_MAGIC))
        if magic.startswith(_FEATHER_MAGIC):
            raise self._damaged("Arrow IPC", "Feather version 1, an older format")
        if magic == ARROW_FILE_MAGIC:
            yield from self._file_batches()
        elif self._range.start == 0:  # a stream can only be read from its start
            yield from self._stream_batches()

    def _options_for(self, schema: pa.Schema) -> pa.ipc.IpcReadOptions:
        self._check_schema(schema)
        needed = sorted({schema.get_field_index(path[0]) for path in self._paths})
        return pa.ipc.IpcReadOptions(included_fields=needed, use_threads=False)

    def _source(self) -> pa.PythonFile:
        self._handle.seek(0)
        return pa.PythonFile(self._handle, "r")

    def _file_batches(self) -> Iterator[DocumentBatch]:
        with self._reading("an Arrow IPC file with a readable footer"):
            schema = pa.ipc.open_file(self._source()).schema
            reader = pa.ipc.open_file(self._source(), options=self._options_for(schema))
            count = reader.num_record_batches
            numbers = [i for i in range(count) if self._in_range(i * self._file.size // count)]
            if not numbers:
                return
            row = rows_before(self._handle, self._file.size, numbers[0])
        self._begin_at(row)
        for number in numbers:
            if row >= self._until:
                return
            self._reached = row
            what = f"record batch {number}, from row {row:,} on"
            try:
                with self._reading(what):
                    rows = reader.get_batch(number)
                yield from self._row_batches(rows, row)
                row += rows.num_rows
            except DamagedFileError as error:
                with self._reading(what):
                    row += rows_of(self._handle, self._file.size, number)
                yield self._rejected(error, min(row, self._until))
            yield from self._end_of_file(row, is_last=number + 1 == count)

    def _stream_batches(self) -> Iterator[DocumentBatch]:
        with self._reading("an Arrow IPC file or stream"):
            schema = pa.ipc.open_stream(self._source()).schema
            reader = pa.ipc.open_stream(self._source(), options=self._options_for(schema))
        row = 0
        self._begin_at(row)
        batches = iter(reader)
        while (rows := self._next("an Arrow IPC stream to its end", batches)) is not None:
            yield from self._row_batches(rows, row)
            row += rows.num_rows
            self._reached = row
            if row >= self._until:
                yield from self._end_of_file(row, is_last=False)
                return
        self._check_end_of_stream(row)
        yield from self._end_of_file(row, is_last=True)

    def _check_end_of_stream(self, rows: int) -> None:
        """Arrow takes any end between two messages for the end of the stream."""
        end = self._handle.tell()
        self._handle.seek(-len(_END_OF_STREAM), io.SEEK_END)
        if self._handle.read(len(_END_OF_STREAM)) != _END_OF_STREAM:
            raise self._damaged(
                "an Arrow IPC stream with the mark of its end",
                f"none after {rows:,} rows: the file may be cut short",
            )
        if end != self._file.size:
            raise self._damaged(
                f"the end of the stream at byte {self._file.size:,}, the end of the file",
                f"the end at byte {end:,}",
            )
