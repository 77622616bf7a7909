"""Check that untrusted bytes are a row of a schema before Beam decodes them.

Beam's native decoder trusts the lengths that it reads: truncated or forged bytes make it read
memory out of bounds, or end the process. So bytes from a network are parsed here first, by the
rules of `RowCoder`: https://beam.apache.org/documentation/programming-guide/#schemas
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

from apache_beam.portability.api import schema_pb2

_SIZES: Final = {
    schema_pb2.BYTE: 1,
    schema_pb2.BOOLEAN: 1,
    schema_pb2.INT16: 2,
    schema_pb2.FLOAT: 4,
    schema_pb2.DOUBLE: 8,
}


def check_row(schema: Any, data: bytes) -> None:
    """Check that the bytes contain a complete row of the schema, which has no logical types.

    Raises:
        ValueError: They do not, or contain an unknown type or an impossible number.

    Example:
        >>> text = schema_pb2.FieldType(atomic_type=schema_pb2.STRING)
        >>> schema = schema_pb2.Schema(fields=[schema_pb2.Field(name="text", type=text)])
        >>> check_row(schema, bytes([1, 0, 3]) + b"one")
        >>> check_row(schema, bytes([1, 0, 9]) + b"one")
        Traceback (most recent call last):
        ValueError: 9 bytes where there are 3
    """
    _skip_row(schema, _Bytes(data))


class _Bytes:
    """Reader of bytes, from the beginning to the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def read(self, size: int) -> bytes:
        left = len(self._data) - self._at
        if not 0 <= size <= left:
            raise ValueError(f"{size:,} bytes where there are {left:,}")
        self._at += size
        return self._data[self._at - size : self._at]

    def varint(self) -> int:
        value = 0
        for shift in range(0, 64, 7):
            byte = self.read(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> 64:
                    break
                return value - (value >> 63 << 64)
        raise ValueError("a number of more than 64 bits")

    def int32(self) -> int:
        return int.from_bytes(self.read(4), signed=True)


def _skip_row(schema: Any, data: _Bytes) -> None:
    number, nulls = data.varint(), data.read(data.varint())
    fields = list(enumerate(schema.fields))
    if schema.encoding_positions_set:
        fields.sort(key=lambda field: field[1].encoding_position)
    for i, field in islice(fields, max(number, 0)):
        is_null = i // 8 < len(nulls) and nulls[i // 8] >> i % 8 & 1
        if not is_null:
            _skip(field.type, data)


def _skip(kind: Any, data: _Bytes) -> None:
    """Skip a value that is not null. Every value has at least one byte."""
    name = kind.WhichOneof("type_info")
    if name == "atomic_type":
        _skip_atom(kind.atomic_type, data)
    elif name in ("array_type", "iterable_type"):
        element = getattr(kind, name).element_type
        count = data.int32()
        # The length is unknown: parts follow, each with its own length, up to an empty one.
        in_parts = count < 0
        if in_parts:
            count = data.varint()
        while count > 0:
            for _ in range(count):
                _skip_element(element, data)
            count = data.varint() if in_parts else 0
    elif name == "map_type":
        for _ in range(data.int32()):
            _skip_element(kind.map_type.key_type, data)
            _skip_element(kind.map_type.value_type, data)
    elif name == "row_type":
        _skip_row(kind.row_type.schema, data)
    else:
        raise ValueError(f"a field of the type {name}")


def _skip_atom(kind: int, data: _Bytes) -> None:
    if kind in (schema_pb2.STRING, schema_pb2.BYTES):
        data.read(data.varint())
    elif kind in (schema_pb2.INT32, schema_pb2.INT64):
        data.varint()
    elif kind in _SIZES:
        data.read(_SIZES[kind])
    else:
        raise ValueError(f"a field of the atomic type {kind}")


def _skip_element(kind: Any, data: _Bytes) -> None:
    if not kind.nullable or data.read(1) != b"\0":
        _skip(kind, data)
