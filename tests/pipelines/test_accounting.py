"""Accounting: every document and every byte that goes in is found again, or the build fails."""

from __future__ import annotations

import copy
import gzip
import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from build_support import config_for

from pipelines import build
from pipelines.accounting import NUMBERS, check_accounts, planned_bytes
from pipelines.batches import DocumentBatch
from pipelines.config import BuildConfig
from pipelines.errors import AccountingError, OutputError, exit_code_of
from pipelines.readers import source_limits as limits
from pipelines.readers import tasks as work
from pipelines.stages import count as count_stage
from pipelines.tasks.listing import InputFile

LONG = b"a long document of many words " * 150_000  # above a piece
TEXTS = [b"document %d of some words" % i for i in range(60)]
END = "<|endoftext|>"


def write_sources(folder: Path) -> list[dict[str, Any]]:
    """A source of every form, with empty, bad, long and short documents in between."""
    texts = [*TEXTS[:20], b"", b"bad \xff", b"s", *TEXTS[20:], b"\xff" * 9, b""]
    long = [*texts[:30], LONG, b"long \xff" + LONG, *texts[30:]]
    files: dict[str, bytes] = {
        "several/a.txt": b"|".join(long),
        "several/b.txt": b"==".join(texts),
        "lines/a.txt": b"\n".join(texts),
        "files/a.txt": texts[0],
        "files/b.txt": LONG,
        "files/c.txt": b"bad \xff",
        "gzip/a.txt.gz": gzip.compress(END.encode().join(long), 1) + gzip.compress(b"more"),
        "jsonl/a.jsonl": b"{bad\n".join(_line(text) for text in texts) + b"\n  \n[]\n",
        "zstd/a.jsonl.zst": zstandard.compress(b"".join(_line(text) for text in texts)),
    }
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    table = pa.table({"text": pa.array([*texts, None], pa.binary())})
    for form in ("parquet", "arrow"):
        (folder / form).mkdir()
    pq.write_table(table, folder / "parquet" / "a", row_group_size=7)
    with pa.ipc.new_file(folder / "arrow" / "a", table.schema) as writer:
        writer.write_table(table, max_chunksize=7)
    keys: dict[str, dict[str, Any]] = {
        "several": {"separator": ["|", "=="], "range_bytes": 3_000_000},
        "lines": {"separator": "\n"},
        "files": {"separator": None},
        "gzip": {},
        "jsonl": {"format": "jsonl"},
        "zstd": {"format": "jsonl"},
        "parquet": {"format": "parquet"},
        "arrow": {"format": "arrow"},
    }
    return [
        {"name": name, "files": [f"{folder / name}/*"], "range_bytes": 900, **more}
        for name, more in keys.items()
    ]


def _line(text: bytes) -> bytes:
    shown = json.dumps(text.decode("latin-1"), ensure_ascii=False).encode("latin-1")
    return b'{"a": 1, "text": ' + shown + b"}\n"


def manifest_of(config: BuildConfig, stage: str) -> dict[str, Any]:
    path = Path(config.output_path) / stage / "manifest.json"
    manifest: dict[str, Any] = json.loads(path.read_text())
    return manifest


