"""Fields of records that token files keep as columns: values, types and nulls."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.batches import DocumentBatch
from pipelines.config import SourceConfig
from pipelines.errors import BadFileError, ConfigError, InputError
from pipelines.manifest.token_schema import schema
from pipelines.readers import read_range
from pipelines.readers.kept_columns import find_kept_columns
from pipelines.readers.tasks import keep_columns, source_readings
from pipelines.storage.directory import Directory
from pipelines.tasks.listing import list_files
from pipelines.tasks.plan import Range
from pipelines.writing.rows import TokenRows
from pipelines.writing.token_file import TokenFile

TEXT = "some text"


def source_of(path: Path, kept: Sequence[str], **keys: Any) -> SourceConfig:
    form = "jsonl" if path.suffix == ".jsonl" else path.suffix[1:]
    return SourceConfig(files=(str(path),), format=form, keep_columns=tuple(kept), **keys)


def read(source: SourceConfig, known: pa.Schema | None = None, **options: Any) -> pa.Table:
    """Return the kept columns of all documents of a source."""
    files = list_files(source)
    kept = find_kept_columns([source], files, known)
    (reading,) = keep_columns(source_readings([source], "gpt2", ()), [source], kept)
    batches: list[DocumentBatch] = []
    for file in files:
        whole = Range(file=0, start=0, end=file.size)
        batches += read_range(file, whole, replace(reading.options, **options))
    assert all(len(batch) == len(batch.kept) for batch in batches if batch.kept is not None)
    return pa.Table.from_batches([batch.kept for batch in batches if batch.kept is not None])


def write_lines(path: Path, lines: Sequence[Any]) -> Path:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("".join(f"{text}\n" for text in texts), "utf-8")
    return path


def test_values_of_json_are_text_and_what_is_no_text_is_json(tmp_path: Path) -> None:
    values = ["en", 'a "b"\n\u00e9', None, 12, -0.5, True, {"a": [1, 2.50, "x"]}, [], ""]
    lines = [{"lang": value, "text": TEXT} for value in values]
    raw = ['{"text": "t", "lang": 1e3}', '{"text": "t", "lang": {"n": 1.50}}', '{"text": "t"}']
    path = write_lines(tmp_path / "a.jsonl", [*lines, *raw])
    assert read(source_of(path, ["lang"]))["lang"].to_pylist() == [
        *("en", 'a "b"\n\u00e9', None, "12", "-0.5", "true", '{"a":[1,2.5,"x"]}', "[]", ""),
        *("1e3", '{"n":1.50}', None),
    ]


def test_nested_fields_of_json_are_null_where_they_are_missing(tmp_path: Path) -> None:
    records = [{"meta": {"url": "u"}}, {"meta": {}}, {"meta": None}, {"meta": "odd"}, {}]
    path = write_lines(tmp_path / "a.jsonl", [{"text": TEXT, **record} for record in records])
    assert read(source_of(path, ["meta.url"]))["meta.url"].to_pylist() == ["u", *[None] * 4]


def test_columns_stay_with_their_documents(tmp_path: Path) -> None:
    """Empty, rejected, long and excluded documents take their values with them."""
    long = "word " * 40
    lines: list[Any] = [
        {"text": TEXT, "n": "0"},
        {"text": "", "n": "1"},
        {"n": "2"},
        {"text": long, "n": "3"},
        "not JSON",
        {"text": "x", "n": "5"},
        {"text": "last text", "n": "6"},
    ]
    path = write_lines(tmp_path / "a.jsonl", lines)
    source = source_of(path, ["n"], min_chars=5)
    found = read(source, piece_bytes=50)["n"].to_pylist()
    assert found[0] == "0"
    assert set(found[1:-1]) == {"3"}
    assert len(found) > 4
    assert found[-1] == "6"


def write_columns(path: Path, table: pa.Table) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=2)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    return path


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_columns_of_files_keep_their_types(form: str, tmp_path: Path) -> None:
    columns = {
        "text": pa.array([TEXT] * 3),
        "lang": pa.array(["en", None, "de"]).dictionary_encode(),
        "long": pa.array(["a", "b", None], pa.large_string()),
        "score": pa.array([0.5, None, float("nan")]),
        "n": pa.array([1, 2, 3], pa.int8()),
        "day": pa.array([date(2020, 1, 1)] * 3),
        "meta": pa.array([{"url": "u"}, {"url": None}, None]),
    }
    path = write_columns(tmp_path / f"a.{form}", pa.table(columns))
    names = ["lang", "long", "score", "n", "day", "meta.url", "none"]
    found = read(source_of(path, names))
    types = [pa.string(), pa.string(), pa.float64(), pa.int8(), pa.date32(), pa.string()]
    assert found.schema.types == [*types, pa.string()]
    assert found["lang"].to_pylist() == ["en", None, "de"]
    assert found["long"].to_pylist() == ["a", "b", None]
    assert str(found["score"].to_pylist()) == "[0.5, None, nan]"
    assert found["day"].to_pylist() == [date(2020, 1, 1)] * 3
    assert found["meta.url"].to_pylist() == ["u", None, None]
    assert found["none"].to_pylist() == [None] * 3


def test_text_of_columns_that_is_not_utf_8_is_repaired(tmp_path: Path) -> None:
    broken = pa.array([b"ok", b"\xff"]).view(pa.string())
    path = write_columns(tmp_path / "a.arrow", pa.table({"text": [TEXT] * 2, "lang": broken}))
    assert read(source_of(path, ["lang"]))["lang"].to_pylist() == ["ok", "\ufffd"]


def test_files_with_other_types_fit_the_first_or_are_refused(tmp_path: Path) -> None:
    for name, values in {"a": [1, 2], "b": pa.array([3, 4], pa.int8()), "c": ["5", "x"]}.items():
        table = pa.table({"text": [TEXT] * 2, "n": values})
        write_columns(tmp_path / f"{name}.parquet", table)
    source = source_of(tmp_path / "[ab].parquet", ["n"])
    assert read(source)["n"].to_pylist() == [1, 2, 3, 4]
    with pytest.raises(InputError, match="does not fit the column that keeps it"):
        read(source_of(tmp_path / "[ac].parquet", ["n"]))


def test_columns_with_values_inside_are_refused(tmp_path: Path) -> None:
    table = pa.table({"text": [TEXT], "meta": [{"a": 1}], "n": [1]})
    path = write_columns(tmp_path / "a.parquet", table)
    with pytest.raises(ConfigError, match=r"meta: struct(.|\n)*Name a field inside"):
        read(source_of(path, ["meta"]))
    table = pa.table({"text": [TEXT], "n": [[1]]})
    write_columns(tmp_path / "b.parquet", table)
    with pytest.raises(BadFileError, match=r"input\.keep_columns"):
        read(source_of(tmp_path / "*.parquet", ["n"]))


def test_sources_share_columns_and_those_of_different_types_are_text(tmp_path: Path) -> None:
    lines = write_lines(tmp_path / "a.jsonl", [{"text": TEXT, "n": "x", "lang": "en"}])
    table = write_columns(tmp_path / "b.parquet", pa.table({"text": [TEXT], "n": [1], "k": [2]}))
    sources = [source_of(lines, ["lang", "n"], name="a"), source_of(table, ["n", "k"], name="b")]
    files = [file for i, source in enumerate(sources) for file in list_files(source, index=i)]
    kept = find_kept_columns(sources, files)
    assert kept is not None
    assert dict(zip(kept.names, kept.types, strict=True)) == {
        "lang": pa.string(),
        "n": pa.string(),
        "k": pa.int64(),
    }
    known = pa.schema([("k", pa.int32()), ("gone", pa.string())])
    again = find_kept_columns(sources, files, known)
    assert again is not None
    assert again.field("k").type == pa.int32()
    assert "gone" not in again.names
    plain = [source.model_copy(update={"keep_columns": ()}) for source in sources]
    assert find_kept_columns(plain, files) is None


@pytest.mark.slow
def test_row_groups_are_cut_by_the_bytes_of_kept_columns(tmp_path: Path) -> None:
    """Large values do not stay in memory, and the cuts do not depend on batches."""
    values = pa.record_batch({"url": ["x" * 1_500_000] * 30})
    many = np.arange(30, dtype=np.int64)
    rows = TokenRows(
        ids=np.zeros(30, np.uint16),
        offsets=np.arange(31, dtype=np.int64),
        num_bytes=many,
        positions=many,
        hashes=np.zeros((30, 2), np.uint64),
        parts=np.zeros(30, np.int32),
        sources=pa.array(["a"] * 30).dictionary_encode(),
        kept=values,
    )
    cuts = []
    for step in (30, 7):
        directory = Directory(url=str(tmp_path / str(step)))
        directory.create()
        columns = schema("uint16", kept=values.schema)
        with TokenFile(directory, "train.parquet", columns, {}) as file:
            for first in range(0, 30, step):
                file.add(rows.slice(first, min(first + step, 30)))
            file.finish()
        metadata = pq.read_metadata(tmp_path / str(step) / "train.parquet")
        cuts.append([metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)])
    assert cuts == [[12, 12, 6]] * 2
