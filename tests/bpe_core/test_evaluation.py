"""Measures of tokenizers equal their definitions, computed in plain Python."""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import times

from bpe_core import BPETokenizer, PretokenCounts, count_pretokens, train_from_counts
from bpe_core.characters import CharacterRules
from bpe_core.count_files import columns_to_arrow
from bpe_core.errors import TrainingError
from bpe_core.evaluation import UseCounter, gini, renyi_efficiency
from bpe_core.model import TokenizerModel
from bpe_core.reachability import find_unreachable
from bpe_core.text_measures import WORDS, decode_characters, find_scripts, measure_text
from bpe_core.token_probes import measure_spaces, name_grouping, split_numbers, three_digit_f1

TEXT = "It's 1234567 o'clock: déjà vu, 漢字かな!\n\n    if x:\n        return x\n" * 3
COUNTS = st.lists(st.integers(1, 1000), min_size=1, max_size=20)
WORDS_OF_TEXT = st.text(st.sampled_from("ab1é漢 \n\t\x1c\u00a0.'"), max_size=40)


@pytest.fixture(scope="module")
def tokenizer() -> BPETokenizer:
    return train_from_counts(count_pretokens([TEXT.encode()]), 300).tokenizer()


# --- The formulas of tokenizer-analysis-suite, in its words: sums over all tokens, all pairs.


def suite_entropy(counts: Sequence[int], alpha: float) -> float:
    shares = [count / sum(counts) for count in counts]
    if alpha == 1:
        return -sum(share * math.log2(share) for share in shares)
    return 1 / (1 - alpha) * math.log2(sum(share**alpha for share in shares))


def suite_gini(costs: Sequence[float]) -> float:
    mean = sum(costs) / len(costs)
    return sum(abs(a - b) for a in costs for b in costs) / (2 * len(costs) ** 2 * mean)


def suite_boundary_f1(digits: int, split: Sequence[int]) -> float:
    ideal = {digits - 3 * i for i in range(1, digits)} & set(range(1, digits))
    actual = {sum(split[:i]) for i in range(1, len(split))}
    if not ideal and not actual:
        return 1.0
    hits = len(ideal & actual)
    precision = hits / len(actual) if actual else 0.0
    recall = hits / len(ideal) if ideal else 0.0
    return 2 * precision * recall / (precision + recall) if hits else 0.0


@settings(max_examples=times(1))
@given(COUNTS, st.sampled_from([1, 2, 2.5, 3]))
def test_efficiency_is_the_suites(counts: list[int], alpha: float) -> None:
    found = renyi_efficiency([*counts, 0], len(counts) + 1, alpha)
    assert found == pytest.approx(suite_entropy(counts, alpha) / math.log2(len(counts) + 1))


@settings(max_examples=times(1))
@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=12))
def test_gini_is_the_suites(costs: list[float]) -> None:
    assert gini(costs) == pytest.approx(suite_gini(costs), abs=1e-12)


