"""The native encoder: caches, threads, dtypes and misuse never change ids."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise

import numpy as np
import pytest
from core_support import joined, parts_of, texts
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import times

from bpe_core import BPETokenizer
from bpe_core._native import Encoder, SpecialSet
from bpe_core.buffers import concatenate
from bpe_core.errors import UnknownTokenError

Rule = tuple[int, int, int]

BYTE_IDS = np.arange(256)
NO_SPECIALS = SpecialSet([], [])


def encoder(
    rules: Sequence[Rule] = (), byte_ids: np.ndarray = BYTE_IDS, **options: object
) -> Encoder:
    columns = np.array(rules, np.uint32).reshape(-1, 3)
    left, right, result = (np.ascontiguousarray(columns[:, i]) for i in range(3))
    return Encoder(byte_ids, left, right, result, **options)  # type: ignore[arg-type]


def merged(text: bytes, rules: Sequence[Rule], byte_ids: Mapping[int, int]) -> list[int]:
    """The ids of a pre-token: the first rule that applies, leftmost, again and again."""
    ranks: dict[tuple[int, int], int] = {}
    for rank, (left, right, _) in enumerate(rules):
        ranks.setdefault((left, right), rank)
    ids = [byte_ids[byte] for byte in text]
    while places := [(ranks[pair], i) for i, pair in enumerate(pairwise(ids)) if pair in ranks]:
        rank, i = min(places)
        ids[i : i + 2] = [rules[rank][2]]
    return ids


def encoded(native: Encoder, documents: Sequence[bytes], **options: object) -> list[list[int]]:
    found = native.encode_documents(*joined(documents), NO_SPECIALS, **options)  # type: ignore[arg-type]
    return parts_of(*found)


# Rules over few ids, in any order; results may be new, again the same, or bytes.
@st.composite
def rule_lists(draw: st.DrawFn) -> list[Rule]:
    ids = [ord("a"), ord("b"), ord(" ")]
    rules = []
    for _ in range(draw(st.integers(0, 12))):
        left, right = draw(st.sampled_from(ids)), draw(st.sampled_from(ids))
        result = draw(st.sampled_from([*ids, max(300, *ids) + 1]))
        ids.append(result)
        rules.append((left, right, result))
    return rules


@settings(max_examples=times(3))
@given(
    rules=rule_lists(),
    text=st.text("ab", min_size=1, max_size=120),
    cache=st.integers(0, 4),
    # Ids of 16, 24 and 32 bits are held in different ways.
    first_id=st.sampled_from([0, 2**16 - 310, 2**16, 2**24 - 310, 2**24, 2**31 - 500]),
    portable=st.booleans(),
)
def test_the_rule_that_comes_first_applies_at_its_leftmost_place(
    rules: list[Rule], text: str, cache: int, first_id: int, portable: bool
) -> None:
    data = text.encode()
    shifted = [(left + first_id, right + first_id, made + first_id) for left, right, made in rules]
    byte_ids = BYTE_IDS + first_id
    native = encoder(shifted, byte_ids, pattern="none", cache_entries=cache, portable=portable)
    expected = merged(data, shifted, dict(enumerate(byte_ids.tolist())))
    for _ in range(2):
        assert encoded(native, [data]) == [expected]
    assert native.encode_text(text, NO_SPECIALS) == expected
    spans = encoder(shifted, byte_ids, pattern=None, portable=portable)
    ids, _ = spans.encode_spans(data, np.array([0]), np.array([len(data)]), np.array([-1]))
    assert ids.tolist() == expected


@pytest.mark.parametrize("portable", [False, True])
@pytest.mark.parametrize(
    "size",
    [
        *range(1, 20),
        *range(31, 34),
        *range(47, 50),
        *range(63, 66),
        *range(127, 130),
        255,
        256,
        257,
    ],
)
def test_every_length_is_merged_alike(size: int, portable: bool) -> None:
    # Lengths at which another cache, or another way to merge, takes over.
    rules = [(97, 97, 300), (300, 300, 301), (97, 98, 302), (301, 97, 303)]
    rng = random.Random(size)
    for text in [b"a" * size, bytes(rng.choice(b"ab") for _ in range(size))]:
        native = encoder(rules, pattern="none", portable=portable)
        expected = merged(text, rules, dict(enumerate(range(256))))
        assert encoded(native, [text, text]) == [expected, expected]
        assert native.encode_text(b"", NO_SPECIALS) == []


@given(
    rules=rule_lists(),
    lengths=st.lists(st.integers(1, 140), max_size=80),
    seed=st.integers(0, 9),
    cache=st.integers(0, 64),
)
def test_pretokens_merged_at_the_same_time_have_the_ids_they_have_alone(
    rules: list[Rule], lengths: list[int], seed: int, cache: int
) -> None:
    rng = random.Random(seed)
    words = [" " + "".join(rng.choices("ab", k=length)) for length in lengths]
    data = "".join(words).encode()
    byte_ids = dict(enumerate(range(256)))
    expected = [id_ for word in words for id_ in merged(word.encode(), rules, byte_ids)]
    for portable in (False, True):
        native = encoder(rules, cache_entries=cache, portable=portable)
        for _ in range(2):
            assert encoded(native, [data]) == [expected]


# ---- caches


def unmerged(documents: Sequence[bytes]) -> list[list[int]]:
    return [list(document) for document in documents]


@given(documents=st.lists(texts, max_size=8), cache=st.sampled_from([0, 1, 2, 3, 4, 8]))
def test_a_tiny_cache_changes_no_ids(documents: list[str], cache: int) -> None:
    data = [document.encode() for document in documents]
    rules = [(97, 98, 300), (32, 116, 301), (104, 101, 302), (301, 302, 303)]
    small, large = encoder(rules, cache_entries=cache), encoder(rules)
    expected = encoded(large, data)
    assert encoded(small, data) == encoded(small, data) == encoded(large, data) == expected


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["none", None])
@pytest.mark.parametrize(
    ("number", "length"), [(300_000, 15), (250_000, 16), (60_000, 64), (14_000, 256), (600, 257)]
)
def test_more_pretokens_than_the_cache_holds(number: int, length: int, pattern: str | None) -> None:
    # So many ids that the places of the first ones are taken by others, while their entries stay.
    words = np.random.default_rng(length).integers(0, 256, (number, length), np.uint8)
    order = np.concatenate([np.arange(number), np.arange(50), np.arange(number)[-50:]])
    order = np.concatenate([order, order[:100]])
    data = words[order].tobytes()
    starts = np.arange(len(order)) * length
    native = encoder(pattern=pattern)
    for _ in range(2):
        if pattern is None:
            spans = np.full(len(order), -1)
            ids, offsets = native.encode_spans(data, starts, starts + length, spans)
        else:
            ids, offsets = native.encode_documents(data, starts, starts + length, NO_SPECIALS)
        assert ids.astype(np.uint8).tobytes() == data
        assert np.array_equal(offsets, np.append(starts, len(data)))


@pytest.mark.slow
@pytest.mark.parametrize("portable", [False, True])
def test_streams_and_documents_share_the_cache(portable: bool) -> None:
    # The stream's part stays small and is written around; then it grows for the documents.
    rng = random.Random(3)
    words = [b" " + rng.randbytes(rng.randrange(9, 25)).hex().encode() for _ in range(40_000)]
    native = encoder([(97, 98, 300), (32, 300, 301)], pattern="gpt2", portable=portable)
    fresh = encoder([(97, 98, 300), (32, 300, 301)], pattern="gpt2", cache_entries=0)
    texts = [b"".join(words[i : i + 200]) for i in range(0, len(words), 200)]
    expected = encoded(fresh, texts)
    for _ in range(2):
        steps = [native.encode_step(text, NO_SPECIALS) for text in texts]
        assert [np.frombuffer(step, np.uint32).tolist() for step in steps] == expected
        assert [native.encode_text(text.decode(), NO_SPECIALS) for text in texts] == expected
        assert encoded(native, texts) == expected


@pytest.mark.slow
def test_pretokens_of_every_length_share_the_cache() -> None:
    rng = random.Random(9)
    words = [rng.randbytes(rng.randrange(1, 30)) for _ in range(30_000)]
    data, starts, ends = joined(words)
    native = encoder(pattern=None)
    for _ in range(2):
        ids, offsets = native.encode_spans(data, starts, ends, np.full(len(words), -1))
        assert parts_of(ids, offsets) == unmerged(words)


def test_a_cache_remembers_no_pretoken_that_failed() -> None:
    ids = BYTE_IDS.copy()
    ids[ord("x")] = -1
    native = encoder([(97, 98, 300)], ids, pattern="gpt2")
    text = b" ab abx" + b"ab" * 20 + b"x"
    for _ in range(3):
        with pytest.raises(UnknownTokenError, match=r"byte 0x78 of the text has no id"):
            encoded(native, [text])
    assert encoded(native, [b" ab ab"]) == [[32, 300, 32, 300]]


def test_unknown_bytes_get_the_id_given() -> None:
    ids = BYTE_IDS.copy()
    ids[ord("x")] = -1
    for unknown in (7, 2**16, 2**24, 2**31 - 1):
        native = encoder([(97, 98, 300)], ids, unknown_id=unknown)
        documents = [b"xabx", b"x", b"ab" + b"x" * 60]
        expected = [[unknown, 300, unknown], [unknown], [300] + [unknown] * 60]
        assert encoded(native, documents * 2) == expected * 2


def test_whole_tokens_are_taken_as_they_are() -> None:
    native = encoder([(97, 98, 300)], pattern="none")
    long = b"z" * 60
    tokens = np.array([400, 2**31 - 1], np.uint32)
    native.set_whole_tokens(b"aba" + long, np.array([0, 3, 63]), tokens)
    documents = [b"aba", b"abab", long, long + b"z"]
    expected = [[400], [300, 300], [2**31 - 1], [122] * 61]
    assert encoded(native, documents * 2) == expected * 2


@pytest.mark.slow
@given(
    rules=rule_lists(),
    tokens=st.sets(
        st.text(" ab", min_size=1, max_size=40) | st.sampled_from(["a" * 16, "ab" * 70])
    ),
    lengths=st.lists(st.integers(1, 140), max_size=40),
    seed=st.integers(0, 9),
    cache=st.integers(0, 64),
)
def test_whole_tokens_stay_whole_among_pretokens_that_merge(
    rules: list[Rule], tokens: set[str], lengths: list[int], seed: int, cache: int
) -> None:
    rng = random.Random(seed)
    words = [" " + "".join(rng.choices("ab", k=length)) for length in lengths]
    # The words themselves too: some are then what their merges make, most are not.
    whole = {token: 1000 + i for i, token in enumerate(sorted(tokens | set(words[::3])))}
    buffer, offsets = concatenate([token.encode() for token in whole])
    byte_ids = dict(enumerate(range(256)))
    texts = [word for word in words for _ in range(2)] + [f" {token}" for token in tokens]
    for portable in (False, True):
        native = encoder(rules, pattern="none", cache_entries=cache, portable=portable)
        native.set_whole_tokens(buffer, offsets, np.array(list(whole.values()), np.uint32))
        for text in texts:
            expected = [whole[text]] if text in whole else merged(text.encode(), rules, byte_ids)
            assert encoded(native, [text.encode()]) == [expected]
        split = encoder(rules, cache_entries=cache, portable=portable)
        split.set_whole_tokens(buffer, offsets, np.array(list(whole.values()), np.uint32))
        one_by_one = [
            [whole[word]] if word in whole else merged(word.encode(), rules, byte_ids)
            for word in words
        ]
        assert encoded(split, ["".join(words).encode()]) == [list(chain(*one_by_one))]


def test_a_whole_token_may_have_a_byte_without_an_id() -> None:
    ids = BYTE_IDS.copy()
    ids[ord("x")] = -1
    native = encoder([(97, 98, 300)], ids)
    native.set_whole_tokens(b"abxab", np.array([0, 3, 5]), np.array([400, 300], np.uint32))
    assert encoded(native, [b"abx", b"ab"]) == [[400], [300]]
    with pytest.raises(UnknownTokenError):
        encoded(native, [b"abxx"])


# ---- documents, threads, dtypes


def words(number: int, seed: int) -> list[bytes]:
    rng = random.Random(seed)
    return [
        b" ".join(b"ab%d" % rng.randrange(3000) for _ in range(rng.randrange(300)))
        for _ in range(number)
    ]


@pytest.mark.parametrize("bits", [16, 32])
def test_threads_change_nothing(bits: int) -> None:
    documents = words(600, bits)
    specials = SpecialSet([b"ab7", b"77"], [500, 501])
    rules = [(97, 98, 300), (32, 300, 301), (49, 50, 302)]
    one = encoder(rules).encode_documents(
        *joined(documents), specials, prepend=[1], append=[2, 3], bits=bits
    )
    assert one[0].dtype == {16: np.uint16, 32: np.uint32}[bits]
    assert one[1].dtype == np.int64
    for threads in (0, 2, 3, 8, 64):
        native = encoder(rules)
        for _ in range(2):
            found = native.encode_documents(
                *joined(documents),
                specials,
                prepend=[1],
                append=[2, 3],
                bits=bits,
                num_threads=threads,
            )
            assert np.array_equal(found[0], one[0])
            assert np.array_equal(found[1], one[1])


@pytest.mark.slow
def test_one_encoder_may_be_used_by_many_threads_at_once() -> None:
    documents = words(300, 1)
    native = encoder([(97, 98, 300)], cache_entries=64)
    expected = encoded(encoder([(97, 98, 300)]), documents)
    found: dict[int, list[list[int]]] = {}

    def work(i: int) -> None:
        found[i] = encoded(native, documents, num_threads=1 + i % 2)
        for document in documents[:20]:
            native.encode_text(document.decode(), NO_SPECIALS)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[i] for i in range(6)] == [expected] * 6


def test_an_error_in_one_thread_is_raised() -> None:
    ids = BYTE_IDS.copy()
    ids[ord("!")] = -1
    documents = [*words(600, 4), b"!", *words(10, 5)]
    with pytest.raises(UnknownTokenError, match="0x21"):
        encoded(encoder(byte_ids=ids), documents, num_threads=4)


def test_documents_may_be_any_spans_of_the_data() -> None:
    data = np.frombuffer(b"abcd<s>ef", np.uint8)
    starts, ends = np.array([4, 0, 0, 9, 2]), np.array([7, 9, 0, 9, 6])
    specials = SpecialSet([b"<s>"], [900])
    for buffer in (data.tobytes(), bytearray(data), memoryview(data), data):
        ids, offsets = encoder().encode_documents(buffer, starts, ends, specials)
        whole = [*b"abcd", 900, *b"ef"]
        assert parts_of(ids, offsets) == [[900], whole, [], [], [*b"cd<s"]]
    for size in range(40):
        text = b"x" * size
        # Nothing may be read beyond the end of the data, however short it is.
        assert encoded(encoder(), [text]) == [list(text)]


def test_no_documents_have_no_ids() -> None:
    ids, offsets = encoder().encode_documents(b"", np.array([]), np.array([]), NO_SPECIALS)
    assert (ids.tolist(), offsets.tolist(), ids.dtype) == ([], [0], np.uint32)


def test_ids_are_kept_while_their_arrays_live() -> None:
    native = encoder()
    ids, offsets = native.encode_documents(*joined([b"abc"] * 1000), NO_SPECIALS)
    del native
    assert ids.tolist() == [97, 98, 99] * 1000
    assert offsets[-1] == 3000


@pytest.mark.slow
def test_long_texts_take_time_near_their_length() -> None:
    rules: list[Rule] = [(97, 97, 300)]
    rules += [(300 + i, 300 + i, 301 + i) for i in range(12)] + [(97, 98, 400), (98, 97, 401)]
    rng = random.Random(1)
    texts = [b"a" * (1 << 20), bytes(rng.choice(b"ab") for _ in range(1 << 20))]
    for text in texts:
        native = encoder(rules, pattern="none")

        def seconds(part: bytes, native: Encoder = native) -> float:
            times = []
            for _ in range(5):
                begin = time.thread_time()
                native.encode_text(part, NO_SPECIALS)
                times.append(time.thread_time() - begin)
            return min(times)

        assert seconds(text) < 9 * seconds(text[: 1 << 18])


# ---- misuse


def test_misuse_is_refused() -> None:
    native = encoder()
    for starts, ends in [([-1], [1]), ([0], [4]), ([2], [1]), ([0, 1], [1])]:
        arrays = np.array(starts), np.array(ends)
        with pytest.raises(ValueError):
            native.encode_documents(b"abc", *arrays, NO_SPECIALS)
        with pytest.raises(ValueError):
            native.encode_spans(b"abc", *arrays, np.full(len(starts), -1))
    with pytest.raises(ValueError, match="special ids"):
        native.encode_spans(b"abc", np.array([0]), np.array([1]), np.array([]))
    with pytest.raises(ValueError, match="takes spans"):
        encoder(pattern=None).encode_documents(b"", np.array([]), np.array([]), NO_SPECIALS)
    with pytest.raises(ValueError, match="takes spans"):
        encoder(pattern=None).encode_text("a", NO_SPECIALS)
    with pytest.raises(ValueError, match="256 byte ids"):
        encoder(byte_ids=np.arange(255))
    with pytest.raises(ValueError, match="no native scanner"):
        encoder(pattern="gpt3")
    with pytest.raises(ValueError, match="equally long"):
        one, two = np.zeros(1, np.uint32), np.zeros(2, np.uint32)
        Encoder(BYTE_IDS, one, one, two)
    with pytest.raises(TypeError):
        native.encode_text(5, NO_SPECIALS)  # type: ignore[arg-type]


@pytest.mark.parametrize("between", [3000, 10_000, 30_000, 60_000])
def test_what_a_cache_holds_is_right_however_often_it_grew(between: int) -> None:
    """Ids that have no room in their line are overwritten by the newest; which, growing keeps."""
    rng = random.Random(between)

    def words(letters: Sequence[str], length: int, n: int) -> str:
        return "".join(f" {''.join(rng.choices(letters, k=length))}" for _ in range(n))

    latin = [*"abcdefghijklmnopqrstuvwxyz", *"ABCDEFGHIJKLMNOPQRSTUVWXYZ"]
    pairs = [(a.encode(), b.encode()) for a in [" ", *latin] for b in latin]
    tokens = [*(bytes([i]) for i in range(256)), *(a + b for a, b in pairs)]
    model = BPETokenizer(dict(enumerate(tokens)), pairs).model
    rare = words([chr(c) for c in range(0x1400, 0x1660)], 4, 1500)  # 13 ids each
    parts = [rare, words(latin, 60, 1200), words(latin, 3, between), rare]  # 2 ids each in between
    expected = [BPETokenizer.from_model(model).encode(part) for part in parts]
    tokenizer = BPETokenizer.from_model(model)
    assert [tokenizer.encode(part) for part in parts] == expected
    whole = [token_id for ids in expected for token_id in ids]
    assert BPETokenizer.from_model(model).encode("".join(parts)) == whole
    assert list(tokenizer.encode_iterable(parts)) == whole
    assert tokenizer.encode("".join(parts)) == whole
