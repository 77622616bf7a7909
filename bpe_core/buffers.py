"""Text as bytes, and many byte strings as one buffer with offsets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["concatenate", "to_utf8"]


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
