"""Sections of a split: find the files that contain some ids or documents, and read only those.

The files of a section follow from the numbers in the manifest. In the first file, a narrow column
shows the first row to read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from pipelines.dataset.reading import TokenChunk, TokenDataset, TokenFile
from pipelines.errors import InputError, shortened
from pipelines.exports.packing import Stretch

_FILES_SHOWN: Final = 3


@dataclass(frozen=True, kw_only=True)
class Section:
    """Consecutive ids or documents of a split.

    Attributes:
        files: Files that contain them, in order.
        skip: Number of ids or documents of the first file that precede them.
        count: Number of the ids or documents.
        last: True if the split ends with them.
    """

    files: tuple[TokenFile, ...]
    skip: int
    count: int
    last: bool

    @classmethod
    def of_tokens(cls, files: Sequence[TokenFile], first: int, end: int) -> Self:
        """Return the section of the ids [first, end) of a split's files."""
        return cls._of(files, [file.tokens for file in files], first, end)

    @classmethod
    def of_documents(cls, files: Sequence[TokenFile], first: int, end: int) -> Self:
        """Return the section of the documents [first, end) of a split's files."""
        return cls._of(files, [file.documents for file in files], first, end)

    @classmethod
    def _of(cls, files: Sequence[TokenFile], numbers: Sequence[int], first: int, end: int) -> Self:
        ends = np.cumsum(numbers)
        last = bool(end == ends[-1])
        # A file that ends where the section begins may end with documents without ids that belong
        # to it.
        begin = int(np.searchsorted(ends, first, "left"))
        stop = len(files) if last else int(np.searchsorted(ends, end, "left")) + 1
        return cls(
            files=tuple(files[begin:stop]),
            skip=first - int(ends[begin] - numbers[begin]),
            count=end - first,
            last=last,
        )


def token_stretches(dataset: TokenDataset, section: Section) -> Iterator[Stretch]:
    """Yield the ids of a section, and the documents that begin with one of them.

    A document without ids begins with the next id, or at the end of the split.

    Raises:
        InputError: A file is missing, damaged, or does not match the manifest.
    """
    left, skip = section.count, section.skip
    for file in section.files:
        _check_bytes(dataset, file)
        row, before = _row_of_token(dataset, file, skip)
        for chunk in dataset.file_chunks(file, ["part"], start_row=row):
            drop = min(skip - before, len(chunk.ids))
            ids = chunk.ids[drop : drop + left]
            starts = chunk.offsets[:-1][chunk.starts] - drop
            known = starts[(starts >= 0) & ((starts < left) | section.last)]
            left -= len(ids)
            skip = before = 0
            yield Stretch(ids=ids, starts=known)
            if not left and not section.last:
                return
        skip = 0
    _check_nothing_left(dataset, section, left, "ids")


def _row_of_token(dataset: TokenDataset, file: TokenFile, token: int) -> tuple[int, int]:
    """Find the row of an id, or of documents without ids before it.

    Returns:
        The row, and the number of ids before it.
    """
    if token == 0:
        return 0, 0
    lengths = _column(dataset, file, "num_tokens").astype(np.int64)
    starts = np.cumsum(lengths) - lengths
    row = int(np.searchsorted(starts, token, "left"))
    if row and (row == len(starts) or starts[row] > token):
        row -= 1
    return row, int(starts[row])


def document_chunks(
    dataset: TokenDataset, section: Section, columns: Sequence[str]
) -> Iterator[TokenChunk]:
    """Yield the rows of a section's documents. `part` must be among the columns.

    Raises:
        InputError: A file is missing, damaged, or does not match the manifest.
    """
    left, skip = section.count, section.skip
    for file in section.files:
        _check_bytes(dataset, file)
        row = _row_of_document(dataset, file, skip)
        skip = 0
        for chunk in dataset.file_chunks(file, columns, start_row=row):
            begins = np.flatnonzero(chunk.starts)
            if len(begins) > left:
                yield _first_rows(chunk, int(begins[left]))
                return
            left -= len(begins)
            yield chunk
    _check_nothing_left(dataset, section, left, "documents")


def _row_of_document(dataset: TokenDataset, file: TokenFile, document: int) -> int:
    if document == 0:
        return 0
    begins = np.flatnonzero(_column(dataset, file, "part") == 0)
    return int(begins[document]) if document < len(begins) else file.rows


def document_stretches(dataset: TokenDataset, section: Section) -> Iterator[Stretch]:
    """Yield the ids of a section's documents."""
    for chunk in document_chunks(dataset, section, ["part"]):
        yield Stretch(ids=chunk.ids, starts=chunk.offsets[:-1][chunk.starts])


def _first_rows(chunk: TokenChunk, rows: int) -> TokenChunk:
    offsets = chunk.offsets[: rows + 1]
    ids, columns = chunk.ids[: offsets[-1]], chunk.columns.slice(0, rows)
    return replace(chunk, ids=ids, offsets=offsets, columns=columns)


def _check_bytes(dataset: TokenDataset, file: TokenFile) -> None:
    """Check the checksum of a local file, as `TokenDataset.chunks` does.

    A remote file would have to be read twice.
    """
    if dataset.tokens.is_local:
        dataset.check_bytes(file)


def _column(dataset: TokenDataset, file: TokenFile, name: str) -> NDArray[Any]:
    tables = replace(dataset, files=(file,)).tables(file.split, [name])
    return np.concatenate([table[name].to_numpy() for table in tables])


def _check_nothing_left(dataset: TokenDataset, section: Section, left: int, what: str) -> None:
    if left:
        raise InputError(
            "The token files contain less than the manifest lists.",
            expected=f"{section.count:,} {what}",
            found=f"{section.count - left:,}",
            where=shortened([file.name for file in section.files], _FILES_SHOWN),
            hint="Restore them, or encode again: `beam-bpe encode CONFIG --restart`.",
        )
