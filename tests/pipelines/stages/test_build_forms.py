"""Whole builds from JSON lines, Parquet and Arrow files beside text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
import zstandard
from build_support import command, config_for, some_text

from pipelines import build
from pipelines.errors import InputError
from pipelines.tasks.listing import list_files
from pipelines.tasks.plan import plan_tasks

DOCUMENTS = [text.decode() for text in some_text(40)]
DOCUMENTS[3] = ""
KEYS = [f"key {i}" for i in range(len(DOCUMENTS))]


def write_forms(data: Path) -> list[dict[str, Any]]:
    """The same documents in every form; the sources to read them."""
    data.mkdir(parents=True)
    (data / "a.txt").write_text("<end>".join(DOCUMENTS[:20]) + "|\n")
    (data / "b.txt").write_text("|\n".join(DOCUMENTS[20:]))
    records = [
        {"meta": {"key": key}, "text": text} for key, text in zip(KEYS, DOCUMENTS, strict=True)
    ]
    lines = "".join(json.dumps(record) + "\n" for record in records).encode()
    (data / "c.jsonl").write_bytes(lines)
    (data / "d.jsonl.zst").write_bytes(zstandard.compress(lines))
    table = pa.table({"key": range(len(DOCUMENTS)), "body": DOCUMENTS})
    pq.write_table(table, data / "e.parquet", row_group_size=7)
    with pa.ipc.new_file(data / "f.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=7)
    with pa.ipc.new_stream(data / "g.arrow", table.schema) as writer:
        writer.write_table(table)
    record = {"format": "jsonl", "id_field": "meta.key"}
    column = {"text_field": "body", "id_field": "key"}
    return [
        {"name": "text", "files": ["*.txt"], "separator": ["<end>", "|\n"]},
        {"name": "lines", "files": ["c.jsonl"], **record},
        {"name": "compressed", "files": ["d.jsonl.zst"], **record},
        {"name": "table", "files": ["e.parquet"], "format": "parquet", **column},
        {"name": "batches", "files": ["f.arrow"], "format": "arrow", **column},
        {"name": "stream", "files": ["g.arrow"], "format": "arrow", **column},
    ]


def token_rows(output: Path, split: str = "train") -> dict[str, list[dict[str, Any]]]:
    """The rows of all token files, by source."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for path in sorted((output / "tokens").glob(f"{split}-*.parquet")):
        for row in pq.read_table(path).to_pylist():
            rows.setdefault(row["source"].partition("/")[0], []).append(row)
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("range_bytes", [600, 1 << 20])
def test_every_form_gives_the_same_rows_in_one_build(tmp_path: Path, range_bytes: int) -> None:
    sources = write_forms(tmp_path / "data")
    for source in sources:
        source["files"] = [str(tmp_path / "data" / name) for name in source["files"]]
        source["range_bytes"] = range_bytes
    values = {"output": "out", "input": sources, "tokenizer": {"vocab_size": 300}}
    config = tmp_path / "build.yaml"
    config.write_text(yaml.safe_dump(values))
    done = command("build", config)
    assert done.returncode == 0, done.stderr
    rows = token_rows(tmp_path / "out")
    assert set(rows) == {source["name"] for source in sources}
    expected = [(row["input_ids"], row["num_bytes"], row["part"]) for row in rows["text"]]
    kept = [i for i, text in enumerate(DOCUMENTS) if text]
    assert len(expected) == len(kept)
    for name, found in rows.items():
        assert [(r["input_ids"], r["num_bytes"], r["part"]) for r in found] == expected, name
        ids = {"text": [None] * len(kept), "lines": [KEYS[i] for i in kept]}
        ids["compressed"] = ids["lines"]
        assert [r["id"] for r in found] == ids.get(name, [str(i) for i in kept])
        if name in ("table", "batches", "stream"):
            assert [r["offset"] for r in found] == kept
    manifest = json.loads((tmp_path / "out" / "tokens" / "manifest.json").read_text())
    assert manifest["totals"]["documents"] == len(sources) * len(kept)
    assert manifest["totals"]["empty"] == len(sources)


def test_without_an_id_field_there_is_no_column_for_ids(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.jsonl").write_text('{"text": "some text"}\n')
    build.build(config_for(tmp_path, input={"format": "jsonl"}))
    (row,) = token_rows(tmp_path / "out")["a.jsonl"]
    assert "id" not in row


@pytest.mark.slow
def test_bad_records_are_in_the_rejects_with_reason_place_and_id(tmp_path: Path) -> None:
    lines = [json.dumps({"text": text, "id": i}) for i, text in enumerate(DOCUMENTS)]
    lines[5] = "{"
    lines[6] = '{"id": 6}'
    lines[7] = '{"id": 7, "text": null}'
    lines[8] = '{"id": "eight", "text": 8}'
    lines[9] = '{"id": 9, "text": "\\ud800"}'
    lines[10] = '{"id": 10, "text": "<|endoftext|>"}'
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.jsonl").write_text("\n".join(lines))
    build.build(
        config_for(
            tmp_path,
            input={"format": "jsonl", "id_field": "id"},
            encode={
                "max_reject_fraction": 0.2,
                "special_tokens_in_text": "reject",
                "validation_fraction": 0.4,
            },
        )
    )
    tables = [pq.read_table(path) for path in sorted((tmp_path / "out" / "rejects").iterdir())]
    found = pa.concat_tables(tables).sort_by("offset").to_pylist()
    places = [sum(len(line) + 1 for line in lines[:i]) for i in range(len(lines))]
    assert [(row["offset"], row["reason"], row["id"]) for row in found] == [
        (places[5], "malformed_json", None),
        (places[6], "missing_field", "6"),
        (places[7], "null_field", "7"),
        (places[8], "wrong_field_type", "eight"),
        (places[9], "invalid_utf8", "9"),
        (places[10], "special_token", "10"),
    ]
    train, validation = (token_rows(tmp_path / "out", split) for split in ("train", "validation"))
    ids = [int(row["id"]) for split in (train, validation) for row in split["a.jsonl"]]
    assert validation["a.jsonl"]
    assert sorted(ids) == [i for i, text in enumerate(DOCUMENTS) if text and i not in range(5, 11)]
    for row in train["a.jsonl"]:
        assert row["num_bytes"] == len(DOCUMENTS[int(row["id"])].encode())


def test_a_column_that_is_not_there_is_shown_by_the_command(tmp_path: Path) -> None:
    pq.write_table(pa.table({"body": ["a"]}), tmp_path / "a.parquet")
    config = tmp_path / "build.yaml"
    config.write_text("output: out\ninput: {files: [a.parquet], format: parquet}\n")
    done = command("build", config)
    assert done.returncode == 4
    for text in ("A column is missing", "input.text_field", "the columns body", "a.parquet"):
        assert text in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "content", "shown"),
    [("a.parquet.gz", b"x", r"gzip(.|\n)*input\.compression: none"), ("a.parquet", b"", "empty")],
)
def test_planning_refuses_files_that_can_be_no_files_of_columns(
    tmp_path: Path, name: str, content: bytes, shown: str
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / name).write_bytes(content)
    config = config_for(tmp_path, input={"format": "parquet"})
    with pytest.raises(InputError, match=shown):
        plan_tasks(list_files(config.input[0]), config.input)
