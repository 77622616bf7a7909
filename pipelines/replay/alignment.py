"""The alignment of a repaired file with a dataset: the documents that the dataset lacks.

The dataset records where the documents of the first file begin: those in its rows, with their
lengths, and those in its rejects. The repaired file is read once for the same facts, and the two
are compared. Nothing is guessed: either every document of the dataset is found again and every
other one corresponds to a reject, or nothing is replayed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pipelines.writing.replayed import IntArray, Intervals

# The end of an interval that extends to the end of a file.
END: Final = int(np.iinfo(np.int64).max)


@dataclass(frozen=True, kw_only=True, eq=False)
class Known:
    """The documents of a file that a dataset has recorded, by their offsets.

    Attributes:
        rows: int64[n], ascending: documents in the dataset.
        row_bytes: int64[n]: their lengths in the source.
        rejects: int64[m], ascending: rejected documents.
        rests: int64[k], ascending: offsets at which reading ended because the file was damaged.
        is_first: True if no repaired file has replaced it yet, so offsets are those of one file.
        reject_bytes: int64[m]: lengths of rejected documents; None if unknown.
        framing: least number of bytes between two documents.
    """

    rows: IntArray
    row_bytes: IntArray
    rejects: IntArray
    rests: IntArray
    is_first: bool = True
    reject_bytes: IntArray | None = None
    framing: int = 1

    def adjacent(self, begin: int, end: int) -> int:
        """Return how many of rejects [begin, end), from the first on, are certainly adjacent."""
        if self.reject_bytes is None:
            return 1
        between = np.diff(self.rejects[begin:end]) - self.reject_bytes[begin : end - 1]
        apart = np.flatnonzero(between > 2 * self.framing)  # room for a document
        return int(apart[0]) + 1 if len(apart) else end - begin


@dataclass(frozen=True, kw_only=True, eq=False)
class Located:
    """The documents of a file, except for the empty and the not selected ones.

    Attributes:
        places, lengths: int64[n]: ascending offsets, and lengths.
        more_left_out: number of additional documents that are empty or not selected, compared with
            the first file.
        all_places: offsets with those of documents that are not selected; None if some documents
            have become empty.
    """

    places: IntArray
    lengths: IntArray
    more_left_out: int = 0
    all_places: IntArray | None = None


class NotAlignedError(ValueError):
    """A repaired file that differs from the recorded one in more than rejected documents.

    Attributes:
        expected, found: for the error message.
    """

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(f"expected {expected}, found {found}")
        self.expected = expected
        self.found = found


def align(known: Known, found: Located, *, by_row: bool = False) -> Intervals:
    """Return the documents of a repaired file that correspond to rejects.

    They are found by offset if every document of the dataset is where it was; otherwise by order,
    if there are as many as the dataset has recorded, rows and rejects together, or more and reading
    had ended early; otherwise between the documents of the dataset. Rejected documents may have
    become empty or not selected: there must be as many more of these as documents are missing.

    Args:
        known: recorded documents of the first file.
        found: documents of the repaired file.
        by_row: offsets are numbers of rows, which a repair does not change.

    Raises:
        NotAlignedError: the file cannot be aligned in any of these ways.

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


def _by_place(known: Known, found: Located) -> Intervals:
    index = np.searchsorted(found.places, known.rows)
    there = index < len(found.places)
    there[there] = found.places[index[there]] == known.rows[there]
    lengths = np.full(len(known.rows), -1)
    lengths[there] = found.lengths[index[there]]
    _check_rows(known.rows, known.row_bytes, lengths, known.rows)
    other = np.ones(len(found.places), bool)
    other[index] = False
    places = found.places[other]
    # The unread end of a damaged file extends to the next document in the dataset.
    following = np.append(known.rows, END)
    ends = following[np.searchsorted(known.rows, known.rests)]
    _, one_each = np.unique(ends, return_index=True)  # the first of several with one end
    firsts, ends = known.rests[one_each], ends[one_each]
    in_rest = _is_within(places, firsts, ends)
    rejects = known.rejects[~_is_within(known.rejects, firsts, ends)]
    missing = len(rejects) - int(np.count_nonzero(~in_rest))
    if not np.isin(places[~in_rest], rejects).all() or not _are_left_out(missing, known, found):
        raise NotAlignedError(
            f"{len(rejects):,} rejected documents at their offsets among {len(known.rows):,} in "
            "the dataset",
            f"{np.count_nonzero(~in_rest):,} documents that are not in the dataset, at other "
            f"offsets, and {_more(found)}",
        )
    counts = np.searchsorted(places, ends) - np.searchsorted(places, firsts)
    exact = Intervals.at(places[~in_rest])
    return Intervals.merged(
        exact,
        Intervals(
            firsts=firsts,
            ends=ends,
            shifts=np.zeros(len(firsts), np.int64),
            documents=counts,
        ),
    )


