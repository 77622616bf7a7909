"""Algebra on counts: equal to plain Python's integers and fractions, row by row and by group."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from itertools import pairwise
from operator import add

import numpy as np
import pyarrow as pa
import pytest
from grouped_counts_support import GROUPED, Grouped, counts_of, grouped_of
from hypothesis import assume, given
from hypothesis import strategies as st

from bpe_core import Group, PretokenCounts, count_pretokens, reference
from bpe_core._native import scale_counts
from bpe_core.counts import sum_counts
from bpe_core.errors import BpeError, CountOverflowError, TrainingError

INT64_MAX = 2**63 - 1

MAPPINGS = st.dictionaries(st.binary(min_size=1, max_size=3), st.integers(1, 2**60), max_size=20)
FRACTIONS = st.builds(Fraction, st.integers(0, 2**63 - 1), st.integers(1, 2**63 - 1))


def kind_of(grouped: Grouped) -> set[bool]:
    return {group.value is None for _, group in grouped}


# ---- sums and differences


@given(one=st.lists(st.text("ab c\n", max_size=30)), other=st.lists(st.text("ab c\n", max_size=30)))
def test_counts_of_two_corpora_add_up_and_subtract(one: list[str], other: list[str]) -> None:
    a, b = count_pretokens(iter(one)), count_pretokens(iter(other))
    both = a + b
    assert both == count_pretokens(iter(one + other))
    assert both - b == a
    assert both - a == b
    assert len(both - both) == 0


@given(one=GROUPED, other=GROUPED, documents=st.booleans())
def test_a_sum_without_one_part_is_the_other(one: Grouped, other: Grouped, documents: bool) -> None:
    assume(len(kind_of(one) | kind_of(other)) < 2)
    a, b = counts_of(one, documents=documents), counts_of(other, documents=documents)
    assert (a + b) - b == a


@given(
    parts=st.lists(GROUPED, min_size=1, max_size=5),
    documents=st.lists(st.booleans(), min_size=5, max_size=5),
)
def test_a_sum_of_several_counts_is_that_of_their_sums(
    parts: list[Grouped], documents: list[bool]
) -> None:
    fields = {kind for grouped in parts for kind in kind_of(grouped)}
    assume(len(fields) < 2)
    counts = [
        counts_of(grouped, documents=with_documents)
        for grouped, with_documents in zip(parts, documents, strict=False)
    ]
    whole, by_steps = sum_counts(counts), reduce(add, counts)
    assert whole == by_steps
    assert whole.metadata == by_steps.metadata
    assert whole.groups == by_steps.groups


@given(counts=MAPPINGS, data=st.data())
def test_differences_equal_the_reference(counts: dict[bytes, int], data: st.DataObject) -> None:
    part = {
        key: data.draw(st.integers(1, count))
        for key, count in counts.items()
        if data.draw(st.booleans())
    }
    found = PretokenCounts.from_mapping(counts) - PretokenCounts.from_mapping(part)
    assert dict(found.items()) == reference.subtract_counts(counts, part)


def test_a_negative_result_names_the_pretoken() -> None:
    counts = PretokenCounts.from_mapping({b"low": 5, b"new": 1})
    with pytest.raises(TrainingError, match=r"found 6 occurrences of b'low' to subtract from 5"):
        counts - PretokenCounts.from_mapping({b"low": 6})
    with pytest.raises(TrainingError, match=r"found 2 occurrences of b'old' to subtract from 0"):
        counts - PretokenCounts.from_mapping({b"low": 1, b"old": 2})
    with pytest.raises(TrainingError, match=r"1 occurrences of b'x' to subtract from 0"):
        PretokenCounts.from_mapping({}) - PretokenCounts.from_mapping({b"x": 1})


def test_groups_are_subtracted_one_by_one() -> None:
    web, books = Group("web"), Group("books")
    counts = counts_of({(b"low", web): (5, 2), (b"low", books): (1, 1), (b"new", web): (3, 3)})
    left = counts - counts_of({(b"low", books): (1, 1), (b"new", web): (1, 1)})
    assert grouped_of(left) == {(b"low", web): (5, 2), (b"new", web): (2, 2)}
    assert left.groups == (web,)
    with pytest.raises(TrainingError, match=r"2 occurrences of b'low' to subtract from 1"):
        counts - counts_of({(b"low", books): (2, 1)})
    # Without groups on one side, sums alone are subtracted.
    plain = counts - PretokenCounts.from_mapping({b"low": 6})
    assert (dict(plain.items()), plain.groups, plain.documents()) == ({b"new": 3}, (), None)


def test_documents_that_contradict_the_difference_are_an_error() -> None:
    group = Group("web")
    counts = counts_of({(b"low", group): (5, 2)})
    with pytest.raises(TrainingError, match=r"b'low' would have 1 documents and occur 0 times"):
        counts - counts_of({(b"low", group): (5, 1)})
    with pytest.raises(TrainingError, match=r"b'low' would have 0 documents and occur 3 times"):
        counts - counts_of({(b"low", group): (2, 2)})


def test_counts_of_another_normalizer_are_refused_by_both_names() -> None:
    one = PretokenCounts.from_mapping({b"x": 2}, {"normalizer": "NFC"})
    other = PretokenCounts.from_mapping({b"x": 1}, {"normalizer": "null"})
    with pytest.raises(
        TrainingError, match="the same normalizer on both sides, found NFC and null"
    ):
        one - other


# ---- multiples


@given(counts=MAPPINGS, factor=FRACTIONS)
def test_multiples_equal_the_reference(counts: dict[bytes, int], factor: Fraction) -> None:
    expected = reference.scale_counts(counts, factor)
    given_counts = PretokenCounts.from_mapping(counts)
    if any(count > INT64_MAX for count in expected.values()):
        with pytest.raises(CountOverflowError, match="does not fit 64 bits"):
            given_counts * factor
    else:
        assert dict((given_counts * factor).items()) == dict(sorted(expected.items()))
        assert factor * given_counts == given_counts * factor


@given(grouped=GROUPED, factor=st.fractions(0, 3, max_denominator=50))
def test_groups_are_multiplied_one_by_one(grouped: Grouped, factor: Fraction) -> None:
    expected = {
        place: (round(count * factor), max(round(documents * factor), 1))
        for place, (count, documents) in grouped.items()
        if round(count * factor)
    }
    assert grouped_of(counts_of(grouped) * factor) == expected


@given(grouped=GROUPED, times=st.integers(1, 5), cut=st.integers(0, 3))
def test_whole_multiples_are_sums_and_may_be_multiplied_in_parts(
    grouped: Grouped, times: int, cut: int
) -> None:
    counts = counts_of(grouped)
    expected = counts
    for _ in range(times - 1):
        expected += counts
    assert counts * times == expected
    parts = (
        {p: n for p, n in grouped.items() if len(p[0]) > cut},
        {p: n for p, n in grouped.items() if len(p[0]) <= cut},
    )
    half = Fraction(times, 2)
    assert counts_of(parts[0]) * half + counts_of(parts[1]) * half == counts * half


def test_a_float_is_its_decimal_text() -> None:
    counts = PretokenCounts.from_mapping({b"x": 10**17 * 5})
    for factor in (0.1, Decimal("0.1"), Fraction(1, 10), np.float64(0.1)):
        assert dict((counts * factor).items()) == {b"x": 10**16 * 5}
    assert len(counts * 0) == 0


@pytest.mark.parametrize("factor", [-1, -0.5, float("nan"), float("inf"), True, 1e-300, 2**63])
def test_factors_that_are_not_small_numbers_are_refused(factor: float) -> None:
    with pytest.raises(TrainingError, match="expected a number of at least 0"):
        PretokenCounts.from_mapping({b"x": 1}) * factor


def test_other_types_are_no_factor() -> None:
    with pytest.raises(TypeError):
        PretokenCounts.from_mapping({b"x": 1}) * "2"  # type: ignore[operator]


def test_an_overflow_names_the_pretoken() -> None:
    counts = PretokenCounts.from_mapping({b"a": 1, b"low": 2**62})
    with pytest.raises(CountOverflowError, match=r"b'low', 4,611,686,018,427,387,904, times 2"):
        counts * 2


def test_the_native_kernel_refuses_invalid_fractions_and_counts() -> None:
    for counts, numerator, denominator in (([1], -1, 1), ([1], 1, 0), ([-1], 1, 1)):
        with pytest.raises(ValueError, match=r"a fraction of at least 0|must not be negative"):
            scale_counts(np.array(counts), numerator, denominator)


# ---- selections


@given(counts=MAPPINGS, number=st.integers(0, 25))
def test_the_top_equals_the_reference(counts: dict[bytes, int], number: int) -> None:
    keys, offsets, numbers = PretokenCounts.from_mapping(counts).top(number).columns()
    pretokens = [keys[i:j].tobytes() for i, j in pairwise(offsets)]
    found = list(zip(pretokens, numbers.tolist(), strict=True))
    assert found == reference.most_frequent(counts, number)


def test_ties_are_ordered_by_bytes() -> None:
    counts = PretokenCounts.from_mapping({b"b": 2, b"a": 2, b"\xff": 2, b"c": 3})
    assert dict(counts.top(3).items()) == {b"c": 3, b"a": 2, b"b": 2}


@given(grouped=GROUPED, least=st.integers(0, 4), most=st.integers(0, 4))
def test_filters_by_length_keep_groups(grouped: Grouped, least: int, most: int) -> None:
    found = counts_of(grouped).filter(min_bytes=least, max_bytes=most)
    expected = {p: numbers for p, numbers in grouped.items() if least <= len(p[0]) <= most}
    assert grouped_of(found) == expected


def test_filters_by_script_and_regex() -> None:
    counts = PretokenCounts.from_counter(
        {"low": 5, " новый": 3, "中文x": 2, b"\xff\xd0\xb0": 1, b"\xff": 1, "19": 4}
    )
    kept = {name: set(dict(counts.filter(script=name).items())) for name in ("Han", "Cyrillic")}
    assert kept == {"Han": {"中文x".encode()}, "Cyrillic": {" новый".encode(), b"\xff\xd0\xb0"}}
    assert dict(counts.filter(regex=r"^[a-z]+$").items()) == {b"low": 5}
    assert dict(counts.filter(regex=r"\d|low", max_bytes=2).items()) == {b"19": 4}
    assert counts.filter() == counts
    assert len(PretokenCounts.from_mapping({}).filter(regex="x", script="Han")) == 0


def test_filters_by_group() -> None:
    counts = counts_of({(b"a", Group("web")): (2, 1), (b"bb", Group("books")): (3, 1)})
    assert dict(counts.filter(source="web").items()) == {b"a": 2}
    assert len(counts.filter(source="web", min_bytes=2)) == 0


def test_invalid_filters_are_refused() -> None:
    counts = PretokenCounts.from_mapping({b"x": 1})
    for script in ("Klingon", "", "Han}|.", "Latin|Han"):
        with pytest.raises(TrainingError, match="expected a script of Unicode"):
            counts.filter(script=script)
    with pytest.raises(TrainingError, match=r"RE2's syntax, found '\('"):
        counts.filter(regex="(")
    with pytest.raises(TrainingError, match="top: expected a number of at least 0"):
        counts.top(-1)


# ---- counters


def test_a_counter_of_texts_and_bytes() -> None:
    counter: Counter[str | bytes] = Counter({"é": 2, "é".encode(): 3, "gone": 0})
    assert dict(PretokenCounts.from_counter(counter).items()) == {"é".encode(): 5}


@pytest.mark.parametrize(
    "counter",
    [{"x": -1}, {"x": 1.5}, {"": 1}, {3: 1}, ["x"], {"x": 2**63}, {"x": INT64_MAX, b"x": 1}],
)
def test_invalid_counters_are_refused(counter: object) -> None:
    with pytest.raises(BpeError, match=r"expected|does not fit 64 bits"):
        PretokenCounts.from_counter(counter)  # type: ignore[arg-type]


def test_a_table_of_many_chunks_is_filtered_like_one() -> None:
    pretokens = pa.chunked_array([[b"a", b"b1"], [], [b"c2"]], pa.large_binary())
    counts = PretokenCounts.from_arrow(pa.table({"pretoken": pretokens, "count": [1, 2, 3]}))
    assert dict(counts.filter(regex=r"\d").items()) == {b"b1": 2, b"c2": 3}
