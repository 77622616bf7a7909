"""Required tokens: texts that training makes tokens, with merges after all learned ones.

Each text, in the order given, is encoded by the merges so far. As long as it is several tokens, the
first two are merged into a new one, and it is encoded again. So a required token is made from its
own bytes, whatever was learned; and having the highest ranks, its merges change only text that the
learned ones leave apart. A pair is passed over for the next one if it would make a forbidden token,
or a token that exists already: its own bytes would not become it.

The vocabulary keeps its size: as many merges are learned as leave room for those of the required
tokens. `bpe_core.reference.required_merges` is the rule in plain Python.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from bpe_core._native import split_pretokens
from bpe_core.buffers import to_binary
from bpe_core.errors import TrainingError
from bpe_core.merge_steps import MergeTable
from bpe_core.model import TokenizerModel
from bpe_core.normalization import native_normalizer
from bpe_core.patterns import resolve_pattern, split_custom

__all__ = ["add_required_tokens", "why_never_encoded"]


def why_never_encoded(
    text: str, pattern: str, normalizer: str | None, normalize_quotes: bool
) -> str | None:
    """Return the reason why a text is never encoded as one token, or None if it may be.

    >>> why_never_encoded("New York", "gpt2", None, False)
    "the pattern splits it into 'New', ' York'"
    """
    native = native_normalizer(normalizer, normalize_quotes)
    if native is not None and (normal := native.normalize(text.encode()).decode()) != text:
        return f"normalization turns it into {normal!r}"
    data = text.encode()
    resolved = resolve_pattern(pattern)
    if resolved.scanner is None:
        bounds = split_custom(resolved.regex, text).tolist()
    else:
        bounds = [0, *split_pretokens(resolved.scanner, data).tolist()]
    if len(bounds) == 2:
        return None
    parts = [data[begin:end].decode("utf-8", "replace") for begin, end in pairwise(bounds)]
    return f"the pattern splits it into {', '.join(map(repr, parts))}"


def add_required_tokens(
    model: TokenizerModel,
    start: TokenizerModel,
    vocab_size: int,
    required: Sequence[bytes],
    forbidden: Collection[bytes],
) -> TokenizerModel:
    """Return a trained tokenizer with required tokens, for which its last merges are left out.

    Args:
        model: the trained tokenizer.
        start: the tokenizer before the first learned merge, whose merges stay.
        vocab_size: number of ids to have at most.
        required: tokens, in order.
        forbidden: tokens that no merge may make.

    Raises:
        TrainingError: there is no room for them, or a text can only be made of forbidden tokens.
    """
    first = len(start.merges)
    completion = _Completion(model, required, forbidden)
    # The number of new tokens after each merge; a merge may make a token that exists.
    new = np.zeros(len(model.merges) - first + 1, np.int64)
    results = model.merges[first:, 2]
    is_new = np.zeros(len(results), np.bool_)
    is_new[np.unique(results, return_index=True)[1]] = True
    new[1:] = np.cumsum(is_new)
    for learned in range(len(results), -1, -1):
        room = vocab_size - len(start) - int(new[learned])
        first_id = start.max_id + 1 + int(new[learned])
        if room < 0:
            continue
        added = completion.find(first + learned, first_id, room)
        if added is not None:
            return _with_merges(model, first + learned, first_id, added)
    raise TrainingError(
        f"required_tokens: expected a vocab_size with room for {len(required)} tokens and their "
        f"parts, found {vocab_size}"
    )


class _Completion:
    """Search for the merges that make required tokens, after some of a tokenizer's merges."""

    def __init__(
        self, model: TokenizerModel, required: Sequence[bytes], forbidden: Collection[bytes]
    ) -> None:
        self._byte_ids = model.byte_ids
        self._merges = MergeTable(model.merges)
        self._ids = {token: i for i, token in model.tokens}
        self._bytes = dict(model.tokens)
        self._ignore_merges = model.ignore_merges
        self._required = required
        self._forbidden = forbidden

    def find(
        self, num_merges: int, first_id: int, room: int
    ) -> list[tuple[int, int, int, bytes]] | None:
        """Return the merges to add: (left, right, new id, bytes); None if there is no room.

        Args:
            num_merges: number of the tokenizer's merges that stay.
            first_id: smallest id of new tokens; those from here on are left out.
            room: number of new tokens at most.
        """
        merges = self._merges.up_to(num_merges)
        added: list[tuple[int, int, int, bytes]] = []
        new: dict[int, bytes] = {}
        known = set[bytes]()
        for token in self._required:
            if self._ignore_merges and self._ids.get(token, first_id) < first_id:
                continue
            while len(symbols := self._encode(merges, token)) > 1:
                if len(added) == room:
                    return None
                texts = [new[i] if i in new else self._bytes[i] for i in symbols]
                at = self._choose(texts, first_id, known, token)
                made = texts[at] + texts[at + 1]
                new_id = first_id + len(added)
                merges.add(symbols[at], symbols[at + 1], new_id)
                added.append((symbols[at], symbols[at + 1], new_id, made))
                new[new_id] = made
                known.add(made)
        return added

    def _encode(self, merges: MergeTable, token: bytes) -> list[int]:
        symbols: list[int] = self._byte_ids[np.frombuffer(token, np.uint8)].tolist()
        if -1 in symbols:
            raise TrainingError(
                f"required_tokens: expected bytes that have tokens, found {token!r}, whose byte "
                f"0x{token[symbols.index(-1)]:02X} has none"
            )
        for rank, at in merges.apply(symbols):
            symbols[at : at + 2] = [merges.result(rank)]
        return symbols

    def _choose(
        self, texts: list[bytes], first_id: int, known: Collection[bytes], token: bytes
    ) -> int:
        """Return the index of the pair to merge."""
        for at, (left, right) in enumerate(pairwise(texts)):
            made = left + right
            exists = made in known or self._ids.get(made, first_id) < first_id
            if not exists and made not in self._forbidden:
                return at
        raise TrainingError(
            f"required_tokens: expected a text that new tokens can make, found {token!r}, of which "
            f"any two of the tokens {texts!r} make a forbidden or an existing token"
        )


def _with_merges(
    model: TokenizerModel, num_merges: int, first_id: int, added: list[tuple[int, int, int, bytes]]
) -> TokenizerModel:
    """Return the tokenizer with the first merges and the added ones."""
    stays = model.token_ids < first_id
    tokens = [token for (_, token), kept in zip(model.tokens, stays, strict=True) if kept]
    merges = np.array([merge[:3] for merge in added], np.int64).reshape(-1, 3)
    counts = model.merge_counts
    return replace(
        model,
        token_ids=np.concatenate([model.token_ids[stays], merges[:, 2]]),
        token_bytes=to_binary([*tokens, *(token for *_, token in added)]),
        merges=np.concatenate([model.merges[:num_merges], merges]),
        merge_counts=None
        if counts is None
        else np.concatenate([counts[:num_merges], np.zeros(len(added), np.int64)]),
        applied_counts=None,
    )
