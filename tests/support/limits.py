"""Limits for tests without a mark: no Beam pipeline, no process, at most 3 seconds."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

SECONDS: Final = 3.0
BEAM: Final = "a Beam pipeline"
PROCESS: Final = "a process"

_PROCESS_EVENTS: Final = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn"}
_MARKERS: Final = {BEAM: "beam", PROCESS: "process"}
_STATISTICS: Final = Path("/proc/stat")
_started: dict[str, str] = {}


def note_started(kind: str, name: str) -> None:
    """Record that the running test has started `BEAM` or `PROCESS`, and its name."""
    _started[kind] = name


def watch_processes() -> None:
    """Record every process that Python starts, permanently."""

    def note(event: str, arguments: tuple[object, ...]) -> None:
        if event in _PROCESS_EVENTS:
            note_started(PROCESS, " ".join(map(str, arguments[:2])))

    sys.addaudithook(note)


@contextmanager
def limited(test: pytest.Item) -> Iterator[None]:
    """Fail a test whose block exceeds a limit that it has no mark for.

    The time that passes counts as far as the test uses a processor, or one is idle: what others
    do on a loaded machine makes no test fail.
    """
    begun, used, idle = time.monotonic(), _processor_seconds(), _idle_seconds()
    yield
    for kind, name in list(_started.items()):
        if test.get_closest_marker(_MARKERS[kind]) is None:
            pytest.fail(f"It starts {kind} ({name}): mark it `{_MARKERS[kind]}`, or do without.")
    counted = _processor_seconds() - used + _idle_seconds() - idle
    seconds = min(time.monotonic() - begun, counted)
    if seconds > SECONDS and test.get_closest_marker("slow") is None:
        pytest.fail(
            f"It takes {seconds:.1f} s, more than {SECONDS:.0f}: make it shorter, mark it `slow`, "
            "or, if not every change needs it, `nightly`."
        )


def forget_started() -> None:
    """Forget the processes and pipelines of earlier tests."""
    _started.clear()


def _processor_seconds() -> float:
    """Return the processor seconds of this process and of its finished children."""
    own, children = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def _idle_seconds() -> float:
    """Return the summed idle seconds of all processors, or 0 if unknown."""
    if not _STATISTICS.exists():
        return 0.0
    ticks = _STATISTICS.read_text().split("\n", 1)[0].split()
    return int(ticks[4]) / os.sysconf("SC_CLK_TCK")
