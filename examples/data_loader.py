"""Token files in a PyTorch DataLoader: batches of blocks of ids, the files shared out to workers.

python examples/data_loader.py [FILE ...]

FILE are token files of a build; by default those of out/quickstart. Needs PyTorch.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class TokenBlocks(IterableDataset):
    """Rows of `length` ids, through the documents of each worker's files; the last ids are left."""

    def __init__(self, files: list[Path], length: int) -> None:
        self.files, self.length = files, length

    def __iter__(self) -> Iterator[torch.Tensor]:
        worker = get_worker_info()
        mine = self.files[worker.id :: worker.num_workers] if worker else self.files
        rest = np.empty(0, np.int64)
        for file in mine:
            for rows in pq.ParquetFile(file).iter_batches(4096, columns=["input_ids"]):
                ids = np.concatenate([rest, rows["input_ids"].flatten().to_numpy()])
                blocks, rest = np.split(ids, [len(ids) // self.length * self.length])
                yield from torch.from_numpy(blocks).view(-1, self.length)


def main(files: list[Path]) -> None:
    loader = DataLoader(TokenBlocks(files, 256), batch_size=8, num_workers=2)
    ids = sum(batch.numel() for batch in loader)
    print(f"{ids:,} ids in blocks of 256, of {len(files)} files")


if __name__ == "__main__":
    main(
        [Path(name) for name in sys.argv[1:]]
        or sorted(Path("out/quickstart/tokens").glob("train-*"))
    )
