from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def long_run(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("long_run")


def samples(long_run: ModuleType, **series: list[int]) -> list[Any]:
    """Nine samples, all 100 but for what is given."""
    names = [field.name for field in long_run.fields(long_run.Sample)]
    given = {name: series.get(name, [100] * 9) for name in names}
    return [long_run.Sample(**{name: given[name][i] for name in names}) for i in range(9)]


@pytest.mark.parametrize(
    "series",
    [
        {"memory": [50, 80, 90, 100, 120, 100, 104, 130, 104]},  # a start, and peaks
        {"open_files": [7, 11, 7, 11, 7, 7, 11, 11, 7]},  # some are just being closed
    ],
)
def test_a_start_and_peaks_are_no_growth(
    long_run: ModuleType, series: dict[str, list[int]]
) -> None:
    assert long_run.find_growth(samples(long_run, **series)) == []


@pytest.mark.parametrize(
    ("series", "expected"),
    [
        ({"memory": [*range(100, 190, 10)]}, "memory grew from 130 to 160"),
        ({"threads": [1, 1, 1, 1, 1, 1, 2, 2, 2]}, "threads grew from 1 to 2"),
        ({"temporary_files": [0, 0, 0, 0, 0, 0, 1, 1, 1]}, "temporary_files grew from 0 to 1"),
    ],
)
def test_growth_is_reported(
    long_run: ModuleType, series: dict[str, list[int]], expected: str
) -> None:
    assert long_run.find_growth(samples(long_run, **series)) == [expected]


@pytest.mark.soak
@pytest.mark.parametrize("options", [[], ["--commands"]], ids=["process", "commands"])
def test_nothing_grows_in_some_minutes(options: list[str], tmp_path: Path) -> None:
    program = [sys.executable, str(BENCHMARKS / "long_run.py"), str(tmp_path / "run")]
    done = subprocess.run([*program, "--seconds", "180", *options], capture_output=True, text=True)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
