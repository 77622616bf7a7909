"""Pack the documents of a build into shuffled rows of 512 ids and read them in batches.

python examples/packed_rows.py [OUTPUT [DEST]]

OUTPUT is the output of a build; the default is out/quickstart. The rows are written to DEST; the
default is out/packed. For attention within documents, each batch contains the cumulative lengths of
the documents in all its rows.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from pipelines.dataset.reading import TokenDataset
from pipelines.exports.export import export
from pipelines.exports.formats import ExportOptions
from pipelines.storage.directory import Directory

LENGTH = 512
BATCH = 8


def batches(files: list[Path]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield (ids int64[rows, LENGTH], cu_seqlens int32) for each batch."""
    for file in files:
        for rows in pq.ParquetFile(file).iter_batches(BATCH):
            ids = rows["input_ids"].flatten().to_numpy().reshape(-1, LENGTH)
            lengths = []
            for documents, tokens in zip(
                rows["document_lengths"].to_pylist(), rows["num_tokens"].to_pylist(), strict=True
            ):
                lengths += [*documents, LENGTH - tokens]  # padding counts as a document
            bounds = np.cumsum([0, *(length for length in lengths if length)])
            yield ids.astype(np.int64), bounds.astype(np.int32)


def main(output: str, destination: str) -> None:
    options = ExportOptions(
        to="packed", sequence_length=LENGTH, packing="best-fit", pad_id=0, shuffle_seed=1
    )
    exported = export(TokenDataset.open(output), Directory(url=destination), options)
    train = exported.manifest["splits"]["train"]
    room = train["rows"] * LENGTH
    print(f"{train['tokens']:,} ids in {train['rows']:,} rows: {train['tokens'] / room:.1%} full")
    ids, bounds = next(batches(sorted(Path(destination).glob("train-*.parquet"))))
    assert bounds[-1] == ids.size
    print(f"first batch: {ids.shape[0]} rows, {len(bounds) - 1} parts of documents and padding")


if __name__ == "__main__":
    main(*(sys.argv[1:] + ["out/quickstart", "out/packed"][len(sys.argv) - 1 :]))
