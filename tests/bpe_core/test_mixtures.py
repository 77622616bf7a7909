"""Mixtures: exact integer weights that nothing but the counts and the shares determines."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpe_core import (
    CharBPETokenizer,
    Group,
    GroupColumns,
    PretokenCounts,
    train_characters_from_counts,
    train_from_counts,
)
from bpe_core.errors import CountOverflowError, FormatError, TrainingError
from bpe_core.mixtures import find_mixture
from bpe_core.patterns import WHITESPACE_WORDS

Words = dict[bytes, dict[Group, int]]

GROUPS = [Group("code", "en"), Group("web", "de"), Group("web", "en")]
WORDS = st.dictionaries(
    st.binary(min_size=1, max_size=4),
    st.dictionaries(st.sampled_from(GROUPS), st.integers(1, 2**40), min_size=1),
    min_size=1,
    max_size=8,
)
SHARES = st.sampled_from([0, 0.1, 0.3, 2, 1e-3, 1, 0.7, Decimal("0.25"), Fraction(1, 3)])


def grouped(words: Words, *, lang: bool = True) -> PretokenCounts:
    sums: dict[bytes, Counter[Group]] = {}
    for word, counts in words.items():
        for group, count in counts.items():
            sums.setdefault(word, Counter())[group if lang else Group(group.source)] += count
    groups = sorted({group for counts in sums.values() for group in counts})
    rows = sorted(sums.items())
    entries = [(groups.index(g), n) for _, counts in rows for g, n in sorted(counts.items())]
    return PretokenCounts.from_group_columns(
        np.frombuffer(b"".join(word for word, _ in rows), np.uint8),
        np.cumsum([0, *(len(word) for word, _ in rows)]),
        groups,
        GroupColumns(
            np.cumsum([0, *(len(counts) for _, counts in rows)]),
            np.array([g for g, _ in entries], np.int32),
            np.array([n for _, n in entries], np.int64),
        ),
        {"pattern": "gpt2"} | ({"group_by": "lang"} if lang else {}),
    )


def bytes_by_name(words: Words, place: int) -> Counter[str]:
    sizes: Counter[str] = Counter()
    for word, counts in words.items():
        for group, count in counts.items():
            sizes[str(group[place])] += len(word) * count
    return sizes


@given(words=WORDS, data=st.data())
def test_counts_are_the_sums_of_counts_times_integer_weights(
    words: Words, data: st.DataObject
) -> None:
    place, by = data.draw(st.sampled_from([(0, "source"), (1, "lang")]))
    sizes = bytes_by_name(words, place)
    shares = {name: data.draw(SHARES) for name in sizes}
    try:
        mixture = find_mixture(sizes, shares)
    except TrainingError:
        with pytest.raises(TrainingError):
            grouped(words).mix(shares, by=by)
        return
    mixed = grouped(words).mix(shares, by=by)
    assert mixed.unit == 2**mixture.scale_bits
    expected = {
        word: sum(mixture.weights[str(group[place])] * n for group, n in counts.items())
        for word, counts in words.items()
    }
    assert dict(mixed.items()) == {word: n for word, n in sorted(expected.items()) if n}
    assert all(n < 2**62 for n in expected.values())


@given(
    sizes=st.dictionaries(
        st.sampled_from("abcd"), st.integers(1, 2**47) | st.integers(1, 99), min_size=1
    ),
    data=st.data(),
)
def test_weights_are_within_a_thousandth_of_the_shares(
    sizes: dict[str, int], data: st.DataObject
) -> None:
    shares = {name: data.draw(SHARES) for name in sizes}
    try:
        mixture = find_mixture(sizes, shares)
    except TrainingError:
        return
    exact = {name: Fraction(str(share)) for name, share in shares.items()}
    kept = sum(size for name, size in sizes.items() if exact[name])
    for name, weight in mixture.weights.items():
        wanted = exact[name] / sum(exact.values()) * kept
        made = Fraction(weight * sizes[name], 2**mixture.scale_bits)
        assert abs(made - wanted) <= wanted / 1000
    assert sum(weight * sizes[name] for name, weight in mixture.weights.items()) < 2**62


def test_equal_proportions_of_shares_give_equal_counts_in_any_order() -> None:
    sizes = {"web": 9_876_543_210, "code": 123_456_789, "de": 55}
    shares: dict[str, Any] = {"web": 0.5, "code": Decimal("0.3"), "de": 0.2}
    one = find_mixture(sizes, shares)
    other = find_mixture(
        dict(reversed(sizes.items())), {"de": 2, "code": Decimal(3), "web": Fraction(5)}
    )
    assert (one.weights, one.scale_bits) == (other.weights, other.scale_bits)


def test_the_rule_gives_these_weights() -> None:
    """The numbers stand in tokenizers: another rule would train others."""
    sizes = {"code": 2 * 10**9, "de": 3 * 10**8, "web": 10**10}
    assert find_mixture(sizes, {"web": 0.5, "code": 0.3, "de": 0.2}).weights == {
        "code": 495_263_416,
        "de": 2_201_170_739,
        "web": 165_087_805,
    }
    by_temperature = find_mixture(sizes, temperature=0.7)
    assert by_temperature.weights == {"code": 379_496_467, "de": 670_471_558, "web": 234_162_171}


def test_temperature_1_is_the_corpus_and_0_is_equal_shares() -> None:
    sizes = {"a": 1_000, "b": 123_456_789_012, "c": 7}
    unit = 2 ** find_mixture(sizes, temperature=1).scale_bits
    assert set(find_mixture(sizes, temperature=1).weights.values()) == {unit}
    equal = find_mixture({"a": 100, "b": 300}, temperature=0)
    assert equal == find_mixture({"a": 100, "b": 300}, {"a": 1, "b": 1})


def test_a_share_of_0_leaves_a_group_out() -> None:
    words: Words = {b"def": {GROUPS[0]: 5}, b"der": {GROUPS[1]: 7, GROUPS[0]: 1}}
    mixed = grouped(words, lang=False).mix({"code": 0, "web": 1})
    assert dict(mixed.items()) == {b"der": 7 * mixed.unit}


def test_training_is_that_of_the_weighted_counts() -> None:
    words: Words = {
        b"aaxaax": {GROUPS[0]: 90},
        b"bcybcy": {GROUPS[1]: 20},
        b"bc": {GROUPS[0]: 1},
        b"zw": {GROUPS[1]: 4},
    }
    counts = grouped(words, lang=False)
    mixed = counts.mix({"code": 0.1, "web": 0.9})
    result = train_from_counts(mixed, 260)
    plain = train_from_counts(PretokenCounts.from_mapping(dict(mixed.items())), 260)
    assert result.merges == plain.merges != train_from_counts(counts, 260).merges
    assert result.merge_counts == [round(n / mixed.unit) for n in plain.merge_counts]


def test_min_frequency_is_a_number_of_occurrences() -> None:
    words: Words = {b"ab": {GROUPS[0]: 10}, b"cd": {GROUPS[1]: 10}}
    mixed = grouped(words, lang=False).mix({"code": 3, "web": 1})  # 15 and 5 occurrences
    assert train_from_counts(mixed, 300, min_frequency=15).merges == [(b"a", b"b")]
    assert train_from_counts(mixed, 300, min_frequency=16).merges == []
    assert len(train_from_counts(mixed, 300, min_frequency=5).merges) == 2


def test_characters_are_merged_by_the_weighted_counts_too() -> None:
    counts = grouped({b" ab": {GROUPS[0]: 10}, b"cd": {GROUPS[1]: 9}}, lang=False)
    mixed = counts.mix({"code": 1, "web": 3})  # 4 and 18 occurrences
    result = train_characters_from_counts(mixed, 300, byte_fallback=False, min_frequency=10)
    assert (result.merges, result.merge_counts) == ([(b"c", b"d")], [18])

    words = grouped({b"ab": {GROUPS[0]: 10}, b"cd": {GROUPS[1]: 9}}, lang=False)
    words.metadata["pattern"] = WHITESPACE_WORDS
    tokenizer = CharBPETokenizer(end_of_word=None)
    tokenizer.train_from_counts(words.mix({"code": 1, "web": 3}), 300, min_frequency=10)
    assert (tokenizer.merges, tokenizer.merge_counts) == ([("c", "d")], [14])


def test_rare_pretokens_of_a_mixture_are_dropped_by_occurrences() -> None:
    counts = grouped({b"ab": {GROUPS[0]: 10}, b"cd": {GROUPS[1]: 10}}, lang=False)
    mixed = counts.mix({"code": 3, "web": 1})  # 15 and 5 occurrences
    assert [key for key, _ in mixed.prune(6).items()] == [b"ab"]
    assert len(mixed.prune(5)) == 2


def test_a_mixture_is_saved_with_its_unit(tmp_path: Path) -> None:
    words: Words = {b"ab": {GROUPS[0]: 10}, b"cd": {GROUPS[1]: 10}}
    mixed = grouped(words).mix(temperature=0.5, by="lang")
    mixed.save(tmp_path / "mixed.parquet")
    loaded = PretokenCounts.load(tmp_path / "mixed.parquet")
    assert loaded == mixed
    assert loaded.unit == mixed.unit == 2**32
    with pytest.raises(TrainingError, match="the same unit on both sides"):
        _ = mixed + PretokenCounts.from_mapping({b"ab": 1}, {"pattern": "gpt2"})
    mixed.metadata["unit"] = "3"
    mixed.save(tmp_path / "wrong.parquet")
    with pytest.raises(FormatError, match="unit as a power of two up to 2\\^32, found 3"):
        PretokenCounts.load(tmp_path / "wrong.parquet")


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ({"web": 1}, r"one for each of 'code', 'web' \(0 leaves a group out\), found none for"),
        ({"web": 1, "cod": 1}, r"'cod', unknown \(did you mean 'code'\?\); none for 'code'"),
        ({"web": 1, "code": -1}, "the share of 'code': expected a number of at least 0, found -1"),
        ({"web": 1, "code": "x"}, "found 'x'"),
        ({"web": 1, "code": float("nan")}, "found nan"),
        ({"web": 1, "code": True}, "found True"),
        ({"web": 0, "code": 0}, "expected a share above 0, found none"),
        ({"web": 1e-12, "code": 1}, "weights that fit 64-bit counts, found one of .* for 'web'"),
        ([1, 2], "expected a mapping of names to shares, found list"),
    ],
)
def test_wrong_shares_are_refused(shares: Any, message: str) -> None:
    counts = grouped({b"ab": {GROUPS[0]: 3}, b"cd": {GROUPS[1]: 3}}, lang=False)
    with pytest.raises(TrainingError, match=message):
        counts.mix(shares)


def test_wrong_uses_are_refused() -> None:
    counts = grouped({b"ab": {GROUPS[0]: 3}, b"cd": {GROUPS[1]: 3}})
    with pytest.raises(TrainingError, match="shares or a temperature, found neither"):
        counts.mix()
    with pytest.raises(TrainingError, match="shares or a temperature, found both"):
        counts.mix({"code": 1}, temperature=1)
    with pytest.raises(TrainingError, match=r"papers call a temperature of 3 is 0\.33 here"):
        counts.mix(temperature=3)
    with pytest.raises(TrainingError, match="kept apart by domain, found counts by lang"):
        counts.mix(temperature=1, by="domain")
    with pytest.raises(TrainingError, match="found counts that are not kept apart"):
        PretokenCounts.from_mapping({b"a": 1}).mix(temperature=1)
    huge = grouped({b"ab" * 9: {GROUPS[0]: 2**60}, b"cd": {GROUPS[1]: 3}})
    with pytest.raises(CountOverflowError, match=r"at most 2\^62 bytes"):
        huge.mix(temperature=1)


def test_a_group_without_text_may_have_the_share_0() -> None:
    assert find_mixture({"a": 5}, {"a": 1, "b": 0}).weights == {"a": 2**32}
    with pytest.raises(TrainingError, match="'b', unknown"):
        find_mixture({"a": 5}, {"a": 1, "b": 1})
