"""Parsing in a thread of its own, beside the work on what was parsed before."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final

from pipelines.batches import DocumentBatch

# Batches that wait, or are being made, while one is worked on.
_AHEAD: Final = 2


def read_ahead(batches: Iterator[DocumentBatch]) -> Iterator[DocumentBatch]:
    """The same batches in the same order, made by a thread while earlier ones are worked on.

    An error comes in its place. When the iterator ends, or is closed, the thread has ended.
    """
    with ThreadPoolExecutor(1, "parse-ahead") as thread:
        coming: deque[Future[DocumentBatch | None]] = deque()
        try:
            for _ in range(_AHEAD):
                coming.append(thread.submit(next, batches, None))
            while (batch := coming.popleft().result()) is not None:
                coming.append(thread.submit(next, batches, None))
                yield batch
        finally:
            for future in coming:
                future.cancel()
            wait(coming)
