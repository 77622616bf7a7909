"""CharBPETokenizer: words, training, the three ways of encoding, files."""

from __future__ import annotations

import copy
import pickle
import random
import re
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import regex
from core_support import FRAGMENTS, agrees
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import times

from bpe_core import (
    BPETokenizer,
    CharBPETokenizer,
    PretokenCounts,
    count_pretokens,
    train_from_counts,
)
from bpe_core._native import safe_cut, split_pretokens
from bpe_core.errors import (
    FormatError,
    InvalidTokenizerError,
    SpecialTokenError,
    TrainingError,
    UnknownCharacterError,
    UnknownTokenError,
)
from bpe_core.patterns import WHITESPACE_WORDS
from bpe_core.special_tokens import special_set

END = "</w>"
SENTENCES = (
    "the rain in spain stays mainly in the plain. the train of thought remains plain to the "
    "explained brain, and the main strain of rain pertains to the plains again and again"
)
small_words = st.text(st.sampled_from("abc.é日<w/>"), min_size=1, max_size=12)
small_texts = st.lists(small_words, max_size=30).map(" ".join)
any_text = st.lists(st.sampled_from([*FRAGMENTS, "</w>", "<unk>", "\x1c", "。"]), max_size=40).map(
    "".join
)


# --- the two published examples, in plain words


def merge(sequence: Sequence[str], pair: tuple[str, str]) -> list[str]:
    """The sequence with the pair joined wherever it stands, from left to right."""
    merged: list[str] = []
    at = 0
    while at < len(sequence):
        joins = tuple(sequence[at : at + 2]) == pair
        merged.append("".join(pair) if joins else sequence[at])
        at += 2 if joins else 1
    return merged


def learn_words(text: str, most_merges: int, min_frequency: int = 1) -> tuple[list[Any], Any]:
    """Words that end with END; of equally frequent pairs the one first met. (merges, words)."""
    words = {word: [*word, END] for word in text.split()}
    counts = Counter(text.split())
    merges: list[tuple[str, str]] = []
    while len(merges) < most_merges:
        pairs: dict[tuple[str, str], int] = {}
        for word, symbols in words.items():
            for pair in pairwise(symbols):
                pairs[pair] = pairs.get(pair, 0) + counts[word]
        best = max(pairs, key=lambda pair: pairs[pair], default=None)
        if best is None or pairs[best] < min_frequency:
            break
        words = {word: merge(symbols, best) for word, symbols in words.items()}
        merges.append(best)
    return merges, {word: (symbols, counts[word]) for word, symbols in words.items()}


def tokens_longest_first(words: dict[str, tuple[list[str], int]]) -> list[str]:
    """The tokens that words consist of: the longest first, then the most frequent, then the first.

    END counts as one character.
    """
    frequencies: dict[str, int] = {}
    for symbols, count in words.values():
        for symbol in symbols:
            frequencies[symbol] = frequencies.get(symbol, 0) + count

    def length(token: str) -> int:
        return len(token) - len(END) + 1 if token.endswith(END) else len(token)

    # Sorting keeps the order of what is equal.
    return sorted(frequencies, key=lambda token: (-length(token), -frequencies[token]))


def replace_longest(word: str, tokens: Sequence[str]) -> list[str | None]:
    """The tokens of a word (its end marked by one private character); None for the unknown."""
    if not word:
        return []
    for i, token in enumerate(tokens):
        if token in word:
            parts: list[str | None] = []
            for part in word.split(token):
                parts += [*replace_longest(part, tokens[i + 1 :]), token]
            return parts[:-1]
    return [None] * len(word)


def encode_longest_first(text: str, tokens: Sequence[str]) -> list[str]:
    """`replace_longest` of every word of a text."""
    private = [
        token.removesuffix(END) + "\ue000" if token.endswith(END) else token for token in tokens
    ]
    found = [t for word in text.split() for t in replace_longest(word + "\ue000", private)]
    return ["<unk>" if token is None else token.replace("\ue000", END) for token in found]


def learn_text(text: str, vocab_size: int) -> list[str]:
    """The tokens that a text as one sequence gives, each the place of its id."""
    tokens = sorted(set(text))
    sequence = list(text)
    while len(tokens) < vocab_size:
        pairs = Counter(pairwise(sequence))
        if not pairs:
            break
        first: dict[tuple[str, str], int] = {}
        for place, pair in enumerate(pairwise(sequence)):
            first.setdefault(pair, place)
        best = max(pairs, key=lambda pair: (pairs[pair], -first[pair]))
        tokens.append("".join(best))
        sequence = merge(sequence, best)
    return tokens


def encode_left_to_right(text: str, tokens: Sequence[str]) -> list[int]:
    """At each place the id of the longest token; -1 for a character without one."""
    ids: list[int] = []
    while text:
        fitting = [token for token in tokens if text.startswith(token)]
        longest = max(fitting, key=len, default=None)
        ids.append(-1 if longest is None else tokens.index(longest))
        text = text[1 if longest is None else len(longest) :]
    return ids


