"""Merged characters, and cuts that follow from a vocabulary, against the reference."""

from __future__ import annotations

import itertools
import json
import pickle
from functools import cache

import numpy as np
import pytest
from character_support import FALLBACKS, STEPS, character_json, read_json
from core_support import INVALID_UTF8
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import times

from bpe_core import BPETokenizer, PretokenCounts, reference, train_characters_from_counts
from bpe_core._native import ByteSplitter, split_pretokens
from bpe_core.errors import TrainingError
from bpe_core.model import TokenizerModel
from bpe_core.vocabulary_cuts import vocabulary_splitter

FRAGMENTS = [
    *[" ", "  ", "    ", "▁", "▁▁", "▁ ", "\n", "\n\n", "\t", "\x00", ".", "'s", "1234", ">▁</"],
    *[
        "<s>",
        "</s>",
        "<unk>",
        "<0x0A>",
        "<s",
        "the",
        " the",
        "heaven",
        "aaaaa",
        "aa",
        "é",
        "e\u0301",
    ],
    *["日本", "語", "한", "👩🏽", "Ж", "мир", "Ω", "ΩΩ", "Ω日", "\u0378"],
]
texts = st.lists(st.sampled_from(FRAGMENTS) | st.characters(exclude_categories=["Cs"]), max_size=20)
# Their other normalizers change the text before it is merged.
PLAIN_STEPS = [name for name in STEPS if name != "nfkc"]


@cache
def tokenizer_of(steps: str, fallback: str) -> BPETokenizer:
    return read_json(json.dumps(character_json(steps, fallback)))


# --- merged characters


@pytest.mark.slow
@pytest.mark.parametrize("fallback", FALLBACKS)
@settings(max_examples=times(3))
@given(
    parts=texts,
    steps=st.sampled_from(PLAIN_STEPS),
    allowed=st.sampled_from(["all", "none", frozenset({"<unk>", "</s>"})]),
)
def test_ids_are_those_of_the_reference(
    fallback: str, parts: list[str], steps: str, allowed: frozenset[str]
) -> None:
    tokenizer = tokenizer_of(steps, fallback)
    model = tokenizer.model
    assert model.characters is not None
    text = "".join(parts)
    if not isinstance(allowed, str):
        allowed &= model.special_tokens.keys()
    expected = reference.encode_characters(
        text,
        dict(model.tokens),
        model.merge_bytes,
        model.special_tokens,
        model.characters,
        unknown_id=model.unknown_id,
        allowed_special=allowed,
    )
    assert tokenizer.encode(text, allowed) == expected


@pytest.mark.slow
@settings(max_examples=times(2))
@given(
    words=st.dictionaries(
        st.text("aabbcé▁ 日<", min_size=1, max_size=7), st.integers(1, 9), min_size=1, max_size=8
    ),
    merges=st.integers(0, 12),
    byte_fallback=st.booleans(),
    character_coverage=st.sampled_from([1.0, 0.999, 0.9, 0.75, 0.5]),
    tie_break=st.sampled_from(["lexicographic", "first_id"]),
    min_frequency=st.integers(1, 4),
    max_token_bytes=st.sampled_from([None, 3, 5]),
)
def test_training_learns_what_the_reference_does(
    words: dict[str, int],
    merges: int,
    byte_fallback: bool,
    character_coverage: float,
    tie_break: str,
    min_frequency: int,
    max_token_bytes: int | None,
) -> None:
    counts = {word.encode(): count for word, count in words.items()} | {b" ": 20}
    size = 3 + 256 * byte_fallback + 8 + merges
    options = {
        "byte_fallback": byte_fallback,
        "character_coverage": character_coverage,
        "tie_break": tie_break,
        "min_frequency": min_frequency,
        "max_token_bytes": max_token_bytes,
    }
    vocab, learned = reference.train_characters(counts, size, ["<a>", "<"], **options)  # type: ignore[arg-type]
    try:
        result = train_characters_from_counts(
            PretokenCounts.from_mapping(counts),
            size,
            ["<a>", "<"],
            **options,  # type: ignore[arg-type]
        )
    except TrainingError:
        assert b" " not in list(vocab.values())[3 + 256 * byte_fallback :]
        return
    assert result.model.vocab == vocab
    assert list(result.merges) == learned


