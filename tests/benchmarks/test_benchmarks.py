from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from bpe_core import BPETokenizer
from pipelines.counting import shards

pytestmark = [pytest.mark.nightly, pytest.mark.process]

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
MODULES = ("corpora", "peers", "measure", "table", "fetch_code", "short", "batch", "run", "install")

# A question with sides that do as their names say.
QUESTION = """
from measure import Case, Outcome, script_main

def gives(value):
    return lambda case: Outcome({"step": 1.0}, lambda: {"ids": [1, value]}, {"step": 100})

def fails(case):
    raise ValueError("no such vocabulary")

SIDES = {"ours": gives(2), "same": gives(2), "other": gives(3), "failing": fails}

if __name__ == "__main__":
    script_main(SIDES)
"""


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    for module in MODULES:
        monkeypatch.delitem(sys.modules, module, raising=False)
    return importlib.import_module(name)


@pytest.fixture
def corpora(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load("corpora", monkeypatch)


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load("measure", monkeypatch)


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load("table", monkeypatch)


def results_with(*rows: dict[str, Any]) -> dict[str, Any]:
    machine = {"cpu": "a CPU", "cores": 2, "memory_gib": 8, "system": "Linux", "two_threads": 1.9}
    return {
        "machine": machine,
        "versions": {"python": "3.11"},
        "texts": {"prose": 64_000_000},
        "rows": list(rows),
    }


def row(**changes: Any) -> dict[str, Any]:
    side = {"median": 2.0, "lowest": 1.9, "highest": 2.5, "runs": 5, "mb_per_second": 32.0}
    comparison = {"against": "gigatoken", "of": "seconds", "ratio": 0.5}
    return {
        "question": "encode",
        "work": "encode | STEP",
        "text": "prose",
        "threads": 1,
        "unit": "MB/s",
        "headline": True,
        "sides": {"bpe-beam": side, "gigatoken": {**side, "median": 1.0, "mb_per_second": 64.0}},
        "comparisons": [{**comparison, "target": 1.5, "least": 1.1}],
        "limits": [],
        "same": {"gigatoken": None},
        "missing": {},
        "date": "2026-01-01",
        "load_before": 0.1,
        **changes,
    }


def line_with(text: str, page: str) -> str:
    (line,) = [line for line in page.splitlines() if text in line]
    return line


def test_pages_have_the_tables_of_the_results(table: ModuleType) -> None:
    results = json.loads(table.RESULTS.read_text())
    pages = table.pages(results)
    assert {path.name for path in pages} == {"README.md", "comparison.md"}
    for path, page in pages.items():
        assert path.read_text() == page, f"{path}: run `make bench`, or undo the edit"


def test_every_row_has_what_the_tables_are_made_of(table: ModuleType) -> None:
    results = json.loads(table.RESULTS.read_text())
    for found in results["rows"]:
        # Of some the cost of one item is told, too.
        assert found.keys() - {"items"} == row().keys()


def test_a_figure_that_misses_stands_in_the_table(table: ModuleType) -> None:
    page = table.render(results_with(row(same={"gigatoken": "ids differ from number 3 on"})))
    assert line_with("prose", page.split("\n\n", 2)[2]) == (
        "| encode \\| STEP | prose | 1 | 32 MB/s, 2 s ±15% | gigatoken | 64 MB/s, 1 s ±30% "
        "| 0.50 | 1.5 (1.1) | **missed** | ids differ from number 3 on |"
    )
    assert "Of 1 ratios, 0 meet their target" in page
    short = table.render_short(results_with(row()))
    assert line_with("prose", short).endswith("| 64 MB/s | 0.5 |")


def test_the_short_table_has_the_lowest_ratio_of_each_question(table: ModuleType) -> None:
    rows = [row(text="prose"), row(text="code"), row(question="load", work="load")]
    for found, ratio in zip(rows, (1.4, 1.2, 3.0), strict=True):
        found["comparisons"] = [{**found["comparisons"][0], "ratio": ratio}]
    short = table.render_short(results_with(*rows, row(question="learn", comparisons=[])))
    assert [line[-5:] for line in short.splitlines()[4:]] == ["1.2 |", "3.0 |"]
    assert "prose | 1" not in line_with("1.2", short)


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [(1.5, "met"), (1.499, "below target"), (1.1, "below target"), (1.099, "**missed**")],
)
def test_a_ratio_is_judged_by_target_and_least(
    ratio: float, verdict: str, table: ModuleType
) -> None:
    assert table.judge(ratio, 1.5, 1.1) == verdict


