"""`beam-bpe rejects`: rejects by reason and file, with examples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from build_support import command

from pipelines.batches import Reject
from pipelines.rejects import listing
from pipelines.rejects.listing import list_rejects
from pipelines.rejects.table import RejectFile
from pipelines.storage.directory import Directory


def reject(source: str, offset: int, reason: str = "missing_field") -> Reject:
    return Reject(
        source=source,
        offset=offset,
        length=9,
        reason=reason,
        message=f"the message of {offset}",
        first_bytes=b'{"a": 1}\xff',
    )


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """An output with rejects of two tasks."""
    directory = Directory(url=str(tmp_path / "out" / "rejects"))
    with RejectFile(directory, "00000-of-00002") as file:
        file.add([reject("web/a.jsonl", i) for i in range(5)])
        file.add([reject("web/b.jsonl", 7, "malformed_json")])
    with RejectFile(directory, "00001-of-00002") as file:
        file.add([reject("web/c.jsonl", i) for i in range(3)])
        file.add([reject("web/c.jsonl", 100, "damaged_file")])
    return tmp_path / "out"


def test_rejects_are_listed_by_reason_and_file_with_examples(output: Path) -> None:
    done = command("rejects", output, "--limit", "1")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[:5] == [
        "9 rejected documents, 1 unread rests of bad files",
        "",
        "missing_field: 8 (a record lacks a field of `input.text_field`)",
        "          5  web/a.jsonl",
        "          3  web/c.jsonl",
    ]
    assert lines[5] == (
        "  web/a.jsonl, document at offset 0: the message of 0; it begins '{\"a\": 1}\ufffd'"
    )
    assert any(line.startswith("malformed_json: 1 ") for line in lines)
    assert any(line.startswith("damaged_file: 1 ") for line in lines)


def test_rejects_are_printed_as_json(output: Path) -> None:
    found = json.loads(command("rejects", output, "--json").stdout)
    assert (found["documents"], found["unread_rests_of_files"]) == (9, 1)
    first = found["reasons"][0]
    assert (first["reason"], first["number"]) == ("missing_field", 8)
    assert first["files"][0] == {"source": "web/a.jsonl", "number": 5}
    assert [example["offset"] for example in first["examples"]] == [0, 1, 2]
    assert first["examples"][0]["excerpt"] == '{"a": 1}\ufffd'


def test_rejects_of_counting_are_not_listed_twice(output: Path) -> None:
    directory = Directory(url=str(output / "rejects"))
    with RejectFile(directory, "count-00000-of-00001") as file:
        file.add([reject("web/a.jsonl", i) for i in range(6)])
    with RejectFile(directory, "00002-of-00003") as file:
        file.add([reject("web/d.jsonl", 1), reject("web/d.jsonl", 2, "special_token")])
    found = {one.reason: one.number for one in list_rejects(directory, 1).reasons}
    assert found == {"missing_field": 6, "special_token": 1}


def test_files_beyond_a_number_are_counted_together(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_MOST_FILES", 1)
    first = list_rejects(Directory(url=str(output / "rejects")), 0).reasons[0]
    assert first.files == {"web/a.jsonl": 5, "(other files)": 3}
    assert first.examples == []


def test_an_output_without_rejects_says_so(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    done = command("rejects", tmp_path / "out")
    assert (done.returncode, done.stdout) == (0, f"no rejects in {tmp_path}/out/rejects\n")


def test_what_is_no_output_is_an_error(tmp_path: Path) -> None:
    done = command("rejects", tmp_path / "nowhere")
    assert done.returncode == 4
    assert "There is no output." in done.stderr


def test_a_damaged_file_of_rejects_is_named(output: Path) -> None:
    path = output / "rejects" / "00000-of-00002.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    done = command("rejects", output)
    assert done.returncode == 5
    assert str(path) in done.stderr
