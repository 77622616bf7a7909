from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipelines.batches import Reject
from pipelines.rejects import table as rejects
from pipelines.rejects.table import RejectFile
from pipelines.storage.directory import Directory


def reject(offset: int) -> Reject:
    return Reject(
        source="a.txt",
        offset=offset,
        length=3,
        reason="invalid_utf8",
        message="not valid UTF-8: é",
        first_bytes=b"\xff\x00a",
    )


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(url=str(tmp_path / "rejects"))


def test_rejects_are_written_as_they_are_in_order(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rejects, "_ROW_GROUP_ROWS", 4)
    with RejectFile(directory, "00000-of-00001") as file:
        for first in range(0, 11, 3):
            file.add([reject(i) for i in range(first, min(first + 3, 11))])
    path = directory.path("00000-of-00001.parquet")
    assert pq.read_table(path).to_pylist() == [asdict(reject(i)) for i in range(11)]
    metadata = pq.ParquetFile(path).metadata
    assert [metadata.row_group(i).num_rows for i in range(3)] == [4, 4, 3]
    assert file.entry is not None
    assert file.entry["rows"] == 11
    assert file.entry["bytes"] == Path(path).stat().st_size


def test_the_file_does_not_depend_on_how_rejects_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rejects, "_ROW_GROUP_ROWS", 4)
    written = []
    for step in (1, 5, 20):
        directory = Directory(url=str(tmp_path / str(step)))
        with RejectFile(directory, "x") as file:
            for first in range(0, 20, step):
                file.add([reject(i) for i in range(first, first + step)])
        written.append(directory.read_bytes("x.parquet"))
    assert written[0] == written[1] == written[2]


def test_without_rejects_there_is_no_file(directory: Directory) -> None:
    with RejectFile(directory, "x") as file:
        file.add([])
    assert file.entry is None
    assert directory.sizes() == {}


def test_an_error_leaves_no_file(directory: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejects, "_ROW_GROUP_ROWS", 1)
    with pytest.raises(KeyError), RejectFile(directory, "x") as file:
        file.add([reject(0)])
        raise KeyError
    assert directory.sizes() == {}
