from __future__ import annotations

import doctest

import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import times
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from bpe_core import reference
from bpe_core.errors import SpecialTokenError, UnknownTokenError
from bpe_core.patterns import PATTERNS
from bpe_core.reference import (
    apply_merges,
    build_vocab,
    count_pretokens,
    cut_places,
    decode,
    encode,
    encode_with_ranks,
    learn_merges,
    printable_stand_ins,
    split_documents,
    split_pretokens,
    split_special,
    train,
)

TEXT = (
    "The cat's hat sat on the mat that the cat had; the bat's hat, too.\n\n  naïve 日本 café 1234"
)
SPECIALS = ["<s>", "<s><s>", "<e>"]

texts = st.text(max_size=40)
mixed_texts = st.lists(
    st.sampled_from(
        [" ", "\n", "'", "s", "'ll", "A", "é", "́", "日本", "١", "7", "!?", "<s>", "<e>"]
    )
    | st.characters(codec="utf-8"),
    max_size=25,
).map("".join)


def test_examples_in_docstrings_hold() -> None:
    assert doctest.testmod(reference).failed == 0


# ---- documents


@pytest.mark.parametrize(
    ("data", "documents"),
    [
        (b"", []),
        (b"a", [b"a"]),
        (b"a||", [b"a"]),
        (b"||a", [b"", b"a"]),
        (b"a||||b", [b"a", b"", b"b"]),
        (b"||", [b""]),
        (b"a|b||c|", [b"a|b", b"c|"]),
        (b"a|||b", [b"a", b"|b"]),
    ],
)
def test_documents_stand_between_separators(data: bytes, documents: list[bytes]) -> None:
    assert split_documents(data, b"||") == documents


@given(st.lists(st.binary(max_size=4).map(lambda d: d.replace(b"\n", b"")), max_size=6))
def test_each_document_followed_by_a_separator_is_found_again(documents: list[bytes]) -> None:
    assert split_documents(b"".join(d + b"\n" for d in documents), b"\n") == documents


@pytest.mark.parametrize("separator", [b"", b"abab", b"aba", b"--x-"])
def test_separators_that_overlap_themselves_are_refused(separator: bytes) -> None:
    with pytest.raises(ValueError, match="separator: expected"):
        split_documents(b"text", separator)


# ---- pre-tokens


@given(mixed_texts)
def test_pieces_joined_are_the_text_and_special_ones_are_special_tokens(text: str) -> None:
    pieces = split_special(text, SPECIALS)
    assert "".join(piece for piece, _ in pieces) == text
    assert all((piece in SPECIALS) == is_special for piece, is_special in pieces)
    assert all(
        token not in piece for piece, is_special in pieces if not is_special for token in SPECIALS
    )


def test_special_tokens_are_found_leftmost_and_longest_first() -> None:
    assert split_special("xabcd", ["bcd", "ab", "abc"]) == [
        ("x", False),
        ("abc", True),
        ("d", False),
    ]
    assert split_special("<s><s><s>", SPECIALS) == [("<s><s>", True), ("<s>", True)]
    assert split_special("a.c", ["."]) == [("a", False), (".", True), ("c", False)]


@pytest.mark.parametrize("pattern", [*PATTERNS, r"\w+", r"\d*"])
@given(text=mixed_texts)
def test_pretokens_joined_are_the_text_and_none_is_empty(pattern: str, text: str) -> None:
    pretokens = split_pretokens(text, pattern)
    assert "".join(pretokens) == text
    assert all(pretokens)


def test_text_that_the_pattern_leaves_out_is_a_pretoken() -> None:
    assert split_pretokens("..ab..cd.", r"\w+") == ["..", "ab", "..", "cd", "."]


def test_pretokens_are_counted_between_special_tokens() -> None:
    counts = count_pretokens(["a<s>a a", "a"], special_tokens=SPECIALS)
    assert counts == {b"a": 3, b" a": 1}


# ---- learning


def test_merges_of_a_known_example() -> None:
    words = {b"low": 5, b"lower": 2, b"widest": 3, b"newest": 6}
    merges = learn_merges(words.items(), 268).merges
    found = ", ".join(f"{left.decode()} {right.decode()}" for left, right in merges)
    assert found == "s t, e st, o w, l ow, w est, n e, ne west, w i, wi d, wid est, low e, lowe r"


def test_first_seen_follows_the_text() -> None:
    # The example of Wikipedia's article on byte-pair encoding.
    learned = learn_merges([(b"aaabdaaabac", 1)], 259, tie_break="first_seen")
    assert learned.merges == [(b"a", b"a"), (b"aa", b"a"), (b"aaa", b"b")]
    # Once the first word is merged, the second holds the first occurrence of its pair.
    learned = learn_merges([(b"zz", 1), (b"ba", 1), (b"ab", 1)], 259, tie_break="first_seen")
    assert learned.merges == [(b"z", b"z"), (b"b", b"a"), (b"a", b"b")]


