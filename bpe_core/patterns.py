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

Rules for categories and digits (``pattern_with_rules``) make further patterns, which native code
scans too. Any other regular expression runs through ``regex``, whose version of Unicode is that of
the installed package. Several of them joined by ``(?#then)`` are a chain, as some published
tokenizers have it: each splits the pieces that the ones before it left, and sees no text beyond
its piece.

Example:
    >>> resolve_pattern("llama3").native
    'cl100k'
    >>> custom = resolve_pattern(r"\w+")
    >>> split_custom(custom.regex, "naïve idea!").tolist()
    [0, 6, 7, 11, 12]
    >>> split_custom(r"\d{3}(?#then)\w", "12345").tolist()
    [0, 1, 2, 3, 4, 5]
"""

from __future__ import annotations

import difflib
import itertools
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import regex
from numpy.typing import NDArray

from bpe_core.custom_patterns import compile_custom_pattern
from bpe_core.errors import InvalidPatternError

__all__ = [
    "GPT2_SPLIT_PATTERN",
    "GPT4_SPLIT_PATTERN",
    "PATTERNS",
    "THEN",
    "UNICODE_VERSION",
    "Pattern",
    "pattern_with_rules",
    "resolve_pattern",
    "split_custom",
]

# A comment to `regex`; such as no one writes by chance.
THEN = "(?#then)"

UNICODE_VERSION = "16.0.0"
"""Version of the Unicode tables in the native scanners."""

_GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""

_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WHITE_SPACE = r"\s*[\r\n]+|\s+(?!\S)|\s+"
# tiktoken writes the end of the text as `$`, which means the end of a line to other engines.
_TIKTOKEN_WHITE_SPACE = r"\s+(?![\s\S])|" + _WHITE_SPACE


def _cl100k(numbers: str = r"\p{N}{1,3}", white_space: str = _WHITE_SPACE) -> str:
    words = r"[^\r\n\p{L}\p{N}]?\p{L}+"
    return f"{_CONTRACTION}|{words}|{numbers}" + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|" + white_space


_HEADS = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_TAILS = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def _o200k(numbers: str = r"\p{N}{1,3}") -> str:
    alternatives = [
        rf"[^\r\n\p{{L}}\p{{N}}]?{_HEADS}*{_TAILS}+{_CONTRACTION}?",
        rf"[^\r\n\p{{L}}\p{{N}}]?{_HEADS}+{_TAILS}*{_CONTRACTION}?",
        numbers,
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        _WHITE_SPACE,
    ]
    return "|".join(alternatives)


def _split_cl100k(white_space: str = _WHITE_SPACE) -> str:
    return r" ?\p{L}+|{numbers}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + white_space


def _split_o200k() -> str:
    words = f" ?{_HEADS}*{_TAILS}+| ?{_HEADS}+{_TAILS}*"
    return words + r"|{numbers}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n/]*|" + _WHITE_SPACE


PATTERNS: dict[str, str] = {
    "gpt2": _GPT2,
    "cl100k": _cl100k(),
    "cl100k_tiktoken": _cl100k(white_space=_TIKTOKEN_WHITE_SPACE),
    "o200k": _o200k(),
    "llama3": _cl100k(),
    "qwen2": _cl100k(numbers=r"\p{N}"),
    "none": r"[\s\S]+",
}
r"""The named patterns as regular expressions, in their published forms.

They have no possessive quantifiers, which Hugging Face's engine reads differently (``{1,3}+`` is a
repeated group there), so exports can hold them as they are.
"""

WHITESPACE_WORDS = "whitespace_words"
"""White space and what is between it, for tokenizers that take the latter alone: not in `PATTERNS`.

White space is what it is to ``str.split``.
"""

_UNLISTED = {WHITESPACE_WORDS: r"[^\s\x1c-\x1f]+|[\s\x1c-\x1f]+"}

# Three of them with a place for their numbers, as they are and with `split_categories`.
_RULED: dict[str, tuple[str, str]] = {
    "gpt2": (
        _GPT2.replace(r"\p{N}+", "{numbers}"),
        r" ?\p{L}+| ?{numbers}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    ),
    "cl100k": (_cl100k("{numbers}"), _split_cl100k()),
    "cl100k_tiktoken": (
        _cl100k("{numbers}", _TIKTOKEN_WHITE_SPACE),
        _split_cl100k(_TIKTOKEN_WHITE_SPACE),
    ),
    "o200k": (_o200k("{numbers}"), _split_o200k()),
}

_OTHER_NAMES = {"r50k": "gpt2", "llama3": "cl100k"}

# As earlier releases of tiktoken had them, and minbpe has them, by these names.
GPT2_SPLIT_PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
GPT4_SPLIT_PATTERN = (
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*"""
    r"""|\s*[\r\n]|\s+(?!\S)|\s+"""
)

