r"""Reader for JSON lines: one record per line, with the text in a field.

Native code finds the fields in all lines of a window at once and creates no objects: texts stay in
the bytes of the file, and escapes are replaced in place, so nothing is copied. It accepts a line
only if it is certainly JSON and contains the requested fields. Python's `json` reads every other
line and decides its meaning, so the native code need not know all of JSON; a line that it refuses
too, or that has no text, is rejected. The result for a line depends on that line only. (`Inf`,
`-NaN` and deep nesting, which Python refuses, are accepted if the native code finds the fields.)

This takes a quarter to three fifths of the time of Arrow's JSON reader
(docs/speed-and-memory.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bpe_core._native import JsonFields, copy_pieces, unescape_json
from pipelines.batches import DocumentBatch, Reject
from pipelines.errors import InputError
from pipelines.readers.documents import IntArray, Texts, replace_texts
from pipelines.readers.fields import convert_ids, format_path, no_such_field
from pipelines.readers.kept_columns import collect_columns
from pipelines.readers.options import FieldPath, ReadOptions
from pipelines.readers.separators import SeparatedReader, Split
from pipelines.readers.streams import ByteArray, StreamPair
from pipelines.rejects.reasons import MALFORMED_JSON, MISSING_FIELD, NULL_FIELD, WRONG_FIELD_TYPE
from pipelines.tasks.listing import InputFile
from pipelines.tasks.plan import Range

_WHITE_SPACE: Final = b" \t\r"  # JSON's, without the line break
# Kinds of values that native code reports (`JsonKind`).
_ABSENT: Final = 0
_TEXT: Final = 1
_ESCAPED: Final = 2
_OTHER: Final = 4
_BLANK: Final = 5
# Records of a file of which at least one must have the fields (`ReadOptions.expect_fields`).
_FIRST_RECORDS: Final = 1000
_RECORDS_SHOWN: Final = 10
_KINDS: Final = {dict: "an object", list: "an array", bool: "a truth value", float: "a number"}


@dataclass(frozen=True, slots=True)
class _Lines:
    """Lines in `data`, with the bounds and the kind of each field in each line."""

    data: ByteArray
    begins: IntArray
    line_ends: IntArray
    starts: IntArray
    ends: IntArray
    kinds: NDArray[np.uint8]

    def select(self, kept: NDArray[np.bool_]) -> _Lines:
        return _Lines(
            self.data,
            self.begins[kept],
            self.line_ends[kept],
            self.starts[:, kept],
            self.ends[:, kept],
            self.kinds[:, kept],
        )

    def unescape(self, which: NDArray[np.bool_]) -> None:
        """Replace escapes in the texts of some lines in place; the lines become unreadable."""
        escaped = (self.kinds == _ESCAPED) & which
        if escaped.any():
            self.ends[escaped] = unescape_json(self.data, self.starts[escaped], self.ends[escaped])

    def line(self, i: int) -> bytes:
        """Return a line without surrounding white space."""
        return self.data[self.begins[i] : self.line_ends[i]].tobytes().strip(_WHITE_SPACE)


class JsonLinesReader(SeparatedReader):
    """Reader for the documents in a range of a JSON lines file."""

    def __init__(
        self, file: InputFile, byte_range: Range, options: ReadOptions, streams: StreamPair
    ):
        super().__init__(
            file,
            byte_range,
            options,
            streams,
            separators=(b"\n",),
            strip_bom=True,  # JSON never starts with one
            longest=options.max_document_bytes,
        )
        ids = [] if options.id_field is None else [options.id_field]
        paths = list(dict.fromkeys([*options.text_fields, *ids, *options.keep]))
        self._fields = JsonFields([[part.encode() for part in path] for path in paths])
        self._text_rows = [paths.index(path) for path in options.text_fields]
        self._id_row = None if options.id_field is None else paths.index(options.id_field)
        self._kept_rows = [paths.index(path) for path in options.keep]
        self._input = file
        # Records so far if none of them has the fields; None once that is decided.
        self._lacking = 0 if options.expect_fields and byte_range.start == 0 else None

    def _convert(self, split: Split, consumed: int) -> Iterator[DocumentBatch]:
        lines = self._find_lines(split)
        odd = self._find_odd(lines.kinds)
        unclear = (lines.kinds[self._kept_rows] == _OTHER).any(axis=0)
        read_kept = self._read_kept(lines, unclear)  # before escapes are replaced
        lines.unescape(~odd)
        rejects: list[Reject] = []
        which = np.flatnonzero(odd)
        read = [self._read_line(lines, i, rejects) for i in which.tolist()]
        if self._lacking is not None:
            self._check_first_records(lines, rejects)
        data, starts, ends = self._gather_texts(lines)
        kept = ~odd
        if any(text is not None for text, _ in read):
            texts = [text or b"" for text, _ in read]
            data, starts, ends = replace_texts(data, starts, ends, which, texts)
            kept[which] = [text is not None for text, _ in read]
        found = Texts(
            data=data,
            starts=starts,
            ends=ends,
            offsets=lines.begins + self._window.offset,
            ids=self._gather_ids(lines, odd, [record_id for _, record_id in read]),
            kept=self._gather_kept(lines, unclear, read_kept),
        )
        if rejects:
            found = found.select(kept)
        yield from self._maker.make_batches(found, consumed=consumed, rejects=rejects)

    def _handle_long(self, start: int) -> Iterator[DocumentBatch]:
        # Its text is unknown, so it is rejected without asking the selection.
        yield from self._skip_too_long(start, "a line")

    def _check_first_records(self, lines: _Lines, rejects: list[Reject]) -> None:
        """Check that not all of the first records lack a field.

        Raises:
            InputError: They do, so the name of the field is wrong.
        """
        number = len(lines.begins)
        missing = sum(reject.reason == MISSING_FIELD for reject in rejects)
        if self._lacking is None or missing < number:
            self._lacking = None
        elif (lacking := self._lacking + number) < _FIRST_RECORDS:
            self._lacking = lacking
        else:
            records = [_parse(lines.line(i)) for i in range(min(number, _RECORDS_SHOWN))]
            raise no_field_of_text(
                records, self._options.text_fields, of=self._input.label, where=self._input.url
            )

    # --- many lines

    def _find_lines(self, split: Split) -> _Lines:
        """Return the lines that are not blank, with the fields found in them."""
        data = self._window.data
        starts, ends, kinds = self._fields.find(data, split.starts, split.ends)
        lines = _Lines(data, split.starts, split.ends, starts, ends, kinds)
        is_blank = kinds[0] == _BLANK
        return lines.select(~is_blank) if is_blank.any() else lines

    def _find_odd(self, kinds: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Return a mask of the lines that Python has to read: a field is missing or unclear."""
        texts = kinds[self._text_rows]
        odd: NDArray[np.bool_] = ((texts != _TEXT) & (texts != _ESCAPED)).any(axis=0)
        return odd if self._id_row is None else odd | (kinds[self._id_row] == _OTHER)

    def _gather_texts(self, lines: _Lines) -> tuple[ByteArray, IntArray, IntArray]:
        """Return data, starts and ends of the texts; undefined for odd lines."""
        if len(self._text_rows) == 1:
            row = self._text_rows[0]
            return lines.data, lines.starts[row], lines.ends[row]
        lengths = (lines.ends - lines.starts)[self._text_rows]
        join = np.frombuffer(self._options.join, np.uint8)
        ends = np.cumsum(lengths.sum(axis=0) + len(join) * (len(lengths) - 1))
        joined = np.empty(ends[-1] if len(ends) else 0, np.uint8)
        positions = starts = np.append(0, ends[:-1])[: len(ends)]
        for i, row in enumerate(self._text_rows):
            if i > 0:
                zeros = np.zeros_like(positions)
                copy_pieces(join, zeros, zeros + len(join), joined, positions)
                positions = positions + len(join)
            copy_pieces(lines.data, lines.starts[row], lengths[i], joined, positions)
            positions = positions + lengths[i]
        return joined, starts, ends

    def _gather_ids(
        self, lines: _Lines, odd: NDArray[np.bool_], of_odd: list[str | None]
    ) -> pa.StringArray | None:
        """Return the ids of the lines; `of_odd` has those of the odd lines."""
        return None if self._id_row is None else self._gather(lines, self._id_row, odd, of_odd)

    def _gather_kept(
        self, lines: _Lines, unclear: NDArray[np.bool_], read: list[list[str | None]]
    ) -> pa.RecordBatch | None:
        """Return the columns to keep; `read` has their values in unclear lines."""
        if not self._kept_rows:
            return None
        columns = {
            ".".join(path): self._gather(lines, row, unclear, [values[i] for values in read])
            for i, (path, row) in enumerate(zip(self._options.keep, self._kept_rows, strict=True))
        }
        where = self._maker.where(self._window.offset)
        return collect_columns(self._options, columns, len(lines.begins), where)

    def _gather(
        self, lines: _Lines, row: int, odd: NDArray[np.bool_], of_odd: list[str | None]
    ) -> pa.StringArray:
        """Return the values of a field in the lines; `of_odd` has those of the odd lines."""
        there = (lines.kinds[row] != _ABSENT) & ~odd
        starts = lines.starts[row]
        lengths = np.where(there, lines.ends[row] - starts, 0)
        offsets = np.append(0, np.cumsum(lengths))
        values = np.empty(offsets[-1], np.uint8)
        copy_pieces(lines.data, starts, lengths, values, offsets[:-1])
        buffers = [None, pa.py_buffer(offsets.data), pa.py_buffer(values.data)]
        ids = convert_ids(
            pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(lengths), buffers)
        )
        if not there.all():
            ids = pc.if_else(pa.array(there), ids, pa.scalar(None, pa.string()))
        if of_odd:
            ids = pc.replace_with_mask(ids, pa.array(odd), pa.array(of_odd, pa.string()))
        return ids

    # --- line by line

    def _read_line(
        self, lines: _Lines, i: int, rejects: list[Reject]
    ) -> tuple[bytes | None, str | None]:
        """Return text and id of a line, read by Python; without a text, None, and add a reject."""
        line = lines.line(i)
        record_id: str | None = None
        try:
            record = _parse(line)
            record_id = self._get_id(record, line)
            values = [self._get_text(record, path, line) for path in self._options.text_fields]
            return self._options.join.join(values), record_id
        except _RejectedError as rejected:
            reason, message = rejected.reason, rejected.message
            offset = int(lines.begins[i]) + self._window.offset
            rejects.append(self._maker.reject(offset, len(line), reason, message, line, record_id))
            return None, record_id

    def _read_kept(self, lines: _Lines, unclear: NDArray[np.bool_]) -> list[list[str | None]]:
        """Return the values to keep of the unclear lines, read by Python; null if unreadable."""
        read: list[list[str | None]] = []
        for i in np.flatnonzero(unclear).tolist() if self._kept_rows else ():
            line = lines.line(i)
            try:
                record = _parse(line)
                read.append([_get_kept(record, path, line) for path in self._options.keep])
            except (_RejectedError, RecursionError):
                read.append([None] * len(self._kept_rows))
        return read

    def _get_id(self, record: dict[str, Any], line: bytes) -> str | None:
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
            raise _wrong_type_error(path, "text or an integer", value)
        return _encode(value, line).decode("utf-8", "replace")

    def _get_text(self, record: dict[str, Any], path: FieldPath, line: bytes) -> bytes:
        value = _value(record, path)
        if type(value) is not str:
            raise _wrong_type_error(path, "text", value)
        return _encode(value, line)


