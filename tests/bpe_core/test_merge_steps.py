"""Encoding step by step gives the ids of the encoder, by the steps of the reference."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import times

from bpe_core import BPETokenizer, PretokenCounts, reference, train_characters_from_counts
from bpe_core.errors import InvalidUtf8Error, UnknownTokenError
from bpe_core.merge_steps import EncodingTracer, TracedPretoken, TracedSpecial
from bpe_core.model import TokenizerModel

SPECIALS = {"<s>": 900, "<e>": 901}
BYTES = {i: bytes([i]) for i in range(256)}


def model_of(pairs: Sequence[tuple[int, int]], **options: object) -> TokenizerModel:
    """A tokenizer whose merges join earlier tokens, by their numbers."""
    tokens = [b"a", b"b", b" ", "é".encode()[:1], "é".encode()[1:]]
    merges = []
    for left, right in pairs:
        first, second = tokens[left % len(tokens)], tokens[right % len(tokens)]
        if first + second not in tokens and len(first + second) < 20:
            merges.append((first, second))
            tokens.append(first + second)
    vocab = BYTES | {256 + i: a + b for i, (a, b) in enumerate(merges)}
    return TokenizerModel.from_vocab(vocab, merges, SPECIALS, pattern="gpt2", **options)  # type: ignore[arg-type]


pair_lists = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=20)
texts = st.lists(st.sampled_from(["a", "b", " ", "é", "ﬁ", "<s>", "<", "\n"])).map("".join)


@settings(max_examples=times(2))
@given(pair_lists, texts, st.booleans(), st.sampled_from(["nfkc", None]), st.booleans())
def test_traced_ids_are_those_of_the_encoder(
    pairs: list[tuple[int, int]], text: str, ordinary: bool, normalizer: str | None, whole: bool
) -> None:
    model = model_of(pairs, normalizer=normalizer, ignore_merges=whole)
    tokenizer = BPETokenizer.from_model(model)
    parts = list(EncodingTracer(model).trace(text, ordinary=ordinary))
    ids = [i for part in parts for i in part.ids]
    assert ids == tokenizer.encode(text, "none" if ordinary else "all")


@given(pair_lists, st.text("abé ", min_size=1, max_size=20))
def test_steps_are_those_of_the_reference(pairs: list[tuple[int, int]], text: str) -> None:
    model = model_of(pairs)
    ranks = {pair: rank for rank, pair in enumerate(model.merge_bytes)}
    traced = EncodingTracer(model).trace_pretoken(text.encode())
    assert [model.vocab[i] for i in traced.ids] == reference.apply_merges(text.encode(), ranks)
    symbols = list(traced.start)
    assert b"".join(model.vocab[i] for i in symbols) == text.encode()
    for step in traced.steps:
        at = step.position
        assert symbols[at : at + 2] == [step.left, step.right]
        assert model.merges[step.rank].tolist() == [step.left, step.right, step.result]
        best = min(
            (rank, i)
            for i, pair in enumerate(pairwise(symbols))
            if (rank := ranks.get((model.vocab[pair[0]], model.vocab[pair[1]]))) is not None
        )
        assert best == (step.rank, at)
        symbols[at : at + 2] = [step.result]
    assert tuple(symbols) == traced.ids


@pytest.mark.parametrize("byte_fallback", [True, False])
def test_characters_are_traced(byte_fallback: bool) -> None:
    counts = PretokenCounts.from_mapping({b" the": 9, b" then": 5, "né".encode(): 3})
    result = train_characters_from_counts(
        counts, 280 if byte_fallback else 20, unk_token="<unk>", byte_fallback=byte_fallback
    )
    tokenizer = result.tokenizer()
    tracer = EncodingTracer(tokenizer.model)
    for text in ("the then né", "漢字 the", "xx the\u2581né"):
        parts = list(tracer.trace(text))
        assert [i for part in parts for i in part.ids] == tokenizer.encode(text)


def test_special_tokens_are_parts() -> None:
    parts = list(EncodingTracer(model_of([])).trace("a<s>"))
    assert parts == [
        TracedPretoken(text=b"a", start=(97,), steps=(), ids=(97,)),
        TracedSpecial(text="<s>", id=900),
    ]


@pytest.mark.parametrize("rule", ["prefix_space", "drop_white_space"])
def test_space_rules_are_applied(rule: str) -> None:
    model = TokenizerModel.from_tokens(
        BYTES.items(), pattern=r"\S+" if rule == "drop_white_space" else "gpt2", **{rule: True}
    )
    traced = [i for part in EncodingTracer(model).trace("a b\n c") for i in part.ids]
    assert traced == BPETokenizer.from_model(model).encode("a b\n c")


def test_patterns_that_are_not_compiled_are_traced() -> None:
    model = TokenizerModel.from_tokens(BYTES.items(), pattern=r"(a)\1|.")
    with pytest.warns(UserWarning, match="not compiled"):
        ids = BPETokenizer.from_model(model).encode("aabé")
    assert [i for part in EncodingTracer(model).trace("aabé") for i in part.ids] == ids


def test_text_that_cannot_be_encoded_is_an_error() -> None:
    model = TokenizerModel.from_tokens([(0, b"a")])
    with pytest.raises(UnknownTokenError, match="0x62"):
        list(EncodingTracer(model).trace("ab"))
    with pytest.raises(InvalidUtf8Error):
        list(EncodingTracer(model_of([])).trace(b"\xff"))
    unknown = TokenizerModel.from_tokens([(0, b"a")], unknown_id=7)
    assert [p.ids for p in EncodingTracer(unknown).trace("ab")] == [(0, 7)]


def test_ids_of_bytes() -> None:
    model = model_of([(0, 1)])
    assert (model.ids_of(b"ab"), model.ids_of(b"ba"), model.ids_of(b"")) == ([256], [], [])
    assert np.array_equal(model.token_ids, np.arange(257))
