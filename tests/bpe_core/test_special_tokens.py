"""Special tokens: which are accepted, and where they are found."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import times

from bpe_core import CharBPETokenizer, count_pretokens, reference, train_from_counts
from bpe_core._native import SpecialSet
from bpe_core.errors import SpecialTokenError
from bpe_core.special_tokens import check_special_tokens, special_set, split_special_tokens

# Tokens that begin, end and hold one another, over few letters.
tokens = st.lists(st.text("ab<é", min_size=1, max_size=4), unique=True, max_size=6)
few_letters = st.text("ab<é", max_size=40)


@settings(max_examples=times(5))
@given(text=few_letters, special=tokens)
def test_tokens_are_found_where_the_reference_finds_them(text: str, special: list[str]) -> None:
    expected = reference.split_special(text, special)
    found = split_special_tokens(text.encode(), special_set(special))
    assert [(part.decode(), is_special) for part, is_special in found] == expected


@given(text=few_letters, special=tokens)
def test_places_are_of_the_token_that_is_named(text: str, special: list[str]) -> None:
    data = text.encode()
    for begin, end, index in special_set(special).find_all(data):
        assert data[begin:end].decode() == special[index]


@given(documents=st.lists(few_letters, max_size=5), special=tokens)
def test_the_first_in_each_document_is_found(documents: list[str], special: list[str]) -> None:
    data = "".join(documents).encode()
    ends = np.cumsum([len(document.encode()) for document in documents]).astype(np.int64)
    starts = np.array([0, *ends[:-1]][: len(ends)], np.int64)
    found = special_set(special).find_first(data, starts, ends).tolist()
    for document, place in zip(documents, found, strict=True):
        matches = special_set(special).find_all(document.encode())
        assert place == (matches[0][0] if matches else -1)


@pytest.mark.parametrize("order", [1, -1])
def test_the_leftmost_and_then_the_longest_is_taken(order: int) -> None:
    special = ["<s>", "<s><s>", "<", "s><"][::order]
    assert split_special_tokens(b"x<s><s><s>s><", special_set(special)) == [
        (b"x", False),
        (b"<s><s>", True),
        (b"<s>", True),
        (b"s><", True),
    ]


def test_text_without_tokens_is_one_part() -> None:
    assert split_special_tokens(b"abc", special_set([])) == [(b"abc", False)]
    assert split_special_tokens(b"abc", special_set(["abcd", "bd"])) == [(b"abc", False)]
    assert split_special_tokens(b"", special_set(["a"])) == []


def test_tokens_may_be_any_text() -> None:
    special = ["\x00", "é", "a.c", "[x]*", "\U0010ffff", "é" * 300]
    for token in special:
        assert split_special_tokens(f"-{token}-".encode(), special_set(special))[1] == (
            token.encode(),
            True,
        )


def test_many_tokens_are_told_apart() -> None:
    special = [f"<|{i}|>" for i in range(5000)]
    text = "".join(f"{i}<|{i}|>" for i in range(0, 5000, 7))
    assert split_special_tokens(text.encode(), special_set(special)) == [
        part
        for i in range(0, 5000, 7)
        for part in [(str(i).encode(), False), (f"<|{i}|>".encode(), True)]
    ]


@pytest.mark.slow
def test_time_grows_with_the_number_of_special_tokens_and_not_with_its_square() -> None:
    def seconds(number: int) -> float:
        special = [f"<|{i}|>" for i in range(number)]
        texts = [f"a{token}b" for token in special]
        start = time.process_time()
        for pattern in ("gpt2", r"[a-z]+|\W"):
            counts = count_pretokens(texts, pattern=pattern, special_tokens=special)
            trained = train_from_counts(counts, 256 + number, special)
            more = [f"{token}+" for token in special]
            with pytest.warns(UserWarning, match="made without"):
                base = trained.tokenizer()
                extended = train_from_counts(counts, 256 + 2 * number, more, base=base)
            assert extended.tokenizer().count_tokens_batch(texts).sum() == 3 * number
        characters = CharBPETokenizer(special_tokens=special, lowercase=True)
        characters.train(texts, number + 4)
        assert len(characters.encode("".join(texts))) == 4 * number + 1
        return time.process_time() - start

    small, large = (min(seconds(number) for _ in range(2)) for number in (500, 4_000))
    assert large < 25 * small, (small, large)


def test_tokens_are_kept_in_the_order_given() -> None:
    assert check_special_tokens(["b", "a", "é"]) == ("b", "a", "é")
    assert check_special_tokens({"b": 1, "a": 0}) == ("b", "a")
    assert check_special_tokens(iter(["a"])) == ("a",)
    assert check_special_tokens([]) == ()


@pytest.mark.parametrize(
    ("special", "message"),
    [
        (["a", ""], "not empty, found ''"),
        (["a", "b", "a"], "each once, found 'a' twice"),
        (["\ud800"], "lone surrogate"),
        (["a", 5], "found 5"),
        ([b"a"], "found b'a'"),
        ("abc", "put it into a list"),
    ],
)
def test_unusable_tokens_are_refused(special: list[str], message: str) -> None:
    with pytest.raises(SpecialTokenError, match=message):
        check_special_tokens(special)


def test_native_misuse_is_refused() -> None:
    for native_tokens, ids in [([b""], [0]), ([b"a", b"a"], [0, 1]), ([b"a"], []), ([], [1])]:
        with pytest.raises(ValueError):
            SpecialSet(native_tokens, ids)
    with pytest.raises(ValueError):
        SpecialSet([b"a"], [0]).find_first(b"abc", np.array([0]), np.array([4]))
    assert SpecialSet([b"a", b"\xff"], [7, 9]).ids == [7, 9]
    assert SpecialSet([b"\xff"], [0]).find_all(b"a\xff\xff") == [(1, 2, 0), (2, 3, 0)]
