"""Progress of a command on standard error, and what an interruption ends.

A command shows its display with `shown`; its stages and their work report to it. Without a display,
as in a program that calls `pipelines.verify`, work that takes long gets one of its own.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bpe_core.visible_text import visible
from pipelines.choices import ProgressMode
from pipelines.console.displays import (
    WORK,
    Bar,
    Display,
    JsonLines,
    Lines,
    Snapshot,
    Stage,
    StageEnd,
)
from pipelines.console.engine_jobs import EngineJob
from pipelines.console.notebook import NotebookBar, in_notebook
from pipelines.console.tally import NOTHING, TALLY, Sums, collected

__all__ = [
    "advance",
    "announce",
    "describe",
    "end_stage",
    "expect",
    "has_terminal",
    "leave",
    "note",
    "show",
    "show_engine",
    "show_merges",
    "shown",
    "shown_to_program",
    "start_stage",
]

_FIRST_SECONDS = 2.0  # without a display of the command, shorter work shows nothing
_RATE_SECONDS = 15.0  # period of the rate
# A closed pipe or a full disk behind standard error or the log must not stop the work.
_CLOSED: Final = (OSError, ValueError)
_OF_A_NOTEBOOK: Final = "JPY_PARENT_PID"  # in the environment of a kernel and of its commands
_LEAST_SECONDS: Final = 1.0  # no estimate of the time left before


@dataclass(frozen=True, kw_only=True)
class _Work:
    """Work that is shown.

    Attributes:
        label: Name of the work, such as "counting".
        total: Number of steps.
        planned: Planned bytes of the tasks, or 0 if the steps are not tasks.
        earlier: Number of tasks that an earlier command finished.
        shards: Number of shards of counts that are merged after the last task.
        local: True if all workers are known to report, so that no report means no work.
        started: Start, by `time.monotonic`.
    """

    label: str
    total: int
    planned: int = 0
    earlier: int = 0
    shards: int = 0
    local: bool = False
    started: float = field(default_factory=time.monotonic)

    def is_merging(self, sums: Sums) -> bool:
        """Return True if all tasks are counted, and shards are merged."""
        return bool(self.shards) and (sums.shards > 0 or sums.done >= self.total)

    def fraction(self, sums: Sums) -> float | None:
        """Return the finished part, or None if nothing is known."""
        if sums == NOTHING:
            return 0.0 if self.local else None
        if self.is_merging(sums):
            return min(sums.shards / self.shards, 1.0)
        if not self.planned:
            return min(sums.done / self.total, 1.0) if self.total else 1.0
        # Planned bytes are those of files; the finished tasks show how much text they make.
        ratio = sums.planned / sums.finished_bytes if sums.finished_bytes else 1.0
        started = (sums.bytes - sums.finished_bytes) * ratio
        return min((sums.planned + started) / self.planned, 1.0)


class _Rates:
    """Recent rates of the bytes and of the finished part of a work."""

    def __init__(self) -> None:
        self._seen = deque([(time.monotonic(), 0, 0.0)])

    def update(self, done: int, fraction: float) -> tuple[float, float | None]:
        """Return the current bytes per second, and the seconds left, or None."""
        now = time.monotonic()
        if not fraction or fraction < self._seen[-1][2]:
            self._seen.clear()
        self._seen.append((now, done, fraction))
        while len(self._seen) > 2 and self._seen[1][0] <= now - _RATE_SECONDS:
            self._seen.popleft()
        start, bytes_before, fraction_before = self._seen[0]
        seconds, advanced = now - start, fraction - fraction_before
        rate = (done - bytes_before) / seconds if seconds > 0 else 0.0
        if seconds < _LEAST_SECONDS or advanced <= 0:
            return rate, None
        return rate, (1 - fraction) * seconds / advanced


class _Shown:
    """Display of a command with the state of its stages."""

    def __init__(self, displays: Sequence[Display]) -> None:
        self._displays = displays
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._stages: tuple[str, ...] = ()
        self._stage: Stage | None = None
        self._started: set[str] = set()
        self._work: _Work | None = None
        self._job: EngineJob | None = None
        self._rates = _Rates()
        self._last: tuple[_Work, Sums] | None = None
        self._thread = threading.Thread(target=self._poll, daemon=True)

    def start(self) -> None:
        """Start to update the display; an interruption may come before this returns."""
        if self._displays:
            self._thread.start()

    def describe(self, text: str) -> None:
        """Show what is being done, before there are figures."""
        title = text if self._stage is None else self._stage.title(text)
        self._tell(lambda display: display.describe(title))

    def leave(self, kind: str, text: str) -> None:
        """Leave a line."""
        self._tell(lambda display: display.leave(kind, text))

    def expect(self, stages: Sequence[str]) -> None:
        """Announce the stages of the command."""
        self._stages = tuple(stages)

    def start_stage(self, name: str) -> None:
        """Start a stage, unless this is known."""
        if self._stage is None or self._stage.name != name:
            self._stage, self._last = self._position(name), None
            self.describe(WORK[name][0])

    def end_stage(self, name: str, state: str, seconds: float, size: int) -> None:
        """Leave a line for a stage."""
        sums = NOTHING if self._last is None else self._last[1]
        end = StageEnd(
            stage=self._position(name), state=state, seconds=seconds, bytes=size, sums=sums
        )
        self._tell(lambda display: display.end_stage(end))
        self._stage = self._last = None

    def _position(self, name: str) -> Stage:
        stages = self._stages if name in self._stages else (name,)
        return Stage(name=name, number=stages.index(name) + 1, of=len(stages))

    @contextmanager
    def work(self, work: _Work) -> Iterator[None]:
        """Show work while the block runs."""
        with collected():
            with self._lock:
                self._rates, self._work, self._job = _Rates(), work, None
            try:
                yield
            finally:
                with self._lock:
                    self._last, self._work = (work, TALLY.read()[0]), None
                self._tell(lambda display: display.end_work())

    def show_engine(self, job: EngineJob) -> None:
        """Show the job that does the current work."""
        self._job = job

    def close(self) -> None:
        """Remove the display."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._displays:
            self._tell(lambda display: display.close())

    def _poll(self) -> None:
        interval = min(display.interval for display in self._displays)
        due = [time.monotonic() + display.interval for display in self._displays]
        while not self._closed.wait(interval):
            now = time.monotonic()
            with self._lock:
                if self._work is None:
                    continue
                snapshot = self._snapshot(self._work)
                for i, display in enumerate(self._displays):
                    if due[i] <= now:
                        due[i] = now + display.interval
                        with suppress(*_CLOSED):
                            display.update(snapshot)

    def _tell(self, what: Callable[[Display], None]) -> None:
        with self._lock:
            for display in self._displays:
                with suppress(*_CLOSED):
                    what(display)

    def _snapshot(self, work: _Work) -> Snapshot:
        sums, others = TALLY.read()
        fraction = work.fraction(sums)
        rate, left = self._rates.update(sums.bytes, fraction or 0.0)
        merging = work.is_merging(sums)
        return Snapshot(
            stage=self._stage,
            work="merging counts" if merging else work.label,
            total=work.shards if merging else work.total,
            sums=Sums(done=sums.shards) if merging else sums,
            fraction=fraction,
            seconds=time.monotonic() - work.started,
            rate=rate,
            seconds_left=left,
            memory=_resident_bytes(["self", *map(str, others)]),
            newest=TALLY.newest,
            job=self._job,
        )

    def interruption(self) -> str:
        """Return what an interruption ended, what is kept, and how to go on."""
        if self._stage is None:
            return (
                "Interrupted before a stage began. Finished stages are kept: run the same command "
                "to go on."
                if self._stages
                else "Interrupted."
            )
        name = self._stage.name
        if self._last is None:
            return f"Interrupted while {WORK[name][0]} began. {_again(name)}"
        work, sums = self._last
        if name == "train":
            return (
                f"Interrupted while training, {sums.done:,} of {work.total:,} merges. The counts "
                f"are kept. {_again(name)}"
            )
        return _interruption_of_tasks(name, work, sums)


