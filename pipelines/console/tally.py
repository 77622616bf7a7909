"""Sums of the work that the processes of this machine have done, for the display of progress.

Workers that are threads of this process add to numbers in memory. Worker processes that are started
while work is shown find a directory in their environment and write their sums to a file there.
Nothing is known about workers on other machines.
"""

from __future__ import annotations

import operator
import os
import shutil
import struct
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from pipelines.supervisor import STATUS_VARIABLE

_DIRECTORY_VARIABLE: Final = "BEAM_BPE_PROGRESS_DIR"


class Sums(NamedTuple):
    """Sums of finished work.

    Attributes:
        done: Finished steps, such as tasks.
        documents, bytes, tokens, rejects: Content of the documents that were read so far.
        planned: Bytes of the finished tasks, as they were planned.
        finished_bytes: Part of `bytes` that belongs to finished tasks.
        kept: Tasks that a later command need not do again.
        shards: Merged shards of counts.
    """

    done: int = 0
    documents: int = 0
    bytes: int = 0
    tokens: int = 0
    rejects: int = 0
    planned: int = 0
    finished_bytes: int = 0
    kept: int = 0
    shards: int = 0

    def plus(self, other: Sums) -> Sums:
        """Return the sums of both."""
        return Sums(*map(operator.add, self, other))


NOTHING: Final = Sums()
_FORMAT: Final = struct.Struct(f"={len(NOTHING)}q")


class _Tally:
    """Sums of this process, also written to a file if another process shows them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sums = NOTHING
        self._newest = b""
        self._shown_from: str | None = None
        self._reported_to: str | None = None
        self._file: int | None = None

    def reset(self, directory: str | None) -> None:
        """Reset the sums. Other processes will write theirs to the directory."""
        with self._lock:
            self._sums, self._newest, self._shown_from = NOTHING, b"", directory

    def add(self, amounts: Sums) -> None:
        """Add to the sums."""
        directory = os.environ.get(_DIRECTORY_VARIABLE)
        with self._lock:
            if directory in (None, self._shown_from):
                self._sums = self._sums.plus(amounts)
                return
            if directory != self._reported_to:
                self._start_reporting(directory)
            self._sums = self._sums.plus(amounts)
            if self._file is not None:
                with suppress(OSError):  # a full disk must not stop the work
                    os.pwrite(self._file, _FORMAT.pack(*self._sums), 0)

    def _start_reporting(self, directory: str) -> None:
        if self._file is not None:
            os.close(self._file)
        self._sums, self._reported_to, self._file = NOTHING, directory, None
        with suppress(OSError):
            path = Path(directory) / str(os.getpid())
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)

    def set_done(self, done: int, newest: bytes = b"") -> None:
        """Set the number of finished steps and, of a training, the newest token."""
        with self._lock:
            self._sums, self._newest = Sums(done=done), newest

    @property
    def newest(self) -> bytes:
        """Return the newest token of a training."""
        return self._newest

    def read(self) -> tuple[Sums, list[int]]:
        """Return the sums of all processes, and the ids of the other processes."""
        with self._lock:
            sums, directory = self._sums, self._shown_from
        others = []
        with suppress(OSError):
            for path in Path(directory).iterdir() if directory is not None else ():
                if len(data := path.read_bytes()) == _FORMAT.size:
                    sums = sums.plus(Sums(*_FORMAT.unpack(data)))
                    others.append(int(path.name))
        return sums, others


TALLY = _Tally()


@contextmanager
def collected() -> Iterator[None]:
    """Start new sums, with a directory for those of the processes that are started in the block."""
    try:
        directory = tempfile.mkdtemp(prefix="progress-", dir=os.environ.get(STATUS_VARIABLE))
    except OSError:
        TALLY.reset(None)
        yield
        return
    before = os.environ.get(_DIRECTORY_VARIABLE)
    try:
        os.environ[_DIRECTORY_VARIABLE] = directory
        TALLY.reset(directory)
        yield
    finally:
        if before is None:
            os.environ.pop(_DIRECTORY_VARIABLE, None)
        else:
            os.environ[_DIRECTORY_VARIABLE] = before
        shutil.rmtree(directory, ignore_errors=True)
