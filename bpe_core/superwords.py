"""Superwords: tokens that span several words, learned in a second round.

The first round is ordinary training. Then the text is counted again, by runs of consecutive words
that are single tokens, and learning goes on across their boundaries. The new merges rank after all
others, and the tokenizer splits text by `superword_pattern`, which keeps such words together: so
the merges of the first round make of each word what they made before, and those of the second join
words. `bpe_core.reference` has it in plain Python: `count_superwords`, `learn_superwords`.

Sources: Liu et al. 2025, SuperBPE: Space Travel for Language Models (two rounds); Schmidt et al.
2026, Faster Superword Tokenization (runs can be counted like pre-tokens).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import overload

import numpy as np

from bpe_core._native import SuperwordRuns
from bpe_core.buffers import flatten, to_arrow
from bpe_core.counting import Errors, Source, SplitRules, count_by_rules
from bpe_core.counts import PretokenCounts
from bpe_core.errors import TrainingError
from bpe_core.model import TokenizerModel
from bpe_core.patterns import resolve_pattern, superword_pattern
from bpe_core.pretoken_encoding import make_pretoken_encoder
from bpe_core.tokenizer import BPETokenizer
from bpe_core.training import Progress, TieBreak, TrainingResult, train_from_counts

__all__ = [
    "MOST_RUN_WORDS",
    "count_superwords",
    "make_superword_runs",
    "superword_metadata",
    "train_superwords",
    "with_superword_pattern",
]

MOST_RUN_WORDS = 8
"""Words of a run that are counted together; longer runs are cut into pieces of so many words.

