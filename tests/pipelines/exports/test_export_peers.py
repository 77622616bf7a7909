"""Exports read, and written, by the programs that own the formats, where they are installed.

`pip install torch mosaicml-streaming` and `pip install --no-deps megatron-core`: gigabytes, so they
are no part of the extra `test`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from export_support import Document, documents, write_dataset

from pipelines.dataset.reading import TokenDataset
from pipelines.exports.export import export
from pipelines.exports.formats import ExportOptions
from pipelines.storage.directory import Directory

LONG: Document = [list(range(65_000)), list(range(65_000)), [0]]
DOCUMENTS: list[Document] = [*documents(300, seed=1), LONG, *documents(50, seed=2, most=900)]
EMPTY: Document = [[]]


def exported(directory: Path, to: str, stored: str, **options: Any) -> Path:
    files = [DOCUMENTS[:200], DOCUMENTS[200:], [EMPTY]]
    output = write_dataset(directory / "out", {"train": files}, stored)
    asked = ExportOptions(to=to, **options)  # type: ignore[arg-type]
    export(TokenDataset.open(str(output)), Directory(url=str(directory / to)), asked)
    return directory / to


def ids_of(document: Document) -> list[int]:
    return [id_ for part in document for id_ in part]


@pytest.mark.parametrize("stored", ["uint16", "uint32"])
def test_megatron_reads_the_dataset_and_writes_the_same_bytes(tmp_path: Path, stored: str) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("megatron.core")
    from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder

    target = exported(tmp_path, "megatron", stored)
    dataset = IndexedDataset(str(target / "train"))
    wanted = [ids_of(document) for document in [*DOCUMENTS, EMPTY]]
    assert [dataset[i].tolist() for i in range(len(dataset))] == wanted
    assert dataset.document_indices.tolist() == list(range(len(wanted) + 1))
    dtype = np.uint16 if stored == "uint16" else np.int32
    builder = IndexedDatasetBuilder(str(tmp_path / "own.bin"), dtype=dtype)
    for document in wanted:
        builder.add_document(torch.tensor(document, dtype=torch.int64), [len(document)])
    builder.finalize(str(tmp_path / "own.idx"))
    for ending in ("bin", "idx"):
        own = (tmp_path / f"own.{ending}").read_bytes()
        assert (target / f"train.{ending}").read_bytes() == own


@pytest.mark.parametrize("stored", ["uint16", "uint32"])
def test_streaming_reads_the_dataset_and_writes_the_same_bytes(tmp_path: Path, stored: str) -> None:
    streaming = pytest.importorskip("streaming")
    target = exported(tmp_path, "mds", stored, shard_bytes=40_000)
    dataset = streaming.StreamingDataset(
        local=str(target), split="train", batch_size=1, shuffle=False, validate_hash="xxh3_128"
    )
    wanted = [ids_of(document) for document in [*DOCUMENTS, EMPTY]]
    assert [dataset[i]["tokens"].tolist() for i in range(len(dataset))] == wanted
    dtype = np.dtype(np.uint16 if stored == "uint16" else np.int32)
    own = tmp_path / "own"
    with streaming.MDSWriter(
        out=str(own),
        columns={"tokens": f"ndarray:{dtype.name}"},
        hashes=["xxh3_128"],
        size_limit=40_000,
    ) as writer:
        for document in wanted[:-1]:  # it refuses arrays without elements
            writer.write({"tokens": np.array(document, dtype)})
    names = sorted(path.name for path in own.glob("*.mds"))
    assert len(names) > 3
    for name in names[:-1]:
        assert (target / "train" / name).read_bytes() == (own / name).read_bytes()
