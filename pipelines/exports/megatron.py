"""Megatron-LM's indexed datasets: the ids in `SPLIT.bin`, and their positions in `SPLIT.idx`.

A document is one sequence, with all its parts, since `GPTDataset` treats a sequence as a document.
Lengths are int32, so a document of more than 2^31 - 1 ids is several sequences, all but the last of
that length; the indices of documents show which belong together.

The index contains, in this order (`IndexedDataset` of `megatron.core.datasets.indexed_dataset`):
nine bytes that identify the format, its version (uint64), the code of the ids' type (uint8), the
numbers of sequences and of indices of documents (uint64); then the sequences' lengths (int32), the
byte offsets of their starts (int64), and the number of sequences before each document and after the
last (int64).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pipelines.console import progress
from pipelines.dataset.reading import TokenDataset
from pipelines.exports.files import ExportFiles, FormatOptions, Written, convert_ids, write_array
from pipelines.storage.directory import HashingFile

_MAGIC: Final = b"MMIDIDX\0\0"
_VERSION: Final = 1
_TYPE_CODES: Final = {"uint16": 8, "int32": 4}
_LONGEST: Final = 2**31 - 1


def write_split(
    dataset: TokenDataset, split: str, files: ExportFiles, options: FormatOptions
) -> Written:
    """Write the two files of a split."""
    dtype = np.dtype(options["id_type"])
    tokens = 0
    with files.write(f"{split}.bin") as file:
        for chunk in dataset.chunks(split):
            write_array(file, convert_ids(chunk.ids, dtype))
            tokens += len(chunk.ids)
            progress.advance(len(chunk.ids))
    with files.write(f"{split}.idx") as file:
        documents, sequences = _write_index(dataset, split, dtype, file)
    return Written(documents=documents, tokens=tokens, facts={"sequences": sequences})


def _write_index(
    dataset: TokenDataset, split: str, dtype: np.dtype[Any], file: HashingFile
) -> tuple[int, int]:
    """Write the index. Return the numbers of documents and sequences.

    The lengths are read again for each array, since those of many documents may not fit in memory.
    """

    def counts() -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        for lengths in dataset.document_lengths(split):
            yield lengths, _sequences_of(lengths)

    documents = sequences = 0
    for lengths, numbers in counts():
        documents += len(lengths)
        sequences += int(numbers.sum())
    file.write(_MAGIC)
    code = _TYPE_CODES[dtype.name]
    file.write(struct.pack("<QBQQ", _VERSION, code, sequences, documents + 1))
    for lengths, numbers in counts():
        write_array(file, _sequence_lengths(lengths, numbers).astype(np.int32))
    begin = 0
    for lengths, numbers in counts():
        ends = begin + np.cumsum(_sequence_lengths(lengths, numbers)) * dtype.itemsize
        write_array(file, np.concatenate([[begin], ends[:-1]])[: len(ends)])
        begin = int(ends[-1]) if len(ends) else begin
    before = 0
    write_array(file, np.zeros(1, np.int64))
    for _, numbers in counts():
        after = before + np.cumsum(numbers)
        write_array(file, after)
        before = int(after[-1]) if len(after) else before
    return documents, sequences


def _sequences_of(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of sequences of each document, 1 for a document without ids."""
    return np.maximum(1, -(-lengths // _LONGEST))


def _sequence_lengths(lengths: NDArray[np.int64], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the lengths of the sequences of documents.

    >>> _sequence_lengths(np.array([5, 2**31 + 1]), np.array([1, 2])).tolist()
    [5, 2147483647, 2]
    """
    sequences = np.full(int(numbers.sum()), _LONGEST, np.int64)
    sequences[np.cumsum(numbers) - 1] = lengths - (numbers - 1) * _LONGEST
    return sequences
