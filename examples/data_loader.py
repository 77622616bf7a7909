"""A PyTorch DataLoader over token files: batches of blocks of ids, for one process or many ranks.

python examples/data_loader.py [FILE ...]
torchrun --nproc-per-node=2 examples/data_loader.py [FILE ...]

FILE are token files of a build; the default is those of out/quickstart. Requires PyTorch, and
token_blocks.py in the same directory. The rank comes from torchrun's RANK and WORLD_SIZE.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

import torch
from token_blocks import row_groups, token_blocks
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

STEPS = 50


class TokenBlocks(IterableDataset):
    """An endless stream of blocks of `length` ids; each rank and worker reads its own share.

    Shares have different numbers of blocks, so ranks must count steps, not epochs: a rank that
    finished early would leave the others waiting.
    """

    def __init__(
        self, files: list[Path], length: int, *, rank: int = 0, world_size: int = 1, seed: int = 0
    ) -> None:
        self.groups, self.length, self.seed = row_groups(files), length, seed
        self.rank, self.world_size = rank, world_size

    def __iter__(self) -> Iterator[torch.Tensor]:
        worker = get_worker_info()
        workers = worker.num_workers if worker else 1
        share = self.rank * workers + (worker.id if worker else 0)
        for epoch in count():
            found = 0
            for blocks in token_blocks(
                self.groups,
                self.length,
                share=share,
                shares=self.world_size * workers,
                epoch=epoch,
                seed=self.seed,
            ):
                found += len(blocks)
                yield from torch.from_numpy(blocks)
            if not found:
                raise ValueError(f"share {share} has fewer than {self.length} ids")


def main(files: list[Path]) -> None:
    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    dataset = TokenBlocks(files, 257, rank=rank, world_size=world_size)
    loader = DataLoader(dataset, batch_size=8, num_workers=2)
    ids = 0
    for batch in islice(loader, STEPS):
        inputs, targets = batch[:, :-1], batch[:, 1:]  # int64[8, 256] each
        ids += targets.numel()
        assert inputs.shape == targets.shape
    print(f"rank {rank} of {world_size}: {ids:,} ids in {STEPS} steps, of {len(files)} files")


if __name__ == "__main__":
    main(
        [Path(name) for name in sys.argv[1:]]
        or sorted(Path("out/quickstart/tokens").glob("train-*.parquet"))
    )