def tokens_of(tokenizer: CharBPETokenizer, text: str, **options: Any) -> list[str | None]:
    return [tokenizer.id_to_token(i) for i in tokenizer.encode(text, **options)]


# --- words that end with a symbol, the longest token first


def test_the_classic_example_of_the_literature_is_learned_merge_by_merge() -> None:
    tokenizer = CharBPETokenizer.words_longest_first()
    tokenizer.train("low " * 5 + "lower " * 2 + "newest " * 6 + "widest " * 3, 100, max_merges=5)
    assert tokenizer.merges == [("e", "s"), ("es", "t"), ("est", END), ("l", "o"), ("lo", "w")]
    assert tokenizer.merge_counts == [9, 9, 9, 7, 7]
    assert tokenizer.stop_reason == "max_merges_reached"
    assert list(tokenizer.vocab)[:3] == ["<unk>", "d", "e"]


@pytest.mark.parametrize("text", [SENTENCES, "a</w>b </w> <w> </w>a</w>b " * 3, "aaaa aaa aa a"])
@pytest.mark.parametrize("most_merges", [0, 1, 7, 60, 1000])
def test_words_are_learned_and_encoded_as_in_plain_words(text: str, most_merges: int) -> None:
    check_words(text, most_merges, text + " unexplained <w/> the.the q")


@pytest.mark.slow
@settings(max_examples=times(0.6))
@given(small_texts, st.integers(0, 40), small_texts)
def test_random_words_are_learned_and_encoded_as_in_plain_words(
    text: str, most_merges: int, other: str
) -> None:
    check_words(text.replace(END, ""), most_merges, other)


def check_words(text: str, most_merges: int, other: str) -> None:
    merges, words = learn_words(text, most_merges)
    tokenizer = CharBPETokenizer.words_longest_first()
    tokenizer.train(text, 100_000, min_frequency=1, max_merges=most_merges)
    assert tokenizer.merges == merges
    if END in text:
        return  # the end of a word and these characters are one token: its place is not told
    assert tokens_of(tokenizer, text, method="merges") == [
        token for word in text.split() for token in words[word][0]
    ]
    expected = encode_longest_first(other, tokens_longest_first(words))
    assert tokens_of(tokenizer, other) == expected


def test_training_stops_at_the_size_at_the_number_of_merges_or_below_the_frequency() -> None:
    def stopped(**options: Any) -> tuple[str | None, int]:
        tokenizer = CharBPETokenizer.words_longest_first()
        tokenizer.train(SENTENCES, **{"vocab_size": 1000, **options})
        return tokenizer.stop_reason, len(tokenizer)

    assert stopped(vocab_size=30) == ("vocab_size_reached", 30)
    alphabet = len(set(SENTENCES) - {" "}) + 2
    assert stopped(max_merges=4) == ("max_merges_reached", alphabet + 4)
    assert stopped(max_merges=0) == ("max_merges_reached", alphabet)
    assert stopped(vocab_size=alphabet + 3, max_merges=3)[0] == "vocab_size_reached"
    assert stopped()[0] == "below_min_frequency"
    assert stopped(min_frequency=1)[0] == "no_pairs_left"
    empty = CharBPETokenizer()
    empty.train("", 10)
    assert (empty.vocab, empty.stop_reason) == ({"<unk>": 0, END: 1}, "no_pairs_left")


def test_tokens_that_no_training_word_consists_of_are_not_looked_for() -> None:
    tokenizer = CharBPETokenizer.words_longest_first()
    tokenizer.train("est est est", 100)
    assert tokens_of(tokenizer, "est es") == ["est</w>", "<unk>", "<unk>", "<unk>"]
    assert tokens_of(tokenizer, "es", method="merges") == ["es", END]
    assert tokens_of(tokenizer, "es", method="left_to_right") == ["es", END]


def test_an_end_of_a_word_without_a_token_is_one_unknown() -> None:
    tokenizer = CharBPETokenizer.words_longest_first()
    tokenizer.train("low low w-", 100, max_merges=3)
    assert tokenizer.merges[-1] == ("low", END)
    assert [tokenizer.id_to_token(i) for i in tokenizer.encode("lo")] == ["<unk>", "<unk>", END]
    tokenizer.train("low low low", 100)
    assert [tokenizer.id_to_token(i) for i in tokenizer.encode("lo")] == ["<unk>"] * 3


def test_without_frequencies_all_tokens_are_looked_for_the_longest_first() -> None:
    vocab = {"<unk>": 0, "a": 1, "b": 2, "ab": 3, "ba": 4, "bab": 5, END: 6, "b</w>": 7}
    tokenizer = CharBPETokenizer.from_vocab(vocab, [], method="longest_first")
    assert tokens_of(tokenizer, "aba abab abb") == [
        *["ab", "a", END],
        *["a", "bab", END],
        *["ab", "b</w>"],
    ]


