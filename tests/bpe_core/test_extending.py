"""Extending: a tokenizer keeps every id and merge, and new ones follow, whatever it is."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from core_support import published_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import times

from bpe_core import (
    BPETokenizer,
    PretokenCounts,
    count_pretokens,
    reference,
    train_from_counts,
)
from bpe_core.errors import TrainingError
from bpe_core.model import TokenizerModel

END = "<|endoftext|>"
TIE_BREAKS: list[Any] = ["lexicographic", "first_id", "huggingface"]

words = st.dictionaries(
    st.text("abc ", min_size=1, max_size=12).map(str.encode), st.integers(1, 5), max_size=8
)


@st.composite
def models(draw: st.DrawFn) -> TokenizerModel:
    """Tokenizers as they may come from elsewhere.

    Ids in any order with gaps, special tokens among them, tokens that no merge makes or that their
    bytes do not merge into, merges in any order, and several that make the same bytes.
    """
    random_ = draw(st.randoms(use_true_random=False))
    tokens = [b"abc !"[i : i + 1] for i in range(5)]
    pairs = []
    for _ in range(draw(st.integers(0, 8))):
        pair = random_.choice(tokens), random_.choice(tokens)
        if pair not in pairs and len(pair[0] + pair[1]) <= 5:
            pairs.append(pair)
            tokens += [pair[0] + pair[1]] * (pair[0] + pair[1] not in tokens)
    tokens += [token for token in (b"cab", b"a b", b"bcc") if token not in tokens]
    numbers = random_.sample(range(3 * len(tokens)), len(tokens) + 2)
    ids = dict(zip(tokens, numbers, strict=False))
    random_.shuffle(pairs)
    return TokenizerModel.from_tokens(
        ((i, token) for token, i in ids.items()),
        [(ids[left], ids[right], ids[left + right]) for left, right in pairs],
        special_tokens={"<s>": numbers[-1], "ab": numbers[-2]},
        pattern="none",
        ignore_merges=draw(st.booleans()),
    )


def tokens_by_reference(model: TokenizerModel, pretoken: bytes) -> list[bytes]:
    if model.ignore_merges and pretoken in dict(map(reversed, model.tokens)):  # type: ignore[arg-type]
        return [pretoken]
    ranks = {pair: rank for rank, pair in enumerate(model.merge_bytes)}
    return reference.apply_merges(pretoken, ranks)


def bytes_of(tokenizer: BPETokenizer, ids: list[int]) -> list[bytes]:
    return [tokenizer.vocab[i] for i in ids]


# ---- what is kept, and what follows


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
@settings(max_examples=times(1.5))
@given(model=models(), mapping=words, more=st.integers(0, 12), limit=st.sampled_from([None, 4]))
def test_any_tokenizer_is_extended_as_the_reference_says(
    tie_break: Any, model: TokenizerModel, mapping: dict[bytes, int], more: int, limit: int | None
) -> None:
    result = train_from_counts(
        PretokenCounts.from_mapping(mapping),
        len(model) + 1 + more,
        ["<s>", "<new>"],
        tie_break=tie_break,
        max_token_bytes=limit,
        base=BPETokenizer.from_model(model),
    )
    tokens = [token for _, token in model.tokens]
    splits = [
        ([tokens.index(token) for token in tokens_by_reference(model, pretoken)], count)
        for pretoken, count in mapping.items()
    ]
    expected = reference.learn_symbol_merges(
        tokens,
        splits,
        len(tokens) + more,
        tie_break=tie_break,
        max_token_bytes=limit,
        forbidden_tokens=tokens,
    )
    made = [(expected.symbols[a], expected.symbols[b]) for a, b, _ in expected.merges]
    assert result.merges == model.merge_bytes + made
    assert result.merge_counts == [0] * len(model.merges) + expected.counts
    assert result.stop_reason == expected.stop_reason
    # Every old id stays, and new ones come after the largest.
    first = model.max_id + 1
    new = {first: b"<new>"} | {
        first + 1 + i: token for i, token in enumerate(expected.symbols[len(tokens) :])
    }
    assert result.vocab == model.vocab | new
    assert result.model.special_tokens == {**model.special_tokens, "<new>": first}


@settings(max_examples=times(1.5))
@given(model=models(), mapping=words)
def test_encoding_is_the_old_one_and_then_the_new_merges(
    model: TokenizerModel, mapping: dict[bytes, int]
) -> None:
    base = BPETokenizer.from_model(model)
    result = train_from_counts(PretokenCounts.from_mapping(mapping), len(model) + 9, base=base)
    extended = result.tokenizer()
    new_merges = result.merges[len(model.merges) :]
    for pretoken in [*mapping, b"abcabc", b"cab", b"a b!", b"ca"]:
        old = bytes_of(base, base.encode_ordinary(pretoken))
        merged = list(old)
        for pair in new_merges:
            reference.merge_pair(merged, pair, pair[0] + pair[1])
        assert bytes_of(extended, extended.encode_ordinary(pretoken)) == merged
        if merged == old:
            assert extended.encode_ordinary(pretoken) == base.encode_ordinary(pretoken)


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
def test_a_training_continued_is_the_training_at_once(
    tie_break: Any, kjv_documents: list[bytes]
) -> None:
    counts = count_pretokens(kjv_documents[:5000], special_tokens=[END])
    base = train_from_counts(counts, 700, [END], tie_break=tie_break).tokenizer()
    whole = train_from_counts(counts, 1500, [END], tie_break=tie_break)
    result = train_from_counts(counts, 1500, [END], tie_break=tie_break, base=base)
    assert (result.merges, result.merge_counts) == (whole.merges, whole.merge_counts)
    assert result.model.fingerprint == whole.model.fingerprint
    assert result.model.training_options is not None
    assert result.model.training_options["base"] == {
        "fingerprint": base.model.fingerprint,
        "merges": 700 - 257,
    }


def test_results_of_several_sizes_are_prefixes(kjv_documents: list[bytes]) -> None:
    counts = count_pretokens(kjv_documents[:3000], special_tokens=[END, "<new>"])
    base = train_from_counts(
        count_pretokens(kjv_documents[-500:], special_tokens=[END]), 400, [END]
    ).tokenizer()
    sizes = [700, 401, 500]
    results = train_from_counts(counts, sizes, ["<new>"], base=base)
    assert [len(result.model) for result in results] == sizes
    assert results[1].vocab == base.vocab | {400: b"<new>"}
    for result in results:
        assert result.merges == results[0].merges[: len(result.merges)]
        assert list(result.vocab.items()) == list(results[0].vocab.items())[: len(result.vocab)]
        assert result.merges[:143] == base.merges
    told: list[tuple[int, int]] = []
    train_from_counts(
        counts, 700, base=base, progress=lambda made, wanted: told.append((made, wanted))
    )
    assert told[-1] == (300, 300)


# ---- published tokenizers


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("r50k", marks=pytest.mark.nightly),
        pytest.param("cl100k", marks=pytest.mark.soak),
        pytest.param("o200k", marks=pytest.mark.soak),
    ],
)
def test_a_published_tokenizer_is_extended(
    name: str,
    published_vocabulary: Callable[[str], Path],
    shared_text: Callable[..., bytes],
    tmp_path: Path,
) -> None:
    base = published_tokenizer(name, str(published_vocabulary(name)))
    text = shared_text("multilingual", 3_000_000).decode()
    documents = text.split(END)
    counts = count_pretokens(iter(documents), pattern=base.pattern, special_tokens=[END])
    extended = train_from_counts(
        counts, len(base) + 501, ["<|new|>"], base=base, min_frequency=2
    ).tokenizer()
    assert len(extended) == len(base) + 501
    assert extended.merges[: len(base.merges)] == base.merges
    assert base.vocab.items() <= extended.vocab.items()
    first = base.model.max_id + 1
    assert extended.special_tokens == {**base.special_tokens, "<|new|>": first}
    assert min(extended.vocab.keys() - base.vocab.keys()) == first
    assert max(extended.vocab) == first + 500
    # Shorter on this text, the same where no new merge applies, and always the same text.
    new = {i for i in extended.vocab if i > first}
    shorter = 0
    for document in documents[:300]:
        old, ids = base.encode_ordinary(document), extended.encode_ordinary(document)
        assert extended.decode(ids) == document
        shorter += len(old) - len(ids)
        if not new & set(ids):
            assert ids == old
    assert shorter > 0
    extended.save(tmp_path)
    assert BPETokenizer.load(tmp_path).model == extended.model
    ranks = BPETokenizer.from_tiktoken(
        tmp_path / "tokenizer.tiktoken",
        pattern=extended.pattern,
        special_tokens=extended.special_tokens,
    )
    for document in documents[:50]:
        assert ranks.encode_ordinary(document) == extended.encode_ordinary(document)


def test_gpt2_files_are_extended(
    kjv_path: Path, kjv_documents: list[bytes], tmp_path: Path
) -> None:
    counts = count_pretokens(kjv_documents[:2000], special_tokens=[END])
    train_from_counts(counts, 400, [END]).tokenizer().save(tmp_path)
    base = BPETokenizer.from_files(tmp_path / "vocab.json", tmp_path / "merges.txt", [END])
    result = train_from_counts(counts, 500, base=base)
    assert result.merge_counts[: len(base.merges)] == [0] * len(base.merges)
    assert result.vocab.items() >= base.vocab.items()
    assert result.model.fingerprint == train_from_counts(counts, 500, [END]).model.fingerprint


# ---- special tokens


def test_a_merge_never_takes_the_id_of_a_special_token() -> None:
    base = BPETokenizer.from_model(
        TokenizerModel.from_tokens(
            [(2 * i + 5, bytes([i])) for i in range(256)],
            special_tokens={"first": 0, "between": 6, "abab": 600},
        )
    )
    counts = PretokenCounts.from_mapping({b"abab": 9, b"ababc": 4})
    result = train_from_counts(counts, 263, ["between", "last"], base=base)
    assert result.model.special_tokens == {"first": 0, "between": 6, "abab": 600, "last": 601}
    new = {i: token for i, token in result.vocab.items() if i > 601}
    assert new == {602: b"ab", 603: b"abab", 604: b"ababc"}
    assert result.tokenizer().encode("abab") == [600]
    assert result.tokenizer().encode("abab", allowed_special="none") == [603]


# ---- misuse


def test_what_does_not_fit_together_is_refused() -> None:
    counts = count_pretokens(iter(["abc abc"]), special_tokens=[END, "<new>"])
    base = train_from_counts(counts, 258, [END]).tokenizer()
    other = count_pretokens(iter(["abc"]), pattern="o200k")
    with pytest.raises(TrainingError, match="counts by its pattern, 'gpt2', found counts by 'o200"):
        train_from_counts(other, 300, base=base)
    with pytest.raises(TrainingError, match=r"count the text with pattern=base\.pattern"):
        train_from_counts(other, 300, base=base)
    with pytest.raises(TrainingError, match=r"at least 259 \(257 tokens of base and 2 special"):
        train_from_counts(counts, 258, ["<new>"], base=base)
    with pytest.raises(TrainingError, match="first_seen needs the order"):
        train_from_counts(counts, 300, base=base, tie_break="first_seen")
    with pytest.raises(TrainingError, match="base: expected a BPETokenizer, found"):
        train_from_counts(counts, 300, base=base.model)  # type: ignore[call-overload]
    letters = BPETokenizer({0: b"a", 1: b"b"}, [])
    with pytest.raises(TrainingError, match=r"a token for every byte .* found none for 0x20"):
        train_from_counts(counts, 300, base=letters)


def test_normalization_is_kept_and_must_agree() -> None:
    normalized = count_pretokens(iter(["e\u0301 e\u0301"]), normalizer="nfc", normalize_quotes=True)
    plain = count_pretokens(iter(["abc abc"]))
    base = train_from_counts(normalized, 257).tokenizer()
    model = train_from_counts(normalized, 258, base=base).model
    assert (model.normalizer, model.normalize_quotes) == ("nfc", True)
    given_alone = PretokenCounts.from_mapping(dict(plain.items()))
    assert train_from_counts(given_alone, 258, base=base).model.normalizer == "nfc"
    with pytest.raises(TrainingError, match=r"with null; .*normalizer=base\.normalizer"):
        train_from_counts(plain, 258, base=base)
    with pytest.raises(TrainingError, match="its normalizer, nfc, found counts with null"):
        train_from_counts(plain, 258, base=base)
    other = train_from_counts(plain, 257).tokenizer()
    with pytest.raises(TrainingError, match="its normalizer, null, found counts with nfc"):
        train_from_counts(normalized, 258, base=other)


def test_one_pattern_under_two_names_fits() -> None:
    counts = count_pretokens(iter(["abc abc"]), pattern="llama3")
    base = train_from_counts(count_pretokens(iter(["ab"]), pattern="cl100k"), 257).tokenizer()
    assert len(train_from_counts(counts, 258, base=base).merges) == 2


def test_published_ranks_are_extended_by_counts_with_the_pattern_of_base(tmp_path: Path) -> None:
    trained = train_from_counts(count_pretokens(iter(["ab"]), pattern="cl100k"), 257).tokenizer()
    trained.save(tmp_path)
    base = BPETokenizer.from_tiktoken(tmp_path / "tokenizer.tiktoken", pattern="cl100k")
    counts = count_pretokens(iter(["abc abc"]), pattern=base.pattern)
    assert len(train_from_counts(counts, 258, base=base).merges) == 2
    other = count_pretokens(iter(["abc abc"]), pattern="cl100k")
    with pytest.raises(TrainingError, match="'cl100k_tiktoken', found counts by 'cl100k'"):
        train_from_counts(other, 258, base=base)


def test_random_texts_of_many_ties_are_extended_as_one_training() -> None:
    text = "".join(random.Random(5).choices("ab", k=4000))
    counts = PretokenCounts.from_mapping({text.encode(): 3})
    sizes = [260, 280, 300, 420]
    for tie_break in TIE_BREAKS:
        result = train_from_counts(counts, sizes[0], tie_break=tie_break)
        for _, size in pairwise(sizes):
            result = train_from_counts(counts, size, tie_break=tie_break, base=result.tokenizer())
        assert result.merges == train_from_counts(counts, 420, tie_break=tie_break).merges
