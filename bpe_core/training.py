"""Training: from text or counts to merges and a vocabulary."""

from __future__ import annotations

import glob
import inspect
import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bpe_core._native import MergeLearner, separator_problem
from bpe_core.counting import (
    Errors,
    Source,
    SplitRules,
    check_path,
    count_by_rules,
    name_files,
)
from bpe_core.counts import PretokenCounts
from bpe_core.errors import TrainingError
from bpe_core.extending import add_special_tokens, make_learner
from bpe_core.mixtures import to_occurrences, to_units
from bpe_core.model import MOST_TOKEN_BYTES, TokenizerModel
from bpe_core.parity import ParityRules, make_parity_learner
from bpe_core.patterns import pattern_with_rules
from bpe_core.pretoken_encoding import check_counted_as_encoded
from bpe_core.required_tokens import add_required_tokens
from bpe_core.special_tokens import check_special_tokens

if TYPE_CHECKING:
    from bpe_core.tokenizer import BPETokenizer

__all__ = [
    "StopReason",
    "TieBreak",
    "TrainingResult",
    "train_bpe",
    "train_from_counts",
    "train_from_iterator",
]

TieBreak: TypeAlias = Literal["lexicographic", "first_id", "huggingface", "first_seen"]
StopReason: TypeAlias = Literal["vocab_size_reached", "below_min_frequency", "no_pairs_left"]
Progress: TypeAlias = "bool | Callable[[int, int], None] | Callable[[int, int, bytes], None]"

# In training.json too, whose bytes stay the same.
STOP_REASONS: dict[str, str] = {
    "vocab_size_reached": "the vocabulary has the size asked for",
    "below_min_frequency": "no pair left is as frequent as min_frequency asks",
    "no_pairs_left": "no pair is left to merge",
}
_IN_MEMORY = "For texts in memory: train_from_iterator(texts, …)."
_MERGES_A_STEP = 256  # between two updates of the progress display


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingResult:
    """Result of training.

    Attributes:
        model: The tokenizer as data.
        merge_counts: How often each merge's pair occurred when it was merged, rounded for the
            counts of a mixture; 0 if unknown, for the merges of an extended tokenizer.
        stop_reason: "vocab_size_reached", "below_min_frequency" or "no_pairs_left".
    """

    model: TokenizerModel
    merge_counts: list[int]
    stop_reason: StopReason

    def __repr__(self) -> str:
        return f"TrainingResult({self.model!r}, stop_reason={self.stop_reason!r})"

    @cached_property
    def merges(self) -> list[tuple[bytes, bytes]]:
        """Return the merged pairs in order; those of an extended tokenizer come first."""
        return self.model.merge_bytes

    @property
    def vocab(self) -> dict[int, bytes]:
        """Return id to bytes: special tokens in the order given, the 256 bytes, merges in order.

        For an extended tokenizer: its ids, then special tokens that it lacked, then new merges.
        """
        return self.model.vocab

    def tokenizer(self) -> BPETokenizer:
        """Return a tokenizer that encodes with these merges."""
        from bpe_core.tokenizer import BPETokenizer

        return BPETokenizer.from_model(self.model)

    def explain_stop(self) -> str:
        """Return why training stopped, as a phrase."""
        return STOP_REASONS[self.stop_reason]