def _interruption_of_tasks(name: str, work: _Work, sums: Sums) -> str:
    tasks = work.total + work.earlier
    if work.is_merging(sums) and sums.kept >= work.total:
        return (
            f"Interrupted while merging counts. All {tasks:,} tasks are counted, which is kept; "
            "only merging will begin again: run the same command."
        )
    doing = WORK[name][0]
    if sums == NOTHING and work.total and not work.local:
        return (
            f"Interrupted while {doing}, {tasks:,} tasks. Run the same command: it goes on from "
            "what the workers had finished."
        )
    done = min(sums.done, work.total) + work.earlier
    kept = min(sums.kept, work.total) + work.earlier
    reached = f"Interrupted while {doing}, {done:,} of {tasks:,} tasks."
    if not kept:
        return f"{reached} {_again(name)}"
    which = "They are kept" if kept == done else f"{kept:,} of them are kept"
    return f"{reached} {which}: run the same command to go on."


def _again(name: str) -> str:
    doing = WORK[name][0]
    return f"{doing[0].upper()}{doing[1:]} will begin again; run the same command."


_shown: _Shown | None = None


@contextmanager
def shown(
    mode: ProgressMode, first: str, logs: Sequence[Display] = (), *, announced: bool = False
) -> Iterator[None]:
    """Show the progress of a command while the block runs.

    Args:
        mode: Kind of display; "auto": a bar on a terminal, and lines elsewhere.
        first: What the command does first, shown at once.
        logs: Further displays.
        announced: True if `announce` has shown it.
    """
    global _shown
    before, _shown = _shown, _Shown([*_displays_of(mode, announced=announced), *logs])
    try:
        _shown.start()
        _shown.describe(first)
        yield
    except KeyboardInterrupt as error:
        error.args = (_shown.interruption(),)
        if in_notebook():  # which does not show the text of this error
            _shown.leave("stopped", error.args[0])
        raise
    finally:
        _shown.close()
        _shown = before


@contextmanager
def shown_to_program(wanted: bool, first: str) -> Iterator[None]:
    """Show the progress of a function that a program calls, if it wants that.

    If a command calls the function, its own display goes on.
    """
    if _shown is not None:
        yield
        return
    with shown("auto" if wanted else "none", first):
        yield


