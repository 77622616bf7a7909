"""Which documents of a source are taken, as each of them says by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

_HASHES = 2.0**64


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """What a document must be like to be taken.

    Attributes:
        sample_fraction: share of the documents, chosen by the upper 64 bits of their hashes.
        min_chars, max_chars: Unicode characters of the document, invalid bytes counted as what
            repairing makes of them; None: as many as there are.
    """

    sample_fraction: float = 1.0
    min_chars: int = 0
    max_chars: int | None = None

    @property
    def is_all(self) -> bool:
        """Whether every document is taken."""
        return self.sample_fraction >= 1.0 and not self.counts_characters

    @property
    def counts_characters(self) -> bool:
        """Whether the number of characters matters."""
        return self.min_chars > 0 or self.max_chars is not None

    def of(self, hashes: NDArray[np.uint64], characters: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which documents are taken.

        Args:
            hashes: uint64[n, 2], see `DocumentBatch.hashes`.
            characters: int64[n]; not looked at unless `counts_characters`.
        """
        taken = in_share(hashes[:, 0], self.sample_fraction)
        if self.counts_characters:
            taken &= characters >= self.min_chars
            if self.max_chars is not None:
                taken &= characters <= self.max_chars
        return taken


ALL: Final = Selection()


def in_share(bits: NDArray[np.uint64], fraction: float) -> NDArray[np.bool_]:
    """Which of these random numbers are among the smallest `fraction` of all of 64 bits.

    >>> in_share(np.array([0, 1 << 62, 1 << 63], np.uint64), 0.5).tolist()
    [True, True, False]
    """
    if fraction >= 1.0:
        return np.ones(len(bits), np.bool_)
    return bits < np.uint64(int(fraction * _HASHES))
