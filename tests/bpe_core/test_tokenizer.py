"""BPETokenizer: the ids of tiktoken, of Hugging Face and of the reference, in every form."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from core_support import (
    FRAGMENTS,
    NATIVE_PATTERNS,
    SPECIALS,
    huggingface_tokenizer,
    joined,
    parts_of,
    published_tokenizer,
    texts,
    tiktoken_encoding,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import seldom, times

from bpe_core import BPETokenizer, reference, streaming
from bpe_core.errors import (
    InvalidPatternError,
    InvalidTokenizerError,
    InvalidUtf8Error,
    SpecialTokenError,
    UnknownTokenError,
)
from bpe_core.patterns import PATTERNS

BYTES = {i: bytes([i]) for i in range(256)}
END = "<|endoftext|>"

# Merges in any order that uses known tokens: also orders that no training gives, several merges
# that make the same bytes, and tokens that their own bytes do not reach.
Merges = list[tuple[bytes, bytes]]


@st.composite
def merge_lists(draw: st.DrawFn) -> Merges:
    tokens = [b"a", b"b", b"<", b"s", b" ", b"t", b"h", b"e", *"é日".encode().splitlines()]
    tokens += [bytes([byte]) for byte in "é日".encode()]
    tokens = [token for token in dict.fromkeys(tokens) if len(token) == 1]
    merges: dict[tuple[bytes, bytes], None] = {}
    for _ in range(draw(st.integers(0, 14))):
        pair = draw(st.sampled_from(tokens)), draw(st.sampled_from(tokens))
        if len(pair[0] + pair[1]) <= 12:
            merges[pair] = None
            tokens.append(pair[0] + pair[1])
    return draw(st.permutations(list(merges)))


few_letters = st.lists(
    st.sampled_from(["a", "b", "ab", "the", " the", " ", "<s>", "<s", "s>", "é", "日", "x"]),
    max_size=30,
).map("".join)


def trained(pattern: str = "gpt2") -> BPETokenizer:
    text = (
        " ".join(FRAGMENTS * 3) + "the thesis of this theatre, that those thieves 日本 日本 1234 12"
    )
    vocab, merges = reference.train([text], 320, SPECIALS, pattern=pattern)
    return BPETokenizer(vocab, merges, SPECIALS, pattern=pattern)


# ---- equal to tiktoken


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "text"),
    seldom(product(["r50k", "cl100k", "o200k"], ["prose", "multilingual"]), 3),
)
def test_ids_equal_those_of_tiktoken_on_a_sample(
    name: str,
    text: str,
    shared_text: Callable[..., bytes],
    published_vocabulary: Callable[[str], Path],
) -> None:
    path = published_vocabulary(name)
    peer = tiktoken_encoding(name, str(path))
    documents = shared_text(text, times(20_000)).split(END.encode())
    ours = published_tokenizer(name, str(path))
    found = parts_of(*ours.encode_batch_to_numpy(documents))
    assert found == peer.encode_ordinary_batch([d.decode() for d in documents], num_threads=2)
    assert [ours.decode_bytes(ids) for ids in found] == documents
    some = documents[0].decode()[:3000] + END + " \n\n" + END
    assert ours.encode(some) == peer.encode(some, allowed_special="all")
    assert ours.encode_ordinary(some) == peer.encode_ordinary(some)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["r50k", "cl100k", "o200k"])
def test_ids_equal_those_of_tiktoken_on_random_text(
    name: str, published_vocabulary: Callable[[str], Path]
) -> None:
    path = published_vocabulary(name)
    peer = tiktoken_encoding(name, str(path))
    ours = published_tokenizer(name, str(path))
    specials = [*peer._special_tokens, "<|endoftext", "|>"]

    @given(text=st.lists(texts | st.sampled_from([*specials, "\n  \n ", "    "])).map("".join))
    def check(text: str) -> None:
        assert ours.encode(text) == peer.encode(text, allowed_special="all")
        assert ours.encode_ordinary(text) == peer.encode_ordinary(text)

    check()


# ---- equal to Hugging Face


@pytest.mark.slow
def test_ids_equal_those_of_the_exported_tokenizer_json(
    kjv_tokenizer: BPETokenizer, kjv_documents: list[bytes], tmp_path: Path
) -> None:
    kjv_tokenizer.save(tmp_path)
    peer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    documents = [document.decode() for document in kjv_documents[::10]]
    documents += ["".join(FRAGMENTS), f"a{END} {END}\n\nb", " ".join(reversed(FRAGMENTS))]
    found = parts_of(*kjv_tokenizer.encode_batch_to_numpy(documents))
    assert found == [encoding.ids for encoding in peer.encode_batch(documents)]
    read_back = BPETokenizer.from_huggingface(tmp_path / "tokenizer.json")
    assert parts_of(*read_back.encode_batch_to_numpy(documents)) == found


@settings(max_examples=times(2))
@given(merges=merge_lists(), text=few_letters)
def test_ids_of_any_merges_equal_those_of_hugging_face(merges: Merges, text: str) -> None:
    vocab = reference.build_vocab([], merges)
    peer = huggingface_tokenizer(vocab, merges)
    assert BPETokenizer(vocab, merges).encode(text) == peer.encode(text).ids


# ---- equal to the reference


@pytest.mark.parametrize("pattern", [*NATIVE_PATTERNS, PATTERNS["o200k"] + "|(?!)", r"\w+"])
def test_ids_of_any_text_equal_the_reference(pattern: str) -> None:
    ours = trained(pattern)

    @settings(max_examples=times(0.6))
    @given(text=texts, allowed=st.sampled_from(["all", "none", {"<s>"}, {"s><", "<e>"}, set()]))
    def check(text: str, allowed: Any) -> None:
        expected = reference.encode(
            text,
            ours.vocab,
            ours.merges,
            ours.special_tokens,
            pattern=pattern,
            allowed_special=allowed,
        )
        assert ours.encode(text, allowed) == expected
        assert ours.encode(text.encode(), allowed) == expected
        assert ours.encode_to_numpy(text, allowed).tolist() == expected
        assert parts_of(*ours.encode_batch_to_numpy([text], allowed_special=allowed)) == [expected]
        assert ours.decode(expected, errors="strict") == text
        assert ours.decode_bytes(np.array(expected, np.uint16)) == text.encode()

    check()


@pytest.mark.slow
@settings(max_examples=times(2))
@given(
    merges=merge_lists(),
    text=few_letters,
    special=st.lists(st.sampled_from(["ab", "a", "<s>", "the", "é"]), unique=True),
    pattern=st.sampled_from(["gpt2", "none", r"\w+"]),
    shuffle=st.randoms(),
)
def test_ids_of_any_vocabulary_equal_the_reference(
    merges: Merges, text: str, special: list[str], pattern: str, shuffle: random.Random
) -> None:
    ordinary = list(reference.build_vocab([], merges).values())
    ids = shuffle.sample(range(5000), len(ordinary))
    vocab = dict(zip(ids, ordinary, strict=True))
    ours = BPETokenizer(vocab, merges, special, pattern=pattern)
    assert ours.special_tokens == {token: max(ids) + 1 + i for i, token in enumerate(special)}
    for allowed in ("all", "none"):
        expected = reference.encode(
            text,
            ours.vocab,
            merges,
            ours.special_tokens,
            pattern=pattern,
            allowed_special=allowed,  # type: ignore[arg-type]
        )
        assert ours.encode(text, allowed) == expected  # type: ignore[arg-type]
        assert ours.decode(expected) == text


@given(
    text=st.text("abx<s>é", max_size=20), missing=st.sets(st.sampled_from(b"ax\xc3"), min_size=1)
)
@pytest.mark.parametrize("pattern", ["gpt2", r"\w+"])
def test_bytes_without_an_id_are_named_or_unknown(
    pattern: str, text: str, missing: set[int]
) -> None:
    vocab = {i: token for i, token in BYTES.items() if i not in missing} | {300: b"bb"}
    merges = [(b"b", b"b")]
    strict = BPETokenizer(vocab, merges, {"<s>": 301}, pattern=pattern)
    lenient = BPETokenizer(vocab, merges, {"<s>": 301}, pattern=pattern, unknown_id=999)
    complete = BPETokenizer(BYTES | {300: b"bb"}, merges, {"<s>": 301}, pattern=pattern)
    expected = complete.encode(text)
    assert lenient.encode(text) == [999 if i in missing else i for i in expected]
    unknown = [i for i in expected if i in missing]
    if unknown:
        for encode in (strict.encode, strict.encode_to_numpy, strict.count_tokens):
            with pytest.raises(UnknownTokenError, match=r"byte 0x(61|78|C3) of the text"):
                encode(text)
    else:
        assert strict.encode(text) == expected


@pytest.mark.slow
def test_a_whole_corpus_decodes_to_its_bytes(
    kjv_tokenizer: BPETokenizer, kjv: bytes, kjv_documents: list[bytes]
) -> None:
    ids, offsets = kjv_tokenizer.encode_batch_to_numpy(kjv_documents)
    for document, found in zip(kjv_documents, parts_of(ids, offsets), strict=True):
        assert kjv_tokenizer.decode_bytes(found) == document
    # Its separators are special tokens.
    whole = kjv_tokenizer.encode(kjv)
    assert kjv_tokenizer.decode_bytes(whole) == kjv
    assert [i for i in whole if i] == ids.tolist()
    assert len(ids) < len(kjv) / 3


@pytest.mark.slow
def test_encoding_merges_as_training_did(kjv_documents: list[bytes]) -> None:
    text = b"".join(kjv_documents[:30]).decode()
    vocab, merges = reference.train([text], 400)
    ours = BPETokenizer(vocab, merges)
    assert ours.encode(text) == reference.encode(text, vocab, merges, {})


# ---- special tokens


def test_special_tokens_become_ids_as_allowed() -> None:
    ours = BPETokenizer(BYTES, [], ["<s>", "<s><s>", "é"])
    assert ours.special_tokens == {"<s>": 256, "<s><s>": 257, "é": 258}
    text = "<s><s><s>é"
    assert ours.encode(text) == [257, 256, 258]
    assert ours.encode(text, {"<s>"}) == [256, 256, 256, *"é".encode()]
    assert ours.encode(text, frozenset({"é"})) == [*b"<s><s><s>", 258]
    assert ours.encode(text, set()) == ours.encode(text, "none") == list(text.encode())
    assert ours.encode_ordinary(text) == list(text.encode())
    with pytest.raises(SpecialTokenError, match=r"byte 1 of the text: .* found '<s><s>'"):
        ours.encode("x<s><s>", "none_raise")
    assert ours.encode("<s", "none_raise") == [60, 115]


@pytest.mark.parametrize(
    "allowed", ["some", None, ["<s>"], ("<s>",), {"<t>"}, {"<s>", "<t>"}, True]
)
def test_other_values_for_allowed_special_are_refused(allowed: Any) -> None:
    ours = BPETokenizer(BYTES, [], ["<s>"])
    for encode in (ours.encode, ours.encode_to_numpy):
        with pytest.raises(SpecialTokenError, match="allowed_special: expected"):
            encode("a<s>", allowed)


def test_none_raise_looks_within_documents_alone() -> None:
    ours = BPETokenizer(BYTES, [], ["<s>"])
    documents = ["a<", "s>", "", "<s"]
    expected = [list(document.encode()) for document in documents]
    assert (
        parts_of(*ours.encode_batch_to_numpy(documents, allowed_special="none_raise")) == expected
    )
    data = np.frombuffer(b"<s>ab<s>", np.uint8)
    found = ours.encode_batch_to_numpy((data, np.array([3, 5])), allowed_special="none_raise")
    assert parts_of(*found) == [[97, 98]]
    with pytest.raises(SpecialTokenError, match=r"document 1, byte 2 of the text: .* found '<s>'"):
        ours.encode_batch_to_numpy(["a", "bc<s>"], allowed_special="none_raise")


def test_special_tokens_in_the_vocabulary_keep_their_ids() -> None:
    vocab = {7: b"<s>", **{10 + i: token for i, token in BYTES.items()}, 266: b"ab"}
    ours = BPETokenizer(vocab, [(b"a", b"b")], ["<t>", "<s>", "ab", "b"])
    assert ours.special_tokens == {"<t>": 267, "<s>": 7, "ab": 268, "b": 269}
    assert ours.encode("<s>ab b<t>") == [7, 268, 10 + 32, 269, 267]
    assert ours.encode("ab", "none") == [266]
    assert ours.vocab == {**vocab, 267: b"<t>", 268: b"ab", 269: b"b"}
    assert BPETokenizer(ours.vocab, ours.merges, ours.special_tokens).vocab == ours.vocab


def test_a_special_token_id_is_given_or_next() -> None:
    assert BPETokenizer(BYTES, [], {"<s>": 1000}).encode("<s>") == [1000]
    assert BPETokenizer(BYTES | {900: b"<s>"}, [], ["<s>"]).special_tokens == {"<s>": 900}
    assert BPETokenizer({5: b"a"}, [], ["<b>", "<a>"]).special_tokens == {"<b>": 6, "<a>": 7}
    assert BPETokenizer({}, [], ["<s>"]).encode("<s>") == [0]
    assert BPETokenizer(BYTES, []).special_tokens == {}


# ---- batches


@given(documents=st.lists(texts, max_size=6), num_threads=st.integers(0, 4))
@pytest.mark.parametrize("pattern", ["cl100k", r"\w+|\s"])
def test_a_batch_has_the_ids_of_its_documents(
    pattern: str, documents: list[str], num_threads: int
) -> None:
    ours = trained(pattern)
    expected = [ours.encode(document) for document in documents]
    encoded = [document.encode() for document in documents]
    data, starts, ends = joined(encoded)
    offsets = np.append(starts, len(data))
    forms: list[Any] = [documents, encoded, tuple(documents), tuple(encoded)]
    forms += [
        (data, offsets),
        (np.frombuffer(data, np.uint8), offsets),
        (memoryview(data), offsets),
    ]
    for form in forms:
        ids, found = ours.encode_batch_to_numpy(form, num_threads=num_threads)
        assert (ids.dtype, found.dtype) == (np.uint32, np.int64)
        assert parts_of(ids, found)[: len(documents)] == expected
        assert len(found) == len(documents) + 1
        assert ours.encode_batch(form, num_threads=num_threads)[: len(documents)] == expected
    ids, found = ours.encode_documents(data, starts[::-1].copy(), ends[::-1].copy())
    assert parts_of(ids, found)[: len(documents)] == expected[::-1]


def test_lists_of_ids_are_separate_and_allow_special_tokens_as_encode_does() -> None:
    ours = BPETokenizer({i: bytes([i]) for i in range(256)}, [], [END])
    first, second = ours.encode_batch([END, END])
    first.append(1)
    assert second == ours.encode(END)
    assert ours.encode_batch([END], allowed_special="none") == [ours.encode_ordinary(END)]
    with pytest.raises(SpecialTokenError, match="document 1, byte 1"):
        ours.encode_batch(["", f"a{END}"], allowed_special="none_raise")
    with pytest.raises(ValueError, match="num_threads"):
        ours.encode_batch([], num_threads=-1)


def test_large_ids_are_in_lists_as_they_are() -> None:
    vocab = {2**31 - 300 + i: bytes([i]) for i in range(256)} | {2**20 + 3: b"ab"}
    ours = BPETokenizer(vocab, [(b"a", b"b")])
    assert ours.encode_batch(["abab", "b"]) == [[2**20 + 3] * 2, [2**31 - 300 + 98]]


@pytest.fixture(scope="module", params=["gpt2", r"\w+|\s"])
def either(request: pytest.FixtureRequest) -> BPETokenizer:
    """A tokenizer with a native pattern, and one with a regular expression."""
    return trained(request.param)


@given(documents=st.lists(texts, max_size=4))
@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_ids_are_put_before_and_after_each_document(
    either: BPETokenizer, dtype: Any, documents: list[str]
) -> None:
    data, starts, ends = joined([document.encode() for document in documents])
    ids, offsets = either.encode_documents(
        data, starts, ends, prepend=[0], append=[1, 2], dtype=dtype
    )
    assert ids.dtype == dtype
    expected = [[0, *either.encode(document), 1, 2] for document in documents]
    assert parts_of(ids, offsets)[: len(documents)] == expected


def test_ids_that_do_not_fit_16_bits_are_refused(either: BPETokenizer) -> None:
    whole = b"x", np.array([0]), np.array([1])
    large = BPETokenizer(BYTES, [], {"<s>": 65536}, pattern=either.pattern)
    assert large.encode_documents(*whole)[0].tolist() == [ord("x")]
    unknown = BPETokenizer({0: b"a"}, [], pattern=either.pattern, unknown_id=65536)
    for ours, options in [
        (large, {}),
        (unknown, {}),
        (either, {"prepend": [65536]}),
        (either, {"append": [65536]}),
    ]:
        with pytest.raises(InvalidTokenizerError, match=r"dtype: expected uint32 .* 65536"):
            ours.encode_documents(*whole, dtype=np.uint16, **options)  # type: ignore[arg-type]
    edge = BPETokenizer(BYTES, [], {"<s>": 65535}, pattern=either.pattern)
    ids, _ = edge.encode_documents(b"<s>", np.array([0]), np.array([3]), dtype=np.uint16)
    assert ids.tolist() == [65535]


def test_threads_change_nothing(kjv_tokenizer: BPETokenizer, kjv_documents: list[bytes]) -> None:
    expected = kjv_tokenizer.encode_batch_to_numpy(kjv_documents, num_threads=1)
    for num_threads in (2, 4, 0):
        found = kjv_tokenizer.encode_batch_to_numpy(kjv_documents, num_threads=num_threads)
        assert all(map(np.array_equal, found, expected))


def test_no_text_has_no_ids(either: BPETokenizer) -> None:
    assert either.encode("") == either.encode(b"") == either.encode_ordinary("") == []
    assert either.encode_to_numpy("").tolist() == []
    assert either.encode_to_numpy("").dtype == np.uint32
    assert either.count_tokens("") == 0
    assert list(either.encode_iterable([])) == list(either.encode_iterable(["", ""])) == []
    ids, offsets = either.encode_batch_to_numpy([])
    assert (ids.tolist(), offsets.tolist(), ids.dtype) == ([], [0], np.uint32)
    assert parts_of(*either.encode_batch_to_numpy(["", ""])) == [[], []]
    assert either.decode([]) == ""


def test_tokens_are_counted(either: BPETokenizer) -> None:
    text = "".join(FRAGMENTS)
    assert either.count_tokens(text) == len(either.encode(text)) > 0


def test_misplaced_documents_are_refused(either: BPETokenizer) -> None:
    for starts, ends in [([0], [4]), ([-1], [1]), ([2], [1])]:
        with pytest.raises(ValueError):
            either.encode_documents(b"abc", np.array(starts), np.array(ends))


# ---- text in parts


def cut_everywhere(text: str) -> Iterator[list[str]]:
    for i in range(len(text) + 1):
        yield [text[:i], text[i:]]
    yield list(text)


@pytest.mark.parametrize("pattern", [*PATTERNS, r"\w+|\s"])
def test_parts_have_the_ids_of_the_whole_wherever_they_are_cut(
    pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = trained(pattern)
    text = "it's WE'LL  \n\n 1234567 <s><s>x the théatre日本<s\r\n \t !!?<e>é\u0301 a"
    expected = ours.encode(text)
    for stream_bytes in (1, 5, 1000):
        monkeypatch.setattr(streaming, "_STREAM_BYTES", stream_bytes)
        for parts in cut_everywhere(text):
            assert list(ours.encode_iterable(parts)) == expected, parts


@settings(max_examples=times(2))
@given(
    text=texts,
    cuts=st.lists(st.integers(0, 100), max_size=8),
    stream_bytes=st.integers(1, 40),
    pattern=st.sampled_from([*PATTERNS, r"\w+|\s"]),
)
def test_random_parts_have_the_ids_of_the_whole(
    text: str, cuts: list[int], stream_bytes: int, pattern: str
) -> None:
    ours = TRAINED[pattern]
    places = sorted(min(cut, len(text)) for cut in cuts)
    parts = [text[a:b] for a, b in pairwise([0, *places, len(text)])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "_STREAM_BYTES", stream_bytes)
        assert list(ours.encode_iterable(parts)) == ours.encode(text)


TRAINED = {pattern: trained(pattern) for pattern in [*PATTERNS, r"\w+|\s"]}


def test_a_file_is_encoded_line_by_line(kjv_tokenizer: BPETokenizer, kjv_path: Path) -> None:
    with kjv_path.open(encoding="utf-8", newline="") as file:
        found = list(kjv_tokenizer.encode_iterable(file))
    assert found == kjv_tokenizer.encode(kjv_path.read_bytes())


@pytest.mark.parametrize("pattern", ["gpt2", "none", r"\w+"])
def test_parts_are_taken_as_ids_are_asked_for(pattern: str) -> None:
    taken = 0

    def endless() -> Iterator[str]:
        nonlocal taken
        while True:
            taken += 1
            yield "some words, then<s>"

    ours = BPETokenizer(BYTES, [], ["<s>"], pattern=pattern)
    ids = ours.encode_iterable(endless())
    assert taken == 0
    expected = ours.encode("some words, then<s>")
    assert list(islice(ids, 3 * len(expected))) == expected * 3
    assert taken * 19 < 2 * streaming._STREAM_BYTES
    assert list(islice(ids, 10 * streaming._STREAM_BYTES))[-1] in expected
    assert taken * 19 < 15 * streaming._STREAM_BYTES


def test_parts_without_any_place_to_cut_are_gathered() -> None:
    ours = BPETokenizer(BYTES, [])
    parts = ["!" * 1000] * 300
    assert list(ours.encode_iterable(parts)) == [ord("!")] * 300_000


# ---- surrogates


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("a\ud800b", "a\ufffdb"),
        ("\udfff", "\ufffd"),
        ("\udc00\ud800", "\ufffd\ufffd"),
        ("\ud83d\ude00!", "😀!"),
        ("<s>\ud800<s>", "<s>\ufffd<s>"),
    ],
)
def test_lone_surrogates_are_replaced_and_pairs_are_their_character(
    either: BPETokenizer, text: str, becomes: str
) -> None:
    expected = either.encode(becomes)
    assert either.encode(text) == expected
    assert either.encode_to_numpy(text).tolist() == expected
    assert parts_of(*either.encode_batch_to_numpy([text])) == [expected]
    assert either.encode_with_offsets(text)[0].tolist() == expected
    assert either.encode_ordinary(text) == either.encode_ordinary(becomes)
    assert either.count_tokens(text) == either.count_tokens_batch([text])[0] == len(expected)
    assert either.truncate(text, len(expected)) == text
    assert either.token_to_id(text) == either.token_to_id(becomes)
    for parts in cut_everywhere(text):
        assert list(either.encode_iterable(parts)) == expected
    with pytest.raises(SpecialTokenError):
        either.encode(text + "<s>", "none_raise")


# ---- bytes that are no text


def test_invalid_utf8_is_encoded_byte_by_byte_or_refused() -> None:
    data = b"a\xff\xc3<s>\xed\xa0\x80"
    ours = BPETokenizer(BYTES, [], ["<s>"])
    assert ours.encode(data) == [97, 255, 195, 256, 237, 160, 128]
    assert ours.decode_bytes(ours.encode(data)) == data
    with pytest.raises(InvalidUtf8Error, match=r"byte 1 .* 0xFF"):
        BPETokenizer(BYTES, [], ["<s>"], pattern=r"(\w)\1").encode(data)
    compiled = BPETokenizer(BYTES, [], ["<s>"], pattern=r"\w+")
    assert compiled.encode(data) == ours.encode(data)


def test_what_is_no_text_is_refused(either: BPETokenizer) -> None:
    for value in (5, None, ["a"]):
        with pytest.raises(TypeError):
            either.encode(value)  # type: ignore[arg-type]


# ---- decoding


def test_bytes_that_are_no_text_are_replaced() -> None:
    ours = BPETokenizer(BYTES, [])
    assert ours.decode([0xC3, 0x28, 0xE2, 0x82]) == "\ufffd(\ufffd"
    assert ours.decode([0xC3], errors="ignore") == ""
    with pytest.raises(UnicodeDecodeError):
        ours.decode([0xC3], errors="strict")


def test_ids_come_as_any_iterable_or_array() -> None:
    ours = BPETokenizer(BYTES, [(b"h", b"i")] * 0, ["<s>"])
    expected = "hi<s>"
    ids = [104, 105, 256]
    forms: list[Any] = [ids, tuple(ids), iter(ids), np.array(ids), np.array(ids, np.uint16)]
    forms += [map(np.int32, ids), (i for i in ids)]
    for form in forms:
        assert ours.decode(form) == expected


@pytest.mark.parametrize("unknown", [-1, 257, 2**40])
def test_unknown_ids_are_named(unknown: int) -> None:
    ours = BPETokenizer(BYTES, [], ["<s>"])
    for decode in (ours.decode, ours.decode_bytes):
        with pytest.raises(UnknownTokenError, match=f"id {unknown}: .*largest id is 256"):
            decode([97, unknown])
        with pytest.raises(UnknownTokenError, match=f"id {unknown}"):
            decode(np.array([unknown]))


# ---- construction


def test_the_parts_of_a_tokenizer_are_given_back() -> None:
    vocab = BYTES | {256: b"hi", 257: b"hih"}
    merges = [(b"h", b"i"), (b"hi", b"h")]
    ours = BPETokenizer(vocab, iter(merges), ["<s>"], pattern="o200k")
    assert ours.vocab == vocab | {258: b"<s>"}
    assert ours.merges == merges
    assert ours.pattern == "o200k"
    assert len(ours) == 259
    assert repr(ours).startswith("BPETokenizer(")


def test_a_merge_may_make_bytes_that_have_an_id() -> None:
    vocab = BYTES | {256: b"ab", 257: b"bc", 258: b"abc"}
    merges = [(b"b", b"c"), (b"a", b"b"), (b"a", b"bc"), (b"ab", b"c")]
    ours = BPETokenizer(vocab, merges)
    assert ours.merges == merges
    for text in ("abc", "abab", "abcabbc"):
        assert ours.encode(text) == reference.encode(text, vocab, merges, {})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((BYTES, [(b"a", b"b")]), "merge 0, b'a' . b'b': .* no id for b'ab'"),
        ((BYTES | {256: b"ab"}, [(b"a", b"xy")]), "merge 0, .* no id for b'xy'"),
        ((BYTES | {256: b"a"}, []), "ids 97 and 256 have the same bytes, b'a'"),
        (({-1: b"a"}, []), "token ids: expected 0 ..."),
        (({2**31: b"a"}, []), "token ids: expected 0 ..."),
        (({0: b""}, []), "token id 0: expected bytes, found none"),
        ((BYTES, [], {"<s>": 97}), "'<s>': expected an id that no other token has, found 97"),
        ((BYTES, [], {"<s>": 300, "<t>": 300}), "found 300 twice"),
        ((BYTES, [], {"<s>": -1}), "'<s>': expected an id of 0 ..."),
        ((BYTES | {256: b"ab"}, [(b"a", b"b")], {"ab": 256}), "no id for b'ab'"),
    ],
)
def test_what_contradicts_itself_is_refused(arguments: Any, message: str) -> None:
    with pytest.raises(InvalidTokenizerError, match=message):
        BPETokenizer(*arguments)


@pytest.mark.parametrize("unknown_id", [-1, 2**31, 2**40])
def test_an_unknown_id_out_of_range_is_refused(unknown_id: int) -> None:
    with pytest.raises(InvalidTokenizerError, match=f"unknown_id: expected .*{unknown_id}"):
        BPETokenizer(BYTES, [], unknown_id=unknown_id)


def test_other_unusable_arguments_are_refused() -> None:
    for special in (["<s>", "<s>"], [""], ["\ud800"], "<s>"):
        with pytest.raises(SpecialTokenError):
            BPETokenizer(BYTES, [], special)  # type: ignore[arg-type]
    with pytest.raises(InvalidPatternError):
        BPETokenizer(BYTES, [], pattern="gpt3")


# ---- files


@pytest.mark.parametrize("pattern", ["gpt2", "llama3", r"\w+|\s"])
def test_a_saved_tokenizer_has_the_same_ids(pattern: str, tmp_path: Path) -> None:
    ours = TRAINED.get(pattern) or trained(pattern)
    left_out = ours.save(tmp_path)
    loaded = BPETokenizer.load(tmp_path)
    text = "".join(FRAGMENTS) + " the theatre"
    assert loaded.encode(text) == ours.encode(text)
    assert loaded.model == ours.model
    assert isinstance(left_out, dict)
    if "vocab.json" not in left_out:
        files = tmp_path / "vocab.json", tmp_path / "merges.txt"
        read = BPETokenizer.from_files(*files, SPECIALS, pattern=pattern)
        assert read.encode(text) == ours.encode(text)
        assert read.special_tokens == ours.special_tokens


def test_special_tokens_of_ranks_get_the_next_ids(tmp_path: Path) -> None:
    BPETokenizer(BYTES | {256: b"hi"}, [(b"h", b"i")]).save(tmp_path)
    path = tmp_path / "tokenizer.tiktoken"
    ours = BPETokenizer.from_tiktoken(path, pattern="gpt2", special_tokens=["<s>", "<t>"])
    assert ours.special_tokens == {"<s>": 257, "<t>": 258}
    assert ours.encode("hi<t>") == [256, 258]
    assert BPETokenizer.from_tiktoken(path, pattern="cl100k").pattern == "cl100k_tiktoken"
    given_ids = BPETokenizer.from_tiktoken(path, pattern="o200k", special_tokens={"<s>": 500})
    assert given_ids.special_tokens == {"<s>": 500}


def test_iterables_are_not_kept(either: BPETokenizer) -> None:
    documents: Iterable[str] = ["a", "b"]
    ids, _ = either.encode_batch_to_numpy(documents)  # type: ignore[arg-type]
    assert either.decode(ids) == "ab"


def test_a_pickled_tokenizer_encodes_alike() -> None:
    vocab = {i: bytes([i]) for i in range(255)} | {256: b"ab"}
    original = BPETokenizer(vocab, [(b"a", b"b")], ["<s>"], unknown_id=7)
    copy = pickle.loads(pickle.dumps(original))
    assert copy.encode("ab<s>c") == original.encode("ab<s>c")
    assert copy.encode(b"\xff") == original.encode(b"\xff") == [7]


@pytest.mark.parametrize("text", ["abc", b"abc"])
def test_one_text_is_no_list_of_documents(text: str | bytes) -> None:
    tokenizer = BPETokenizer({i: bytes([i]) for i in range(256)}, [])
    with pytest.raises(TypeError, match="takes a list of texts, found one"):
        tokenizer.encode_batch_to_numpy(text)  # type: ignore[arg-type]
