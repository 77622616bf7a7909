"""Progress of long stages, on standard error: a bar on a terminal, else a line now and then.

Local workers are threads of the process that shows it, so a counter is enough.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_FIRST_SECONDS = 2.0  # shorter stages show nothing
_LINE_SECONDS = 15.0
_POLL_SECONDS = 0.2


class _Meter:
    """How much of the stage at work is done."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.done = 0

    def reset(self) -> None:
        self.done = 0

    def add(self, amount: int) -> None:
        with self._lock:
            self.done += amount


_METER = _Meter()


def advance(amount: int = 1) -> None:
    """Notes that this much more is done. Called by workers, once a task."""
    _METER.add(amount)


@contextmanager
def shown(what: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """Shows progress while the block runs.

    Args:
        what: is being done, such as "counting".
        total: what `advance` adds up to, or the largest `done` given to the function that the
            block gets.
    """
    _METER.reset()
    finished = threading.Event()
    show = _show_bar if sys.stderr.isatty() else _show_lines
    thread = threading.Thread(target=show, args=(what, total, finished), daemon=True)
    thread.start()
    try:
        yield _set_done
    finally:
        finished.set()
        thread.join()


def _set_done(done: int, total: int) -> None:
    _METER.done = done


def _show_bar(what: str, total: int, finished: threading.Event) -> None:
    if finished.wait(_FIRST_SECONDS):
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        while not finished.wait(_POLL_SECONDS):
            bar.update(task, completed=min(_METER.done, total))


def _show_lines(what: str, total: int, finished: threading.Event) -> None:
    begun = time.monotonic()
    while not finished.wait(_LINE_SECONDS):
        seconds = time.monotonic() - begun
        done = min(_METER.done, total)  # a repeated bundle does its work again
        print(f"{what}: {done:,} of {total:,} after {seconds:.0f} s", file=sys.stderr)
