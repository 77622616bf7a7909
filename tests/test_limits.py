"""A test without a mark that starts a process or a pipeline, or takes long, fails."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import limits
import pytest


class FakeTest:
    """Stands for a test with these marks."""

    def __init__(self, *marks: str) -> None:
        self._marks = marks

    def get_closest_marker(self, name: str) -> object:
        return name if name in self._marks else None


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    limits.forget_started()


def run(test: Any, what: str = "") -> None:
    limits.forget_started()
    with limits.limited(test):
        if what:
            limits.note_started(what)


@pytest.mark.parametrize(("what", "mark"), [(limits.BEAM, "beam"), (limits.PROCESS, "process")])
def test_what_a_test_starts_needs_a_mark(what: str, mark: str) -> None:
    with pytest.raises(pytest.fail.Exception, match=f"It starts {what}: mark it `{mark}`"):
        run(FakeTest("slow"), what)
    run(FakeTest(mark), what)
    limits.forget_started()


@pytest.mark.process
def test_processes_are_noticed() -> None:
    with pytest.raises(pytest.fail.Exception, match="starts a process"), limits.limited(FakeTest()):  # type: ignore[arg-type]
        subprocess.run([sys.executable, "-c", ""], check=True)


@contextmanager
def clocks() -> Iterator[dict[str, float]]:
    """The time that passed, that of processors used, and that of idle ones."""
    clocks = {"passed": 0.0, "used": 0.0, "idle": 0.0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "time", SimpleNamespace(monotonic=lambda: clocks["passed"]))
        patch.setattr(limits, "_processor_seconds", lambda: clocks["used"])
        patch.setattr(limits, "_idle_seconds", lambda: clocks["idle"])
        yield clocks


@pytest.mark.parametrize(("used", "idle"), [(3.5, 0.0), (0.0, 7.0)], ids=["at work", "asleep"])
def test_a_test_that_takes_long_needs_a_mark(used: float, idle: float) -> None:
    with clocks() as clock:
        failed = pytest.raises(pytest.fail.Exception, match=r"takes 3\.\d s, more than 3")
        with failed, limits.limited(FakeTest()):  # type: ignore[arg-type]
            clock.update(passed=3.6, used=used, idle=idle)
        with limits.limited(FakeTest("slow")):  # type: ignore[arg-type]
            clock.update(passed=7.2, used=2 * used, idle=2 * idle)


def test_what_others_do_on_a_loaded_machine_does_not_count() -> None:
    with clocks() as clock, limits.limited(FakeTest()):  # type: ignore[arg-type]
        clock.update(passed=20, used=2)
