"""Where tokens lie in a text: bytes by id, and places in bytes as places in characters."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from bpe_core.model import TokenizerModel

__all__ = ["TokenLengths", "character_places"]


class TokenLengths:
    """How many bytes each id of a tokenizer stands for; 1 for what is no id of it.

    Example:
        >>> model = TokenizerModel.from_tokens([(5, b"ab")], special_tokens={"<s>": 9})
        >>> TokenLengths(model).of(np.array([9, 5, 7])).tolist()
        [3, 2, 1]
    """

    def __init__(self, model: TokenizerModel) -> None:
        specials = model.special_tokens
        ids = np.concatenate([model.token_ids, np.fromiter(specials.values(), np.int64)])
        ordinary = pc.binary_length(model.token_bytes).to_numpy().astype(np.int64)
        special = np.fromiter((len(text.encode()) for text in specials), np.int64)
        lengths = np.concatenate([ordinary, special])
        order = np.argsort(ids)
        self._ids, self._lengths = ids[order], lengths[order]
        # Most tokenizers' ids are dense enough for a table.
        self._table: NDArray[np.int64] | None = None
        if model.max_id < 4 * len(ids) + 1024:
            self._table = np.ones(model.max_id + 2, np.int64)
            self._table[ids] = lengths

    def of(self, ids: NDArray[np.integer]) -> NDArray[np.int64]:
        """int64[n], the bytes of each of n ids."""
        if self._table is not None:
            lengths: NDArray[np.int64] = self._table[np.minimum(ids, len(self._table) - 1)]
            return lengths
        rows = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
        return np.where(self._ids[rows] == ids, self._lengths[rows], 1)


def character_places(text: str, data: bytes, places: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many characters of a text begin before each place in its UTF-8 form.

    Args:
        text: the text; may have surrogates.
        data: the text in UTF-8; a surrogate pair is one character there, a lone one U+FFFD.
        places: int64[n] of 0 … len(data).

    Example:
        >>> character_places("aé!", "aé!".encode(), np.array([0, 1, 2, 3, 4])).tolist()
        [0, 1, 2, 2, 3]
    """
    if len(data) == len(text):  # ASCII
        return places
    begins = (np.frombuffer(data, np.uint8) & 0xC0) != 0x80
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(begins, dtype=np.int64)])
    if before[-1] == len(text):
        return before[places]
    # Some characters are pairs of surrogates in the text.
    units = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4") >> 10
    is_second = (units[:-1] == 0xD800 >> 10) & (units[1:] == 0xDC00 >> 10)
    firsts = np.flatnonzero(np.append(True, ~is_second))
    found: NDArray[np.int64] = np.append(firsts, len(text))[before[places]]
    return found
