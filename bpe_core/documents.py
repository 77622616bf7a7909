"""Documents as one buffer with offsets, made from the forms that users may give."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from bpe_core._native import join_texts
from bpe_core.buffers import concatenate, to_utf8

__all__ = ["Documents", "check_spans", "to_buffer"]

Documents: TypeAlias = (
    "Sequence[str] | Sequence[bytes] | tuple[bytes | memoryview | NDArray[np.uint8], "
    "NDArray[np.int64] | Sequence[int]]"
)


def to_buffer(
    documents: Documents, method: str = "encode_batch", one: str = "encode"
) -> tuple[bytes | memoryview | NDArray[np.uint8], NDArray[np.int64]]:
    """Return the documents as one buffer and the offsets in it.

    Args:
        documents: texts, or a buffer with offsets.
        method: the method that was called, for the error.
        one: the method for one text.

    Raises:
        TypeError: documents have another type, or offsets are not integers.
    """
    if isinstance(documents, (str, bytes, np.ndarray)) or not isinstance(documents, Iterable):
        raise TypeError(
            f"{method} takes a list of texts, found one {type(documents).__name__}; for one text "
            f"use {one}"
        )
    if isinstance(documents, tuple) and len(documents) == 2:
        buffer, second = documents
        is_buffer = isinstance(buffer, (bytes, bytearray, memoryview, np.ndarray))
        if is_buffer and not isinstance(second, (str, bytes, bytearray, memoryview)):
            return buffer, _check_offsets(second)  # type: ignore[return-value]
    listed = documents if isinstance(documents, list) else list(documents)
    joined = join_texts(listed)
    if joined is not None:
        return joined
    try:
        return concatenate([to_utf8(document) for document in listed])  # type: ignore[arg-type]
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


def _check_offsets(offsets: object) -> NDArray[np.int64]:
    array = np.asarray(offsets)
    if array.ndim != 1 or not len(array) or array.dtype.kind not in "iu":
        raise TypeError(
            "offsets: expected the integers at which documents begin and end, int64[n + 1], found "
            f"{array.dtype}{list(array.shape)}"
        )
    return np.ascontiguousarray(array, np.int64)
