"""Faults of a machine, at a random moment of a command that runs in a forked process.

The process is killed without any cleanup, its disk is full or fails, an input changes below it, its
clock jumps, its bundles are repeated, or another command does the same beside it. All of it happens
at an event that Python's audit hooks report: the n-th file that is opened, renamed or removed.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest import mock

import inline_runner

from bpe_core.errors import BpeError
from pipelines.stages.context import BuildContext

KINDS: Final = ("kill", "full", "error", "change", "clock", "repeat", "slow", "two")
_EVENTS: Final = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}
_KILLED: Final = 137
_SECONDS: Final = 120.0


@dataclass(frozen=True)
class Fault:
    """Fault of a kind at the n-th event; `seed` decides on the rest."""

    kind: str
    moment: int
    seed: int


@dataclass(frozen=True)
class Ended:
    """End of a command: "done", "killed", or the name of an error of ours, and its message."""

    how: str
    message: str = ""


class UnexpectedEnd(AssertionError):
    """A command that ended with a traceback, or did not end."""


def run_with(fault: Fault, command: Callable[[], object], folder: Path) -> Ended:
    """Run a command with a fault. `folder` contains its input, `data`, and its output.

    Raises:
        UnexpectedEnd: It ended neither well nor with an error of ours, or not at all.
    """
    first = _fork(fault, command, folder)
    second = _fork(fault, command, folder) if fault.kind == "two" else None
    ended = _wait(*first)
    if second is not None:
        _wait(*second)
    return ended


def _fork(fault: Fault, command: Callable[[], object], folder: Path) -> tuple[int, int]:
    """Return the process id of the command, and where its end is reported."""
    reading, writing = os.pipe()
    process = os.fork()
    if process:
        os.close(writing)
        return process, reading
    ended: dict[str, str] = {"how": "unexpected", "message": ""}
    try:
        signal.alarm(int(_SECONDS))
        gc.disable()
        with _Injection(fault, folder):
            command()
        ended = {"how": "done", "message": ""}
    except BpeError as error:
        ended = {"how": type(error).__name__, "message": str(error)}
    except BaseException:
        ended["message"] = traceback.format_exc()
    finally:
        sys.stderr.flush()
        os.write(writing, json.dumps(ended).encode()[:60_000])
        os._exit(0)


def _wait(process: int, reading: int) -> Ended:
    with os.fdopen(reading, "rb") as pipe:
        report = pipe.read()
    _, status = os.waitpid(process, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == _KILLED:
        return Ended("killed")
    if code or not report:
        raise UnexpectedEnd(f"the command ended with {code}")
    ended = Ended(**json.loads(report))
    if ended.how == "unexpected":
        raise UnexpectedEnd(ended.message)
    return ended


class _Injection:
    """Context in which a fault happens at its moment."""

    def __init__(self, fault: Fault, folder: Path) -> None:
        self._fault = fault
        self._folder = str(folder)
        self._random = random.Random(fault.seed)
        self._events = 0
        self._is_inside = False
        self._patches: list[Any] = []

    def __enter__(self) -> None:
        if self._fault.kind == "clock":
            self._patches.append(mock.patch("time.time", self._jumping(time.time)))
        if self._fault.kind == "repeat":
            do = inline_runner._Pipeline._do
            # The runner whose threads share a queue of tasks repeats no bundle.
            self._patches.append(mock.patch.object(BuildContext, "threads", None))
            self._patches.append(
                mock.patch.object(inline_runner._Pipeline, "_do", self._repeating(do))
            )
        for patch in self._patches:
            patch.start()
        sys.addaudithook(self._note)

    def __exit__(self, *_: object) -> None:
        self._is_inside = True  # the hook stays, but does nothing

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _EVENTS or self._is_inside or not arguments:
            return
        path = os.fspath(arguments[0]) if isinstance(arguments[0], (str, os.PathLike)) else ""
        if not str(path).startswith(self._folder):
            return
        self._events += 1
        self._is_inside = True
        try:
            self._happen(str(path), writes=event == "open" and _is_for_writing(arguments))
        finally:
            self._is_inside = False

    def _happen(self, path: str, *, writes: bool) -> None:
        kind, moment = self._fault.kind, self._fault.moment
        is_output = f"{self._folder}/data" not in path
        if kind == "slow":
            time.sleep(self._random.choice([0, 0, 0.002]))
        elif kind == "kill" and self._events == moment:
            os._exit(_KILLED)
        elif kind == "full" and self._events >= moment and is_output and writes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        elif kind == "error" and self._events == moment:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        elif kind == "change" and self._events == moment:
            files = sorted(Path(self._folder, "data").iterdir())
            with self._random.choice(files).open("ab") as file:
                file.write(b"more")

    def _jumping(self, real: Callable[[], float]) -> Callable[[], float]:
        offset = 0.0

        def jumping() -> float:
            nonlocal offset
            if self._random.random() < 0.2:
                offset += self._random.choice([-86_400, -60, 60, 3_600, 86_400])
            return real() + offset

        return jumping

    def _repeating(self, do: Callable[..., Any]) -> Callable[..., Any]:
        """Process some bundles to a random point, drop their results, and process them again."""

        def repeating(pipeline: Any, step: Any, elements: list[Any]) -> Any:
            if self._random.random() < 0.5:
                results = do(pipeline, step, elements)
                for _ in range(self._random.randrange(4)):
                    next(results, None)
                results.close()
            yield from do(pipeline, step, elements)

        return repeating


def _is_for_writing(arguments: tuple[Any, ...]) -> bool:
    """Return True for the arguments of `open`, path, mode and flags, of a file to write."""
    return bool(arguments[2] & (os.O_WRONLY | os.O_RDWR))
