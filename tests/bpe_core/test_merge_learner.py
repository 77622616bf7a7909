from __future__ import annotations

import time
from itertools import accumulate
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bpe_core._native import MergeLearner
from bpe_core.reference import TieBreak, learn_merges, printable_stand_ins

TIE_BREAKS: list[TieBreak] = ["lexicographic", "first_id", "huggingface"]
Words = list[tuple[bytes, int]]

# Few different bytes and many repeats, so that pairs overlap and tie. Some alphabets are ordered
# otherwise by their printable stand-ins than by value.
alphabets = st.sampled_from(
    [b"a", b"ab", b"abc", b" a!", b"\x00\xff ", b"a\xad\xae\x7f", b"abcdefgh"]
)


@st.composite
def word_lists(draw: st.DrawFn) -> Words:
    alphabet = draw(alphabets)
    letters = st.sampled_from([alphabet[i : i + 1] for i in range(len(alphabet))])
    word = st.lists(letters, max_size=30).map(b"".join)
    count = st.sampled_from([1, 1, 1, 2, 3, 7, 100]) | st.integers(1, 2**50)
    return draw(st.lists(st.tuples(word, count), max_size=12))


def learner(words: Words, tie_break: str = "lexicographic", **options: object) -> MergeLearner:
    keys = b"".join(word for word, _ in words)
    offsets = np.array([0, *accumulate(len(word) for word, _ in words)], np.int64)
    counts = np.array([count for _, count in words], np.int64)
    return MergeLearner(keys, offsets, counts, tie_break, **options)  # type: ignore[arg-type]


def symbols(learned: MergeLearner) -> list[bytes]:
    return [learned.symbol(i) for i in range(learned.num_symbols)]


def merges(learned: MergeLearner) -> list[tuple[bytes, bytes, int]]:
    names = symbols(learned)
    left, right, result, counts = (column.tolist() for column in learned.merges())
    assert [names[i] for i in result] == [
        names[a] + names[b] for a, b in zip(left, right, strict=True)
    ]
    return [(names[a], names[b], n) for a, b, n in zip(left, right, counts, strict=True)]


def learn(learned: MergeLearner, num_symbols: int, steps: int = 1_000_000) -> MergeLearner:
    while learned.learn(num_symbols, steps):
        pass
    return learned


def assert_equals_reference(
    words: Words, num_symbols: int, tie_break: TieBreak, **options: int | list[bytes]
) -> None:
    expected = learn_merges(words, num_symbols, tie_break=tie_break, **options)  # type: ignore[arg-type]
    found = learn(learner(words, tie_break, **options), num_symbols)
    assert merges(found) == [
        (*pair, n) for pair, n in zip(expected.merges, expected.counts, strict=True)
    ]
    assert found.stop_reason == expected.stop_reason
    made = [left + right for left, right in expected.merges]
    assert symbols(found) == [bytes([i]) for i in range(256)] + made


# ---- equal to the reference


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
@settings(max_examples=300)
@given(words=word_lists(), more=st.sampled_from([0, 1, 5, 40, 300]))
def test_merges_counts_and_stop_reason_equal_the_reference(
    tie_break: TieBreak, words: Words, more: int
) -> None:
    assert_equals_reference(words, 256 + more, tie_break)


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
def test_words_as_frequent_as_in_a_language_equal_the_reference(tie_break: TieBreak) -> None:
    # Counts that span many orders of magnitude, so that ever rarer pairs are merged.
    random = Random(tie_break)
    syllables = [
        "".join(random.choices("aeioubcdlnrst", k=random.randint(1, 3))) for _ in range(60)
    ]
    words = [
        (
            "".join(random.choices(syllables, k=random.randint(1, 4))).encode(),
            10**9 // (i + 1) ** 2 + 1,
        )
        for i in range(1000)
    ]
    assert_equals_reference(words, 456, tie_break)


@given(words=word_lists(), min_frequency=st.sampled_from([1, 2, 3, 50, 10**9]))
def test_min_frequency_equals_the_reference(words: Words, min_frequency: int) -> None:
    assert_equals_reference(words, 296, "lexicographic", min_frequency=min_frequency)


@given(words=word_lists(), longest=st.integers(1, 6))
def test_max_token_bytes_equals_the_reference(words: Words, longest: int) -> None:
    assert_equals_reference(words, 296, "first_id", max_token_bytes=longest)