def train_bpe(
    input_path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    vocab_size: int,
    special_tokens: Iterable[str] = (),
    *,
    pattern: str = "gpt2",
    normalizer: str | None = None,
    normalize_quotes: bool = False,
    split_categories: bool = False,
    max_digits: int | None = None,
    tie_break: TieBreak = "lexicographic",
    min_frequency: int = 1,
    max_token_bytes: int | None = None,
    forbidden_tokens: Iterable[bytes] = (),
    forbid_whitespace_tokens: bool = False,
    separator: str | bytes | None = None,
    errors: Errors = "strict",
    num_threads: int = 0,
    progress: Progress = False,
) -> tuple[dict[int, bytes], list[tuple[bytes, bytes]]]:
    """Train a byte-level BPE tokenizer on text files.

    Args:
        input_path: One path or several. Bytes are read unchanged, without newline translation.
        vocab_size: The number of ids to reach: special tokens, the 256 bytes and merges.
        special_tokens: Texts at which the text is cut before counting; they are never counted, and
            no merge crosses them.
        pattern: A name in `bpe_core.PATTERNS`, or a regular expression.
        normalizer, normalize_quotes, split_categories, max_digits: See `count_pretokens`. A
            tokenizer with these merges needs the same normalizer, and the pattern that
            `pattern_with_rules` returns.
        tie_break: The choice among equally frequent pairs. "lexicographic": the greatest (bytes,
            bytes); "first_id": the smallest ids; "huggingface": like Hugging Face's trainer;
            "first_seen": the pair that occurs first in the text as merged so far, like minbpe.
        min_frequency: Minimum frequency of a pair; training stops below it.
        max_token_bytes: Skip merges that would make a longer token.
        forbidden_tokens: Skip merges that would make one of these tokens.
        forbid_whitespace_tokens: Skip merges that would make a token of only whitespace
            (White_Space) and control characters (Cc). Incomplete UTF-8 does not count as either.
        separator: An additional text at which the text is cut; None for special tokens only.
        errors: "strict", "replace" or "ignore" for invalid UTF-8.
        num_threads: Number of threads for counting; 0 for all cores.
        progress: True to show progress, or a function called with (merges made, merges wanted),
            and with the newest token if it has a third parameter.

    Returns:
        (vocab, merges): id to bytes, and pairs of bytes in the order in which they were merged.

    Raises:
        TrainingError: A file does not exist, the vocabulary is too small for the bytes and special
            tokens, or the separator is empty or can overlap itself.
        InvalidUtf8Error: Invalid UTF-8, with errors="strict".

    Warns:
        UserWarning: The text is too small for the vocabulary; fewer merges were made.

    Example:
        vocab, merges = train_bpe("corpus.txt", 32_000, ["<|endoftext|>"])
    """
    paths = _check_paths(input_path)
    specials = check_special_tokens(special_tokens)
    options = _Options.check(
        tie_break, min_frequency, max_token_bytes, forbidden_tokens, forbid_whitespace_tokens
    )
    _check_vocab_size(vocab_size, _make_start(specials, {"pattern": pattern}))
    separators = [text for text in _check_separator(separator) if text not in specials]
    rules = SplitRules(
        pattern_with_rules(pattern, split_categories=split_categories, max_digits=max_digits),
        specials,
        tuple(separators),
        normalizer,
        normalize_quotes,
    )
    result = _train_on_text(paths, rules, errors, num_threads, vocab_size, options, progress)
    return result.vocab, result.merges


def train_from_iterator(
    texts: Iterable[str] | Iterable[bytes],
    vocab_size: int,
    special_tokens: Iterable[str] = (),
    *,
    pattern: str = "gpt2",
    normalizer: str | None = None,
    normalize_quotes: bool = False,
    split_categories: bool = False,
    max_digits: int | None = None,
    tie_break: TieBreak = "lexicographic",
    min_frequency: int = 1,
    max_token_bytes: int | None = None,
    forbidden_tokens: Iterable[bytes] = (),
    forbid_whitespace_tokens: bool = False,
    errors: Errors = "strict",
    num_threads: int = 0,
    progress: Progress = False,
) -> TrainingResult:
    """Train a byte-level BPE tokenizer on texts in memory, or on any iterable of texts.

    Texts are counted as they come, in the given number of threads, and not kept: memory depends on
    the number of distinct pre-tokens. The tokenizer is that of `train_bpe` for files with the same
    texts.

    Args:
        texts: Documents, each a str or UTF-8 bytes. No pre-token crosses their ends.
        vocab_size: The number of ids to reach: special tokens, the 256 bytes and merges.
        special_tokens, pattern, normalizer, normalize_quotes, split_categories, max_digits,
            tie_break, min_frequency, max_token_bytes, forbidden_tokens, forbid_whitespace_tokens,
            errors, num_threads, progress: See `train_bpe`.

    Raises:
        TrainingError: A text has another type, or is given alone instead of in a list; the list
            contains names of files; the vocabulary is too small for the bytes and special tokens.
        InvalidUtf8Error: Invalid UTF-8, with errors="strict".

    Warns:
        UserWarning: The texts are too small for the vocabulary; fewer merges were made.

    Example:
        >>> result = train_from_iterator(["low low", "lower"], 258, ["<|endoftext|>"])
        >>> result.merges
        [(b'o', b'w')]
        >>> result.tokenizer().encode("low<|endoftext|>")
        [109, 257, 0]
    """
    specials = check_special_tokens(special_tokens)
    options = _Options.check(
        tie_break, min_frequency, max_token_bytes, forbidden_tokens, forbid_whitespace_tokens
    )
    _check_vocab_size(vocab_size, _make_start(specials, {"pattern": pattern}))
    rules = SplitRules(
        pattern_with_rules(pattern, split_categories=split_categories, max_digits=max_digits),
        specials,
        (),
        normalizer,
        normalize_quotes,
    )
    documents = _check_texts(texts)
    return _train_on_text(documents, rules, errors, num_threads, vocab_size, options, progress)


