"""A repaired file is laid beside what a dataset knows of the old one, or nothing is taken."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.replay.alignment import (
    END,
    Known,
    Located,
    NotAlignedError,
    align,
)
from pipelines.writing.replayed import IntArray, Intervals


def array(*values: int) -> IntArray:
    return np.array(values, np.int64)


def known(
    rows: dict[int, int], rejects: tuple[int, ...] = (), rests: tuple[int, ...] = ()
) -> Known:
    return Known(
        rows=array(*rows),
        row_bytes=array(*rows.values()),
        rejects=array(*rejects),
        rests=array(*rests),
    )


def located(documents: dict[int, int]) -> Located:
    return Located(places=array(*documents), lengths=array(*documents.values()))


def places_taken(taken: Intervals, found: Located) -> list[tuple[int, int]]:
    """Of each document that is taken its place, and the one that it gets."""
    index = taken.find(found.places)
    chosen = index >= 0
    counts = np.bincount(index[chosen], minlength=len(taken))
    assert counts.tolist() == taken.documents.tolist()
    moved = found.places[chosen] + taken.shifts[index[chosen]]
    return list(zip(found.places[chosen].tolist(), moved.tolist(), strict=True))


@dataclass
class File:
    """A file before and after its repair; documents are numbered by their order."""

    known: Known
    found: Located
    expected: list[tuple[int, int]]


@st.composite
def files(draw: st.DrawFn, *, damaged: bool) -> File:
    """Documents with gaps between them, some rejected, these of other lengths after the repair."""
    lengths = draw(st.lists(st.integers(1, 9), max_size=12))
    rejected = [draw(st.booleans()) for _ in lengths]
    cut = draw(st.integers(0, len(lengths))) if damaged else len(lengths)
    rows, rejects, after, expected = {}, [], {}, []
    old = new = 0
    shift_of_rest = None
    damage = 0
    for i, (length, bad) in enumerate(zip(lengths, rejected, strict=True)):
        gap = draw(st.integers(0, 3))
        old, new = old + gap, new + gap
        repaired = draw(st.integers(1, 9)) if bad and i < cut else length
        after[new] = repaired
        if i >= cut:
            if shift_of_rest is None:
                damage, shift_of_rest = old, old - new
            expected.append((new, new + shift_of_rest))
        elif bad:
            rejects.append(old)
            expected.append((new, old))
        else:
            rows[old] = length
        old, new = old + length, new + repaired
    rests = (damage if cut < len(lengths) else old,) if damaged else ()
    return File(known(rows, tuple(rejects), rests), located(after), expected)


@given(files(damaged=False))
def test_what_was_rejected_is_taken_and_nothing_else(file: File) -> None:
    assert places_taken(align(file.known, file.found), file.found) == file.expected


@given(files(damaged=True))
def test_of_a_damaged_file_what_follows_the_damage_is_taken_too(file: File) -> None:
    taken = places_taken(align(file.known, file.found), file.found)
    assert [place for place, _ in taken] == [place for place, _ in file.expected]
    # Rejects keep their places; what follows may have those of either file.
    rejects = len(file.known.rejects)
    assert taken[:rejects] == file.expected[:rejects]
    moved = [place for _, place in taken]
    assert moved == sorted(set(moved))
    assert not set(moved) & set(file.known.rows.tolist())


@given(files(damaged=False), st.data())
def test_a_document_more_or_less_or_another_one_is_refused(file: File, data: st.DataObject) -> None:
    places, lengths = file.found.places.tolist(), file.found.lengths.tolist()
    kind = data.draw(st.sampled_from(["more", "less", "other"]))
    rows = [i for i, place in enumerate(places) if place not in dict(file.expected)]
    if kind == "more":
        places, lengths = [*places, sum(places) + 99], [*lengths, 1]
    elif kind == "less" and places:
        i = data.draw(st.integers(0, len(places) - 1))
        del places[i], lengths[i]
    elif kind == "other" and rows:
        lengths[data.draw(st.sampled_from(rows))] += 1
    else:
        return
    with pytest.raises(NotAlignedError):
        align(file.known, located(dict(zip(places, lengths, strict=True))))


@given(files(damaged=True), st.data())
def test_rows_in_the_middle_of_what_was_damaged_are_found_by_their_places(
    file: File, data: st.DataObject
) -> None:
    places, lengths = file.found.places, file.found.lengths
    kept = np.array([data.draw(st.booleans()) for _ in places], bool)
    if not kept.any():
        return
    gaps = [int(place) for i, place in enumerate(places) if not kept[i] and (i == 0 or kept[i - 1])]
    whole = Known(rows=places[kept], row_bytes=lengths[kept], rejects=array(), rests=array(*gaps))
    taken = align(whole, file.found)
    expected = [(int(place), int(place)) for place in places[~kept]]
    assert places_taken(taken, file.found) == expected
    with pytest.raises(NotAlignedError):
        align(whole, Located(places=places[~kept], lengths=lengths[~kept]), by_row=True)


def test_numbers_of_rows_do_not_move() -> None:
    parquet = known({0: 5, 2: 7}, rejects=(1,))
    taken = align(parquet, located({0: 5, 1: 3, 2: 7}), by_row=True)
    assert taken.firsts.tolist() == [1]
    with pytest.raises(NotAlignedError, match="5 bytes, found none that begins there"):
        align(parquet, located({1: 5, 2: 3, 3: 7}), by_row=True)


def test_of_a_file_that_could_not_be_read_everything_is_taken() -> None:
    taken = align(known({}, rests=(0,)), located({0: 5, 9: 3}))
    assert (taken.firsts.tolist(), taken.ends.tolist(), taken.documents.tolist()) == (
        [0],
        [END],
        [2],
    )


def test_the_message_says_what_does_not_fit() -> None:
    with pytest.raises(NotAlignedError) as caught:
        align(known({0: 5, 10: 7}, rejects=(20,)), located({0: 5, 10: 8, 20: 3}))
    assert caught.value.expected == "the dataset's document at 10, of 7 bytes"
    assert caught.value.found == "one of 8 bytes at 10"