def _by_order(known: Known, found: Located) -> Intervals:
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
            "every document of the dataset at its offset, because the file was damaged before some",
            "documents at other offsets",
        )
    if not damaged and _are_left_out(len(places) - len(found.places), known, found):
        if len(found.places) < len(places):
            return _by_gaps(known, found)
    elif len(found.places) < len(places) or not damaged:
        raise NotAlignedError(
            described + (", and what follows the damage" if damaged else ""),
            f"{len(found.places):,} documents, and {_more(found)}",
        )
    same = found.places[: len(places)]
    _check_rows(known.rows, known.row_bytes, found.lengths[: len(places)][is_row], same[is_row])
    exact = Intervals.at(same[~is_row])
    exact = replace(exact, shifts=places[~is_row] - exact.firsts)
    rest = found.places[len(places) :]
    if not len(rest):
        return exact
    return Intervals.merged(
        exact,
        Intervals(
            firsts=rest[:1],
            ends=np.array([END]),
            shifts=known.rests[:1] - rest[:1],
            documents=np.array([len(rest)]),
        ),
    )


def _by_gaps(known: Known, found: Located) -> Intervals:
    """Align an undamaged file in which documents are missing, from row to row.

    Between rejects a file has not changed, so consecutive documents of the dataset are still
    consecutive, and the first reject after them is at the same distance.
    """
    before = np.searchsorted(known.rejects, known.rows)
    begins = np.flatnonzero(np.diff(before, prepend=0))  # rows that follow rejects
    cuts = np.unique(np.concatenate([[0], begins, [len(known.rows)]])).tolist()
    taken: list[tuple[int, int]] = []  # indices of documents and of rejects
    at, done, shift = 0, 0, 0
    for first, end in [*pairwise(cuts), (len(known.rows), len(known.rows))]:
        upto = int(before[first]) if first < end else len(known.rejects)
        if first < end:
            numbers = [n for n in range(upto - done + 1) if _fits(known, found, first, end, at + n)]
        else:
            numbers = [len(found.places) - at]
        chosen = None
        if known.is_first and upto > done:
            there = _there(known, found, done, upto, shift)
            chosen = (np.flatnonzero(there) + done).tolist()
            most = len(chosen) + upto - done - len(there)
            numbers = [n for n in numbers if len(chosen) <= n <= most]
        if len(numbers) != 1 or not 0 <= numbers[0] <= upto - done:
            raise _not_between(known, found, done, upto, at)
        [number] = numbers
        if number in (0, upto - done):
            chosen = list(range(done, done + number))
        elif chosen is not None and number == most:
            chosen += range(done + len(there), upto)
        if chosen is None or len(chosen) != number:
            raise _not_between(known, found, done, upto, at)
        taken += zip(range(at, at + number), chosen, strict=True)
        at, done = at + number + end - first, upto
        if first < end:
            shift = int(found.places[at - 1] - known.rows[end - 1])
    indices = np.array(taken, np.int64).reshape(-1, 2)
    exact = Intervals.at(found.places[indices[:, 0]])
    return replace(exact, shifts=known.rejects[indices[:, 1]] - exact.firsts)


def _there(known: Known, found: Located, done: int, upto: int, shift: int) -> NDArray[np.bool_]:
    """Return which of the first of rejects [done, upto) are present, as far as it is certain."""
    place = known.rejects[done] + shift
    if found.all_places is None:
        return np.isin(np.array([place]), found.places)
    index = int(np.searchsorted(found.all_places, place))
    places = found.all_places[index : index + known.adjacent(done, upto)]
    if not len(places) or places[0] != place:
        return np.zeros(1, bool)
    return np.isin(places, found.places)


def _fits(known: Known, found: Located, first: int, end: int, at: int) -> bool:
    """Return True if rows [first, end) are the documents from number `at` on."""
    until = at + end - first
    if until > len(found.places) or found.lengths[at] != known.row_bytes[first]:
        return False
    same = np.array_equal(found.lengths[at:until], known.row_bytes[first:end])
    if not (same and known.is_first):
        return same
    return np.array_equal(np.diff(found.places[at:until]), np.diff(known.rows[first:end]))


def _not_between(known: Known, found: Located, done: int, upto: int, at: int) -> NotAlignedError:
    where = f"byte {found.places[at]:,}" if at < len(found.places) else "the end"
    rejects = known.rejects[done:upto]
    first = f", the first one at {rejects[0]:,}" if len(rejects) else ""
    return NotAlignedError(
        f"between two documents of the dataset {len(rejects):,} repaired ones{first}, with no "
        "doubt about which are empty or not selected (as if all keep their offsets)",
        f"documents from {where} on that match in several ways or in none",
    )


def _are_left_out(missing: int, known: Known, found: Located) -> bool:
    """Return True if so many documents may have become empty or not selected."""
    if len(known.rests):
        return 0 <= missing <= max(found.more_left_out, 0)
    return missing == found.more_left_out >= 0


def _more(found: Located) -> str:
    return f"{found.more_left_out:+,} empty or not selected"


def _check_rows(places: IntArray, lengths: IntArray, found: IntArray, at: IntArray) -> None:
    """Raise an error for the first document of the dataset that is missing or differs in length."""
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
