"""Packing: documents → rows of limited length, with the lengths of the documents in them.

*Concatenate* cuts the concatenated ids of a split every `sequence_length` ids: no space is wasted,
and documents are cut wherever a row ends. *Best fit* combines the documents of a window so that few
rows are needed, and cuts none that fits into a row. Longer documents are cut into full rows and a
rest, which is packed like a document.

Both read ids in stretches of any length, and yield rows as they are completed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from bpe_core._native import best_fit_rows, copy_pieces
from pipelines.sorting.arrow_lists import gather_slices, to_offsets

# Maximum number of ids in rows that are yielded together, so that their tables stay small.
_BLOCK_IDS: Final = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Consecutive ids that follow the previous stretch.

    Attributes:
        ids: uint16 or uint32.
        starts: int64, ascending: the starts of documents in the ids. A document without ids starts
            where the next one does.
    """

    ids: NDArray[Any]
    starts: NDArray[np.int64]

    def part(self, begin: int, end: int) -> Stretch:
        """Return the ids [begin, end), and the documents that start in this interval."""
        first, last = np.searchsorted(self.starts, (begin, end))
        return Stretch(ids=self.ids[begin:end], starts=self.starts[first:last] - begin)


@dataclass(frozen=True, kw_only=True)
class PackedRows:
    """Rows of ids: row i is ids[offsets[i]:offsets[i + 1]].

    Attributes:
        ids: uint16 or uint32, with the padding.
        offsets: int64, one more than rows.
        num_tokens: int32, ids of each row without the padding.
        document_lengths: int32, ids of each document in a row, row after row.
        document_offsets: int64, one more than rows: the document lengths of row i are those in
            [document_offsets[i], document_offsets[i + 1]), and add up to its `num_tokens`.
    """

    ids: NDArray[Any]
    offsets: NDArray[np.int64]
    num_tokens: NDArray[np.int32]
    document_lengths: NDArray[np.int32]
    document_offsets: NDArray[np.int64]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.num_tokens)

    @classmethod
    def of_pieces(
        cls, ids: NDArray[Any], lengths: NDArray[np.int64], pieces: NDArray[np.int64]
    ) -> Self:
        """Return rows without padding.

        Args:
            ids: Concatenated ids of all pieces of documents.
            lengths: Lengths of the pieces.
            pieces: Number of pieces of each row.

        Example:
            >>> rows = PackedRows.of_pieces(np.arange(6), np.array([3, 1, 2]), np.array([2, 1]))
            >>> rows.offsets.tolist(), rows.document_offsets.tolist()
            ([0, 4, 6], [0, 2, 3])
        """
        document_offsets = to_offsets(pieces)
        offsets = to_offsets(lengths)[document_offsets]
        return cls(
            ids=ids,
            offsets=offsets,
            num_tokens=np.diff(offsets).astype(np.int32),
            document_lengths=lengths.astype(np.int32),
            document_offsets=document_offsets,
        )

    def padded(self, sequence_length: int, pad_id: int) -> Self:
        """Return the rows filled up to `sequence_length` ids.

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
    """Return the position of each id in its piece of a document, and 0 for padding.

    Args:
        document_lengths: Document lengths of all rows.
        num_tokens: Ids of each row without padding.
        offsets: Starts of the ids of each row, and end of the last, with padding.

    Example:
        >>> lengths, tokens, offsets = np.array([3, 1, 2]), np.array([4, 2]), np.array([0, 4, 8])
        >>> position_ids(lengths, tokens, offsets).tolist()
        [0, 1, 2, 0, 0, 1, 0, 0]
    """
    begins = to_offsets(document_lengths)
    unpadded = np.arange(begins[-1]) - np.repeat(begins[:-1], document_lengths)
    positions = np.zeros(offsets[-1], np.int32)
    rows = to_offsets(num_tokens)
    copy_pieces(unpadded.astype(np.int32), rows[:-1], np.diff(rows), positions, offsets[:-1])
    return positions


def concatenated_rows(
    stretches: Iterable[Stretch], sequence_length: int, *, pad_id: int | None = None
) -> Iterator[PackedRows]:
    """Yield all ids in their order, cut every `sequence_length` ids. The last row may be shorter.

    Only rows that span several stretches are copied; the others are views.

    Args:
        stretches: The ids. The first stretch begins a row.
        sequence_length: Ids of a row.
        pad_id: Id that fills the last row, or None if it may be shorter.

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
    """Ids of a row that the next stretches complete."""

    def __init__(self, sequence_length: int) -> None:
        self._length = sequence_length
        self._parts: list[Stretch] = []
        self._used = 0

    def __len__(self) -> int:
        return self._used

    def fill(self, stretch: Stretch) -> Stretch:
        """Add ids until the row is full. Return the remaining ids."""
        end = min(len(stretch.ids), self._length - self._used)
        if end:
            self._parts.append(stretch.part(0, end))
            self._used += end
        return stretch.part(end, len(stretch.ids))

    def take(self) -> PackedRows:
        """Return the row, and start another one."""
        begins = to_offsets(np.array([len(part.ids) for part in self._parts]))[:-1]
        starts = [part.starts + begin for part, begin in zip(self._parts, begins, strict=True)]
        row = Stretch(
            ids=np.concatenate([part.ids for part in self._parts]), starts=np.concatenate(starts)
        )
        self._parts, self._used = [], 0
        return _cut(row, self._length)


