r"""Split patterns: how text is cut into pre-tokens before merges apply.

A pattern has a name, or is a regular expression in the syntax of the package ``regex``. The named
ones are scanned by native code over Unicode 16.0, the version of tiktoken 0.14 and tokenizers 0.23:

================  =============================================================================
gpt2              GPT-2's; r50k and p50k use it too (``r50k`` is another name of it)
cl100k            GPT-4's in its published form, as Hugging Face's tokenizers have it; Llama 3's
                  is the same (``llama3`` is another name of it)
cl100k_tiktoken   cl100k as tiktoken rewrote it for speed. It differs in one case: white space
                  that ends the text is one pre-token, also where a line break is in it
o200k             GPT-4o's
qwen2             cl100k with digits one by one
none              no splitting: a text is one pre-token
================  =============================================================================

Any other regular expression runs through ``regex``, whose version of Unicode is that of the
installed package.

Example:
    >>> resolve_pattern("llama3").native
    'cl100k'
    >>> custom = resolve_pattern(r"\w+")
    >>> split_custom(custom.regex, "naïve idea!").tolist()
    [0, 6, 7, 11, 12]
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import regex
from numpy.typing import NDArray

from bpe_core.errors import InvalidPatternError

__all__ = ["PATTERNS", "UNICODE_VERSION", "Pattern", "resolve_pattern", "split_custom"]

UNICODE_VERSION = "16.0.0"
"""Version of the Unicode tables in the native scanners."""

_GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""

_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WHITE_SPACE = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def _cl100k(numbers: str = r"\p{N}{1,3}", white_space: str = _WHITE_SPACE) -> str:
    words = r"[^\r\n\p{L}\p{N}]?\p{L}+"
    return f"{_CONTRACTION}|{words}|{numbers}" + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|" + white_space


def _o200k() -> str:
    heads = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
    tails = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    alternatives = [
        rf"[^\r\n\p{{L}}\p{{N}}]?{heads}*{tails}+{_CONTRACTION}?",
        rf"[^\r\n\p{{L}}\p{{N}}]?{heads}+{tails}*{_CONTRACTION}?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        _WHITE_SPACE,
    ]
    return "|".join(alternatives)


PATTERNS: dict[str, str] = {
    "gpt2": _GPT2,
    "cl100k": _cl100k(),
    # tiktoken writes the end of the text as `$`, which means the end of a line to other engines.
    "cl100k_tiktoken": _cl100k(white_space=r"\s+(?![\s\S])|" + _WHITE_SPACE),
    "o200k": _o200k(),
    "llama3": _cl100k(),
    "qwen2": _cl100k(numbers=r"\p{N}"),
    "none": r"[\s\S]+",
}
r"""The named patterns as regular expressions, in their published forms.

They have no possessive quantifiers, which Hugging Face's engine reads differently (``{1,3}+`` is a
repeated group there), so exports can hold them as they are.
"""

_OTHER_NAMES = {"r50k": "gpt2", "llama3": "cl100k"}

# Rewritten forms that split every text as the named pattern does.
_REWRITTEN: dict[str, str] = {
    # tiktoken, r50k_base
    r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s""": "gpt2",
    # earlier releases of tiktoken, minbpe
    r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+""": "gpt2",
    # the comment in tiktoken that cites GPT-2's release
    r"""'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+""": "gpt2",
    # tiktoken, cl100k_base
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"""
    r"""|\s++$|\s*[\r\n]|\s+(?!\S)|\s""": "cl100k_tiktoken",
    # earlier releases of tiktoken, minbpe
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*"""
    r"""|\s*[\r\n]|\s+(?!\S)|\s+""": "cl100k",
}


@dataclass(frozen=True)
class Pattern:
    """A split pattern that is known to be valid.

    Attributes:
        name: The name among ``PATTERNS``, one per way of splitting (never ``llama3``, which is
            ``cl100k``); None for any other regular expression.
        regex: The regular expression; for a named pattern its published form.
        native: The name under which the native scanners know it; None where ``split_custom`` has
            to do it.
        unicode_version: The version of Unicode that says what a letter is: ``16.0.0`` or, where the
            package ``regex`` decides, ``regex`` and its version.
    """

    name: str | None
    regex: str
    native: str | None
    unicode_version: str


@lru_cache(maxsize=64)
def resolve_pattern(pattern: str) -> Pattern:
    """Return the pattern with this name or of this regular expression.

    A regular expression that is one of ``PATTERNS``, or the form into which tiktoken or minbpe
    rewrote one of them, is that named pattern.

    Raises:
        InvalidPatternError: ``pattern`` is empty, looks like a name that does not exist, or is a
            regular expression that does not compile.

    Example:
        >>> resolve_pattern("r50k").name
        'gpt2'
        >>> resolve_pattern("[a-z]+").native is None
        True
    """
    name = _name_of(pattern)
    if name is not None:
        return Pattern(name, PATTERNS[name], name, UNICODE_VERSION)
    _check_custom(pattern)
    return Pattern(None, pattern, None, f"regex {regex.__version__}")


def _name_of(pattern: str) -> str | None:
    if pattern in PATTERNS or pattern in _OTHER_NAMES:
        return _OTHER_NAMES.get(pattern, pattern)
    for name, published in PATTERNS.items():
        if pattern == published:
            return name
    return _REWRITTEN.get(pattern)


def _check_custom(pattern: str) -> None:
    names = sorted({*PATTERNS, *_OTHER_NAMES})
    choices = f"expected one of {', '.join(names)}, or a regular expression"
    if not pattern:
        raise InvalidPatternError(
            f"empty split pattern: {choices}; 'none' takes each text as one pre-token"
        )
    # A plain word would be a valid expression that matches itself alone: more likely a wrong name.
    if regex.fullmatch(r"[A-Za-z][\w-]+", pattern, flags=regex.ASCII):
        near = difflib.get_close_matches(pattern.lower(), names, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise InvalidPatternError(
            f"unknown split pattern {pattern!r}: {choices}; {hint}"
            f"To split at this very word, write '(?:{pattern})'"
        )
    try:
        regex.compile(pattern)
    except regex.error as error:
        raise InvalidPatternError(
            f"the split pattern {pattern!r} is no valid regular expression: {error}; {choices} "
            f"in the syntax of the package regex"
        ) from None


def split_custom(pattern: str, text: str) -> NDArray[np.int64]:
    r"""Split a text with a regular expression that the native scanners do not know.

    Matches are pre-tokens. Text between them that the pattern leaves unmatched is a pre-token of
    its own, so nothing is lost; empty matches are ignored.

    Args:
        pattern: A regular expression that ``resolve_pattern`` accepted.
        text: The text of one segment.

    Returns:
        int64[n + 1], ascending byte offsets into the UTF-8 form of ``text``, the first 0, the last
        its length: pre-token i is bytes ``[cuts[i], cuts[i + 1])``. ``[0]`` for the empty text.

    Example:
        >>> split_custom(r"\d+", "año 2024").tolist()
        [0, 5, 9]
    """
    cuts = [0]
    last = 0
    for match in regex.compile(pattern).finditer(text):
        start, end = match.span()
        if start == end:
            continue
        if start > last:
            cuts.append(start)
        cuts.append(end)
        last = end
    if last < len(text):
        cuts.append(len(text))
    if text.isascii():
        return np.array(cuts, dtype=np.int64)
    data = np.frombuffer(text.encode(), dtype=np.uint8)
    offsets = np.flatnonzero((data & 0xC0) != 0x80)
    return np.append(offsets, len(data)).astype(np.int64, copy=False)[cuts]
