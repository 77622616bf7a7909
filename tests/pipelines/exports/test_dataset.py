"""Datasets of token files: what the manifest says, and what reading gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from export_support import change_manifest, documents, write_dataset

from pipelines.dataset.reading import TokenDataset
from pipelines.errors import InputError

FILES = [documents(40, seed=1), [], documents(7, seed=2)]
LONG = [[[1, 2, 3], [4, 5], [6]], [[7, 8]]]


@pytest.fixture
def small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.writing.token_file._ROW_GROUP_ROWS", 6)


@pytest.fixture
def dataset(tmp_path: Path, small_row_groups: None) -> TokenDataset:
    write_dataset(tmp_path, {"train": [*FILES, LONG], "validation": [documents(3)]})
    return TokenDataset.open(str(tmp_path))


def rows_of(dataset: TokenDataset, split: str = "train", **arguments: Any) -> list[list[int]]:
    return [
        chunk.ids[begin:end].tolist()
        for chunk in dataset.chunks(split, **arguments)
        for begin, end in zip(chunk.offsets, chunk.offsets[1:], strict=False)
    ]


def test_numbers_are_those_of_the_manifest(dataset: TokenDataset) -> None:
    train = [part for file in [*FILES, LONG] for document in file for part in document]
    assert dataset.num_rows("train") == len(train)
    assert dataset.num_documents("train") == 40 + 7 + 2
    assert dataset.num_tokens("train") == sum(map(len, train))
    assert dataset.num_rows("validation") == 3
    assert dataset.dtype == np.uint16


@pytest.mark.slow
def test_rows_come_in_order_from_any_row_on(dataset: TokenDataset) -> None:
    train = [list(part) for file in [*FILES, LONG] for document in file for part in document]
    for start in range(len(train) + 1):
        assert rows_of(dataset, start_row=start) == train[start:]


def test_chunks_say_where_they_are_and_where_documents_begin(dataset: TokenDataset) -> None:
    chunks = list(dataset.chunks("train", ["part", "num_bytes"], start_row=3))
    assert [(chunk.file.index, chunk.first_row) for chunk in chunks[:3]] == [
        (0, 3),
        (0, 6),
        (0, 12),
    ]
    assert chunks[-1].starts.tolist() == [True, False, False, True]
    assert chunks[-1].column("num_bytes").tolist() == [9, 6, 3, 6]
    assert all(len(chunk) <= 6 for chunk in chunks)


def test_generations_are_in_order_after_the_base(tmp_path: Path) -> None:
    write_dataset(tmp_path, {"train": [documents(3, seed) for seed in range(4)]})
    manifest = json.loads((tmp_path / "tokens/manifest.json").read_text())
    entries = manifest["files"]["train"]
    names = [
        "train-add002-00000-of-00001.parquet",
        "train-00000-of-00002.parquet",
        "train-add001-00000-of-00001.parquet",
        "train-00001-of-00002.parquet",
    ]
    for entry, name in zip(entries, names, strict=True):
        (tmp_path / "tokens" / entry["name"]).rename(tmp_path / "tokens" / name)
        entry["name"] = name
    change_manifest(tmp_path, files={"train": entries, "validation": [], "rejects": []})
    files = TokenDataset.open(str(tmp_path)).files
    assert [file.name for file in files] == [names[1], names[3], names[2], names[0]]
    assert [file.generation for file in files] == ["base", "base", "add001", "add002"]


@pytest.mark.parametrize(
    "name",
    ["../train-00000-of-00001.parquet", "/etc/passwd", "validation-00000-of-00001.parquet", ""],
)
def test_names_that_are_no_token_files_of_the_split_are_refused(tmp_path: Path, name: str) -> None:
    write_dataset(tmp_path, {"train": [documents(3)]})
    entry = json.loads((tmp_path / "tokens/manifest.json").read_text())["files"]["train"][0]
    change_manifest(tmp_path, files={"train": [{**entry, "name": name}]})
    with pytest.raises(InputError, match="damaged"):
        TokenDataset.open(str(tmp_path))


@pytest.mark.parametrize(
    "change",
    [
        {"format": 99},
        {"files": {}},
        {"configuration": {}},
        {"totals": {"tokens": 1}},
        {"files": {"train": [{"name": "train-00000-of-00001.parquet"}]}},
    ],
)
def test_damaged_manifests_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    write_dataset(tmp_path, {"train": [documents(3)]})
    change_manifest(tmp_path, **change)
    with pytest.raises(InputError, match="damaged"):
        TokenDataset.open(str(tmp_path))


def test_an_unfinished_build_is_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no finished token files"):
        TokenDataset.open(str(tmp_path))


def test_the_directory_of_the_token_files_is_understood(dataset: TokenDataset) -> None:
    again = TokenDataset.open(dataset.tokens.url)
    assert again.fingerprint == dataset.fingerprint
    assert again.output.url == dataset.output.url


def test_damaged_files_are_named(dataset: TokenDataset) -> None:
    file = dataset.files[2]
    path = Path(dataset.tokens.path(file.name))
    whole = path.read_bytes()
    for damaged in (whole[:-1], bytes(len(whole)), whole[:-8] + bytes(8)):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=file.name):
            rows_of(dataset)
    path.unlink()
    with pytest.raises(InputError, match=file.name):
        rows_of(dataset)


@pytest.mark.slow
def test_any_changed_byte_of_a_file_is_found(tmp_path: Path) -> None:
    write_dataset(tmp_path, {"train": [documents(200, most=500)]})
    dataset = TokenDataset.open(str(tmp_path))
    path = Path(dataset.tokens.path(dataset.files[0].name))
    whole = path.read_bytes()
    for place in np.random.default_rng(0).integers(0, len(whole), 60).tolist():
        damaged = bytearray(whole)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=dataset.files[0].name):
            rows_of(dataset)


def test_files_with_other_totals_than_the_manifest_are_refused(tmp_path: Path) -> None:
    write_dataset(tmp_path, {"train": [documents(3)]})
    [entry] = json.loads((tmp_path / "tokens/manifest.json").read_text())["files"]["train"]
    for key in ("rows", "tokens"):
        wrong = {**entry, key: entry[key] + 1}
        change_manifest(tmp_path, files={"train": [wrong]}, totals={"tokens": wrong["tokens"]})
        with pytest.raises(InputError, match="does not match the manifest"):
            rows_of(TokenDataset.open(str(tmp_path)))
