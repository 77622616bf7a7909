"""Sizes of texts that are given as distinct pieces with counts: characters, words, scripts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bpe_core.counts import PretokenCounts
from bpe_core.errors import CountOverflowError
from bpe_core.split_patterns.sets import CharacterSet, Named, Span, Union, resolve, script_names

__all__ = ["WORDS", "TextSize", "WordRule", "find_scripts", "find_words", "measure_text"]

WordRule: TypeAlias = Literal["letters", "white_space"]

# Runs of characters that are not white space, and of white space, as `str.split` knows it.
WORDS: Final = r"[^\s\x1c-\x1f]+|[\s\x1c-\x1f]+"
_SPACE: Final = Union((Named("space"), Span(0x1C, 0x1F)))
_PUNCTUATION: Final = b"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
_LETTER, _WHITE = 1, 2
_ROWS_AT_ONCE: Final = 1 << 20
_NO_SCRIPT: Final = ("Common", "Inherited", "Unknown")


@dataclass(frozen=True, kw_only=True)
class TextSize:
    """Size of a text.

    Attributes:
        bytes: Number of bytes.
        characters: Number of characters.
        words: Number of words; see `find_words`.
        punctuation: Number of ASCII punctuation characters.
        white_space: Number of white-space characters of ASCII.
    """

    bytes: int
    characters: int
    words: int
    punctuation: int
    white_space: int

    @property
    def looks_like_code(self) -> bool:
        """Return True if at least 15 % of the bytes besides white space are ASCII punctuation."""
        rest = self.bytes - self.white_space
        return rest > 0 and 20 * self.punctuation >= 3 * rest

    def __add__(self, other: TextSize) -> TextSize:
        """Return the size of both texts."""
        return TextSize(
            bytes=self.bytes + other.bytes,
            characters=self.characters + other.characters,
            words=self.words + other.words,
            punctuation=self.punctuation + other.punctuation,
            white_space=self.white_space + other.white_space,
        )


def measure_text(counts: PretokenCounts, rule: WordRule) -> TextSize:
    """Return the size of a counted text.

    Args:
        counts: Its pieces.
        rule: Rule for words; see `find_words`.

    Raises:
        CountOverflowError: The text has 2^62 bytes or more.

    Example:
        >>> counts = PretokenCounts.from_mapping({b"one": 2, " zwölf".encode(): 1, b";": 4})
        >>> measure_text(counts, "letters")
        TextSize(bytes=17, characters=16, words=3, punctuation=4, white_space=1)
    """
    keys, offsets, numbers = counts.columns()
    lengths = np.diff(offsets)
    if float(lengths.astype(float) @ numbers.astype(float)) >= 2**62:
        raise CountOverflowError(
            "counts: expected text of fewer than 2^62 bytes, found more; scale the counts down"
        )

    def count(table: NDArray[np.bool_]) -> int:
        """Count the bytes that are in a table."""
        total = 0
        for first in range(0, len(numbers), _ROWS_AT_ONCE):
            part = offsets[first : first + _ROWS_AT_ONCE + 1]
            found = np.add.reduceat(table[keys[part[0] : part[-1]]], part[:-1] - part[0], dtype=int)
            total += int(found @ numbers[first : first + _ROWS_AT_ONCE])
        return total

    codes = np.arange(256)
    return TextSize(
        bytes=int(lengths @ numbers),
        characters=count((codes & 0xC0) != 0x80),
        words=int(numbers[find_words(keys, offsets, rule)].sum()),
        punctuation=count(np.isin(codes, list(_PUNCTUATION))),
        white_space=count(np.isin(codes, list(b" \t\n\v\f\r"))),
    )


def find_words(
    keys: NDArray[np.uint8], offsets: NDArray[np.int64], rule: WordRule
) -> NDArray[np.bool_]:
    """Return which pieces of a text are words.

    Args:
        keys, offsets: Piece i is keys[offsets[i]:offsets[i + 1]]; none is empty.
        rule: letters: pieces with a letter; white_space: pieces that do not begin with white space.

    Example:
        >>> pieces = np.frombuffer(b"a 7'b", np.uint8), np.array([0, 1, 3, 5])
        >>> find_words(*pieces, "letters").tolist(), find_words(*pieces, "white_space").tolist()
        ([True, False, True], [True, False, True])
    """
    found = np.zeros(len(offsets) - 1, np.bool_)
    for first in range(0, len(found), _ROWS_AT_ONCE):
        part = offsets[first : first + _ROWS_AT_ONCE + 1]
        codes, starts = decode_characters(keys[part[0] : part[-1]], part - part[0])
        classes = _classes()[codes]
        of_part = found[first : first + _ROWS_AT_ONCE]
        if rule == "letters":
            of_part[:] = np.logical_or.reduceat(classes == _LETTER, starts)
        else:
            of_part[:] = classes[starts] != _WHITE
    return found


def find_scripts(
    keys: NDArray[np.uint8], offsets: NDArray[np.int64]
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return the script of each piece of a text: that of its first character that has one.

    Pieces of digits, punctuation and white space have none.

    Args:
        keys, offsets: Piece i is keys[offsets[i]:offsets[i + 1]]; none is empty.

    Returns:
        (numbers of scripts, -1 for none; their names).

    Example:
        >>> numbers, names = find_scripts(np.frombuffer(b" a1", np.uint8), np.array([0, 2, 3]))
        >>> [names[number] if number >= 0 else None for number in numbers]
        ['Latin', None]
    """
    table, names = _scripts()
    if len(offsets) == 1:
        return np.zeros(0, np.int64), names
    codes, starts = decode_characters(keys[offsets[0] : offsets[-1]], offsets - offsets[0])
    scripts = table[codes].astype(np.int64)
    places = np.where(scripts >= 0, np.arange(len(codes)), len(codes))
    firsts = np.minimum.reduceat(places, starts)
    ends = np.append(starts[1:], len(codes))
    return np.where(firsts < ends, scripts[np.minimum(firsts, len(codes) - 1)], -1), names


