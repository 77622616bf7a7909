from __future__ import annotations

import time
from itertools import accumulate
from random import Random

import numpy as np
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import times

from bpe_core._native import MergeLearner
from bpe_core.reference import (
    TieBreak,
    is_blank,
    learn_merges,
    learn_symbol_merges,
    printable_stand_ins,
)

TIE_BREAKS: list[TieBreak] = ["lexicographic", "first_id", "huggingface", "first_seen"]
Words = list[tuple[bytes, int]]
SymbolWords = list[tuple[list[int], int]]

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


@st.composite
def symbol_word_lists(draw: st.DrawFn) -> tuple[list[bytes], SymbolWords]:
    """Symbols, some of which other symbols make, and words of them."""
    parts = st.sampled_from([b"a", b"b", b"c", b"!", b"\xad", b"ab", b"bc", b"abc", b"aa", b"!a"])
    names = draw(st.lists(parts, min_size=1, max_size=8, unique=draw(st.booleans())))
    word = st.lists(st.integers(0, len(names) - 1), max_size=20)
    count = st.sampled_from([1, 1, 1, 2, 3, 100]) | st.integers(1, 2**50)
    return names, draw(st.lists(st.tuples(word, count), max_size=10))


def symbol_learner(
    names: list[bytes], words: SymbolWords, tie_break: str, **options: object
) -> MergeLearner:
    return MergeLearner.from_symbols(
        names,
        np.array([symbol for word, _ in words for symbol in word], np.uint32),
        np.array([0, *accumulate(len(word) for word, _ in words)], np.int64),
        np.array([count for _, count in words], np.int64),
        tie_break,
        **options,  # type: ignore[arg-type]
    )


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
) -> MergeLearner:
    expected = learn_merges(words, num_symbols, tie_break=tie_break, **options)  # type: ignore[arg-type]
    found = learn(learner(words, tie_break, **options), num_symbols)
    assert merges(found) == [
        (*pair, n) for pair, n in zip(expected.merges, expected.counts, strict=True)
    ]
    assert found.stop_reason == expected.stop_reason
    made = [left + right for left, right in expected.merges]
    assert symbols(found) == [bytes([i]) for i in range(256)] + made
    return found


# ---- equal to the reference


@pytest.mark.slow
@pytest.mark.parametrize("tie_break", TIE_BREAKS)
@settings(max_examples=times(3))
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


blank_texts = st.lists(
    st.sampled_from([*" \n\t\x00\x7f\x85\xa0\u2003\u2028\u3000", *"a\u2019é\u200b", "  ", "\r\n"]),
    max_size=12,
).map(lambda parts: "".join(parts).encode())


@given(words=st.lists(st.tuples(blank_texts, st.integers(1, 3)), max_size=8))
def test_tokens_of_white_space_alone_are_passed_over_as_in_the_reference(words: Words) -> None:
    found = assert_equals_reference(words, 400, "lexicographic", forbid_whitespace_tokens=True)
    assert not any(is_blank(symbol) for symbol in symbols(found)[256:])


@pytest.mark.slow
def test_every_character_is_blank_or_not_as_the_reference_says() -> None:
    every = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000)
    blank = regex.findall(r"[\p{White_Space}\p{Cc}]", every)
    assert all(is_blank(character.encode()) for character in blank)
    assert len(blank) == 25 + 65 - 6  # White_Space and Cc, which share six
    for character in [*blank, "a", "\u200b", "\ufeff", "\u180e", "\xad", "\u2800"]:
        word = f"{character}{character}".encode()
        found = learn(learner([(word, 5)], forbid_whitespace_tokens=True), 300)
        made = [symbol for symbol in symbols(found)[256:] if is_blank(symbol)]
        assert not made
        assert (word in symbols(found)) == (character not in blank)


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
def test_all_bytes_equal_the_reference(tie_break: TieBreak) -> None:
    rng = np.random.default_rng(0)
    words = [(rng.bytes(rng.integers(1, 20)), int(rng.integers(1, 4))) for _ in range(200)]
    assert_equals_reference(words, 400, tie_break)


