"""Tokens by id and ids by token, and the bytes of ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bpe_core.buffers import to_utf8
from bpe_core.errors import UnknownTokenError
from bpe_core.model import TokenizerModel

__all__ = ["TokenTable", "to_documents"]


class TokenTable:
    """The tokens of a model, looked up by id or by token.

    Example:
        >>> table = TokenTable(TokenizerModel.from_tokens([(5, b"ab")], special_tokens={"<s>": 9}))
        >>> table.to_bytes([5, 9]), table.find("<s>"), table.find("c")
        ([b'ab', b'<s>'], 9, None)
    """

    def __init__(self, model: TokenizerModel) -> None:
        self._model = model

    @cached_property
    def by_id(self) -> dict[int, bytes]:
        """Bytes by id, special tokens included."""
        return self._model.vocab

    @cached_property
    def special_texts(self) -> dict[int, str]:
        """Texts of the special tokens by id."""
        return {token_id: text for text, token_id in self._model.special_tokens.items()}

    @cached_property
    def _ordinary_ids(self) -> dict[bytes, int]:
        """Ids of ordinary tokens; the smallest one for equal bytes."""
        return {token: token_id for token_id, token in reversed(self._model.tokens)}

    @cached_property
    def _special_ids(self) -> dict[bytes, int]:
        return {text.encode(): token_id for text, token_id in self._model.special_tokens.items()}

    def find(self, token: str | bytes) -> int | None:
        """Return the id of a token, or None; of a str, a special token comes first."""
        data = to_utf8(token)
        ordinary = self._ordinary_ids.get(data)
        special = self._special_ids.get(data)
        first, second = (special, ordinary) if isinstance(token, str) else (ordinary, special)
        return second if first is None else first

    def to_bytes(self, ids: Iterable[int] | NDArray[np.integer]) -> list[bytes]:
        """Return the bytes of each id.

        Raises:
            UnknownTokenError: The vocabulary does not have an id.
            TypeError: The argument is a text, one id, or ids of several documents.
        """
        values = iter(_to_list(ids))
        try:
            return list(map(self.by_id.__getitem__, values))
        except KeyError as error:
            raise self._unknown(error.args[0]) from None
        except TypeError as error:
            if "unhashable" not in str(error):
                raise
            raise TypeError(
                "decode takes the ids of one document; for a list for each of several use "
                "decode_batch"
            ) from None

    def _unknown(self, token_id: object) -> UnknownTokenError:
        return UnknownTokenError(
            f"id {token_id!r}: expected an id of this vocabulary "
            f"({len(self._model)} tokens, the largest id is {max(self.by_id, default=-1)})"
        )


def to_documents(
    batch: Iterable[Iterable[int] | NDArray[np.integer]]
    | tuple[NDArray[np.integer], NDArray[np.int64]],
) -> Iterator[Iterable[int] | NDArray[np.integer]]:
    """Yield the ids of each document: of several, or of an array with offsets.

    Raises:
        TypeError: The argument is a text, or the ids of one document.
    """
    if isinstance(batch, tuple) and len(batch) == 2 and _are_offsets(batch[1]):
        ids, offsets = batch
        if isinstance(ids, np.ndarray) and ids.dtype.kind == "u":
            for begin, end in pairwise(offsets.tolist()):  # type: ignore[union-attr]
                yield ids[begin:end]
            return
    if isinstance(batch, (str, bytes)):
        raise TypeError(
            f"decode_batch takes lists of ids, found {type(batch).__name__}; for a text use encode"
        )
    for ids in batch:
        if isinstance(ids, (int, np.integer)):
            raise TypeError(
                "decode_batch takes a list of ids for each document; for one list use decode"
            )
        yield ids


def _are_offsets(array: object) -> bool:
    return isinstance(array, np.ndarray) and array.dtype == np.int64


def _to_list(ids: Iterable[int] | NDArray[np.integer]) -> Iterable[int]:
    if isinstance(ids, np.ndarray):
        if ids.ndim != 1 or (ids.dtype.kind not in "iu" and len(ids)):
            raise TypeError(
                f"ids: expected an array of integers in one dimension, found {ids.dtype}"
                f"{list(ids.shape)}"
            )
        values: list[int] = ids.tolist()
        return values
    if isinstance(ids, (str, bytes)):
        raise TypeError(f"decode takes ids, found {type(ids).__name__}; for a text use encode")
    if isinstance(ids, (int, np.integer)):
        raise TypeError(f"decode takes several ids, found one int; give a list: [{ids}]")
    # Elements of tensors and Arrow arrays are not ints.
    return ids.tolist() if hasattr(ids, "tolist") else ids
