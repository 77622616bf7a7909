"""Two merges that make the same bytes under an id each, as minbpe numbers them."""

from __future__ import annotations

import itertools
import pickle
from itertools import pairwise
from pathlib import Path

import pytest
from equal_bytes_support import A, B, Pair, merge_everywhere, merged, pair_lists
from hypothesis import example, given, settings
from hypothesis import strategies as st
from profiles import times

from bpe_core import BPETokenizer
from bpe_core.errors import InvalidTokenizerError
from bpe_core.formats import CannotHoldError, read_arrow, save_tokenizer, write_arrow
from bpe_core.formats.gpt2 import vocab_merges_bytes
from bpe_core.formats.huggingface import huggingface_bytes
from bpe_core.formats.ranks import tiktoken_bytes
from bpe_core.model import TokenizerModel


def model_of(pairs: list[Pair], pattern: str = "none") -> TokenizerModel:
    """The 256 bytes and a new id for each pair, in order."""
    tokens = [bytes([byte]) for byte in range(256)]
    for left, right in pairs:
        tokens.append(tokens[left] + tokens[right])
    merges = [(left, right, 256 + rank) for rank, (left, right) in enumerate(pairs)]
    return TokenizerModel.from_tokens(enumerate(tokens), merges, pattern=pattern)


# (a, bb) and (ab, b) make abb, (b, bb) and (bb, b) make bbb.
TWICE: list[Pair] = [(B, B), (A, B), (257, B), (A, 256), (B, 256), (256, B)]


@settings(max_examples=times(3))
@given(pair_lists(), st.lists(st.text("ab", max_size=300), min_size=1, max_size=4))
@example(TWICE, ["abb", "abbb", "babbabbb"])
def test_ids_are_those_of_the_merges(pairs: list[Pair], texts: list[str]) -> None:
    tokenizer = BPETokenizer.from_model(model_of(pairs))
    for text in texts:
        assert tokenizer.encode(text) == merged(text.encode(), pairs)
        assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("pattern", ["none", "gpt2", r"[ab]+"])
def test_ids_are_those_of_the_merges_for_every_short_text(pattern: str) -> None:
    tokenizer = BPETokenizer.from_model(model_of(TWICE, pattern))
    for length in range(1, 9):
        for letters in itertools.product("ab", repeat=length):
            text = "".join(letters)
            assert tokenizer.encode(text) == merged(text.encode(), TWICE)


def test_each_id_is_decoded_and_its_merge_kept() -> None:
    tokenizer = BPETokenizer.from_model(model_of(TWICE))
    assert tokenizer.decode([258]) == tokenizer.decode([259]) == "abb"
    assert tokenizer.merges[2:4] == [(b"ab", b"b"), (b"a", b"bb")]
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert copy.model == tokenizer.model
    assert copy.encode("abbbabb") == tokenizer.encode("abbbabb")


@given(pair_lists())
def test_tokenizer_arrow_holds_them(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[Pair]
) -> None:
    path = tmp_path_factory.getbasetemp() / "equal_bytes.arrow"
    model = model_of(pairs)
    write_arrow(model, path)
    assert read_arrow(path) == model


def test_formats_keyed_by_bytes_refuse_them_with_the_reason(tmp_path: Path) -> None:
    model = model_of(TWICE)
    for encode in (vocab_merges_bytes, huggingface_bytes, tiktoken_bytes):
        with pytest.raises(CannotHoldError, match="ids 258 and 259 have the same bytes"):
            encode(model)
    not_written = save_tokenizer(model, tmp_path)
    assert {"tokenizer.json", "vocab.json + merges.txt", "tokenizer.tiktoken"} <= set(not_written)
    assert read_arrow(tmp_path / "tokenizer.arrow") == model


def test_a_model_says_which_two_ids_have_the_same_bytes() -> None:
    assert model_of(TWICE).equal_ids == (258, 259)
    assert model_of(TWICE[:3]).equal_ids is None


TOKENS = [(A, b"a"), (B, b"b"), (256, b"bb"), (257, b"ab"), (258, b"abb"), (259, b"abb")]
ROWS = [(B, B, 256), (A, B, 257), (257, B, 258), (A, 256, 259)]


@pytest.mark.parametrize(
    ("tokens", "merges", "ids"),
    [
        (TOKENS, ROWS[:3], "258 and 259"),
        (TOKENS, [*ROWS[:3], (A, 256, 258)], "258 and 259"),
        ([*TOKENS, (300, b"abb")], ROWS, "258 and 259"),
        ([*TOKENS, (300, b"a")], ROWS, f"{A} and 300"),
    ],
)
def test_equal_bytes_without_a_merge_for_each_id_are_refused(
    tokens: list[tuple[int, bytes]], merges: list[tuple[int, int, int]], ids: str
) -> None:
    with pytest.raises(InvalidTokenizerError, match=f"ids {ids} have the same bytes"):
        TokenizerModel.from_tokens(tokens, merges)


def test_they_are_refused_where_a_whole_pretoken_could_be_either() -> None:
    assert TokenizerModel.from_tokens(TOKENS, ROWS).equal_ids == (258, 259)
    with pytest.raises(InvalidTokenizerError, match=r"ids 258 and 259 .* no ignore_merges"):
        TokenizerModel.from_tokens(TOKENS, ROWS, ignore_merges=True)


def test_a_vocabulary_with_merges_of_bytes_cannot_tell_them_apart() -> None:
    model = TokenizerModel.from_tokens(TOKENS, ROWS)
    with pytest.raises(InvalidTokenizerError, match="ids 258 and 259 have the same bytes"):
        BPETokenizer(model.vocab, model.merge_bytes)


@given(st.lists(st.text("abc", min_size=1, max_size=8), min_size=1, max_size=6), st.integers(0, 30))
def test_training_never_makes_the_same_bytes_twice(words: list[str], merges: int) -> None:
    # A pair stands side by side only where the bytes of both, alone, come to it: one pair for them.
    sequences = [list(word.encode()) for word in words]
    tokens = [bytes([byte]) for byte in range(256)]
    for new in range(256, 256 + merges):
        counts: dict[Pair, int] = {}
        for ids in sequences:
            for pair in pairwise(ids):
                counts[pair] = counts.get(pair, 0) + 1
        if not counts:
            break
        best = max(counts, key=counts.__getitem__)
        tokens.append(tokens[best[0]] + tokens[best[1]])
        assert tokens.index(tokens[-1]) == new
        for ids in sequences:
            merge_everywhere(ids, best, new)