def test_tie_breaks_choose_differently() -> None:
    words = [(b"\xad!", 1), (b" a", 1), (b"b\xff", 1)]
    first = {
        tie_break: learn_merges(words, 257, tie_break=tie_break).merges[0]  # type: ignore[arg-type]
        for tie_break in ["lexicographic", "first_id", "huggingface", "first_seen"]
    }
    assert first == {
        "lexicographic": (b"\xad", b"!"),
        "first_id": (b" ", b"a"),
        "huggingface": (b"b", b"\xff"),
        "first_seen": (b"\xad", b"!"),
    }


def test_overlapping_pairs_count_twice_and_merge_once() -> None:
    learned = learn_merges([(b"aaa", 1)], 300)
    assert learned.merges == [(b"a", b"a"), (b"aa", b"a")]
    assert learned.counts == [2, 1]
    assert learned.stop_reason == "no_pairs_left"


def test_options_pass_pairs_over() -> None:
    words = [(b"abc", 5), (b"xy", 3)]
    assert learn_merges(words, 300, max_token_bytes=2).merges == [(b"b", b"c"), (b"x", b"y")]
    assert learn_merges(words, 258, forbidden_tokens=[b"bc"]).merges[0] == (b"a", b"b")
    learned = learn_merges(words, 300, min_frequency=4)
    assert learned.merges == [(b"b", b"c"), (b"a", b"bc")]
    assert learned.stop_reason == "below_min_frequency"


def test_ids_are_special_tokens_then_bytes_then_merges() -> None:
    vocab = build_vocab(["<s>", "ab"], [(b"a", b"b"), (b"b", b"c"), (b"ab", b"c"), (b"a", b"bc")])
    assert vocab[0] == b"<s>"
    assert vocab[1] == b"ab"
    assert [vocab[2 + byte] for byte in range(256)] == [bytes([byte]) for byte in range(256)]
    assert {i: token for i, token in vocab.items() if i >= 258} == {
        258: b"ab",
        259: b"bc",
        260: b"abc",
    }


def test_training_cuts_at_special_tokens_and_never_counts_them() -> None:
    vocab, merges = train(["<s>a<s>a<s>b", "ab"], 300, ["<s>"], pattern="none")
    assert merges == [(b"a", b"b")]
    assert vocab == build_vocab(["<s>"], merges)


def test_stand_ins_are_256_different_printable_characters() -> None:
    stand_ins = printable_stand_ins()
    assert sorted(stand_ins) == list(range(256))
    assert len(set(stand_ins.values())) == 256
    assert all(character.isprintable() for character in stand_ins.values())


# ---- ids

VOCAB, MERGES = train([TEXT], 300, SPECIALS)
SPECIAL_IDS = {token: i for i, token in enumerate(SPECIALS)}


@given(mixed_texts)
def test_decoding_gives_the_text_back(text: str) -> None:
    for allowed in ("all", "none", {"<e>"}):
        ids = encode(text, VOCAB, MERGES, SPECIAL_IDS, allowed_special=allowed)  # type: ignore[arg-type]
        assert decode(ids, VOCAB, errors="strict") == text


def test_special_token_policies() -> None:
    def special_ids(allowed: object) -> list[int]:
        ids = encode("<s><s> <e>", VOCAB, MERGES, SPECIAL_IDS, allowed_special=allowed)  # type: ignore[arg-type]
        return [i for i in ids if i < 3]

    assert special_ids("all") == [1, 2]
    assert special_ids("none") == []
    assert special_ids({"<s>"}) == [0, 0]
    assert special_ids(["<e>", "<not one>"]) == [2]
    with pytest.raises(SpecialTokenError, match="'<s>'"):
        special_ids("none_raise")
    assert encode("x", VOCAB, MERGES, SPECIAL_IDS, allowed_special="none_raise") == [3 + ord("x")]


def test_a_special_token_never_gives_ordinary_text_its_id() -> None:
    vocab = build_vocab(["ab", "c"], [(b"a", b"b")])
    special_tokens = {"ab": 0, "c": 1}
    assert encode("abc", vocab, [(b"a", b"b")], special_tokens) == [0, 1]
    ordinary = encode("abc", vocab, [(b"a", b"b")], special_tokens, allowed_special="none")
    assert ordinary == [258, 2 + ord("c")]


def test_unknown_bytes_and_ids_are_errors() -> None:
    with pytest.raises(UnknownTokenError, match=r"b'\\xc3'"):
        encode("é", {0: b"a"}, [], {})
    with pytest.raises(UnknownTokenError, match="found 7"):
        decode([0, 7], {0: b"a"})


