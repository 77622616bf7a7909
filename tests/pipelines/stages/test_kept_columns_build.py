"""Builds that keep columns: verified, grown, replayed, exported, reported."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from pipelines import build
from pipelines.config import BuildConfig, SourceConfig, TokenizerConfig
from pipelines.dataset.inspection import Inspector, show_document
from pipelines.dataset.reading import TokenDataset
from pipelines.dataset.report import group_by, report, shown
from pipelines.errors import ConfigError
from pipelines.exports.export import export
from pipelines.exports.formats import ExportOptions
from pipelines.storage.directory import Directory
from pipelines.transforms import ReadDocuments
from pipelines.verification.verify import verify

LANGS = ["en", "de", None]


def records(first: int, number: int, **fields: Any) -> str:
    lines = [
        {"id": f"r{i}", "text": f"record number {i} of some", "lang": LANGS[i % 3], **fields}
        for i in range(first, first + number)
    ]
    return "".join(f"{json.dumps(line)}\n" for line in lines)


def config_of(folder: Path, **encode: Any) -> BuildConfig:
    return BuildConfig.model_validate(
        {
            "output": str(folder / "out"),
            "input": [
                {"name": "web", "files": [str(folder / "*.jsonl")], "format": "jsonl",
                 "id_field": "id", "keep_columns": ["lang"]},
                {"name": "tables", "files": [str(folder / "*.parquet")], "format": "parquet",
                 "id_field": "id", "keep_columns": ["lang", "score"]},
            ],
            "tokenizer": {"vocab_size": 270},
            "encode": {"max_reject_fraction": 0.5, **encode},
            "beam": {"workers": 1},
        }
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.jsonl").write_text(records(0, 6))
    table = pa.table(
        {
            "id": ["r1", "t1"],
            "text": ["first row of a table", "<|endoftext|> second"],
            "lang": ["fr", "en"],
            "score": pa.array([0.25, None], pa.float32()),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    return tmp_path


def with_tokenizer(folder: Path, config: BuildConfig) -> BuildConfig:
    tokenizer = TokenizerConfig(path=str(folder / "out" / "tokenizer"))
    return config.model_copy(update={"tokenizer": tokenizer})


def problems(folder: Path, **options: Any) -> str:
    return "\n".join(map(str, verify(Directory(url=str(folder / "out")), **options).problems))


def kept_rows(folder: Path) -> list[tuple[Any, ...]]:
    dataset = TokenDataset.open(str(folder / "out"))
    tables = dataset.tables("train", ["id", "lang", "score"])
    return [tuple(row.values()) for table in tables for row in table.to_pylist()]


def test_datasets_with_kept_columns_are_whole_and_grouped(folder: Path) -> None:
    build.build(config_of(folder))
    assert kept_rows(folder)[:3] == [("r0", "en", None), ("r1", "de", None), ("r2", None, None)]
    assert kept_rows(folder)[6:] == [("r1", "fr", 0.25), ("t1", "en", None)]
    assert not problems(folder, sources=True)
    assert not problems(folder, sources=True, sample=3)

    dataset = TokenDataset.open(str(folder / "out"))
    assert dataset.kept_columns.types == [pa.string(), pa.float32()]
    groups = {group["value"]: group["documents"] for group in group_by(dataset, "lang")}
    assert groups == {"en": 3, "de": 2, None: 2, "fr": 1}
    assert sum(group["tokens"] for group in group_by(dataset, "score")) == (
        dataset.num_tokens("train")
    )
    with pytest.raises(ConfigError, match="one of lang, score"):
        group_by(dataset, "language")
    model = dataset.model()
    page = shown(report(dataset, model, "lang"), model)
    assert "\nlang\n" in page
    assert "(none)" in page

    inspector = Inspector(dataset, model)
    places = inspector.all_with_name("r1")
    first, other = (inspector.read(place, 100) for place in places)
    assert (first.source, other.source) == ("web/a.jsonl", "tables/t.parquet")
    printed = io.StringIO()
    show_document(first, Console(file=printed), others=[other])
    assert "same id   tables/t.parquet:0\n" in printed.getvalue()
    assert "lang      de\n" in printed.getvalue()
    assert f"\nids\n{' '.join(map(str, first.ids))}\n" in printed.getvalue()
    assert len(first.ids) == first.tokens
    as_json = first.to_json({}, [other])
    assert as_json["same_id"] == [{"source": "tables/t.parquet", "offset": 0}]
    assert (as_json["kept"], as_json["shown_ids"]) == ({"lang": "de", "score": None}, [*first.ids])
    rows = {inspector.at_random("train", seed).row for seed in range(20)}
    assert len(rows) > 2
    assert inspector.at_random("train", 7) == inspector.at_random("train", 7)


def test_a_changed_source_column_is_found_and_exports_carry_columns(folder: Path) -> None:
    build.build(config_of(folder))
    dataset = TokenDataset.open(str(folder / "out"))
    export(dataset, Directory(url=str(folder / "documents")), ExportOptions(to="documents"))
    (file,) = (folder / "documents").glob("train-*.parquet")
    exported = pq.read_table(file).select(["id", "lang", "score"])
    assert [tuple(row.values()) for row in exported.to_pylist()] == kept_rows(folder)

    text = (folder / "a.jsonl").read_text()
    (folder / "a.jsonl").write_text(text.replace('"de"', '"dk"'))
    for options in ({}, {"sample": 8}):
        assert "other values in kept columns" in problems(folder, sources=True, **options)


def test_added_files_and_replayed_rejects_have_the_same_columns(folder: Path) -> None:
    build.build(config_of(folder, special_tokens_in_text="reject"))
    assert len(kept_rows(folder)) == 7
    build.replay(config_of(folder, special_tokens_in_text="text"))
    assert ("t1", "en", None) in kept_rows(folder)
    (folder / "b.jsonl").write_text(records(6, 2, score="1.5"))
    build.encode(with_tokenizer(folder, config_of(folder, special_tokens_in_text="text")))
    assert kept_rows(folder)[-2:] == [("r6", "en", None), ("r7", "de", None)]
    schemas = {
        str(pq.read_schema(path).remove_metadata())
        for path in (folder / "out" / "tokens").glob("train-*.parquet")
    }
    assert len(schemas) == 1
    assert not problems(folder, sources=True)


def test_a_source_with_columns_may_be_added_to_a_dataset_without(folder: Path) -> None:
    both = config_of(folder)
    plain = both.input[0].model_copy(update={"keep_columns": ()})
    build.build(both.model_copy(update={"input": (plain,)}))
    second = both.model_copy(update={"input": (plain, both.input[1])})
    build.encode(with_tokenizer(folder, second))
    assert not problems(folder, sources=True)
    dataset = TokenDataset.open(str(folder / "out"))
    groups = {group["value"]: group["documents"] for group in group_by(dataset, "lang")}
    assert groups == {None: 6, "fr": 1, "en": 1}


def test_without_kept_columns_nothing_changes(folder: Path) -> None:
    config = config_of(folder)
    plain = [source.model_copy(update={"keep_columns": ()}) for source in config.input]
    build.build(config.model_copy(update={"input": tuple(plain)}))
    assert not any(
        "keep_columns" in path.read_text() for path in (folder / "out").rglob("manifest.json")
    )
    dataset = TokenDataset.open(str(folder / "out"))
    assert not dataset.kept_columns.names
    with pytest.raises(ConfigError, match="a dataset with kept columns"):
        group_by(dataset, "lang")


def test_a_plan_names_fields_to_keep_that_no_record_has(folder: Path) -> None:
    config = config_of(folder)
    assert not build.plan(config).warnings
    web, tables = config.input
    misspelt = web.model_copy(update={"keep_columns": ("lang", "language")})
    (warning,) = build.plan(config.model_copy(update={"input": (misspelt, tables)})).warnings
    assert "none of 6 sampled records has a value in the field language" in warning
    assert "input[0].keep_columns" in warning


def test_own_pipelines_refuse_columns_to_keep() -> None:
    source = SourceConfig(files=("a",), format="jsonl", keep_columns=("lang",))
    with pytest.raises(ConfigError, match="which only builds keep"):
        ReadDocuments(sources=[source]).expand(None)
