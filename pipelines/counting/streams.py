"""Sorted rows of several counts, read together in bounded memory.

Each file is sorted. So the rows of all files up to some pre-token, a *window*, can be combined as
counts in memory are, and the combined windows, one after the other, are the combined counts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from bpe_core import PretokenCounts
from bpe_core.counts import sum_counts
from pipelines.counting.given import GivenCounts

_ROWS_IN_MEMORY: Final = 1 << 19
_FEWEST_ROWS: Final = 1 << 10


def read_windows(
    counts: Sequence[GivenCounts], first: int = 0, step: int = 1
) -> Iterator[list[PretokenCounts]]:
    """Yield windows of the rows in every `step`-th file, from file `first` on.

    Args:
        counts: Counts whose numbers of files are multiples of `step`.
        first: Number of the first file.
        step: 1 for all files.

    Yields:
        The rows of each of the counts, up to the same pre-token.
    """
    files = [range(first, given.shards, step) for given in counts]
    rows = max(_FEWEST_ROWS, _ROWS_IN_MEMORY // max(sum(map(len, files)), 1))
    streams = [
        [_Stream(given.read(file, rows)) for file in of_counts]
        for given, of_counts in zip(counts, files, strict=True)
    ]
    while bounds := [s.last for of_counts in streams for s in of_counts if s.last is not None]:
        bound = min(bounds)
        taken = [[rows for s in of_counts for rows in s.take(bound)] for of_counts in streams]
        yield [
            sum_counts(parts) if parts else given.empty
            for given, parts in zip(counts, taken, strict=True)
        ]


class _Stream:
    """Rows of a file, of which some are in memory.

    Attributes:
        last: The last pre-token in memory, or None at the end.
    """

    def __init__(self, rows: Iterator[PretokenCounts]) -> None:
        self._rows = rows
        self._start = 0
        self.last: bytes | None = None
        self._fill()

    def take(self, bound: bytes) -> Iterator[PretokenCounts]:
        """Yield the rows in memory up to and including a pre-token, if there are any."""
        if self.last is None:
            return
        start, stop = self._start, len(self._buffer)
        if self.last > bound:
            stop = bisect_right(range(stop), bound, start, key=self._key)
        if stop > start:
            yield self._buffer.rows(slice(start, stop))
        self._start = stop
        if stop == len(self._buffer):
            self._fill()

    def _fill(self) -> None:
        self._start = 0
        rows = next(self._rows, None)
        if rows is None:
            self.last = None
            return
        self._buffer = rows
        self._keys, self._offsets, _ = rows.columns()
        self.last = self._key(len(rows) - 1)

    def _key(self, row: int) -> bytes:
        return self._keys[self._offsets[row] : self._offsets[row + 1]].tobytes()