def _train_on_text(
    source: Source,
    rules: SplitRules,
    errors: Errors,
    num_threads: int,
    vocab_size: int,
    options: _Options,
    progress: Progress,
) -> TrainingResult:
    in_order = options.tie_break == "first_seen"
    counts = count_by_rules(source, rules, errors, num_threads, in_order)
    start = _make_start(rules.special_tokens, counts.metadata)
    result = _train(options.learner(counts), start, [vocab_size], counts, options, progress)[0]
    if len(result.model) < vocab_size:
        warnings.warn(
            f"training reached {len(result.model)} of {vocab_size} ids: {result.explain_stop()}",
            stacklevel=3,
        )
    return result


@overload
def train_from_counts(
    counts: PretokenCounts,
    vocab_size: int,
    special_tokens: Iterable[str] = (),
    *,
    tie_break: TieBreak = "lexicographic",
    min_frequency: int = 1,
    max_token_bytes: int | None = None,
    forbidden_tokens: Iterable[bytes] = (),
    forbid_whitespace_tokens: bool = False,
    required_tokens: Iterable[bytes] = (),
    base: BPETokenizer | None = None,
    parity: ParityRules | None = None,
    max_words: int | None = None,
    progress: Progress = False,
) -> TrainingResult: ...


@overload
def train_from_counts(
    counts: PretokenCounts,
    vocab_size: Sequence[int],
    special_tokens: Iterable[str] = (),
    *,
    tie_break: TieBreak = "lexicographic",
    min_frequency: int = 1,
    max_token_bytes: int | None = None,
    forbidden_tokens: Iterable[bytes] = (),
    forbid_whitespace_tokens: bool = False,
    required_tokens: Iterable[bytes] = (),
    base: BPETokenizer | None = None,
    parity: ParityRules | None = None,
    max_words: int | None = None,
    progress: Progress = False,
) -> list[TrainingResult]: ...


