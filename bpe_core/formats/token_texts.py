"""The texts of tokens in formats that tell tokens apart by text, and the files' parts made of them.

A vocabulary may have hundreds of thousands of tokens, so these parts are written natively, with the
bytes that Python's `json` would write.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bpe_core._native import merge_lines, merges_json, vocabulary_json
from bpe_core.buffers import concatenate
from bpe_core.model import TokenizerModel

__all__ = ["TokenTexts"]


@dataclass(frozen=True)
class TokenTexts:
    """The texts of a tokenizer's tokens, in UTF-8: of the ordinary ones, then of special ones.

    Attributes:
        model: The tokenizer.
        data, offsets: Text i is data[offsets[i]:offsets[i + 1]].
        ids: int64[n], the ids of the tokens.

    Example:
        >>> model = TokenizerModel.from_tokens([(0, b"a"), (1, b'"')], special_tokens={"<s>": 5})
        >>> TokenTexts.of(model, b'a"', np.array([0, 1, 2])).vocabulary_json()
        b'{"a": 0, "\\\\"": 1, "<s>": 5}'
    """

    model: TokenizerModel
    data: bytes
    offsets: NDArray[np.int64]
    ids: NDArray[np.int64]

    @classmethod
    def of(cls, model: TokenizerModel, data: bytes, offsets: NDArray[np.int64]) -> TokenTexts:
        """Return the texts of all tokens.

        Args:
            model: The tokenizer.
            data, offsets: The texts of the ordinary tokens. A special token that is not also an
                ordinary one is written as it is.
        """
        special_ids = np.fromiter(model.special_tokens.values(), np.int64)
        are_apart = np.isin(special_ids, model.token_ids, invert=True)
        apart = zip(model.special_tokens, are_apart.tolist(), strict=True)
        texts, ends = concatenate([text.encode() for text, is_apart in apart if is_apart])
        return cls(
            model,
            data + texts,
            np.concatenate([offsets, ends[1:] + len(data)]),
            np.concatenate([model.token_ids, special_ids[are_apart]]),
        )

    def vocabulary_json(self) -> bytes:
        """Return the JSON object of the ids by text, in order of id."""
        return vocabulary_json(self.data, self.offsets, self.ids, np.argsort(self.ids))

    def merges_json(self) -> bytes:
        """Return the JSON array of the merges, a pair of texts each, in order of rank."""
        return merges_json(self.data, self.offsets, *self._sides())

    def merge_lines(self) -> bytes:
        """Return a line for each merge, two texts with a space between them, in order of rank."""
        return merge_lines(self.data, self.offsets, *self._sides())

    def _sides(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        left, right = (self.model.rows_of(self.model.merges[:, i]) for i in (0, 1))
        return left, right
