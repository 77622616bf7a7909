"""Progress of long stages on standard error: a bar on a terminal, otherwise a line at intervals.

Workers that are threads of this process add to numbers in memory. Worker processes that are started
while progress is shown find a directory in their environment and write their sums to a file there.
Nothing is known about workers on other machines, and no figures are shown for them.
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
_RATE_SECONDS = 15.0  # period of the rate
_DIRECTORY_VARIABLE: Final = "BEAM_BPE_PROGRESS_DIR"
_FORMAT: Final = struct.Struct("=4q")


class _Sums(NamedTuple):
    """Sums of finished work: steps, such as tasks, and their content."""

    done: int = 0
    documents: int = 0
    bytes: int = 0
    tokens: int = 0

    def plus(self, other: _Sums) -> _Sums:
        return _Sums(*map(operator.add, self, other))


_NOTHING: Final = _Sums()


class _Tally:
    """Sums of this process, also written to a file if another process shows them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sums = _NOTHING
        self._shown_from: str | None = None
        self._reported_to: str | None = None
        self._file: int | None = None

    def reset(self, directory: str | None) -> None:
        """Reset the sums. Other processes will write theirs to the directory."""
        with self._lock:
            self._sums = _NOTHING
            self._shown_from = directory

    def add(self, amounts: _Sums) -> None:
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
        self._sums, self._reported_to, self._file = _NOTHING, directory, None
        with suppress(OSError):
            path = Path(directory) / str(os.getpid())
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)

    def set_done(self, done: int) -> None:
        with self._lock:
            self._sums = _Sums(done=done)

    def read(self) -> _Sums:
        """Return the sums of all processes."""
        with self._lock:
            sums, directory = self._sums, self._shown_from
        with suppress(OSError):
            for path in Path(directory).iterdir() if directory is not None else ():
                if len(data := path.read_bytes()) == _FORMAT.size:
                    sums = sums.plus(_Sums(*_FORMAT.unpack(data)))
        return sums


_TALLY = _Tally()


def advance(amount: int = 1) -> None:
    """Count finished steps. Workers call it once per task."""
    _TALLY.add(_Sums(done=amount))


def note(*, tasks: int = 0, documents: int = 0, bytes: int = 0, tokens: int = 0, **_: int) -> None:
    """Add to the sums, by names of metrics. Workers call it once per batch."""
    _TALLY.add(_Sums(tasks, documents, bytes, tokens))


def announce(line: str) -> None:
    """Print a line about the work that begins."""
    print(line, file=sys.stderr, flush=True)


@contextmanager
def show(label: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """Show progress while the block runs.

    Args:
        label: name of the work, such as "counting".
        total: sum of all calls of `advance`, or the largest `done` passed to the function that the
            block receives.
    """
    with _collecting_directory() as directory:
        _TALLY.reset(directory)
        finished = threading.Event()
        display = _show_bar if sys.stderr.isatty() else _show_lines
        thread = threading.Thread(target=display, args=(label, total, finished), daemon=True)
        thread.start()
        try:
            yield _set_done
        finally:
            finished.set()
            thread.join()


@contextmanager
def _collecting_directory() -> Iterator[str | None]:
    """Create a directory for the sums of processes started in the block; None if impossible."""
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
    """Recent rate in bytes per second, starting with the first bytes."""

    def __init__(self) -> None:
        self._seen = deque([(time.monotonic(), 0)])

    def update(self, done: int) -> float:
        """Record the number of finished bytes, and return the current rate."""
        now = time.monotonic()
        if not done:
            self._seen.clear()
        self._seen.append((now, done))
        while len(self._seen) > 2 and self._seen[1][0] <= now - _RATE_SECONDS:
            self._seen.popleft()
        start, before = self._seen[0]
        return (done - before) / (now - start) if now > start else 0.0


def _format_amounts(sums: _Sums, rate: float) -> str:
    """Format the content of the finished steps; empty if it is unknown."""
    if not sums.bytes:
        return ""
    parts = [format_bytes(sums.bytes), f"{rate / 1e6:.1f} MB/s", f"{sums.documents:,} documents"]
    if sums.tokens:
        parts.append(f"{sums.tokens:,} tokens")
    return ", ".join(parts)


def _show_bar(label: str, total: int, finished: threading.Event) -> None:
    rate = _Rate()
    if finished.wait(_FIRST_SECONDS):
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.table import Column

    columns = (
        TextColumn(label, table_column=Column(no_wrap=True)),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[steps]}", table_column=Column(no_wrap=True)),
        TimeElapsedColumn(table_column=Column(no_wrap=True)),
        # This column gets the remaining width, and is truncated if that is too little.
        TextColumn("{task.fields[amounts]}", table_column=Column(no_wrap=True, ratio=1)),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True, expand=True) as bar:
        task = bar.add_task(label, total=None, steps="", amounts="")
        while not finished.wait(_POLL_SECONDS):
            sums = _TALLY.read()
            amounts = _format_amounts(sums, rate.update(sums.bytes))
            if sums == _NOTHING:
                continue  # without figures, the bar is only animated
            done = min(sums.done, total)  # a repeated bundle counts again
            steps = f"{done:,}/{total:,}"
            bar.update(task, total=total, completed=done, steps=steps, amounts=amounts)


def _show_lines(label: str, total: int, finished: threading.Event) -> None:
    start = time.monotonic()
    rate = _Rate()
    while not finished.wait(_LINE_SECONDS):
        seconds = time.monotonic() - start
        sums = _TALLY.read()
        amounts = _format_amounts(sums, rate.update(sums.bytes))
        if sums == _NOTHING:
            status = f"{total:,} in total, running for {seconds:.0f} s"
        else:
            status = f"{min(sums.done, total):,} of {total:,} after {seconds:.0f} s"
        print(f"{label}: {status}" + (amounts and f"; {amounts}"), file=sys.stderr)
