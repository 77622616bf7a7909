"""Packing in memory: no id is lost, doubled or moved, wherever the ids were cut."""

from __future__ import annotations

import doctest
import types
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.exports import packing
from pipelines.exports.packing import (
    PackedRows,
    Stretch,
    best_fit_packed,
    concatenated_rows,
    position_ids,
)
from pipelines.sorting import arrow_lists as lists
from pipelines.sorting import keys

U16 = np.dtype(np.uint16)
documents = st.lists(st.integers(0, 30), max_size=40)
cuts = st.lists(st.floats(0, 1), max_size=6)


def stretches(lengths: Sequence[int], at: Sequence[float]) -> list[Stretch]:
    """Documents of these lengths, with ids 0, 1, 2, …, cut at some places between ids.

    A document without ids belongs to the stretch in which it begins, here the later one.
    """
    total = sum(lengths)
    begins = np.cumsum([0, *lengths])[:-1].astype(np.int64)
    bounds = sorted({0, total, *(round(place * total) for place in at)})
    found = []
    for i, (start, end) in enumerate(pairwise(bounds)):
        last = i == len(bounds) - 2
        mine = begins[(begins >= start) & ((begins < end) | last)]
        found.append(Stretch(ids=np.arange(start, end, dtype=np.uint16), starts=mine - start))
    if not found:
        found = [Stretch(ids=np.empty(0, np.uint16), starts=begins)]
    return found


def rows_of(packed: PackedRows) -> list[tuple[list[int], list[int]]]:
    """Ids without padding, and document lengths, of each row."""
    rows = []
    for i in range(len(packed)):
        ids = packed.ids[packed.offsets[i] : packed.offsets[i + 1]].tolist()
        lengths = packed.document_lengths[
            packed.document_offsets[i] : packed.document_offsets[i + 1]
        ]
        assert sum(lengths) == packed.num_tokens[i]
        assert all(length > 0 for length in lengths)
        rows.append((ids[: packed.num_tokens[i]], lengths.tolist()))
    return rows


def pieces_of(rows: Sequence[tuple[list[int], list[int]]]) -> list[list[int]]:
    found = []
    for ids, lengths in rows:
        bounds = np.cumsum([0, *lengths]).tolist()
        found += [ids[a:b] for a, b in pairwise(bounds)]
    return found


@given(documents, cuts, st.integers(1, 20))
def test_concatenated_rows_joined_are_the_ids_in_their_order(
    lengths: list[int], at: list[float], sequence_length: int
) -> None:
    blocks = list(concatenated_rows(stretches(lengths, at), sequence_length))
    rows = [row for block in blocks for row in rows_of(block)]
    assert [i for ids, _ in rows for i in ids] == list(range(sum(lengths)))
    assert all(len(ids) == sequence_length for ids, _ in rows[:-1])
    starts = np.cumsum([0, *lengths])[:-1].tolist()
    bounds = {s for s in starts if s < sum(lengths)} | set(range(0, sum(lengths), sequence_length))
    assert {piece[0] for piece in pieces_of(rows)} == bounds


@given(documents, cuts, st.integers(1, 20), st.integers(1, 9))
def test_best_fit_cuts_no_document_that_fits_and_loses_no_id(
    lengths: list[int], at: list[float], sequence_length: int, window: int
) -> None:
    packed = best_fit_packed(stretches(lengths, at), sequence_length, window, dtype=U16)
    by_window: dict[int, list[tuple[list[int], list[int]]]] = {}
    for number, block in packed:
        by_window.setdefault(number, []).extend(rows_of(block))
    wanted: dict[int, Counter[tuple[int, ...]]] = {}
    begin = 0
    for i, length in enumerate(lengths):
        pieces = wanted.setdefault(i // window, Counter())
        for start in range(begin, begin + length, sequence_length):
            pieces[tuple(range(start, min(start + sequence_length, begin + length)))] += 1
        begin += length
    for number, pieces in wanted.items():
        assert Counter(map(tuple, pieces_of(by_window.get(number, [])))) == pieces
    for rows in by_window.values():
        assert all(len(ids) <= sequence_length for ids, _ in rows)
        assert all(ids == sorted(ids) for ids, _ in rows)


@given(documents, cuts, st.integers(1, 20), st.integers(1, 9))
def test_rows_do_not_depend_on_where_the_ids_were_cut(
    lengths: list[int], at: list[float], sequence_length: int, window: int
) -> None:
    for pack in (
        lambda given_ids: concatenated_rows(given_ids, sequence_length),
        lambda given_ids: (
            rows for _, rows in best_fit_packed(given_ids, sequence_length, window, dtype=U16)
        ),
    ):
        cut = [row for block in pack(stretches(lengths, at)) for row in rows_of(block)]
        whole = [row for block in pack(stretches(lengths, [])) for row in rows_of(block)]
        # Full rows of a document that goes on may come before those of documents behind it.
        assert cut == whole


@given(documents, st.integers(1, 20), st.integers(1, 9))
def test_padding_fills_every_row_and_changes_nothing_else(
    lengths: list[int], sequence_length: int, window: int
) -> None:
    for pad_id in (None, 60_000):
        [*blocks] = best_fit_packed(
            stretches(lengths, []), sequence_length, window, dtype=U16, pad_id=pad_id
        )
        rows = [row for _, block in blocks for row in rows_of(block)]
        if pad_id is None:
            unpadded = rows
            continue
        assert rows == unpadded
        for _, block in blocks:
            assert (np.diff(block.offsets) == sequence_length).all()
            padding = np.arange(len(block.ids)) % sequence_length >= np.repeat(
                block.num_tokens, sequence_length
            )
            assert (block.ids[padding] == pad_id).all()
            positions = position_ids(block.document_lengths, block.num_tokens, block.offsets)
            assert (positions[padding] == 0).all()


@given(documents, st.integers(1, 20))
def test_position_ids_count_from_0_in_every_piece(lengths: list[int], sequence_length: int) -> None:
    for block in concatenated_rows(stretches(lengths, []), sequence_length):
        positions = position_ids(block.document_lengths, block.num_tokens, block.offsets)
        assert positions.tolist() == [
            place for length in block.document_lengths for place in range(length)
        ]


@pytest.mark.parametrize("padding", [None, 7])
def test_rows_longer_than_a_block_are_whole(padding: int | None) -> None:
    ids = (np.arange(3_000_000) % 65_521).astype(np.uint16)
    given_ids = [Stretch(ids=ids, starts=np.array([0, 2_500_000]))]
    blocks = list(concatenated_rows(given_ids, 1_200_000, pad_id=padding))
    assert [count for block in blocks for count in block.num_tokens] == [1_200_000] * 2 + [600_000]
    assert len(blocks[-1].ids) == (600_000 if padding is None else 1_200_000)
    assert np.array_equal(np.concatenate([block.ids for block in blocks])[:3_000_000], ids)


@pytest.mark.parametrize("module", [lists, packing, keys])
def test_examples_in_docstrings_hold(module: types.ModuleType) -> None:
    assert doctest.testmod(module).failed == 0
