"""Encoding of single pre-tokens, by a byte-level tokenizer or the first of its merges."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from bpe_core._native import Encoder
from bpe_core.buffers import flatten, to_arrow
from bpe_core.counts import PretokenCounts, normalization_metadata
from bpe_core.errors import InvalidPatternError, TrainingError
from bpe_core.model import TokenizerModel
from bpe_core.patterns import resolve_pattern, superword_pattern
from bpe_core.short_repr import shorten

__all__ = [
    "check_counted_as_encoded",
    "check_keeps_spaces",
    "make_pretoken_encoder",
    "merge_rows",
]


def check_counted_as_encoded(
    model: TokenizerModel, counts: PretokenCounts, name: str = "base"
) -> None:
    """Raise TrainingError unless the tokenizer would split and encode the text as it was counted.

    Args:
        model: The tokenizer.
        counts: The counts.
        name: The name of the tokenizer in messages.
    """
    if model.characters is not None:
        raise TrainingError(
            f"{name}: expected a byte-level tokenizer, found one that merges characters; train a "
            "new one"
        )
    found = counts.metadata.get("pattern", model.pattern)
    if resolve_pattern(found).regex != resolve_pattern(model.pattern).regex:
        if _is_superword_pattern(model.pattern, found):
            raise TrainingError(
                f"{name}: expected one whose tokens follow from pre-tokens, found superwords, "
                f"tokens of several pre-tokens of {shorten(found)}; use text instead of counts"
            )
        raise TrainingError(
            f"{name}: expected counts by its pattern, {shorten(model.pattern)}, found counts by "
            f"{shorten(found)}; count the text with pattern={name}.pattern"
        )
    for key, value in normalization_metadata(model.normalizer, model.normalize_quotes).items():
        found = counts.metadata.get(key, value)
        if found != value:
            raise TrainingError(
                f"{name}: expected counts with its {key}, {value}, found counts with {found}; "
                f"count the text with {key}={name}.{key}"
            )
    missing = np.flatnonzero(model.byte_ids < 0)
    if len(missing):
        keys, offsets, _ = counts.columns()
        used = np.bincount(keys[offsets[0] : offsets[-1]], minlength=256) > 0
        missing = missing[used[missing]]
    if len(missing):
        raise TrainingError(
            f"{name}: expected a token for every byte of the counted text, found none for "
            f"0x{missing[0]:02X}; add one, or leave such text out"
        )


def _is_superword_pattern(pattern: str, words: str) -> bool:
    """Return True if a pattern keeps several words together that another one splits."""
    with suppress(InvalidPatternError):
        return resolve_pattern(superword_pattern(words)).regex == resolve_pattern(pattern).regex
    return False


def check_keeps_spaces(model: TokenizerModel) -> None:
    """Raise TrainingError if the tokenizer adds spaces to a text, or leaves out white space."""
    if model.space_rules:
        raise TrainingError(
            f"tokenizer: expected one that encodes text as it was counted, found "
            f"{model.space_rules[0]}, which changes spaces"
        )


def merge_rows(model: TokenizerModel) -> NDArray[np.uint32]:
    """Return uint32[3, m]: indices of the left sides, right sides and results among the tokens."""
    return np.stack([model.rows_of(ids) for ids in model.merges.T]).astype(np.uint32)


def make_pretoken_encoder(model: TokenizerModel, num_merges: int | None = None) -> Encoder:
    """Return an encoder of spans that are pre-tokens, whose ids are indices of the tokens.

    Args:
        model: The tokenizer, which must merge bytes.
        num_merges: The number of merges to use, the first ones; None for all.
    """
    byte_ids = model.byte_ids
    byte_rows = np.where(byte_ids < 0, -1, np.searchsorted(model.token_ids, byte_ids))
    rows = merge_rows(model)
    left, right, result = rows[:, :num_merges]
    encoder = Encoder(byte_rows, left, right, result, pattern=None)
    if model.ignore_merges:
        not_made = np.ones(len(model.token_ids), np.bool_)
        not_made[rows[2]] = False
        not_made[result] = True
        whole: NDArray[np.uint32] = np.flatnonzero(not_made).astype(np.uint32)
        encoder.set_whole_tokens(*flatten(model.token_bytes.filter(to_arrow(not_made))), whole)
    return encoder
