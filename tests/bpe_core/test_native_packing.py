"""The native packing against the reference, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpe_core._native import best_fit_rows, copy_pieces
from bpe_core.reference import best_fit_rows as reference_rows

pieces = st.integers(1, 40).flatmap(
    lambda capacity: st.tuples(st.lists(st.integers(1, capacity), max_size=60), st.just(capacity))
)


@given(pieces)
def test_best_fit_gives_the_rows_of_the_reference(given_pieces: tuple[list[int], int]) -> None:
    lengths, capacity = given_pieces
    rows, count = best_fit_rows(np.array(lengths, np.int64), capacity)
    assert rows.tolist() == reference_rows(lengths, capacity)
    assert count == len(set(rows.tolist()))


@given(pieces)
def test_no_row_is_overfull_and_no_two_rows_would_fit_into_one(
    given_pieces: tuple[list[int], int],
) -> None:
    lengths, capacity = given_pieces
    rows, count = best_fit_rows(np.array(lengths, np.int64), capacity)
    filled = np.bincount(rows, weights=lengths, minlength=count)
    assert (filled <= capacity).all()
    smallest = np.sort(filled)[:2]
    assert len(smallest) < 2 or smallest.sum() > capacity


@pytest.mark.parametrize("lengths", [[0], [9], [-1], [3, 9]])
def test_a_piece_that_is_empty_or_longer_than_a_row_is_refused(lengths: list[int]) -> None:
    with pytest.raises(ValueError, match="has a length of"):
        best_fit_rows(np.array(lengths, np.int64), 8)


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_pieces_are_copied_to_their_places(dtype: type) -> None:
    source = np.arange(10, dtype=dtype)
    target = np.full(8, 99, dtype)
    copy_pieces(source, np.array([7, 0, 5]), np.array([3, 2, 0]), target, np.array([0, 5, 8]))
    assert target.tolist() == [7, 8, 9, 99, 99, 0, 1, 99]


@pytest.mark.parametrize(
    ("start", "length", "place"),
    [(8, 3, 0), (-1, 2, 0), (0, 2, 7), (0, -1, 0), (0, 2, -1), (2**62, 2**62, 0), (0, 11, 0)],
)
def test_pieces_outside_of_the_ids_are_refused(start: int, length: int, place: int) -> None:
    with pytest.raises(ValueError, match="lies outside"):
        copy_pieces(
            np.zeros(10, np.uint16),
            np.array([start]),
            np.array([length]),
            np.zeros(8, np.uint16),
            np.array([place]),
        )


def test_arrays_of_different_types_are_refused() -> None:
    one = np.array([0])
    with pytest.raises(ValueError, match="of one type"):
        copy_pieces(np.zeros(1, np.uint16), one, one, np.zeros(1, np.uint32), one)
