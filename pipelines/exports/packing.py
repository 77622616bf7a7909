"""Packing: documents → rows of at most so many ids, with the lengths of the documents in them.

*Concatenate* cuts the ids of a split, one document after the other, every `sequence_length` ids:
no room is lost, and documents are cut wherever a row ends. *Best fit* puts the documents of a
window together so that few rows are needed, and cuts none that fits into a row; of longer ones it
cuts full rows, and packs the rest.

Both take ids as they come, in pieces (`Stretch`), and give rows as they are finished.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bpe_core._native import best_fit_rows, copy_pieces
from pipelines.sorting.arrow_lists import gathered, offsets_of

# Of rows that are given together, so that what is made of them takes little memory.
_BLOCK_IDS = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Ids that follow those before it.

    Attributes:
        ids: uint16 or uint32.
        starts: int64, ascending: where in them documents begin. A document without ids begins
            where the next one does.
    """

    ids: NDArray[Any]
    starts: NDArray[np.int64]

    def part(self, begin: int, end: int) -> Stretch:
        """The ids [begin, end), and the documents that begin with one of them."""
        first, last = np.searchsorted(self.starts, (begin, end))
        return Stretch(ids=self.ids[begin:end], starts=self.starts[first:last] - begin)


@dataclass(frozen=True, kw_only=True)
class PackedRows:
    """Rows: row i has ids[offsets[i]:offsets[i + 1]].

    Attributes:
        ids: uint16 or uint32, with the padding.
        offsets: int64, one more than rows.
        num_tokens: int32: ids of a row that are no padding.
        document_lengths: int32: what of each document lies in a row, of one row after the other.
        document_offsets: int64, one more than rows: row i has the document lengths
            [document_offsets[i], document_offsets[i + 1]), which add up to its `num_tokens`.
    """

    ids: NDArray[Any]
    offsets: NDArray[np.int64]
    num_tokens: NDArray[np.int32]
    document_lengths: NDArray[np.int32]
    document_offsets: NDArray[np.int64]

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.num_tokens)

    @classmethod
    def of_pieces(
        cls, ids: NDArray[Any], lengths: NDArray[np.int64], pieces: NDArray[np.int64]
    ) -> Self:
        """Rows without padding.

        Args:
            ids: of all pieces of documents, one after the other.
            lengths: of the pieces.
            pieces: how many of them each row has.

        Example:
            >>> rows = PackedRows.of_pieces(np.arange(6), np.array([3, 1, 2]), np.array([2, 1]))
            >>> rows.offsets.tolist(), rows.document_offsets.tolist()
            ([0, 4, 6], [0, 2, 3])
        """
        document_offsets = offsets_of(pieces)
        offsets = offsets_of(lengths)[document_offsets]
        return cls(
            ids=ids,
            offsets=offsets,
            num_tokens=np.diff(offsets).astype(np.int32),
            document_lengths=lengths.astype(np.int32),
            document_offsets=document_offsets,
        )

    def padded(self, sequence_length: int, pad_id: int) -> Self:
        """The rows filled up to `sequence_length` ids.

        Example:
            >>> rows = PackedRows.of_pieces(np.arange(6), np.array([3, 1, 2]), np.array([2, 1]))
            >>> rows.padded(4, 9).ids.tolist()
            [0, 1, 2, 3, 4, 5, 9, 9]
        """
        offsets = np.arange(len(self) + 1, dtype=np.int64) * sequence_length
        ids = np.full(offsets[-1], pad_id, self.ids.dtype)
        copy_pieces(self.ids, self.offsets[:-1], np.diff(self.offsets), ids, offsets[:-1])
        return replace(self, ids=ids, offsets=offsets)


