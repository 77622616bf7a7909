"""Documents as one buffer with the offsets in it: what users may give, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from bpe_core.buffers import joined, to_utf8

__all__ = ["Documents", "buffer_of", "check_spans"]

Documents: TypeAlias = (
    "Sequence[str] | Sequence[bytes] | tuple[bytes | memoryview | NDArray[np.uint8], "
    "NDArray[np.int64] | Sequence[int]]"
)


def buffer_of(
    documents: Documents,
) -> tuple[bytes | memoryview | NDArray[np.uint8], NDArray[np.int64]]:
    """Return the documents as one buffer and the offsets in it.

    Raises:
        TypeError: documents of another type, or offsets that are not integers.
    """
    if isinstance(documents, (str, bytes, np.ndarray)):
        raise TypeError(f"documents: expected a list of them, found one {type(documents).__name__}")
    if isinstance(documents, tuple) and len(documents) == 2:
        buffer, second = documents
        is_buffer = isinstance(buffer, (bytes, bytearray, memoryview, np.ndarray))
        if is_buffer and not isinstance(second, (str, bytes, bytearray, memoryview)):
            return buffer, _checked_offsets(second)  # type: ignore[return-value]
    try:
        return joined([to_utf8(document) for document in documents])  # type: ignore[arg-type]
    except TypeError as error:
        raise TypeError(f"documents: {error}") from None


def check_spans(size: int, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
    """Raise ValueError if a document lies outside of a buffer of so many bytes."""
    outside = np.flatnonzero((starts < 0) | (starts > ends) | (ends > size))
    if len(outside):
        i = outside[0]
        raise ValueError(
            f"document {i} lies outside of the data: [{starts[i]}, {ends[i]}) of {size} bytes"
        )


def _checked_offsets(offsets: object) -> NDArray[np.int64]:
    array = np.asarray(offsets)
    if array.ndim != 1 or not len(array) or array.dtype.kind not in "iu":
        raise TypeError(
            "offsets: expected the integers at which documents begin and end, int64[n + 1], found "
            f"{array.dtype}{list(array.shape)}"
        )
    return np.ascontiguousarray(array, np.int64)
