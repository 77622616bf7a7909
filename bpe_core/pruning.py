"""Pruning: a tokenizer without some of its tokens, whose other tokens keep their merges.

A token that is kept keeps its parts: the tokens that the merges of its own bytes make on the way to
it. So these bytes still merge into it, by the same merges, and a text whose encoding used only kept
tokens is encoded as before. Other texts get the tokens that the remaining merges make.
`bpe_core.reference.prune_merges` is this in plain Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bpe_core._native import last_joins
from bpe_core.buffers import flatten, lengths_of, to_arrow
from bpe_core.errors import InvalidTokenizerError
from bpe_core.merge_steps import EncodingTracer
from bpe_core.model import TokenizerModel
from bpe_core.short_repr import short_repr

__all__ = ["PrunedTokenizer", "last_merges", "most_used_tokens", "prune_tokenizer"]


@short_repr
@dataclass(frozen=True, kw_only=True, eq=False)
class PrunedTokenizer:
    """A pruned tokenizer and the map between its ids and those of the original.

    Attributes:
        model: the tokenizer. Its ids are 0, 1, … in the order of the original ids.
        new_to_old: int64[n], the original id of each new id.
        old_to_new: int64[max_id + 1], the new id of each original id; -1 if it was pruned, or if no
            token had it.
    """

    model: TokenizerModel
    new_to_old: NDArray[np.int64]
    old_to_new: NDArray[np.int64]


def prune_tokenizer(model: TokenizerModel, kept: NDArray[np.bool_]) -> PrunedTokenizer:
    """Return a tokenizer with some of the tokens of another, and with what they are made of.

    Special tokens and single bytes always stay.

    Args:
        model: a tokenizer that merges bytes.
        kept: bool[n], true for the ordinary tokens that stay, in the order of `model.token_ids`.

    Raises:
        InvalidTokenizerError: the tokenizer merges characters.

    Example:
        >>> vocab = {i: bytes([i]) for i in range(256)} | {256: b"ab", 257: b"cd", 258: b"abc"}
        >>> merges = [(b"a", b"b"), (b"c", b"d"), (b"ab", b"c")]
        >>> model = TokenizerModel.from_vocab(vocab, merges, {"<s>": 300})
        >>> pruned = prune_tokenizer(model, model.token_ids == 258)
        >>> pruned.model.merge_bytes, pruned.new_to_old[256:].tolist()
        ([(b'a', b'b'), (b'ab', b'c')], [256, 258, 300])
    """
    rows = _close(model, kept)
    ids = model.token_ids[rows]
    others = [*model.special_tokens.values(), *([] if (u := model.unknown_id) is None else [u])]
    new_to_old = np.unique(np.concatenate([ids, np.array(others, np.int64)]))
    old_to_new = np.full(model.max_id + 1, -1, np.int64)
    old_to_new[new_to_old] = np.arange(len(new_to_old))
    is_kept = np.zeros(model.max_id + 1, np.bool_)
    is_kept[ids] = True
    remaining = is_kept[model.merges].all(axis=1)
    options: Mapping[str, Any] = {
        **(model.training_options or {}),
        "pruned": {"fingerprint": model.fingerprint, "ids": len(model)},
    }
    pruned = replace(
        model,
        token_ids=old_to_new[ids],
        token_bytes=model.token_bytes.filter(to_arrow(rows)),
        merges=old_to_new[model.merges[remaining]],
        merge_counts=None if model.merge_counts is None else model.merge_counts[remaining],
        special_tokens={text: int(old_to_new[i]) for text, i in model.special_tokens.items()},
        prepend=tuple(old_to_new[list(model.prepend)].tolist()),
        append=tuple(old_to_new[list(model.append)].tolist()),
        unknown_id=None if model.unknown_id is None else int(old_to_new[model.unknown_id]),
        applied_counts=None,
        stop_reason=None,
        training_options=options,
    )
    return PrunedTokenizer(model=pruned, new_to_old=new_to_old, old_to_new=old_to_new)


def most_used_tokens(
    model: TokenizerModel, uses: NDArray[np.int64], vocab_size: int
) -> NDArray[np.bool_]:
    """Return the ordinary tokens to keep for a size: the most used ones that fit with their parts.

    Tokens are considered by their use, equally used ones by id. A token that does not fit is left
    out, and later ones that need fewer parts may fit.

    Args:
        model: a tokenizer that merges bytes.
        uses: int64[n], number of uses of each ordinary token, in the order of `model.token_ids`.
        vocab_size: number of ids to keep at most, special tokens included.

    Raises:
        InvalidTokenizerError: the size is smaller than the special tokens and the single bytes, or
            the tokenizer merges characters.
    """
    left, right, _ = _parts(model)
    kept: NDArray[np.bool_] = lengths_of(model.token_bytes) == 1
    free = vocab_size - (len(model) - len(model.token_ids)) - int(kept.sum())
    if free < 0:
        raise InvalidTokenizerError(
            f"vocab_size: expected at least {vocab_size - free} (the single bytes and the special "
            f"tokens), found {vocab_size}"
        )
    for row in np.lexsort((np.arange(len(uses)), -uses)).tolist():
        if not free:
            break
        needed: set[int] = set()
        waiting = [row]
        while waiting and len(needed) <= free:
            at = waiting.pop()
            if at >= 0 and not kept[at] and at not in needed:
                needed.add(at)
                waiting += [int(left[at]), int(right[at])]
        if len(needed) <= free:
            kept[list(needed)] = True
            free -= len(needed)
    return kept


def last_merges(model: TokenizerModel) -> NDArray[np.int64]:
    """Return the merge that makes each ordinary token from its own bytes.

    Returns:
        int64[n], the rank of the merge; -1 for a single byte, and for a token that its own bytes do
        not merge into.

    Raises:
        InvalidTokenizerError: the tokenizer merges characters.
    """
    if model.characters is not None:
        raise InvalidTokenizerError(
            "the tokenizer: expected one that merges bytes, found one that merges characters"
        )
    found = _last_merges_by_ranks(model)
    return _last_merges_by_steps(model) if found is None else found


def _last_merges_by_ranks(model: TokenizerModel) -> NDArray[np.int64] | None:
    """Return the last merges if merging is joining by ranks of tokens; None if it may not be.

    It is if the merges of each token follow each other, so that tokens have ranks, and if every
    last join by these ranks is a merge. `bpe_core.formats.ranks` has the proof.
    """
    results = model.merges[:, 2]
    begins = np.flatnonzero(np.diff(results, prepend=-1))
    ranked = results[begins]
    if len(np.unique(ranked)) < len(ranked):
        return None
    made = np.searchsorted(model.token_ids, ranked)
    others = np.setdiff1d(np.arange(len(model.token_ids)), made)
    order = np.concatenate([others[lengths_of(model.token_bytes)[others] == 1], made])
    left, right = last_joins(*flatten(model.token_bytes.take(to_arrow(order))))
    joined = np.flatnonzero(left >= 0)
    ids = model.token_ids[order]
    pairs = ids[left[joined]] << 32 | ids[right[joined]]
    known = model.merges[:, 0] << 32 | model.merges[:, 1]
    by_pair = np.argsort(known)
    at = np.minimum(np.searchsorted(known[by_pair], pairs), len(known) - 1)
    if not len(known) or not np.array_equal(known[by_pair][at], pairs):
        return None if len(pairs) else np.full(len(model.token_ids), -1, np.int64)
    ranks = by_pair[at]
    if not np.array_equal(results[ranks], ids[joined]):
        return None
    found = np.full(len(model.token_ids), -1, np.int64)
    found[order[joined]] = ranks
    return found


def _last_merges_by_steps(model: TokenizerModel) -> NDArray[np.int64]:
    tracer = EncodingTracer(model)
    found = np.full(len(model.token_ids), -1, np.int64)
    for row, (token_id, token) in enumerate(model.tokens):
        traced = tracer.trace_merges(token) if len(token) > 1 else None
        if traced is not None and traced.ids == (token_id,):
            found[row] = traced.steps[-1].rank
    return found


def _parts(
    model: TokenizerModel,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of the two parts of each token, -1 without parts, and its last merge."""
    ranks = last_merges(model)
    sides = []
    for column in range(2):
        rows = np.full(len(ranks), -1, np.int64)
        made = ranks >= 0
        rows[made] = np.searchsorted(model.token_ids, model.merges[ranks[made], column])
        sides.append(rows)
    return sides[0], sides[1], ranks


def _close(model: TokenizerModel, kept: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the kept ordinary tokens, single bytes, and all that they are made of."""
    left, right, ranks = _parts(model)
    closed: NDArray[np.bool_] = kept | (lengths_of(model.token_bytes) == 1)
    # Parts are made by earlier merges: one pass from the last merge to the first is enough.
    order = np.argsort(-ranks, kind="stable")
    for row in order[: int((ranks >= 0).sum())].tolist():
        if closed[row]:
            closed[left[row]] = closed[right[row]] = True
    return closed
