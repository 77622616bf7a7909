from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module(name)


@pytest.fixture
def corpora(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load("corpora", monkeypatch)


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load("measure", monkeypatch)


def test_the_readme_has_the_table_of_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    table = load("table", monkeypatch)
    results = json.loads((BENCHMARKS / "results.json").read_text())
    readme = (BENCHMARKS / "README.md").read_text()
    assert readme == table.with_table(readme, results), "run `make bench`, or undo the edit"


def test_a_figure_that_misses_stands_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    table = load("table", monkeypatch)
    side = {"median": 2.0, "lowest": 1.9, "highest": 2.5, "runs": 5, "mb_per_second": 32.0}
    row: dict[str, Any] = {
        "work": "encode | STEP",
        "text": "prose",
        "threads": 1,
        "sides": {"bpe-beam": side, "gigatoken": {**side, "median": 1.0, "peak_bytes": 3_000_000}},
        "difference": "ids differ from number 3 on",
        "ratio": 0.5,
    }
    results = {
        "date": "2026-01-01",
        "machine": {
            "cpu": "a CPU",
            "cores": 2,
            "memory_gib": 8,
            "system": "Linux x86_64",
            "load_before": 0.1,
        },
        "versions": {"python": "3.11"},
        "texts": {"prose": 64_000_000},
        "rows": [row],
    }
    last = table.render(results).splitlines()[-1]
    assert last == (
        "| encode \\| STEP | prose | 1 | 32 MB/s (2.00 s, ±15%) | 32 MB/s (1.00 s, ±30%, 3 MB) "
        "| 0.50 | ids differ from number 3 on |  |"
    )


def test_source_text_is_the_same_whatever_the_order_of_files(
    corpora: ModuleType, tmp_path: Path
) -> None:
    files = {
        "b.py": b"second",
        "a/z.py": b"first",
        "c.py": b"second",  # again
        "d.py": b"\xff not UTF-8",
        "e.py": b"with <|endoftext|> in it",
        "f.txt": b"no source",
        "site-packages/g.py": b"an installed package",
    }
    made = []
    for number, names in enumerate((list(files), list(reversed(files)))):
        directory = tmp_path / str(number)
        for name in names:
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(files[name])
        made.append(corpora.source_text([directory], 1000))
    assert made[0] == made[1] == b"first<|endoftext|>second<|endoftext|>"


def test_source_text_takes_whole_files_up_to_the_limit(corpora: ModuleType, tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.py").write_bytes(name.encode() * 10)
    one = 10 + len(corpora.SEPARATOR)
    assert len(corpora.source_text([tmp_path], 2 * one)) == 2 * one
    assert len(corpora.source_text([tmp_path], 2 * one - 1)) == one


def test_the_example_text_is_the_whole_corpus(corpora: ModuleType) -> None:
    text = corpora.example_text(corpora.ROOT / "examples" / "data")
    assert text == corpora.example_text(corpora.ROOT / "examples" / "data")
    assert text.count(corpora.SEPARATOR) == 1189


def test_the_beginning_of_a_text_ends_with_a_document(corpora: ModuleType) -> None:
    text = b"one<|endoftext|>two<|endoftext|>three"
    assert corpora.beginning(text, 1000) == text
    assert corpora.beginning(text, 33) == b"one<|endoftext|>two<|endoftext|>"
    assert corpora.beginning(text, 31) == b"one<|endoftext|>"


def test_the_first_difference_is_found(measure: ModuleType) -> None:
    same = {"ids": np.array([1, 2, 3]), "merges": [(b"a", b"b")]}
    assert measure.first_difference(same, {**same, "only there": [1]}) is None
    assert "number 1" in measure.first_difference(same, {"ids": np.array([1, 5, 3])})
    assert "2 there" in measure.first_difference(same, {"ids": np.array([1, 2])})
    assert "number 0" in measure.first_difference(same, {"merges": [(b"a", b"c")]})


@pytest.mark.parametrize(
    ("log", "seconds"),
    [
        (b"Pretokenization took 41.427307ms\n", 0.041427307),
        ("x\nPretokenization took 310.5µs\nStarting merges\n".encode(), 0.0003105),
        (b"Pretokenization took 1.25s", 1.25),
    ],
)
def test_the_time_of_gigatokens_first_phase_is_read(
    log: bytes, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = load("peers", monkeypatch)
    assert peers.phase_seconds(log) == pytest.approx(seconds)
    with pytest.raises(RuntimeError, match="no time"):
        peers.phase_seconds(b"nothing")