# --- merges


def apply_merges(symbols: list[str], merges: Sequence[tuple[str, str]]) -> list[str]:
    """As long as there is one, the pair of lowest rank is merged, the leftmost first."""
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    while True:
        pairs = [(ranks[pair], at) for at, pair in enumerate(pairwise(symbols)) if pair in ranks]
        if not pairs:
            return symbols
        _, at = min(pairs)
        symbols[at : at + 2] = ["".join(symbols[at : at + 2])]


@pytest.mark.slow
@settings(max_examples=times(2))
@given(
    st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=30),
    st.lists(st.text(st.sampled_from("abé日本😀xñ"), min_size=1, max_size=9), max_size=20),
)
def test_any_merges_are_applied_as_in_plain_words(
    pairs: list[tuple[int, int]], words: list[str]
) -> None:
    tokens = [*"abé日本😀", END]
    merges: list[tuple[str, str]] = []
    for left, right in pairs:
        merge = tokens[left % len(tokens)], tokens[right % len(tokens)]
        # The end of a word is at the end; a token may be made in two ways.
        if not merge[0].endswith(END):
            merges.append(merge)
            tokens += ["".join(merge)] * ("".join(merge) not in tokens)
    merges = list(dict.fromkeys(merges))
    vocab = {token: 7 * i for i, token in enumerate(["<unk>", *tokens])}
    tokenizer = CharBPETokenizer.from_vocab(vocab, merges)
    expected = [t for word in words for t in apply_merges([*word, END], merges)]
    found = tokens_of(tokenizer, " ".join(words))
    assert found == [token if token in vocab else "<unk>" for token in expected]


def test_the_rules_that_make_characters_apply_inside_of_characters_alone() -> None:
    # All characters of two bytes and some of three and four; no merges.
    characters = [*map(chr, range(0x80, 0x800)), *"ऄईऄ日本語\ud7ff\ue000\uffff😀😁\U0010ffff"]
    vocab = {token: i for i, token in enumerate(dict.fromkeys(["<unk>", END, *characters]))}
    tokenizer = CharBPETokenizer.from_vocab(vocab, [])
    shuffled = random.Random(0).choices([c for c in characters if not c.isspace()], k=5000)
    text = "".join(shuffled) + "ഀ한😂é\U0010fffe"
    expected = [token if token in vocab else "<unk>" for token in [*text, END]]
    assert tokens_of(tokenizer, text) == expected


# --- the whole text, from left to right


@pytest.mark.parametrize("vocab_size", [25, 40, 200])
@pytest.mark.parametrize("text", [SENTENCES, "ааа бб ааа\n\nбб 日本日本!", "aaaaaaaaaaaaaaaa"])
def test_a_text_is_learned_and_encoded_as_in_plain_words(text: str, vocab_size: int) -> None:
    check_text(text, vocab_size, text[::2] + " Щ" + text)


@settings(max_examples=times(0.6))
@given(any_text, st.integers(0, 30), any_text)
def test_random_texts_are_learned_and_encoded_as_in_plain_words(
    text: str, more: int, other: str
) -> None:
    check_text(text, len(set(text)) + more + 1, other)


def check_text(text: str, vocab_size: int, other: str) -> None:
    tokens = learn_text(text, vocab_size)
    tokenizer = CharBPETokenizer.text_left_to_right()
    tokenizer.train(text, vocab_size, min_frequency=1)
    assert tokenizer.vocab == {token: i for i, token in enumerate(tokens)}
    ids = tokenizer.encode(other)
    assert ids == encode_left_to_right(other, tokens)
    assert tokenizer.decode(ids, unknown="skip") == "".join(tokens[i] for i in ids if i >= 0)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_several_texts_are_several_sequences() -> None:
    tokenizer = CharBPETokenizer.text_left_to_right()
    tokenizer.train(["ab", "ab", "ba"], 10)
    assert tokenizer.merges == [("a", "b")]


def test_unknown_ids_are_an_error_or_nothing() -> None:
    tokenizer = CharBPETokenizer.text_left_to_right()
    tokenizer.train("abab", 3)
    assert tokenizer.encode("abxab") == [2, -1, 2]
    assert tokenizer.decode([2, -1, 99, 2], unknown="skip") == "abab"
    with pytest.raises(UnknownTokenError, match="id -1: expected an id of this vocabulary"):
        tokenizer.decode([2, -1])
    with pytest.raises(ValueError, match="expected 'error' or 'skip', found 'quietly'"):
        tokenizer.decode([2], unknown="quietly")
    assert tokenizer.decode(np.array([2, 0])) == "aba"


