"""Parsing in a separate thread, in parallel with the work on earlier batches.

With a second core, a single worker then reads JSON lines and columns about as fast as text.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final

from pipelines.batches import DocumentBatch

# Batches that are waiting or being parsed while another is processed.
_AHEAD: Final = 2


def read_ahead(batches: Iterator[DocumentBatch]) -> Iterator[DocumentBatch]:
    """Yield the same batches in the same order, parsed by a thread that runs ahead.

    An error is raised in its position. The thread ends before the iterator ends or is closed.
    """
    with ThreadPoolExecutor(1, "parse-ahead") as thread:
        pending: deque[Future[DocumentBatch | None]] = deque()
        try:
            for _ in range(_AHEAD):
                pending.append(thread.submit(next, batches, None))
            while (batch := pending.popleft().result()) is not None:
                pending.append(thread.submit(next, batches, None))
                yield batch
        finally:
            for future in pending:
                future.cancel()
            wait(pending)
