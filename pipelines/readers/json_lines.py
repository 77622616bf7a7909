r"""JSON lines: a record a line, its text in a field.

Fields are found in all lines of a window at once, by native code that makes nothing of a value:
texts are taken where they stand, and escapes replaced there. That reads a line only if it is JSON
beyond doubt and holds what is asked for; every other line Python's `json` reads by itself, and what
it does not read either, or what holds no text, is rejected. What a line means depends on that line
alone. (Python alone would refuse `Inf`, `-NaN` and deep nesting, which are taken.)
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bpe_core._native import JsonFields, copy_pieces, unescape_json
from pipelines.batches import DocumentBatch, Reject
from pipelines.readers.documents import IntArray, Texts, with_texts
from pipelines.readers.fields import id_strings, show_path
from pipelines.readers.options import FieldPath, ReadOptions
from pipelines.readers.separators import SeparatedReader, Split
from pipelines.readers.streams import ByteArray, StreamPair
from pipelines.rejects.reasons import MALFORMED_JSON, MISSING_FIELD, NULL_FIELD, WRONG_FIELD_TYPE
from pipelines.tasks.listing import InputFile
from pipelines.tasks.plan import Range

_WHITE_SPACE: Final = b" \t\r"  # JSON's, without the line break
# What native code finds in a field (`JsonKind`).
_ABSENT: Final = 0
_TEXT: Final = 1
_ESCAPED: Final = 2
_OTHER: Final = 4
_BLANK: Final = 5
_KINDS: Final = {dict: "an object", list: "an array", bool: "a truth value", float: "a number"}


@dataclass(frozen=True, slots=True)
class _Lines:
    """Lines in `data`, and of each field where it is in each of them, and what it is."""

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
        """Replace the escapes in texts of some lines, of which nothing else is needed any more."""
        escaped = (self.kinds == _ESCAPED) & which
        if escaped.any():
            self.ends[escaped] = unescape_json(self.data, self.starts[escaped], self.ends[escaped])

    def line(self, i: int) -> bytes:
        """A line without white space around."""
        return self.data[self.begins[i] : self.line_ends[i]].tobytes().strip(_WHITE_SPACE)


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
        asked = [*options.text_fields, *([] if options.id_field is None else [options.id_field])]
        paths = list(dict.fromkeys(asked))
        self._fields = JsonFields([[part.encode() for part in path] for path in paths])
        self._text_rows = [paths.index(path) for path in options.text_fields]
        self._id_row = None if options.id_field is None else paths.index(options.id_field)

    def _found(self, split: Split, consumed: int) -> Iterator[DocumentBatch]:
        lines = self._lines(split)
        odd = self._odd(lines.kinds)
        lines.unescape(~odd)
        rejects: list[Reject] = []
        which = np.flatnonzero(odd)
        read = [self._one_line(lines, i, rejects) for i in which.tolist()]
        data, starts, ends = self._texts(lines)
        kept = ~odd
        if any(text is not None for text, _ in read):
            texts = [text or b"" for text, _ in read]
            data, starts, ends = with_texts(data, starts, ends, which, texts)
            kept[which] = [text is not None for text, _ in read]
        found = Texts(
            data=data,
            starts=starts,
            ends=ends,
            places=lines.begins + self._window.offset,
            ids=self._ids(lines, odd, [record_id for _, record_id in read]),
        )
        if rejects:
            found = found.select(kept)
        yield from self._maker.record_batches(found, consumed=consumed, rejects=rejects)

    def _long(self, start: int) -> Iterator[DocumentBatch]:
        yield from self._too_long(start, "a line")

    # --- many lines

    def _lines(self, split: Split) -> _Lines:
        """The lines that are not blank, with what was found in them."""
        data = self._window.data
        starts, ends, kinds = self._fields.find(data, split.starts, split.ends)
        lines = _Lines(data, split.starts, split.ends, starts, ends, kinds)
        is_blank = kinds[0] == _BLANK
        return lines.select(~is_blank) if is_blank.any() else lines

    def _odd(self, kinds: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Which lines hold something else than what is asked for, as far as is known."""
        texts = kinds[self._text_rows]
        odd: NDArray[np.bool_] = ((texts != _TEXT) & (texts != _ESCAPED)).any(axis=0)
        return odd if self._id_row is None else odd | (kinds[self._id_row] == _OTHER)

    def _texts(self, lines: _Lines) -> tuple[ByteArray, IntArray, IntArray]:
        """Bytes, starts and ends of the lines' texts; of odd ones anything."""
        if len(self._text_rows) == 1:
            row = self._text_rows[0]
            return lines.data, lines.starts[row], lines.ends[row]
        lengths = (lines.ends - lines.starts)[self._text_rows]
        join = np.frombuffer(self._options.join, np.uint8)
        ends = np.cumsum(lengths.sum(axis=0) + len(join) * (len(lengths) - 1))
        joined = np.empty(ends[-1] if len(ends) else 0, np.uint8)
        places = starts = np.append(0, ends[:-1])[: len(ends)]
        for i, row in enumerate(self._text_rows):
            if i > 0:
                nought = np.zeros_like(places)
                copy_pieces(join, nought, nought + len(join), joined, places)
                places = places + len(join)
            copy_pieces(lines.data, lines.starts[row], lengths[i], joined, places)
            places = places + lengths[i]
        return joined, starts, ends

    def _ids(
        self, lines: _Lines, odd: NDArray[np.bool_], of_odd: list[str | None]
    ) -> pa.StringArray | None:
        """The ids of the lines; those of odd ones are given."""
        if self._id_row is None:
            return None
        there = (lines.kinds[self._id_row] != _ABSENT) & ~odd
        starts = lines.starts[self._id_row]
        lengths = np.where(there, lines.ends[self._id_row] - starts, 0)
        offsets = np.append(0, np.cumsum(lengths))
        values = np.empty(offsets[-1], np.uint8)
        copy_pieces(lines.data, starts, lengths, values, offsets[:-1])
        buffers = [None, pa.py_buffer(offsets.data), pa.py_buffer(values.data)]
        ids = id_strings(pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(lengths), buffers))
        if not there.all():
            ids = pc.if_else(pa.array(there), ids, pa.scalar(None, pa.string()))
        if of_odd:
            ids = pc.replace_with_mask(ids, pa.array(odd), pa.array(of_odd, pa.string()))
        return ids

    # --- line by line

    def _one_line(
        self, lines: _Lines, i: int, rejects: list[Reject]
    ) -> tuple[bytes | None, str | None]:
        """Text and id of a line, as Python reads it; without a text None and a reject."""
        line = lines.line(i)
        record_id: str | None = None
        try:
            record = _parse(line)
            record_id = self._id_of(record, line)
            values = [self._text_of(record, path, line) for path in self._options.text_fields]
            return self._options.join.join(values), record_id
        except _RejectedError as rejected:
            reason, message = rejected.reason, rejected.message
            place = int(lines.begins[i]) + self._window.offset
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


class _RejectedError(Exception):
    def __init__(self, reason: str, message: str):
        super().__init__(message)
        self.reason = reason
        self.message = message


class _Integer(str):
    """A whole number as it stands in the text, however long."""

    __slots__ = ()


def _parse(line: bytes) -> dict[str, Any]:
    text = line.decode("utf-8", "surrogateescape")
    try:
        record = json.loads(text, parse_int=_Integer)
    except json.JSONDecodeError as error:
        place = len(text[: error.pos].encode("utf-8", "surrogateescape"))
        message = f"no JSON: {error.msg} at byte {place} of the line"
        raise _RejectedError(MALFORMED_JSON, message) from None
    except RecursionError:
        raise _RejectedError(MALFORMED_JSON, "objects or arrays are nested too deeply") from None
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
