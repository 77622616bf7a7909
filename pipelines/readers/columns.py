"""Readers for Parquet and Arrow IPC files; only the requested columns are read.

Offsets are row numbers. Ranges are byte intervals as for text, so that planning opens no file; the
reader finds the rows of a range in the file's footer. Each row group or record batch is assigned to
one range, whatever positions the footer states.
"""

from __future__ import annotations

import io
import itertools
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bpe_core.errors import BpeError
from pipelines.batches import DocumentBatch
from pipelines.errors import DamagedFileError, to_one_line
from pipelines.readers.arrow_footer import (
    ARROW_FILE_MAGIC,
    expanded_bytes,
    expanded_bytes_of_next,
    rows_before,
    rows_of,
)
from pipelines.readers.documents import BatchMaker, Texts
from pipelines.readers.fields import (
    convert_ids,
    decode_column,
    extract_spans,
    format_path,
    is_integer,
    is_shared,
    is_text,
    join_columns,
    list_fields,
    measure_values,
    prepare_column,
    suggest_field,
    unwrap_array,
    unwrap_type,
)
from pipelines.readers.kept_columns import collect_columns, convert_column, find_column_type
from pipelines.readers.options import FieldPath, ReadOptions
from pipelines.readers.page_guard import PageGuard
from pipelines.readers.streams import InputHandle
from pipelines.rejects.reasons import NULL_FIELD
from pipelines.storage.expansion import check_expansion
from pipelines.tasks.listing import InputFile
from pipelines.tasks.plan import Range

_BATCH_BYTES: Final = 2 << 20
_SMALLEST_BATCH_BYTES: Final = 1 << 20
# Maximum rows of a batch whose size in bytes is unknown before it is read.
_MOST_ROWS: Final = 8192
_FEW_ROWS: Final = 64
_TINY_ROW_BYTES: Final = 512

_MOST_ROWS_OF_A_FILE: Final = 1 << 50

_FEATHER_MAGIC: Final = b"FEA1"
_END_OF_STREAM: Final = b"\xff\xff\xff\xff\0\0\0\0"


