"""Many byte strings as one buffer and the offsets in it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["joined"]


def joined(parts: Sequence[bytes]) -> tuple[bytes, NDArray[np.int64]]:
    """(buffer, offsets int64[n + 1]): part i is buffer[offsets[i]:offsets[i + 1]].

    Example:
        >>> buffer, offsets = joined([b"ab", b"", b"c"])
        >>> buffer, offsets.tolist()
        (b'abc', [0, 2, 2, 3])
    """
    offsets = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    return b"".join(parts), offsets
