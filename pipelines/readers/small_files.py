"""Concurrent reading of small remote files.

Reading a small remote file takes one round trip, almost independent of its size. Without
concurrency, a task with thousands of them would mostly wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from pipelines.storage.archives import split_url
from pipelines.storage.filesystems import plain_path
from pipelines.storage.remote_files import StoredFile, open_stored
from pipelines.tasks.listing import InputFile

# Their product bounds the memory: 16 MiB per worker.
SMALL_BYTES: Final = 1 << 20
FETCHED_AT_ONCE: Final = 16

# A file, the bytes [start, end) to read, and the options of its storage.
Part = tuple[InputFile, int, int, Mapping[str, Any]]


def fetch_ahead(parts: Iterable[Part]) -> Iterator[tuple[Part, StoredFile | None]]:
    """Yield the parts in order, each with its file if it is small and remote, else None.

    Small remote files are requested while earlier parts are processed. Errors are raised when the
    file is read, as without this function. The threads end before the iterator ends or is closed.
    """
    pending: deque[tuple[Part, _FetchedFile | None]] = deque()
    left = iter(parts)
    threads: ThreadPoolExecutor | None = None
    try:
        while True:
            while len(pending) <= FETCHED_AT_ONCE and (part := next(left, None)) is not None:
                if not _is_small_and_remote(part):
                    pending.append((part, None))
                    continue
                threads = threads or ThreadPoolExecutor(FETCHED_AT_ONCE, "fetch")
                pending.append((part, _FetchedFile(part, threads)))
            if not pending:
                return
            yield pending.popleft()
    finally:
        if threads is not None:
            threads.shutdown(cancel_futures=True)


def _is_small_and_remote(part: Part) -> bool:
    file, start, end, _ = part
    if file.size > SMALL_BYTES or (start, end) != (0, file.size):
        return False
    # Not members of archives: they are read up to the damage if the archive is damaged.
    return plain_path(file.url) is None and split_url(file.url) is None


class _FetchedFile:
    """Remote file that is in memory or being fetched."""

    is_local = True  # it need not be read ahead again

    def __init__(self, part: Part, threads: ThreadPoolExecutor) -> None:
        file, _, _, options = part
        self.size = file.size
        self._data: Future[bytearray] = threads.submit(_fetch, file, options)

    def read_into(self, view: memoryview, offset: int) -> None:
        view[:] = self._data.result()[offset : offset + len(view)]

    def close(self) -> None:
        pass


def _fetch(file: InputFile, options: Mapping[str, Any]) -> bytearray:
    data = bytearray(file.size)
    opened = open_stored(file.url, options, size=file.size, version_tag=file.version_tag)
    try:
        opened.read_into(memoryview(data), 0)
    finally:
        opened.close()
    return data