def parse_records(text: bytes) -> Iterator[dict[str, Any]]:
    """Yield the records in the first lines of a file, without those that are not valid."""
    for line in text.split(b"\n"):
        with suppress(_RejectedError):
            yield _parse(line.strip(_WHITE_SPACE))


def no_field_of_text(
    records: Sequence[dict[str, Any]],
    paths: Sequence[FieldPath],
    *,
    of: str,
    where: str,
    key: str = "input.text_field",
) -> InputError:
    """Return the error for records that all lack one of the fields of the text."""

    def has(record: dict[str, Any], path: FieldPath) -> bool:
        try:
            _value(record, path)
        except _RejectedError as rejected:
            return rejected.reason != MISSING_FIELD
        return True

    lacking = (path for path in paths if not any(has(record, path) for record in records))
    return no_such_field(next(lacking, paths[0]), records, of=of, key=key, where=where)


class _RejectedError(Exception):
    def __init__(self, reason: str, message: str):
        super().__init__(message)
        self.reason = reason
        self.message = message


class _Integer(str):
    """Integer of any length, as written in the line."""

    __slots__ = ()


class _Written(str):
    """Other number, as written in the line."""

    __slots__ = ()


def _get_kept(record: dict[str, Any], path: FieldPath, line: bytes) -> str | None:
    """Return the value of a field as text: a text itself, anything else as JSON; None for null."""
    try:
        value = _value(record, path)
    except _RejectedError:
        return None
    if type(value) is str:
        return _encode(value, line).decode("utf-8", "replace")
    if type(value) is _Integer and value == "-0":
        return "0"
    return _encode(_write_json(value), line).decode("utf-8", "replace")


