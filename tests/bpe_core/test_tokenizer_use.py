"""BPETokenizer in use: places of tokens, truncation, look-ups, copies, many threads at once."""

from __future__ import annotations

import copy
import gc
import multiprocessing
import pickle
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiktoken
import tokenizers
from core_support import (
    FRAGMENTS,
    NATIVE_PATTERNS,
    SPECIALS,
    dirty_bytes,
    ids_in_another_process,
    parts_of,
    texts,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import seldom, times

from bpe_core import (
    PATTERNS,
    BPETokenizer,
    count_pretokens,
    reference,
    train_bpe,
    train_from_counts,
)
from bpe_core.errors import InvalidTokenizerError, SpecialTokenError, UnknownTokenError
from bpe_core.model import TokenizerModel

BYTES = {i: bytes([i]) for i in range(256)}
CUSTOM = r"\w+|\s"
EVERY_PATTERN = [*NATIVE_PATTERNS, CUSTOM]


@cache
def trained(pattern: str) -> BPETokenizer:
    text = " ".join(FRAGMENTS * 3) + "the thesis of this theatre, those thieves 日本 日本 1234 12"
    vocab, merges = reference.train([text], 330, SPECIALS, pattern=pattern)
    return BPETokenizer(vocab, merges, SPECIALS, pattern=pattern)


@pytest.fixture(params=["gpt2", CUSTOM])
def either(request: pytest.FixtureRequest) -> BPETokenizer:
    """A tokenizer with a native pattern, and one with a regular expression."""
    return trained(request.param)


# Text as Python may hold it: also halves of surrogate pairs, which belong together or don't.
surrogates = st.sampled_from(["\ud83d", "\ude00", "\ud83d\ude00", "\udfff", "\ud800"])
any_texts = st.lists(st.sampled_from(FRAGMENTS) | surrogates, max_size=30).map("".join)


def slices(text: Any, offsets: np.ndarray[Any, Any]) -> list[Any]:
    return [text[a:b] for a, b in pairwise(offsets.tolist())]


# ---- text in parts


@pytest.mark.parametrize("pattern", EVERY_PATTERN)
def test_one_character_at_a_time_has_the_ids_of_the_whole(pattern: str) -> None:
    ours = trained(pattern)

    @settings(max_examples=times(0.6))
    @given(text=texts | any_texts, empty=st.booleans())
    def check(text: str, empty: bool) -> None:
        parts = [part for character in text for part in ([character, ""] if empty else [character])]
        assert list(ours.encode_iterable(parts)) == ours.encode(text)

    check()


@pytest.mark.parametrize(("pattern", "step"), seldom(product(EVERY_PATTERN, [1, 3, 17, 4096]), 3))
def test_bytes_in_parts_have_the_ids_of_the_whole(
    pattern: str, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = trained(pattern)
    monkeypatch.setattr("bpe_core.streaming._STREAM_BYTES", step)
    dirty = dirty_bytes if pattern != CUSTOM else texts.map(str.encode)

    @settings(max_examples=times(0.6))
    @given(data=dirty, cuts=st.lists(st.integers(0, 60), max_size=6))
    def check(data: bytes, cuts: list[int]) -> None:
        places = sorted(min(cut, len(data)) for cut in cuts)
        parts = [data[a:b] for a, b in pairwise([0, *places, len(data)])]
        assert list(ours.encode_iterable(parts)) == ours.encode(data)
        assert list(
            ours.encode_iterable([data[i : i + 1] for i in range(len(data))])
        ) == ours.encode(data)

    check()


@given(
    parts=st.lists(
        st.sampled_from(["<s>", "<s", "s>", "><", "<", ">", "s", "e", "<e>", "x", " ", "\ud83d"]),
        max_size=30,
    ),
    step=st.integers(1, 8),
    pattern=st.sampled_from(["gpt2", "none", CUSTOM]),
)
def test_overlapping_special_tokens_are_found_wherever_they_are_cut(
    parts: list[str], step: int, pattern: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bpe_core.streaming._STREAM_BYTES", step)
        ours = trained(pattern)
        assert list(ours.encode_iterable(parts)) == ours.encode("".join(parts))


def test_long_parts_are_encoded_step_by_step(kjv_tokenizer: BPETokenizer, kjv: bytes) -> None:
    text = kjv[:200_000].decode() + "\ud83d" + "\ude00" * 2 + "é日本" * 5000
    expected = kjv_tokenizer.encode(text)
    assert list(kjv_tokenizer.encode_iterable([text])) == expected
    assert list(kjv_tokenizer.encode_iterable([text[:4097], text[4097:]])) == expected
    valid = text.replace("\ud83d", "").replace("\ude00", "")
    assert list(kjv_tokenizer.encode_iterable([valid.encode()])) == kjv_tokenizer.encode(valid)
    mixed: list[Any] = ["a", b"b", "\ud83d", b"c", "\ud83d", "\ude00"]
    assert list(kjv_tokenizer.encode_iterable(mixed)) == kjv_tokenizer.encode("ab\ufffdc😀")


def test_what_is_no_part_of_a_text_is_named() -> None:
    ours = trained("gpt2")
    with pytest.raises(TypeError, match="int"):
        ours.encode_iterable(5)  # type: ignore[arg-type]
    found = ours.encode_iterable(["a ", None])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="part 1 of the text: expected str or bytes, found NoneT"):
        list(found)
    with pytest.raises(TypeError, match="part 0 of the text: expected str or bytes, found int"):
        list(ours.encode_iterable(b"abc"))  # type: ignore[arg-type]


# ---- where tokens are


@pytest.mark.parametrize("pattern", EVERY_PATTERN)
def test_slices_at_offsets_are_the_text(pattern: str) -> None:
    ours = trained(pattern)

    @settings(max_examples=times(0.8))
    @given(text=texts | any_texts, allowed=st.sampled_from(["all", "none", {"<s>"}]))
    def check(text: str, allowed: Any) -> None:
        ids, offsets = ours.encode_with_offsets(text, allowed)
        assert (ids.dtype, offsets.dtype) == (np.uint32, np.int64)
        assert ids.tolist() == ours.encode(text, allowed)
        assert len(offsets) == len(ids) + 1
        assert (offsets[0], offsets[-1]) == (0, len(text))
        assert "".join(slices(text, offsets)) == text
        # A token has the characters that begin in it: those of its bytes that begin one.
        for token_id, part in zip(ids.tolist(), slices(text, offsets), strict=True):
            token = ours.vocab[token_id]
            begins = sum(byte & 0xC0 != 0x80 for byte in token)
            assert len(part.encode("utf-16", "surrogatepass").decode("utf-16", "replace")) == begins

    check()


@given(data=dirty_bytes)
def test_offsets_of_bytes_are_those_of_the_tokens_bytes(data: bytes) -> None:
    ours = trained("gpt2")
    ids, offsets = ours.encode_with_offsets(data)
    assert slices(data, offsets) == [ours.vocab[i] for i in ids.tolist()]


def test_offsets_equal_those_of_the_peers(kjv_documents: list[bytes]) -> None:
    ours = trained("gpt2")
    ranks = {token: i for i, token in ours.vocab.items() if i not in ours.special_tokens.values()}
    peer = tiktoken.Encoding(
        "test", pat_str=PATTERNS["gpt2"], mergeable_ranks=ranks, special_tokens={}
    )
    texts = [kjv_documents[0].decode()[:2000], "日本 é😀 the théatre\u0301 ½", "".join(FRAGMENTS)]
    for text in texts:
        ids, offsets = ours.encode_with_offsets(text, "none")
        decoded, starts = peer.decode_with_offsets(ids.tolist())
        assert decoded == text
        # tiktoken gives the character that a token begins in, this the first that begins in it.
        begins_character = [ours.vocab[i][0] & 0xC0 != 0x80 for i in ids.tolist()]
        expected = [
            start if begins else start + 1
            for start, begins in zip(starts, begins_character, strict=True)
        ]
        assert offsets[:-1].tolist() == expected
    model = tokenizers.models.BPE({"a": 0, "b": 1, "ab": 2, "Ġ": 3}, [("a", "b")])
    huggingface = tokenizers.Tokenizer(model)
    huggingface.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
        add_prefix_space=False, trim_offsets=False
    )
    small = BPETokenizer({0: b"a", 1: b"b", 2: b"ab", 3: b" "}, [(b"a", b"b")])
    text = "abab a b"
    found = small.encode_with_offsets(text)[1].tolist()
    assert list(pairwise(found)) == huggingface.encode(text).offsets


def test_offsets_of_unknown_bytes_are_right() -> None:
    # The unknown id is that of a token of three bytes.
    ours = BPETokenizer({0: b"a", 1: b"b", 2: b"abb", 3: b"bb"}, [(b"b", b"b")], unknown_id=2)
    ids, offsets = ours.encode_with_offsets("aéb!abb")
    assert ids.tolist() == [0, 2, 2, 1, 2, 0, 3]
    assert ids.dtype == np.uint32
    assert slices("aéb!abb", offsets) == ["a", "é", "", "b", "!", "a", "bb"]
    assert ours.truncate("aéb!abb", 2) == "a"
    assert ours.truncate("aéb!abb", 4) == "aéb"
    elsewhere = BPETokenizer({0: b"a"}, [], unknown_id=2**31 - 1)
    ids, offsets = elsewhere.encode_with_offsets("ba")
    assert (ids.tolist(), offsets.tolist()) == ([2**31 - 1, 0], [0, 1, 2])


def test_offsets_of_ids_far_apart_are_right() -> None:
    ours = BPETokenizer({5: b"a", 2**30: b"b", 9: b"ab"}, [(b"a", b"b")], {"<s>": 2**31 - 1})
    ids, offsets = ours.encode_with_offsets("abb<s>a")
    assert ids.tolist() == [9, 2**30, 2**31 - 1, 5]
    assert offsets.tolist() == [0, 2, 3, 6, 7]


def test_no_text_has_no_places(either: BPETokenizer) -> None:
    for text in ("", b""):
        ids, offsets = either.encode_with_offsets(text)
        assert (ids.tolist(), offsets.tolist()) == ([], [0])
    with pytest.raises(SpecialTokenError):
        either.encode_with_offsets("<s>", "none_raise")
    with pytest.raises(TypeError):
        either.encode_with_offsets(5)  # type: ignore[arg-type]


# ---- truncation


@pytest.mark.parametrize("pattern", EVERY_PATTERN)
def test_truncated_text_is_the_longest_beginning_that_fits(pattern: str) -> None:
    ours = trained(pattern)

    @settings(max_examples=times(0.8))
    @given(
        text=texts | any_texts,
        most=st.integers(0, 30),
        allowed=st.sampled_from(["all", "none", {"<s>"}]),
    )
    def check(text: str, most: int, allowed: Any) -> None:
        found = ours.truncate(text, most, allowed)
        assert text.startswith(found)
        assert ours.count_tokens(found, allowed) <= most
        ids, offsets = ours.encode_with_offsets(text, allowed)
        if len(ids) <= most:
            assert found == text
        # Ends of tokens that are ends of characters, and whose beginning fits.
        data, at, ends = text.encode("utf-16", "surrogatepass"), 0, [0]
        repaired = data.decode("utf-16", "replace").encode()
        for place, token_id in enumerate(ids.tolist()[:most]):
            at += len(ours.vocab[token_id])
            if at == len(repaired) or repaired[at] & 0xC0 != 0x80:
                ends.append(int(offsets[place + 1]))
        assert len(found) == max(
            end for end in ends if ours.count_tokens(text[:end], allowed) <= most
        )

    check()


def test_what_follows_may_decide_how_a_beginning_is_split() -> None:
    # In "aab" the lookahead takes one letter at a time, in "aa" there is nothing to look at.
    ours = BPETokenizer(BYTES | {256: b"aa"}, [(b"a", b"a")], pattern=r"aa(?=b)|a(?!ab|$)|a$|.")
    assert ours.encode("aab") == [256, 98]
    assert ours.encode("aa") == [97, 97]
    assert ours.truncate("aab", 1) == ""


@pytest.mark.slow
def test_truncating_takes_the_time_of_the_kept_text(
    kjv_tokenizer: BPETokenizer, kjv: bytes
) -> None:
    text = kjv.decode()

    def seconds(of: str) -> float:
        begin = time.thread_time()
        assert kjv_tokenizer.count_tokens(kjv_tokenizer.truncate(of, 100)) <= 100
        return time.thread_time() - begin

    gc.collect()
    short = min(seconds(text[:10_000]) for _ in range(5))
    assert min(seconds(text) for _ in range(5)) < 5 * short + 1e-3


def test_truncation_refuses_what_it_cannot_do(either: BPETokenizer) -> None:
    with pytest.raises(ValueError, match="max_tokens: expected 0 or more, found -1"):
        either.truncate("a", -1)
    with pytest.raises(TypeError, match="truncate takes one str, found bytes"):
        either.truncate(b"a", 1)  # type: ignore[arg-type]
    with pytest.raises(SpecialTokenError):
        either.truncate("abc<s>", 1, "none_raise")
    assert either.truncate("abc", 0) == either.truncate("", 0) == ""


# ---- counting


@given(documents=st.lists(texts, max_size=5))
def test_tokens_of_documents_are_counted(documents: list[str]) -> None:
    for ours in (trained("gpt2"), trained(CUSTOM)):
        for allowed in ("all", "none"):
            expected = [len(ours.encode(document, allowed)) for document in documents]  # type: ignore[arg-type]
            found = ours.count_tokens_batch(documents, allowed_special=allowed, num_threads=1)  # type: ignore[arg-type]
            assert (found.dtype, found.tolist()) == (np.int64, expected)
            assert [ours.count_tokens(d, allowed) for d in documents] == expected  # type: ignore[arg-type]


# ---- single tokens


@pytest.mark.parametrize("pattern", ["gpt2", CUSTOM])
def test_every_token_has_its_id_and_every_id_its_bytes(pattern: str) -> None:
    ours = trained(pattern)
    for token_id, token in ours.vocab.items():
        assert ours.id_to_bytes(token_id) == token
        assert ours.token_to_id(token) == token_id
    assert ours.token_to_id("<s>") == ours.special_tokens["<s>"]
    assert ours.token_to_id("nowhere") is ours.token_to_id(b"") is ours.token_to_id("") is None
    assert ours.id_to_bytes(np.int64(3)) == ours.vocab[3]  # type: ignore[arg-type]


def test_equal_bytes_are_told_apart() -> None:
    ours = BPETokenizer(BYTES | {256: b"ab"}, [(b"a", b"b")], ["ab", "\ufffd"])
    assert ours.token_to_id(b"ab") == 256
    assert ours.token_to_id("ab") == 257
    assert ours.id_to_bytes(256) == ours.id_to_bytes(257) == b"ab"
    assert ours.token_to_id(b"\xff") == 255
    assert BPETokenizer({0: b"a"}, [], ["\ufffd"]).token_to_id(b"\xff") is None


@pytest.mark.parametrize("unknown", [-1, 10_000, 2**40])
def test_an_id_of_no_token_is_named(unknown: int) -> None:
    with pytest.raises(UnknownTokenError, match=f"id {unknown}: expected an id of this vocabulary"):
        trained("gpt2").id_to_bytes(unknown)


def test_what_is_no_token_is_refused() -> None:
    with pytest.raises(TypeError, match="expected a text as str or bytes, found int"):
        trained("gpt2").token_to_id(5)  # type: ignore[arg-type]


# ---- copies


@pytest.fixture
def lenient() -> BPETokenizer:
    vocab = {i: bytes([i]) for i in range(255)} | {256: b"ab"}
    return BPETokenizer(vocab, [(b"a", b"b")], ["<s>"], unknown_id=7)


@pytest.mark.parametrize(
    "again",
    [lambda t: pickle.loads(pickle.dumps(t)), copy.copy, copy.deepcopy],
    ids=["pickle", "copy", "deepcopy"],
)
@pytest.mark.parametrize("kind", ["lenient", "gpt2", CUSTOM])
def test_a_copy_is_equal_and_encodes_alike(
    again: Callable[[BPETokenizer], BPETokenizer], kind: str, lenient: BPETokenizer
) -> None:
    original = lenient if kind == "lenient" else trained(kind)
    original.encode("some<s>ab")
    copied = again(original)
    assert copied == original
    assert hash(copied) == hash(original)
    assert len({copied, original}) == 1
    assert repr(copied) == repr(original)
    assert copied.unknown_id == original.unknown_id
    text = "".join(FRAGMENTS)
    assert copied.encode(text) == original.encode(text)
    assert copied.encode(text, {"<s>"}) == original.encode(text, {"<s>"})
    # What one changes of its dict is not seen by the other.
    copied.vocab.clear()
    assert original.decode(original.encode(text)) == text


@pytest.mark.slow
def test_a_process_that_was_spawned_gets_the_same_tokenizer(lenient: BPETokenizer) -> None:
    text = b"ab<s>\xffc"
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.apply(ids_in_another_process, (lenient, text))
    assert found == ids_in_another_process(lenient, text)
    assert found[0] == [256, 257, 7, 99]


def test_tokenizers_are_equal_if_all_that_decides_ids_is() -> None:
    merges = [(b"a", b"b"), (b"b", b"a")]
    vocab = BYTES | {256: b"ab", 257: b"ba"}
    ours = BPETokenizer(vocab, merges, ["<s>"])
    assert ours == BPETokenizer(dict(reversed(vocab.items())), iter(merges), {"<s>": 258})
    others = [
        BPETokenizer(vocab, merges[::-1], ["<s>"]),
        BPETokenizer(vocab, merges, ["<t>"]),
        BPETokenizer(vocab, merges, {"<s>": 300}),
        BPETokenizer(vocab, merges, ["<s>"], pattern="o200k"),
        BPETokenizer(vocab, merges, ["<s>"], unknown_id=3),
        BPETokenizer(vocab | {400: b"x1"}, merges, {"<s>": 258}),
    ]
    assert all(ours != other for other in others)
    assert len({ours, *others}) == 7
    assert ours != "a tokenizer"


def test_a_tokenizer_says_what_it_is(lenient: BPETokenizer) -> None:
    shown = repr(trained("gpt2"))
    assert shown.startswith("BPETokenizer(")
    for part in ("330 tokens", "4 of them special", "pattern 'gpt2'"):
        assert part in shown
    assert "unknown_id=7" in repr(lenient)
    assert lenient.unknown_id == 7
    assert trained("gpt2").unknown_id is None


# ---- many threads at once


@pytest.mark.parametrize("pattern", ["gpt2", "none", CUSTOM])
def test_threads_that_use_one_tokenizer_get_their_ids(pattern: str, kjv: bytes) -> None:
    known = trained(pattern)
    shared = pickle.loads(pickle.dumps(known))  # nothing of it has been made yet
    sample = kjv[: 30_000 if pattern == "gpt2" else 4_000].decode()

    def work(number: int) -> None:
        rng = random.Random(number)
        for _ in range(12):
            words = rng.sample(FRAGMENTS, 12)
            begin = rng.randrange(len(sample))
            text = "".join(words) + sample[begin:] + "<s>"
            expected = known.encode(text)
            allowed = {rng.choice(SPECIALS)}
            match rng.randrange(8):
                case 0:
                    assert shared.encode(text) == expected
                case 1:
                    assert shared.encode_to_numpy(text.encode()).tolist() == expected
                case 2:
                    found = shared.encode_batch_to_numpy([text, text, "x"], num_threads=2)
                    assert parts_of(*found)[:2] == [expected] * 2
                case 3:
                    assert list(shared.encode_iterable(text.splitlines(True))) == expected
                case 4:
                    ids, offsets = shared.encode_with_offsets(text)
                    assert ids.tolist() == expected
                    assert offsets[-1] == len(text)
                case 5:
                    assert shared.encode(text, allowed) == known.encode(text, allowed)
                case 6:
                    assert shared.count_tokens(text) == len(expected)
                    assert text.startswith(shared.truncate(text, 50))
                case 7:
                    assert shared.decode(expected) == text
                    assert shared.token_to_id(shared.id_to_bytes(expected[0])) is not None

    with ThreadPoolExecutor(8) as pool:
        for future in [pool.submit(work, number) for number in range(8)]:
            future.result()


# ---- streams of a file


def test_lines_of_a_file_of_bytes_have_the_ids_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes("".join(FRAGMENTS * 50).encode())
    vocab, merges = train_bpe(path, 300, ["<s>"])
    ours = BPETokenizer(vocab, merges, ["<s>"])
    with path.open("rb") as file:
        assert list(ours.encode_iterable(file)) == ours.encode(path.read_bytes())


# ---- what is given wrongly


@pytest.mark.parametrize(
    ("ids", "found"),
    [
        (np.array([[1, 2], [3, 4]]), r"int64\[2, 2\]"),
        (np.array([1.0, 2.0]), r"float64\[2\]"),
        (np.array([True]), r"bool\[1\]"),
        (np.array(3), r"int64\[\]"),
    ],
)
def test_arrays_that_are_not_ids_are_refused(ids: np.ndarray, found: str) -> None:
    ours = BPETokenizer(BYTES, [])
    with pytest.raises(TypeError, match=f"integers in one dimension, found {found}"):
        ours.decode(ids)
    assert ours.decode(np.array([])) == ""


def test_changing_the_vocabulary_changes_no_decoding() -> None:
    ours = BPETokenizer(BYTES, [])
    ours.vocab[64] = b"ZZ"
    ours.vocab[1000] = b"new"
    assert ours.decode([64]) == "@"
    assert ours.id_to_bytes(64) == b"@"
    with pytest.raises(UnknownTokenError, match="1000"):
        ours.decode([1000])


@pytest.mark.parametrize(
    ("vocab", "shown"), [({b"a": 0}, "b'a': 0"), ({0: "a"}, "0: 'a'"), ({"0": b"a"}, "'0': b'a'")]
)
def test_a_vocabulary_of_other_types_is_refused(vocab: dict, shown: str) -> None:
    for make in (BPETokenizer, lambda v, m: TokenizerModel.from_vocab(v, m, {})):
        with pytest.raises(InvalidTokenizerError, match=r"expected ids \(int\) with their") as e:
            make(vocab, [])
        assert shown in str(e.value)


@pytest.mark.parametrize("offsets", [[0, 1, 3], (0, 1, 3), range(4), np.array([0, 1, 3])])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_offsets_may_be_any_sequence_of_integers(offsets: object, kind: type) -> None:
    ids, found = BPETokenizer(BYTES, []).encode_batch_to_numpy((kind(b"ahi"), offsets))  # type: ignore[arg-type]
    assert ids.tolist() == list(b"ahi")
    assert found.tolist() == list(offsets)  # type: ignore[call-overload]


def test_two_documents_are_not_a_buffer_with_offsets() -> None:
    ours = BPETokenizer(BYTES, [])
    for documents in (("ab", "c"), (b"ab", b"c"), (b"ab", "c")):
        assert ours.encode_batch_to_numpy(documents)[1].tolist() == [0, 2, 3]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        (("abc", np.array([0, 1])), "documents: expected a text as str or bytes, found ndarray"),
        ([np.array([0, 1])], "documents: expected a text as str or bytes, found ndarray"),
        ([b"a", 5], "documents: expected a text as str or bytes, found int"),
        (np.array([0, 1]), "takes a list of texts, found one ndarray"),
        ((b"abc", [0.0, 1.5]), r"offsets: expected the integers .* found float64\[2\]"),
        ((b"abc", []), r"offsets: expected the integers .* found float64\[0\]"),
        ((b"abc", 3), r"offsets: expected the integers .* found int64\[\]"),
    ],
)
def test_documents_of_other_types_are_refused(documents: object, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        BPETokenizer(BYTES, []).encode_batch_to_numpy(documents)  # type: ignore[arg-type]


@pytest.mark.parametrize("pattern", ["gpt2", CUSTOM])
def test_a_negative_number_of_threads_is_refused(pattern: str) -> None:
    ours = BPETokenizer(BYTES, [], pattern=pattern)
    bounds = np.array([0, 1], np.int64)
    for call in (
        lambda: ours.encode_batch_to_numpy(["a"], num_threads=-1),
        lambda: ours.count_tokens_batch(["a"], num_threads=-1),
        lambda: ours.encode_documents(b"a", bounds[:-1], bounds[1:], num_threads=-1),
        lambda: count_pretokens(["a"], pattern=pattern, num_threads=-1),
    ):
        with pytest.raises(
            ValueError, match=r"num_threads: expected 0 \(all cores\) or more, found -1"
        ):
            call()


# ---- bytes without an id


def test_the_unknown_id_is_saved(tmp_path: Path) -> None:
    ours = BPETokenizer({0: b"a", 1: b"?"}, [], unknown_id=1)
    not_written = ours.save(tmp_path)
    again = BPETokenizer.load(tmp_path)
    assert again == ours
    assert again.unknown_id == 1
    assert again.encode("ab") == [0, 1]
    # Formats that cannot say it are not written.
    assert {path.name for path in tmp_path.iterdir()} <= {"tokenizer.arrow", "training.json"}
    assert any("the unknown_id" in reason for reason in not_written.values())
    strict = BPETokenizer({0: b"a", 1: b"?"}, [])
    strict.save(tmp_path / "strict")
    assert BPETokenizer.load(tmp_path / "strict").unknown_id is None


def test_the_unknown_id_is_part_of_the_fingerprint_where_it_decides_ids() -> None:
    some = [BPETokenizer({0: b"a", 1: b"?"}, [], unknown_id=i) for i in (None, 0, 1)]
    assert len({tokenizer.model.fingerprint for tokenizer in some}) == 3
    all_bytes = [BPETokenizer(BYTES, [], unknown_id=i) for i in (None, 0)]
    assert len({tokenizer.model.fingerprint for tokenizer in all_bytes}) == 1
    assert all_bytes[0] != all_bytes[1]


@pytest.mark.parametrize("unknown_id", [-1, 2**31, "1"])
def test_an_unknown_id_that_is_no_id_is_refused(unknown_id: int) -> None:
    with pytest.raises(InvalidTokenizerError, match="unknown_id: expected an id of 0"):
        BPETokenizer({0: b"a"}, [], unknown_id=unknown_id)


def test_new_tokens_never_get_the_unknown_id() -> None:
    base = BPETokenizer({0: b"a", 1: b"b"}, [], unknown_id=2)
    counts = count_pretokens(["abab"], pattern=base.pattern, special_tokens=["<s>"])
    extended = train_from_counts(counts, 4, ["<s>"], base=base).tokenizer()
    assert extended.unknown_id == 2
    assert extended.vocab == {0: b"a", 1: b"b", 3: b"<s>", 4: b"ab"}
