"""Blocks of ids of token files, dealt to the ranks of a training job: NumPy and pyarrow alone.

python examples/token_blocks.py [FILE ...]

FILE are token files of a build; by default those of out/quickstart. Prints what each of four ranks
reads in one epoch. data_loader.py makes a PyTorch DataLoader of it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray


def row_groups(files: Sequence[Path]) -> list[tuple[Path, int]]:
    """The row groups of all files, in order; each has at most about a million ids."""
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
    """Arrays int64[n, length]: the ids of one share, documents one after the other.

    Each epoch has another order of the row groups, which follows from seed and epoch alone, so it
    is the same for all shares; of this order each takes every `shares`-th. The last ids of a share
    that fill no block are left out.

    Raises:
        ValueError: there are fewer row groups than shares, so that some would have no ids.
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
