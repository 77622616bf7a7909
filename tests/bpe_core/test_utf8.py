from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from profiles import times

from bpe_core._native import utf8_valid_prefix
from bpe_core.buffers import to_utf8
from bpe_core.documents import read_documents, to_buffer

# Characters at the edges of what each length of UTF-8 can hold, and what is just beyond.
VALID = ["\x00", "\x7f", "\x80", "\u07ff", "\u0800", "\ud7ff", "\ue000", "\uffff", "\U00010000"]
VALID = [*VALID, "\U0003ffff", "\U00040000", "\U000fffff", "\U00100000", "\U0010ffff", "é", "漢"]
INVALID = [
    *(b"\x80", b"\xbf", b"\xc0\x80", b"\xc1\xbf", b"\xc2", b"\xdf\x7f", b"\xdf\xc0"),
    *(b"\xe0\x80\x80", b"\xe0\x9f\xbf", b"\xe1\x80", b"\xe1", b"\xe1\x80\xc0", b"\xef\x7f\xbf"),
    *(b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xf0\x80\x80\x80", b"\xf0\x8f\xbf\xbf", b"\xf1\x80\x80"),
    *(b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xf8\x88\x80\x80\x80", b"\xfe", b"\xff"),
]


def valid_prefix(data: bytes) -> int:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start
    return len(data)


@settings(max_examples=times(3))
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=8),
            st.text(max_size=40).map(str.encode),
            st.sampled_from(VALID).map(str.encode),
            st.tuples(st.sampled_from(["a", "é", "漢", "😀"]), st.integers(1, 80)).map(
                lambda run: (run[0] * run[1]).encode()
            ),
        ),
        max_size=12,
    ).map(b"".join)
)
@example(b"")
def test_the_valid_prefix_is_what_python_decodes(data: bytes) -> None:
    assert utf8_valid_prefix(data) == valid_prefix(data)


@pytest.mark.parametrize("filler", ["a", "é", "漢", "😀"])
def test_valid_and_invalid_sequences_are_told_apart_at_every_place(filler: str) -> None:
    for sequence in [*(c.encode() for c in VALID), *INVALID]:
        for offset in range(80):
            before = b"x" * (offset % 4) + (filler * offset).encode()
            for after in (b"", b"y" * 3, (filler * 40).encode()):
                data = before + sequence + after
                assert utf8_valid_prefix(data) == valid_prefix(data), data


@pytest.mark.slow
def test_every_character_is_valid_and_text_cut_inside_a_character_is_not() -> None:
    text = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)])).encode()
    assert utf8_valid_prefix(text) == len(text)
    rng = random.Random(7)
    for _ in range(300):
        start = rng.randrange(len(text) - 300)
        data = text[start:][: rng.randrange(300)]
        assert utf8_valid_prefix(data) == valid_prefix(data)


# Surrogates too: "\ud83d" and "\ude00" are a pair in this order alone.
CHARACTERS = [*VALID, "a", " ", "😀", "\ud83d", "\ude00", "\udbff", "\udfff"]


@settings(max_examples=times(3))
@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from(CHARACTERS), st.sampled_from([1, 1, 2, 7, 8, 9, 33])),
            max_size=8,
        ).map(lambda runs: "".join(character * n for character, n in runs))
        | st.binary(max_size=9),
        max_size=4,
    )
)
def test_texts_are_joined_in_utf8(texts: list[str | bytes]) -> None:
    buffer, offsets = to_buffer(read_documents(texts))  # type: ignore[arg-type]
    found = [bytes(buffer[begin:end]) for begin, end in pairwise(offsets)]
    assert found == list(map(to_utf8, texts))
    assert int(offsets[-1]) == len(buffer)


def test_texts_may_come_in_any_form() -> None:
    texts = ["é", b"b", bytearray(b"c"), memoryview(b"d")]
    for documents in (texts, tuple(texts[:3]), iter(texts)):
        buffer, offsets = to_buffer(read_documents(documents))  # type: ignore[arg-type]
        assert bytes(buffer) == b"\xc3\xa9bcd"[: int(offsets[-1])]
    with pytest.raises(TypeError, match="expected a text as str or bytes, found int"):
        to_buffer(read_documents(["a", 1]))  # type: ignore[list-item]