@given(words=word_lists(), data=st.data())
def test_forbidden_tokens_equal_the_reference(words: Words, data: st.DataObject) -> None:
    parts = sorted({word[i : i + n] for word, _ in words for n in (2, 3, 4) for i in range(9)})
    forbidden = data.draw(st.lists(st.sampled_from([*parts, b"xy", b"a"]), max_size=5))
    assert_equals_reference(words, 296, "lexicographic", forbidden_tokens=forbidden)


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
def test_all_bytes_equal_the_reference(tie_break: TieBreak) -> None:
    rng = np.random.default_rng(0)
    words = [(rng.bytes(rng.integers(1, 20)), int(rng.integers(1, 4))) for _ in range(200)]
    assert_equals_reference(words, 400, tie_break)


@settings(max_examples=300)
@given(words=word_lists(), data=st.data())
def test_given_merges_then_learned_ones_equal_the_reference(
    words: Words, data: st.DataObject
) -> None:
    # Any symbols, so also pairs that do not occur, that come twice, and that make existing bytes.
    names = [bytes([i]) for i in range(256)]
    pool = [*{byte for word, _ in words for byte in word}, ord("a"), ord("b")]
    base = []
    found = learner(words)
    for _ in range(data.draw(st.integers(1, 8))):
        left, right = data.draw(st.sampled_from(pool)), data.draw(st.sampled_from(pool))
        found.apply(left, right)
        base.append((names[left], names[right]))
        if names[left] + names[right] not in names:
            pool.append(len(names))
            names.append(names[left] + names[right])
    expected = learn_merges(words, 290, base=base)
    learn(found, 290)
    assert merges(found) == [
        (*pair, n) for pair, n in zip(expected.merges, expected.counts, strict=True)
    ]
    assert symbols(found)[: len(names)] == names
    assert found.stop_reason == expected.stop_reason


# ---- one id per byte sequence


def test_a_given_merge_of_existing_bytes_is_recorded_and_adds_no_symbol() -> None:
    found = learner([(b"abc", 5), (b"bc", 9)])
    found.apply(ord("a"), ord("b"))
    found.apply(256, ord("c"))
    found.apply(ord("b"), ord("c"))
    found.apply(ord("a"), 258)
    assert merges(found) == [(b"a", b"b", 5), (b"ab", b"c", 5), (b"b", b"c", 9), (b"a", b"bc", 0)]
    assert found.merges()[2].tolist() == [256, 257, 258, 257]
    assert found.num_symbols == 259


def test_bytes_that_a_merge_made_without_occurring_can_be_made_by_another() -> None:
    found = learner([(b"aaa", 2)])
    found.apply(ord("a"), ord("a"))
    found.apply(ord("a"), 256)
    found.apply(256, ord("a"))
    assert merges(found) == [(b"a", b"a", 4), (b"a", b"aa", 0), (b"aa", b"a", 2)]
    assert found.num_symbols == 258
    learn(found, 300)
    assert found.num_symbols == 258


@given(words=word_lists())
def test_learned_merges_never_make_the_same_bytes_twice(words: Words) -> None:
    found = learn(learner(words), 400)
    assert len(set(found.merges()[2].tolist())) == found.num_symbols - 256


# ---- calls


@given(words=word_lists(), steps=st.integers(1, 7), sizes=st.lists(st.integers(256, 300)))
def test_learning_in_steps_and_sizes_equals_learning_at_once(
    words: Words, steps: int, sizes: list[int]
) -> None:
    at_once = learn(learner(words), 300)
    in_steps = learner(words)
    for size in [*sorted(sizes), 300]:
        learn(in_steps, size, steps)
        assert in_steps.num_symbols <= size
        assert merges(at_once)[: len(merges(in_steps))] == merges(in_steps)
    assert merges(in_steps) == merges(at_once)
    assert in_steps.stop_reason == at_once.stop_reason


@given(words=word_lists(), random=st.randoms())
def test_order_of_words_and_splitting_of_counts_do_not_matter(words: Words, random: Random) -> None:
    others = [(word, 1) for word, _ in words] + [(word, n - 1) for word, n in words if n > 1]
    random.shuffle(others)
    assert merges(learn(learner(words), 300)) == merges(learn(learner(others), 300))


