"""Batches that a thread makes ahead: the same ones, errors in their place, nothing left running."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import readers
from pipelines.batches import DocumentBatch
from pipelines.readers import ReadOptions, read_range
from pipelines.readers.reading_ahead import read_ahead
from pipelines.tasks.listing import InputFile
from pipelines.tasks.plan import Range

NONE = np.empty(0, np.int64)
EMPTY = DocumentBatch(
    data=np.empty(0, np.uint8),
    starts=NONE,
    ends=NONE,
    offsets=NONE,
    num_bytes=NONE,
    hashes=np.empty((0, 2), np.uint64),
    source="a",
)


def numbered(count: int, made: list[int]) -> Iterator[DocumentBatch]:
    for number in range(count):
        made.append(number)
        yield replace(EMPTY, empty=number)


def test_batches_come_in_order_and_few_are_made_ahead() -> None:
    made: list[int] = []
    for taken, batch in enumerate(read_ahead(numbered(20, made))):
        assert batch.empty == taken
        assert len(made) <= taken + 3
    assert len(made) == 20


def test_an_error_comes_after_the_batches_before_it() -> None:
    def failing() -> Iterator[DocumentBatch]:
        yield from numbered(3, [])
        raise ValueError("damaged")

    ahead = read_ahead(failing())
    assert [next(ahead).empty for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="damaged"):
        next(ahead)


def test_who_stops_early_leaves_no_thread() -> None:
    before = threading.active_count()
    ahead = read_ahead(numbered(1000, made := []))
    next(ahead)
    ahead.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before
    assert len(made) < 5


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_reading_ahead_gives_the_same_batches(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"document {i} " * (i % 50) for i in range(3000)]
    path = tmp_path / "file"
    if form == "jsonl":
        path.write_text("".join(f'{{"text": "{text}"}}\n' for text in texts))
    else:
        pq.write_table(pa.table({"text": texts}), path, row_group_size=500)
    size = path.stat().st_size
    file = InputFile(
        source=0,
        source_name=None,
        url=str(path),
        name="file",
        size=size,
        version_tag="",
        compression=None,
    )
    options = ReadOptions(format=form, read_bytes=1 << 16)  # type: ignore[arg-type]
    found = []
    for least in (1, size + 1):
        monkeypatch.setattr(readers, "_WORTH_A_THREAD", least)
        batches = list(read_range(file, Range(file=0, start=0, end=size), options))
        found.append([(b.empty, [b.document(i) for i in range(len(b))]) for b in batches])
    assert found[0] == found[1]
    assert sum(len(documents) for _, documents in found[0]) == sum(map(bool, texts))