@settings(max_examples=times(1))
@given(st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_three_digit_f1_is_the_suites(split: list[int]) -> None:
    assert three_digit_f1(sum(split), split) == pytest.approx(suite_boundary_f1(sum(split), split))


def test_measures_without_a_denominator_are_none() -> None:
    assert renyi_efficiency([], 10) is None
    assert renyi_efficiency([5], 1) is None
    assert gini([1.0]) is None
    assert gini([0.0, 0.0]) is None


# --- Sizes of texts.


@settings(max_examples=times(1))
@given(st.lists(WORDS_OF_TEXT, max_size=5))
def test_words_of_text_are_those_of_split(texts: list[str]) -> None:
    counts = count_pretokens([text.encode() for text in texts], pattern=WORDS)
    size = measure_text(counts, "white_space")
    assert size.bytes == sum(len(text.encode()) for text in texts)
    assert size.characters == sum(map(len, texts))
    assert size.words == sum(len(text.split()) for text in texts)


@settings(max_examples=times(1))
@given(st.lists(WORDS_OF_TEXT, max_size=5))
def test_words_of_counts_are_pretokens_with_a_letter(texts: list[str]) -> None:
    counts = count_pretokens([text.encode() for text in texts])
    expected = sum(
        number
        for pretoken, number in counts.items()
        if any(unicodedata.category(c).startswith("L") for c in pretoken.decode())
    )
    assert measure_text(counts, "letters").words == expected


@settings(max_examples=times(1))
@given(
    st.lists(
        st.text(st.sampled_from("a\x7f\x80é\u07ff\u0800漢\uffff\U00010000\U0010ffff"), min_size=1)
    )
)
def test_characters_are_decoded(pieces: list[str]) -> None:
    parts = [piece.encode() for piece in pieces]
    offsets = np.cumsum([0, *map(len, parts)])
    codes, starts = decode_characters(np.frombuffer(b"".join(parts), np.uint8), offsets)
    assert codes.tolist() == [ord(c) for piece in pieces for c in piece]
    assert starts.tolist() == np.cumsum([0, *map(len, pieces)])[:-1].tolist()


@settings(max_examples=times(1))
@given(st.lists(st.binary(min_size=1, max_size=6), min_size=1, max_size=5))
def test_parts_of_characters_become_replacements(pieces: list[bytes]) -> None:
    offsets = np.cumsum([0, *map(len, pieces)])
    codes, starts = decode_characters(np.frombuffer(b"".join(pieces), np.uint8), offsets)
    assert len(starts) == len(pieces)
    assert ((codes >= 0) & (codes <= 0x10FFFF)).all()


def test_scripts_are_those_of_the_first_letter() -> None:
    pieces = [" the", "1.", "漢字か", "の漢", "жa", "٣ا", "é"]
    parts = [piece.encode() for piece in pieces]
    offsets = np.cumsum([0, *map(len, parts)])
    numbers, names = find_scripts(np.frombuffer(b"".join(parts), np.uint8), offsets)
    found = [names[number] if number >= 0 else None for number in numbers]
    assert found == ["Latin", None, "Han", "Hiragana", "Cyrillic", "Arabic", "Latin"]


def test_code_has_much_punctuation() -> None:
    prose, code = "She said, softly: it is late.", "if (x[i] != y) { z->a(); }"
    sizes = [measure_text(count_pretokens([text.encode()]), "letters") for text in (prose, code)]
    assert [size.looks_like_code for size in sizes] == [False, True]


# --- Use of ids.


def test_use_of_counts_is_that_of_encoding(tokenizer: BPETokenizer) -> None:
    counts = count_pretokens([TEXT.encode()])
    use = UseCounter(tokenizer).count(counts)
    assert dict(zip(use.ids.tolist(), use.counts.tolist(), strict=True)) == Counter(
        tokenizer.encode(TEXT)
    )
    words = [p for p in counts.items() if any(c.isalpha() for c in p[0].decode())]
    lengths = [(len(tokenizer.encode_ordinary(word)), number) for word, number in words]
    assert use.word_tokens == sum(length * number for length, number in lengths)
    assert use.single_token_words == sum(number for length, number in lengths if length == 1)


def test_use_adds_up(tokenizer: BPETokenizer) -> None:
    one, other = (count_pretokens([text.encode()]) for text in (TEXT, "other text, it's x"))
    both = UseCounter(tokenizer).count(one) + UseCounter(tokenizer).count(other)
    whole = UseCounter(tokenizer).count(one + other)
    assert both.ids.tolist() == whole.ids.tolist()
    assert both.counts.tolist() == whole.counts.tolist()
    assert both.word_tokens == whole.word_tokens


def test_counts_by_another_pattern_are_refused(tokenizer: BPETokenizer) -> None:
    with pytest.raises(TrainingError, match="expected counts by its pattern"):
        UseCounter(tokenizer).count(count_pretokens([b"a"], pattern="llama3"))


def test_no_counts_are_no_tokens(tokenizer: BPETokenizer) -> None:
    empty = count_pretokens([])
    assert UseCounter(tokenizer).count(empty).tokens == 0
    assert measure_text(empty, "letters").bytes == 0


# --- Ids that no text gives.


def test_unreachable_ids_have_their_reasons() -> None:
    tokens = [bytes([i]) for i in range(256)]
    tokens += [b"ab", b"bc", b"abc", b"a b", b"a ", "e\u0301".encode(), b"e\xcc"]
    merges = [(b"a", b"b"), (b"b", b"c"), (b"a", b"bc"), (b"a", b" "), (b"a ", b"b")]
    merges += [(b"e", b"\xcc"), (b"e\xcc", b"\x81")]
    found = find_unreachable(
        BPETokenizer(dict(enumerate(tokens)), merges, ["<s>"], normalizer="nfc")
    )
    assert found is not None
    assert [tokens[i] for i in found.by_merges] == [b"abc"]
    assert [tokens[i] for i in found.by_pattern] == [b"a b", b"a "]
    assert [tokens[i] for i in found.by_normalizer] == ["e\u0301".encode()]
    assert bytes(int(i) for i in found.by_encoding) == bytes([0xC0, 0xC1, *range(0xF5, 0x100)])
    # The pattern cuts before a mark, whichever it is.
    assert [tokens[i] for i in found.not_found] == [b"e\xcc"]


@settings(max_examples=times(0.4))
@given(st.text(st.sampled_from("abc é.1"), min_size=1, max_size=60))
def test_no_id_of_a_text_is_unreachable(text: str) -> None:
    """Also of tokens that training with another pattern made."""
    trained = train_from_counts(count_pretokens([text.encode()], pattern="none"), 290).tokenizer()
    model = trained.model
    tokenizer = BPETokenizer(model.vocab, model.merge_bytes, pattern="gpt2")
    found = find_unreachable(tokenizer)
    assert found is not None
    assert not set(found.unreachable.tolist()) & set(tokenizer.encode(text))
    spared = find_unreachable(tokenizer, np.unique(tokenizer.encode(text)))
    assert spared is not None
    assert spared.unreachable.tolist() == found.unreachable.tolist()


def test_bytes_of_characters_with_a_token_are_unreachable() -> None:
    """As with SentencePiece's `<0x61>`; bytes of other characters are reachable."""
    byte_ids = tuple(range(256))
    tokens = [(i, bytes([i])) for i in range(256)]
    tokens += [(256, b"a"), (257, b" "), (258, b" a"), (259, b"a ")]
    model = TokenizerModel.from_tokens(
        tokens,
        [(257, 256, 258)],
        pattern="none",
        characters=CharacterRules(byte_ids=byte_ids, prefix="always"),
    )
    tokenizer = BPETokenizer.from_model(model)
    assert tokenizer.encode("ab") == [258, ord("b")]
    found = find_unreachable(tokenizer)
    assert found is not None
    assert found.by_merges.tolist() == [ord(" "), ord("a"), 259]
    assert len(found.by_encoding) == 13
    assert not len(found.by_pattern)
    assert not len(found.not_found)


def test_ids_of_tokenizers_that_change_spaces_are_not_judged() -> None:
    model = BPETokenizer({0: b"a", 1: b" "}, []).model
    assert find_unreachable(BPETokenizer.from_model(replace(model, prefix_space=True))) is None


# --- Numbers and white space.


@pytest.mark.parametrize(
    ("pattern", "grouping"),
    [("none", "single digits"), ("llama3", "single digits"), ("gpt2", "single digits")],
)
def test_bytes_alone_are_single_digits(pattern: str, grouping: str) -> None:
    tokenizer = BPETokenizer({i: bytes([i]) for i in range(256)}, [], pattern=pattern)
    assert name_grouping(split_numbers(tokenizer)) == grouping


def test_groups_of_three_are_named() -> None:
    pairs = [(a, b) for a in b"0123456789" for b in b"0123456789"]
    merges = [(bytes([a]), bytes([b])) for a, b in pairs]
    merges += [(bytes([a, b]), bytes([c])) for a, b in pairs for c in b"0123456789"]
    tokens = [bytes([i]) for i in range(256)] + [a + b for a, b in merges]
    merges += [(right, left) for left, right in merges[100:]]  # the same tokens, made otherwise
    tokenizer = BPETokenizer(dict(enumerate(tokens)), merges, pattern="llama3")
    splits = split_numbers(tokenizer)
    assert name_grouping(splits) == "threes from the left"
    assert [one.split for one in splits[:5]] == [(1,), (2,), (3,), (3, 1), (3, 2)]
    assert [one.three_digit_f1 for one in splits[:7]] == [1, 1, 1, 0, 0, 1, 0]
    assert all(one.tokens == math.ceil(one.digits / 3) for one in splits)


def test_white_space_is_measured() -> None:
    tokens = [bytes([i]) for i in range(256)] + [b"  ", b"    ", b"\n\n"]
    merges = [(b" ", b" "), (b"  ", b"  "), (b"\n", b"\n")]
    spaces = measure_spaces(BPETokenizer(dict(enumerate(tokens)), merges))
    assert spaces.longest_spaces == 4
    assert spaces.spaces == {1: 1, 2: 1, 4: 1, 8: 2, 16: 4, 32: 8}
    assert spaces.tabs == {n: n for n in (1, 2, 4, 8, 16, 32)}
    assert spaces.newlines[32] == 16
    # gpt2's pattern leaves the last space to the word.
    assert spaces.indentation == {1: 3, 2: 4, 3: 5, 4: 6, 5: 7, 6: 8}


def test_counts_may_have_any_bytes() -> None:
    counts = PretokenCounts.from_mapping({b"\x80\xff": 2, b"\xe6\xbc": 1})
    assert measure_text(counts, "letters").bytes == 6
    assert PretokenCounts(columns_to_arrow(*counts.columns())) == counts