def test_few_samples_are_said_to_be_few(table: ModuleType) -> None:
    few = row()
    few["sides"]["bpe-beam"]["runs"] = 2
    assert "32 MB/s, 2 s ±15% (2 of 5 samples)" in table.render(results_with(few))
    assert "Provisional" in table.render_short(results_with(few))
    assert "Provisional" not in table.render_short(results_with(row()))


def test_a_limit_stands_with_what_was_found(table: ModuleType) -> None:
    limits = [
        {"of": "peak_bytes", "most": 5e8, "found": 6.1e8},
        {"of": "seconds", "most": 0.2, "found": 0.19},
    ]
    page = table.render(results_with(row(limits=limits)))
    assert "| 610 MB | 500 MB | **missed** |" in page
    assert "| 0.19 s | 0.20 s | met |" in page


def test_a_missing_peer_stands_in_the_table(table: ModuleType) -> None:
    alone = row(same={}, missing={"gigatoken": "not installed"})
    alone["comparisons"][0]["ratio"] = None
    del alone["sides"]["gigatoken"]
    page = table.render(results_with(alone))
    assert "| gigatoken | not installed |  | 1.5 (1.1) |" in page
    assert "Of 0 ratios," in page
    stated = row(comparisons=[], missing={"quicktok-v1": "not installed"}, same={"tiktoken": None})
    stated["sides"]["tiktoken"] = stated["sides"].pop("gigatoken")
    assert "| 64 MB/s, 1 s ±30% | not installed |" in table.render(results_with(stated))


def test_a_page_without_marks_is_refused(table: ModuleType) -> None:
    with pytest.raises(ValueError, match="benchmarks: begin"):
        table.with_table("no marks", "table")


