"""NumPy: the ids of a split as one array, and the start of each document in it.

`SPLIT.npy` contains the ids, `SPLIT.offsets.npy` the offsets (int64, one more than documents). Both
can be mapped into memory: `numpy.load(path, mmap_mode="r")`.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.lib.format import dtype_to_descr, write_array_header_1_0

from pipelines.console import progress
from pipelines.dataset.reading import TokenDataset
from pipelines.exports.files import ExportFiles, FormatOptions, Written, convert_ids, write_array


def write_split(
    dataset: TokenDataset, split: str, files: ExportFiles, options: FormatOptions
) -> Written:
    """Write the two arrays of a split."""
    dtype = np.dtype(options["id_type"])
    tokens = documents = 0
    with (
        files.write(f"{split}.npy") as ids,
        files.write(f"{split}.offsets.npy") as offsets,
    ):
        ids.write(_header(dtype, dataset.num_tokens(split)))
        offsets.write(_header(np.dtype(np.int64), dataset.num_documents(split) + 1))
        for chunk in dataset.chunks(split, ["part"]):
            write_array(ids, convert_ids(chunk.ids, dtype))
            begins = chunk.offsets[:-1][chunk.starts] + tokens
            write_array(offsets, begins)
            tokens += len(chunk.ids)
            documents += len(begins)
            progress.advance(len(chunk.ids))
        write_array(offsets, np.array([tokens], np.int64))
    return Written(documents=documents, tokens=tokens, facts={})


def _header(dtype: np.dtype[Any], length: int) -> bytes:
    header = io.BytesIO()
    description = {"descr": dtype_to_descr(dtype), "fortran_order": False, "shape": (length,)}
    write_array_header_1_0(header, description)
    return header.getvalue()
