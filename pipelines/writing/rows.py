"""Rows of token files in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class TokenRows:
    """Encoded documents of one batch: row i has ids[offsets[i]:offsets[i + 1]].

    Attributes:
        ids: uint16 or uint32, of all rows.
        offsets: int64[n + 1].
        num_bytes, places, hashes, source, part, record_ids: as `num_bytes`, `offsets`, `hashes`,
            `source`, `part` and `ids` of the `DocumentBatch`.
    """

    ids: NDArray[Any]
    offsets: NDArray[np.int64]
    num_bytes: NDArray[np.int64]
    places: NDArray[np.int64]
    hashes: NDArray[np.uint64]
    source: str
    part: int
    record_ids: pa.StringArray | None = None

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.num_bytes)

    @property
    def part_numbers(self) -> NDArray[np.int32]:
        """int32[n], the part of each row."""
        return np.full(len(self), self.part, np.int32)

    @property
    def sources(self) -> tuple[Sequence[str], NDArray[np.int32]]:
        """Names of sources in order of appearance, and int32[n], which of them each row has."""
        return (self.source,), np.zeros(len(self), np.int32)

    def slice(self, first: int, end: int) -> TokenRows:
        """The rows [first, end), of the same memory."""
        start, stop = self.offsets[first], self.offsets[end]
        return replace(
            self,
            ids=self.ids[start:stop],
            offsets=self.offsets[first : end + 1] - start,
            num_bytes=self.num_bytes[first:end],
            places=self.places[first:end],
            hashes=self.hashes[first:end],
            record_ids=None if self.record_ids is None else self.record_ids[first:end],
        )


class Rows(Protocol):
    """Rows of a token file: of one batch, as `TokenRows`, or of many."""

    def __len__(self) -> int:
        """Number of rows."""

    @property
    def ids(self) -> NDArray[Any]:
        """The ids of all rows."""

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Row i has ids[offsets[i]:offsets[i + 1]]."""

    @property
    def num_bytes(self) -> NDArray[np.int64]:
        """Of each row, the bytes of the source text."""

    @property
    def places(self) -> NDArray[np.int64]:
        """Of each row, the column `offset`."""

    @property
    def record_ids(self) -> pa.StringArray | None:
        """Of each row, the record's own id."""

    @property
    def part_numbers(self) -> NDArray[np.int32]:
        """Of each row, the number of the piece."""

    @property
    def sources(self) -> tuple[Sequence[str], NDArray[np.int32]]:
        """Names of sources in order of appearance, and which of them each row has."""

    def slice(self, first: int, end: int) -> Rows:
        """The rows [first, end)."""
