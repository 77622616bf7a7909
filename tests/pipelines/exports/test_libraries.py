"""Token files read as they are by the libraries that people load data with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from export_support import Document, documents, write_dataset

FILES: list[list[Document]] = [documents(30, seed=1), [], documents(20, seed=2, most=900)]
ROWS = [list(part) for file in FILES for document in file for part in document]
COLUMNS = ["input_ids", "num_tokens", "num_bytes", "source", "offset", "part"]


@pytest.fixture(params=["uint16", "uint32"])
def tokens(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    write_dataset(tmp_path, {"train": FILES}, request.param)
    return tmp_path / "tokens"


def files(tokens: Path) -> list[Path]:
    return sorted(tokens.glob("train-*.parquet"))


def test_pyarrow_reads_them(tokens: Path) -> None:
    assert pq.read_table(files(tokens))["input_ids"].to_pylist() == ROWS
    table = ds.dataset(files(tokens)).to_table(columns=["input_ids"])
    assert table["input_ids"].to_pylist() == ROWS


def test_polars_reads_them_whole_and_lazily(tokens: Path) -> None:
    pattern = str(tokens / "train-*.parquet")
    frame = pl.read_parquet(pattern)
    assert frame.columns == COLUMNS
    assert frame["input_ids"].to_list() == ROWS
    assert frame["source"].unique().to_list() == ["text"]
    total = pl.scan_parquet(pattern).select(pl.col("num_tokens").sum()).collect().item()
    assert total == sum(map(len, ROWS))


def test_duckdb_reads_them(tokens: Path) -> None:
    with duckdb.connect() as database:
        rows = database.execute(
            "SELECT input_ids, source FROM read_parquet(?)", [str(tokens / "train-*.parquet")]
        ).fetchall()
        assert [ids for ids, _ in rows] == ROWS
        assert {source for _, source in rows} == {"text"}
        [(total, checked)] = database.execute(
            "SELECT sum(num_tokens), sum(len(input_ids)) FROM read_parquet(?)",
            [str(tokens / "train-*.parquet")],
        ).fetchall()
    assert total == checked == sum(map(len, ROWS))


def test_pandas_reads_them(tokens: Path) -> None:
    frame = pd.concat([pd.read_parquet(path) for path in files(tokens)], ignore_index=True)
    assert list(frame.columns) == COLUMNS
    assert [ids.tolist() for ids in frame["input_ids"]] == ROWS
    assert frame["num_tokens"].sum() == sum(map(len, ROWS))


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")


@pytest.mark.slow
@pytest.mark.parametrize("streaming", [False, True])
def test_datasets_reads_and_streams_them(
    tokens: Path, tmp_path: Path, streaming: bool, offline: None
) -> None:
    from datasets import load_dataset

    dataset = load_dataset(
        "parquet",
        data_files={"train": str(tokens / "train-*.parquet")},
        split="train",
        streaming=streaming,
        cache_dir=str(tmp_path / "cache"),
    )
    rows = list(dataset)
    assert [row["input_ids"] for row in rows] == ROWS
    assert list(rows[0]) == COLUMNS
    assert rows[0]["source"] == "text"


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_of_pytorch_gives_every_id_once(tokens: Path, workers: int) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is too large for the extra `test`")
    loader = torch.utils.data.DataLoader(
        _token_blocks()(files(tokens), 64), batch_size=4, num_workers=workers
    )
    found = [id_ for batch in loader for row in batch.tolist() for id_ in row]
    wanted = list(_cut_by_worker(max(1, workers)))
    assert sorted(found) == sorted(wanted)
    assert not workers or len(found) < sum(map(len, ROWS))


def _token_blocks() -> type:
    import runpy

    path = Path(__file__).parents[3] / "examples" / "data_loader.py"
    blocks: type = runpy.run_path(str(path))["TokenBlocks"]
    return blocks


def _cut_by_worker(workers: int) -> Iterator[int]:
    """The ids of whole blocks of each worker's files."""
    rows = [[list(part) for document in file for part in document] for file in FILES]
    for number in range(workers):
        ids = [id_ for file in rows[number::workers] for row in file for id_ in row]
        yield from ids[: len(ids) // 64 * 64]
