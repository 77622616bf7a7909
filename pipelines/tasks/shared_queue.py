"""Tasks of a local pipeline, shared by workers that are threads of this process.

A worker takes the next task when it has done one, so all workers end at about the same time.
Threads can begin before there is a pipeline, since Beam takes half a second to import. Later, each
worker of the pipeline takes the place of one of them.
"""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

__all__ = ["TaskQueue"]

_Begun = TypeVar("_Begun")
_Item = TypeVar("_Item")
_QUEUES: WeakValueDictionary[str, TaskQueue[Any]] = WeakValueDictionary()


class TaskQueue(Generic[_Begun]):
    """Descriptors of tasks, each of which one worker takes.

    A pickled queue can be loaded in this process only, and is the same queue there.

    Attributes:
        workers: Number of workers.
    """

    def __init__(self, tasks: Iterable[bytes], workers: int) -> None:
        self.workers = workers
        self._left = deque(tasks)
        self._threads: deque[tuple[threading.Event, Future[_Begun]]] = deque()
        self._key = secrets.token_hex(16)
        _QUEUES[self._key] = self

    def __reduce__(self) -> tuple[Callable[[str], TaskQueue[Any]], tuple[str]]:
        """Return what finds the queue of this process."""
        return _queue_of_this_process, (self._key,)

    def take(self) -> Iterator[bytes]:
        """Yield the next task, one after another, until none is left."""
        return _remove(self._left)

    @contextmanager
    def begun(self, work: Callable[[Iterator[bytes]], _Begun]) -> Iterator[None]:
        """Start a thread for each worker; those that no worker replaced end with the block.

        Args:
            work: Function that does the tasks that it is given. Its result is for the worker that
                takes the place of the thread.
        """
        pool = ThreadPoolExecutor(self.workers)
        for _ in range(self.workers):
            end = threading.Event()
            self._threads.append((end, pool.submit(work, self._take_until(end))))
        pool.shutdown(wait=False)
        try:
            yield
        finally:
            for end, _ in self._threads:
                end.set()

    def take_over(self) -> Iterator[_Begun]:
        """End threads after their tasks, one for each result that the caller asks for.

        Raises:
            Exception: The error with which a thread ended.
        """
        for end, begun in _remove(self._threads):
            end.set()
            yield begun.result()

    def _take_until(self, end: threading.Event) -> Iterator[bytes]:
        tasks = self.take()
        while not end.is_set() and (task := next(tasks, None)) is not None:
            yield task


def _remove(items: deque[_Item]) -> Iterator[_Item]:
    """Yield items from the front, removing each, until none is left. Threads may share them."""
    while True:
        try:
            item = items.popleft()
        except IndexError:
            return
        yield item


def _queue_of_this_process(key: str) -> TaskQueue[Any]:
    return _QUEUES[key]
