"""Which documents of a repaired file a dataset does not have yet.

Of the file as it was, the dataset knows where documents begin: those in its rows, with their
lengths, and those in its rejects. The repaired file is read once for the same facts, and the two
are laid side by side. Nothing is guessed: either every document of the dataset is found again,
and every other one stands for a reject, or nothing is taken.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pipelines.taking import IntArray, Taken, joined

# The end of an interval that reaches to the end of a file.
END: Final = int(np.iinfo(np.int64).max)


@dataclass(frozen=True, kw_only=True, eq=False)
class Known:
    """What a dataset knows of a file; places are offsets as in its column `offset`.

    Attributes:
        rows: int64[n], ascending: documents in the dataset.
        row_bytes: int64[n], their lengths in the source.
        rejects: int64[m], ascending: documents that were rejected.
        rests: int64[k], ascending: where reading ended because the file was damaged.
    """

    rows: IntArray
    row_bytes: IntArray
    rejects: IntArray
    rests: IntArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Located:
    """The documents of a file, empty ones left out: int64[n] places, ascending, and lengths."""

    places: IntArray
    lengths: IntArray


class NotAlignedError(ValueError):
    """A repaired file is not the one that a dataset knows, but for documents that were rejected.

    Attributes:
        expected, found: for a message.
    """

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(f"expected {expected}, found {found}")
        self.expected = expected
        self.found = found


def align(known: Known, found: Located, *, by_row: bool = False) -> Taken:
    """The documents of a repaired file that stand for what was rejected.

    They are found by their places, if every document of the dataset is where it was; else by their
    order, if there are as many as the dataset knows, rows and rejects together, or more and
    reading had ended early.

    Args:
        known: of the file as it was.
        found: of the repaired file.
        by_row: places are numbers of rows, which a repair does not change.

    Raises:
        NotAlignedError: neither is so.

    >>> def array(*values): return np.array(values, np.int64)
    >>> known = Known(rows=array(0, 20), row_bytes=array(9, 5), rejects=array(10), rests=array())
    >>> taken = align(known, Located(places=array(0, 10, 23), lengths=array(9, 12, 5)))
    >>> taken.firsts.tolist(), taken.shifts.tolist()
    ([10], [0])
    """
    try:
        return _by_place(known, found)
    except NotAlignedError:
        if by_row:
            raise
    return _by_order(known, found)


def _by_place(known: Known, found: Located) -> Taken:
    index = np.searchsorted(found.places, known.rows)
    there = index < len(found.places)
    there[there] = found.places[index[there]] == known.rows[there]
    lengths = np.full(len(known.rows), -1)
    lengths[there] = found.lengths[index[there]]
    _check_rows(known.rows, known.row_bytes, lengths, known.rows)
    other = np.ones(len(found.places), bool)
    other[index] = False
    places = found.places[other]
    # The rest of a damaged file reaches to the next document that is in the dataset.
    following = np.append(known.rows, END)
    ends = following[np.searchsorted(known.rows, known.rests)]
    _, one_each = np.unique(ends, return_index=True)  # of several that reach as far, the first
    firsts, ends = known.rests[one_each], ends[one_each]
    in_rest = _is_within(places, firsts, ends)
    rejects = known.rejects[~_is_within(known.rejects, firsts, ends)]
    if not np.array_equal(places[~in_rest], rejects):
        raise NotAlignedError(
            f"{len(rejects):,} rejected documents at their places among {len(known.rows):,} that "
            "are in the dataset",
            f"{np.count_nonzero(~in_rest):,} documents that are not in the dataset, at other "
            "places",
        )
    counts = np.searchsorted(places, ends) - np.searchsorted(places, firsts)
    exact = Taken.at(rejects)
    return joined(
        exact,
        Taken(
            firsts=firsts,
            ends=ends,
            shifts=np.zeros(len(firsts), np.int64),
            documents=counts,
        ),
    )


def _by_order(known: Known, found: Located) -> Taken:
    places = np.concatenate([known.rows, known.rejects])
    order = np.argsort(places, kind="stable")
    is_row = order < len(known.rows)
    places = places[order]
    damaged = len(known.rests) > 0
    described = (
        f"{len(known.rows):,} documents of the dataset and {len(known.rejects):,} rejected ones, "
        "in the same order"
    )
    if damaged and len(places) and known.rests[0] <= places[-1]:
        raise NotAlignedError(
            "every document of the dataset at its place, since the file was damaged before some",
            "documents at other places",
        )
    if len(found.places) < len(places) or (len(found.places) > len(places) and not damaged):
        raise NotAlignedError(
            described + (", and what follows the damage" if damaged else ""),
            f"{len(found.places):,} documents",
        )
    same = found.places[: len(places)]
    _check_rows(known.rows, known.row_bytes, found.lengths[: len(places)][is_row], same[is_row])
    exact = Taken.at(same[~is_row])
    exact = replace(exact, shifts=places[~is_row] - exact.firsts)
    rest = found.places[len(places) :]
    if not len(rest):
        return exact
    return joined(
        exact,
        Taken(
            firsts=rest[:1],
            ends=np.array([END]),
            shifts=known.rests[:1] - rest[:1],
            documents=np.array([len(rest)]),
        ),
    )


def _check_rows(places: IntArray, lengths: IntArray, found: IntArray, at: IntArray) -> None:
    """Raises for the first document of the dataset that is not there with its length."""
    differing = np.flatnonzero(lengths != found)
    if not len(differing):
        return
    i = int(differing[0])
    raise NotAlignedError(
        f"the dataset's document at {places[i]:,}, of {lengths[i]:,} bytes",
        f"one of {found[i]:,} bytes at {at[i]:,}" if found[i] >= 0 else "none that begins there",
    )


def _is_within(places: IntArray, firsts: IntArray, ends: IntArray) -> NDArray[np.bool_]:
    if not len(firsts):
        return np.zeros(len(places), bool)
    index = np.searchsorted(firsts, places, side="right") - 1
    return (index >= 0) & (places < ends[index])