def decode_characters(
    keys: NDArray[np.uint8], offsets: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the code points of pieces in UTF-8, and the number of the first one of each piece.

    A byte that does not begin a character of the piece, or one that is cut off, becomes U+FFFD.

    Example:
        >>> codes, starts = decode_characters(np.frombuffer(b"a\\xc3\\xa9\\xa9", np.uint8),
        ...                                   np.array([0, 3, 4]))
        >>> codes.tolist(), starts.tolist()
        ([97, 233, 65533], [0, 2])
    """
    is_first = (keys & 0xC0) != 0x80
    is_first[offsets[:-1]] = True
    places = np.flatnonzero(is_first)
    lengths = np.diff(np.append(places, len(keys)))
    lead = keys[places].astype(np.int64)
    expected = np.select([lead < 0x80, lead < 0xC0, lead < 0xE0, lead < 0xF0], [1, 0, 2, 3], 4)
    codes = np.where(expected == 1, lead, lead & (0xFF >> (expected + 1)))
    for i in range(1, 4):
        following = keys[np.minimum(places + i, len(keys) - 1)].astype(np.int64) & 0x3F
        codes = np.where(expected > i, codes << 6 | following, codes)
    codes[(lengths != expected) | (codes > 0x10FFFF)] = 0xFFFD
    return codes, np.searchsorted(places, offsets[:-1])


@cache
def _classes() -> NDArray[np.uint8]:
    """Return a table from code points to classes; 0 for others."""
    table = np.zeros(0x110000, np.uint8)
    _fill(table, Named("gc=L"), _LETTER)
    _fill(table, _SPACE, _WHITE)
    return table


@cache
def _scripts() -> tuple[NDArray[np.int16], tuple[str, ...]]:
    """Return a table from code points to numbers of scripts, and the names of these."""
    names = tuple(name for name in script_names() if name not in _NO_SCRIPT)
    table = np.full(0x110000, -1, np.int16)
    for number, name in enumerate(names):
        _fill(table, Named(f"sc={name}"), number)
    return table, names


def _fill(table: NDArray[np.integer], described: CharacterSet, value: int) -> None:
    bounds = resolve(described)
    for first, end in zip(bounds[::2], bounds[1::2], strict=True):
        table[first:end] = value