@pytest.mark.parametrize("name", ["foo", "", 5])
def test_other_names_of_methods_and_of_what_unknown_ids_do_are_refused(name: Any) -> None:
    tokenizer = CharBPETokenizer.words_longest_first()
    tokenizer.train("low lower", 10)
    found = re.escape(f"found {name!r}")
    expected = f"method: expected one of 'merges', 'longest_first', 'left_to_right', {found}"
    with pytest.raises(InvalidTokenizerError, match=expected):
        tokenizer.encode("low", method=name)
    with pytest.raises(ValueError, match=f"unknown: expected 'error' or 'skip', {found}"):
        tokenizer.decode([1], unknown=name)
    assert tokenizer.encode("low", method=None) == tokenizer.encode("low", method="longest_first")


def test_each_merge_is_told_if_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer = CharBPETokenizer.text_left_to_right()
    tokenizer.train("aaabdaaabac", 6, verbose=True)
    assert capsys.readouterr().out.splitlines() == [
        "merge 1: 'a' + 'a' -> 'aa' (4 times), 5 tokens",
        "merge 2: 'aa' + 'a' -> 'aaa' (2 times), 6 tokens",
    ]
    tokenizer.train("aaabdaaabac", 6)
    assert capsys.readouterr().out == ""


# --- words


def test_white_space_words_are_those_of_python() -> None:
    text = "".join(f"{chr(c)}{c}" for c in range(0x3100)) + "\U0001f600 end"
    tokenizer = CharBPETokenizer()
    tokenizer.train(text, 100_000, max_merges=0)
    assert tokenizer.decode(tokenizer.encode(text)) == " ".join(text.split())
    assert count_of_words(text) == Counter(text.split())


def count_of_words(text: str) -> Counter[str]:
    counts = count_pretokens([text], pattern=WHITESPACE_WORDS)
    words = ((word.decode(), count) for word, count in counts.items())
    return Counter({word: count for word, count in words if not word.isspace()})


@given(any_text, st.integers(1, 5))
def test_scanners_of_words_cut_where_words_end(text: str, capacity: int) -> None:
    data = text.encode() + b"\xff\xc3 \xe3\x80"
    ends = split_pretokens(WHITESPACE_WORDS, data, capacity).tolist()
    pieces = [data[a:b].decode("utf-8", "surrogateescape") for a, b in pairwise([0, *ends])]
    assert "".join(pieces) == data.decode("utf-8", "surrogateescape")
    assert "".join(pieces).split() == [piece for piece in pieces if not piece.isspace()]
    marked = split_pretokens("marked_words", data, capacity).tolist()
    assert [b - a for a, b in pairwise([0, *marked])] == [len(text.encode()) + 1, 4]


@given(any_text)
def test_counted_white_space_words_are_those_of_python(text: str) -> None:
    assert count_of_words(text) == Counter(text.split())


def test_decoding_joins_words_with_a_space() -> None:
    tokenizer = CharBPETokenizer()
    tokenizer.train(SENTENCES, 60)
    assert tokenizer.decode(tokenizer.encode("\n the\t rain  in\nspain ")) == "the rain in spain"
    assert tokenizer.decode([]) == ""
    suffix = CharBPETokenizer(end_of_word_as="suffix")
    suffix.train(SENTENCES, 60)
    assert suffix.decode(suffix.encode(" the  rain ")) == "the rain"
    bare = CharBPETokenizer(end_of_word=None)
    bare.train(SENTENCES, 60)
    assert bare.decode(bare.encode("the rain")) == "therain"


def test_characters_that_look_like_the_end_of_a_word_are_characters() -> None:
    tokenizer = CharBPETokenizer()
    tokenizer.train("a < / w > b", 100, max_merges=0)
    assert tokens_of(tokenizer, "a</w>b") == ["a", "<", "/", "w", ">", "b", END]
    for method in ("longest_first", "left_to_right"):
        assert tokens_of(tokenizer, "a</w>b", method=method) == tokens_of(tokenizer, "a</w>b")
    assert tokenizer.decode(tokenizer.encode("a</w>b </w> w")) == "a</w>b </w> w"


@pytest.mark.parametrize("end_of_word_as", ["symbol", "suffix"])
def test_an_end_of_a_word_may_be_one_character_that_words_have_too(end_of_word_as: Any) -> None:
    tokenizer = CharBPETokenizer(end_of_word="_", end_of_word_as=end_of_word_as)
    tokenizer.train("a_b a_ b_ a_b __ a_", 40, min_frequency=1)
    for text in ("a_b", "__ a_ _", "ab"):
        tokens = tokens_of(tokenizer, text)
        assert "".join(map(str, tokens)) == "".join(f"{word}_" for word in text.split())


def test_a_lone_surrogate_is_a_replacement_character() -> None:
    tokenizer = CharBPETokenizer()
    tokenizer.train("a\ufffd", 10)
    assert tokenizer.encode("a\ud800") == tokenizer.encode("a\ufffd")