def _write_json(value: Any) -> str:
    if isinstance(value, _Integer | _Written):
        return str(value)
    if isinstance(value, dict):
        items = [f"{json.dumps(k, ensure_ascii=False)}:{_write_json(v)}" for k, v in value.items()]
        return f"{{{','.join(items)}}}"
    if isinstance(value, list):
        return f"[{','.join([_write_json(item) for item in value])}]"
    return json.dumps(value, ensure_ascii=False)


def _parse(line: bytes) -> dict[str, Any]:
    text = line.decode("utf-8", "surrogateescape")
    try:
        record = json.loads(text, parse_int=_Integer, parse_float=_Written)
    except json.JSONDecodeError as error:
        position = len(text[: error.pos].encode("utf-8", "surrogateescape"))
        # Some messages of Python's end in "starting at".
        problem = error.msg.removesuffix(" at")
        message = f"not JSON: {problem} at byte {position} of the line"
        raise _RejectedError(MALFORMED_JSON, message) from None
    except RecursionError:
        raise _RejectedError(MALFORMED_JSON, "objects or arrays are nested too deeply") from None
    if not isinstance(record, dict):
        raise _RejectedError(MALFORMED_JSON, f"expected an object, found {_name_kind(record)}")
    return record


def _value(record: dict[str, Any], path: FieldPath) -> Any:
    value: Any = record
    for length, part in enumerate(path):
        if not isinstance(value, dict):
            raise _wrong_type_error(path[:length], "an object", value)
        if part not in value:
            raise _RejectedError(
                MISSING_FIELD, f"the field {format_path(path[: length + 1])} is missing"
            )
        value = value[part]
        if value is None:
            raise _RejectedError(NULL_FIELD, f"the field {format_path(path[: length + 1])} is null")
    return value


def _wrong_type_error(path: FieldPath, expected: str, value: object) -> _RejectedError:
    message = f"the field {format_path(path)}: expected {expected}, found {_name_kind(value)}"
    return _RejectedError(WRONG_FIELD_TYPE, message)


def _name_kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, _Integer | _Written):
        return "a number"
    return _KINDS.get(type(value), "text")


def _encode(value: str, line: bytes) -> bytes:
    r"""Encode a value; invalid UTF-8 becomes the original bytes of the line again.

    A lone surrogate (`\ud800`) becomes the three bytes that it would have in UTF-8. They are
    invalid, so that the policy for invalid UTF-8 applies to it too.
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