def test_learning_goes_on_after_given_merges_between() -> None:
    words = [(b"abcabd", 3), (b"cab", 2), (b"abab", 10)]
    expected = learn_merges(words, 270, base=[(b"a", b"b"), (b"ab", b"ab"), (b"c", b"ab")])
    found = learner(words)
    assert found.learn(257, 1) is False
    found.apply(256, 256)
    found.apply(ord("c"), 256)
    learn(found, 270)
    assert [merge[:2] for merge in merges(found)] == expected.merges


# ---- why it stops


def test_stop_reasons() -> None:
    assert learn(learner([(b"ab", 1)]), 257).stop_reason == "vocab_size_reached"
    assert learn(learner([(b"ab", 1)]), 258).stop_reason == "no_pairs_left"
    assert learn(learner([]), 258).stop_reason == "no_pairs_left"
    assert learn(learner([(b"a", 9), (b"", 9)]), 258).stop_reason == "no_pairs_left"
    assert learn(learner([(b"ab", 1)], min_frequency=2), 258).stop_reason == "below_min_frequency"
    assert learn(learner([(b"abc", 5)], max_token_bytes=2), 258).stop_reason == "no_pairs_left"


# ---- counts


def test_counts_of_pairs_go_beyond_32_bits() -> None:
    words = [(b"ab", 2**31 + 5), (b"xab", 2**31), (b"cd", 2**32 - 1), (b"ce", 2**62)]
    found = learn(learner(words), 259)
    assert merges(found) == [(b"c", b"e", 2**62), (b"a", b"b", 2**32 + 5), (b"c", b"d", 2**32 - 1)]


def test_a_pair_may_occur_2_to_the_63_minus_1_times() -> None:
    words = [(b"ab", 2**62), (b"ab", 2**62 - 1)]
    assert merges(learn(learner(words), 257)) == [(b"a", b"b", 2**63 - 1)]


def test_a_count_beyond_64_bits_is_an_error_that_names_pair_and_word() -> None:
    words = [(b"cd", 2**63 - 1), (b"ab", 2**62), (b"x'ab", 2**62)]
    with pytest.raises(Exception, match=r"\(b'a', b'b'\).*word 2 \(b'x\\x27ab', count 46116"):
        learner(words)
    with pytest.raises(Exception, match=r"\(b'\\xff', b'\\xff'\)"):
        learner([(b"\xff\xff\xff", 2**62)])


def test_counts_below_one_are_refused() -> None:
    with pytest.raises(ValueError, match="found 0 for word 1"):
        learner([(b"ab", 1), (b"cd", 0)])


def test_symbols_that_do_not_exist_are_refused() -> None:
    found = learner([(b"ab", 1)])
    with pytest.raises(ValueError, match="below 256"):
        found.apply(97, 256)
    with pytest.raises(ValueError, match="below 256"):
        found.symbol(256)


# ---- ties


def test_equal_left_sides_of_any_length_are_told_apart() -> None:
    # Tokens that share their first 8 bytes, or that end where the other goes on with zeros.
    stem = b"0123456789"
    words = [(stem + b"a", 4), (stem + b"b", 4), (b"\x00\x00\x00", 4), (b"\x00\x00", 4)]
    for tie_break in TIE_BREAKS:
        assert_equals_reference(words, 300, tie_break)


def test_huggingface_orders_bytes_by_their_stand_ins() -> None:
    stand_ins = printable_stand_ins()
    words = [(bytes([byte, byte]), 1) for byte in range(256)]
    found = learn(learner(words, "huggingface"), 512)
    order = [left[0] for left, _, _ in merges(found)]
    assert order == sorted(range(256), key=lambda byte: stand_ins[byte])


# ---- size


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
def test_one_long_word_is_learned_in_near_linear_time(tie_break: TieBreak) -> None:
    rng = np.random.default_rng(1)
    text = rng.integers(97, 101, 800_000, np.uint8).tobytes()

    def seconds(size: int) -> float:
        start = time.process_time()
        assert learn(learner([(text[:size], 1)], tie_break), 1256).num_symbols == 1256
        return time.process_time() - start

    short = min(seconds(200_000) for _ in range(3))
    assert seconds(800_000) <= 9 * short + 0.05


def test_a_long_run_of_one_byte_is_learned_in_near_linear_time() -> None:
    start = time.process_time()
    found = learn(learner([(b"a" * 2_000_000, 3)]), 300)
    assert [len(symbol) for symbol in symbols(found)[256:260]] == [2, 4, 8, 16]
    assert len(symbols(found)[-1]) > 1_000_000
    assert time.process_time() - start < 5
