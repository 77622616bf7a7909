"""Separators, the look at each document, xxh3-128 and the places where a document may be cut."""

from __future__ import annotations

import itertools
import random
import unicodedata

import numpy as np
import pytest
import xxhash
from hypothesis import example, given, settings
from hypothesis import strategies as st
from profiles import times

from bpe_core import _native, reference

SEPARATORS = [b"\n", b"\n\n", b"|", b"<|endoftext|>", "§é".encode(), b"\xff\xfe", b"\n\n\n"]
NATIVE_PATTERNS = ["gpt2", "cl100k", "o200k", "qwen2"]
SPECIALS = ["<|a|>", "<|a|>b", "b c", "aé", "中 "]

# Letters (cased, combining, Chinese, titlecase), marks, digits, apostrophes, white space, the rest.
CHARACTERS = "abZéñſǅ中文יक\u0301\u0940\u200d'’ \n\t19٣<|>.😀\u00a0"
texts = st.text(CHARACTERS, max_size=60)


def special_set(tokens: list[str]) -> _native.SpecialSet:
    return _native.SpecialSet([token.encode() for token in tokens], range(len(tokens)))


# --- xxh3


def test_xxh3_equals_the_reference_library_for_every_length_of_every_code_path() -> None:
    data = random.Random(1).randbytes(2101)
    for size in range(2101):
        high, low = _native.xxh3_128(data[:size])
        assert high << 64 | low == xxhash.xxh3_128_intdigest(data[:size]), size


@pytest.mark.parametrize("size", [4096, 4097, 65535, 1 << 20, (1 << 20) + 1023])
def test_xxh3_equals_the_reference_library_for_large_unaligned_inputs(size: int) -> None:
    data = memoryview(random.Random(size).randbytes(size + 7))
    for shift in (0, 1, 7):
        high, low = _native.xxh3_128(data[shift : shift + size])
        assert high << 64 | low == xxhash.xxh3_128_intdigest(data[shift : shift + size])


# --- separators


@pytest.mark.parametrize("separator", SEPARATORS)
def test_useful_separators_are_accepted(separator: bytes) -> None:
    assert _native.separator_problem(separator) is None


@pytest.mark.parametrize("separator", [b"", b"abab", b"aba", b"\n-\n", b"<|x|><"])
def test_separators_that_are_empty_or_overlap_themselves_are_refused(separator: bytes) -> None:
    assert _native.separator_problem(separator)


SETS = [
    [b"\n", b"\r\n"],
    [b"||", b"|||"],
    [b"ab", b"abc", b"xaby", b"de"],
    [b"<|a|>", b"<|b|>"],
    [b"\n\n", b"=="],
]


@pytest.mark.parametrize("separators", SETS)
def test_several_separators_may_lie_inside_each_other(separators: list[bytes]) -> None:
    assert _native.separator_problem(separators) is None
    assert _native.separator_problem(separators[::-1]) is None


@pytest.mark.parametrize(
    "separators",
    [
        [],
        [b"a", b""],
        [b"ab", b"bc"],
        [b"\r\n", b"\n\n"],
        [b"\n\n", b"a\n\nb"],
        [b"x", b"aba"],
    ],
)
def test_several_separators_that_can_overlap_are_refused(separators: list[bytes]) -> None:
    assert _native.separator_problem(separators)
    assert _native.separator_problem(separators[::-1])
    with pytest.raises(ValueError, match="separator"):
        reference.split_documents(b"", separators)


@given(st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=3), st.text("ab"))
def test_what_the_reference_refuses_is_refused_and_the_rest_split_alike(
    texts: list[str], text: str
) -> None:
    separators = [text.encode() for text in texts]
    data = text.encode()
    if _native.separator_problem(separators) is not None:
        with pytest.raises(ValueError, match="separator"):
            reference.split_documents(data, separators)
        return
    documents = [document for document in reference.split_documents(data, separators) if document]
    assert split_all(data, separators) == documents


def split_all(data: bytes, separators: list[bytes]) -> list[bytes]:
    """All documents, with the data shown one byte more at a time."""
    found: list[bytes] = []
    rest = resume = 0
    for size in range(len(data) + 1):
        starts, ends, _, rest, resume, _ = _native.split_documents(
            data[:size], separators, rest, resume, 1 << 60, 1 << 60, 1 << 60, size == len(data)
        )
        found += [data[a:b] for a, b in zip(starts, ends, strict=True)]
    return found + ([data[rest:]] if data[rest:] else [])