def train_from_counts(
    counts: PretokenCounts,
    vocab_size: int | Sequence[int],
    special_tokens: Iterable[str] = (),
    *,
    tie_break: TieBreak = "lexicographic",
    min_frequency: int = 1,
    max_token_bytes: int | None = None,
    forbidden_tokens: Iterable[bytes] = (),
    forbid_whitespace_tokens: bool = False,
    required_tokens: Iterable[bytes] = (),
    base: BPETokenizer | None = None,
    parity: ParityRules | None = None,
    max_words: int | None = None,
    progress: Progress = False,
) -> TrainingResult | list[TrainingResult]:
    """Learn merges from counted pre-tokens.

    The most frequent pair of adjacent tokens is merged, repeatedly. Pairs are counted with overlap
    (`aaa` has two) in 64 bits. No two ordinary tokens have the same bytes: a merge whose result
    already has an id is recorded and reuses that id.

    Source of the algorithm: Gage 1994 (byte-pair encoding), Sennrich, Haddow and Birch 2016 (on
    words), Radford et al. 2019 (on bytes). `bpe_core.reference.learn_merges` is it in plain Python.

    Args:
        counts: Pre-tokens with their counts.
        vocab_size: The number of ids to reach, or several sizes: then the results belong to one
            training, and each is a prefix of the next.
        special_tokens: They get the first ids, in the order given.
        tie_break: See `train_bpe`; `first_seen` needs the text.
        min_frequency, max_token_bytes, forbidden_tokens, forbid_whitespace_tokens, progress: See
            `train_bpe`.
        required_tokens: Tokens that the vocabulary must have; merges that make them follow the
            learned ones, so that fewer are learned (see `bpe_core.required_tokens`).
        base: A tokenizer to extend. It keeps its ids and merges, which come first. Each pre-token
            starts as the tokens into which it encodes the pre-token. Special tokens that it lacks
            and new tokens get ids after its largest. `vocab_size` includes its ids.
        parity: Rules to compress all groups of the counts equally. Then min_frequency is that of a
            pair in one group, and of equally frequent pairs, "huggingface" merges the one that
            Hugging Face's ParityBpeTrainer merges.
        max_words: With `base`, skip merges that would join more of its tokens, which are words if
            the counts are those of `count_superwords`; see `train_superwords`.

    Raises:
        TrainingError: The vocabulary is too small for the bytes and special tokens, the counts were
            made with another pattern or normalization than base's, or an argument is unusable.
        CountOverflowError: A pair's count does not fit into 64 bits.

    Warns:
        UserWarning: The counts were made without one of `special_tokens`.

    Example:
        >>> counts = PretokenCounts.from_mapping({b"low": 5, b"lower": 2})
        >>> result = train_from_counts(counts, 258)
        >>> result.merges, result.merge_counts
        ([(b'o', b'w'), (b'l', b'ow')], [7, 7])
    """
    specials = check_special_tokens(special_tokens)
    if tie_break == "first_seen":
        raise TrainingError(
            "tie_break: first_seen needs the order of the text, which counts do not keep; expected "
            "lexicographic, first_id or huggingface, or train_bpe"
        )
    options = _Options.check(
        tie_break,
        min_frequency,
        max_token_bytes,
        forbidden_tokens,
        forbid_whitespace_tokens,
        base,
        parity,
        max_words,
        required_tokens,
    )
    if options.base is None:
        start = _make_start(specials, counts.metadata)
    else:
        check_counted_as_encoded(options.base, counts)
        start = add_special_tokens(options.base, specials)
    _warn_of_uncut_tokens(specials, counts)
    is_one = isinstance(vocab_size, str) or not isinstance(vocab_size, Iterable)
    sizes: list[int] = [vocab_size] if is_one else list(vocab_size)  # type: ignore[arg-type, list-item]
    for size in sizes:
        _check_vocab_size(size, start)
    found = _train(options.learner(counts), start, sizes, counts, options, progress)
    return found[0] if is_one else found


def _warn_of_uncut_tokens(specials: tuple[str, ...], counts: PretokenCounts) -> None:
    if "special_tokens" not in counts.metadata:
        return
    cut_out = set(json.loads(counts.metadata["special_tokens"]))
    if missing := [token for token in specials if token not in cut_out]:
        warnings.warn(
            f"special_tokens: expected counts of text that was cut at them, found counts made "
            f"without {missing}; if the text contains them, merges are learned from them: count "
            "the text "
            "with the same special_tokens",
            stacklevel=3,
        )


