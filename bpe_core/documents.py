"""Documents as one buffer with offsets, made from the forms that users may give."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bpe_core._native import join_texts
from bpe_core.buffers import concatenate, to_utf8

__all__ = ["DocumentBuffer", "Documents", "check_spans", "read_documents", "to_buffer"]

Documents: TypeAlias = (
    "Sequence[str] | Sequence[bytes] | tuple[bytes | memoryview | NDArray[np.uint8], "
    "NDArray[np.int64] | Sequence[int]]"
)


class DocumentBuffer(NamedTuple):
    """Documents in one buffer: document i is data[offsets[i]:offsets[i + 1]]."""

    data: bytes | memoryview | NDArray[np.uint8]
    offsets: NDArray[np.int64]


def read_documents(
    documents: Documents, method: str = "encode_batch", one: str = "encode"
) -> Sequence[object] | DocumentBuffer:
    """Return the documents as a list of them, or as the buffer and offsets that were given.

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
            return DocumentBuffer(buffer, _check_offsets(second))  # type: ignore[arg-type]
    return documents if isinstance(documents, list) else list(documents)


def to_buffer(documents: Sequence[object] | DocumentBuffer) -> DocumentBuffer:
    """Return documents, as `read_documents` returns them, in one buffer.

    Raises:
        TypeError: a document is neither str nor bytes.
    """
    if isinstance(documents, DocumentBuffer):
        return documents
    listed = list(documents)
    joined = join_texts(listed)
    if joined is not None:
        return DocumentBuffer(*joined)
    try:
        return DocumentBuffer(*concatenate([to_utf8(document) for document in listed]))  # type: ignore[arg-type]
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
