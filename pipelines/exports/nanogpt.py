"""nanoGPT: the ids of a split one after the other, without a header.

The files have the names that its `train.py` opens: `train.bin` and `val.bin`. It reads uint16.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from pipelines.console import progress
from pipelines.dataset.reading import TokenDataset
from pipelines.exports.files import ExportFiles, FormatOptions, Written, convert_ids, write_array

_NAMES: Final = {"train": "train.bin", "validation": "val.bin"}


def write_split(
    dataset: TokenDataset, split: str, files: ExportFiles, options: FormatOptions
) -> Written:
    """Write the file of a split."""
    dtype = np.dtype(options["id_type"])
    tokens = documents = 0
    with files.write(_NAMES[split]) as file:
        for chunk in dataset.chunks(split, ["part"]):
            write_array(file, convert_ids(chunk.ids, dtype))
            tokens += len(chunk.ids)
            documents += int(chunk.starts.sum())
            progress.advance(len(chunk.ids))
    return Written(documents=documents, tokens=tokens, facts={})
