"""Displays of progress on standard error: a bar, lines of text, or JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from bpe_core.visible_text import visible
from pipelines.console.engine_jobs import EngineJob
from pipelines.console.tally import NOTHING, Sums
from pipelines.console.units import format_bytes

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

BAR_SECONDS: Final = 0.2
LINE_SECONDS: Final = 10.0
JSON_SECONDS: Final = 1.0
_LONGEST_TOKEN = 24

# Work of each stage while it is done, and when it is done.
WORK: Final = {
    "count": ("counting", "counted"),
    "superwords": ("counting superwords", "counted superwords"),
    "train": ("training", "trained"),
    "import": ("importing the tokenizer", "imported the tokenizer"),
    "encode": ("encoding", "encoded"),
    "replay": ("replaying rejects", "replayed rejects"),
}


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Stage of a build, and its position in the command: `number` of `of`, from 1."""

    name: str
    number: int
    of: int

    def title(self, work: str) -> str:
        """Return the work with the position in front, such as "[1/3] counting"."""
        return f"[{self.number}/{self.of}] {work}"


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Progress of the current work.

    Attributes:
        stage: The stage that it belongs to, or None.
        work: Name of the work, such as "counting".
        total: Number of steps.
        sums: Sums so far; all 0 if nothing is known.
        fraction: Finished part, from 0 to 1, or None if nothing is known.
        seconds: Time since the work began.
        rate: Bytes of text per second, at present.
        seconds_left: Estimated time to the end, or None.
        memory: Resident bytes of all processes, or None if unknown.
        newest: Newest token of a training.
        job: Job at an engine that does the work, or None.
    """

    stage: Stage | None
    work: str
    total: int
    sums: Sums
    fraction: float | None
    seconds: float
    rate: float
    seconds_left: float | None
    memory: int | None
    newest: bytes
    job: EngineJob | None = None

    @property
    def title(self) -> str:
        """Return the name of the work, with the position of its stage."""
        return self.work if self.stage is None else self.stage.title(self.work)

    def line(self) -> str:
        """Return the figures as a line of text."""
        percent = "" if self.fraction is None else f"{self.fraction:.0%}, "
        return f"{self.title}: {percent}{', '.join(self.amounts())}"

    def amounts(self) -> list[str]:
        """Return the figures as texts, the most important first."""
        engine = [] if self.job is None else [str(self.job)]
        if self.fraction is None:
            return [f"{self.total:,} in total, running for {self.seconds:.0f} s", *engine]
        sums = self.sums
        parts = []
        if sums.bytes:
            parts += [format_bytes(sums.bytes), f"{format_bytes(round(self.rate))}/s"]
        else:
            parts.append(f"{min(sums.done, self.total):,} of {self.total:,}")
        if self.seconds_left is not None:
            parts.append(f"{format_seconds(self.seconds_left)} left")
        if sums.bytes:
            parts += [f"{sums.documents:,} documents", f"{sums.rejects:,} rejects"]
        if sums.tokens:
            parts.append(f"{sums.tokens:,} tokens")
        if self.newest:
            parts.append(f"newest token {show_token(self.newest)}")
        if self.memory:
            parts.append(f"{format_bytes(self.memory)} memory")
        return parts + engine

    def to_json(self) -> dict[str, Any]:
        """Return the values of a line of JSON."""
        sums = self.sums
        token = self.newest.decode("utf-8", "backslashreplace") if self.newest else None
        return {
            **_stage_keys(self.stage),
            "work": self.work,
            "seconds": round(self.seconds, 3),
            "fraction": None if self.fraction is None else round(self.fraction, 4),
            "seconds_left": None if self.seconds_left is None else round(self.seconds_left, 1),
            "done": min(sums.done, self.total),
            "total": self.total,
            "bytes": sums.bytes,
            "bytes_per_second": round(self.rate),
            "documents": sums.documents,
            "rejects": sums.rejects,
            "tokens": sums.tokens,
            "newest_token": token,
            "memory": self.memory,
            "job": None if self.job is None else self.job.to_json(),
        }


@dataclass(frozen=True, kw_only=True)
class StageEnd:
    """Result of a stage, for the line that it leaves behind.

    Attributes:
        stage: The stage.
        state: "done", "resumed", or why it did nothing here: "already finished", "submitted".
        seconds: Wall-clock time.
        bytes: Bytes of text that it read.
        sums: Sums of its work, as far as they are known.
    """

    stage: Stage
    state: str
    seconds: float = 0.0
    bytes: int = 0
    sums: Sums = NOTHING

    def __str__(self) -> str:
        """Return the line."""
        doing, done = WORK[self.stage.name]
        if self.state not in ("done", "resumed"):
            return self.stage.title(f"{doing}: {self.state}")
        sums, seconds = self.sums, self.seconds
        rate = f" ({format_bytes(round(self.bytes / seconds))}/s)" if seconds > 0 else ""
        parts = [f"{format_bytes(self.bytes)} in " if self.bytes else ""]
        if self.stage.name == "train" and sums.done:
            parts[0] = f"{sums.done:,} merges in "
        parts[0] += format_seconds(seconds) + (rate if self.bytes else "")
        if sums.documents:
            parts += [f"{sums.documents:,} documents", f"{sums.rejects:,} rejects"]
        if sums.tokens:
            parts.append(f"{sums.tokens:,} tokens")
        if self.state == "resumed":
            parts.append("resumed")
        return self.stage.title(f"{done}: {', '.join(parts)}")

    def to_json(self) -> dict[str, Any]:
        """Return the values of a line of JSON."""
        return {
            **_stage_keys(self.stage),
            "state": self.state,
            "seconds": round(self.seconds, 3),
            "bytes": self.bytes,
            "documents": self.sums.documents,
            "rejects": self.sums.rejects,
            "tokens": self.sums.tokens,
        }


class Display(Protocol):
    """Display of progress.

    Attributes:
        interval: Seconds between two snapshots.
    """

    interval: float

    def describe(self, text: str) -> None:
        """Show what is being done, before there are figures."""

    def leave(self, kind: str, text: str) -> None:
        """Leave a line, such as the estimate."""

    def update(self, snapshot: Snapshot) -> None:
        """Show the progress of the current work."""

    def end_work(self) -> None:
        """Stop showing the current work."""

    def end_stage(self, end: StageEnd) -> None:
        """Leave a line for a stage."""

    def close(self) -> None:
        """Remove what should not stay."""


class Lines:
    """Lines of text: the first step, a line at intervals, and a line for each stage.

    Args:
        announced: True if the first step is there already.
    """

    def __init__(self, *, announced: bool = False) -> None:
        self.interval = LINE_SECONDS
        self._described = announced

    def describe(self, text: str) -> None:
        """Print the first text, as a sign of life."""
        if not self._described:
            _print(text)
        self._described = True

    def leave(self, kind: str, text: str) -> None:
        """Print the line."""
        _print(f"{kind}: {text}")

    def update(self, snapshot: Snapshot) -> None:
        """Print a line."""
        _print(snapshot.line())

    def end_work(self) -> None:
        """Do nothing."""

    def end_stage(self, end: StageEnd) -> None:
        """Print the line."""
        _print(str(end))

    def close(self) -> None:
        """Do nothing."""


class Bar:
    """Bar on a terminal, below the lines of the finished stages.

    Args:
        forced: True to draw it although standard error is not a terminal.
    """

    def __init__(self, *, forced: bool = False) -> None:
        self.interval = BAR_SECONDS
        self._forced = forced
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def describe(self, text: str) -> None:
        """Show a text and an animated bar."""
        self._draw(text, None, "", "")

    def leave(self, kind: str, text: str) -> None:
        """Print the line above the bar."""
        self._print(f"{kind}: {text}")

    def update(self, snapshot: Snapshot) -> None:
        """Draw the bar."""
        percent = "" if snapshot.fraction is None else f"{snapshot.fraction:.0%}"
        amounts = ", ".join(snapshot.amounts())
        self._draw(snapshot.title, snapshot.fraction, percent, amounts)

    def end_work(self) -> None:
        """Keep the bar: the next work draws it again."""

    def end_stage(self, end: StageEnd) -> None:
        """Print the line above the bar."""
        self._print(str(end))

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _print(self, line: str) -> None:
        self._make().console.print(visible(line), markup=False, highlight=False, soft_wrap=True)

    def _draw(self, title: str, fraction: float | None, percent: str, amounts: str) -> None:
        bar = self._make()
        assert self._task is not None
        bar.update(
            self._task,
            description=visible(title),
            total=None if fraction is None else 1.0,  # without figures, it is only animated
            completed=fraction or 0.0,
            percent=percent,
            amounts=visible(amounts),
        )
        bar.start()  # it shows the first text at once; later calls do nothing

    def _make(self) -> Progress:
        if self._bar is not None:
            return self._bar
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column

        columns = (
            TextColumn("{task.description}", table_column=Column(no_wrap=True), markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[percent]}", table_column=Column(no_wrap=True)),
            # This column gets the remaining width, and is truncated if that is too little.
            TextColumn(
                "{task.fields[amounts]}", table_column=Column(no_wrap=True, ratio=1), markup=False
            ),
        )
        console = Console(stderr=True, force_terminal=True if self._forced else None)
        # Standard output is left alone: a result that is printed there belongs to the user.
        self._bar = Progress(
            *columns, console=console, transient=True, expand=True, redirect_stdout=False
        )
        self._task = self._bar.add_task("", total=None, percent="", amounts="")
        return self._bar


class JsonLines:
    """One JSON object a line, for programs.

    Args:
        announced: True if the first step is there already.
    """

    def __init__(self, *, announced: bool = False) -> None:
        self.interval = JSON_SECONDS
        self._is_announced = announced

    def describe(self, text: str) -> None:
        """Print the text."""
        if not self._is_announced:
            print_event("status", text=text)
        self._is_announced = False

    def leave(self, kind: str, text: str) -> None:
        """Print the line."""
        print_event(kind, text=text)

    def update(self, snapshot: Snapshot) -> None:
        """Print the figures."""
        print_event("progress", **snapshot.to_json())

    def end_work(self) -> None:
        """Do nothing."""

    def end_stage(self, end: StageEnd) -> None:
        """Print the result of the stage."""
        print_event("stage", **end.to_json())

    def close(self) -> None:
        """Do nothing."""


def print_event(event: str, **values: Any) -> None:
    """Print an event as one line of JSON on standard error."""
    _print(json.dumps({"event": event, **values}))


def format_seconds(seconds: float) -> str:
    """Format a duration.

    >>> format_seconds(0.04), format_seconds(75), format_seconds(7500)
    ('0.0 s', '1 min 15 s', '2 h 5 min')
    """
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def show_token(token: bytes) -> str:
    """Return a token between quotes, escaped, and cut if it is long."""
    text = repr(token.decode("utf-8", "backslashreplace"))
    return visible(text if len(text) <= _LONGEST_TOKEN else f"{text[: _LONGEST_TOKEN - 2]}…'")


def _stage_keys(stage: Stage | None) -> dict[str, Any]:
    if stage is None:
        return {"stage": None, "number": None, "of": None}
    return {"stage": stage.name, "number": stage.number, "of": stage.of}


def _print(text: str) -> None:
    # One write, so that the lines of several threads do not mix.
    sys.stderr.write(visible(text) + "\n")
    sys.stderr.flush()