def test_special_tokens_have_the_first_ids_and_are_found_before_words() -> None:
    tokenizer = CharBPETokenizer(special_tokens=["<s>", "<s> a", "|"])
    tokenizer.train("xx<s>xx|xx<s>", 20)
    assert tokenizer.special_tokens == {"<s>": 0, "<s> a": 1, "|": 2}
    assert list(tokenizer.vocab) == ["<s>", "<s> a", "|", "<unk>", "x", END, "xx", "xx</w>"]
    for method in ("merges", "longest_first", "left_to_right"):
        ids = tokenizer.encode("xx<s> a|  xx<s>", method=method)
        assert [tokenizer.id_to_token(i) for i in ids] == ["xx</w>", "<s> a", "|", "xx</w>", "<s>"]
        data = np.frombuffer(b"xx|", np.uint8)
        bounds = np.array([0]), np.array([3])
        ids, _ = tokenizer.encode_documents(data, *bounds, allowed_special="none")
        assert [tokenizer.id_to_token(i) for i in ids] == ["xx", "<unk>", END]


def test_no_merge_makes_a_special_token_or_the_unknown() -> None:
    tokenizer = CharBPETokenizer(unk_token="ab", special_tokens=["cd"])
    tokenizer.train("ab ab ab c d", 20)
    assert tokens_of(tokenizer, "ab c") == ["ab</w>", "c", END]


def test_lowering_goes_character_by_character_and_normalizing_before_it() -> None:
    tokenizer = CharBPETokenizer(lowercase=True, unicode_normalizer="nfkc", special_tokens=["<S>"])
    tokenizer.train("ΣΑΣ \ufb01n <S>", 30, max_merges=0)
    assert tokens_of(tokenizer, "ΣΑΣ<S>ﬁN") == ["σ", "α", "σ", END, "<S>", "f", "i", "n", END]


@given(any_text, st.integers(0, 60))
def test_long_texts_are_cut_between_words(text: str, limit: int) -> None:
    data = text.encode()
    cut = safe_cut(data, True, limit, special_set(["<s>"]), pattern="whitespace_words")
    places = [
        len(text[:i].encode())
        for i in range(1, len(text))
        if text[i].isspace() and agrees(text[i - 1]) and regex.match(r"\p{L}", text[i - 1])
    ]
    before = [place for place in places if place <= limit]
    assert cut == (max(before) if before else min(places, default=None))
    if cut is not None:
        words = data[:cut].decode().split() + data[cut:].decode().split()
        assert words == text.split()