@given(
    st.sampled_from(SETS).flatmap(
        lambda separators: st.tuples(
            st.just(separators),
            st.lists(
                st.sampled_from([*separators, *[s[:1] for s in separators], b"x", b"xy" * 40])
            ).map(b"".join),
        )
    )
)
def test_of_several_separators_the_leftmost_counts_at_one_place_the_longest(
    case: tuple[list[bytes], bytes],
) -> None:
    separators, data = case
    expected = reference.split_documents(data, separators)
    assert split_all(data, separators) == [document for document in expected if document]
    documents, empty, rest, _, _ = split(data, separators)
    assert empty == expected.count(b"")
    assert documents + ([data[rest:]] if data[rest:] else []) == [d for d in expected if d]


def python_separators(data: bytes, separator: bytes, start: int) -> list[int]:
    begins = []
    while (start := data.find(separator, start)) >= 0:
        begins.append(start)
        start += len(separator)
    return begins


@given(
    st.sampled_from(SEPARATORS).flatmap(
        lambda separator: st.tuples(
            st.just(separator),
            st.lists(
                st.sampled_from([separator, separator[:1], separator[-1:], b"x", b"xy" * 40]),
                max_size=40,
            ).map(b"".join),
        )
    ),
    st.integers(0, 100),
    st.integers(0, 10),
)
def test_separators_are_those_that_a_plain_search_finds(
    case: tuple[bytes, bytes], start: int, limit: int
) -> None:
    separator, data = case
    expected = python_separators(data, separator, start)
    begins, ends = _native.find_separators(data, separator, start, 10**9)
    assert begins.tolist() == expected
    assert (ends - begins).tolist() == [len(separator)] * len(expected)
    begins, _ = _native.find_separators(data, separator, start, limit)
    assert begins.tolist() == expected[:limit]


def split(
    data: bytes,
    separator: bytes | list[bytes],
    start: int = 0,
    search_from: int | None = None,
    begin_before: int = 1 << 60,
    max_bytes: int = 1 << 60,
    max_documents: int = 1 << 60,
) -> tuple[list[bytes], int, int, int, bool]:
    starts, ends, empty, rest, resume, stopped = _native.split_documents(
        data,
        separator,
        start,
        start if search_from is None else search_from,
        begin_before,
        max_bytes,
        max_documents,
    )
    documents = [data[a:b] for a, b in zip(starts, ends, strict=True)]
    return documents, empty, rest, resume, stopped


@given(
    st.sampled_from(SEPARATORS).flatmap(
        lambda separator: st.tuples(
            st.just(separator),
            st.lists(st.sampled_from([separator, separator[:1], b"x", b"yz"]), max_size=40).map(
                b"".join
            ),
        )
    ),
    st.integers(1, 5),
)
def test_splitting_in_steps_gives_the_documents_of_the_reference(
    case: tuple[bytes, bytes], max_documents: int
) -> None:
    separator, data = case
    found: list[bytes] = []
    empty = rest = resume = 0
    stopped = True
    while stopped:
        documents, more_empty, rest, resume, stopped = split(
            data, separator, rest, resume, max_documents=max_documents
        )
        assert len(documents) + more_empty <= max_documents
        found += documents
        empty += more_empty
    if data[rest:]:
        found.append(data[rest:])
    expected = reference.split_documents(data, separator)
    assert found == [document for document in expected if document]
    assert empty == expected.count(b"")
    assert resume >= rest
    assert data.find(separator, rest) < 0


def test_documents_that_begin_at_the_limit_or_later_are_left_alone() -> None:
    assert split(b"aa|bb|cc|", b"|", begin_before=3) == ([b"aa"], 0, 3, 3, False)
    assert split(b"aa|bb|cc|", b"|", begin_before=4) == ([b"aa", b"bb"], 0, 6, 6, False)


def test_a_document_that_is_too_long_is_left_alone_with_all_after_it() -> None:
    documents, empty, rest, resume, stopped = split(b"aa||bbb|cc|", b"|", max_bytes=2)
    assert (documents, empty, rest, stopped) == ([b"aa"], 1, 4, False)
    assert resume == 4


