"""Conversion of token batches and rejects to rows with a schema, and of rows to token batches."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, Optional

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.typehints.row_type import RowTypeConstraint

from pipelines.batches import Reject
from pipelines.beam.elements import check_hint
from pipelines.errors import InputError
from pipelines.sorting.arrow_lists import to_offsets
from pipelines.writing.rows import TokenRows
from pipelines.writing.token_order import hash_ids
from pipelines.writing.token_shards import RowTotals

# In Beam's schemas, str is STRING, int is INT64, and a sequence is an array.
TOKEN_ROW: Final = RowTypeConstraint.from_fields(
    [
        ("input_ids", Sequence[int]),
        ("num_tokens", int),
        ("num_bytes", int),
        ("source", str),
        ("offset", int),
        ("part", int),
        ("id", Optional[str]),  # noqa: UP045  Beam does not know the other form
        ("hash", bytes),
    ]
)
REJECT_ROW: Final = RowTypeConstraint.from_fields(
    [
        ("source", str),
        ("offset", int),
        ("length", int),
        ("reason", str),
        ("message", str),
        ("first_bytes", bytes),
        ("id", Optional[str]),  # noqa: UP045
    ]
)
COUNT_ROW: Final = RowTypeConstraint.from_fields(
    [("name", str), ("rows", int), ("pretokens", int), ("bytes", int), ("xxh3_128", str)]
)
SHARD_ROW: Final = RowTypeConstraint.from_fields(
    [
        ("name", str),
        ("rows", int),
        ("documents", int),
        ("tokens", int),
        ("text_bytes", int),
        ("bytes", int),
        ("xxh3_128", str),
    ]
)
_EXPECTED: Final = (
    "TokenRows, or rows with input_ids (whole numbers from 0) and num_bytes, and source, offset, "
    "part, id and hash like those of EncodeDocuments"
)
_HASH_BYTES: Final = 16
_BATCH_IDS: Final = 1 << 20
_BATCH_ROWS: Final = 1 << 14


def token_rows(rows: TokenRows) -> Iterator[beam.Row]:
    """Yield a row for each document, or chunk of a long one, with the columns of token files.

    The additional column `hash` is the xxh3-128 of the document's source text, 16 bytes.
    """
    ids = rows.record_ids.to_pylist() if rows.record_ids is not None else [None] * len(rows)
    hashes = rows.hashes.astype(">u8").tobytes()
    bounds = rows.offsets.tolist()
    values = rows.ids.tolist()
    sources, parts = rows.sources.to_pylist(), rows.parts.tolist()
    sizes, positions = rows.num_bytes.tolist(), rows.positions.tolist()
    for i in range(len(rows)):
        input_ids = values[bounds[i] : bounds[i + 1]]
        yield beam.Row(
            input_ids=input_ids,
            num_tokens=len(input_ids),
            num_bytes=sizes[i],
            source=sources[i],
            offset=positions[i],
            part=parts[i],
            id=ids[i],
            hash=hashes[_HASH_BYTES * i : _HASH_BYTES * (i + 1)],
        )


def reject_row(reject: Reject) -> beam.Row:
    """Return a reject as a row with the columns of files of rejects."""
    return beam.Row(
        source=reject.source,
        offset=reject.offset,
        length=reject.length,
        reason=reject.reason,
        message=reject.message,
        first_bytes=reject.first_bytes,
        id=reject.id,
    )


def check_rows(kind: Any) -> None:
    """Check, as far as the type hint shows, that elements of this type can be token rows.

    Raises:
        ConfigError: They cannot, or they are rows without the required fields.
    """
    check_hint(kind, (TokenRows,), ("input_ids", "num_bytes"), _EXPECTED)


class RowElements:
    """Collector of rows of tokens, which may be records of any type.

    `input_ids` and `num_bytes` are required. By default, `source` is "", `offset` and `part` are 0,
    and `id` and `hash` are None. Rows without `hash` are distinguished by their ids.

    Example:
        >>> elements = RowElements()
        >>> elements.add(beam.Row(input_ids=[5, 6], num_bytes=9))
        False
        >>> elements.add({"input_ids": [7], "num_bytes": 3, "source": "web"})
        False
        >>> elements.totals().tokens
        3
        >>> rows = elements.rows()
        >>> rows.ids.tolist(), rows.sources.to_pylist()
        ([5, 6, 7], ['', 'web'])
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Remove all rows."""
        self._ids: list[Any] = []
        self._num_bytes: list[int] = []
        self._sources: list[str] = []
        self._positions: list[int] = []
        self._parts: list[int] = []
        self._record_ids: list[str | None] = []
        self._hashes: list[bytes | None] = []
        self._tokens = 0

    def add(self, element: Any) -> bool:
        """Add a row. Return True if `rows` should be called now.

        Raises:
            InputError: It is not a record, lacks a field, or has a field of a wrong type.
        """
        row = element if isinstance(element, Mapping) else _values_of(element)
        try:
            ids, num_bytes = row["input_ids"], row["num_bytes"]
        except KeyError as error:
            raise _malformed_row(f"a row without {error}: {', '.join(row)}") from None
        _check_ids(ids)
        num_bytes = _whole_number("num_bytes", num_bytes)
        position = _whole_number("offset", row.get("offset", 0))
        part = _whole_number("part", row.get("part", 0), np.iinfo(np.int32).max)
        source, text_hash = row.get("source") or "", row.get("hash")
        if not isinstance(source, str):
            raise _malformed_row(f"source: {source!r}", "text, or None")
        if text_hash is None and part:
            raise _malformed_row(
                f"part {part} of a document, without hash", "its hash, or complete documents"
            )
        if text_hash is not None and not isinstance(text_hash, bytes):
            raise _malformed_row(f"hash: {text_hash!r}", f"{_HASH_BYTES} bytes, or None")
        if text_hash is not None and len(text_hash) != _HASH_BYTES:
            raise _malformed_row(f"{len(text_hash)} bytes", f"a hash of {_HASH_BYTES} bytes")
        record_id = row.get("id")
        if record_id is not None and not isinstance(record_id, str):
            raise _malformed_row(f"id: {record_id!r}", "text, or None")
        self._ids.append(ids)
        self._num_bytes.append(num_bytes)
        self._sources.append(source)
        self._positions.append(position)
        self._parts.append(part)
        self._record_ids.append(record_id)
        self._hashes.append(text_hash)
        self._tokens += len(ids)
        return self._tokens >= _BATCH_IDS or len(self._ids) >= _BATCH_ROWS

    def totals(self) -> RowTotals:
        """Return the totals of the rows."""
        return RowTotals(
            rows=len(self._ids),
            documents=self._parts.count(0),
            tokens=self._tokens,
            text_bytes=sum(self._num_bytes),
            itemsize=np.dtype(np.uint32 if self._ids else np.uint16).itemsize,
            record_ids=any(record_id is not None for record_id in self._record_ids),
        )

    def rows(self) -> TokenRows:
        """Return the rows, with ids as uint32, and remove them.

        Raises:
            InputError: An id is out of range, or a value has a wrong type.
        """
        offsets = to_offsets(np.fromiter(map(len, self._ids), np.int64, len(self._ids)))
        try:
            wide = np.fromiter(chain.from_iterable(self._ids), np.int64, int(offsets[-1]))
            if len(wide) and (wide.min() < 0 or wide.max() > np.iinfo(np.uint32).max):
                raise _malformed_row(f"the id {wide.min() if wide.min() < 0 else wide.max()}")
            ids = wide.astype(np.uint32)
            hashes = hash_ids(ids, offsets)
            for row, text_hash in enumerate(self._hashes):
                if text_hash is not None:
                    hashes[row] = np.frombuffer(text_hash, ">u8")
            rows = TokenRows(
                ids=ids,
                offsets=offsets,
                num_bytes=np.array(self._num_bytes, np.int64),
                positions=np.array(self._positions, np.int64),
                hashes=hashes,
                parts=np.array(self._parts, np.int32),
                sources=pa.array(self._sources, pa.string()).dictionary_encode(),
                record_ids=pa.array(self._record_ids, pa.string()),
            )
        except (TypeError, ValueError, OverflowError, pa.ArrowException) as error:
            raise _malformed_row(f"{type(error).__name__}: {error}") from None
        self.clear()
        return rows


def _check_ids(ids: Any) -> None:
    """Check that the values may be whole numbers. `RowElements.rows` checks that they are ids."""
    is_list = not isinstance(ids, str | bytes | bytearray | Mapping) and hasattr(ids, "__len__")
    if isinstance(ids, np.ndarray):
        wrong = ids.ndim != 1 or not (np.issubdtype(ids.dtype, np.integer) or not len(ids))
    else:
        # Checking the set of types is faster than checking each value.
        wrong = not is_list or not all(
            issubclass(kind, int | np.integer) and kind is not bool for kind in set(map(type, ids))
        )
    if wrong:
        raise _malformed_row(f"input_ids: {reprlib.repr(ids)}", "a list of whole numbers")


def _whole_number(name: str, value: Any, most: int = np.iinfo(np.int64).max) -> int:
    if isinstance(value, int | np.integer) and type(value) is not bool and 0 <= value <= most:
        return int(value)
    raise _malformed_row(f"{name}: {value!r}", "a whole number from 0")


def _values_of(element: Any) -> Mapping[str, Any]:
    if not isinstance(element, beam.Row) and not hasattr(element, "_fields"):
        raise _malformed_row(type(element).__name__)
    values: dict[str, Any] = element._asdict()
    return values


def _malformed_row(found: str, expected: str = _EXPECTED) -> InputError:
    return InputError(
        "An element is not a row of tokens.",
        expected=expected,
        found=found,
        where="the input of WriteTokenShards",
        hint="Write the tokens of EncodeDocuments.",
    )
