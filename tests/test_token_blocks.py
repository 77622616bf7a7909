"""`examples/token_blocks.py`, which others copy: shares are apart, and together everything."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

EXAMPLE: dict[str, Any] = runpy.run_path(
    str(Path(__file__).parents[1] / "examples" / "token_blocks.py")
)
FILES, ROWS, GROUP_ROWS = 3, 40, 5
LENGTH = 4


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, int]]:
    """Rows of four ids, so that a block is a row; each id is there once. One file has no rows."""
    folder = tmp_path_factory.mktemp("tokens")
    rows = np.arange(FILES * ROWS * LENGTH, dtype=np.uint16).reshape(FILES, ROWS, LENGTH)
    kind = pa.list_(pa.uint16())
    for number, of_file in enumerate([*rows, rows[0, :0]]):
        table = pa.table({"input_ids": pa.array(of_file.tolist(), kind)})
        pq.write_table(table, folder / f"train-{number}.parquet", row_group_size=GROUP_ROWS)
    return EXAMPLE["row_groups"](sorted(folder.glob("train-*.parquet")))


def ids(groups: list[tuple[Path, int]], **options: int) -> np.ndarray:
    blocks = list(EXAMPLE["token_blocks"](groups, LENGTH, **options))
    assert all(part.dtype == np.int64 and part.shape[1] == LENGTH for part in blocks)
    return np.concatenate(blocks)


@pytest.mark.parametrize("shares", [1, 2, 7])
def test_shares_together_have_every_block_once(groups: list[tuple[Path, int]], shares: int) -> None:
    parts = [ids(groups, share=share, shares=shares) for share in range(shares)]
    together = np.concatenate(parts).ravel()
    assert np.array_equal(np.sort(together), np.arange(FILES * ROWS * LENGTH))


def test_the_order_follows_from_seed_and_epoch(groups: list[tuple[Path, int]]) -> None:
    first = ids(groups, seed=1, epoch=0)
    assert np.array_equal(first, ids(groups, seed=1, epoch=0))
    assert not np.array_equal(first, ids(groups, seed=1, epoch=1))
    assert not np.array_equal(first, ids(groups, seed=2, epoch=0))


def test_blocks_go_on_over_row_groups(groups: list[tuple[Path, int]]) -> None:
    length = 3 * LENGTH * GROUP_ROWS // 2
    blocks = list(EXAMPLE["token_blocks"](groups, length))
    assert sum(len(part) for part in blocks) == FILES * ROWS * LENGTH // length


def test_fewer_row_groups_than_shares_are_an_error(groups: list[tuple[Path, int]]) -> None:
    with pytest.raises(ValueError, match="at least one row group for each of 1000 shares"):
        next(EXAMPLE["token_blocks"](groups, LENGTH, shares=1000))