@dataclass(frozen=True, kw_only=True)
class _Options:
    tie_break: TieBreak
    min_frequency: int
    max_token_bytes: int | None
    forbidden_tokens: list[bytes]
    forbid_whitespace_tokens: bool
    base: TokenizerModel | None
    parity: ParityRules | None
    max_words: int | None
    required_tokens: list[bytes]

    @classmethod
    def check(
        cls,
        tie_break: TieBreak,
        min_frequency: int,
        max_token_bytes: int | None,
        forbidden_tokens: Iterable[bytes],
        forbid_whitespace_tokens: bool,
        base: BPETokenizer | None = None,
        parity: ParityRules | None = None,
        max_words: int | None = None,
        required_tokens: Iterable[bytes] = (),
    ) -> _Options:
        if tie_break not in get_args(TieBreak):
            raise TrainingError(
                f"tie_break: expected {', '.join(get_args(TieBreak))}, found {tie_break!r}"
            )
        if min_frequency < 1:
            raise TrainingError(f"min_frequency: expected at least 1, found {min_frequency}")
        if max_token_bytes is not None and max_token_bytes < 1:
            raise TrainingError(f"max_token_bytes: expected at least 1, found {max_token_bytes}")
        if max_words is not None and (base is None or max_words < 2):
            raise TrainingError(
                f"max_words: expected at least 2, and a base, found {max_words}"
                f"{' without a base' if base is None else ''}"
            )
        forbidden = _check_tokens("forbidden_tokens", forbidden_tokens)
        required = _check_tokens("required_tokens", required_tokens)
        if both := sorted({*forbidden} & {*required}):
            raise TrainingError(f"required_tokens: expected none that is forbidden, found {both}")
        if b"" in required:
            raise TrainingError("required_tokens: expected texts, found an empty one")
        return cls(
            tie_break=tie_break,
            min_frequency=min_frequency,
            max_token_bytes=max_token_bytes,
            forbidden_tokens=forbidden,
            required_tokens=required,
            forbid_whitespace_tokens=forbid_whitespace_tokens,
            base=None if base is None else _get_model(base),
            parity=_check_parity(parity, base),
            max_words=max_words,
        )

    def learner(self, counts: PretokenCounts) -> MergeLearner:
        if self.parity is not None:
            return make_parity_learner(
                self.parity,
                counts,
                tie_break=self.tie_break,
                min_frequency=self.min_frequency,
                max_token_bytes=self.max_token_bytes or 0,
                forbidden_tokens=self.forbidden_tokens,
                forbid_whitespace_tokens=self.forbid_whitespace_tokens,
            )
        if self.base is not None:
            return make_learner(
                self.base,
                counts,
                tie_break=self.tie_break,
                min_frequency=to_units(self.min_frequency, counts.unit),
                max_token_bytes=self.max_token_bytes or 0,
                forbidden_tokens=self.forbidden_tokens,
                forbid_whitespace_tokens=self.forbid_whitespace_tokens,
                max_words=self.max_words or 0,
            )
        return MergeLearner(
            *counts.columns(),
            self.tie_break,
            to_units(self.min_frequency, counts.unit),
            self.max_token_bytes or 0,
            self.forbidden_tokens,
            forbid_whitespace_tokens=self.forbid_whitespace_tokens,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the options for the tokenizer's files, except for the tie-break."""
        base = self.base
        required = self.required_tokens
        superwords = {} if self.max_words is None else {"max_words": self.max_words}
        return {
            "min_frequency": self.min_frequency,
            "max_token_bytes": self.max_token_bytes,
            "forbidden_tokens": [_to_json(token) for token in self.forbidden_tokens],
            "forbid_whitespace_tokens": self.forbid_whitespace_tokens,
            "base": base and {"fingerprint": base.fingerprint, "merges": len(base.merges)},
            **({"parity": self.parity.to_json()} if self.parity is not None else {}),
            **superwords,
            **({"required_tokens": list(map(_to_json, required))} if required else {}),
        }


def _get_model(base: BPETokenizer) -> TokenizerModel:
    model = getattr(base, "model", None)
    if not isinstance(model, TokenizerModel):
        raise TrainingError(f"base: expected a BPETokenizer, found {type(base).__name__}")
    return model


def _check_parity(parity: ParityRules | None, base: BPETokenizer | None) -> ParityRules | None:
    if parity is not None and not isinstance(parity, ParityRules):
        raise TrainingError(f"parity: expected ParityRules, found {type(parity).__name__}")
    if parity is not None and base is not None:
        raise TrainingError(
            "parity: expected no base, found both; parity-aware training starts from bytes"
        )
    return parity


def _to_json(token: bytes) -> str | dict[str, str]:
    try:
        return token.decode()
    except UnicodeDecodeError:
        return {"hex": token.hex()}


def _make_start(specials: tuple[str, ...], counted: Mapping[str, str]) -> TokenizerModel:
    """Return the tokenizer before the first merge; `counted` describes how text was counted."""
    first = len(specials)
    normalizer = counted.get("normalizer")
    model = TokenizerModel.from_tokens(
        ((first + byte, bytes([byte])) for byte in range(256)),
        special_tokens={token: i for i, token in enumerate(specials)},
        pattern=counted.get("pattern", "gpt2"),
    )
    return replace(
        model,
        normalizer=None if normalizer == "null" else normalizer,
        normalize_quotes=counted.get("normalize_quotes") == "true",
    )


def _train(
    learner: MergeLearner,
    start: TokenizerModel,
    sizes: list[int],
    counts: PretokenCounts,
    options: _Options,
    progress: Progress,
) -> list[TrainingResult]:
    results: dict[int, TrainingResult] = {}
    largest = max(sizes, default=len(start)) - len(start)
    # Without a step, so that pairs are indexed for the largest size at once.
    learner.learn(len(start.token_ids) + largest, 0)
    with report_progress(progress, largest) as report:
        for size in sorted(set(sizes)):
            _learn(learner, len(start.token_ids), size - len(start), report)
            result = _make_result(learner, start, counts, options)
            results[size] = _with_required(result, start, size, options)
    return [results[size] for size in sizes]


def _with_required(
    result: TrainingResult, start: TokenizerModel, size: int, options: _Options
) -> TrainingResult:
    """Return the result with the required tokens, for which its last merges are left out."""
    if not options.required_tokens:
        return result
    model = add_required_tokens(
        result.model, start, size, options.required_tokens, options.forbidden_tokens
    )
    assert model.merge_counts is not None, "training counts merges"
    return replace(result, model=model, merge_counts=model.merge_counts.tolist())


def _check_paths(
    given: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
) -> list[Path]:
    is_one = isinstance(given, (str, bytes, os.PathLike)) or not isinstance(given, Iterable)
    listed: Iterable[object] = [given] if is_one else given  # type: ignore[assignment]
    paths = [check_path(path, "input_path", _IN_MEMORY) for path in listed]
    for path in paths:
        if not path.is_file():
            raise TrainingError(
                f"input_path: expected a file, found none at {str(path)!r}. {_advise_path(path)}"
            )
    return paths


def _advise_path(path: Path) -> str:
    """Return the advice for a path that is not a file."""
    if path.is_dir():
        return "For the files in a folder: train_bpe(sorted(Path(folder).rglob('*.txt')), …)."
    if glob.has_magic(str(path)):
        return "For the files of a pattern: train_bpe(glob.glob(pattern), …)."
    return _IN_MEMORY


def _check_texts(texts: Iterable[str] | Iterable[bytes]) -> Iterator[str | bytes]:
    if isinstance(texts, (str, bytes, os.PathLike)) or not isinstance(texts, Iterable):
        raise TrainingError(
            f"texts: expected several texts, found one {type(texts).__name__}; give a list, or "
            "for files: train_bpe(paths, …)"
        )
    if name_files(texts):
        raise TrainingError(
            f"texts: expected texts, found names of files ({next(iter(texts))!r}); for files: "
            "train_bpe(paths, …)"
        )
    return iter(texts)


def _check_separator(separator: str | bytes | None) -> list[str]:
    if separator is None:
        return []
    try:
        # Encode and decode: text with a lone surrogate is invalid, too.
        encoded = separator.encode() if isinstance(separator, str) else separator
        text = encoded.decode()
        problem = separator_problem(encoded)
    except UnicodeError:
        problem = "it is not UTF-8"
    if problem is not None:
        raise TrainingError(
            f"separator: expected text that can be found in one way only, found {separator!r}: "
            f"{problem}; give another, or None"
        )
    return [text]


def _check_vocab_size(vocab_size: int, start: TokenizerModel) -> None:
    if isinstance(vocab_size, bool) or not isinstance(vocab_size, (int, np.integer)):
        raise TrainingError(f"vocab_size: expected an integer, found {vocab_size!r}")
    if vocab_size < len(start):
        ordinary, specials = len(start.token_ids), len(start.special_tokens)
        raise TrainingError(
            f"vocab_size: expected at least {len(start)} ({ordinary} "
            f"{'tokens of base' if len(start.merges) else 'bytes'} and {specials} special "
            f"tokens), found {vocab_size}"
        )


def _check_tokens(name: str, tokens: Iterable[bytes]) -> list[bytes]:
    listed = list(tokens)
    for token in listed:
        if not isinstance(token, bytes):
            raise TrainingError(f"{name}: expected several bytes, found {token!r}")
    return listed


def _learn(
    learner: MergeLearner, first: int, wanted: int, show: Callable[[int, bytes], None]
) -> None:
    """Learn up to a number of new tokens; `first` is the number of existing ones."""
    goes_on = True
    while goes_on:
        goes_on = learner.learn(first + wanted, _MERGES_A_STEP)
        if learner.symbol_bytes > MOST_TOKEN_BYTES:
            raise TrainingError(
                f"tokens: expected at most {MOST_TOKEN_BYTES:,} bytes in all, found more after "
                f"{learner.num_symbols - first:,} merges: the text is too small for the "
                "vocabulary, and its few pre-tokens merge into single tokens; ask for a smaller "
                "vocab_size, or give min_frequency=2 or max_token_bytes"
            )
        show(learner.num_symbols - first, learner.symbol(learner.num_symbols - 1))


def _make_result(
    learner: MergeLearner, start: TokenizerModel, counts: PretokenCounts, options: _Options
) -> TrainingResult:
    tokens, offsets = learner.symbols()
    num_tokens = len(offsets) - 1
    new_ids = np.arange(num_tokens - len(start.token_ids), dtype=np.int64) + start.max_id + 1
    ids = np.concatenate([start.token_ids, new_ids])
    left, right, result, new_counts = learner.merges()
    merge_counts = np.concatenate(
        [_counts_or_zeros(start, start.merge_counts), to_occurrences(new_counts, counts.unit)]
    )
    applied = learner.applied_counts()
    applied_counts = np.concatenate(
        [_counts_or_zeros(start, start.applied_counts), to_occurrences(applied, counts.unit)]
    )
    stop_reason: StopReason = learner.stop_reason  # type: ignore[assignment]
    model = replace(
        start,
        token_ids=ids,
        token_bytes=pa.BinaryArray.from_buffers(
            pa.binary(), num_tokens, [None, pa.py_buffer(offsets), pa.py_buffer(tokens)]
        ),
        merges=np.concatenate([start.merges, ids[np.column_stack([left, right, result])]]),
        tie_break=options.tie_break,
        merge_counts=merge_counts,
        applied_counts=None if (applied < 0).any() else applied_counts,
        stop_reason=stop_reason,
        counts_fingerprint=counts.metadata.get("fingerprint"),
        training_options=options.to_json(),
    )
    return TrainingResult(
        model=model,
        merge_counts=merge_counts.tolist(),
        stop_reason=stop_reason,
    )


def _counts_or_zeros(model: TokenizerModel, counts: NDArray[np.int64] | None) -> NDArray[np.int64]:
    return np.zeros(len(model.merges), np.int64) if counts is None else counts


@contextmanager
def report_progress(progress: Progress, wanted: int) -> Iterator[Callable[[int, bytes], None]]:
    """Yield a function that reports the number of merges and the newest token.

    It reports them to `progress`, or to a progress bar.
    """
    if callable(progress):
        parameters = len(inspect.signature(progress).parameters)
        report: Callable[..., None] = progress
        yield lambda made, newest: report(*(made, wanted, newest)[: max(parameters, 2)])
    elif not progress:
        yield lambda made, newest: None
    else:
        from rich.progress import Progress as Bar

        with Bar() as bar:
            task = bar.add_task("learning merges", total=wanted)
            yield lambda made, newest: bar.update(task, completed=made)