def configured(folder: Path, **selection: Any) -> BuildConfig:
    sources = [{**source, **selection} for source in write_sources(folder / "data")]
    return config_for(
        folder, input=sources, encode={"max_reject_fraction": 1.0, "validation_fraction": 0.2}
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> BuildConfig:
    config = configured(tmp_path_factory.mktemp("built"))
    build.build(config)
    return config


@pytest.mark.slow
def test_totals_add_up_in_every_form(built: BuildConfig) -> None:
    counts, tokens = manifest_of(built, "counts"), manifest_of(built, "tokens")
    assert counts["sources"] == tokens["sources"]
    of = {source["name"]: source for source in tokens["sources"]}
    for name in ("several", "lines", "files", "jsonl"):
        sizes = [file["size"] for file in tokens["inputs"] if file["name"].startswith(f"{name}/")]
        account = of[name]
        assert account["planned_bytes"] == sum(sizes)
        assert account["bytes"] + account["rejected_bytes"] + account["framing_bytes"] == sum(sizes)
    assert of["gzip"]["planned_bytes"] is None
    kept = len(TEXTS) + 1  # and "s"
    documents = {name: (source["documents"], source["rejected"]) for name, source in of.items()}
    assert documents == {
        "several": (2 * kept + 1, 5),
        "lines": (kept, 2),
        "files": (2, 1),
        "gzip": (kept + 2, 3),
        "jsonl": (kept, 2 + len(TEXTS) + 4 + 1),
        "zstd": (kept, 2),
        "parquet": (kept, 3),
        "arrow": (kept, 3),
    }
    rows = {name: source["rows"] for name, source in of.items()}
    assert rows["parquet"] == rows["arrow"] == kept + 2 + 3
    assert sum(rows.values()) == 2 * rows["arrow"]
    totals = tokens["totals"]
    assert totals["bytes"] == totals["text_bytes"]
    check_accounts(tokens)
    check_accounts(counts)


@pytest.mark.slow
@pytest.mark.parametrize(
    "selection",
    [
        {"limit_bytes": 1000, "min_chars": 5},
        {"limit_documents": 45, "sample_fraction": 0.7, "max_chars": 1000},
    ],
)
def test_counting_and_encoding_select_the_same(tmp_path: Path, selection: dict[str, Any]) -> None:
    config = configured(tmp_path, **selection)
    summary = build.build(config)
    counts, tokens = manifest_of(config, "counts"), manifest_of(config, "tokens")
    assert counts["corpus"] == tokens["corpus"]
    assert counts["sources"] == tokens["sources"]
    limit = selection.get("limit_documents")
    if limit:
        for source in tokens["sources"]:
            if source["name"] != "files":
                found = sum(source[n] for n in ("documents", "empty", "rejected", "not_selected"))
                assert found == limit
        assert summary.documents == 7 * limit + 3
    if "sample_fraction" in selection:
        assert summary.not_selected == tokens["totals"]["not_selected"] > 10
    several = [file for file in tokens["inputs"] if file["name"].startswith("several/")]
    assert [file["unread"] for file in several] == [
        False,
        bool(limit or "limit_bytes" in selection),
    ]


@pytest.mark.slow
def test_a_build_that_goes_on_does_not_look_for_limits_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configured(tmp_path, limit_documents=25)
    looked = []
    real = limits._Search.end

    def end(search: Any) -> Any:
        looked.append(search)
        return real(search)

    def fail(*_: Any) -> None:
        raise OutputError("The disk went away.")

    monkeypatch.setattr(limits._Search, "end", end)
    with monkeypatch.context() as patch:
        patch.setattr(count_stage, "counts_content", fail)
        with pytest.raises(OutputError):
            build.build(config)
    build.build(config)
    assert len(looked) == 8
    build.encode(config)
    assert len(looked) == 8
    plan = build.plan(config)
    assert (len(looked), plan.unread) == (8, 1)
    assert plan.selection["lines"] == {"limit_documents": 25}


# --- what does not add up


def _places(manifest: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Every number of a manifest that is accounted for, with what an error must name."""
    for file, name in itertools.product(manifest["inputs"], NUMBERS):
        yield file["name"].partition("/")[0], file, name
    for source, name in itertools.product(manifest["sources"], NUMBERS):
        yield source["name"], source, name
    for name in NUMBERS:
        yield "all sources", manifest["totals"], name
    for file in manifest["files"]["train"]:
        yield "token files", file, "documents"
        yield "token files", file, "text_bytes"
    for file in manifest["files"]["rejects"]:
        yield "files of rejects", file, "rows"


@pytest.mark.slow
def test_any_number_that_is_wrong_is_told_with_its_place(built: BuildConfig) -> None:
    manifest = manifest_of(built, "tokens")
    total = len(list(_places(manifest)))
    assert total > 200
    for index in range(total):
        wrong = copy.deepcopy(manifest)
        where, holder, name = next(itertools.islice(_places(wrong), index, None))
        holder[name] += 1
        with pytest.raises(AccountingError) as error:
            check_accounts(wrong)
        assert where in str(error.value)


@pytest.mark.slow
def test_a_file_and_its_source_that_are_both_short_are_told_by_the_file(
    built: BuildConfig,
) -> None:
    wrong = manifest_of(built, "tokens")
    file = next(file for file in wrong["inputs"] if file["name"] == "lines/a.txt")
    other = next(file for file in wrong["inputs"] if file["name"] == "several/a.txt")
    for account, change in ((file, -3), (other, 3)):
        account["framing_bytes"] += change
    with pytest.raises(AccountingError, match=r"input several/a\.txt|input lines/a\.txt"):
        check_accounts(wrong)


def test_damaged_files_are_excepted(built: BuildConfig) -> None:
    manifest = manifest_of(built, "tokens")
    label = "lines/a.txt"
    file = next(file for file in manifest["inputs"] if file["name"] == label)
    source = next(source for source in manifest["sources"] if source["name"] == "lines")
    for account in (file, source, manifest["totals"]):
        account["framing_bytes"] -= 3
    with pytest.raises(AccountingError, match="input lines"):
        check_accounts(manifest)
    file["bad"] = True
    source["bad_files"] = manifest["totals"]["bad_files"] = [label]
    check_accounts(manifest)


@pytest.mark.parametrize(
    ("module", "label", "change", "named"),
    [
        ("counting.commits", "lines/b.txt", {"framing_bytes": 0}, "source lines"),
        ("writing.tasks", "lines/b.txt", {"framing_bytes": 0}, "input lines/b.txt"),
        ("writing.tasks", "rows/a", {"rows": 7}, "input rows/a"),
    ],
)
def test_a_build_that_loses_something_fails_and_names_it(
    tmp_path: Path,
    module: str,
    label: str,
    change: dict[str, int],
    named: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = tmp_path / "data"
    (data / "lines").mkdir(parents=True)
    for name in "abc":
        (data / "lines" / f"{name}.txt").write_bytes(b"\n".join(TEXTS))
    (data / "rows").mkdir()
    pq.write_table(pa.table({"text": [t.decode() for t in TEXTS]}), data / "rows" / "a")
    sources = [
        {"name": "lines", "files": [f"{data}/lines/*"], "separator": "\n"},
        {"name": "rows", "files": [f"{data}/rows/*"], "format": "parquet"},
    ]
    config = config_for(tmp_path, input=sources)
    real = work.read_task

    def read_task(*arguments: Any) -> Iterator[DocumentBatch]:
        for batch in real(*arguments):
            yield replace(batch, **change) if batch.source == label else batch

    monkeypatch.setattr(f"pipelines.{module}.read_task", read_task)
    with pytest.raises(AccountingError) as error:
        build.build(config)
    assert named in str(error.value)
    assert exit_code_of(error.value) == 11
    stage = {"counting.commits": "counts", "writing.tasks": "tokens"}[module]
    assert not (tmp_path / "out" / stage / "manifest.json").exists()


@pytest.mark.parametrize(
    ("change", "form", "expected"),
    [
        ({}, "text", 100),
        ({"stop": 40}, "text", 40),
        ({"stop": 0}, "jsonl", 0),
        ({"compression": "gzip"}, "text", None),
        ({"compression": "gzip", "stop": 40}, "text", 40),
        ({"stop": 4}, "parquet", None),
    ],
)
def test_what_is_planned_to_be_read(
    change: dict[str, Any], form: str, expected: int | None
) -> None:
    file = InputFile(
        source=0, source_name=None, url="a", name="a", size=100, version_tag="", compression=None
    )
    assert planned_bytes(replace(file, **change), form) == expected
