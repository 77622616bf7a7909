"""Training: from text or counts to merges and a vocabulary."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from bpe_core._native import MergeLearner, separator_problem
from bpe_core.counts import Errors, PretokenCounts, count_files
from bpe_core.errors import TrainingError
from bpe_core.model import TokenizerModel
from bpe_core.special_tokens import check_special_tokens

if TYPE_CHECKING:
    from bpe_core.tokenizer import BPETokenizer

__all__ = ["StopReason", "TieBreak", "TrainingResult", "train_bpe", "train_from_counts"]

TieBreak: TypeAlias = Literal["lexicographic", "first_id", "huggingface"]
StopReason: TypeAlias = Literal["vocab_size_reached", "below_min_frequency", "no_pairs_left"]
Progress: TypeAlias = "bool | Callable[[int, int], None]"

_STOP_REASONS: dict[str, str] = {
    "vocab_size_reached": "the vocabulary has the size asked for",
    "below_min_frequency": "no pair left is as frequent as min_frequency asks",
    "no_pairs_left": "no pair is left to merge",
}
_MERGES_A_STEP = 256  # between two calls of the progress display
_MOST_TOKEN_BYTES = 2**31 - 1  # of all tokens together, as a model holds them


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingResult:
    """What training gives.

    Attributes:
        model: the tokenizer as data.
        merges: the merged pairs in order.
        merge_counts: how often each merge's pair occurred when it was merged.
        stop_reason: "vocab_size_reached", "below_min_frequency" or "no_pairs_left".
    """

    model: TokenizerModel
    merges: list[tuple[bytes, bytes]]
    merge_counts: list[int]
    stop_reason: StopReason

    @property
    def vocab(self) -> dict[int, bytes]:
        """Id to bytes: special tokens in the order given, the 256 bytes, merges in order."""
        return self.model.vocab

    def tokenizer(self) -> BPETokenizer:
        """A tokenizer that encodes with these merges."""
        from bpe_core.tokenizer import BPETokenizer

        return BPETokenizer.from_model(self.model)

    def explain_stop(self) -> str:
        """Why training stopped, in words."""
        return _STOP_REASONS[self.stop_reason]


def train_bpe(
    input_path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    vocab_size: int,
    special_tokens: Iterable[str] = (),
    *,
    pattern: str = "gpt2",
    tie_break: TieBreak = "lexicographic",
    min_frequency: int = 1,
    max_token_bytes: int | None = None,
    separator: str | bytes | None = None,
    errors: Errors = "strict",
    num_threads: int = 0,
    progress: Progress = False,
) -> tuple[dict[int, bytes], list[tuple[bytes, bytes]]]:
    """Trains a byte-level BPE tokenizer on text files.

    Args:
        input_path: one path or several; bytes are read as they are, without newline translation.
        vocab_size: the number of ids to reach: special tokens, the 256 bytes and merges.
        special_tokens: where text is cut before counting; they are never counted or merged across.
        pattern: a name of `bpe_core.PATTERNS` or a regular expression.
        tie_break: of equally frequent pairs, "lexicographic": the greatest (bytes, bytes);
            "first_id": the smallest ids; "huggingface": as Hugging Face's trainer.
        min_frequency: of a pair; training stops below it.
        max_token_bytes: merges that would make a longer token are passed over.
        separator: where text is cut as well; None: special tokens alone cut.
        errors: "strict", "replace" or "ignore" for invalid UTF-8.
        num_threads: for counting; 0 for all cores.
        progress: show progress; or a function called with (merges made, merges wanted).

    Returns:
        (vocab, merges): id to bytes, and pairs of bytes in the order they were merged.

    Raises:
        TrainingError: no such file, a vocabulary that is too small for the bytes and special
            tokens, or a separator that is empty or can overlap itself.
        InvalidUtf8Error: invalid UTF-8 and errors="strict".

    Warns:
        UserWarning: the text is too small for the vocabulary; fewer merges were made.

    Example:
        vocab, merges = train_bpe("corpus.txt", 32_000, ["<|endoftext|>"])
    """
    paths = [input_path] if isinstance(input_path, (str, os.PathLike)) else list(input_path)
    for path in paths:
        if not Path(path).is_file():
            raise TrainingError(f"input_path: expected a file, found none at {os.fspath(path)!r}")
    specials = check_special_tokens(special_tokens)
    _check_vocab_size(vocab_size, specials)
    counts = count_files(
        paths,
        pattern=pattern,
        special_tokens=specials,
        separator=_checked_separator(separator),
        errors=errors,
        num_threads=num_threads,
    )
    result = train_from_counts(
        counts,
        vocab_size,
        specials,
        tie_break=tie_break,
        min_frequency=min_frequency,
        max_token_bytes=max_token_bytes,
        progress=progress,
    )
    if len(result.model) < vocab_size:
        warnings.warn(
            f"training reached {len(result.model)} of {vocab_size} ids: {result.explain_stop()}",
            stacklevel=2,
        )
    return result.vocab, result.merges


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
    progress: Progress = False,
) -> TrainingResult | list[TrainingResult]:
    """Learns merges from counted pre-tokens.

    The most frequent pair of adjacent tokens is merged, again and again; pairs are counted with
    overlap (`aaa` has two) in 64 bits. Among ordinary tokens there is one id per byte sequence: a
    merge that makes bytes which have an id already is recorded and reuses that id.

    Source of the algorithm: Gage 1994 (byte-pair encoding), Sennrich, Haddow and Birch 2016 (on
    words), Radford et al. 2019 (on bytes). `bpe_core.reference.learn_merges` is it in plain Python.

    Args:
        counts: pre-tokens with their counts.
        vocab_size: the number of ids to reach, or several sizes: then the results are of one
            training, each a prefix of the next.
        special_tokens: they get the first ids, in the order given.
        tie_break, min_frequency, max_token_bytes, progress: as in `train_bpe`.
        forbidden_tokens: merges that would make one of these are passed over.

    Raises:
        TrainingError: a vocabulary too small for the bytes and special tokens, or an unusable
            argument.
        CountOverflowError: a pair's count does not fit 64 bits.

    Example:
        >>> counts = PretokenCounts.from_mapping({b"low": 5, b"lower": 2})
        >>> result = train_from_counts(counts, 258)
        >>> result.merges, result.merge_counts
        ([(b'o', b'w'), (b'l', b'ow')], [7, 7])
    """
    specials = check_special_tokens(special_tokens)
    sizes = list(vocab_size) if isinstance(vocab_size, Iterable) else [vocab_size]
    for size in sizes:
        _check_vocab_size(size, specials)
    _check_options(tie_break, min_frequency, max_token_bytes)
    learner = MergeLearner(
        *counts.columns(),
        tie_break,
        min_frequency,
        max_token_bytes or 0,
        _checked_forbidden(forbidden_tokens),
    )
    results: dict[int, TrainingResult] = {}
    with _shown(progress, max(sizes, default=0) - len(specials) - 256) as show:
        for size in sorted(set(sizes)):
            _learn(learner, size - len(specials), show)
            results[size] = _result(learner, specials, tie_break, counts)
    found = [results[size] for size in sizes]
    return found if isinstance(vocab_size, Iterable) else found[0]


def _checked_separator(separator: str | bytes | None) -> str | None:
    if separator is None:
        return None
    try:
        # To bytes and back: a lone surrogate is no UTF-8 either.
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
    return text


def _check_vocab_size(vocab_size: int, specials: tuple[str, ...]) -> None:
    least = 256 + len(specials)
    if isinstance(vocab_size, bool) or not isinstance(vocab_size, (int, np.integer)):
        raise TrainingError(f"vocab_size: expected an integer, found {vocab_size!r}")
    if vocab_size < least:
        raise TrainingError(
            f"vocab_size: expected at least {least} (256 bytes and {len(specials)} special "
            f"tokens), found {vocab_size}"
        )


def _checked_forbidden(tokens: Iterable[bytes]) -> list[bytes]:
    listed = list(tokens)
    for token in listed:
        if not isinstance(token, bytes):
            raise TrainingError(f"forbidden_tokens: expected several bytes, found {token!r}")
    return listed


def _check_options(tie_break: str, min_frequency: int, max_token_bytes: int | None) -> None:
    if tie_break == "first_seen":
        raise TrainingError(
            "tie_break: first_seen needs the order of the text, which counts do not keep; expected "
            "lexicographic, first_id or huggingface"
        )
    if tie_break not in ("lexicographic", "first_id", "huggingface"):
        raise TrainingError(
            f"tie_break: expected lexicographic, first_id or huggingface, found {tie_break!r}"
        )
    if min_frequency < 1:
        raise TrainingError(f"min_frequency: expected at least 1, found {min_frequency}")
    if max_token_bytes is not None and max_token_bytes < 1:
        raise TrainingError(f"max_token_bytes: expected at least 1, found {max_token_bytes}")


def _learn(learner: MergeLearner, symbols: int, show: Callable[[int], None]) -> None:
    goes_on = True
    while goes_on:
        goes_on = learner.learn(symbols, _MERGES_A_STEP)
        if learner.symbol_bytes > _MOST_TOKEN_BYTES:
            raise TrainingError(
                f"tokens: expected at most {_MOST_TOKEN_BYTES:,} bytes in all, found more after "
                f"{learner.num_symbols - 256:,} merges: the text is too small for the vocabulary, "
                "and its few pre-tokens merge into single tokens; ask for a smaller vocab_size, "
                "or give min_frequency=2 or max_token_bytes"
            )
        show(learner.num_symbols - 256)


def _result(
    learner: MergeLearner, specials: tuple[str, ...], tie_break: str, counts: PretokenCounts
) -> TrainingResult:
    first = len(specials)
    symbols = [learner.symbol(i) for i in range(learner.num_symbols)]
    left, right, result, merge_counts = learner.merges()
    rows: NDArray[np.int64] = np.column_stack([left, right, result]).astype(np.int64) + first
    stop_reason: StopReason = learner.stop_reason  # type: ignore[assignment]
    model = TokenizerModel.from_tokens(
        enumerate(symbols, first),
        map(tuple, rows.tolist()),
        special_tokens={token: i for i, token in enumerate(specials)},
        pattern=counts.metadata.get("pattern", "gpt2"),
        tie_break=tie_break,
        merge_counts=merge_counts.tolist(),
        stop_reason=stop_reason,
        counts_fingerprint=counts.metadata.get("fingerprint"),
    )
    return TrainingResult(
        model=model,
        merges=[(symbols[a], symbols[b]) for a, b in zip(left, right, strict=True)],
        merge_counts=merge_counts.tolist(),
        stop_reason=stop_reason,
    )


@contextmanager
def _shown(progress: Progress, wanted: int) -> Iterator[Callable[[int], None]]:
    """Tells `progress` of the merges made, or shows a bar, or does nothing."""
    if callable(progress):
        yield lambda made: progress(made, wanted)
    elif not progress:
        yield lambda made: None
    else:
        from rich.progress import Progress as Bar

        with Bar() as bar:
            task = bar.add_task("learning merges", total=wanted)
            yield lambda made: bar.update(task, completed=made)
