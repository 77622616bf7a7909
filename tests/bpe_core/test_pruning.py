"""Pruned tokenizers: what stays, the map of ids, and encoding."""

from __future__ import annotations

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from bpe_core import BPETokenizer, PretokenCounts, pruning, reference, train_characters_from_counts
from bpe_core.errors import InvalidTokenizerError
from bpe_core.formats.huggingface import huggingface_bytes
from bpe_core.model import TokenizerModel
from bpe_core.pruning import most_used_tokens, prune_tokenizer

BYTES = {i: bytes([i]) for i in range(256)}
pair_lists = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=20)
texts = st.text("ab é", max_size=30)


def model_of(pairs: list[tuple[int, int]], *, whole: bool = False) -> TokenizerModel:
    """A tokenizer with gaps between ids, whose merges join earlier tokens, by their numbers."""
    tokens = [b"a", b"b", b" ", b"\xc3", b"\xa9"]
    merges = []
    for left, right in pairs:
        pair = tokens[left % len(tokens)], tokens[right % len(tokens)]
        if pair not in merges and len(b"".join(pair)) < 20:
            merges.append(pair)
            if b"".join(pair) not in tokens:
                tokens.append(b"".join(pair))
    vocab = BYTES | {300 + 2 * i: token for i, token in enumerate(tokens[5:])}
    if whole and b"aa aa" not in tokens:
        vocab[280] = b"aa aa"
    return TokenizerModel.from_vocab(
        vocab, merges, {"<s>": 290, "<e>": 500}, pattern="none", ignore_merges=whole
    )


@pytest.mark.slow
@given(pair_lists, st.integers(0, 2**32), st.booleans())
def test_what_stays_is_that_of_the_reference(
    pairs: list[tuple[int, int]], seed: int, whole: bool
) -> None:
    model = model_of(pairs, whole=whole)
    kept = np.random.default_rng(seed).random(len(model.token_ids)) < 0.5
    found = prune_tokenizer(model, kept)
    tokens = {token for (_, token), stays in zip(model.tokens, kept, strict=True) if stays}
    merges = reference.prune_merges(model.merge_bytes, tokens)
    assert found.model.merge_bytes == merges
    # Ids are dense and in order; the maps are inverse.
    assert sorted(found.model.vocab) == list(range(len(found.model)))
    assert np.all(np.diff(found.new_to_old) > 0)
    assert np.array_equal(found.old_to_new[found.new_to_old], np.arange(len(found.new_to_old)))
    assert int((found.old_to_new >= 0).sum()) == len(found.new_to_old)
    for new, old in enumerate(found.new_to_old.tolist()):
        assert found.model.vocab[new] == model.vocab[old]
    assert found.model.special_tokens == {
        text: int(found.old_to_new[i]) for text, i in model.special_tokens.items()
    }


@pytest.mark.slow
@given(pair_lists, st.integers(0, 2**32), texts, st.booleans())
def test_texts_of_kept_tokens_are_encoded_as_before(
    pairs: list[tuple[int, int]], seed: int, text: str, whole: bool
) -> None:
    model = model_of(pairs, whole=whole)
    kept = np.random.default_rng(seed).random(len(model.token_ids)) < 0.5
    found = prune_tokenizer(model, kept)
    before = BPETokenizer.from_model(model).encode(text)
    after = BPETokenizer.from_model(found.model).encode(text)
    if (found.old_to_new[before] >= 0).all():
        assert after == found.old_to_new[before].tolist()
    if not whole:
        ranks = {pair: rank for rank, pair in enumerate(found.model.merge_bytes)}
        tokens = reference.apply_merges(text.encode(), ranks)
        assert [found.model.vocab[i] for i in after] == tokens


@pytest.mark.slow
@given(pair_lists, st.booleans())
def test_last_merges_by_ranks_are_those_by_steps(pairs: list[tuple[int, int]], whole: bool) -> None:
    model = model_of(pairs, whole=whole)
    by_ranks = pruning._last_merges_by_ranks(model)
    if by_ranks is not None:
        assert np.array_equal(by_ranks, pruning._last_merges_by_steps(model))


@pytest.mark.slow
@given(pair_lists, st.integers(0, 2**32), st.integers(0, 20))
def test_the_most_used_tokens_fill_the_size(
    pairs: list[tuple[int, int]], seed: int, more: int
) -> None:
    model = model_of(pairs)
    uses = np.random.default_rng(seed).integers(0, 9, len(model.token_ids))
    kept = most_used_tokens(model, uses, 258 + more)
    pruned = prune_tokenizer(model, kept)
    assert len(pruned.model) == kept.sum() + 2 <= 258 + more
    # What is left out does not fit, or is as rarely used as what fits only with fewer parts.
    if len(pruned.model) == 258 + more:
        return
    for row in np.flatnonzero(~kept):
        again = kept.copy()
        again[row] = True
        assert len(prune_tokenizer(model, again).model) > 258 + more


def test_a_size_below_the_bytes_is_refused() -> None:
    with pytest.raises(InvalidTokenizerError, match="at least 258"):
        most_used_tokens(model_of([]), np.zeros(256, np.int64), 257)


def test_everything_else_of_the_tokenizer_stays() -> None:
    model = TokenizerModel.from_tokens(
        [*BYTES.items(), (300, b"ab"), (301, b"cd")],
        [(97, 98, 300), (99, 100, 301)],
        special_tokens={"<s>": 400, "</s>": 500},
        merge_counts=[5, 3],
        pattern="o200k",
        normalizer="nfc",
        prepend=[400],
        append=[500],
        unknown_id=600,
        nonspecial_tokens=["</s>"],
        stop_reason="vocab_size_reached",
    )
    pruned = prune_tokenizer(model, model.token_ids == 301).model
    assert (pruned.prepend, pruned.append, pruned.unknown_id) == ((257,), (258,), 259)
    assert (pruned.pattern, pruned.normalizer) == ("o200k", "nfc")
    assert pruned.merge_counts is not None and pruned.merge_counts.tolist() == [3]
    assert (pruned.nonspecial_tokens, pruned.stop_reason) == ({"</s>"}, None)
    assert pruned.training_options == {"pruned": {"fingerprint": model.fingerprint, "ids": 260}}


def test_tokenizers_of_characters_are_refused() -> None:
    counts = PretokenCounts.from_mapping({b" the": 9})
    model = train_characters_from_counts(counts, 280, unk_token="<unk>").model
    with pytest.raises(InvalidTokenizerError, match="merges characters"):
        prune_tokenizer(model, np.ones(len(model.token_ids), np.bool_))


def test_the_json_file_has_the_same_ids() -> None:
    model = model_of([(0, 1), (5, 0), (1, 1), (6, 7)])
    pruned = prune_tokenizer(model, np.array([len(token) != 2 for _, token in model.tokens]))
    peer = tokenizers.Tokenizer.from_str(huggingface_bytes(pruned.model).decode())
    ours = BPETokenizer.from_model(pruned.model)
    for text in ("aba b", "abababb<s>é", "bbaab"):
        assert peer.encode(text, add_special_tokens=False).ids == ours.encode(text)