def test_the_search_resumes_where_a_cut_separator_may_begin() -> None:
    assert split(b"aa<|b", b"<|>")[2:4] == (0, 3)
    assert split(b"aa<|>b", b"<|>")[2:4] == (5, 5)


def test_splitting_refuses_what_is_no_place_in_the_data() -> None:
    with pytest.raises(ValueError, match="start <= size"):
        split(b"abc", b"|", start=4)
    with pytest.raises(ValueError, match="start <= size"):
        split(b"abc", b"|", start=2, search_from=1)
    with pytest.raises(ValueError, match="empty"):
        split(b"abc", b"")


# --- the look at each document


def valid_prefix(text: bytes) -> int:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return error.start
    return len(text)


byte_strings = st.lists(
    st.sampled_from(
        [b"a", b"bcdefgh" * 5, "é".encode(), "中".encode(), "😀".encode(), b"\xff", b"\xe4\xb8"]
    ),
    max_size=8,
).map(b"".join)


@given(st.lists(byte_strings, max_size=12), st.sampled_from([b"", b"|", b"\x80", b"\xe4"]))
@example([b"\xe4\xb8", b"\xad"], b"")  # each half of a character is invalid by itself
def test_each_document_is_checked_and_hashed_by_itself(
    documents: list[bytes], between: bytes
) -> None:
    data = between.join(documents)
    lengths = np.array([len(document) for document in documents], np.int64)
    ends = np.cumsum(lengths) + len(between) * np.arange(len(documents))
    valid, hashes = _native.scan_documents(data, ends - lengths, ends)
    assert valid.tolist() == [valid_prefix(document) for document in documents]
    assert hashes.shape == (len(documents), 2)
    for (high, low), document in zip(hashes.tolist(), documents, strict=True):
        assert high << 64 | low == xxhash.xxh3_128_intdigest(document)


def test_many_short_documents_around_an_invalid_one_keep_their_verdicts() -> None:
    documents = ["né ".encode() * 20] * 3000
    documents[1234] = b"x\xffy"
    data = b"\n".join(documents)
    lengths = np.array([len(document) for document in documents], np.int64)
    ends = np.cumsum(lengths) + np.arange(len(documents))
    valid, _ = _native.scan_documents(data, ends - lengths, ends)
    assert np.flatnonzero(valid != lengths).tolist() == [1234]
    assert valid[1234] == 1


def test_documents_may_overlap_and_stand_in_any_order() -> None:
    data = "aé中".encode()
    starts, ends = np.array([1, 0, 2, 0]), np.array([3, 6, 6, 2])
    valid, _ = _native.scan_documents(data, starts, ends)
    assert valid.tolist() == [2, 6, 0, 1]


@pytest.mark.parametrize(("start", "end"), [(-1, 1), (2, 1), (0, 5)])
def test_documents_outside_of_the_data_are_refused(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="document 0"):
        _native.scan_documents(b"abcd", np.array([start]), np.array([end]))


# --- cuts


def special_spans(text: bytes, tokens: list[bytes]) -> list[tuple[int, int]]:
    spans, at = [], 0
    while at < len(text):
        lengths = [len(token) for token in tokens if text.startswith(token, at)]
        if lengths:
            spans.append((at, at + max(lengths)))
        at += max(lengths, default=1)
    return spans


def cut_places(text: str, tokens: list[str]) -> list[int]:
    """Every place, in bytes, where the rule of the design allows a cut."""
    spans = special_spans(text.encode(), [token.encode() for token in tokens])
    places, at = [], 0
    for before, after in itertools.pairwise(text):
        at += len(before.encode())
        follows = unicodedata.category(after)[0] in "LM" or after == "'"
        if unicodedata.category(before)[0] == "L" and not follows:
            places.append(at)
    return [place for place in places if not any(a < place < b for a, b in spans)]


def expected_cut(text: str, limit: int, tokens: list[str]) -> int | None:
    places = cut_places(text, tokens)
    before = [place for place in places if place <= limit]
    after = [place for place in places if place > limit]
    return max(before) if before else min(after, default=None)


some_specials = st.lists(st.sampled_from(SPECIALS), unique=True)


