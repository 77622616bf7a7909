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

from bpe_core._native import MergeLearner
from bpe_core.counts import PretokenCounts
from bpe_core.model import TokenizerModel
from bpe_core.pretoken_encoding import make_pretoken_encoder

__all__ = ["add_special_tokens", "make_learner", "smallest_vocabulary"]


def add_special_tokens(base: TokenizerModel, special_tokens: Sequence[str]) -> TokenizerModel:
    """Return the tokenizer with the special tokens that it lacks; their ids follow its largest."""
    missing = [token for token in special_tokens if token not in base.special_tokens]
    new_ids = {token: base.max_id + 1 + i for i, token in enumerate(missing)}
    return replace(base, special_tokens={**base.special_tokens, **new_ids})


def smallest_vocabulary(model: TokenizerModel, token_id: int | None = None) -> int | None:
    """Return the smallest number of ids with which training makes a token, by its merge's rank.

    Args:
        model: the tokenizer.
        token_id: id of the token; None for the tokens that training starts from.

    Returns:
        The size; None if it is unknown: of a tokenizer that was not trained here, or has required
        tokens.
    """
    options = model.training_options or {}
    # Merges of required tokens are other ones at each size.
    if model.stop_reason is None or options.get("required_tokens"):
        return None
    base = options.get("base") or {}
    made, first = np.unique(model.merges[int(base.get("merges", 0)) :, 2], return_index=True)
    start = len(model) - len(made)
    if token_id is None or token_id not in made:
        return start
    return start + int(np.sum(first <= first[made == token_id]))


def make_learner(
    base: TokenizerModel,
    counts: PretokenCounts,
    *,
    tie_break: str,
    min_frequency: int,
    max_token_bytes: int,
    forbidden_tokens: Sequence[bytes],
    forbid_whitespace_tokens: bool,
    max_words: int = 0,
) -> MergeLearner:
    """Return a learner that starts from the tokenizer's ordinary tokens, in order of id.

    Its words are the counted pre-tokens, encoded by the tokenizer. A new token joins at most
    `max_words` of the tokenizer's tokens (0: any number).
    """
    tokens = [token for _, token in base.tokens]
    keys, offsets, numbers = counts.columns()
    no_specials = np.full(len(offsets) - 1, -1, np.int64)
    words, bounds = make_pretoken_encoder(base).encode_spans(
        keys, offsets[:-1], offsets[1:], no_specials
    )
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
        max_initial_symbols=max_words,
    )
