"""Blocks of ids from token files, distributed over the ranks of a training job.

python examples/token_blocks.py [FILE ...]

FILE are token files of a build; the default is those of out/quickstart. Prints the number of blocks
that each of four ranks reads in one epoch. Requires only NumPy and pyarrow. data_loader.py builds a
PyTorch DataLoader on it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray


def row_groups(files: Sequence[Path]) -> list[tuple[Path, int]]:
    """Return the row groups of all files in order; each has at most about a million ids."""
    return [
        (file, number) for file in files for number in range(pq.read_metadata(file).num_row_groups)
    ]


def token_blocks(
    groups: Sequence[tuple[Path, int]],
    length: int,
    *,
    share: int = 0,
    shares: int = 1,
    epoch: int = 0,
    seed: int = 0,
) -> Iterator[NDArray[np.int64]]:
    """Yield arrays int64[n, length] with the ids of one share, document after document.

    The order of the row groups depends only on seed and epoch, so it is the same for all shares.
    Each share reads every `shares`-th row group of this order. The last ids of a share, which do
    not fill a block, are dropped.

    Raises:
        ValueError: there are fewer row groups than shares, so some shares would have no ids.
    """
    if len(groups) < shares:
        raise ValueError(
            f"expected at least one row group for each of {shares} shares (ranks x workers), found "
            f"{len(groups)}; write smaller ones: beam-bpe export --row-group-rows"
        )
    order = np.random.default_rng([seed, epoch]).permutation(len(groups))
    rest = np.empty(0, np.int64)
    for index in order[share::shares]:
        file, number = groups[index]
        table = pq.ParquetFile(file).read_row_group(number, columns=["input_ids"])
        ids = table["input_ids"].combine_chunks().flatten().to_numpy()
        ids = np.concatenate([rest, ids])  # int64 from here on
        blocks, rest = np.split(ids, [len(ids) // length * length])
        yield blocks.reshape(-1, length)


def main(files: list[Path]) -> None:
    groups = row_groups(files)
    ranks = 4
    for rank in range(ranks):
        blocks = sum(len(part) for part in token_blocks(groups, 256, share=rank, shares=ranks))
        print(f"rank {rank} of {ranks}: {blocks:,} blocks of 256 ids")


if __name__ == "__main__":
    main(
        [Path(name) for name in sys.argv[1:]]
        or sorted(Path("out/quickstart/tokens").glob("train-*.parquet"))
    )
