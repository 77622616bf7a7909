"""Extending a tokenizer: training that starts from another tokenizer's tokens.

Each pre-token starts as the tokens into which the old tokenizer encodes it. New merges rank after
all old ones, so they join what the old merges leave. A pair is skipped if its bytes are an old
token: the old tokenizer makes that token in another way or never, and a new merge that made it
could trigger old merges of lower rank. Therefore encoding with the extended tokenizer means to
apply the old merges and then the new ones in order, and ids change only where a new merge applies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bpe_core._native import Encoder, MergeLearner
from bpe_core.buffers import concatenate
from bpe_core.counts import PretokenCounts, normalization_metadata
from bpe_core.errors import TrainingError
from bpe_core.model import TokenizerModel
from bpe_core.patterns import resolve_pattern

__all__ = ["add_special_tokens", "check_counted_as_encoded", "make_learner"]


def add_special_tokens(base: TokenizerModel, special_tokens: Sequence[str]) -> TokenizerModel:
    """Return the tokenizer with the special tokens that it lacks; their ids follow its largest."""
    missing = [token for token in special_tokens if token not in base.special_tokens]
    new_ids = {token: base.max_id + 1 + i for i, token in enumerate(missing)}
    return replace(base, special_tokens={**base.special_tokens, **new_ids})


def check_counted_as_encoded(base: TokenizerModel, counts: PretokenCounts) -> None:
    """Raise TrainingError unless the counted text was split and normalized as by the tokenizer."""
    if base.characters is not None:
        raise TrainingError(
            "base: expected a byte-level tokenizer, found one that merges characters; train a new "
            "one"
        )
    found = counts.metadata.get("pattern", base.pattern)
    if resolve_pattern(found).regex != resolve_pattern(base.pattern).regex:
        raise TrainingError(
            f"base: expected counts by its pattern, {base.pattern!r}, found counts by {found!r}; "
            "count the text with pattern=base.pattern"
        )
    for key, value in normalization_metadata(base.normalizer, base.normalize_quotes).items():
        found = counts.metadata.get(key, value)
        if found != value:
            raise TrainingError(
                f"base: expected counts with its {key}, {value}, found counts with {found}; count "
                f"the text with {key}=base.{key}"
            )


def make_learner(
    base: TokenizerModel,
    counts: PretokenCounts,
    *,
    tie_break: str,
    min_frequency: int,
    max_token_bytes: int,
    forbidden_tokens: Sequence[bytes],
    forbid_whitespace_tokens: bool,
) -> MergeLearner:
    """Return a learner that starts from the tokenizer's ordinary tokens, in order of id.

    Its words are the counted pre-tokens, encoded by the tokenizer.

    Raises:
        TrainingError: the tokenizer has no token for a byte of the counted pre-tokens.
    """
    tokens = [token for _, token in base.tokens]
    keys, offsets, numbers = counts.columns()
    words, bounds = _encode_pretokens(base, tokens, keys, offsets)
    return MergeLearner.from_symbols(
        tokens,
        words,
        bounds,
        numbers,
        tie_break,
        min_frequency,
        max_token_bytes,
        [*forbidden_tokens, *tokens],
        forbid_whitespace_tokens=forbid_whitespace_tokens,
    )


def _encode_pretokens(
    base: TokenizerModel, tokens: list[bytes], keys: NDArray[np.uint8], offsets: NDArray[np.int64]
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Return (indices of tokens, bounds of the pre-tokens in them); none is split further."""
    byte_ids = base.byte_ids
    byte_rows = np.where(byte_ids < 0, -1, np.searchsorted(base.token_ids, byte_ids))
    used = np.bincount(keys[offsets[0] : offsets[-1]], minlength=256) > 0
    missing = np.flatnonzero(used & (byte_rows < 0))
    if len(missing):
        raise TrainingError(
            "base: expected a token for every byte of the counted text, found none for "
            f"0x{missing[0]:02X}; add one, or leave such text out"
        )
    rows = np.searchsorted(base.token_ids, base.merges).astype(np.uint32)
    left, right, result = rows.T.copy()
    encoder = Encoder(byte_rows, left, right, result, pattern=None)
    if base.ignore_merges:
        encoder.set_whole_tokens(*concatenate(tokens), np.arange(len(tokens), dtype=np.uint32))
    no_specials = np.full(len(offsets) - 1, -1, np.int64)
    return encoder.encode_spans(keys, offsets[:-1], offsets[1:], no_specials)
