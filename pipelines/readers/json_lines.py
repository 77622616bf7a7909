r"""JSON lines: a record a line, its text in a field.

Blocks of whole lines go through Arrow's JSON reader, which makes no Python object of a value. It
separates records by their syntax, not by lines, so what it gives is believed only if every line
begins with `{` and ends with `}` and there are as many records as lines: between two such lines no
record can go on, since JSON allows neither `}` followed by `{` nor a line break in a string. A
block that it refuses is halved; few lines are read one by one with Python's `json`. What a line
means depends on that line alone, since both read the same in it, but for what Arrow alone takes
(`Inf`, `-NaN`, deep nesting): such a line is given to Arrow alone. A line that neither reads is
rejected.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.json
from numpy.typing import NDArray

from pipelines.batches import DocumentBatch, Reject
from pipelines.readers.documents import IntArray, Texts
from pipelines.readers.fields import id_strings, joined, prepared, show_path, spans
from pipelines.readers.options import FieldPath, ReadOptions
from pipelines.readers.separated import SeparatedReader, Split
from pipelines.readers.streams import ByteArray, StreamPair
from pipelines.rejects.reasons import (
    MALFORMED_JSON,
    MISSING_FIELD,
    NULL_FIELD,
    WRONG_FIELD_TYPE,
)
from pipelines.tasks import InputFile, Range

_WHITE_SPACE: Final = b" \t\r"  # JSON's, without the line break
_IS_WHITE_SPACE: Final = np.isin(np.arange(256), list(_WHITE_SPACE))
# So many around a line are taken off all lines at once.
_FEW_BLANKS: Final = 8
# So many are read one by one in the time of the calls of Arrow that find the bad ones among them.
_FEW_LINES: Final = 128
_NUMBERS_OF_ARROW: Final = ("Inf", "-Inf", "-NaN")  # which Python does not take, or not all of them
_KINDS: Final = {dict: "an object", list: "an array", bool: "a truth value", float: "a number"}


@dataclass(frozen=True, slots=True)
class _Lines:
    """Lines that are not blank: places in `data`, without white space around."""

    data: ByteArray
    starts: IntArray
    ends: IntArray
    places: IntArray  # where the file has them
    look_like_records: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.starts)

    def line(self, i: int) -> bytes:
        return self.data[self.starts[i] : self.ends[i]].tobytes()


@dataclass(frozen=True, slots=True)
class _Columns:
    """Of consecutive lines the text, null where there is none, and the ids."""

    text: pa.Array[Any]
    ids: pa.StringArray | None

    def slice(self, begin: int, end: int) -> _Columns:
        length = end - begin
        ids = None if self.ids is None else self.ids.slice(begin, length)
        return _Columns(self.text.slice(begin, length), ids)


class JsonLinesReader(SeparatedReader):
    """The documents of a range of a JSON lines file."""

    def __init__(
        self, file: InputFile, byte_range: Range, options: ReadOptions, streams: StreamPair
    ):
        super().__init__(
            file,
            byte_range,
            options,
            streams,
            separators=(b"\n",),
            strip_bom=True,  # no JSON begins with one
            longest=options.max_document_bytes,
        )
        # Ids are texts or numbers; what they were last is tried first.
        self._id_types = [pa.string(), pa.int64(), pa.uint64()]

    def _found(self, split: Split, consumed: int) -> Iterator[DocumentBatch]:
        lines = _lines(self._window.data, split, self._window.offset)
        rejects: list[Reject] = []
        parts = self._columns(lines, 0, len(lines), rejects)
        text = pa.concat_arrays([part.text for part in parts]) if parts else pa.array([], "binary")
        ids = None
        if self._options.id_field is not None and parts:
            ids = pa.concat_arrays([part.ids for part in parts])
        data, starts, ends = spans(text)
        texts = Texts(data=data, starts=starts, ends=ends, places=lines.places, ids=ids)
        if rejects:
            texts = texts.select(text.is_valid().to_numpy(zero_copy_only=False))
        yield from self._maker.record_batches(texts, consumed=consumed, rejects=rejects)

    def _long(self, start: int) -> Iterator[DocumentBatch]:
        yield from self._too_long(start, "a line")

    # --- many lines

    def _columns(
        self, lines: _Lines, begin: int, end: int, rejects: list[Reject]
    ) -> list[_Columns]:
        """The columns of lines [begin, end), and the rejects of those without a text."""
        if begin == end:
            return []
        if lines.look_like_records[begin:end].all():
            columns = self._fast(lines, begin, end)
            if columns is not None:
                return self._without_nulls(lines, begin, columns, rejects)
        if end - begin <= _FEW_LINES:
            return [self._one_by_one(lines, range(begin, end), rejects)]
        middle = (begin + end) // 2
        return [
            *self._columns(lines, begin, middle, rejects),
            *self._columns(lines, middle, end, rejects),
        ]

    def _without_nulls(
        self, lines: _Lines, begin: int, columns: _Columns, rejects: list[Reject]
    ) -> list[_Columns]:
        """The columns with every null explained; they are those of the lines from `begin` on."""
        if not columns.text.null_count:
            return [columns]
        parts = []
        after = 0
        for i in np.flatnonzero(columns.text.is_null().to_numpy(zero_copy_only=False)).tolist():
            parts.append(columns.slice(after, i))
            parts.append(self._one_by_one(lines, range(begin + i, begin + i + 1), rejects))
            after = i + 1
        return [*parts, columns.slice(after, len(columns.text))]

    def _fast(self, lines: _Lines, begin: int, end: int) -> _Columns | None:
        """What Arrow reads in these lines; None if it refuses them or finds more records."""
        block = pa.py_buffer(lines.data[lines.starts[begin] : lines.ends[end - 1]].data)
        for id_type in tuple(self._id_types) if self._options.id_field is not None else (None,):
            try:
                table = pa.json.read_json(
                    pa.BufferReader(block),
                    pa.json.ReadOptions(use_threads=False, block_size=block.size + 1),
                    pa.json.ParseOptions(
                        explicit_schema=self._schema(id_type), unexpected_field_behavior="ignore"
                    ),
                )
            except pa.ArrowInvalid as error:
                if self._may_have_other_ids(error):
                    continue
                self._try_first(id_type)
                return None
            if table.num_rows != end - begin:
                return None
            self._try_first(id_type)
            return self._columns_of(table)
        return None

    def _try_first(self, id_type: pa.DataType | None) -> None:
        if id_type is not None and id_type != self._id_types[0]:
            self._id_types.remove(id_type)
            self._id_types.insert(0, id_type)

    def _may_have_other_ids(self, error: pa.ArrowInvalid) -> bool:
        """Whether lines were refused for the type of their ids, as far as the message tells."""
        path = self._options.id_field
        message = str(error)
        return path is not None and (
            f"Column(/{'/'.join(path)})" in message or "Failed to convert" in message
        )

    def _schema(self, id_type: pa.DataType | None) -> pa.Schema:
        """The fields that are asked for, and no other."""
        tree: dict[str, Any] = {}
        fields: list[tuple[FieldPath, pa.DataType]] = []
        if self._options.id_field is not None and id_type is not None:
            fields.append((self._options.id_field, id_type))
        fields += [(path, pa.string()) for path in self._options.text_fields]
        for path, data_type in fields:
            branch = tree
            for part in path[:-1]:
                branch = branch.setdefault(part, {})
            branch[path[-1]] = data_type
        return pa.schema(_fields(tree))

    def _columns_of(self, table: pa.Table) -> _Columns:
        columns = [_column(table, path) for path in self._options.text_fields]
        prepared_columns = [prepared(column, untrusted=False) for column in columns]
        text = joined(prepared_columns, self._options.join)
        if self._options.id_field is None:
            return _Columns(text, None)
        ids = prepared(_column(table, self._options.id_field), untrusted=False)
        return _Columns(text, id_strings(ids))

    # --- line by line

    def _one_by_one(self, lines: _Lines, which: range, rejects: list[Reject]) -> _Columns:
        """What Python reads in these lines; where that is no text, null and a reject."""
        texts: list[bytes | None] = []
        ids: list[str | None] = []
        for i in which:
            text, record_id = self._one_line(lines, i, rejects)
            texts.append(text)
            ids.append(record_id)
        wide = pa.binary() if len(self._options.text_fields) == 1 else pa.large_binary()
        id_column = None if self._options.id_field is None else pa.array(ids, pa.string())
        return _Columns(pa.array(texts, wide), id_column)

    def _one_line(
        self, lines: _Lines, i: int, rejects: list[Reject]
    ) -> tuple[bytes | None, str | None]:
        line = lines.line(i)
        record_id: str | None = None
        try:
            record = _parse(line)
            record_id = self._id_of(record, line)
            values = [self._text_of(record, path, line) for path in self._options.text_fields]
            return self._options.join.join(values), record_id
        except _RejectedError as rejected:
            if isinstance(rejected, _OnlyPythonError) and lines.look_like_records[i]:
                columns = self._fast(lines, i, i + 1)
                if columns is not None and columns.text.null_count == 0:
                    ids = [None] if columns.ids is None else columns.ids.to_pylist()
                    return columns.text[0].as_py(), ids[0]
            reason, message = rejected.reason, rejected.message
            place = int(lines.places[i])
            rejects.append(self._maker.reject(place, len(line), reason, message, line, record_id))
            return None, record_id

    def _id_of(self, record: dict[str, Any], line: bytes) -> str | None:
        path = self._options.id_field
        if path is None:
            return None
        try:
            value = _value(record, path)
        except _RejectedError as rejected:
            if rejected.reason in (MISSING_FIELD, NULL_FIELD):
                return None
            raise
        if type(value) is _Integer:
            return "0" if value == "-0" else str(value)
        if type(value) is not str:
            raise _wrong_type(path, "text or a whole number", value)
        return _encode(value, line).decode("utf-8", "replace")

    def _text_of(self, record: dict[str, Any], path: FieldPath, line: bytes) -> bytes:
        value = _value(record, path)
        if type(value) is not str:
            raise _wrong_type(path, "text", value)
        return _encode(value, line)


def _lines(data: ByteArray, split: Split, offset: int) -> _Lines:
    starts, ends, places = split.starts, split.ends, split.starts + offset
    ends = ends - (data[ends - 1] == ord("\r"))
    first, last = ord("{"), ord("}")
    # A line of "\r" alone has become empty: what stands before it is no part of it.
    regular = (ends > starts) & (data[starts] == first) & (data[ends - 1] == last)
    if not regular.all():
        starts, ends = _stripped(data, starts, ends)
        kept = ends > starts
        starts, ends, places = starts[kept], ends[kept], places[kept]
        regular = (data[starts] == first) & (data[ends - 1] == last)
    return _Lines(data, starts, ends, places, regular)


def _stripped(data: ByteArray, starts: IntArray, ends: IntArray) -> tuple[IntArray, IntArray]:
    """The places of lines without the white space around them; of blanks an empty one is left."""
    starts, ends = starts.copy(), ends.copy()
    for places, before, step in ((ends, 1, -1), (starts, 0, 1)):
        left = np.arange(len(starts))
        for _ in range(_FEW_BLANKS):
            left = left[ends[left] > starts[left]]
            left = left[_IS_WHITE_SPACE[data[places[left] - before]]]
            places[left] += step
        for i in left:
            line = data[starts[i] : ends[i]].tobytes()
            stripped = line.rstrip(_WHITE_SPACE) if places is ends else line.lstrip(_WHITE_SPACE)
            places[i] += step * (len(line) - len(stripped))
    return starts, ends


def _fields(tree: dict[str, Any]) -> list[pa.Field]:
    return [
        pa.field(name, pa.struct(_fields(branch)) if isinstance(branch, dict) else branch)
        for name, branch in tree.items()
    ]


def _column(table: pa.Table, path: FieldPath) -> pa.Array[Any]:
    """The column of a path; null where an object that holds it is null or not there."""
    column = table.column(path[0])
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    for part in path[1:]:
        array = pa.compute.struct_field(array, [array.type.get_field_index(part)])
    return array


class _RejectedError(Exception):
    def __init__(self, reason: str, message: str):
        super().__init__(message)
        self.reason = reason
        self.message = message


class _OnlyPythonError(_RejectedError):
    """Python refuses a line that Arrow may read."""


class _Integer(str):
    """A whole number as it stands in the text, however long."""

    __slots__ = ()


def _parse(line: bytes) -> dict[str, Any]:
    text = line.decode("utf-8", "surrogateescape")
    try:
        record = json.loads(text, parse_int=_Integer)
    except json.JSONDecodeError as error:
        place = len(text[: error.pos].encode("utf-8", "surrogateescape"))
        stopped_by = text[error.pos : error.pos + 4]
        raise (_OnlyPythonError if stopped_by.startswith(_NUMBERS_OF_ARROW) else _RejectedError)(
            MALFORMED_JSON, f"no JSON: {error.msg} at byte {place} of the line"
        ) from None
    except RecursionError:
        raise _OnlyPythonError(MALFORMED_JSON, "objects or arrays are nested too deeply") from None
    if not isinstance(record, dict):
        raise _RejectedError(MALFORMED_JSON, f"expected an object, found {_kind(record)}")
    return record


def _value(record: dict[str, Any], path: FieldPath) -> Any:
    value: Any = record
    for length, part in enumerate(path):
        if not isinstance(value, dict):
            raise _wrong_type(path[:length], "an object", value)
        if part not in value:
            raise _RejectedError(
                MISSING_FIELD, f"the field {show_path(path[: length + 1])} is missing"
            )
        value = value[part]
        if value is None:
            raise _RejectedError(NULL_FIELD, f"the field {show_path(path[: length + 1])} is null")
    return value


def _wrong_type(path: FieldPath, expected: str, value: object) -> _RejectedError:
    message = f"the field {show_path(path)}: expected {expected}, found {_kind(value)}"
    return _RejectedError(WRONG_FIELD_TYPE, message)


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, _Integer):
        return "a number"
    return _KINDS.get(type(value), "text")


def _encode(value: str, line: bytes) -> bytes:
    r"""The bytes of a value: those of the line where they are not UTF-8.

    A lone surrogate (`\ud800`) becomes the three bytes that it would have in UTF-8, which are not
    valid: the rules on invalid UTF-8 then hold for it too.
    """
    try:
        return value.encode()
    except UnicodeEncodeError:
        pass
    try:
        line.decode()
    except UnicodeDecodeError:
        return b"".join(
            character.encode("utf-8", "surrogateescape")
            if "\udc80" <= character <= "\udcff"
            else character.encode("utf-8", "surrogatepass")
            for character in value
        )
    return value.encode("utf-8", "surrogatepass")
