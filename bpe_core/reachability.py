"""Ids that no text gives.

A token can occur in a text only if encoding its own bytes as one pre-token gives it alone: merges
inside of it do not depend on its neighbors, since none of them crosses its ends. It must also be
part of text in UTF-8, and the pattern must not cut it. For nearly all other tokens, a text that
gives them is easily found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bpe_core._native import Encoder, safe_cut
from bpe_core.buffers import concatenate, flatten, to_arrow
from bpe_core.character_encoding import with_building_rules
from bpe_core.model import TokenizerModel
from bpe_core.normalization import native_normalizer
from bpe_core.patterns import resolve_pattern
from bpe_core.short_repr import short_repr
from bpe_core.special_tokens import special_set
from bpe_core.tokenizer import BPETokenizer

__all__ = ["Reachability", "find_unreachable"]

# Texts around a token, which patterns treat in different ways.
_CONTEXTS: Final = (b"", b"a", b" ", b"1", b".", b"\n", b"'")
# Bytes that complete a character of which a token has only the end or only the beginning.
_LEADS: Final = (
    *(bytes([lead]) for lead in (*range(0xC2, 0xF4), 0xF4)),
    *(bytes([lead, 0x80]) for lead in range(0xE1, 0xF0) if lead != 0xED),
    *(bytes([lead, second]) for lead in (0xE0, 0xED) for second in (0x80, 0xA0)),
    *(b"\xf0\x9f", b"\xf1\x80", b"\xf3\xa0", b"\xf4\x80", b"\xf0\x9f\x98", b"\xf3\xa0\x84"),
)
_ENDS: Final = tuple(
    bytes([byte]) + rest for rest in (b"", b"\x80", b"\x80\x80") for byte in range(0x80, 0xC0)
)
_MOST_TEXTS: Final = 512
_REASONS: Final = ("by_encoding", "by_normalizer", "by_pattern", "not_found")


@short_repr
@dataclass(frozen=True, kw_only=True)
class Reachability:
    """Ordinary ids that no text gives, by the reason, and those for which no text was found.

    Attributes:
        by_merges: Ids whose bytes the merges turn into other ids.
        by_encoding: Ids of other bytes than text in UTF-8 has.
        by_normalizer: Ids of text that the normalizer changes.
        by_pattern: Ids of text that the pattern always cuts.
        not_found: Ids that are none of these, but no text was found that gives them.
    """

    by_merges: NDArray[np.int64]
    by_encoding: NDArray[np.int64]
    by_normalizer: NDArray[np.int64]
    by_pattern: NDArray[np.int64]
    not_found: NDArray[np.int64]

    @property
    def unreachable(self) -> NDArray[np.int64]:
        """The ids that no text gives, ascending."""
        parts = (self.by_merges, self.by_encoding, self.by_normalizer, self.by_pattern)
        return np.sort(np.concatenate(parts))


def find_unreachable(
    tokenizer: BPETokenizer, used: NDArray[np.int64] | None = None
) -> Reachability | None:
    """Return the ids that no text gives.

    Args:
        tokenizer: The tokenizer.
        used: Ids that some text gave.

    Returns:
        The ids, or None for tokenizers that change spaces or do not encode every character.

    Example:
        >>> vocab = {0: b"a", 1: b"b", 2: b" ", 3: b"ab", 4: b"ba", 5: b"bab", 6: b"a b"}
        >>> merges = [(b"a", b"b"), (b"b", b"a"), (b"ba", b"b"), (b"a", b" "), (b"a ", b"b")]
        >>> vocab[7] = b"a "
        >>> found = find_unreachable(BPETokenizer(vocab, merges))
        >>> found.by_merges.tolist(), found.by_pattern.tolist()
        ([5], [6, 7])
    """
    model = tokenizer.model
    is_judged = model.characters is None or model.gives_unknown_id or model.characters.byte_ids
    if model.space_rules or not is_judged:
        return None
    # With `characters`, special tokens are among the ordinary ones.
    wanted = ~np.isin(model.token_ids, list(model.special_tokens.values()))
    if used is not None:
        wanted &= ~np.isin(model.token_ids, used)
    by_merges = wanted & ~_are_made_alone(model)
    wanted &= ~by_merges
    rows = np.flatnonzero(wanted)
    texts = model.token_bytes.take(to_arrow(rows)).to_pylist()
    likely = [[t, b"." + t] if _is_utf8(t) else [] for t in texts]
    wanted[rows] = ~_are_found(tokenizer, rows, likely)
    rows = np.flatnonzero(wanted)
    texts = model.token_bytes.take(to_arrow(rows)).to_pylist()
    reasons = np.array([_find_reason(model, text) for text in texts], object)
    reasons[_are_found(tokenizer, rows, [_texts_with(t) for t in texts])] = "found"
    found = {name: model.token_ids[rows[reasons == name]] for name in _REASONS}
    return Reachability(by_merges=model.token_ids[by_merges], **found)


def _are_made_alone(model: TokenizerModel) -> NDArray[np.bool_]:
    """Return which tokens are what their bytes, as one pre-token, are encoded to."""
    byte_ids, merges = with_building_rules(model)
    left, right, result = merges.T.astype(np.uint32, order="C")
    unknown = model.max_id + 1  # of bytes without an id
    encoder = Encoder(byte_ids, left, right, result, unknown, pattern=None)
    keys, offsets = flatten(model.token_bytes)
    if model.ignore_merges:
        encoder.set_whole_tokens(keys, offsets, model.token_ids.astype(np.uint32))
    no_specials = np.full(len(model.token_ids), -1, np.int64)
    ids, bounds = encoder.encode_spans(keys, offsets[:-1], offsets[1:], no_specials)
    single = np.diff(bounds) == 1
    made = np.zeros(len(model.token_ids), np.bool_)
    made[single] = ids[bounds[:-1][single]] == model.token_ids[single]
    return made


def _are_found(
    tokenizer: BPETokenizer, rows: NDArray[np.int64], texts: Sequence[Sequence[bytes]]
) -> NDArray[np.bool_]:
    """Return which tokens some of their texts give."""
    model = tokenizer.model
    missing = set(np.flatnonzero(model.byte_ids < 0).tolist())
    if missing and model.unknown_id is None:
        texts = [[t for t in each if not set(t) & missing] for each in texts]
    data, offsets = concatenate([text for of_token in texts for text in of_token])
    ids, bounds = tokenizer.encode_documents(
        data, offsets[:-1], offsets[1:], allowed_special="none", num_threads=0
    )
    ends = bounds[np.cumsum([0, *map(len, texts)])]
    owners = np.repeat(np.arange(len(rows)), np.diff(ends))
    given = ids == model.token_ids[rows][owners]
    found = np.zeros(len(rows), np.bool_)
    found[owners[given]] = True
    return found


def _texts_with(token: bytes) -> list[bytes]:
    """Return texts in UTF-8 that contain a token's bytes."""
    if _is_utf8(token):
        return [left + token + right for left, right in product(_CONTEXTS, repeat=2)]
    begins_inside = token[0] & 0xC0 == 0x80
    befores = _LEADS if begins_inside else (b"",)
    afters = _ENDS if not any(_is_utf8(before + token) for before in befores) else (b"",)
    texts: list[bytes] = []
    # Of each length of what is missing, so that a limit leaves out none.
    for before, after in product(befores, afters):
        text = before + token + after
        if _is_utf8(text):
            texts += [text, b"a" + text] if before == b"" else [text]
        if len(texts) > _MOST_TEXTS:
            break
    return texts


def _find_reason(model: TokenizerModel, token: bytes) -> str:
    """Return the reason for which no text gives a token, unless some text does."""
    if not _is_utf8(token):
        return "not_found" if _texts_with(token) else "by_encoding"
    if model.characters is not None:
        return "not_found"
    normalizer = native_normalizer(model.normalizer, model.normalize_quotes)
    # Every part of a normalized text is normalized.
    if normalizer is not None and normalizer.normalize(token) != token:
        return "by_normalizer"
    resolved = resolve_pattern(model.pattern)
    if resolved.has_safe_cuts and len(token) > 1:
        scanner = resolved.scanner or "none"
        if safe_cut(token, True, len(token) - 1, special_set(()), None, scanner) is not None:
            return "by_pattern"
    return "not_found"


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
