"""Text as bytes, and many byte strings as one buffer with offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["concatenate", "flatten", "from_arrow", "lengths_of", "to_arrow", "to_binary", "to_utf8"]


def concatenate(parts: Sequence[bytes]) -> tuple[bytes, NDArray[np.int64]]:
    """Return (buffer, offsets int64[n + 1]): part i is buffer[offsets[i]:offsets[i + 1]].

    Example:
        >>> buffer, offsets = concatenate([b"ab", b"", b"c"])
        >>> buffer, offsets.tolist()
        (b'abc', [0, 2, 2, 3])
    """
    offsets = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    return b"".join(parts), offsets


def flatten(values: pa.BinaryArray) -> tuple[memoryview, NDArray[np.int64]]:
    """Return what `concatenate` does for the values of an array, without copying them.

    Example:
        >>> buffer, offsets = flatten(pa.array([b"ab", b"", b"c"], pa.binary())[1:])
        >>> bytes(buffer), offsets.tolist()
        (b'c', [0, 0, 1])
    """
    _, offsets, data = values.buffers()
    if offsets is None or data is None or not len(values):
        return memoryview(b""), np.zeros(len(values) + 1, np.int64)
    bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    return memoryview(data)[bounds[0] : bounds[-1]], bounds.astype(np.int64) - int(bounds[0])


def lengths_of(values: pa.BinaryArray) -> NDArray[np.int64]:
    """Return int64[n], the number of bytes of each value.

    Example:
        >>> lengths_of(pa.array([b"ab", b"", b"c"], pa.binary())).tolist()
        [2, 0, 1]
    """
    return np.diff(flatten(values)[1])


def from_arrow(values: pa.Array[Any]) -> NDArray[np.integer]:
    """Return an Arrow array of integers without nulls, which `to_numpy` needs pandas for.

    Example:
        >>> from_arrow(pa.array([1, 2, 3])[1:]).tolist()
        [2, 3]
    """
    data = values.buffers()[1]
    dtype = np.dtype(str(values.type))
    return np.frombuffer(data or b"", dtype)[values.offset : values.offset + len(values)]


def to_arrow(values: NDArray[np.integer] | NDArray[np.bool_]) -> pa.Array[Any]:
    """Return the values as an Arrow array. `pa.array` imports pandas first, which takes a second.

    Example:
        >>> to_arrow(np.array([True, False, True])).to_pylist(), to_arrow(np.arange(2)).to_pylist()
        ([True, False, True], [0, 1])
    """
    if values.dtype == np.bool_:
        buffer, type_ = np.packbits(values, bitorder="little"), pa.bool_()
    else:
        buffer, type_ = np.ascontiguousarray(values), pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(buffer)])


def to_binary(parts: Sequence[bytes]) -> pa.BinaryArray:
    """Return the parts as an Arrow array, without `pa.array` (see `to_arrow`).

    Example:
        >>> to_binary([b"ab", b""]).to_pylist()
        [b'ab', b'']
    """
    data, offsets = concatenate(parts)
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(parts), buffers)


def to_utf8(text: str | bytes | bytearray | memoryview) -> bytes:
    """Return the text in UTF-8; lone surrogates become U+FFFD, surrogate pairs their character.

    Raises:
        TypeError: the text is neither str nor bytes.

    Example:
        >>> to_utf8("a\\ud800").decode()
        'a\ufffd'
    """
    if isinstance(text, bytes):
        return text
    if isinstance(text, (bytearray, memoryview)):
        return bytes(text)
    if not isinstance(text, str):
        raise TypeError(f"expected a text as str or bytes, found {type(text).__name__}")
    try:
        return text.encode()
    except UnicodeEncodeError:  # UTF-16 joins pairs of surrogates
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