@given(texts, st.integers(0, 80), some_specials)
def test_a_cut_is_the_last_place_before_the_limit_or_the_first_after_it(
    text: str, limit: int, tokens: list[str]
) -> None:
    found = _native.safe_cut(text.encode(), True, limit, special_set(tokens))
    assert found == expected_cut(text, limit, tokens)


@given(texts, st.integers(0, 60), some_specials, st.data())
def test_a_cut_does_not_depend_on_how_much_is_read(
    text: str, limit: int, tokens: list[str], data: st.DataObject
) -> None:
    raw, specials = text.encode(), special_set(tokens)
    least = limit + _native.cut_lookahead(specials)
    whole = _native.safe_cut(raw, True, limit, specials)
    if len(raw) > least:
        size = data.draw(st.integers(least, len(raw)))
        seen = _native.safe_cut(raw[:size], False, limit, specials)
        assert seen == whole or (seen is None and (whole is None or whole > limit))


@given(st.lists(st.sampled_from(["a", "é", "中", "\xff", "\u0301", "'", " "]), max_size=30))
def test_bytes_that_are_not_utf8_are_cut_only_around_whole_characters(parts: list[str]) -> None:
    raw = b"".join(part.encode("latin-1" if part == "\xff" else "utf-8") for part in parts)
    for broken in (raw, raw[1:], raw[:-1]):
        for limit in range(len(broken) + 1):
            cut = _native.safe_cut(broken, True, limit, special_set([]))
            if cut is not None:
                pieces = broken[:cut], broken[cut:]
                repaired = "".join(piece.decode("utf-8", "replace") for piece in pieces)
                assert repaired == broken.decode("utf-8", "replace")


def test_no_cut_is_between_a_letter_and_bytes_that_a_scanner_reads_as_one() -> None:
    """The bytes C1 B4 are an overlong form of the letter t."""
    raw = b"K\xc1\xb4"
    assert _native.split_pretokens("o200k", raw).tolist() == [3]
    assert _native.safe_cut(raw, True, 2, special_set([])) is None


def test_a_cut_needs_to_see_far_enough_ahead() -> None:
    specials = special_set(["<|endoftext|>"])
    assert _native.cut_lookahead(specials) == len("<|endoftext|>") - 1
    assert _native.cut_lookahead(special_set([])) == 4
    with pytest.raises(ValueError, match="expected at least"):
        _native.safe_cut(b"a" * 17, False, 6, specials)
    assert _native.safe_cut(b"a" * 18, False, 6, specials) is None


@pytest.mark.parametrize("letter", ["é", "字"])
def test_bytes_before_a_text_are_not_part_of_it(letter: str) -> None:
    """The text begins with continuation bytes; with the byte before it they are a letter."""
    whole = memoryview(f"{letter} xa b".encode())
    first = len(letter.encode()) - 1
    assert _native.safe_cut(whole, True, first + 1, special_set([])) == first + 1
    assert _native.safe_cut(whole[1:], True, first, special_set([])) == first + 3


def test_a_cut_may_touch_a_special_token_but_not_split_it() -> None:
    specials = special_set(["a b"])
    assert _native.safe_cut(b"xa b c", True, 3, specials) == 4
    assert _native.safe_cut(b"x a b", True, 4, specials) == 1


@pytest.mark.parametrize("pattern", NATIVE_PATTERNS)
@settings(max_examples=times(1.5))
@given(text=texts.filter(bool), limit=st.integers(0, 40))
def test_cutting_changes_no_pretoken(pattern: str, text: str, limit: int) -> None:
    raw = text.encode()
    whole = _native.split_pretokens(pattern, raw).tolist()
    start, ends = 0, []
    while start < len(raw):
        cut = _native.safe_cut(raw[start:], True, limit, special_set([]))
        end = len(raw) if cut is None else start + cut
        ends += [start + place for place in _native.split_pretokens(pattern, raw[start:end])]
        start = end
    assert ends == whole


@pytest.mark.slow
@pytest.mark.parametrize("pattern", NATIVE_PATTERNS)
def test_every_cut_place_of_random_text_is_a_boundary_of_every_pattern(pattern: str) -> None:
    generator = random.Random(5)
    for _ in range(3000):
        text = "".join(generator.choices(CHARACTERS + "sStTreveLldDmM", k=40))
        ends = set(_native.split_pretokens(pattern, text.encode()).tolist())
        assert ends.issuperset(cut_places(text, [])), text