def test_decoding_replaces_or_ignores_what_is_not_utf8() -> None:
    vocab = build_vocab([], [])
    assert decode([0xC3, 0x28], vocab) == "\ufffd("
    assert decode([0xC3, 0x28], vocab, errors="ignore") == "("
    with pytest.raises(UnicodeDecodeError):
        decode([0xC3, 0x28], vocab, errors="strict")


def test_the_lowest_rank_is_merged_first_and_the_leftmost_place() -> None:
    assert apply_merges(b"aaa", {(b"a", b"a"): 0}) == [b"aa", b"a"]
    # What a merge makes can be merged before the same pair's next place.
    ranks = {(b"a", b"a"): 1, (b"aa", b"a"): 0}
    assert apply_merges(b"aaaa", ranks) == [b"aaa", b"a"]


# Merges in any order that uses known tokens, so also orders that no training gives.
@st.composite
def merge_lists(draw: st.DrawFn) -> list[tuple[bytes, bytes]]:
    tokens = [b"a", b"b", b"c", b" "]
    merges = []
    for _ in range(draw(st.integers(0, 14))):
        pair = draw(st.sampled_from(tokens)), draw(st.sampled_from(tokens))
        if pair not in merges and len(pair[0] + pair[1]) <= 12:
            merges.append(pair)
            tokens.append(pair[0] + pair[1])
    return draw(st.permutations(merges))


@settings(max_examples=times(3))
@given(merges=merge_lists(), text=st.text("abc ", max_size=30))
def test_encoding_by_merges_equals_hugging_face(
    merges: list[tuple[bytes, bytes]], text: str
) -> None:
    vocab = build_vocab([], merges)
    stand_ins = printable_stand_ins()

    def shown(token: bytes) -> str:
        return "".join(stand_ins[byte] for byte in token)

    peer = Tokenizer(
        models.BPE(
            {shown(token): i for i, token in vocab.items()},
            [(shown(left), shown(right)) for left, right in merges],
        )
    )
    peer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    peer.decoder = decoders.ByteLevel()
    assert encode(text, vocab, merges, {}) == peer.encode(text).ids


@settings(max_examples=times(3))
@given(merges=merge_lists(), text=st.text("abc <s>", max_size=30))
def test_encoding_by_ranks_equals_tiktoken(merges: list[tuple[bytes, bytes]], text: str) -> None:
    ranks = {token: i for i, token in build_vocab([], merges).items()}
    special_tokens = {"<s>": len(ranks)}
    peer = tiktoken.Encoding(
        "peer", pat_str=PATTERNS["gpt2"], mergeable_ranks=ranks, special_tokens=special_tokens
    )
    assert encode_with_ranks(text, ranks, special_tokens) == peer.encode(
        text, allowed_special="all"
    )
    ordinary = encode_with_ranks(text, ranks, special_tokens, allowed_special="none")
    assert ordinary == peer.encode_ordinary(text)


@given(texts)
def test_of_learned_merges_ranks_of_tokens_and_of_pairs_give_the_same_ids(text: str) -> None:
    _, merges = train([TEXT], 300)
    vocab = build_vocab([], merges)
    ranks = {token: i for i, token in vocab.items()}
    assert encode(TEXT + text, vocab, merges, {}) == encode_with_ranks(TEXT + text, ranks, {})


def test_training_leaves_its_text_as_encoding_would() -> None:
    counts = count_pretokens([TEXT])
    learned = learn_merges(counts.items(), 290)
    ranks = {pair: rank for rank, pair in enumerate(learned.merges)}
    words = [([bytes([byte]) for byte in word], n) for word, n in counts.items()]
    for pair in learned.merges:
        for word, _ in words:
            reference.merge_pair(word, pair, pair[0] + pair[1])
    assert [word for word, _ in words] == [apply_merges(word, ranks) for word in counts]


# ---- long documents


@pytest.mark.parametrize("pattern", [name for name in PATTERNS if name != "none"])
@settings(max_examples=times(3))
@given(text=mixed_texts)
def test_pieces_between_cut_places_have_the_pretokens_of_the_whole(pattern: str, text: str) -> None:
    def pretokens(text: str) -> list[str]:
        return [
            pretoken
            for piece, is_special in split_special(text, SPECIALS)
            for pretoken in ([piece] if is_special else split_pretokens(piece, pattern))
        ]

    whole = pretokens(text)
    for place in cut_places(text, SPECIALS):
        assert pretokens(text[:place]) + pretokens(text[place:]) == whole


def test_no_place_is_within_a_special_token() -> None:
    assert cut_places("ab c d.e", ["b c", "d.e"]) == [4]
    assert cut_places("a<s>b", ["<s>"]) == [1]
    assert cut_places("é́ d'e", []) == []