# --- cuts of a vocabulary


def byte_model(merges: list[tuple[bytes, bytes]], **changes: object) -> TokenizerModel:
    vocab = reference.build_vocab(["<s>"], merges)
    specials = {"<s>": 0}
    return TokenizerModel.from_vocab(vocab, merges, specials, pattern="none", **changes)  # type: ignore[arg-type]


byte_texts = st.text("aab  é\n日<s>", max_size=60)


@settings(max_examples=times(2))
@given(
    corpus=st.lists(byte_texts, min_size=1, max_size=3),
    merges=st.integers(0, 20),
    parts=st.lists(byte_texts, max_size=4),
    normalizer=st.sampled_from([None, "nfc"]),
)
def test_the_pattern_none_gives_the_ids_of_the_reference(
    corpus: list[str], merges: int, parts: list[str], normalizer: str | None
) -> None:
    _, learned = reference.train(corpus, 257 + merges, ["<s>"], pattern="none")
    model = byte_model(learned, normalizer=normalizer)
    tokenizer = BPETokenizer.from_model(model)
    text = "".join(parts)
    expected = reference.encode(
        text, model.vocab, learned, model.special_tokens, pattern="none"
    )  # NFC leaves these texts as they are
    assert tokenizer.encode(text) == expected
    long = [part * 300 for part in parts]
    assert list(tokenizer.encode_iterable(long)) == tokenizer.encode("".join(long))


@settings(max_examples=times(2))
@given(
    tokens=st.lists(st.binary(min_size=2, max_size=5), max_size=20),
    parts=st.lists(st.sampled_from([b"a", b"ab", "é日".encode(), *INVALID_UTF8]), max_size=30),
    capacity=st.sampled_from([1, 2, 256]),
)
def test_bytes_are_split_where_the_reference_cuts(
    tokens: list[bytes], parts: list[bytes], capacity: int
) -> None:
    # Each token is made by merges from the left.
    merges = [(t[:n], t[n : n + 1]) for t in tokens for n in range(1, len(t))]
    splitter = vocabulary_splitter(byte_model(list(dict.fromkeys(merges))))
    assert isinstance(splitter, ByteSplitter)
    data = b"".join([*parts, *tokens])
    cuts = reference.cut_places_of_vocabulary(data, tokens)
    expected = [*cuts, len(data)] if data else []
    for same in (splitter, pickle.loads(pickle.dumps(splitter))):
        assert split_pretokens(same, data, capacity).tolist() == expected


def test_a_vocabulary_that_joins_all_bytes_has_no_cuts() -> None:
    assert not ByteSplitter(np.full(1024, 2**64 - 1, np.uint64)).has_cuts
    with pytest.raises(ValueError, match="a bit for each pair"):
        ByteSplitter(np.zeros(3, np.uint64))


def test_tokens_that_merges_do_not_make_leave_a_text_whole() -> None:
    model = byte_model([(b"a", b"b")])
    assert isinstance(vocabulary_splitter(model), ByteSplitter)
    tokens = [*model.tokens, (258, b"a c")]
    whole = TokenizerModel.from_tokens(
        tokens, model.merges.tolist(), pattern="none", ignore_merges=True
    )
    assert vocabulary_splitter(whole) is None
    tokenizer = BPETokenizer.from_model(whole)
    assert tokenizer.encode("a c") == [258]
    assert len(tokenizer.encode("a ca")) == 4


def test_the_cuts_of_characters_are_among_those_of_the_reference() -> None:
    model = tokenizer_of("yi", "bytes").model
    splitter = vocabulary_splitter(model)
    tokens = [token.decode() for _, token in model.tokens if len(token) > 1]
    joined = {pair for token in tokens for pair in itertools.pairwise(token)}
    for text in ("the earth", "aaaa 日本の文字", ">▁</p> x", "def f(x):\n    return"):
        text = text.replace("▁", " ")
        ends = set(split_pretokens(splitter, text.encode(), 256).tolist())
        sizes = itertools.accumulate(len(character.encode()) for character in text)
        known = {c for token in tokens for c in token}
        expected = {
            end
            for end, pair in zip(sizes, itertools.pairwise(text), strict=False)
            if pair not in joined and set(pair) <= known
        }
        assert ends - {len(text.encode())} <= expected
