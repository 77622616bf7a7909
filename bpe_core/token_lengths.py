"""Positions of tokens in a text: lengths in bytes by id, and byte offsets as characters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bpe_core.buffers import lengths_of
from bpe_core.model import TokenizerModel

__all__ = ["TokenLengths", "to_character_offsets"]


class TokenLengths:
    """The number of bytes of each id of a tokenizer; 1 for other ids.

    Example:
        >>> model = TokenizerModel.from_tokens([(5, b"ab")], special_tokens={"<s>": 9})
        >>> TokenLengths(model).look_up(np.array([9, 5, 7])).tolist()
        [3, 2, 1]
    """

    def __init__(self, model: TokenizerModel) -> None:
        specials = model.special_tokens
        ids = np.concatenate([model.token_ids, np.fromiter(specials.values(), np.int64)])
        ordinary = lengths_of(model.token_bytes)
        special = np.fromiter((len(model.bytes_of_special(text)) for text in specials), np.int64)
        lengths = np.concatenate([ordinary, special])
        order = np.argsort(ids)
        self._ids, self._lengths = ids[order], lengths[order]
        # The ids of most tokenizers are dense enough for a table.
        self._table: NDArray[np.int64] | None = None
        if model.max_id < 4 * len(ids) + 1024:
            self._table = np.ones(model.max_id + 2, np.int64)
            self._table[ids] = lengths

    def look_up(self, ids: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return int64[n], the number of bytes of each of n ids."""
        if self._table is not None:
            lengths: NDArray[np.int64] = self._table[np.minimum(ids, len(self._table) - 1)]
            return lengths
        rows = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
        return np.where(self._ids[rows] == ids, self._lengths[rows], 1)


def to_character_offsets(text: str, data: bytes, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of characters of a text that begin before each offset in its UTF-8 form.

    Args:
        text: the text, which may contain surrogates.
        data: the text in UTF-8, with surrogate pairs as one character and lone ones as U+FFFD.
        offsets: int64[n] of 0 … len(data).

    Example:
        >>> to_character_offsets("aé!", "aé!".encode(), np.array([0, 1, 2, 3, 4])).tolist()
        [0, 1, 2, 2, 3]
    """
    if len(data) == len(text):  # ASCII
        return offsets
    begins = (np.frombuffer(data, np.uint8) & 0xC0) != 0x80
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(begins, dtype=np.int64)])
    if before[-1] == len(text):
        return before[offsets]
    # The text has surrogate pairs: two characters of a str that are one in UTF-8.
    units = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4") >> 10
    is_second = (units[:-1] == 0xD800 >> 10) & (units[1:] == 0xDC00 >> 10)
    firsts = np.flatnonzero(np.append(True, ~is_second))
    found: NDArray[np.int64] = np.append(firsts, len(text))[before[offsets]]
    return found
