"""`beam-bpe inspect` and `report` show what is in a dataset, and nothing a terminal would obey."""

from __future__ import annotations

import io
import json
import re
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from build_support import command, some_text, with_small_pieces
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from bpe_core.visible_text import visible
from pipelines import build
from pipelines.config import BuildConfig
from pipelines.dataset import report
from pipelines.dataset.inspection import Document, Inspector, show_document, show_hits
from pipelines.dataset.reading import TokenDataset
from pipelines.errors import ConfigError, InputError
from pipelines.storage.directory import Directory
from pipelines.verification.verify import verify

END = "<|endoftext|>"
LONG = ("the cat sat on a mat, " * 900 + "needle and thread. ").encode() * 3
EVIL = "title \x1b]0;owned\x07 \x1b[31mred \u202egnp.exe \x00 naïve 漢字 😀😁\r\n".encode()
BOOKS = [*some_text(30), EVIL, LONG, b"needle " * 4]
RECORDS = [{"id": f"r{i}", "text": f"record {i} has a needle in it"} for i in range(20)]


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inspect")
    (folder / "books.txt").write_bytes(END.encode().join(BOOKS))
    (folder / "web.jsonl").write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    (folder / "bad.txt").write_bytes(b"not \xff UTF-8")
    config = BuildConfig.model_validate(
        {
            "output": str(folder / "out"),
            "input": [
                {"name": "books", "files": [str(folder / "b*.txt")], "range_bytes": 9000},
                {"name": "web", "files": [str(folder / "*.jsonl")], "format": "jsonl",
                 "id_field": "id"},
            ],
            "tokenizer": {"vocab_size": 340, "min_frequency": 3, "special_tokens": [END]},
            "counts": {"shards": 1},
            "encode": {"append": END, "validation_fraction": 0.2, "max_reject_fraction": 0.5},
            "beam": {"workers": 1},
        }
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        from pipelines.stages import jobs

        readings = jobs.source_readings
        patch.setattr(
            jobs,
            "source_readings",
            lambda *args, **kwargs: with_small_pieces(
                readings(*args, **kwargs), piece_bytes=4096, read_bytes=8192
            ),
        )
        build.build(config)
    return folder / "out"


@pytest.fixture(scope="module")
def inspector(output: Path) -> Inspector:
    dataset = TokenDataset.open(str(output))
    return Inspector(dataset, dataset.find_model())


def text_of(document: Document) -> bytes:
    return b"".join(document.shown).removesuffix(END.encode())


def printed(document: Document, **options: Any) -> str:
    stream = io.StringIO()
    show_document(document, Console(file=stream, width=80, **options))
    return stream.getvalue()


# --- finding


@pytest.mark.slow
def test_rows_are_numbered_in_the_order_of_a_split(inspector: Inspector, output: Path) -> None:
    dataset = TokenDataset.open(str(output))
    found: list[bytes] = []
    for split in ("train", "validation"):
        row = 0
        while row < dataset.num_rows(split):
            document = inspector.read(inspector.at_row(split, row), 10**6)
            assert document.number == row
            found.append(text_of(document))
            row += document.parts
        with pytest.raises(ConfigError, match=f"a row of {split}, 0 to {row - 1:,}"):
            inspector.at_row(split, row)
    assert sorted(found) == sorted([*BOOKS, *(record["text"].encode() for record in RECORDS)])


@pytest.mark.slow
def test_a_row_in_the_middle_shows_the_whole_document(inspector: Inspector) -> None:
    offset = sum(len(document) + len(END) for document in BOOKS[:31])
    document = inspector.read(inspector.with_name(f"books/books.txt:{offset}"), 10**6)
    assert document.parts > 2
    assert (document.num_bytes, text_of(document)) == (len(LONG), LONG)
    middle = inspector.at_row(document.place.file.split, document.number + document.parts - 1)
    assert inspector.read(middle, 10**6) == document
    assert document.tokens == len(document.shown)
    assert inspector.read(middle, 3).shown == document.shown[:3]


@pytest.mark.slow
def test_documents_are_found_by_place_and_by_their_own_id(inspector: Inspector) -> None:
    for record in RECORDS:
        document = inspector.read(inspector.with_name(record["id"]), 1000)
        assert (document.record_id, text_of(document).decode()) == (record["id"], record["text"])
        place = f"{document.source}:{document.offset}"
        assert inspector.read(inspector.with_name(place), 1000) == document
    for name in ("r99", "books/books.txt:1", "books/other.txt:0", "", ":", "x:1"):
        with pytest.raises(ConfigError, match="no such document"):
            inspector.with_name(name)


# --- searching


@pytest.mark.parametrize(
    "text", ["needle", "e", "cat sat", "mat, the cat", "漢字", "\x1b[31m", END]
)
def test_a_search_finds_what_the_texts_hold(inspector: Inspector, text: str) -> None:
    texts = [*BOOKS, *(record["text"].encode() for record in RECORDS)]
    texts = [document + END.encode() for document in texts]
    counts = [document.count(text.encode()) for document in texts]
    found = inspector.search(text, 5)
    assert (found.matches, found.documents) == (sum(counts), sum(map(bool, counts)))
    assert len(found.hits) == min(5, sum(counts))
    for hit in inspector.search(text, 10**6).hits:
        around = (hit.before + text + hit.after).encode()
        assert any(around in document for document in texts)


def test_a_search_does_not_look_beyond_a_document(inspector: Inspector) -> None:
    first, second = (document.decode() for document in BOOKS[:2])
    assert inspector.search(first[-5:] + END + second[:5], 1).matches == 0
    assert inspector.search("nowhere in the corpus", 1).matches == 0


# --- showing


@given(st.one_of(st.text(), st.binary()))
def test_what_is_shown_has_no_control_characters(text: str | bytes) -> None:
    shown = visible(text)
    assert not re.search(
        r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]", shown
    )
    shown.encode()  # no lone surrogates