class ColumnReader(ABC):
    """Base class of both formats: selects columns and converts rows to batches of documents."""

    _form: str
    _a = "a"
    _untrusted: bool

    def __init__(
        self, file: InputFile, byte_range: Range, options: ReadOptions, handle: InputHandle
    ):
        self._file = file
        self._range = byte_range
        self._options = options
        self._maker = BatchMaker(file, options)
        self._handle = handle
        self._text_bytes = 0
        # The row at which to stop.
        self._until = sys.maxsize if file.stop is None else file.stop
        self._reached = 0  # the first row that was not yielded
        self._known_end = 0
        # Fields to keep that the file has.
        self._kept_paths: list[FieldPath] = []

    @property
    def rest(self) -> tuple[int, int]:
        """First row that was not yielded, and number of rows of the range known to remain."""
        return self._reached, max(0, self._known_end - self._reached)

    @abstractmethod
    def batches(self) -> Iterator[DocumentBatch]:
        """Yield the batches of the range."""

    def _set_first_row(self, row: int) -> None:
        """Apply `max_documents`, counted from the first row of the range."""
        if self._options.max_documents is not None:
            self._until = min(self._until, row + self._options.max_documents)

    def _report_rows(self, row: int, *, is_last: bool) -> Iterator[DocumentBatch]:
        """Yield, after the last row to read, a batch with the number of rows to read of the file.

        Args:
            row: the row after those that were read.
            is_last: the file ends there.
        """
        stop = self._file.stop
        if is_last or (stop is not None and row >= stop):
            yield self._maker.make_empty(0, rows=row if stop is None else min(row, stop))

    def _is_in_range(self, byte: int) -> bool:
        return self._range.start <= byte < self._range.end

    @contextmanager
    def _reporting_damage(self, what: str) -> Iterator[None]:
        """Convert any error of Arrow to a DamagedFileError that names the file."""
        try:
            yield
        except BpeError:
            raise
        except Exception as error:
            raise self._damage_error(
                what, f"{type(error).__name__}: {to_one_line(error)}"
            ) from error

    def _read_next(self, what: str, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
        """Return the next batch, or None at the end; errors as in `_reporting_damage`."""
        with self._reporting_damage(what):
            return next(batches, None)

    def _reject_rows(self, error: DamagedFileError, end: int) -> DocumentBatch:
        """Return a batch that rejects the remaining rows before row `end`.

        Raises:
            DamagedFileError: `error`, unless `ReadOptions.keep_readable` is set.
        """
        if not self._options.keep_readable:
            raise error
        rest = self._maker.reject_rest(self._reached, max(0, end - self._reached), error)
        self._reached = end
        return rest

    def _damage_error(self, what: str, found: str) -> DamagedFileError:
        return DamagedFileError(
            f"An input file is damaged, truncated, or not {self._a} {self._form} file.",
            expected=what,
            found=found,
            where=self._file.url,
            hint="Download the file again, exclude it from input.files, or set input.format.",
        )

    # --- which columns

    @property
    def _paths(self) -> list[FieldPath]:
        """Fields to read: those of the text, then the id, then those to keep."""
        id_field = self._options.id_field
        ids = [] if id_field is None else [id_field]
        return [*self._options.text_fields, *ids, *self._kept_paths]

    def _check_schema(self, schema: pa.Schema) -> None:
        """Check that the columns exist and have a supported type."""
        for path in self._options.text_fields:
            data_type = self._find_type(schema, path)
            if not is_text(data_type):
                raise self._wrong_type(
                    path, data_type, "text (string or binary)", "input.text_field"
                )
        if self._options.id_field is not None:
            data_type = self._find_type(schema, self._options.id_field)
            if not (is_text(data_type) or is_integer(data_type)):
                expected = "text or integers"
                raise self._wrong_type(
                    self._options.id_field, data_type, expected, "input.id_field"
                )
        for path in self._options.keep:
            found = find_column_type(schema, path)
            if found is not None:
                self._kept_paths.append(path)
                if pa.types.is_nested(unwrap_type(found)):
                    expected = "texts, numbers, truth values or times"
                    keys = "input.keep_columns or counts.group_by"
                    raise self._wrong_type(path, found, expected, keys)

    def _wrong_type(
        self, path: FieldPath, data_type: pa.DataType, expected: str, key: str
    ) -> DamagedFileError:
        return DamagedFileError(
            f"A column of a {self._form} file has an unsupported type.",
            expected=f"{expected} in the column {format_path(path)} ({key})",
            found=str(data_type),
            where=self._file.url,
            hint=f"Set {key} to another column, or exclude the file from input.files.",
        )

    def _find_type(self, schema: pa.Schema, path: FieldPath) -> pa.DataType:
        holder: Any = schema
        for part in path:
            is_schema = isinstance(holder, pa.Schema)
            if not is_schema and not pa.types.is_struct(unwrap_type(holder)):
                raise self._missing_column(schema, path, f"{holder}, which has no field {part!r}")
            holder = holder if is_schema else unwrap_type(holder)
            indices = holder.get_all_field_indices(part)
            if not indices:
                raise self._missing_column(schema, path, _list_names(holder))
            if len(indices) > 1:
                raise self._missing_column(schema, path, f"{len(indices)} columns named {part!r}")
            holder = holder.field(indices[0]).type
        return holder

    def _missing_column(self, schema: pa.Schema, path: FieldPath, found: str) -> DamagedFileError:
        is_text_field = path in self._options.text_fields
        key = "text_field" if is_text_field else "id_field"
        known = _list_columns(schema, is_text if is_text_field else _is_id)
        return DamagedFileError(
            f"A column is missing from a {self._form} file, or not unique.",
            expected=f"exactly one column {format_path(path)} (input.{key})",
            found=found,
            where=self._file.url,
            hint=f"{suggest_field(path, known, key)}Set input.{key} to one of "
            "its columns, or exclude the file from input.files.",
        )

    # --- rows

    def _convert_rows(self, rows: pa.RecordBatch, first_row: int) -> Iterator[DocumentBatch]:
        """Convert rows to batches; `first_row` is the number of the first row in the file."""
        rows = rows.slice(0, self._until - first_row)
        what = f"rows with the types of the schema, from row {first_row:,}"
        num_texts = len(self._options.text_fields)
        with self._reporting_damage(what):
            if self._untrusted:
                rows.validate()
            columns = [
                prepare_column(_get_column(rows, path), untrusted=self._untrusted)
                for path in self._paths[: len(self._paths) - len(self._kept_paths)]
            ]
            bounds = _cut_rows(columns[:num_texts])
            values = {
                ".".join(path): convert_column(_get_column(rows, path), untrusted=self._untrusted)
                for path in self._kept_paths
            }
        kept = None
        if self._options.kept is not None:
            where = f"{self._file.url}, from row {first_row:,}"
            kept = collect_columns(self._options, values, rows.num_rows, where)
        for begin, end in pairwise(bounds):
            with self._reporting_damage(what):
                parts = [decode_column(column.slice(begin, end - begin)) for column in columns]
                data, starts, ends = extract_spans(
                    join_columns(parts[:num_texts], self._options.join)
                )
                ids = convert_ids(parts[num_texts]) if len(parts) > num_texts else None
            self._text_bytes += len(data)
            self._check_expansion(self._text_bytes, f"text up to row {first_row + end:,}")
            offsets = np.arange(first_row + begin, first_row + end, dtype=np.int64)
            texts = Texts(
                data=data,
                starts=starts,
                ends=ends,
                offsets=offsets,
                ids=ids,
                kept=None if kept is None else kept[begin:end],
            )
            yield from self._reject_nulls(texts, parts[:num_texts])
            self._reached = first_row + end

    def _check_expansion(self, num_bytes: int, what: str) -> None:
        check_expansion(
            self._file.url, self._file.size, num_bytes, self._options.max_expansion, what
        )

    def _reject_nulls(self, texts: Texts, columns: list[pa.Array[Any]]) -> Iterator[DocumentBatch]:
        if not any(column.null_count for column in columns):
            yield from self._maker.make_batches(texts)
            return
        nulls = np.stack([pc.is_null(column).to_numpy(zero_copy_only=False) for column in columns])
        lacking = np.logical_or.reduce(nulls, axis=0)
        rejects = []
        for i in np.flatnonzero(lacking):
            field = format_path(self._options.text_fields[int(np.argmax(nulls[:, i]))])
            record_id = None if texts.ids is None else texts.ids[int(i)].as_py()
            message = f"the field {field} is null"
            offset = int(texts.offsets[i])
            rejects.append(self._maker.reject(offset, 0, NULL_FIELD, message, record_id=record_id))
        kept = texts.select(~lacking)
        yield from self._maker.make_batches(kept, rejects=rejects)


def _list_names(holder: pa.Schema | pa.StructType) -> str:
    return list_fields((holder.field(i).name for i in range(len(holder))), "columns")


def _is_id(data_type: pa.DataType) -> bool:
    return is_text(data_type) or is_integer(data_type)


def _list_columns(
    holder: pa.Schema | pa.StructType,
    fits: Callable[[pa.DataType], bool],
    before: FieldPath = (),
    *,
    deepest: int = 3,
) -> list[str]:
    """Return the paths of the columns with fitting types, those in structs included."""
    names = []
    for i in range(len(holder)):
        field = holder.field(i)
        path = (*before, field.name)
        if fits(field.type):
            names.append(format_path(path))
        elif pa.types.is_struct(unwrap_type(field.type)) and len(path) < deepest:
            names += _list_columns(unwrap_type(field.type), fits, path)
    return names


def _get_column(rows: pa.RecordBatch, path: FieldPath) -> pa.Array[Any]:
    """Return the column of a path, with nulls for rows in which an enclosing struct is null."""
    array = rows.column(path[0])
    for part in path[1:]:
        array = unwrap_array(array)
        array = pc.struct_field(array, [array.type.get_field_index(part)])
    return array


def _cut_rows(columns: list[pa.Array[Any]]) -> list[int]:
    """Return the bounds of batches, with both ends: by bytes, and by number for tiny rows."""
    rows = len(columns[0])
    few = rows <= _MOST_ROWS and sum(column.nbytes for column in columns) <= 2 * _BATCH_BYTES
    if few and not any(is_shared(column.type) for column in columns):
        return [0, rows]
    row_bytes = np.stack([measure_values(column) for column in columns]).sum(axis=0)
    blocks = np.cumsum(row_bytes) // _BATCH_BYTES
    cuts = np.union1d(np.flatnonzero(np.diff(blocks)) + 1, np.arange(0, rows, _MOST_ROWS))
    return [*cuts.tolist(), rows]


def _choose_batch_rows(row_bytes: int) -> int:
    """Return the number of rows of a batch, given the approximate bytes of a row."""
    return max(1, min(_MOST_ROWS, _BATCH_BYTES // max(row_bytes, 1)))


class ParquetReader(ColumnReader):
    """Reader for the row groups that start in a range.

    The pages of a row group are read one after the other, so memory does not grow with its size.
    """

    _form = "Parquet"
    _untrusted = False  # Arrow builds the arrays while decoding

    def batches(self) -> Iterator[DocumentBatch]:
        """Yield the batches of the range."""
        guard = PageGuard(self._handle, self._file, self._options.max_expansion)
        with self._reporting_damage("a Parquet file with a readable footer"):
            parquet = pq.ParquetFile(
                pa.PythonFile(guard, "r"),
                pre_buffer=False,
                buffer_size=self._options.read_bytes,
                arrow_extensions_enabled=False,
            )
            self._check_schema(parquet.schema_arrow)
            groups = self._locate_groups(parquet.metadata)
        first_row = list(itertools.accumulate((rows for _, rows, _ in groups), initial=0))
        numbers = [i for i, (begin, _, _) in enumerate(groups) if self._is_in_range(begin)]
        if numbers:
            self._set_first_row(first_row[numbers[0]])
            self._known_end = min(first_row[numbers[-1] + 1], self._until)
        for number in numbers:
            first, end = first_row[number], first_row[number + 1]
            if first >= self._until:
                return
            self._reached = first
            _, rows, row_bytes = groups[number]
            try:
                yield from self._read_group(parquet, guard, number, first, rows, row_bytes)
            except DamagedFileError as error:
                yield self._reject_rows(error, min(end, self._until))
            yield from self._report_rows(end, is_last=number + 1 == len(groups))

    def _locate_groups(self, metadata: pq.FileMetaData) -> list[tuple[int, int, int]]:
        """Return the offset, number of rows and approximate bytes per row of each row group.

        Offsets divide the file among the row groups in proportion to their bytes in memory. The
        footer also contains the real offsets, but pyarrow aborts the process when asked for those
        of columns with invalid statistics in a damaged footer.
        """
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        if any(group.num_rows < 0 for group in groups) or metadata.num_rows > _MOST_ROWS_OF_A_FILE:
            raise ValueError("the footer has impossible numbers of rows")
        sizes = [max(group.total_byte_size, 0) + 1 for group in groups]
        total = sum(sizes)
        self._check_expansion(total, "row groups")
        before = itertools.accumulate(sizes, initial=0)
        return [
            (self._file.size * begin // total, group.num_rows, size // max(group.num_rows, 1))
            for begin, group, size in zip(before, groups, sizes, strict=False)
        ]

    def _read_group(
        self,
        parquet: pq.ParquetFile,
        guard: PageGuard,
        number: int,
        first_row: int,
        num_rows: int,
        row_bytes: int,
    ) -> Iterator[DocumentBatch]:
        what = f"row group {number} of {num_rows:,} rows, from row {first_row:,}"
        row = first_row
        # The rows per read follow from the bytes of all columns, so a batch may need several reads.
        pending: list[pa.RecordBatch] = []
        pending_bytes = 0
        batches = self._iterate_group(parquet, guard, number, num_rows, row_bytes)
        damage: DamagedFileError | None = None
        rows: pa.RecordBatch | None = None
        while damage is None and row < first_row + num_rows:
            try:
                rows = self._read_next(what, batches)
            except DamagedFileError as error:
                damage, rows = error, None
            if rows is not None:
                pending.append(rows)
                pending_bytes += rows.nbytes
            if pending and (rows is None or pending_bytes >= _SMALLEST_BATCH_BYTES):
                yield from self._convert_rows(_concat(pending), row)
                row += sum(part.num_rows for part in pending)
                pending, pending_bytes = [], 0
            if row >= self._until:
                return
            if rows is None:
                break
        if damage is not None:
            raise damage
        if row - first_row != num_rows:
            raise self._damage_error(what, f"{row - first_row:,} rows")

    def _iterate_group(
        self,
        parquet: pq.ParquetFile,
        guard: PageGuard,
        number: int,
        num_rows: int,
        row_bytes: int,
    ) -> Iterator[pa.RecordBatch]:
        def read(batch_rows: int) -> Iterator[pa.RecordBatch]:
            batches: Iterator[pa.RecordBatch] = parquet.iter_batches(
                batch_rows,
                row_groups=[number],
                columns=list(dict.fromkeys(".".join(path) for path in self._paths)),
                use_threads=False,
            )
            return batches

        # A long value shared by many rows is stored only once, so the real size of rows is unknown:
        # read few rows at a time. For tiny rows that is slow, so measure some rows first.
        batch_rows = min(_choose_batch_rows(row_bytes), _FEW_ROWS)
        if row_bytes < _TINY_ROW_BYTES and num_rows > _FEW_ROWS:
            sample = next(guard.read_rows(read, _FEW_ROWS))
            batch_rows = _choose_batch_rows(max(row_bytes, sample.nbytes // sample.num_rows))
        yield from guard.read_rows(read, batch_rows)


def _concat(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


class ArrowReader(ColumnReader):
    """Reader for the record batches in a range of an Arrow IPC file, or for an IPC stream.

    Each record batch is loaded into memory completely.
    """

    _form = "Arrow"
    _a = "an"
    _untrusted = True

    def batches(self) -> Iterator[DocumentBatch]:
        """Yield the batches of the range."""
        magic = self._handle.read(len(ARROW_FILE_MAGIC))
        if magic.startswith(_FEATHER_MAGIC):
            raise self._damage_error("an Arrow IPC file", "Feather version 1, an older format")
        if magic == ARROW_FILE_MAGIC:
            yield from self._file_batches()
        elif self._range.start == 0:  # a stream can only be read from its start
            yield from self._stream_batches()

    def _make_options(self, schema: pa.Schema) -> pa.ipc.IpcReadOptions:
        self._check_schema(schema)
        needed = sorted({schema.get_field_index(path[0]) for path in self._paths})
        return pa.ipc.IpcReadOptions(included_fields=needed, use_threads=False)

    def _open_source(self) -> pa.PythonFile:
        self._handle.seek(0)
        return pa.PythonFile(self._handle, "r")

    def _file_batches(self) -> Iterator[DocumentBatch]:
        with self._reporting_damage("an Arrow IPC file with a readable footer"):
            schema = pa.ipc.open_file(self._open_source()).schema
            reader = pa.ipc.open_file(self._open_source(), options=self._make_options(schema))
            count = reader.num_record_batches
            numbers = [i for i in range(count) if self._is_in_range(i * self._file.size // count)]
            if not numbers:
                return
            row = rows_before(self._handle, self._file.size, numbers[0])
            claims = expanded_bytes(self._handle, self._file.size, numbers[0])
        self._set_first_row(row)
        for number in numbers:
            if row >= self._until:
                return
            self._reached = row
            what = f"record batch {number}, from row {row:,}"
            try:
                with self._reporting_damage(what):
                    self._check_expansion(next(claims), "buffers")
                    rows = reader.get_batch(number)
                yield from self._convert_rows(rows, row)
                row += rows.num_rows
            except DamagedFileError as error:
                with self._reporting_damage(what):
                    row += rows_of(self._handle, self._file.size, number)
                yield self._reject_rows(error, min(row, self._until))
            yield from self._report_rows(row, is_last=number + 1 == count)

    def _stream_batches(self) -> Iterator[DocumentBatch]:
        with self._reporting_damage("an Arrow IPC file or stream"):
            schema = pa.ipc.open_stream(self._open_source()).schema
            reader = pa.ipc.open_stream(self._open_source(), options=self._make_options(schema))
        row = 0
        self._set_first_row(row)
        batches = iter(reader)
        while (rows := self._read_next_of_stream(batches)) is not None:
            yield from self._convert_rows(rows, row)
            row += rows.num_rows
            self._reached = row
            if row >= self._until:
                yield from self._report_rows(row, is_last=False)
                return
        self._check_end_of_stream(row)
        yield from self._report_rows(row, is_last=True)

    def _read_next_of_stream(self, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
        what = "an Arrow IPC stream to its end"
        with self._reporting_damage(what):
            self._check_expansion(expanded_bytes_of_next(self._handle), "buffers")
        return self._read_next(what, batches)

    def _check_end_of_stream(self, rows: int) -> None:
        """Check for the end marker: Arrow accepts any end between two messages."""
        end = self._handle.tell()
        self._handle.seek(-len(_END_OF_STREAM), io.SEEK_END)
        if self._handle.read(len(_END_OF_STREAM)) != _END_OF_STREAM:
            raise self._damage_error(
                "an Arrow IPC stream with an end marker",
                f"no end marker after {rows:,} rows; the file may be truncated",
            )
        if end != self._file.size:
            raise self._damage_error(
                f"the end of the stream at the end of the file, byte {self._file.size:,}",
                f"the end of the stream at byte {end:,}",
            )
