"""Merges that make the same bytes under different ids, and the resulting ids."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st

A, B = b"ab"
Pair = tuple[int, int]


def merged(text: bytes, pairs: list[Pair]) -> list[int]:
    """Return the ids of a text: replace the first pair that occurs in it everywhere, repeatedly."""
    ids = list(text)
    ranks = {pair: rank for rank, pair in enumerate(pairs)}
    while found := [pair for pair in pairwise(ids) if pair in ranks]:
        pair = min(found, key=ranks.__getitem__)
        merge_everywhere(ids, pair, 256 + ranks[pair])
    return ids


def merge_everywhere(ids: list[int], pair: Pair, new: int) -> None:
    at = 0
    while at + 1 < len(ids):
        if (ids[at], ids[at + 1]) == pair:
            ids[at : at + 2] = [new]
        at += 1


@st.composite
def pair_lists(draw: st.DrawFn) -> list[Pair]:
    """Return different pairs of a, b and results of earlier pairs; equal bytes are frequent."""
    pairs: list[Pair] = []
    for rank in range(draw(st.integers(0, 12))):
        ids = st.sampled_from([A, B, *range(256, 256 + rank)])
        pairs.append(draw(st.tuples(ids, ids).filter(lambda pair: pair not in pairs)))
    return pairs