# Rewritten forms that split every text as the named pattern does.
_REWRITTEN: dict[str, str] = {
    # tiktoken, r50k_base
    r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s""": "gpt2",
    GPT2_SPLIT_PATTERN: "gpt2",
    # the comment in tiktoken that cites GPT-2's release
    r"""'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+""": "gpt2",
    # tiktoken, cl100k_base
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"""
    r"""|\s++$|\s*[\r\n]|\s+(?!\S)|\s""": "cl100k_tiktoken",
    GPT4_SPLIT_PATTERN: "cl100k",
}


# How many digits a pattern has in a pre-token at most, if no rule says so; 0: any number.
_OWN_MAX_DIGITS = {"gpt2": 0, "cl100k": 3, "cl100k_tiktoken": 3, "o200k": 3, "qwen2": 1}


def pattern_with_rules(
    pattern: str, *, split_categories: bool = False, max_digits: int | None = None
) -> str:
    r"""Return the pattern that splits as a named one does, with these rules.

    ``split_categories``: letters, numbers and other characters are never in one pre-token. What
    the named patterns allow beyond that goes: contractions (``'s``), and in cl100k and o200k a
    symbol or a tab in front of a word. A space in front of a word or of symbols stays with them,
    as do line breaks after symbols in cl100k and o200k; the latter has marks with the letters.

    ``max_digits``: numbers are cut into groups of at most so many digits, from the left. It takes
    the place of the limit that cl100k, o200k (3) and qwen2 (1) have of themselves; gpt2 has none.

    Args:
        pattern: A name of ``PATTERNS``; with no rule also a regular expression.

    Returns:
        The pattern itself if the rules change nothing, another one's name if they make it, else a
        regular expression that ``resolve_pattern`` knows: native code scans it.

    Raises:
        InvalidPatternError: A rule for ``none``, which does not split, or for a regular expression
            of one's own, which says itself how it splits; ``max_digits`` below 1.

    Example:
        >>> pattern_with_rules("cl100k", max_digits=1)
        'qwen2'
        >>> custom = pattern_with_rules("gpt2", split_categories=True, max_digits=3)
        >>> resolve_pattern(custom).native
        'gpt2/split_categories/max_digits=3'
    """
    if not split_categories and max_digits is None:
        return pattern
    if max_digits is not None and (isinstance(max_digits, bool) or max_digits < 1):
        raise InvalidPatternError(f"max_digits: expected at least 1, or None, found {max_digits}")
    name = resolve_pattern(pattern).name
    if name not in _OWN_MAX_DIGITS:
        reason = "splits nothing" if name == "none" else "says itself how text is split"
        raise InvalidPatternError(
            "split_categories, max_digits: expected one of the patterns "
            f"{', '.join(_OWN_MAX_DIGITS)} for them, found {pattern!r}, which {reason}; leave the "
            "rules out, or choose one of those"
        )
    digits = _OWN_MAX_DIGITS[name] if max_digits is None else max_digits
    ruled = _with_rules("cl100k" if name == "qwen2" else name, split_categories, digits)
    return pattern if ruled == PATTERNS[name] else _name_of(ruled) or ruled


def _with_rules(family: str, split_categories: bool, max_digits: int) -> str:
    counts = {0: "+", 1: ""}
    numbers = r"\p{N}" + counts.get(max_digits, f"{{1,{max_digits}}}")
    return _RULED[family][split_categories].replace("{numbers}", numbers)


def _native_with_rules(pattern: str) -> str | None:
    """The native scanner of what `pattern_with_rules` returned, or None if it did not."""
    found = regex.search(r"\\p\{N\}(\+|\{1,([1-9]\d{0,8})\})?\|", pattern)
    if found is None:
        return None
    max_digits = 0 if found[1] == "+" else int(found[2] or 1)
    for family in _RULED:
        for split_categories in (False, True):
            if pattern == _with_rules(family, split_categories, max_digits):
                split = "/split_categories" if split_categories else ""
                return f"{family}{split}/max_digits={max_digits}"
    return None


@dataclass(frozen=True)
class Pattern:
    """A split pattern that is known to be valid.

    Attributes:
        name: The name among ``PATTERNS``, one per way of splitting (never ``llama3``, which is
            ``cl100k``); None for any other regular expression.
        regex: The regular expression; for a named pattern its published form.
        native: The name under which the native scanners know it, with its rules if it has some;
            None where ``split_custom`` has to do it.
        unicode_version: The version of Unicode that says what a letter is: ``16.0.0`` or, where the
            package ``regex`` decides, ``regex`` and its version.
    """

    name: str | None
    regex: str
    native: str | None
    unicode_version: str

    @property
    def has_safe_cuts(self) -> bool:
        """Whether long texts may be cut where ``_native.safe_cut`` says."""
        return self.native not in (None, "none", WHITESPACE_WORDS)

    @property
    def has_cuts_before_white_space(self) -> bool:
        """Whether long texts may be cut there, but not at all places of ``has_safe_cuts``."""
        return self.native == WHITESPACE_WORDS

    @property
    def steps(self) -> list[str]:
        """The regular expressions of a chain; of any other pattern its one."""
        return self.regex.split(THEN)


def resolve_pattern(pattern: str) -> Pattern:
    """Return the pattern with this name or of this regular expression.

    A regular expression that is one of ``PATTERNS``, or the form into which tiktoken or minbpe
    rewrote one of them, is that named pattern.

    Raises:
        InvalidPatternError: ``pattern`` is not a str, is empty, looks like a name that does not
            exist, or is a regular expression that does not compile or cannot split text.

    Example:
        >>> resolve_pattern("r50k").name
        'gpt2'
        >>> resolve_pattern("[a-z]+").native is None
        True
    """
    if not isinstance(pattern, str):
        raise InvalidPatternError(
            f"split pattern: expected a name or a regular expression as str, found {pattern!r}"
        )
    return _resolve(pattern)


@lru_cache(maxsize=64)
def _resolve(pattern: str) -> Pattern:
    if pattern in _UNLISTED:
        return Pattern(pattern, _UNLISTED[pattern], pattern, UNICODE_VERSION)
    name = _name_of(pattern)
    if name is not None:
        return Pattern(name, PATTERNS[name], name, UNICODE_VERSION)
    native = _native_with_rules(pattern)
    if native is not None:
        return Pattern(None, pattern, native, UNICODE_VERSION)
    _check_custom(pattern)
    return Pattern(None, pattern, None, f"regex {regex.__version__}")


def _name_of(pattern: str) -> str | None:
    if pattern in PATTERNS or pattern in _OTHER_NAMES:
        return _OTHER_NAMES.get(pattern, pattern)
    for name, published in PATTERNS.items():
        if pattern == published:
            return name
    return _REWRITTEN.get(pattern)


def _shorten(pattern: str) -> str:
    return repr(pattern) if len(pattern) <= 200 else f"{pattern[:200]!r}..."


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
            f"unknown split pattern {_shorten(pattern)}: {choices}; {hint}"
            f"To split at this very word, put it into a group: {_shorten(f'(?:{pattern})')}"
        )
    try:
        pattern.encode()
    except UnicodeEncodeError:
        raise InvalidPatternError(
            f"split pattern: expected Unicode text, found a lone surrogate in {_shorten(pattern)}"
        ) from None
    try:
        for step in pattern.split(THEN):
            compile_custom_pattern(step)
    except InvalidPatternError as error:
        raise InvalidPatternError(
            f"the split pattern {_shorten(pattern)} {error}; {choices} in the syntax of the "
            "package regex"
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
    first, *others = (regex.compile(step) for step in pattern.split(THEN))
    ends = _ends(first, text)
    for step in others:
        pieces = itertools.pairwise([0, *ends])
        ends = [start + end for start, stop in pieces for end in _ends(step, text[start:stop])]
    cuts = [0, *ends]
    if text.isascii():
        return np.array(cuts, dtype=np.int64)
    data = np.frombuffer(text.encode(), dtype=np.uint8)
    offsets = np.flatnonzero((data & 0xC0) != 0x80)
    return np.append(offsets, len(data)).astype(np.int64, copy=False)[cuts]


def _ends(compiled: regex.Pattern[str], text: str) -> list[int]:
    """Where matches that are not empty, and what stands between them, end."""
    ends = []
    last = 0
    for match in compiled.finditer(text):
        start, end = match.span()
        if start == end:
            continue
        if start > last:
            ends.append(start)
        ends.append(end)
        last = end
    if last < len(text):
        ends.append(len(text))
    return ends
