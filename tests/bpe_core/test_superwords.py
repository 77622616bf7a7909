"""Superwords: counts, merges and ids are the reference's, and those of other libraries."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import tiktoken
from core_support import texts
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import times
from tokenizers import Tokenizer

from bpe_core import (
    PATTERNS,
    BPETokenizer,
    TrainingResult,
    count_pretokens,
    count_superwords,
    pattern_with_rules,
    reference,
    train_from_counts,
    train_superwords,
)
from bpe_core.errors import InvalidPatternError, TrainingError
from bpe_core.patterns import resolve_pattern, split_custom, superword_pattern
from bpe_core.superwords import MOST_RUN_WORDS, with_superword_pattern

END = "<|endoftext|>"
NAMED = [name for name in PATTERNS if name not in ("none", "llama3")]
SPLITTING = [
    *NAMED,
    *(pattern_with_rules(name, split_categories=True) for name in NAMED),
    *(pattern_with_rules(name, max_digits=2) for name in NAMED),
]
TEXTS = [
    "By the way, by the sea, by the beautiful sea!",
    "I don't know. I don't know why (by the way) I don't.",
    "by the\nsea by the way\u00a0by the way  by the way, 'by the way'",
    "à la carte, à la mode: à\u00a0la; by the way...\nby the way 10 of the 20 of the",
    "naïve Γλῶσσα по пути, по пути 東京 の 東京 の d'accord d'accord",
    "այն այն այն այնպես։ այն՝ այն, այնպես այն։ այն",  # signs that begin with the byte of letters
]

sentences = st.lists(
    st.sampled_from(
        [
            "by",
            " the",
            " way",
            ",",
            " sea",
            "'t",
            " don",
            "à",
            "\u00a0",
            " ",
            "\n",
            "1",
            "(",
            "е́",
            "այն",
            "ա",
            "։",
            "՝",
        ]
    ),
    max_size=40,
).map("".join)


def train(
    documents: list[str], pattern: str = "cl100k", first: int = 330, size: int = 360, words: int = 4
) -> tuple[BPETokenizer, TrainingResult]:
    """The tokenizer of the first round, and the result of the second."""
    counts = count_pretokens(documents, pattern=pattern, special_tokens=[END])
    plain = train_from_counts(counts, first, [END], min_frequency=2).tokenizer()
    return plain, train_superwords(count_superwords(documents, plain), size, plain, max_words=words)


@pytest.mark.parametrize("pattern", SPLITTING)
@settings(max_examples=times(0.3))
@given(text=texts | sentences)
def test_superwords_span_whole_pretokens_of_the_pattern(pattern: str, text: str) -> None:
    wide = superword_pattern(pattern)
    spans = reference.split_pretokens(text, wide)
    parts = [part for span in spans for part in reference.split_pretokens(span, pattern)]
    assert parts == reference.split_pretokens(text, pattern)


@pytest.mark.parametrize("pattern", SPLITTING)
def test_the_wide_pattern_is_compiled_and_long_texts_can_be_cut(pattern: str) -> None:
    wide = resolve_pattern(superword_pattern(pattern))
    assert wide.tier == "automaton"
    assert wide.has_safe_cuts
    for text in TEXTS:
        by_regex = split_custom(wide.regex, text).tolist()
        encoded = [len(part.encode()) for part in reference.split_pretokens(text, wide.regex)]
        assert [b - a for a, b in pairwise(by_regex)] == encoded


@pytest.mark.parametrize("pattern", ["none", r"\w+", r"\S+", r"\p{L}+|(?#then)x"])
def test_other_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidPatternError, match="superwords: expected the pattern gpt2, cl100k"):
        superword_pattern(pattern)


@settings(max_examples=times(0.25))
@given(
    documents=st.lists(sentences, min_size=1, max_size=4),
    pattern=st.sampled_from(NAMED),
    words=st.integers(2, 5),
)
def test_counts_merges_and_ids_are_those_of_the_reference(
    documents: list[str], pattern: str, words: int
) -> None:
    documents = [*documents, *TEXTS]
    plain, result = train(documents, pattern, words=words)
    runs = reference.count_superwords(
        documents,
        plain.model.merge_bytes,
        pattern=pattern,
        special_tokens=[END],
        most_words=MOST_RUN_WORDS,
    )
    counts = count_superwords(documents, plain, num_threads=2)
    assert dict(counts.items()) == {b"".join(run): count for run, count in runs.items()}
    known = plain.model.merge_bytes
    learned = reference.learn_superwords(runs, known, 359, max_words=words)
    assert result.merges == [*known, *learned.merges]
    assert result.stop_reason == learned.stop_reason
    tokenizer = result.tokenizer()
    for text in documents:
        assert tokenizer.encode(text) == reference.encode(
            text,
            tokenizer.vocab,
            result.merges,
            tokenizer.special_tokens,
            pattern=superword_pattern(pattern),
        )


def test_tokens_have_at_most_max_words() -> None:
    documents = ["by the way of the sea and by the way of the sea and"] * 3
    longest = {}
    for words in (2, 3, 6):
        _, result = train(documents, words=words, size=400)
        longest[words] = max(len(token.split()) for token in result.vocab.values())
        assert result.stop_reason == "no_pairs_left"
    assert longest == {2: 2, 3: 3, 6: 6}


@settings(max_examples=times(0.5))
@given(text=texts | sentences, pattern=st.sampled_from(NAMED))
def test_merges_of_the_first_round_do_not_reach_across_words(text: str, pattern: str) -> None:
    plain, _ = train(TEXTS, pattern)
    wide = BPETokenizer.from_model(with_superword_pattern(plain.model))
    assert wide.encode(text) == plain.encode(text)


def test_runs_are_cut_at_special_tokens_digits_and_words_of_several_tokens() -> None:
    documents = ["by the way by the way", "by the unseen way", f"by the{END}way", "by 1 the way"]
    plain, _ = train(["by the way the way by"] * 3)
    assert dict(count_superwords(documents, plain).items()) == {
        b"by the": 2,
        b"by the way by the way": 1,
        b" the way": 1,
    }


@pytest.mark.parametrize("pattern", ["gpt2", "cl100k", "o200k", "qwen2"])
def test_other_libraries_give_the_same_ids(pattern: str, tmp_path: Path) -> None:
    _, result = train(TEXTS * 2, pattern, size=380)
    tokenizer = result.tokenizer()
    tokenizer.save(tmp_path)
    documents = [*TEXTS, f"by the way{END}by the way", "\n\n by the  way.\n,by 'the'\r\nway\t"]
    theirs = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    ranked = tiktoken.Encoding(
        "superwords",
        pat_str=tokenizer.model.pattern,
        mergeable_ranks={token: i for i, token in tokenizer.model.tokens},
        special_tokens=tokenizer.special_tokens,
    )
    for text in documents:
        ids = tokenizer.encode(text)
        assert theirs.encode(text, add_special_tokens=False).ids == ids
        assert ranked.encode(text, allowed_special="all") == ids
        assert tokenizer.decode(ids) == text
    assert BPETokenizer.load(tmp_path) == tokenizer


def test_what_does_not_fit_together_is_refused() -> None:
    plain, result = train(TEXTS)
    runs = count_superwords(TEXTS, plain)
    words = count_pretokens(TEXTS, pattern="cl100k")
    other, _ = train(TEXTS, first=270)
    with pytest.raises(TrainingError, match="found pre-tokens; make them by count_superwords"):
        train_superwords(words, 400, plain)
    with pytest.raises(TrainingError, match="found those of another"):
        train_superwords(runs, 400, other)
    with pytest.raises(TrainingError, match="max_words: expected at least 2, and a base, found 1"):
        train_superwords(runs, 400, plain, max_words=1)
    with pytest.raises(TrainingError, match="found 3 without a base"):
        train_from_counts(words, 400, max_words=3)
    with pytest.raises(InvalidPatternError, match="superwords: expected the pattern"):
        count_superwords(TEXTS, result.tokenizer())


def test_text_is_normalized_before_it_is_counted() -> None:
    documents = ["cafe\u0301 au lait, cafe\u0301 au lait"] * 2
    counts = count_pretokens(documents, pattern="cl100k", normalizer="nfc")
    plain = train_from_counts(counts, 290).tokenizer()
    runs = dict(count_superwords(documents, plain).items())
    assert runs == {"café au lait, café au lait".encode(): 2}
