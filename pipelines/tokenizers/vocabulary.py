"""Ids of a byte-level or character-level tokenizer as arrays, with the bytes of each."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bpe_core import CharBPETokenizer
from pipelines.tokenizers.files import Model


class Vocabulary:
    """Ids that encoding can return, with the bytes that each decodes to.

    Attributes:
        ids: int64[n], ascending.
        is_dense: True if a table with an entry for every number up to the largest id is not much
            larger than one with n entries.

    Example:
        >>> from bpe_core import BPETokenizer
        >>> vocabulary = Vocabulary(BPETokenizer({0: b"a", 1: b"b"}, [], {"<s>": 9}).model)
        >>> vocabulary.ids.tolist()
        [0, 1, 9]
        >>> text, bounds = vocabulary.decode(np.array([1, 9, 0], np.uint16))
        >>> text.tobytes(), bounds.tolist()
        (b'b<s>a', [0, 1, 4, 5])
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        if isinstance(model, CharBPETokenizer):
            ids = np.array(list(model.vocab.values()), np.int64)
        else:
            unknown = () if model.unknown_id is None else (model.unknown_id,)
            others = np.array([*model.special_tokens.values(), *unknown], np.int64)
            ids = np.concatenate([model.token_ids, others])
        ids.sort()  # np.unique would hash them, at ten times the cost
        self.ids: NDArray[np.int64] = ids[np.diff(ids, prepend=-1) > 0]
        self._table_size = int(self.ids[-1]) + 1 if len(ids) else 0
        self.is_dense = self._table_size <= 4 * len(self.ids) + 1024

    def __len__(self) -> int:
        """Number of ids."""
        return len(self.ids)

    @cached_property
    def _bytes(self) -> pa.LargeBinaryArray:
        """Bytes that each of `ids` decodes to; empty for an unknown id without a token."""
        model = self._model
        if isinstance(model, CharBPETokenizer):
            end = model.end_of_word
            tokens = {
                i: (
                    token.removesuffix(end) + " " if end and token.endswith(end) else token
                ).encode()
                for token, i in model.vocab.items()
            }
        else:
            tokens = model.vocab
        return pa.array([tokens.get(i, b"") for i in self.ids.tolist()], pa.large_binary())

    @cached_property
    def _rows(self) -> NDArray[np.int64]:
        """Table from id to its row in `ids`; -1 if there is no such id."""
        rows = np.full(self._table_size, -1, np.int64)
        rows[self.ids] = np.arange(len(self.ids))
        return rows

    def rows_of(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        """Return the row of each of n ids in `ids`, int64[n]; -1 if it is not in the vocabulary."""
        if not len(self.ids):
            return np.full(len(ids), -1, np.int64)
        if self.is_dense:
            known = self._rows[np.minimum(ids, self._table_size - 1)]
            return np.where(ids < self._table_size, known, -1)
        rows = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return np.where(self.ids[rows] == ids, rows, -1)

    def token(self, token_id: int) -> bytes | None:
        """Return the bytes that an id decodes to; None if there is no such id."""
        row = int(self.rows_of(np.array([token_id], np.int64))[0])
        return None if row < 0 else self._bytes[row].as_py()

    def tokens(self) -> list[bytes]:
        """Return the bytes that each of `ids` decodes to."""
        found: list[bytes] = self._bytes.to_pylist()
        return found

    def decode(self, ids: NDArray[Any]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return the concatenated bytes of n ids, and the bounds of each, int64[n + 1].

        Raises:
            ValueError: an id is not in the vocabulary.
        """
        rows = self.rows_of(ids)
        if len(rows) and rows.min() < 0:
            raise ValueError(f"id {int(ids[int(np.argmin(rows))])} is not in the vocabulary")
        values = self._bytes.take(pa.array(rows))
        bounds = np.frombuffer(values.buffers()[1], np.int64, len(rows) + 1, values.offset * 8)
        data = values.buffers()[2]
        text = np.frombuffer(data, np.uint8, int(bounds[-1])) if bounds[-1] else _NOTHING
        return text, bounds


_NOTHING = np.empty(0, np.uint8)
