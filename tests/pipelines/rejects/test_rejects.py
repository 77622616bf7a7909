from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipelines.batches import DocumentBatch, Reject
from pipelines.errors import RejectLimitError
from pipelines.rejects import table as rejects
from pipelines.rejects import thresholds
from pipelines.rejects.table import RejectFile
from pipelines.rejects.thresholds import RejectLimit
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


def test_too_many_rejects_leave_those_until_then(directory: Directory) -> None:
    with pytest.raises(RejectLimitError), RejectFile(directory, "x") as file:
        file.add([reject(0), reject(3)])
        raise RejectLimitError("Too many.")
    assert pq.read_table(directory.path("x.parquet")).num_rows == 2


# --- limits that can no longer be kept


def batch_with(*rejects: Reject) -> DocumentBatch:
    none = np.empty(0, np.int64)
    return DocumentBatch(
        data=np.empty(0, np.uint8),
        starts=none,
        ends=none,
        offsets=none,
        num_bytes=none,
        hashes=np.empty((0, 2), np.uint64),
        source="a.txt",
        rejects=rejects,
    )


def limit(fraction: float, most: int | None, stage: str) -> RejectLimit:
    return RejectLimit(fraction=fraction, most_documents=most, where="/rejects", stage=stage)


def test_the_first_reject_ends_a_stage_that_allows_none() -> None:
    with pytest.raises(RejectLimitError) as caught:
        limit(0.0, None, "first").judge(0, 1, batch_with(reject(17)))
    for text in ("none may be", "a.txt, document at offset 17", "invalid_utf8", "it begins"):
        assert text in str(caught.value)


def test_a_limit_is_judged_as_soon_as_it_can_not_be_kept() -> None:
    rule = limit(0.1, 100, "soon")
    rule.judge(0, 6, batch_with(reject(0)))
    rule.judge(1, 4, batch_with(reject(0)))
    with pytest.raises(RejectLimitError, match=r"11 before the end, such as a\.txt"):
        rule.judge(1, 5, batch_with(reject(3)))


def test_a_repeated_task_counts_once() -> None:
    rule = limit(0.1, 100, "again")
    for _ in range(3):
        rule.judge(0, 9, batch_with(reject(0)))


def test_a_process_that_works_on_many_stages_remembers_the_latest_ones() -> None:
    first, last = (limit(0.1, 100, stage) for stage in ("the first", "the last"))
    for rule in (first, *(limit(0.1, 100, f"stage {n}") for n in range(50)), last):
        rule.judge(0, 1, batch_with(reject(0)))
    assert last in thresholds._REJECTED
    assert first not in thresholds._REJECTED
    assert len(thresholds._REJECTED) == thresholds._STAGES_NOTED


def test_without_a_known_total_a_limit_is_judged_at_the_end() -> None:
    limit(0.1, None, "end").judge(0, 1_000_000, batch_with(reject(0)))


def test_bad_files_do_not_count_as_rejects() -> None:
    file = replace(reject(0), reason="damaged_file")
    limit(0.0, None, "file").judge(0, 0, batch_with(file))