def position_ids(
    document_lengths: NDArray[np.int32], num_tokens: NDArray[np.int32], offsets: NDArray[np.int64]
) -> NDArray[np.int32]:
    """Of each id its place in its piece of a document, from 0 in every piece; 0 for padding.

    Args:
        document_lengths: of all rows.
        num_tokens: of each row.
        offsets: where each row's ids begin, and the last's end, with padding.

    Example:
        >>> lengths, tokens, offsets = np.array([3, 1, 2]), np.array([4, 2]), np.array([0, 4, 8])
        >>> position_ids(lengths, tokens, offsets).tolist()
        [0, 1, 2, 0, 0, 1, 0, 0]
    """
    begins = offsets_of(document_lengths)
    places = np.arange(begins[-1]) - np.repeat(begins[:-1], document_lengths)
    positions = np.zeros(offsets[-1], np.int32)
    rows = offsets_of(num_tokens)
    copy_pieces(places.astype(np.int32), rows[:-1], np.diff(rows), positions, offsets[:-1])
    return positions


def concatenated_rows(
    stretches: Iterable[Stretch], sequence_length: int, *, pad_id: int | None = None
) -> Iterator[PackedRows]:
    """All ids in their order, cut every `sequence_length` ids; the last row may be shorter.

    Only rows that go through several stretches are copied; the others are where they came from.

    Args:
        stretches: of ids; the first begins a row.
        sequence_length: ids of a row.
        pad_id: what fills the last row up; None: it stays shorter.

    Example:
        >>> stretch = Stretch(ids=np.arange(7, dtype=np.uint16), starts=np.array([0, 5]))
        >>> [(rows.ids.tolist(), rows.document_lengths.tolist())
        ...  for rows in concatenated_rows([stretch], 4)]
        [([0, 1, 2, 3], [4]), ([4, 5, 6], [1, 2])]
    """
    block = max(1, _BLOCK_IDS // sequence_length) * sequence_length
    open_row = _OpenRow(sequence_length)
    for stretch in stretches:
        rest = open_row.fill(stretch) if len(open_row) else stretch
        if len(open_row) == sequence_length:
            yield open_row.take()
        whole = len(rest.ids) // sequence_length * sequence_length
        for begin in range(0, whole, block):
            yield _cut(rest.part(begin, min(begin + block, whole)), sequence_length)
        open_row.fill(rest.part(whole, len(rest.ids)))
    if len(open_row):
        last = open_row.take()
        yield last if pad_id is None else last.padded(sequence_length, pad_id)


class _OpenRow:
    """The ids of a row that the next stretches will fill."""

    def __init__(self, sequence_length: int) -> None:
        self._length = sequence_length
        self._parts: list[Stretch] = []
        self._used = 0

    def __len__(self) -> int:
        return self._used

    def fill(self, stretch: Stretch) -> Stretch:
        """Takes ids that the row has room for; gives the others."""
        end = min(len(stretch.ids), self._length - self._used)
        if end:
            self._parts.append(stretch.part(0, end))
            self._used += end
        return stretch.part(end, len(stretch.ids))

    def take(self) -> PackedRows:
        """The row."""
        places = offsets_of(np.array([len(part.ids) for part in self._parts]))[:-1]
        starts = [part.starts + place for part, place in zip(self._parts, places, strict=True)]
        row = Stretch(
            ids=np.concatenate([part.ids for part in self._parts]), starts=np.concatenate(starts)
        )
        self._parts, self._used = [], 0
        return _cut(row, self._length)


def _cut(stretch: Stretch, sequence_length: int) -> PackedRows:
    """The ids as rows; only the last may be no full one."""
    row_starts = np.arange(0, len(stretch.ids), sequence_length, dtype=np.int64)
    cuts = np.unique(np.concatenate([row_starts, stretch.starts]))
    first_pieces = np.searchsorted(cuts, row_starts)
    return PackedRows.of_pieces(
        stretch.ids,
        np.diff(cuts, append=len(stretch.ids)),
        np.diff(first_pieces, append=len(cuts)),
    )


def best_fit_packed(
    stretches: Iterable[Stretch],
    sequence_length: int,
    window: int,
    *,
    dtype: np.dtype[Any],
    pad_id: int | None = None,
) -> Iterator[tuple[int, PackedRows]]:
    """Documents packed together, a window of them at a time; none that fits a row is cut.

    A longer document gives full rows, which come before the other rows of its window, and a rest,
    which is packed as documents are. In a row documents stand in their order, and rows are in the
    order of their first document. Takes memory for at most `window * sequence_length` ids, whatever
    the length of the documents.

    Args:
        stretches: of ids; the first begins a document and a window.
        sequence_length: largest number of ids of a row.
        window: number of documents, documents without ids included, that are packed together.
        dtype: of the ids.
        pad_id: what fills rows up; None: they stay shorter.

    Yields:
        (number of the window from 0, rows), in order.
    """
    packer = _WindowPacker(sequence_length, dtype, pad_id)
    for number, part in _by_window(stretches, window):
        if number != packer.window:
            yield packer.window, packer.take()
            packer.window = number
        yield number, packer.add(part)
    yield packer.window, packer.take()


def _by_window(stretches: Iterable[Stretch], window: int) -> Iterator[tuple[int, Stretch]]:
    """The stretches cut where windows begin, with the numbers of the windows."""
    documents = 0  # that have begun
    for stretch in stretches:
        first = -documents % window  # of this stretch's documents, the first that begins a window
        places = stretch.starts[first::window]
        bounds = [0, *range(first, len(stretch.starts), window), len(stretch.starts)]
        ids = [0, *places.tolist(), len(stretch.ids)]
        for i in range(len(ids) - 1):
            starts = stretch.starts[bounds[i] : bounds[i + 1]]
            documents += len(starts)
            if documents and (ids[i] < ids[i + 1] or len(starts)):
                part = Stretch(ids=stretch.ids[ids[i] : ids[i + 1]], starts=starts - ids[i])
                yield (documents - 1) // window, part


class _WindowPacker:
    """The pieces of a window's documents, packed when all are there."""

    def __init__(self, sequence_length: int, dtype: np.dtype[Any], pad_id: int | None) -> None:
        self.window = 0
        self._length = sequence_length
        self._dtype = dtype
        self._pad_id = pad_id
        self._begin()

    def _begin(self) -> None:
        self._open = np.empty(0, self._dtype)  # of a document that may go on, less than a row
        self._ids: list[NDArray[Any]] = []
        self._lengths: list[NDArray[np.int64]] = []

    def add(self, stretch: Stretch) -> PackedRows:
        """Takes ids of the window; gives full rows of documents longer than a row."""
        ids, starts = stretch.ids, stretch.starts
        if len(self._open):
            ids, starts = np.concatenate([self._open, ids]), starts + len(self._open)
        begins = starts if len(starts) and starts[0] == 0 else np.insert(starts, 0, 0)
        ends = np.append(begins[1:], len(ids))
        full = (ends - begins) // self._length
        rests = begins + full * self._length  # where they begin
        self._open = ids[rests[-1] :].copy()
        self._keep(ids, rests[:-1], (ends - rests)[:-1])
        rows = int(full.sum())
        return PackedRows.of_pieces(
            gathered(ids, begins, full * self._length)[0],
            np.full(rows, self._length, np.int64),
            np.ones(rows, np.int64),
        )

    def _keep(
        self, ids: NDArray[Any], starts: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> None:
        self._ids.append(gathered(ids, starts, lengths)[0])
        self._lengths.append(lengths[lengths > 0])

    def take(self) -> PackedRows:
        """The rows of the documents that fit, and of the rests; the window is finished."""
        end = np.array([len(self._open)])
        self._keep(self._open, np.zeros(1, np.int64), end)
        ids, lengths = np.concatenate(self._ids), np.concatenate(self._lengths)
        row_of, count = best_fit_rows(lengths, self._length)
        order = np.argsort(row_of, kind="stable")
        pieces = np.bincount(row_of, minlength=count)
        starts = offsets_of(lengths)[:-1]
        packed = gathered(ids, starts[order], lengths[order])[0]
        rows = PackedRows.of_pieces(packed, lengths[order], pieces)
        self._begin()
        return rows if self._pad_id is None else rows.padded(self._length, self._pad_id)
