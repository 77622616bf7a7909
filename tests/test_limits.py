"""A test without a mark that starts a process or a pipeline, or takes long, fails."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
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


@pytest.mark.parametrize(("used", "stalled"), [(3.5, 9.0), (0.0, 0.0)], ids=["at work", "asleep"])
def test_a_test_that_takes_long_needs_a_mark(
    used: float, stalled: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks = {"_processor_seconds": used, "_stalled_seconds": stalled}

    def pass_time() -> None:
        for name, seconds in clocks.items():
            monkeypatch.setattr(limits, name, lambda seconds=seconds: seconds)
        monkeypatch.setattr(limits.time, "monotonic", lambda: 9.0)

    def run_long(test: Any) -> None:
        for name in clocks:
            monkeypatch.setattr(limits, name, lambda: 0.0)
        monkeypatch.setattr(limits.time, "monotonic", lambda: 0.0)
        with limits.limited(test):
            pass_time()

    with pytest.raises(pytest.fail.Exception, match="more than 3"):
        run_long(FakeTest())
    run_long(FakeTest("slow"))
    monkeypatch.undo()


def test_on_a_loaded_machine_the_time_is_that_of_the_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = {"time": 0.0}
    monkeypatch.setattr(limits.time, "monotonic", lambda: clock["time"])
    monkeypatch.setattr(limits, "_stalled_seconds", lambda: clock["time"])
    monkeypatch.setattr(limits, "_processor_seconds", lambda: clock["time"] / 10)
    with limits.limited(FakeTest()):  # type: ignore[arg-type]
        clock["time"] = 20.0
    monkeypatch.undo()
