"""Fingerprints of automata: patterns that match alike have the same, however they are written.

An automaton is brought into a form that follows from its matches alone. States from which no match
can follow become the dead state; a match that a longer one always replaces is not noted; states
that behave alike become one, and so do classes. The rest is numbered in a fixed order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["fingerprint"]

_DEAD = 0


def fingerprint(
    table: NDArray[np.uint32], starts: Sequence[int], bounds: Sequence[int], classes: Sequence[int]
) -> str:
    """Return the fingerprint of an automaton, in hex.

    Args:
        table, starts: Those of the native `PatternStep`; the last symbol is the edge of the text.
        bounds, classes: Where ranges of characters begin, ascending from 0, and their classes.
    """
    following = (table >> 1).astype(np.int64)
    matched = (table & 1).astype(np.bool_)
    following[~_may_match(following, matched)[following]] = _DEAD
    matched &= _may_fail(following, matched)[following]
    groups = _group_states(following, matched)
    begins = groups[np.array(starts)]
    _, firsts = np.unique(groups, return_index=True)
    following, matched = groups[following[firsts]], matched[firsts]

    order = _order_states(following, begins, classes)
    number = np.full(len(following), -1)
    number[order] = np.arange(len(order))
    following, matched, begins = number[following[order]], matched[order], number[begins]

    # Classes, and the edge behind them, in the order of their first characters.
    columns = np.concatenate([following, matched, begins[None]])
    edge = columns.shape[1] - 1
    kinds: dict[bytes, int] = {}
    kept: list[int] = []
    ranges: list[tuple[int, int]] = []
    for bound, column in zip(bounds, classes, strict=True):
        key = columns[:, column].tobytes()
        if key not in kinds:
            kinds[key] = len(kinds)
            kept.append(column)
        if not ranges or ranges[-1][1] != kinds[key]:
            ranges.append((bound, kinds[key]))
    digest = hashlib.blake2b(digest_size=16)
    for part in (np.array(ranges), columns[:, [*kept, edge]]):
        digest.update(np.array(part.shape, "<i8").tobytes() + part.astype("<i8").tobytes())
    return digest.hexdigest()


def _may_match(following: NDArray[np.int64], matched: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return bool[states], true where some text leads to a match."""
    found: NDArray[np.bool_] = np.any(matched, axis=1)
    while True:
        more = found | found[following].any(axis=1)
        if np.array_equal(more, found):
            return found
        found = more


def _may_fail(following: NDArray[np.int64], matched: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return bool[states], true where some text leads to the dead state without a match."""
    found: NDArray[np.bool_] = np.arange(len(following)) == _DEAD
    while True:
        more = found | (found[following] & ~matched).any(axis=1)
        if np.array_equal(more, found):
            return found
        found = more


def _group_states(following: NDArray[np.int64], matched: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return int64[states], the same number for states that behave alike."""
    groups = np.zeros(len(following), np.int64)
    count, found = 0, 1
    while count < found:
        count = found
        rows = np.column_stack([groups, groups[following], matched])
        _, groups = np.unique(rows, axis=0, return_inverse=True)
        groups = groups.reshape(-1)
        found = int(groups.max()) + 1
    return groups


def _order_states(
    following: NDArray[np.int64], begins: NDArray[np.int64], classes: Sequence[int]
) -> list[int]:
    """Return the states that are reached, in the order in which a walk by class reaches them."""
    columns = [*dict.fromkeys(classes), following.shape[1] - 1]
    order = list(dict.fromkeys(begins[columns].tolist()))
    seen = set(order)
    for state in order:  # which grows
        for target in following[state, columns].tolist():
            if target not in seen:
                seen.add(target)
                order.append(target)
    return order