def test_a_document_can_not_write_to_the_terminal(inspector: Inspector) -> None:
    offset = sum(len(document) + len(END) for document in BOOKS[:30])
    document = inspector.read(inspector.with_name(f"books/books.txt:{offset}"), 1000)
    plain = printed(document)
    assert "\x1b" not in plain and "\u202e" not in plain
    assert r"\x1b]0;owned\x07 \x1b[31mred \u202egnp.exe \x00 naïve 漢字 😀😁\x0d" in plain
    coloured = printed(document, force_terminal=True, color_system="standard")
    assert "\u202e" not in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured).count("\x1b") == 0
    assert "]0;owned" in re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    stream = io.StringIO()
    show_hits(inspector.search("red ", 5), "red ", Console(file=stream, width=80))
    assert "\x1b" not in stream.getvalue()


def test_tokens_have_visible_boundaries_with_and_without_colours(inspector: Inspector) -> None:
    document = inspector.read(inspector.with_name("r3"), 1000)
    tokens = [token.decode() for token in document.shown]
    plain = printed(document)
    ids = " ".join(map(str, document.ids))
    assert plain.endswith(f"tokens\n{'│'.join(tokens)}\n\nids\n{ids}\n")
    assert "id        r3\n" in plain
    coloured = printed(document, force_terminal=True, color_system="standard").splitlines()[-4]
    pieces = re.findall(r"\x1b\[([0-9;]+)m(.*?)\x1b\[0m", coloured)
    assert [text for _, text in pieces] == tokens
    assert all(a != b for (a, _), (b, _) in pairwise(pieces))
    without = printed(document, force_terminal=True, color_system="standard", no_color=True)
    assert "│".join(tokens) in re.sub(r"\x1b\[[0-9;]*m", "", without)


def test_parts_of_characters_are_shown_as_bytes(inspector: Inspector) -> None:
    offset = sum(len(document) + len(END) for document in BOOKS[:30])
    document = inspector.read(inspector.with_name(f"books/books.txt:{offset}"), 1000)
    assert b"\xf0" in document.shown
    assert r"\xf0│\x9f│" in printed(document)
    assert "😁" in printed(document)
    assert "… and 4 more tokens" in printed(inspector.read(document.place, document.tokens - 4))


# --- the report


