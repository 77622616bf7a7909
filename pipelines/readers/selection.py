"""Selection of documents by their own properties, independent of all other documents.

Sampling uses the upper half of a document's hash and the validation split the lower half, and
neither uses anything else, so the two are independent of each other and of ranges and workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

_HASHES = 2.0**64


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """Conditions for selecting a document.

    Attributes:
        sample_fraction: share of the documents, chosen by the upper 64 bits of their hashes.
        min_chars, max_chars: bounds of the number of Unicode characters; invalid bytes count as
            the characters that replace them; None: no upper bound.
    """

    sample_fraction: float = 1.0
    min_chars: int = 0
    max_chars: int | None = None

    @property
    def is_all(self) -> bool:
        """True if every document is selected."""
        return self.sample_fraction >= 1.0 and not self.counts_characters

    @property
    def counts_characters(self) -> bool:
        """True if the selection depends on the number of characters."""
        return self.min_chars > 0 or self.max_chars is not None

    def select(
        self, hashes: NDArray[np.uint64], characters: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Return a mask of the selected documents, bool[n].

        Args:
            hashes: uint64[n, 2]; see `DocumentBatch.hashes`.
            characters: int64[n], numbers of characters; ignored unless `counts_characters`.
        """
        selected = select_share(hashes[:, 0], self.sample_fraction)
        if self.counts_characters:
            selected &= characters >= self.min_chars
            if self.max_chars is not None:
                selected &= characters <= self.max_chars
        return selected


ALL: Final = Selection()


def select_share(bits: NDArray[np.uint64], fraction: float) -> NDArray[np.bool_]:
    """Return a mask of the numbers among the smallest `fraction` of all 64-bit numbers.

    >>> select_share(np.array([0, 1 << 62, 1 << 63], np.uint64), 0.5).tolist()
    [True, True, False]
    """
    if fraction >= 1.0:
        return np.ones(len(bits), np.bool_)
    return bits < np.uint64(int(fraction * _HASHES))
