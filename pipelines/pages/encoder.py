"""The tokenizer of a page: everything that `assets/encoder.js` needs to give the same ids.

Numbers are sequences of varints (LEB128) in base64: a vocabulary of 50,000 tokens takes about
300 kB, since the bytes of most tokens follow from the merges that make them.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bpe_core.buffers import flatten, to_arrow
from bpe_core.characters import CharacterRules
from bpe_core.model import TokenizerModel
from bpe_core.normalization import QUOTES
from bpe_core.patterns import resolve_pattern, steps_of
from bpe_core.pretoken_encoding import merge_rows
from bpe_core.special_tokens import find_word_characters, prepare_added_tokens
from bpe_core.split_patterns.compiler import CompiledStep, compile_steps
from bpe_core.split_patterns.sets import Named, resolve
from bpe_core.split_patterns.syntax import UnsupportedPatternError
from pipelines.tokenizers.files import Model

__all__ = ["encoder_data"]

_MOST_CELLS: Final = 1 << 20  # of the tables of a pattern: 1 to 3 bytes each


def encoder_data(model: Model) -> dict[str, Any]:
    """Return the tokenizer as JSON values for `encoder.js`, or `{"reason": …}` if it cannot encode.

    Example:
        >>> model = TokenizerModel.from_tokens([(7, b"a"), (9, b"aa")], [(7, 7, 9)])
        >>> data = encoder_data(model)
        >>> [data[name] for name in ("ids", "merges", "bytes")]
        ['BwI=', 'AAAC', 'YQ==']
    """
    if not isinstance(model, TokenizerModel):
        return {"reason": "it merges characters of words"}
    reason = _find_obstacle(model)
    if reason is not None:
        return {"reason": reason}
    return {
        **_tokens(model),
        "steps": [] if model.characters else [_step(step) for step in _compile(model.pattern)],
        "characters": None if model.characters is None else _characters(model, model.characters),
        **_added_tokens(model),
        "unknown": model.unknown_id,
        "wholeTokens": model.ignore_merges,
        "normalizer": _normalizer(model),
        "prefixSpace": model.prefix_space,
        "whiteSpace": _encode(np.diff(resolve(Named("space")), prepend=0)),
        "dropWhiteSpace": model.drop_white_space,
    }


def _find_obstacle(model: TokenizerModel) -> str | None:
    """Return the reason for which a page cannot encode with this tokenizer, or None."""
    if model.characters is not None:
        if any("normalized" in names for names in model.token_flags.values()):
            return "it merges characters, and finds some added tokens in normalized text"
        return None
    try:
        steps = _compile(model.pattern)
    except UnsupportedPatternError:
        return "its split pattern is not compiled to an automaton"
    if sum(step.step.table.size for step in steps) > _MOST_CELLS:
        return "the automaton of its split pattern is too large for a page"
    if any(a.of_bytes and not b.of_bytes for a, b in pairwise(steps)):
        return "a step of its split pattern reads text that another has cut into bytes"
    return None


def _compile(pattern: str) -> tuple[CompiledStep, ...]:
    """Return the compiled steps of a split pattern.

    Raises:
        UnsupportedPatternError: a step cannot be compiled.
    """
    return compile_steps(steps_of(resolve_pattern(pattern).regex)).steps


def _tokens(model: TokenizerModel) -> dict[str, Any]:
    """Return ids, merges (rows, with results as differences) and the bytes that none makes."""
    left, right, result = merge_rows(model).astype(np.int64)
    order = np.diff(result, prepend=-1) - 1
    is_made = np.zeros(len(model.token_ids), np.bool_)
    is_made[result] = True
    data, offsets = flatten(model.token_bytes.filter(to_arrow(~is_made)))
    byte_ids = model.byte_ids
    if model.characters is not None:
        byte_ids = np.array(model.characters.byte_ids, np.int64)
    byte_rows = np.searchsorted(model.token_ids, byte_ids)
    return {
        "ids": _encode(np.diff(model.token_ids, prepend=0)),
        "merges": _encode(np.stack([left, right, _zigzag(order)], axis=1).ravel()),
        "bytes": _base64(data[offsets[0] : offsets[-1]].tobytes()),
        "lengths": _encode(np.diff(offsets)),
        "byteRows": _encode(np.where(byte_ids < 0, 0, byte_rows + 1)),
    }


def _characters(model: TokenizerModel, rules: CharacterRules) -> dict[str, Any]:
    """Return the rules of a tokenizer that merges characters, and the rows of these."""
    of_bytes = frozenset(rules.byte_ids)
    rows = [
        row
        for row, (token_id, token) in enumerate(model.tokens)
        if token_id not in of_bytes and len(token) <= 4 and len(token.decode()) == 1
    ]
    return {
        "rows": _encode(np.diff(rows, prepend=0)),
        "fuse": rules.fuse_unknown,
        "prefix": rules.prefix,
        "prefixBeforeSpace": rules.prefix_before_space,
        "splitSpaces": rules.split_spaces,
        "table": rules.table,
        "removeSpaces": rules.remove_spaces,
    }


def _added_tokens(model: TokenizerModel) -> dict[str, Any]:
    """Return the special tokens found in text and in normalized text, with bits of their flags."""
    plain, normalized = prepare_added_tokens(
        model.specials_in_text, model.token_flags, model.native_normalizer
    )
    is_single = any("single_word" in names for names in model.token_flags.values())
    words = find_word_characters() if is_single else []
    return {
        "specials": plain,
        "normalizedSpecials": normalized,
        "wordCharacters": _encode(np.diff(list(chain(*words)), prepend=0)),
    }


def _step(step: CompiledStep) -> dict[str, Any]:
    """Return an automaton: its table, the states in which matches begin, ranges of classes."""
    return {
        "bytes": step.of_bytes,
        "edge": max(step.classes) + 1,
        "bounds": _encode(np.diff(step.bounds, prepend=0)),
        "classes": _encode(step.classes),
        "table": _encode(step.step.table.ravel()),
        "symbols": step.step.table.shape[1],
        "starts": _encode(step.step.starts),
        "scouts": [
            {"ahead": ahead, "table": _encode(table.ravel()), "starts": _encode(starts)}
            for ahead, table, starts in step.step.scouts
        ],
    }


def _normalizer(model: TokenizerModel) -> dict[str, Any] | None:
    """Return what changes the text between special tokens.

    Code points that are not assigned are listed: a browser may have a newer version of Unicode.
    """
    if model.normalizer is None and not model.normalize_quotes:
        return None
    return {
        "form": None if model.normalizer is None else model.normalizer.upper(),
        "assigned": _encode(np.diff(resolve(Named("assigned")), prepend=0)),
        "quotes": QUOTES if model.normalize_quotes else {},
    }


def _zigzag(values: NDArray[np.int64]) -> NDArray[np.int64]:
    return values << 1 ^ values >> 63


def _encode(values: Sequence[int] | ArrayLike) -> str:
    """Return numbers from 0 to 2**35 - 1 as varints in base64."""
    numbers = np.asarray(values, np.uint64)
    groups = numbers[:, None] >> np.arange(0, 35, 7, dtype=np.uint64)
    length = np.maximum(1, (groups > 0).sum(axis=1))
    place = np.arange(5)
    digits = (groups & np.uint64(0x7F)).astype(np.uint8)
    digits |= np.where(place < length[:, None] - 1, np.uint8(0x80), np.uint8(0))
    return _base64(digits[place < length[:, None]].tobytes())


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
