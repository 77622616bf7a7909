"""Small files far away, several of them asked for at once.

Reading such a file takes as long as one answer takes to come, almost whatever its size. A task that
has thousands of them would mostly wait.
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

# Together they bound what is held: 16 MiB a worker.
SMALL_BYTES: Final = 1 << 20
FETCHED_AT_ONCE: Final = 16

# Files of archives are not among them: of a damaged one they are read as far as they go.

# A file, the bytes [start, end) of it that are to be read, and the options of its storage.
Part = tuple[InputFile, int, int, Mapping[str, Any]]


def fetched_ahead(parts: Iterable[Part]) -> Iterator[tuple[Part, StoredFile | None]]:
    """The parts in their order, with each the file if it is small and far away, else None.

    Such a file has been asked for while earlier ones were worked on. What went wrong comes when it
    is read, as it would without this. When the iterator ends, or is closed, the threads have ended.
    """
    coming: deque[tuple[Part, _FetchedFile | None]] = deque()
    left = iter(parts)
    threads: ThreadPoolExecutor | None = None
    try:
        while True:
            while len(coming) <= FETCHED_AT_ONCE and (part := next(left, None)) is not None:
                if not _is_small_and_far(part):
                    coming.append((part, None))
                    continue
                threads = threads or ThreadPoolExecutor(FETCHED_AT_ONCE, "fetch")
                coming.append((part, _FetchedFile(part, threads)))
            if not coming:
                return
            yield coming.popleft()
    finally:
        if threads is not None:
            threads.shutdown(cancel_futures=True)


def _is_small_and_far(part: Part) -> bool:
    file, start, end, _ = part
    if file.size > SMALL_BYTES or (start, end) != (0, file.size):
        return False
    return plain_path(file.url) is None and split_url(file.url) is None


class _FetchedFile:
    """A file in memory, or about to be."""

    is_local = True  # nothing is gained by reading it ahead once more

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
    opened = open_stored(file.url, options, size=file.size, mark=file.mark)
    try:
        opened.read_into(memoryview(data), 0)
    finally:
        opened.close()
    return data
