"""Wire format of Protocol Buffers: reading and writing the fields of a message.

Only the parts that SentencePiece's `.model` needs: numbers, 32-bit and 64-bit values, and byte
strings, which may be messages. Groups, which are obsolete, are refused.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import TypeAlias

__all__ = ["Field", "WireError", "fields_of", "message"]

Value: TypeAlias = "int | float | bytes"
Field: TypeAlias = "tuple[int, Value]"

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MOST_VARINT_BYTES = 10


class WireError(ValueError):
    """Bytes that are not a message; the error contains the position and the reason."""


def fields_of(data: bytes) -> Iterator[Field]:
    """Yield the (number, value) of each field of a message.

    The value is an int for a number, a float for a value of 32 bits, bytes for the rest.

    Raises:
        WireError: the bytes are not a message.

    Example:
        >>> list(fields_of(b"\\x08\\x96\\x01\\x12\\x02hi"))
        [(1, 150), (2, b'hi')]
    """
    at = 0
    size = len(data)
    while at < size:
        key, after = _varint_at(data, at)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise WireError(f"byte {at}: expected a field, found the number 0")
        value: Value
        if kind == _VARINT:
            value, end = _varint_at(data, after)
        elif kind == _BYTES:
            length, begin = _varint_at(data, after)
            end = begin + length
            value = data[begin:end]
        elif kind in (_FIXED32, _FIXED64):
            end = after + (4 if kind == _FIXED32 else 8)
            value = data[after:end]
        else:
            raise WireError(f"byte {at}: expected a field, found one of the wire type {kind}")
        if end > size:
            raise WireError(
                f"byte {at}: expected a field that ends with the data, found a longer one"
            )
        if kind == _FIXED32:
            (value,) = struct.unpack_from("<f", data, after)
        yield number, value
        at = end


def message(fields: Iterable[Field]) -> bytes:
    """Return a message of these fields: numbers of 0 or more, floats of 32 bits, bytes.

    Example:
        >>> message([(1, 150), (2, b"hi")])
        b'\\x08\\x96\\x01\\x12\\x02hi'
    """
    parts: list[bytes] = []
    for number, value in fields:
        if isinstance(value, float):
            parts += [_varint(number << 3 | _FIXED32), struct.pack("<f", value)]
        elif isinstance(value, int):
            parts += [_varint(number << 3 | _VARINT), _varint(value)]
        else:
            parts += [_varint(number << 3 | _BYTES), _varint(len(value)), value]
    return b"".join(parts)


def _varint_at(data: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins at an offset, and the offset after it."""
    value = 0
    for i, byte in enumerate(data[at : at + _MOST_VARINT_BYTES]):
        value |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            return value, at + i + 1
    raise WireError(f"byte {at}: expected a number of up to {_MOST_VARINT_BYTES} bytes, found none")


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