@pytest.fixture
def question(
    measure: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> SimpleNamespace:
    script = tmp_path / "question.py"
    script.write_text(QUESTION)
    monkeypatch.setenv("PYTHONPATH", str(BENCHMARKS))
    return SimpleNamespace(__file__=str(script), __name__="question")


def measured(measure: ModuleType, question: SimpleNamespace, *sides: str) -> dict[str, Any]:
    targets = {side: [measure.Target(1.5, 1.1)] for side in sides[1:]}
    case = measure.Case(
        work="work, STEP", text="t", path="", bytes=9, threads=1, sides=sides, targets=targets
    )
    (found,) = measure.measure(question, case, 1)
    return found


def test_sides_with_the_same_result_are_compared(
    measure: ModuleType, question: SimpleNamespace
) -> None:
    found = measured(measure, question, "ours", "same", "other")
    assert found["work"] == "work, step"
    assert found["same"] == {
        "same": None,
        "other": "ids differ from number 1 on: 2 here, 3 there",
    }
    assert [item["ratio"] for item in found["comparisons"]] == [1.0, 1.0]


def test_a_peer_that_fails_is_missing_with_its_reason(
    measure: ModuleType, question: SimpleNamespace
) -> None:
    found = measured(measure, question, "ours", "failing", "same")
    assert found["missing"] == {"failing": "failed: ValueError: no such vocabulary"}
    assert [item["ratio"] for item in found["comparisons"]] == [None, 1.0]
    assert list(found["sides"]) == ["ours", "same"]


def test_a_peer_that_is_not_installed_is_missing(
    measure: ModuleType, question: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(measure.peers.MODULES, "same", "no_such_module")
    found = measured(measure, question, "ours", "same")
    assert found["missing"] == {"same": "not installed"}
    assert found["comparisons"][0]["ratio"] is None


def test_nothing_is_measured_when_ours_fails(
    measure: ModuleType, question: SimpleNamespace
) -> None:
    with pytest.raises(RuntimeError, match="no such vocabulary"):
        measured(measure, question, "failing", "same")


def test_rows_of_one_question_replace_its_rows_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = load("run", monkeypatch)
    monkeypatch.setattr(run.table, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(run.table, "pages", lambda results: {})
    text = run.corpora.Text("prose", "", 1)
    for question, rows in (("encode", 2), ("count", 1), ("encode", 1)):
        made = [row(question=question, work=f"{question} {i}") for i in range(rows)]
        run.save(question, made, [text], {})
    saved = json.loads((tmp_path / "results.json").read_text())
    assert [found["work"] for found in saved["rows"]] == ["count 0", "encode 0"]


def test_every_question_says_what_it_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    run = load("run", monkeypatch)
    text = run.corpora.Text("prose", str(BENCHMARKS / "README.md"), 1000)
    monkeypatch.setattr(run.corpora, "large", lambda texts: text)
    monkeypatch.setattr(run.corpora, "part_of", lambda text, limit: text)
    vocabularies = [run.corpora.Vocabulary(name, "", "gpt2") for name in ("r50k", "o200k")]
    monkeypatch.setattr(run.corpora, "vocabularies", lambda text: vocabularies)
    monkeypatch.setattr(run.pack, "_dataset", lambda *_: BENCHMARKS)  # of 1 G ids
    monkeypatch.setattr(run.pack, "_tokens", lambda directory: 1000)
    for question in run.QUESTIONS:
        for quick in (False, True):
            cases = list(question.cases([text], quick=quick))
            assert cases, question
            for case in cases:
                assert set(case.sides) <= question.SIDES.keys()
                assert case.targets.keys() <= {*case.sides, "gigatoken"}
                assert json.loads(case.to_json())["work"] == case.work


def test_the_corpus_has_each_content_once_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    fetch_code = load("fetch_code", monkeypatch)
    monkeypatch.setattr(fetch_code, "MAX_FILE_BYTES", 20)
    files = [b"one", b"", b"\xff not UTF-8", b"a<|endoftext|>b", b"one", b"x" * 21, b"two"]
    one, two = b"one<|endoftext|>", b"two<|endoftext|>"
    assert b"".join(fetch_code.corpus(files, 1000)) == one + two
    assert b"".join(fetch_code.corpus(files, len(one + two))) == one + two
    assert b"".join(fetch_code.corpus(files, len(one + two) - 1)) == one


def test_source_files_come_in_order_of_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fetch_code = load("fetch_code", monkeypatch)
    for name in ("b.py", "a/z.C", "c.txt", "a/d.rs", "e"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "link.py").symlink_to(tmp_path / "b.py")
    found = [path.relative_to(tmp_path).as_posix() for path in fetch_code.source_files(tmp_path)]
    assert found == ["a/d.rs", "a/z.C", "b.py"]


def test_fetching_says_what_is_missing_on_other_systems(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fetch_code = load("fetch_code", monkeypatch)
    monkeypatch.setattr(fetch_code, "CODE_CORPUS", tmp_path / "made" / "code.txt")
    monkeypatch.setattr(fetch_code, "python_sources", lambda: iter([b"x = 1"]))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit, match=r"apt-get, apt-cache, dpkg-deb not found") as stopped:
        fetch_code.main()
    assert "bench-data" in str(stopped.value)
    assert list((tmp_path / "made").iterdir()) == []


def test_the_script_beside_encode_writes_every_document(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("gigatoken")
    script = load("encode_to_parquet", monkeypatch)
    vocab, merges = {i: bytes([i]) for i in range(256)} | {256: b"ab"}, [(b"a", b"b")]
    BPETokenizer(vocab, merges, ["<|endoftext|>"]).save(tmp_path)
    (tmp_path / "text").write_bytes(b"abc<|endoftext|><|endoftext|>b ab<|endoftext|>" * 9 + b"end")
    monkeypatch.setattr(script, "PIECE_BYTES", 50)
    script.main(str(tmp_path / "tokenizer.json"), str(tmp_path / "text"), str(tmp_path))
    files = sorted(tmp_path.glob("*.parquet"))
    rows = pq.ParquetDataset(files).read().sort_by("offset").to_pylist()
    assert len(rows) == 19
    assert [row["input_ids"] for row in rows[:2]] == [[256, 99], [98, 32, 256]]
    assert [row["offset"] for row in rows[:3]] == [0, 29, 46]
    assert [row["num_bytes"] for row in rows[-2:]] == [4, 3]
    assert {(row["source"], row["part"]) for row in rows} == {("text", 0)}


def test_the_example_text_is_the_whole_corpus(corpora: ModuleType) -> None:
    text = corpora.example_text(corpora.ROOT / "examples" / "data")
    assert text.count(corpora.SEPARATOR) == 1189


@pytest.mark.parametrize("block", [1, 2, 13, 1000])
def test_documents_are_whole_wherever_blocks_end(
    block: int, corpora: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpora, "_BLOCK_BYTES", block)
    path = tmp_path / "text"
    path.write_bytes(b"one<|endoftext|><|endoftext|>two <|end<|endoftext|>three")
    assert list(corpora.documents(path)) == [b"one", b"two <|end", b"three"]


def test_documents_are_taken_evenly_from_all_of_a_text(corpora: ModuleType) -> None:
    documents = [b"%04d" % i for i in range(100)]
    one = 4 + len(corpora.SEPARATOR)
    taken = corpora.spread(documents, 100 * one, 20 * one)
    assert taken == b"".join(b"%04d<|endoftext|>" % i for i in range(0, 100, 5))
    assert corpora.spread(documents, 100 * one, 20 * one - 1).count(b"<") == 17  # every sixth
    assert corpora.spread([b"a" * 9, *documents], 100 * one, 50 * one).count(b"<") == 49


def test_the_first_difference_is_found(measure: ModuleType) -> None:
    same = {"ids": np.array([1, 2, 3]), "merges": [(b"a", b"b")]}
    assert measure.first_difference(same, {**same, "only there": [1]}) is None
    assert "number 1" in measure.first_difference(same, {"ids": np.array([1, 5, 3])})
    assert "2 there" in measure.first_difference(same, {"ids": np.array([1, 2])})
    assert "number 0" in measure.first_difference(same, {"merges": [(b"a", b"c")]})


def test_a_digest_is_of_the_values_whatever_their_type(measure: ModuleType) -> None:
    values = np.arange(1000)
    assert measure.digest(values.astype(np.uint16)) == measure.digest(values)
    assert measure.digest(values) != measure.digest(values[1:])
    assert measure.digest([b"a", b"b"]) != measure.digest([b"b", b"a"])


def test_strings_are_cut_between_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    short = load("short", monkeypatch)
    text = "aé漢😀" * 20
    strings = short.strings(text.encode(), 7, 5)
    assert text.startswith("".join(strings))
    assert all(7 <= len(string.encode()) <= 10 for string in strings)


def test_every_peer_is_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    install = load("install", monkeypatch)
    peers = load("peers", monkeypatch)
    lines = [*install.REQUIREMENTS.read_text().splitlines(), install.WITHOUT_DEPENDENCIES]
    pinned = {line.partition("==")[0] for line in lines if not line.startswith("#")}
    assert all("==" in line for line in lines if not line.startswith("#"))
    alone = install.WITHOUT_DEPENDENCIES.partition("==")[0]
    assert {*install.PEERS, alone} == peers.MODULES.keys() <= pinned


def test_the_installer_runs_before_anything_is_installed() -> None:
    without_packages = [sys.executable, "-S", "-c", "import install"]
    subprocess.run(without_packages, cwd=BENCHMARKS, check=True)


def test_a_peer_that_cannot_be_installed_is_named_and_passed_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install = load("install", monkeypatch)
    broken = "rustbpe"

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        failed = "--requirement" in command or command[-1].startswith(f"{broken}==")
        return subprocess.CompletedProcess(command, int(failed))

    monkeypatch.setattr(install.subprocess, "run", run)
    install.main()
    assert capsys.readouterr().out.startswith("rustbpe==0.1.0: can't be installed here")
    broken = "numpy"
    with pytest.raises(SystemExit, match="numpy"):
        install.main()


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


def test_the_page_about_scale_has_the_tables_of_what_was_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    extrapolate = load("extrapolate", monkeypatch)
    measured = json.loads((BENCHMARKS / "scale.json").read_text())
    assert extrapolate.render(measured) in extrapolate.PAGE.read_text("utf-8")


def test_the_page_about_runners_has_the_tables_of_what_was_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engines = load("engines", monkeypatch)
    measured = json.loads(engines.RESULTS.read_text("utf-8"))
    assert engines.render(measured) in engines.PAGE.read_text("utf-8")


def test_tables_about_scale_agree_on_what_was_measured() -> None:
    measured = json.loads((BENCHMARKS / "scale.json").read_text())
    for curve, runs, kept in zip(
        measured["heaps"], measured["runs"], measured["min_count"], strict=True
    ):
        whole = curve["points"][-1]
        assert curve["text"] == runs["text"] == kept["text"]
        assert whole["bytes"] == runs["bytes"]
        assert whole["distinct"] == runs["distinct"] == kept["rows"][0]["distinct"]
        assert list(whole["kept"].values()) == [row["distinct"] for row in kept["rows"]]


def test_what_is_fitted_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = load("scale_tables", monkeypatch)
    points = [{"bytes": 10**n, "distinct": 3 * 10 ** (0.5 * n)} for n in range(4, 9)]
    law = tables.Heaps.fitted(points)
    assert (law.k, law.beta) == pytest.approx((3, 0.5))
    assert law.size(law.distinct(10**12)) == pytest.approx(10**12)
    rows = [{"distinct": 10**n, "seconds": 2 * 10 ** (1.5 * n)} for n in range(3, 6)]
    assert tables.power(rows, "distinct", "seconds") == pytest.approx((2, 1.5))


def test_the_share_of_pretokens_kept_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = load("scale_tables", monkeypatch)
    shares = [tables.share_kept(0.7, min_count) for min_count in (1, 2, 3)]
    assert shares == pytest.approx([1, 0.3, 0.3 * (1 - 0.7 / 2)])


def test_a_full_table_becomes_a_run_and_is_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = load("scale_tables", monkeypatch)
    law = tables.Heaps(1, 0.5)  # a table of 100 entries is full after 10,000 bytes
    assert tables.runs_of_commit(law, 2_500, 100) == (1, pytest.approx(50))
    assert tables.runs_of_commit(law, 22_500, 100) == (3, pytest.approx(250))


@pytest.mark.parametrize(
    ("sections", "rounds"), [(1, 1), (256, 1), (257, 2), (65_536, 2), (65_537, 3)]
)
def test_sections_are_merged_in_rounds(
    sections: int, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = load("scale_tables", monkeypatch)
    assert tables.MERGED_AT_ONCE == shards.MERGED_AT_ONCE
    assert tables.rounds(sections) == rounds


def test_the_smallest_min_count_that_fits_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = load("scale_tables", monkeypatch)
    points = [{"bytes": 10**n, "distinct": 10 ** (0.5 * n)} for n in range(4, 9)]
    kept = [(1, 10_000), (2, 4_000), (5, 1_000)]
    rows = [{"min_count": m, "distinct": n, "distinct_bytes": 8 * n} for m, n in kept]
    times = {"seconds": 1, "read_seconds": 1, "filtered_seconds": 1}
    training = tables.Training(
        {
            "heaps": [{"text": "prose", "points": points}],
            "min_count": [{"text": "prose", "rows": rows}],
            "training": [{"distinct": n, **times} for n in (1, 10, 100)],
        }
    )
    assert training.kept("prose", 10**16, 2) == pytest.approx(0.4 * 10**8)
    memory = [training.memory("prose", 10**16, m) for m, _ in kept]
    assert memory == sorted(memory, reverse=True)
    fitting = [training.fitting("prose", 10**16, most) for most in (memory[0], memory[2], 1)]
    assert fitting == [1, 5, None]


def test_more_cores_are_worth_less_and_less(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = load("cores", monkeypatch).Measured
    free = measured(serial=0.0, work=8.0, locked=0.0)
    assert [free.seconds(workers) for workers in (1, 2, 8)] == [8.0, 4.0, 1.0]
    one = measured(serial=1.0, work=8.0, locked=1.0)
    assert one.seconds(1) == 9.0
    assert one.seconds(2) > 5.0  # sometimes a worker waits for the lock
    assert one.seconds(64) == pytest.approx(2.0)  # the lock is never free
    assert one.scaled(3).seconds(1) == 25.0