def test_the_report_says_what_the_dataset_is(output: Path) -> None:
    dataset = TokenDataset.open(str(output))
    model = dataset.find_model()
    found = report.report(dataset, model)
    json.dumps(found)
    assert found["totals"]["documents"] == len(BOOKS) + len(RECORDS)
    assert found["rejects"] == {"invalid_utf8": 1}
    assert [(s["name"], s["files"], s["documents"]) for s in found["sources"]] == [
        ("books", 2, len(BOOKS)),
        ("web", 1, len(RECORDS)),
    ]
    assert sum(s["tokens"] for s in found["sources"]) == found["totals"]["tokens"]
    assert sum(s["documents"] for s in found["splits"]) == found["totals"]["documents"]
    for name in ("tokens_per_document", "bytes_per_token"):
        for key in ("documents", "tokens", "bytes"):
            assert sum(bucket[key] for bucket in found[name]) == found["totals"][key]
    vocabulary = found["vocabulary"]
    assert vocabulary["used"] + vocabulary["unused"] == found["tokenizer"]["ids"]
    assert len(vocabulary["unused_ids"]) == vocabulary["unused"] > 0
    offset = sum(len(document) + len(END) for document in BOOKS[:31])
    longest = found["longest"][0]
    assert (longest["file"], longest["offset"]) == ("books/books.txt", offset)
    assert longest["bytes"] == len(LONG)
    assert [run["stage"] for run in found["runs"]] == ["counts", "tokenizer", "tokens"]
    assert found["runs"][2]["metrics"]["tokens"] == found["totals"]["tokens"]
    text = report.shown(found, model)
    assert "\x1b" not in text
    for part in (
        "53 kept",
        "1 rejected",
        "invalid_utf8",
        "books",
        "web",
        "ids are used",
        "longest",
        "    encode  ",
    ):
        assert part in text


def test_the_report_leaves_out_runs_that_nothing_whole_tells_of(
    output: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "out"
    shutil.copytree(output, copy)
    for stage in ("counts", "tokenizer", "tokens"):
        (copy / stage / "run.json").write_text('{"metrics": 3}')
    dataset = TokenDataset.open(str(copy))
    model = dataset.find_model()
    found = report.report(dataset, model)
    assert found["runs"] == []
    assert "last runs" not in report.shown(found, model)


def test_pieces_of_documents_are_whole_to_verify(output: Path) -> None:
    assert verify(Directory(url=str(output))).problems == []


# --- the commands


@pytest.mark.slow
def test_the_commands_show_and_say_what_is_wrong(output: Path) -> None:
    done = command("inspect", output, "--doc", "r7")
    assert (done.returncode, done.stderr) == (0, "")
    assert "source    web/web.jsonl, offset " in done.stdout
    assert f"file      {output.parent}/web.jsonl" in done.stdout
    done = command("inspect", output, "--grep", "needle", "--limit", "2")
    assert done.stdout.endswith("27 matches in 22 documents; the first 2 are shown\n")
    done = command("inspect", output, "--grep", "needle", "--row", "2")
    assert done.returncode == ConfigError.exit_code
    assert "one of --row N, --doc ID, --random" in done.stderr
    done = command("report", output, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["totals"]["documents"] == 53


def test_what_an_older_format_does_not_say_is_an_error_without_a_traceback(
    output: Path, tmp_path: Path
) -> None:
    older = tmp_path / "out"
    shutil.copytree(output, older)
    manifest = json.loads((older / "tokens/manifest.json").read_text())
    sizes = {file["name"]: file["size"] for file in manifest["inputs"]}
    (older / "tokens/manifest.json").write_text(
        json.dumps({**manifest, "format": 1, "inputs": sizes})
    )
    done = command("inspect", older, "--row", "0")
    assert (done.returncode, done.stderr) == (0, "")
    for arguments in (("inspect", older, "--doc", "r7"), ("report", older)):
        done = command(*arguments)
        assert done.returncode == InputError.exit_code
        assert done.stderr.startswith("error: The dataset was made by an older version")
        assert "found: format 1" in done.stderr


def test_buckets_of_a_histogram_do_not_overlap() -> None:
    def bucket(at_least: float, below: float | None) -> dict[str, Any]:
        return {"at_least": at_least, "below": below, "documents": 1}

    lengths = [bucket(0, 1), bucket(1, 2), bucket(2, 4), bucket(4, 8), bucket(1024, 2048)]
    lines = report._histogram(lengths, report._numbers)
    labels = [line.rpartition("  1  ")[0].strip() for line in lines]
    assert labels == ["0", "1", "2 to 3", "4 to 7", "1,024 to 2,047"]
    lines = report._histogram([bucket(3.75, 4), bucket(16, None)], report._ratios)
    labels = [line.rpartition("  1  ")[0].strip() for line in lines]
    assert labels == ["3.75 to below 4.00", "16.00 or more"]