Pairs at a cut are not counted: one of eight, in long runs. More words make more distinct runs, of
which most occur once."""


def with_superword_pattern(model: TokenizerModel) -> TokenizerModel:
    """Return a tokenizer with the same tokens and merges that keeps words together.

    Raises:
        TrainingError: Superwords cannot be learned with this tokenizer.
        InvalidPatternError: Nor with its pattern.
    """
    reasons = {
        "that merges bytes": model.characters is not None,
        "without ignore_merges": model.ignore_merges,
        "that keeps white space as it is": bool(model.space_rules),
    }
    for expected, found in reasons.items():
        if found:
            raise TrainingError(
                f"superwords: expected a tokenizer {expected}, found another; train a new one"
            )
    return replace(model, pattern=superword_pattern(model.pattern))


def make_superword_runs(model: TokenizerModel) -> SuperwordRuns:
    """Return what finds the runs in texts, for the tokenizer of the first round."""
    chunks = resolve_pattern(with_superword_pattern(model).pattern).scanner
    words = resolve_pattern(model.pattern).scanner
    assert words is not None and chunks is not None, "`superword_pattern` accepted the pattern"
    data, offsets = flatten(model.token_bytes)
    no_specials = np.full(len(offsets) - 1, -1, np.int64)
    _, bounds = make_pretoken_encoder(model).encode_spans(
        data, offsets[:-1], offsets[1:], no_specials
    )
    is_one = to_arrow(np.diff(bounds) == 1)
    return SuperwordRuns(words, chunks, *flatten(model.token_bytes.filter(is_one)), MOST_RUN_WORDS)


def superword_metadata(fingerprint: str) -> dict[str, str]:
    """Return the metadata of runs counted with the tokenizer of this fingerprint."""
    return {"superwords": fingerprint, "run_words": str(MOST_RUN_WORDS)}


def count_superwords(
    source: Source, tokenizer: BPETokenizer, *, errors: Errors = "strict", num_threads: int = 0
) -> PretokenCounts:
    """Count the runs of words from which superwords are learned.

    A run is consecutive words, each a single token, with one space, or nothing, between them; it
    ends at punctuation, digits, line breaks and words of several tokens. Runs are cut into pieces
    of at most `MOST_RUN_WORDS` words.

    Args:
        source: Files or documents; see `count_pretokens`.
        tokenizer: The tokenizer of the first round. Text is normalized and cut at special tokens as
            it demands.
        errors: "strict", "replace" or "ignore" for invalid UTF-8.
        num_threads: Number of threads; 0 for all cores.

    Raises:
        TrainingError: Superwords cannot be learned with this tokenizer; see also `count_pretokens`.
        InvalidPatternError: Nor with its pattern.
        InvalidUtf8Error: Invalid UTF-8, with errors="strict".

    Example:
        >>> vocab = {**{i: bytes([i]) for i in range(256)}, 256: b" b"}
        >>> tokenizer = BPETokenizer(vocab, [(b" ", b"b")])
        >>> dict(count_superwords(["a b, c"], tokenizer).items())
        {b'a b,': 1}
    """
    model = tokenizer.model
    rules = SplitRules(
        with_superword_pattern(model).pattern,
        tuple(model.special_tokens),
        (),
        model.normalizer,
        model.normalize_quotes,
    )
    runs = make_superword_runs(model)
    counts = count_by_rules(source, rules, errors, num_threads, runs=runs)
    counts.metadata.update(superword_metadata(model.fingerprint))
    return counts


@overload
def train_superwords(
    counts: PretokenCounts,
    vocab_size: int,
    tokenizer: BPETokenizer,
    *,
    max_words: int = 4,
    tie_break: TieBreak = "lexicographic",
    min_frequency: int = 1,
    max_token_bytes: int | None = None,
    forbidden_tokens: Iterable[bytes] = (),
    progress: Progress = False,
) -> TrainingResult: ...


@overload
def train_superwords(
    counts: PretokenCounts,
    vocab_size: Sequence[int],
    tokenizer: BPETokenizer,
    *,
    max_words: int = 4,
    tie_break: TieBreak = "lexicographic",
    min_frequency: int = 1,
    max_token_bytes: int | None = None,
    forbidden_tokens: Iterable[bytes] = (),
    progress: Progress = False,
) -> list[TrainingResult]: ...


def train_superwords(
    counts: PretokenCounts,
    vocab_size: int | Sequence[int],
    tokenizer: BPETokenizer,
    *,
    max_words: int = 4,
    tie_break: TieBreak = "lexicographic",
    min_frequency: int = 1,
    max_token_bytes: int | None = None,
    forbidden_tokens: Iterable[bytes] = (),
    progress: Progress = False,
) -> TrainingResult | list[TrainingResult]:
    """Learn merges across words, after those of a trained tokenizer.

    The tokenizer keeps its ids and merges. New tokens consist of 2 … `max_words` words. Encoding
    may also join the last token of a longer word with the word behind it, if that token is a word
    too.

    Args:
        counts: Counts that `count_superwords` made with the tokenizer.
        vocab_size: The number of ids to reach, or several; see `train_from_counts`.
        tokenizer: The tokenizer of the first round.
        max_words: The number of words in a token.
        tie_break, min_frequency, max_token_bytes, forbidden_tokens, progress: See `train_bpe`.

    Raises:
        TrainingError: The counts were made otherwise, or an argument is unusable.

    Example:
        >>> from bpe_core import count_pretokens
        >>> texts = ["by the way, by the sea"]
        >>> first = train_from_counts(count_pretokens(texts), 264).tokenizer()
        >>> result = train_superwords(count_superwords(texts, first), 265, first)
        >>> result.merges[-1]
        (b'by', b' the')
    """
    base = with_superword_pattern(tokenizer.model)
    found = counts.metadata.get("superwords")
    if found != tokenizer.model.fingerprint:
        raise TrainingError(
            "counts: expected runs of words counted with this tokenizer, found "
            f"{'pre-tokens' if found is None else 'those of another'}; make them by "
            "count_superwords(source, tokenizer)"
        )
    return train_from_counts(
        counts,
        vocab_size,
        tie_break=tie_break,
        min_frequency=min_frequency,
        max_token_bytes=max_token_bytes,
        forbidden_tokens=forbidden_tokens,
        base=BPETokenizer.from_model(base),
        max_words=max_words,
        progress=progress,
    )