def describe(text: str) -> None:
    """Show what is being done, before there are figures."""
    if _shown is not None:
        _shown.describe(text)


def leave(kind: str, text: str) -> None:
    """Leave a line, such as the estimate of a build."""
    if _shown is not None:
        _shown.leave(kind, text)


def expect(stages: Sequence[str]) -> None:
    """Announce the stages of the command, in order."""
    if _shown is not None:
        _shown.expect(stages)


def start_stage(name: str) -> None:
    """Start a stage, unless it was started."""
    if _shown is not None:
        _shown.start_stage(name)


def end_stage(name: str, state: str, seconds: float = 0.0, size: int = 0) -> None:
    """Leave a line for a stage: its state, duration, and the bytes of text that it read."""
    if _shown is not None:
        _shown.end_stage(name, state, seconds, size)


def advance(amount: int = 1) -> None:
    """Count finished steps. Workers call it once per task."""
    TALLY.add(Sums(done=amount))


def note(
    *,
    tasks: int = 0,
    documents: int = 0,
    bytes: int = 0,
    tokens: int = 0,
    rejects: int = 0,
    planned: int = 0,
    finished_bytes: int = 0,
    kept: int = 0,
    shards: int = 0,
    **_: int,
) -> None:
    """Add to the sums, by names of metrics. Workers call it once per batch."""
    TALLY.add(Sums(tasks, documents, bytes, tokens, rejects, planned, finished_bytes, kept, shards))


@contextmanager
def show(
    label: str,
    total: int,
    *,
    planned: int = 0,
    earlier: int = 0,
    shards: int = 0,
    local: bool = False,
) -> Iterator[Callable[[int, int], None]]:
    """Show progress while the block runs.

    Args:
        label: Name of the work, such as "counting".
        total: Sum of all calls of `advance`, or the largest `done` passed to the function that the
            block receives.
        planned: Bytes of all tasks, as they were planned, if the steps are tasks.
        earlier: Number of tasks that an earlier command finished.
        shards: Number of shards of counts that are merged after the last task.
        local: True if all workers are known to report, so that no report means no work.
    """
    work = _Work(
        label=label, total=total, planned=planned, earlier=earlier, shards=shards, local=local
    )
    own = None if _shown is not None else _Shown([*map(_Late, _displays_of("auto"))])
    try:
        if own is not None:
            own.start()
        with (own or _shown).work(work):  # type: ignore[union-attr]
            yield _set_done
    finally:
        if own is not None:
            own.close()


def show_engine(job: EngineJob) -> None:
    """Show what an engine reports about the job that does the current work."""
    if _shown is not None:
        _shown.show_engine(job)


def show_merges(made: int, wanted: int, newest: bytes) -> None:
    """Show the number of learned merges, and the newest token."""
    TALLY.set_done(made, newest)


def _set_done(done: int, total: int) -> None:
    TALLY.set_done(done)


class _Late:
    """Display that shows work only if it takes long, and leaves nothing behind."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self.interval = display.interval

    def describe(self, text: str) -> None:
        pass

    def leave(self, kind: str, text: str) -> None:
        pass

    def update(self, snapshot: Snapshot) -> None:
        if snapshot.seconds >= _FIRST_SECONDS:
            self._display.update(snapshot)

    def end_work(self) -> None:
        self._display.end_work()

    def end_stage(self, end: StageEnd) -> None:
        pass

    def close(self) -> None:
        self._display.close()


def announce(mode: ProgressMode, first: str) -> None:
    """Show what a child process will do first: it needs a moment until it shows something."""
    with suppress(*_CLOSED):
        if mode == "bar" or (mode == "auto" and has_terminal()):
            print(visible(first), end="\r", file=sys.stderr, flush=True)  # below the later bar
            return
        for display in _displays_of(mode):
            display.describe(first)


def has_terminal() -> bool:
    """Return True if standard error is a terminal that can draw a bar.

    The terminal that a notebook gives to the commands of its cells cannot move the cursor.
    """
    is_dumb = os.environ.get("TERM") == "dumb" or _OF_A_NOTEBOOK in os.environ
    return sys.stderr.isatty() and not is_dumb


def _displays_of(mode: ProgressMode, *, announced: bool = False) -> list[Display]:
    if mode == "auto":
        if in_notebook():
            return [NotebookBar()]
        mode = "bar" if has_terminal() else "plain"
    if mode == "bar":
        return [Bar(forced=not has_terminal())]
    if mode == "plain":
        return [Lines(announced=announced)]
    return [JsonLines(announced=announced)] if mode == "json" else []


def _resident_bytes(processes: Sequence[str]) -> int | None:
    """Return the resident memory of processes on Linux; elsewhere None."""
    pages = 0
    for process in processes:
        try:
            pages += int(Path(f"/proc/{process}/statm").read_text().split()[1])
        except (OSError, ValueError, IndexError):  # the process has ended
            continue
    return pages * os.sysconf("SC_PAGE_SIZE") if pages else None
