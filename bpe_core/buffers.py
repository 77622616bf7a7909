"""Text as bytes, and many byte strings as one buffer with offsets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["concatenate", "flatten", "to_utf8"]


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
