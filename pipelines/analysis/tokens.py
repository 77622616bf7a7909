"""Tokens as analyses show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from bpe_core.model import TokenizerModel
from bpe_core.visible_text import visible

__all__ = ["bytes_of_ids", "quote_token", "token_to_json"]

_ESCAPES: Final = str.maketrans({"\n": "\\n", "\t": "\\t", '"': '\\"', "\\": "\\\\"})


def bytes_of_ids(model: TokenizerModel, ids: Sequence[int]) -> list[bytes]:
    """Return the bytes of tokens, special ones included; empty for an unknown id without one."""
    specials = {i: model.bytes_of_special(text) for text, i in model.special_tokens.items()}
    wanted = np.array(ids, np.int64)
    # The ids are in order; `np.isin` would sort all of them each time.
    rows = np.searchsorted(model.token_ids, wanted)
    ordinary = np.append(model.token_ids, -1)[rows] == wanted
    found = iter(model.bytes_of(wanted[ordinary]).to_pylist())
    return [
        next(found) if is_ordinary else specials.get(i, b"")
        for i, is_ordinary in zip(ids, ordinary.tolist(), strict=True)
    ]


def quote_token(token: bytes) -> str:
    r"""Return a token in quotes, in which every byte is visible.

    >>> print(quote_token(b" a\n\xff"))
    " a\n\xff"
    """
    valid = token.decode("utf-8", "surrogateescape").translate(_ESCAPES)
    return f'"{visible(valid.encode("utf-8", "surrogateescape"))}"'


def token_to_json(token_id: int, token: bytes) -> dict[str, Any]:
    """Return a token as JSON values; its text has U+FFFD for bytes that are not UTF-8."""
    return {"id": token_id, "token": token.decode("utf-8", "replace"), "bytes": token.hex()}
