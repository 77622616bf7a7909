"""Progress of long stages, on standard error: a bar on a terminal, else a line now and then.

Workers that are threads of this process add to numbers in memory. Those that are processes of their
own, started while progress is shown, find a directory in their environment and keep their sums in a
file there. Of workers elsewhere nothing is known, and no figure is shown.
"""

from __future__ import annotations

import operator
import os
import shutil
import struct
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from pipelines.console.units import format_bytes
from pipelines.supervisor import STATUS_VARIABLE

_FIRST_SECONDS = 2.0  # shorter stages show nothing
_LINE_SECONDS = 15.0
_POLL_SECONDS = 0.2
_RATE_SECONDS = 15.0  # a rate is that of the last so many
_DIRECTORY_VARIABLE: Final = "BEAM_BPE_PROGRESS_DIR"
_FORM: Final = struct.Struct("=4q")


class _Sums(NamedTuple):
    """What is done: steps, such as tasks, and what was in them."""

    done: int = 0
    documents: int = 0
    bytes: int = 0
    tokens: int = 0

    def plus(self, other: _Sums) -> _Sums:
        return _Sums(*map(operator.add, self, other))


_NOTHING: Final = _Sums()


class _Tally:
    """The sums of this process; in a file too, where another process shows them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sums = _NOTHING
        self._shown_from: str | None = None
        self._told_in: str | None = None
        self._file: int | None = None

    def begin(self, directory: str | None) -> None:
        """Forgets what was done. Other processes will tell of theirs in the directory."""
        with self._lock:
            self._sums = _NOTHING
            self._shown_from = directory

    def add(self, amounts: _Sums) -> None:
        directory = os.environ.get(_DIRECTORY_VARIABLE)
        with self._lock:
            if directory in (None, self._shown_from):
                self._sums = self._sums.plus(amounts)
                return
            if directory != self._told_in:
                self._begin_telling(directory)
            self._sums = self._sums.plus(amounts)
            if self._file is not None:
                with suppress(OSError):  # a full disk must not stop the work
                    os.pwrite(self._file, _FORM.pack(*self._sums), 0)

    def _begin_telling(self, directory: str) -> None:
        if self._file is not None:
            os.close(self._file)
        self._sums, self._told_in, self._file = _NOTHING, directory, None
        with suppress(OSError):
            path = Path(directory) / str(os.getpid())
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)

    def set_done(self, done: int) -> None:
        with self._lock:
            self._sums = _Sums(done=done)

    def read(self) -> _Sums:
        """The sums of all processes."""
        with self._lock:
            sums, directory = self._sums, self._shown_from
        with suppress(OSError):
            for path in Path(directory).iterdir() if directory is not None else ():
                if len(data := path.read_bytes()) == _FORM.size:
                    sums = sums.plus(_Sums(*_FORM.unpack(data)))
        return sums


_TALLY = _Tally()


def advance(amount: int = 1) -> None:
    """Notes that this much more is done. Called by workers, once a task."""
    _TALLY.add(_Sums(done=amount))


def note(*, tasks: int = 0, documents: int = 0, bytes: int = 0, tokens: int = 0, **_: int) -> None:
    """Notes what else was done, by the names of metrics. Called by workers, once a batch."""
    _TALLY.add(_Sums(tasks, documents, bytes, tokens))


@contextmanager
def shown(what: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """Shows progress while the block runs.

    Args:
        what: is being done, such as "counting".
        total: what `advance` adds up to, or the largest `done` given to the function that the
            block gets.
    """
    with _told_by_processes() as directory:
        _TALLY.begin(directory)
        finished = threading.Event()
        show = _show_bar if sys.stderr.isatty() else _show_lines
        thread = threading.Thread(target=show, args=(what, total, finished), daemon=True)
        thread.start()
        try:
            yield _set_done
        finally:
            finished.set()
            thread.join()


@contextmanager
def _told_by_processes() -> Iterator[str | None]:
    """A directory for the sums of processes that are started meanwhile; None if there can't be."""
    try:
        directory = tempfile.mkdtemp(prefix="progress-", dir=os.environ.get(STATUS_VARIABLE))
    except OSError:
        yield None
        return
    before = os.environ.get(_DIRECTORY_VARIABLE)
    os.environ[_DIRECTORY_VARIABLE] = directory
    try:
        yield directory
    finally:
        if before is None:
            del os.environ[_DIRECTORY_VARIABLE]
        else:
            os.environ[_DIRECTORY_VARIABLE] = before
        shutil.rmtree(directory, ignore_errors=True)


def _set_done(done: int, total: int) -> None:
    _TALLY.set_done(done)


class _Rate:
    """Bytes a second of late, from the last moment before there were any."""

    def __init__(self) -> None:
        self._seen = deque([(time.monotonic(), 0)])

    def at(self, done: int) -> float:
        """The rate now that so many bytes are done."""
        now = time.monotonic()
        if not done:
            self._seen.clear()
        self._seen.append((now, done))
        while len(self._seen) > 2 and self._seen[1][0] <= now - _RATE_SECONDS:
            self._seen.popleft()
        begun, before = self._seen[0]
        return (done - before) / (now - begun) if now > begun else 0.0


def _amounts(sums: _Sums, rate: float) -> str:
    """What is in the steps that are done, where it is known."""
    if not sums.bytes:
        return ""
    parts = [format_bytes(sums.bytes), f"{rate / 1e6:.1f} MB/s", f"{sums.documents:,} documents"]
    if sums.tokens:
        parts.append(f"{sums.tokens:,} tokens")
    return ", ".join(parts)


def _show_bar(what: str, total: int, finished: threading.Event) -> None:
    rate = _Rate()
    if finished.wait(_FIRST_SECONDS):
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.table import Column

    columns = (
        TextColumn(what, table_column=Column(no_wrap=True)),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[steps]}", table_column=Column(no_wrap=True)),
        TimeElapsedColumn(table_column=Column(no_wrap=True)),
        # It has the room that is left, and is cut off where that is too little.
        TextColumn("{task.fields[amounts]}", table_column=Column(no_wrap=True, ratio=1)),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True, expand=True) as bar:
        task = bar.add_task(what, total=None, steps="", amounts="")
        while not finished.wait(_POLL_SECONDS):
            sums = _TALLY.read()
            amounts = _amounts(sums, rate.at(sums.bytes))
            if sums == _NOTHING:
                continue  # the bar is only seen to move
            done = min(sums.done, total)  # a repeated bundle does its work again
            steps = f"{done:,}/{total:,}"
            bar.update(task, total=total, completed=done, steps=steps, amounts=amounts)


def _show_lines(what: str, total: int, finished: threading.Event) -> None:
    begun = time.monotonic()
    rate = _Rate()
    while not finished.wait(_LINE_SECONDS):
        seconds = time.monotonic() - begun
        sums = _TALLY.read()
        amounts = _amounts(sums, rate.at(sums.bytes))
        if sums == _NOTHING:
            told = f"{total:,} in all, at work for {seconds:.0f} s"
        else:
            told = f"{min(sums.done, total):,} of {total:,} after {seconds:.0f} s"
        print(f"{what}: {told}" + (amounts and f"; {amounts}"), file=sys.stderr)
