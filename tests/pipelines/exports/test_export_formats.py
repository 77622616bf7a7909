"""The forms of exports: every file parsed by the layout that is published, by other code."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from export_support import Document, documents, write_dataset
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import times

from pipelines.dataset.reading import TokenDataset
from pipelines.errors import ConfigError
from pipelines.exports import megatron
from pipelines.exports.export import export
from pipelines.exports.formats import ExportOptions
from pipelines.storage.directory import Directory

LONG: Document = [list(range(1, 300)), list(range(300, 500)), [0]]
TRAIN: list[list[Document]] = [documents(40, seed=1), [LONG, [[]], [[7]]], [], documents(9, seed=2)]
VALIDATION: list[list[Document]] = [documents(5, seed=3)]


def joined(files: Sequence[Sequence[Document]]) -> list[list[int]]:
    """The ids of each document."""
    return [[id_ for part in document for id_ in part] for file in files for document in file]


@pytest.fixture(autouse=True)
def small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.writing.token_file._ROW_GROUP_ROWS", 6)


def exported(
    directory: Path,
    to: str,
    *,
    train: Sequence[Sequence[Document]] = TRAIN,
    stored: str = "uint16",
    **options: Any,
) -> Path:
    output = directory / "out"
    if not output.exists():
        write_dataset(output, {"train": train, "validation": VALIDATION}, stored)
    target = directory / to
    asked = ExportOptions(to=to, **options)  # type: ignore[arg-type]
    export(TokenDataset.open(str(output)), Directory(url=str(target)), asked)
    return target


# Megatron-LM


def read_megatron(prefix: Path) -> tuple[list[list[int]], list[int], np.dtype[Any]]:
    """The sequences, the indices of documents and the type of the ids."""
    index = prefix.with_suffix(".idx").read_bytes()
    assert index[:9] == b"MMIDIDX\x00\x00"
    version, code, num_sequences, num_indices = struct.unpack_from("<QBQQ", index, 9)
    assert version == 1
    dtype = np.dtype({4: np.int32, 8: np.uint16}[code])
    place = 34
    lengths = struct.unpack_from(f"<{num_sequences}i", index, place)
    place += 4 * num_sequences
    pointers = struct.unpack_from(f"<{num_sequences}q", index, place)
    place += 8 * num_sequences
    indices = struct.unpack_from(f"<{num_indices}q", index, place)
    assert place + 8 * num_indices == len(index)
    data = prefix.with_suffix(".bin").read_bytes()
    assert sum(lengths) * dtype.itemsize == len(data)
    sequences = [
        np.frombuffer(data, dtype, length, pointer).tolist()
        for length, pointer in zip(lengths, pointers, strict=True)
    ]
    return sequences, list(indices), dtype


@pytest.mark.parametrize(("stored", "written"), [("uint16", np.uint16), ("uint32", np.int32)])
def test_megatron_has_a_sequence_for_each_document(
    tmp_path: Path, stored: str, written: type[Any]
) -> None:
    target = exported(tmp_path, "megatron", stored=stored)
    for split, files in (("train", TRAIN), ("validation", VALIDATION)):
        sequences, indices, dtype = read_megatron(target / split)
        assert sequences == joined(files)
        assert indices == list(range(len(sequences) + 1))
        assert dtype == written


def test_megatron_has_several_sequences_for_a_document_that_one_can_not_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(megatron, "_LONGEST", 7)
    sequences, indices, _ = read_megatron(exported(tmp_path, "megatron") / "train")
    wanted = joined(TRAIN)
    pieces = [
        [document[at : at + 7] for at in range(0, len(document), 7)] or [[]] for document in wanted
    ]
    assert sequences == [piece for document in pieces for piece in document]
    assert np.diff(indices).tolist() == [len(document) for document in pieces]


# nanoGPT


def test_nanogpt_has_the_ids_of_each_split_under_the_names_it_opens(tmp_path: Path) -> None:
    target = exported(tmp_path, "nanogpt")
    for name, files in (("train", TRAIN), ("val", VALIDATION)):
        ids = np.memmap(target / f"{name}.bin", np.uint16, "r")
        assert ids.tolist() == [id_ for document in joined(files) for id_ in document]


def test_nanogpt_refuses_larger_ids_and_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--id-type"):
        exported(tmp_path, "nanogpt", stored="uint32")
    assert not (tmp_path / "nanogpt").exists()


@pytest.mark.parametrize("id_type", ["uint16", "uint32", "int32"])
def test_nanogpt_has_other_types_where_they_are_asked_for(tmp_path: Path, id_type: str) -> None:
    target = exported(tmp_path, "nanogpt", stored="uint32", id_type=id_type)
    ids = np.memmap(target / "train.bin", id_type, "r")
    assert ids.tolist() == [id_ for document in joined(TRAIN) for id_ in document]


def test_an_id_that_does_not_fit_the_type_asked_for_is_refused(tmp_path: Path) -> None:
    for id_type, largest in (("uint16", 2**16), ("int32", 2**31)):
        with pytest.raises(ConfigError, match=f"{largest:,}"):
            exported(
                tmp_path / id_type,
                "nanogpt",
                train=[*TRAIN, [[[1, largest]]]],
                stored="uint32",
                id_type=id_type,
            )
        assert not (tmp_path / id_type / "nanogpt/export.json").exists()


# llm.c


@pytest.mark.parametrize(
    ("stored", "magic", "version"), [("uint16", 20240520, 1), ("uint32", 20240801, 7)]
)
def test_llmc_has_files_of_so_many_ids_with_headers(
    tmp_path: Path, stored: str, magic: int, version: int
) -> None:
    target = exported(tmp_path, "llm.c", stored=stored, max_tokens=150)
    wanted = [id_ for document in joined(TRAIN) for id_ in document]
    found: list[int] = []
    paths = sorted(target.glob("train_*.bin"))
    assert [path.name for path in paths[:2]] == ["train_000000.bin", "train_000001.bin"]
    for path in paths:
        data = path.read_bytes()
        header = struct.unpack_from("<256i", data)
        assert header[:2] == (magic, version)
        assert header[2] == (150 if path != paths[-1] else len(wanted) % 150)
        assert set(header[3:]) == {0}
        ids = np.frombuffer(data, stored, offset=1024)
        assert len(ids) == header[2]
        found += ids.tolist()
    assert found == wanted
    assert (target / "val_000000.bin").exists()


def test_llmc_has_one_file_where_all_ids_just_fill_it(tmp_path: Path) -> None:
    target = exported(tmp_path, "llm.c", train=[[[[1, 2, 3]], [[4]]]], max_tokens=4)
    assert len(list(target.glob("train_*.bin"))) == 1


def test_llmc_refuses_more_ids_than_its_header_can_say(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="2,147,483,647"):
        exported(tmp_path, "llm.c", max_tokens=2**31)


# NumPy


@pytest.mark.parametrize("stored", ["uint16", "uint32"])
def test_npy_can_be_mapped_and_has_the_place_of_each_document(tmp_path: Path, stored: str) -> None:
    target = exported(tmp_path, "npy", stored=stored)
    for split, files in (("train", TRAIN), ("validation", VALIDATION)):
        ids = np.load(target / f"{split}.npy", mmap_mode="r")
        offsets = np.load(target / f"{split}.offsets.npy", mmap_mode="r")
        assert ids.dtype == stored and offsets.dtype == np.int64
        found = [ids[a:b].tolist() for a, b in pairwise(offsets)]
        assert found == joined(files)


# MosaicML Streaming


def read_mds(directory: Path) -> list[list[int]]:
    """The samples of all shards, each read by its offsets alone."""
    index = json.loads((directory / "index.json").read_text())
    assert index["version"] == 2
    samples: list[list[int]] = []
    for number, shard in enumerate(index["shards"]):
        assert shard["format"] == "mds" and shard["column_names"] == ["tokens"]
        assert shard["raw_data"]["basename"] == f"shard.{number:05d}.mds"
        [encoding] = shard["column_encodings"]
        dtype = np.dtype(encoding.removeprefix("ndarray:"))
        data = (directory / shard["raw_data"]["basename"]).read_bytes()
        assert len(data) == shard["raw_data"]["bytes"]
        (count,) = struct.unpack_from("<I", data)
        assert count == shard["samples"]
        offsets = struct.unpack_from(f"<{count + 1}I", data, 4)
        columns = json.loads(data[4 * (count + 2) : offsets[0]])
        assert columns.items() <= shard.items()
        assert offsets[-1] == len(data)
        for begin, end in pairwise(offsets):
            sample = data[begin:end]
            (size,) = struct.unpack_from("<I", sample)
            array = sample[4:]
            assert len(array) == size
            assert array[0] >> 2 == 1  # one dimension
            width = 1 << (array[0] & 3)
            length = int.from_bytes(array[1 : 1 + width], "little")
            ids = np.frombuffer(array[1 + width :], dtype)
            assert len(ids) == length
            samples.append(ids.tolist())
    return samples


@pytest.mark.slow
@pytest.mark.parametrize(("stored", "written"), [("uint16", "uint16"), ("uint32", "int32")])
@pytest.mark.parametrize("shard_bytes", [None, 700, 1])
def test_mds_has_a_sample_for_each_document(
    tmp_path: Path, stored: str, written: str, shard_bytes: int | None
) -> None:
    long = [[list(range(40_000)), list(range(40_000))], [[3]] * 300, [[]]]
    target = exported(tmp_path, "mds", train=[*TRAIN, long], stored=stored, shard_bytes=shard_bytes)
    assert read_mds(target / "train") == joined([*TRAIN, long])
    assert read_mds(target / "validation") == joined(VALIDATION)
    index = json.loads((target / "train/index.json").read_text())
    assert index["shards"][0]["column_encodings"] == [f"ndarray:{written}"]
    small = [shard for shard in index["shards"] if shard["samples"] > 1]
    assert all(shard["raw_data"]["bytes"] <= shard["size_limit"] for shard in small)


def test_mds_cuts_samples_of_equal_length_through_the_documents(tmp_path: Path) -> None:
    target = exported(tmp_path, "mds", sequence_length=64, shard_bytes=1500)
    wanted = [id_ for document in joined(TRAIN) for id_ in document]
    assert read_mds(target / "train") == [wanted[at : at + 64] for at in range(0, len(wanted), 64)]


# All of them

part = st.lists(st.integers(0, 65535), max_size=12)
document = st.lists(part, min_size=1, max_size=3)
corpus = st.lists(st.lists(document, max_size=9), min_size=1, max_size=3)


@settings(max_examples=times(0.2), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(train=corpus, shard_bytes=st.integers(200, 600), most=st.integers(10, 90))
def test_no_id_and_no_document_is_lost_or_doubled(
    tmp_path_factory: pytest.TempPathFactory,
    train: list[list[Document]],
    shard_bytes: int,
    most: int,
) -> None:
    directory = tmp_path_factory.mktemp("any")
    wanted = joined(train)
    if not wanted:
        return
    flat = [id_ for document in wanted for id_ in document]

    target = exported(directory, "megatron", train=train, split="train")
    assert read_megatron(target / "train")[0] == wanted
    target = exported(directory, "mds", train=train, shard_bytes=shard_bytes, split="train")
    assert read_mds(target / "train") == wanted
    target = exported(directory, "npy", train=train, split="train")
    assert np.load(target / "train.npy").tolist() == flat
    lengths = np.diff(np.load(target / "train.offsets.npy")).tolist()
    assert lengths == [len(document) for document in wanted]
    target = exported(directory, "llm.c", train=train, max_tokens=most, split="train")
    paths = sorted(target.glob("train_*.bin"))
    found = [np.frombuffer(path.read_bytes(), np.uint16, offset=1024) for path in paths]
    assert np.concatenate(found).tolist() == flat