# --- settings and errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"words": "lines"}, "words: expected one of 'whitespace', 'bert', 'whole_text'"),
        ({"end_of_word_as": "prefix"}, "end_of_word_as: expected one of 'symbol', 'suffix'"),
        ({"end_of_word": ""}, "end_of_word: expected a text without whitespace, or None"),
        ({"unk_token": "a b"}, "unk_token: expected a text without whitespace, or None"),
        ({"unk_token": "</w>"}, "expected a text different from special tokens and unk_token"),
        ({"unicode_normalizer": "nfx"}, "unicode_normalizer: expected one of 'nfc'"),
        ({"method": "greedy"}, "method: expected one of 'merges', 'longest_first'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(InvalidTokenizerError, match=message):
        CharBPETokenizer(**arguments)
    with pytest.raises(SpecialTokenError):
        CharBPETokenizer(special_tokens=["a", "a"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"vocab_size": 5},
            r"vocab_size: expected at least \d+ \(1 special and unknown",
        ),
        ({"vocab_size": "5"}, "vocab_size: expected an integer from 1, found '5'"),
        ({"min_frequency": 0}, "min_frequency: expected an integer from 1, found 0"),
        ({"max_merges": -1}, "max_merges: expected an integer from 0, found -1"),
        ({"limit_alphabet": 0}, "limit_alphabet: expected an integer from 1"),
        ({"tie_break": "huggingface"}, "expected first_seen, lexicographic or first_id"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: Any, message: str) -> None:
    tokenizer = CharBPETokenizer()
    with pytest.raises(TrainingError, match=message):
        tokenizer.train(SENTENCES, **{"vocab_size": 100, **options})
    with pytest.raises(TrainingError, match="texts: expected str, found bytes"):
        tokenizer.train([b"a"], 10)  # type: ignore[list-item]
    for texts in (b"a", bytearray(b"a"), 5):
        expected = f"texts: expected str or an iterable of str, found {type(texts).__name__}"
        with pytest.raises(TrainingError, match=expected):
            tokenizer.train(texts, 10)  # type: ignore[arg-type]
    with pytest.raises(InvalidTokenizerError, match="train it, or make one with from_vocab"):
        tokenizer.encode("a")
    assert (len(tokenizer), tokenizer.stop_reason) == (0, None)


@pytest.mark.parametrize(
    ("vocab", "merges", "message"),
    [
        ({"a": 0}, [], "'<unk>': expected unk_token and special tokens in the vocabulary"),
        ({"<unk>": 0, "a": 0}, [], "'<unk>' and 'a': expected different ids, found 0 for both"),
        ({"<unk>": -1}, [], "token '<unk>': expected an id of 0"),
        ({"<unk>": 0, "": 1}, [], "expected texts as tokens, found ''"),
        ({"<unk>": 0, "a": 1}, [("a", "b")], r"merge 0, \('a', 'b'\): .* no id for 'b'"),
        ({"<unk>": 0, "a": 1}, [("a", "a")], "no id for 'aa'"),
    ],
)
def test_vocabularies_that_contradict_themselves_are_refused(
    vocab: Any, merges: Any, message: str
) -> None:
    with pytest.raises(InvalidTokenizerError, match=message):
        CharBPETokenizer.from_vocab(vocab, merges)


# --- training from counts


@pytest.mark.parametrize("tie_break", ["lexicographic", "first_id"])
@pytest.mark.parametrize("end_of_word_as", ["symbol", "suffix"])
def test_training_from_counts_is_training_from_text(tie_break: Any, end_of_word_as: Any) -> None:
    texts = [SENTENCES, SENTENCES[40:], "naïve\n\n日本 日本<s>日"]
    from_text = CharBPETokenizer(end_of_word_as=end_of_word_as, special_tokens=["<s>"])
    from_text.train(texts, 120, tie_break=tie_break)
    from_counts = CharBPETokenizer(end_of_word_as=end_of_word_as, special_tokens=["<s>"])
    counts = count_pretokens(texts, pattern=WHITESPACE_WORDS, special_tokens=["<s>"])
    from_counts.train_from_counts(counts, 120, min_frequency=2, tie_break=tie_break)
    assert from_counts.merges == from_text.merges
    assert from_counts.vocab == from_text.vocab
    assert from_counts.merge_counts == from_text.merge_counts


def test_counts_above_32_bits_are_counted_right() -> None:
    counts = {b"ab": 2**40, b"cd": 2**40 + 1, b"x": 2**33, b"\n": 2**60}
    tokenizer = CharBPETokenizer(end_of_word=None)
    tokenizer.train_from_counts(
        PretokenCounts.from_mapping(counts), 20, limit_alphabet=4, max_merges=2
    )
    assert tokenizer.merges == [("c", "d"), ("a", "b")]
    assert tokenizer.merge_counts == [2**40 + 1, 2**40]
    assert tokenizer.token_to_id("x") is None


def test_all_white_space_among_counts_is_passed_over() -> None:
    space = [chr(c) for c in range(0x110000) if chr(c).isspace()]
    counts = {(c * n).encode(): 1 for c in space for n in (1, 3)} | {b"a": 1}
    tokenizer = CharBPETokenizer(end_of_word=None)
    tokenizer.train_from_counts(PretokenCounts.from_mapping(counts), 20)
    assert list(tokenizer.vocab) == ["<unk>", "a"]


def test_texts_that_merge_into_single_tokens_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bpe_core.char_bpe.training._MOST_TOKEN_BYTES", 10_000)
    text = "".join(map(chr, range(0x4E00, 0x5200)))
    with pytest.raises(TrainingError, match="ask for a smaller vocab_size, or for a greater"):
        CharBPETokenizer.text_left_to_right().train(text, 3000, min_frequency=1)


def test_ties_are_broken_as_asked_for() -> None:
    def first(tie_break: Any) -> tuple[str, str]:
        tokenizer = CharBPETokenizer(end_of_word=None)
        tokenizer.train("mn zy ab mn zy ab", 100, max_merges=1, tie_break=tie_break)
        return tokenizer.merges[0]

    assert first("first_seen") == ("m", "n")
    assert first("lexicographic") == ("z", "y")
    assert first("first_id") == ("a", "b")


def test_counts_of_other_words_are_refused() -> None:
    with pytest.raises(TrainingError, match="expected counts of whitespace words"):
        CharBPETokenizer().train_from_counts(count_pretokens(["a"]), 10)
    counts = count_pretokens(["a"], pattern=WHITESPACE_WORDS)
    with pytest.raises(TrainingError, match="expected counts of whitespace words"):
        CharBPETokenizer.huggingface().train_from_counts(counts, 10)
    with pytest.raises(TrainingError, match="first_seen needs the order of the text"):
        CharBPETokenizer().train_from_counts(counts, 10, tie_break="first_seen")
    with pytest.raises(TrainingError, match="lowers or normalizes"):
        CharBPETokenizer(lowercase=True).train_from_counts(counts, 10)
    counts.metadata["normalizer"] = "nfc"
    with pytest.raises(TrainingError, match="found counts of normalized text"):
        CharBPETokenizer().train_from_counts(counts, 10)


def test_lengths_and_forbidden_tokens_are_honoured() -> None:
    counts = count_pretokens([SENTENCES], pattern=WHITESPACE_WORDS)
    tokenizer = CharBPETokenizer()
    tokenizer.train_from_counts(counts, 90, max_token_bytes=4, forbidden_tokens=["in", "the"])
    made = [left + right for left, right in tokenizer.merges]
    assert made
    assert max(map(len, made)) == 4
    assert not {"in", "the"} & set(made)


def test_a_limited_alphabet_has_the_most_frequent_characters_and_the_rest_parts_words() -> None:
    tokenizer = CharBPETokenizer()
    tokenizer.train("aaxbb aaxbb aaybb", 20, limit_alphabet=2)
    assert [token for token in tokenizer.vocab if len(token) == 1] == ["a", "b"]
    assert "aabb" not in tokenizer.vocab
    assert tokens_of(tokenizer, "aaxbb") == ["aa", "<unk>", "bb</w>"]


# --- documents, as pipelines encode them


@pytest.mark.parametrize("method", ["merges", "longest_first", "left_to_right"])
def test_documents_are_encoded_as_each_alone(method: Any) -> None:
    documents = ["the rain <s> Щ", "", " ", "naïve 日本 the", "<s>", "x"]
    tokenizer = CharBPETokenizer(special_tokens=["<s>", "<e>"], method=method)
    tokenizer.train([SENTENCES, "日"], 80)
    data = "".join(documents).encode()
    ends = np.cumsum([len(text.encode()) for text in documents])
    starts = np.concatenate([[0], ends[:-1]])
    ids, offsets = tokenizer.encode_documents(
        data, starts, ends, prepend=[0], append=[1, 1], dtype=np.uint16
    )
    assert ids.dtype == np.uint16
    alone = [[0, *tokenizer.encode(text), 1, 1] for text in documents]
    assert [ids[a:b].tolist() for a, b in pairwise(offsets)] == alone


def test_ids_too_large_for_16_bits_are_refused() -> None:
    large = CharBPETokenizer.from_vocab({"a": 70_000, "<unk>": 1, "</w>": 2}, [])
    bounds = np.array([0]), np.array([1])
    with pytest.raises(InvalidTokenizerError, match="uint32 for ids up to 70000, found uint16"):
        large.encode_documents(b"a", *bounds, dtype=np.uint16)
    ids, _ = large.encode_documents(b"a", *bounds, dtype=np.uint32)
    assert ids.tolist() == [70_000, 2]


def test_an_unknown_character_without_a_token_for_it_is_an_error_that_names_it() -> None:
    tokenizer = CharBPETokenizer(unk_token=None)
    tokenizer.train("the rain", 40)
    assert tokenizer.encode("thé")[-2:] == [-1, tokenizer.vocab[END]]
    bounds = np.array([0, 3]), np.array([3, 13])
    with pytest.raises(UnknownCharacterError, match=r"document 1: .* 'é' \(U\+00E9\) in .* 'thé'"):
        tokenizer.encode_documents("the rain thé".encode(), *bounds)


@pytest.mark.parametrize(
    ("arguments", "text", "found"),
    [
        ({"words": "whole_text", "end_of_word": None}, "the\nrain", "'\\n' (U+000A) in the word"),
        ({"words": "bert"}, "th\x00e\x00x", "'x' (U+0078) in the word 'thex'"),
        ({"lowercase": True}, "THE RAIN X", "'x' (U+0078) in the word 'x'"),
        ({"special_tokens": ["<x>"]}, "the<x> rain<y>", "'<' (U+003C) in the word 'rain<y>'"),
        ({"end_of_word_as": "suffix"}, "the rain ra", "'a' (U+0061) in the word 'ra'"),
        ({"method": "longest_first"}, "the ra", "'r' (U+0072) in the word 'ra'"),
    ],
)
def test_an_unknown_character_is_named_whatever_words_are(
    arguments: Any, text: str, found: str
) -> None:
    tokenizer = CharBPETokenizer(unk_token=None, **arguments)
    tokenizer.train("the rain the rain", 60)
    bounds = np.array([0]), np.array([len(text)])
    with pytest.raises(UnknownCharacterError) as caught:
        tokenizer.encode_documents(text.encode(), *bounds)
    assert found in str(caught.value)


# --- use


def trained(**settings: Any) -> CharBPETokenizer:
    tokenizer = CharBPETokenizer(**settings)
    tokenizer.train([SENTENCES, "naïve 日本"], 100)
    return tokenizer


ALL_SETTINGS: list[dict[str, Any]] = [
    {},
    {"unk_token": None, "end_of_word": None, "words": "whole_text", "method": "left_to_right"},
    {"end_of_word_as": "suffix", "words": "bert", "special_tokens": ["<unk>", "<s>"]},
    {"method": "longest_first", "lowercase": True, "unicode_normalizer": "nfd"},
]


@pytest.mark.parametrize("settings", ALL_SETTINGS)
def test_a_tokenizer_saved_pickled_or_copied_is_the_same(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    tokenizer = trained(**settings)
    tokenizer.save(tmp_path)
    first = (tmp_path / "char_bpe.json").read_bytes()
    text = "The rain, naïve <s> 日本 Щ explained"
    for other in (
        CharBPETokenizer.load(tmp_path),
        pickle.loads(pickle.dumps(tokenizer)),
        copy.copy(tokenizer),
        copy.deepcopy(tokenizer),
    ):
        assert other == tokenizer
        assert other.fingerprint == tokenizer.fingerprint
        assert other.stop_reason == tokenizer.stop_reason
        for method in ("merges", "longest_first", "left_to_right", None):
            assert other.encode(text, method=method) == tokenizer.encode(text, method=method)
    CharBPETokenizer.load(tmp_path).save(tmp_path)
    assert (tmp_path / "char_bpe.json").read_bytes() == first
    assert pickle.loads(pickle.dumps(CharBPETokenizer(**settings))) == CharBPETokenizer(**settings)
    assert tokenizer != CharBPETokenizer(**settings)
    assert tokenizer != trained(**{**settings, "special_tokens": ["<other>"]})
    assert repr(tokenizer).startswith(f"CharBPETokenizer({len(tokenizer)} tokens, ")


def test_a_directory_has_one_tokenizer_of_bytes_or_of_characters(tmp_path: Path) -> None:
    of_bytes = train_from_counts(count_pretokens([SENTENCES]), 270, []).tokenizer()
    of_characters = trained(end_of_word_as="suffix")
    (tmp_path / "notes.txt").write_text("mine")
    for training in (None, {"documents": 1}):
        of_bytes.save(tmp_path)
        assert not (tmp_path / "char_bpe.json").exists()
        assert BPETokenizer.load(tmp_path) == of_bytes
        of_characters.save(tmp_path, training)
        assert {path.name for path in tmp_path.iterdir()} == {
            *("notes.txt", "char_bpe.json", "vocab.json", "merges.txt"),
            *(["training.json"] if training else []),
        }
        assert CharBPETokenizer.load(tmp_path) == of_characters
    of_bytes.save(tmp_path)
    trained().save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"notes.txt", "char_bpe.json"}


def test_malformed_files_are_refused_with_file_and_place(tmp_path: Path) -> None:
    trained().save(tmp_path)
    path = tmp_path / "char_bpe.json"
    whole = path.read_text(encoding="utf-8")
    for old, new, message in [
        ('"format_version": 1', '"format_version": 2', "expected .* version 1"),
        ('"words": "whitespace"', '"words": "lines"', "expected one of 'whitespace'"),
        ('"words"', '"word"', "settings: expected the keys unk_token"),
        ('"th"', '"ht"', "no id for 'th'"),
        ('"merges": [[', '"merges": [["a"], [', "merges as pairs of texts"),
        ("{", "", "expected JSON"),
    ]:
        assert old in whole
        path.write_text(whole.replace(old, new, 1), encoding="utf-8")
        with pytest.raises(FormatError, match=message) as caught:
            CharBPETokenizer.load(tmp_path)
        assert str(tmp_path) in str(caught.value)
    with pytest.raises(FileNotFoundError):
        CharBPETokenizer.load(tmp_path / "nothing")


def test_the_output_of_a_build_is_loaded(tmp_path: Path) -> None:
    tokenizer = CharBPETokenizer()
    tokenizer.train(["low lower"], 20)
    tokenizer.save(tmp_path / "out" / "tokenizer")
    for source in (tmp_path / "out", tmp_path / "out" / "tokenizer"):
        assert CharBPETokenizer.load(source) == tokenizer
    assert tokenizer.vocab_size == len(tokenizer)
    with pytest.raises(FormatError, match=r"CharBPETokenizer\.load reads it"):
        BPETokenizer.load(tmp_path / "out")


def test_threads_may_share_a_tokenizer() -> None:
    tokenizer = trained()
    fresh = pickle.loads(pickle.dumps(tokenizer))  # nothing in it is made yet
    texts = [" ".join(random.Random(i).choices(SENTENCES.split(), k=50)) for i in range(200)]
    for method in ("merges", "longest_first", "left_to_right"):
        expected = [tokenizer.encode(text, method=method) for text in texts]
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(partial(fresh.encode, method=method), texts))
        assert found == expected


@pytest.mark.slow
@pytest.mark.parametrize("method", ["merges", "longest_first", "left_to_right"])
def test_long_texts_take_time_near_linear_in_their_length(method: Any) -> None:
    import time

    tokenizer = CharBPETokenizer.text_left_to_right()
    tokenizer.train("a" * 5000 + "b", 40, min_frequency=1)
    assert max(map(len, tokenizer.vocab)) > 1000
    tokenizer = CharBPETokenizer.from_vocab(
        tokenizer.vocab, tokenizer.merges, unk_token=None, end_of_word=None, words="whole_text"
    )

    def seconds(text: str) -> float:
        begun = time.perf_counter()
        ids = tokenizer.encode(text, method=method)
        taken = time.perf_counter() - begun
        assert tokenizer.decode(ids) == text
        return taken

    for unit in ("a" * 999 + "b", "ab", "a"):
        text = unit * (400_000 // len(unit))
        seconds(text[:1000])
        short, long = seconds(text), seconds(text * 8)
        assert long < 32 * short + 1, (unit, short, long)