@pytest.mark.parametrize("always_new", [False, True])
@pytest.mark.parametrize("tie_break", TIE_BREAKS)
@settings(max_examples=times(2))
@given(
    made=symbol_word_lists(),
    more=st.sampled_from([1, 5, 40]),
    min_frequency=st.sampled_from([1, 1, 3]),
    longest=st.sampled_from([0, 0, 5]),
)
def test_merges_of_other_symbols_than_bytes_equal_the_reference(
    tie_break: TieBreak,
    always_new: bool,
    made: tuple[list[bytes], SymbolWords],
    more: int,
    min_frequency: int,
    longest: int,
) -> None:
    names, words = made
    expected = learn_symbol_merges(
        *(names, words, len(names) + more),
        tie_break=tie_break,
        min_frequency=min_frequency,
        max_token_bytes=longest or None,
        always_new=always_new,
    )
    found = symbol_learner(
        *(names, words, tie_break),
        min_frequency=min_frequency,
        max_token_bytes=longest,
        always_new=always_new,
    )
    learn(found, len(names) + more)
    columns = [column.tolist() for column in found.merges()]
    assert list(zip(*columns[:3], strict=True)) == expected.merges
    assert columns[3] == expected.counts
    assert symbols(found) == expected.symbols
    assert found.stop_reason == expected.stop_reason


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
@settings(max_examples=times(0.5))
@given(words=word_lists())
def test_the_256_bytes_given_as_symbols_are_the_bytes(tie_break: TieBreak, words: Words) -> None:
    names = [bytes([byte]) for byte in range(256)]
    given_symbols = symbol_learner(names, [(list(word), n) for word, n in words], tie_break)
    assert merges(learn(given_symbols, 300)) == merges(learn(learner(words, tie_break), 300))


# ---- one id per byte sequence


def test_two_merges_that_make_the_same_bytes_give_one_symbol_or_two() -> None:
    names = [b"a", b"b", b"c", b"ab", b"bc", b"x"]
    words = [([0, 4], 9), ([3, 2], 5), ([5, 0, 4], 1), ([3, 2, 5], 1)]
    for tie_break in TIE_BREAKS:
        one = learn(symbol_learner(names, words, tie_break), 8)
        assert one.merges()[2].tolist()[:2] == [6, 6]
        assert one.merges()[3].tolist()[:2] == [10, 6]
        assert symbols(one)[6:7] == [b"abc"]
        two = learn(symbol_learner(names, words, tie_break, always_new=True), 8)
        assert two.merges()[2].tolist() == [6, 7]
        assert symbols(two)[6:] == [b"abc", b"abc"]


def test_a_symbol_that_occurs_already_may_be_made_by_a_merge() -> None:
    # The pair of c and the marker becomes more frequent when its letters make the marker.
    names = [b"c", b"<", b">", b"<>"]
    words = [([0, 3], 4), ([0, 1, 2], 6), ([1, 2], 6)]
    found = learn(symbol_learner(names, words, "lexicographic"), 5)
    assert [column.tolist() for column in found.merges()] == [[1, 0], [2, 3], [3, 4], [12, 10]]


def test_unusable_symbols_are_refused() -> None:
    with pytest.raises(ValueError, match="symbols: expected bytes, found none for symbol 1"):
        symbol_learner([b"a", b""], [([0], 1)], "first_id")
    with pytest.raises(ValueError, match="expected symbols below 1, found 1 in word 1"):
        symbol_learner([b"a"], [([0], 1), ([0, 1], 1)], "first_id")
    with pytest.raises(ValueError, match="found 0 for word 0"):
        symbol_learner([b"a"], [([0], 0)], "first_id")
    counts = np.array([1, 1], np.int64)
    words = np.array([0, 0], np.uint32)
    for offsets in ([0, 2], [0, 1, 3], [1, 1, 2], [0, 3, 2]):
        with pytest.raises(ValueError, match="offsets"):
            MergeLearner.from_symbols(
                [b"a"], words, np.array(offsets, np.int64), counts, "first_id"
            )


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
@given(words=word_lists())
def test_from_bytes_up_no_bytes_are_made_twice(tie_break: TieBreak, words: Words) -> None:
    found = learn(learner(words, tie_break, always_new=True), 400)
    assert found.merges()[2].tolist() == list(range(256, found.num_symbols))
    assert len(set(symbols(found))) == found.num_symbols
    assert merges(found) == merges(learn(learner(words, tie_break), 400))


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
