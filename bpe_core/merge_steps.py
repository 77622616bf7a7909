"""Encoding step by step: the pre-tokens of a text, and the merges that make each token.

The steps are those of `bpe_core.reference.apply_merges`: the merge of lowest rank first, of equal
ranks the leftmost. Native code returns the same ids, but not how it found them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bpe_core._native import split_pretokens
from bpe_core.buffers import to_utf8
from bpe_core.byte_spaces import without_white_space
from bpe_core.character_encoding import character_splitter, with_building_rules
from bpe_core.custom_encoding import find_encoded_segments
from bpe_core.errors import UnknownTokenError
from bpe_core.model import TokenizerModel
from bpe_core.patterns import resolve_pattern, split_custom
from bpe_core.special_tokens import added_token_set

__all__ = ["EncodingTracer", "MergeStep", "MergeTable", "TracedPretoken", "TracedSpecial"]


@dataclass(frozen=True, kw_only=True)
class MergeStep:
    """One merge in a pre-token.

    Attributes:
        rank: rank of the merge, its row in the model's merges.
        left, right, result: ids of the two tokens and of the one that they become.
        position: index of the left token among those of the pre-token before this merge.
    """

    rank: int
    left: int
    right: int
    result: int
    position: int


@dataclass(frozen=True, kw_only=True)
class TracedPretoken:
    """A pre-token and the way to its ids.

    Attributes:
        text: its bytes, after normalization.
        start: ids before the first merge: of its bytes or, with `characters`, its characters.
        steps: the merges, in order.
        ids: ids after the last merge.
        is_whole: True if it became its id as a whole, without merges (`ignore_merges`).
    """

    text: bytes
    start: tuple[int, ...]
    steps: tuple[MergeStep, ...]
    ids: tuple[int, ...]
    is_whole: bool = False


@dataclass(frozen=True, kw_only=True)
class TracedSpecial:
    """A special token in a text."""

    text: str
    id: int

    @property
    def ids(self) -> tuple[int, ...]:
        """The id, as `TracedPretoken` has several."""
        return (self.id,)


class EncodingTracer:
    """Encoding of short texts by a tokenizer, with all steps.

    Args:
        model: the tokenizer. No table of its whole vocabulary is made, except of its merges.

    Example:
        >>> vocab = {i: bytes([i]) for i in range(256)} | {256: b"hi", 257: b"hi!"}
        >>> model = TokenizerModel.from_vocab(vocab, [(b"h", b"i"), (b"hi", b"!")], {})
        >>> traced = EncodingTracer(model).trace_pretoken(b"hi!")
        >>> [(step.rank, step.result) for step in traced.steps]
        [(0, 256), (1, 257)]
    """

    def __init__(self, model: TokenizerModel) -> None:
        self._model = model
        self._byte_ids, merges = with_building_rules(model)
        # Merges that only build characters, and are no rows of the model.
        self._built = len(merges) - len(model.merges)
        self._merges = MergeTable(merges)
        self._pattern = resolve_pattern(model.pattern)
        # With `characters` the pattern splits nothing, and long texts would take long.
        self._scanner = (
            self._pattern.scanner
            if model.characters is None
            else character_splitter(model, model.characters)
        )

    def trace(
        self, text: str | bytes, *, ordinary: bool = False
    ) -> Iterator[TracedPretoken | TracedSpecial]:
        """Yield the pre-tokens and special tokens of a text in order.

        Their ids, joined, are those of `BPETokenizer.encode`.

        Args:
            text: str, or UTF-8 bytes.
            ordinary: treat special tokens in the text as ordinary text.

        Raises:
            UnknownTokenError: a byte has no id.
            InvalidUtf8Error: the text is not UTF-8.
        """
        model = self._model
        known = {} if ordinary else model.specials_in_text
        texts = {i: found for found, i in known.items()}
        specials = added_token_set(known, model.token_flags, model.native_normalizer)
        for segment, special_id in find_encoded_segments(to_utf8(text), model, specials):
            yield from self._trace_segment(segment.encode())
            if special_id is not None:
                yield TracedSpecial(text=texts[special_id], id=special_id)

    def trace_pretoken(self, pretoken: bytes) -> TracedPretoken:
        """Return the way of a pre-token to its ids.

        Raises:
            UnknownTokenError: a byte has no id.
        """
        whole = self.find_ids(pretoken) if self._model.ignore_merges else []
        if whole:
            return TracedPretoken(text=pretoken, start=(), steps=(), ids=(whole[0],), is_whole=True)
        return self.trace_merges(pretoken)

    def trace_merges(self, pretoken: bytes) -> TracedPretoken:
        """Return the way of a pre-token to the ids that its merges make, even with `ignore_merges`.

        Raises:
            UnknownTokenError: a byte has no id.
        """
        symbols = self._byte_ids[np.frombuffer(pretoken, np.uint8)].tolist()
        if -1 in symbols:
            symbols = [
                self._unknown_id(pretoken[at]) if i < 0 else i for at, i in enumerate(symbols)
            ]
        steps = self._merges.apply(symbols)
        inner = sum(rank < self._built for rank, _ in steps)
        start = list(symbols)
        for rank, position in steps[:inner]:
            start[position : position + 2] = [self._merges.result(rank)]
        ids = list(start)
        made = []
        for rank, position in steps[inner:]:
            result = self._merges.result(rank)
            left, right = ids[position : position + 2]
            ids[position : position + 2] = [result]
            made.append(
                MergeStep(
                    rank=rank - self._built,
                    left=left,
                    right=right,
                    result=result,
                    position=position,
                )
            )
        # Only the tokenizer's own ids: with `characters`, others are parts of unknown characters.
        known = [self._unknown_id(pretoken[0]) if i > self._model.max_id else i for i in ids]
        if known != ids:
            start = ids = known[:1]
        return TracedPretoken(text=pretoken, start=tuple(start), steps=tuple(made), ids=tuple(ids))

    def find_ids(self, token: bytes) -> list[int]:
        """Return the ids of the ordinary tokens with these bytes, ascending."""
        return self._model.ids_of(token)

    def _trace_segment(self, segment: bytes) -> Iterator[TracedPretoken]:
        for begin, end in pairwise(self._split(segment)):
            pretoken = segment[begin:end]
            if self._model.drop_white_space and not without_white_space(pretoken.decode()):
                continue
            yield self.trace_pretoken(pretoken)

    def _split(self, segment: bytes) -> list[int]:
        """Return the bounds of the pre-tokens in a segment."""
        if not segment:
            return [0]
        if self._scanner is None:
            return self._split_by_regex(segment)
        return [0, *split_pretokens(self._scanner, segment).tolist()]

    def _split_by_regex(self, segment: bytes) -> list[int]:
        bounds: list[int] = split_custom(self._pattern.regex, segment.decode()).tolist()
        return bounds

    def _unknown_id(self, byte: int) -> int:
        if self._model.unknown_id is None:
            raise UnknownTokenError(f"the byte 0x{byte:02X} has no id, and there is no unknown_id")
        return self._model.unknown_id


class MergeTable:
    """Merges by pair: a sorted table, which is made faster than a mapping of each pair."""

    def __init__(self, merges: NDArray[np.int64]) -> None:
        pairs = merges[:, 0].astype(np.uint64) << np.uint64(32) | merges[:, 1].astype(np.uint64)
        self._ranks = np.argsort(pairs)
        self._pairs = pairs[self._ranks]
        self._results = merges[:, 2]
        self._limit = len(merges)
        self._added: dict[tuple[int, int], int] = {}
        self._added_results: list[int] = []

    def up_to(self, limit: int) -> MergeTable:
        """Return a table of the first merges alone, to which others can be added."""
        table = copy(self)
        table._limit, table._added, table._added_results = limit, {}, []
        return table

    def add(self, left: int, right: int, result: int) -> None:
        """Add a merge after all others."""
        self._added[left, right] = self._limit + len(self._added_results)
        self._added_results.append(result)

    def result(self, rank: int) -> int:
        """Return the id that a merge makes."""
        if rank >= self._limit:
            return self._added_results[rank - self._limit]
        return int(self._results[rank])

    def rank(self, left: int, right: int) -> int | None:
        """Return the rank of a pair, or None."""
        pair = np.uint64(left << 32 | right)
        row = int(np.searchsorted(self._pairs, pair))
        if row < len(self._pairs) and self._pairs[row] == pair and self._ranks[row] < self._limit:
            return int(self._ranks[row])
        return self._added.get((left, right))

    def apply(self, symbols: Sequence[int]) -> list[tuple[int, int]]:
        """Return the merges of a pre-token in order: (rank, index of the left symbol then)."""
        symbol = list(symbols)
        after = [*range(1, len(symbol)), -1]
        before = list(range(-1, len(symbol) - 1))
        waiting: list[tuple[int, int, int, int]] = []

        def consider(at: int) -> None:
            if at >= 0 and after[at] >= 0:
                left, right = symbol[at], symbol[after[at]]
                if (rank := self.rank(left, right)) is not None:
                    heappush(waiting, (rank, at, left, right))

        for at in range(len(symbol) - 1):
            consider(at)
        gone = np.zeros(len(symbol), np.int64)
        steps = []
        while waiting:
            rank, at, left, right = heappop(waiting)
            other = after[at]
            if other < 0 or (symbol[at], symbol[other]) != (left, right):
                continue  # one of the two has been merged since
            steps.append((rank, at - int(gone[:at].sum())))
            symbol[at], symbol[other] = self.result(rank), -1
            gone[other] = 1
            after[at] = after[other]
            if after[at] >= 0:
                before[after[at]] = at
            after[other] = -1
            consider(before[at])
            consider(at)
        return steps
