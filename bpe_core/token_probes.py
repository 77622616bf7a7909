"""How a tokenizer splits numbers and white space, by texts made for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from bpe_core.tokenizer import BPETokenizer

__all__ = ["NumberSplits", "SpaceTokens", "measure_spaces", "split_numbers", "three_digit_f1"]

LONGEST_NUMBER: Final = 10
RUNS: Final = (1, 2, 4, 8, 16, 32)
DEPTHS: Final = (1, 2, 3, 4, 5, 6)
_NUMBERS: Final = 100  # of each length
_STEP: Final = 0x9E3779B1  # a prime, so that the numbers are spread
_BEFORE: Final = "a "


@dataclass(frozen=True, kw_only=True)
class NumberSplits:
    """Splits of numbers of one length, after a word and a space.

    Attributes:
        digits: Length of the numbers.
        tokens: Tokens with digits of such a number, on average.
        three_digit_f1: Average of `three_digit_f1`.
        split: Digits of the tokens in the most frequent split.
        share: Share of the numbers with this split.
    """

    digits: int
    tokens: float
    three_digit_f1: float
    split: tuple[int, ...]
    share: float


@dataclass(frozen=True, kw_only=True)
class SpaceTokens:
    """Tokens of white space.

    Attributes:
        longest_spaces: Spaces of the longest token of spaces alone.
        spaces: Tokens of runs of spaces, by length.
        tabs, newlines: Those of runs of tabs and of newlines.
        indentation: Tokens that indentation by four spaces a level adds to a line, by level.
    """

    longest_spaces: int
    spaces: dict[int, int]
    tabs: dict[int, int]
    newlines: dict[int, int]
    indentation: dict[int, int]


def split_numbers(tokenizer: BPETokenizer) -> list[NumberSplits]:
    """Return how numbers of 1 to 10 digits are split: of each length at most 100, spread evenly."""
    return [_split_numbers(tokenizer, digits) for digits in range(1, LONGEST_NUMBER + 1)]


def name_grouping(splits: Iterable[NumberSplits]) -> str:
    """Return how numbers are grouped, as a phrase.

    Example:
        >>> def split(*parts):
        ...     digits = sum(parts)
        ...     return NumberSplits(digits=digits, tokens=0, three_digit_f1=0, split=parts, share=1)
        >>> name_grouping([split(3), split(1, 3)]), name_grouping([split(3, 1), split(3, 2)])
        ('threes from the right', 'threes from the left')
        >>> name_grouping([split(1, 1, 1, 1, 1)])
        'single digits'
    """
    splits = [one for one in splits if one.digits > 1]
    if any(one.share < 1 for one in splits):
        return "varies"
    for size, name in ((1, "single digits"), (2, "pairs"), (3, "threes")):
        if all(one.split == _groups(one.digits, size) for one in splits):
            return name if size == 1 else f"{name} from the left"
        if all(one.split == _groups(one.digits, size)[::-1] for one in splits):
            return f"{name} from the right"
    return "fixed by length"


def three_digit_f1(digits: int, split: Sequence[int]) -> float:
    """Return how well a split has the places of thousands, millions, ….

    It is the harmonic mean of precision and recall of the boundaries inside of the number. A number
    without such places gets 1 if it is one token, else 0.

    Args:
        digits: Length of the number.
        split: Digits of each token.

    Example:
        >>> three_digit_f1(7, [1, 3, 3]), three_digit_f1(7, [3, 3, 1]), three_digit_f1(2, [2])
        (1.0, 0.0, 1.0)
    """
    wanted = set(range(digits - 3, 0, -3))
    found = set(np.cumsum(split)[:-1].tolist())
    if not wanted and not found:
        return 1.0
    return 2 * len(wanted & found) / (len(wanted) + len(found))


def measure_spaces(tokenizer: BPETokenizer) -> SpaceTokens:
    """Return the numbers of tokens of white space."""
    runs = [
        {length: _count(tokenizer, character * length) for length in RUNS}
        for character in (" ", "\t", "\n")
    ]
    line = _count(tokenizer, "x\nreturn")
    tokens = tokenizer.model.token_bytes.to_pylist()
    return SpaceTokens(
        longest_spaces=max((len(t) for t in tokens if not t.strip(b" ")), default=0),
        spaces=runs[0],
        tabs=runs[1],
        newlines=runs[2],
        indentation={
            depth: _count(tokenizer, f"x\n{' ' * 4 * depth}return") - line for depth in DEPTHS
        },
    )


def _split_numbers(tokenizer: BPETokenizer, digits: int) -> NumberSplits:
    first = 10 ** (digits - 1)
    numbers = sorted({first + i * _STEP % (9 * first) for i in range(_NUMBERS)})
    splits = [_split(tokenizer, str(number)) for number in numbers]
    (most, uses), *_ = Counter(splits).most_common(1)
    return NumberSplits(
        digits=digits,
        tokens=sum(map(len, splits)) / len(splits),
        three_digit_f1=sum(three_digit_f1(digits, split) for split in splits) / len(splits),
        split=most,
        share=uses / len(splits),
    )


def _split(tokenizer: BPETokenizer, number: str) -> tuple[int, ...]:
    """Return the digits of each token of a number."""
    _, offsets = tokenizer.encode_with_offsets(_BEFORE + number)
    inside = offsets[(offsets > len(_BEFORE)) & (offsets < len(_BEFORE) + len(number))]
    bounds = np.unique(np.concatenate([[len(_BEFORE)], inside, [len(_BEFORE) + len(number)]]))
    return tuple(np.diff(bounds).tolist())


def _groups(digits: int, size: int) -> tuple[int, ...]:
    """Return the digits of groups of a size, counted from the left."""
    return (size,) * (digits // size) + ((digits % size,) if digits % size else ())


def _count(tokenizer: BPETokenizer, text: str) -> int:
    return len(tokenizer.encode(text))