def _cut(stretch: Stretch, sequence_length: int) -> PackedRows:
    """Return the ids as rows; only the last may be shorter."""
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
    """Yield packed documents, one window at a time. A document that fits into a row is not cut.

    A longer document becomes full rows, which precede the other rows of its window, and a rest,
    which is packed like a document. Documents in a row keep their order, and rows are in the order
    of their first document. Memory is bounded by `window * sequence_length` ids, whatever the
    length of the documents.

    Args:
        stretches: The ids. The first stretch begins a document and a window.
        sequence_length: Maximum number of ids of a row.
        window: Number of documents to pack together; documents without ids count.
        dtype: Type of the ids.
        pad_id: Id that fills rows, or None if they may be shorter.

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
    """Yield the stretches, cut at the starts of windows, with the number of each window."""
    documents = 0  # number of documents that have begun
    for stretch in stretches:
        first = -documents % window  # first document of the stretch that begins a window
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
    """Collector of the pieces of a window's documents, which packs a complete window."""

    def __init__(self, sequence_length: int, dtype: np.dtype[Any], pad_id: int | None) -> None:
        self.window = 0
        self._length = sequence_length
        self._dtype = dtype
        self._pad_id = pad_id
        self._begin()

    def _begin(self) -> None:
        self._open = np.empty(0, self._dtype)  # less than a row, of a document that may continue
        self._ids: list[NDArray[Any]] = []
        self._lengths: list[NDArray[np.int64]] = []

    def add(self, stretch: Stretch) -> PackedRows:
        """Add ids of the window. Return the full rows of documents longer than a row."""
        ids, starts = stretch.ids, stretch.starts
        if len(self._open):
            ids, starts = np.concatenate([self._open, ids]), starts + len(self._open)
        begins = starts if len(starts) and starts[0] == 0 else np.insert(starts, 0, 0)
        ends = np.append(begins[1:], len(ids))
        full = (ends - begins) // self._length
        rests = begins + full * self._length  # starts of the rests
        self._open = ids[rests[-1] :].copy()
        self._keep(ids, rests[:-1], (ends - rests)[:-1])
        rows = int(full.sum())
        return PackedRows.of_pieces(
            gather_slices(ids, begins, full * self._length)[0],
            np.full(rows, self._length, np.int64),
            np.ones(rows, np.int64),
        )

    def _keep(
        self, ids: NDArray[Any], starts: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> None:
        self._ids.append(gather_slices(ids, starts, lengths)[0])
        self._lengths.append(lengths[lengths > 0])

    def take(self) -> PackedRows:
        """Return the rows of all other documents and of the rests, and start a new window."""
        end = np.array([len(self._open)])
        self._keep(self._open, np.zeros(1, np.int64), end)
        ids, lengths = np.concatenate(self._ids), np.concatenate(self._lengths)
        row_of, count = best_fit_rows(lengths, self._length)
        order = np.argsort(row_of, kind="stable")
        pieces = np.bincount(row_of, minlength=count)
        starts = to_offsets(lengths)[:-1]
        packed = gather_slices(ids, starts[order], lengths[order])[0]
        rows = PackedRows.of_pieces(packed, lengths[order], pieces)
        self._begin()
        return rows if self._pad_id is None else rows.padded(self._length, self._pad_id)
