"""Character-level vocabulary and its encoders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bpe_core._native import LongestMatcher
from bpe_core.buffers import concatenate
from bpe_core.char_bpe.encoder import UNKNOWN, MergeEncoder
from bpe_core.char_bpe.settings import WORD_END, Method, Settings
from bpe_core.char_bpe.training import CountedWords, longest_first_order, token_length
from bpe_core.errors import InvalidTokenizerError
from bpe_core.model import MAX_ID


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Vocabulary and its encoders.

    Attributes:
        longest_first: Ids in the order in which the method `longest_first` searches them; None for
            all tokens, the longest first, then the smallest id.
    """

    settings: Settings = field(compare=False)
    vocab: Mapping[str, int]
    merges: tuple[tuple[str, str], ...]
    merge_counts: tuple[int, ...] | None = None
    longest_first: tuple[int, ...] | None = None
    stop_reason: str | None = None
    tie_break: str | None = None

    def __post_init__(self) -> None:
        for name in ("merges", "merge_counts", "longest_first"):
            value = getattr(self, name)
            if value is not None:
                entries = (tuple(v) if name == "merges" else v for v in value)
                object.__setattr__(self, name, tuple(entries))
        _check(self)

    def as_json(self) -> dict[str, Any]:
        """Return the attributes except for the settings, as arguments of `Vocabulary`."""
        return {
            "vocab": dict(self.vocab),
            "merges": list(self.merges),
            "merge_counts": self.merge_counts,
            "longest_first": self.longest_first,
            "stop_reason": self.stop_reason,
            "tie_break": self.tie_break,
        }

    @cached_property
    def token_of(self) -> dict[int, str]:
        """Return id to token."""
        return {token_id: token for token, token_id in self.vocab.items()}

    @cached_property
    def max_id(self) -> int:
        """Return the largest id, or -1 if there are no tokens."""
        return max(self.vocab.values(), default=-1)

    @cached_property
    def text_of(self) -> dict[int, str]:
        """Return id to decoded text, with a space for the end of a word."""
        marker = self.settings.end_of_word
        if marker is None:
            return self.token_of
        return {
            token_id: f"{token.removesuffix(marker)} " if token.endswith(marker) else token
            for token, token_id in self.vocab.items()
        }

    @cached_property
    def _merge_encoder(self) -> MergeEncoder:
        return MergeEncoder(self.settings, self.vocab, self.merges)

    @cached_property
    def _left_to_right(self) -> LongestMatcher:
        return self._matcher(list(self._ordinary))

    @cached_property
    def _longest_first(self) -> LongestMatcher:
        if self.longest_first is not None:
            return self._matcher([self.token_of[i] for i in self.longest_first])
        marker = self.settings.end_of_word
        return self._matcher(
            sorted(self._ordinary, key=lambda t: (-token_length(t, marker), self.vocab[t]))
        )

    @property
    def _ordinary(self) -> Iterable[str]:
        return self.vocab.keys() - set(self.settings.reserved)

    def _matcher(self, tokens: list[str]) -> LongestMatcher:
        keys, offsets = concatenate([self._marked_token(token) for token in tokens])
        ids = np.array([self.vocab[token] for token in tokens], np.int64)
        return LongestMatcher(keys, offsets, ids, self.settings.word_end)

    def _marked_token(self, token: str) -> bytes:
        """Return the bytes of a token in marked words."""
        marker = self.settings.end_of_word
        if marker is None or not token.endswith(marker):
            return token.encode()
        if token == marker and self.settings.end_of_word_as == "suffix":
            return token.encode()  # there is no character to which the marker could belong
        return token.removesuffix(marker).encode() + bytes([WORD_END])

    def with_longest_first(self, words: CountedWords) -> Vocabulary:
        """Return the vocabulary with tokens ordered by their frequencies in the training words."""
        marked = np.insert(np.frombuffer(words.text, np.uint8), words.offsets[1:], WORD_END)
        bounds = words.offsets + np.arange(len(words.offsets))
        ids, offsets = self._merge_encoder.encode(marked, bounds[:-1], bounds[1:], num_threads=0)
        counts = np.repeat(words.counts, np.diff(offsets))
        order = longest_first_order(self.vocab, self.settings.end_of_word, ids, counts)
        return Vocabulary(settings=self.settings, **{**self.as_json(), "longest_first": order})

    def encode(
        self,
        marked: NDArray[np.uint8],
        bounds: NDArray[np.int64],
        method: Method,
        *,
        prepend: Sequence[int],
        append: Sequence[int],
        num_threads: int,
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return (ids, offsets) of documents of marked words, unknown characters as configured."""
        starts, ends = bounds[:-1], bounds[1:]
        ids: NDArray[Any]
        if method == "merges":
            ids, offsets = self._merge_encoder.encode(
                marked, starts, ends, prepend=prepend, append=append, num_threads=num_threads
            )
        else:
            matcher = self._longest_first if method == "longest_first" else self._left_to_right
            specials = [self.vocab[token] for token in self.settings.special_tokens]
            ids, offsets = matcher.encode(marked, starts, ends, specials, method == "longest_first")
            ids, offsets = _with_affixes(ids, offsets, prepend, append)
        if self.settings.unk_token is not None:
            ids[ids == UNKNOWN] = self.vocab[self.settings.unk_token]
        return ids, offsets


def _with_affixes(
    ids: NDArray[np.int64],
    offsets: NDArray[np.int64],
    prepend: Sequence[int],
    append: Sequence[int],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    if not prepend and not append:
        return ids, offsets
    n = len(offsets) - 1
    # The ids after a document precede those before the next.
    edges = np.stack([offsets[:-1], offsets[1:]], axis=1).ravel()
    places = np.repeat(edges, np.tile([len(prepend), len(append)], n))
    with_affixes = np.insert(ids, places, np.tile([*prepend, *append], n))
    return with_affixes, offsets + np.arange(n + 1) * (len(prepend) + len(append))


def _check(state: Vocabulary) -> None:
    vocab = state.vocab
    for token, token_id in vocab.items():
        if not isinstance(token, str) or not token:
            raise InvalidTokenizerError(f"vocabulary: expected texts as tokens, found {token!r}")
        if not isinstance(token_id, int) or not 0 <= token_id <= MAX_ID:
            raise InvalidTokenizerError(
                f"token {token!r}: expected an id of 0 ... {MAX_ID}, found {token_id!r}"
            )
    if len(set(vocab.values())) < len(vocab):
        seen: dict[int, str] = {}
        for token, token_id in vocab.items():
            if token_id in seen:
                raise InvalidTokenizerError(
                    f"tokens {seen[token_id]!r} and {token!r}: expected different ids, found "
                    f"{token_id} for both"
                )
            seen[token_id] = token
    for token in state.settings.reserved:
        if token not in vocab:
            raise InvalidTokenizerError(
                f"{token!r}: expected unk_token and special tokens in the vocabulary, found no id "
                "for it; add it, or choose others (unk_token=None: unknown characters become -1)"
            )
    for rank, merge in enumerate(state.merges):
        for token in (*merge, "".join(merge)):
            if len(merge) != 2 or token not in vocab:
                raise InvalidTokenizerError(
                    f"merge {rank}, {merge!r}: expected two tokens of the vocabulary whose text "
                    f"together is a token too, found no id for {token!r}"
                )
    if state.longest_first is not None and (
        unknown := set(state.longest_first) - set(vocab.values())
    ):
        raise InvalidTokenizerError(
            f"longest_first: expected ids of the vocabulary, found {min(unknown)}"
        )
