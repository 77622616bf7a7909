r"""Split patterns, by which text is cut into pre-tokens before merges apply.

A pattern is a name, or a regular expression in the syntax of the package ``regex``. The named ones
are scanned by native code over Unicode 16.0, the version of tiktoken 0.14 and tokenizers 0.23:

================  =============================================================================
gpt2              GPT-2's; r50k and p50k use it too (``r50k`` is another name for it)
cl100k            GPT-4's in its published form, as in Hugging Face's tokenizers; Llama 3's is
                  the same (``llama3`` is another name for it)
cl100k_tiktoken   cl100k as tiktoken rewrote it for speed. It differs in one case: white space
                  at the end of a text is one pre-token, even if it contains a line break
o200k             GPT-4o's
qwen2             cl100k with digits one by one
none              no splitting: a text is one pre-token
================  =============================================================================

Rules for categories and digits (``pattern_with_rules``) make further patterns, which native code
scans too. Any other regular expression is compiled to an automaton (`bpe_core.split_patterns`),
over Unicode 16.0 as well; the few that need backtracking run through the package ``regex``, slowly
and with its own version of Unicode. Matches are pre-tokens, and so is what lies between them; a
match of nothing cuts where it is.

Several expressions joined by ``(?#then)`` are a chain, as in some published tokenizers: each splits
the chunks that the previous ones left, and sees no text beyond its chunk. After ``(?#then bytes)``
a step reads the bytes of its chunk, each as the character that stands for it in GPT-2's files
(``Ġ`` for a space), as the steps behind `ByteLevel` do in a tokenizer.json. Such a step may cut
within a character.

Example:
    >>> resolve_pattern("llama3").native
    'cl100k'
    >>> resolve_pattern(r"\w+").tier
    'automaton'
    >>> resolve_pattern(r"(\w)\1|.").tier
    'regex'
    >>> split_custom(r"\d{3}(?#then)\w", "12345").tolist()
    [0, 1, 2, 3, 4, 5]
"""

from __future__ import annotations

import difflib
import itertools
import time
import warnings
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import regex
from numpy.typing import NDArray

from bpe_core._native import Splitter
from bpe_core.custom_patterns import compile_custom_pattern
from bpe_core.errors import InvalidPatternError, SlowPatternError
from bpe_core.split_patterns.compiler import compile_steps
from bpe_core.split_patterns.syntax import UnsupportedPatternError
from bpe_core.split_patterns.translation import translate

__all__ = [
    "GPT2_SPLIT_PATTERN",
    "GPT4_SPLIT_PATTERN",
    "PATTERNS",
    "SPLITS_AT_WHITE_SPACE",
    "THEN",
    "THEN_BYTES",
    "UNICODE_VERSION",
    "ChainStep",
    "Pattern",
    "Tier",
    "pattern_of_tiktoken",
    "pattern_with_rules",
    "resolve_pattern",
    "scanned_patterns",
    "split_custom",
    "steps_of",
    "superword_pattern",
    "warn_of_slow_pattern",
]

# To `regex` comments, which nobody writes by accident.
THEN = "(?#then)"
THEN_BYTES = "(?#then bytes)"

# Limit of the time in which `regex` splits a text: patterns that backtrack may never end. Other
# patterns need 0.2 to 0.5 microseconds a character.
_SPLIT_SECONDS = 10.0
_SPLIT_SECONDS_A_CHAR = 1e-5

UNICODE_VERSION = "16.0.0"
"""Version of the Unicode tables in the native scanners."""

_GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""

_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WHITE_SPACE = r"\s*[\r\n]+|\s+(?!\S)|\s+"
# tiktoken writes the end of the text as `$`, which other engines read as the end of a line.
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
repeated group there), so exported files can contain them unchanged.
"""

WHITESPACE_WORDS = "whitespace_words"
"""Runs of white space and the words between them, for tokenizers that use only the words.

White space is defined as by ``str.split``. This pattern is not in `PATTERNS`.
"""

SPLITS_AT_WHITE_SPACE = (r"\S+", r"\w+|[^\w\s]+")
"""Words; words and signs. Between their matches there is white space and nothing else."""

_UNLISTED = {WHITESPACE_WORDS: r"[^\s\x1c-\x1f]+|[\s\x1c-\x1f]+"}

# Named patterns with a placeholder for numbers, without and with `split_categories`.
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


_SIGN = r"[^\s\p{L}\p{N}]"
# Signs that may follow a letter in a superword. The bytes of others begin as letters may, so that
# tokens of a letter and the first byte of the next would reach across.
_ASCII_SIGN = r"[!-/:-@\[-`{-~]"
_NO_CONTRACTION = r"[!-&(-/:-@\[-`{-~]"


def _o200k_words(before: str, contraction: str = "") -> str:
    heads, tails = f"{_HEADS}*{_TAILS}+{contraction}", f"{_HEADS}+{_TAILS}*{contraction}"
    return f"{before}{heads}|{before}{tails}"


class _Words(NamedTuple):
    """The words of a pattern that native code scans, which are its first alternatives.

    Attributes:
        first: The alternatives.
        behind: Those that may follow another word in a superword.
        signs: Those for signs behind a word. No pre-token may contain a letter and then one.
    """

    first: str
    behind: str
    signs: str


def _o200k_superwords(contraction: str) -> _Words:
    sign = _NO_CONTRACTION if contraction else _ASCII_SIGN
    behind = f"{_o200k_words(sign, contraction)}|{_o200k_words(' ', contraction)}"
    first = _o200k_words(r"[^\r\n\p{L}\p{N}]?", contraction)
    return _Words(first, behind, f"{sign}{_SIGN}*")


_WORDS = [
    _Words(
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+",
        r"'s|'t|'re|'ve|'m|'ll|'d| \p{L}+",
        f"{_ASCII_SIGN}{_SIGN}*",
    ),
    _Words(
        rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+",
        rf"{_CONTRACTION}|{_ASCII_SIGN}\p{{L}}+| \p{{L}}+",
        f"{_ASCII_SIGN}{_SIGN}*",
    ),
    _o200k_superwords(f"{_CONTRACTION}?"),
    _o200k_superwords(""),
    _Words(r" ?\p{L}+", r" \p{L}+", f"{_ASCII_SIGN}{_SIGN}*"),
    _Words(_o200k_words(" ?"), _o200k_words(" "), rf"{_ASCII_SIGN}[^\s\p{{L}}\p{{M}}\p{{N}}]*"),
]

# Patterns of published tokenizers that native code scans too, by the names that it has for them.
_PUBLISHED = {
    # tekken's: o200k without contractions, with single digits
    "o200k/no_contractions/max_digits=1": _o200k(r"\p{N}").replace(f"{_CONTRACTION}?", ""),
    "deepseek_v3": THEN.join(
        [
            r"\p{N}{1,3}",
            r"[\u4e00-\u9fa5\u3040-\u30ff]+",
            r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_WHITE_SPACE}",
        ]
    ),
}

# From earlier releases of tiktoken, and from minbpe, under these names.
GPT2_SPLIT_PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
GPT4_SPLIT_PATTERN = (
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*"""
    r"""|\s*[\r\n]|\s+(?!\S)|\s+"""
)

# Most digits in a pre-token if no rule sets it; 0: any number.
_OWN_MAX_DIGITS = {"gpt2": 0, "cl100k": 3, "cl100k_tiktoken": 3, "o200k": 3, "qwen2": 1}


def pattern_with_rules(
    pattern: str, *, split_categories: bool = False, max_digits: int | None = None
) -> str:
    r"""Return the pattern that splits as a named one does, with these rules.

    ``split_categories``: no pre-token mixes letters, numbers and other characters. This removes
    contractions (``'s``) and, in cl100k and o200k, a symbol or a tab in front of a word. A space in
    front of a word or of symbols stays with them, as do line breaks after symbols in cl100k and
    o200k. In o200k, marks belong to the letters.

    ``max_digits``: numbers are cut into groups of at most so many digits, from the left. This
    replaces the limit of cl100k and o200k (3) and of qwen2 (1); gpt2 has no limit.

    Args:
        pattern: A name in ``PATTERNS``; without rules also a regular expression.

    Returns:
        The pattern itself if the rules change nothing, the name of another one if the rules turn it
        into that one, else a regular expression that native code scans too.

    Raises:
        InvalidPatternError: A rule for ``none``, which does not split, or for a custom regular
            expression, which already defines the splits; ``max_digits`` below 1.

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
        reason = "splits nothing" if name == "none" else "already defines how text is split"
        raise InvalidPatternError(
            "split_categories, max_digits: expected one of the patterns "
            f"{', '.join(_OWN_MAX_DIGITS)} for them, found {_shorten(pattern)}, which {reason}; "
            "leave the rules out, or choose one of those"
        )
    digits = _OWN_MAX_DIGITS[name] if max_digits is None else max_digits
    ruled = _apply_rules("cl100k" if name == "qwen2" else name, split_categories, digits)
    return pattern if ruled == PATTERNS[name] else _find_name(ruled) or ruled


def superword_pattern(pattern: str) -> str:
    r"""Return the pattern whose pre-tokens are the texts that superwords may span.

    Each consists of pre-tokens of ``pattern``: words and signs, where one space stands between two
    and belongs to the second, or nothing between a letter and a sign of ASCII. Digits, line breaks
    and other white space stay alone, and so do signs before a line break that belongs to them.

    No pre-token of ``pattern`` contains such a boundary: a space behind something else than white
    space, or a sign behind a letter (for o200k, one other than the apostrophe of its contractions).
    So merges that were learned with ``pattern`` do not reach across it, unless a token begins with
    a part of a character and then has the space or sign.

    Raises:
        InvalidPatternError: ``pattern`` is not one that native code scans, and so not known to
            split words in this way.

    Example:
        >>> split_custom(superword_pattern("gpt2"), "By the way, don't go.  Or 2 do").tolist()
        [0, 21, 22, 25, 27, 30]
    """
    resolved = resolve_pattern(pattern)
    if resolved.native is not None:
        published = scanned_patterns().get(resolved.native, resolved.regex)
        for words in _WORDS:
            if published.startswith(f"{words.first}|"):
                return _join_words(words, published.removeprefix(words.first))
    raise InvalidPatternError(
        f"superwords: expected the pattern {', '.join(_OWN_MAX_DIGITS)} or one of them with "
        f"split_categories or max_digits, found {_shorten(pattern)}"
    )


def _join_words(words: _Words, others: str) -> str:
    """Return the pattern of superwords; `others` is the rest of the words' pattern."""
    found = regex.search(r" \?(\[\^[^]]*\])\+(\[\\r\\n)?", others)
    assert found is not None, "each pattern has an alternative for signs"
    sign, takes_line_breaks = found.groups()
    end = rf"(?![\r\n]|{sign})" if takes_line_breaks else ""
    behind = f"{words.behind}| {sign}+{end}|{words.signs}{end}"
    return f"(?:{words.first}| ?{sign}+{end})(?:{behind})*{others}"


def _apply_rules(family: str, split_categories: bool, max_digits: int) -> str:
    return _RULED[family][split_categories].replace("{numbers}", _numbers(max_digits))


def _numbers(max_digits: int) -> str:
    counts = {0: "+", 1: ""}
    return r"\p{N}" + counts.get(max_digits, f"{{1,{max_digits}}}")


def _find_native(pattern: str) -> str | None:
    """Return the native scanner of a pattern made by `pattern_with_rules`, or None."""
    found = regex.search(r"\\p\{N\}(\+|\{1,([1-9]\d{0,8})\})?\|", pattern)
    if found is None:
        return None
    max_digits = 0 if found[1] == "+" else int(found[2] or 1)
    for family in _RULED:
        for split_categories in (False, True):
            if pattern == _apply_rules(family, split_categories, max_digits):
                split = "/split_categories" if split_categories else ""
                return f"{family}{split}/max_digits={max_digits}"
    return None


def scanned_patterns() -> dict[str, str]:
    """Return regular expressions of all native scanners, by name; those of rules up to 9 digits."""
    patterns = {name: PATTERNS[name] for name in PATTERNS if name not in _OTHER_NAMES}
    patterns |= _PUBLISHED
    tekken = "o200k/no_contractions/max_digits="
    for digits in range(10):
        for family, split_categories in itertools.product(_RULED, (False, True)):
            expression = _apply_rules(family, split_categories, digits)
            patterns.setdefault(_find_native(expression) or "", expression)
        numbers = _numbers(digits)
        patterns.setdefault(f"{tekken}{digits}", _o200k(numbers).replace(f"{_CONTRACTION}?", ""))
    return patterns


def _find_scanner(fingerprints: tuple[str | None, ...]) -> str | None:
    """Return the native scanner of patterns that split as these automata do, or None."""
    return _scanners().get(" ".join(filter(None, fingerprints))) if all(fingerprints) else None


@cache
def _scanners() -> dict[str, str]:
    """Return the names of native scanners by the fingerprints of the steps of their patterns."""
    path = Path(__file__).with_name("scanner_fingerprints.txt")
    lines = path.read_text(encoding="ascii").splitlines()
    pairs = (line.split(" ", 1) for line in lines)
    return {fingerprints: name for name, fingerprints in pairs}


Tier: TypeAlias = Literal["scanner", "automaton", "two_passes", "regex"]
"""How a pattern is run: by its own scanner, by automata in one or two passes, or by `regex`."""


class ChainStep(NamedTuple):
    """One of a chain of patterns.

    Attributes:
        regex: The regular expression.
        of_bytes: True if it reads bytes by their stand-ins.
    """

    regex: str
    of_bytes: bool = False


@dataclass(frozen=True)
class Pattern:
    """A split pattern that is known to be valid.

    Attributes:
        name: The name in ``PATTERNS``, one for each way of splitting (never ``llama3``, which is
            ``cl100k``); None for any other regular expression.
        regex: The regular expression; for a named pattern its published form.
        native: The name of its own native scanner, rules included; None if it has none.
        unicode_version: The version of Unicode that defines letters: ``16.0.0``, or ``regex`` and
            its version if that package splits.
        tier: How the pattern is executed.
        splitter: Native splitter of a compiled regular expression, or None.
        obstacle: The construct that only `regex` supports, or None.
    """

    name: str | None
    regex: str
    native: str | None
    unicode_version: str
    tier: Tier = "scanner"
    splitter: Splitter | None = field(default=None, compare=False, repr=False)
    obstacle: str | None = None

    @property
    def scanner(self) -> str | Splitter | None:
        """Return the pattern argument of native functions, or None if ``split_custom`` splits."""
        return self.splitter if self.native is None else self.native

    @property
    def has_safe_cuts(self) -> bool:
        """True if long texts may be cut at the offsets that ``_native.safe_cut`` returns."""
        if self.splitter is not None:
            return self.splitter.has_cuts
        return self.native not in (None, "none")

    @property
    def steps(self) -> tuple[ChainStep, ...]:
        """The steps of a chain; one if the pattern is not a chain."""
        return steps_of(self.regex)


def resolve_pattern(pattern: str) -> Pattern:
    """Return the pattern with this name or of this regular expression.

    A regular expression that splits every text as one of ``PATTERNS`` does is that named pattern,
    however it is written.

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
    name = _find_name(pattern)
    if name is not None:
        return Pattern(name, PATTERNS[name], name, UNICODE_VERSION)
    native = _find_native(pattern)
    if native is not None:
        return Pattern(None, pattern, native, UNICODE_VERSION)
    _check_custom(pattern)
    try:
        compiled = compile_steps(steps_of(pattern))
    except UnsupportedPatternError as error:
        if THEN_BYTES in pattern:
            raise InvalidPatternError(
                f"the split pattern {_shorten(pattern)} has {error}, which is not compiled; "
                f"expected other constructs beside {THEN_BYTES}, as only compiled patterns split "
                "bytes"
            ) from None
        version = f"regex {regex.__version__}"
        return Pattern(None, pattern, None, version, tier="regex", obstacle=str(error))
    native = _find_scanner(compiled.fingerprints)
    if native in PATTERNS:
        return Pattern(native, PATTERNS[native], native, UNICODE_VERSION)
    if native is not None:
        return Pattern(None, pattern, native, UNICODE_VERSION)
    tier: Tier = "two_passes" if compiled.looks_far else "automaton"
    return Pattern(None, pattern, None, UNICODE_VERSION, tier=tier, splitter=compiled.splitter)


def warn_of_slow_pattern(pattern: Pattern) -> None:
    """Warn once of a pattern that could not be compiled, and name the reason."""
    if pattern.obstacle is not None:
        warnings.warn(
            f"the split pattern {_shorten(pattern.regex)} has {pattern.obstacle}, which is not "
            "compiled: the package regex splits text by it, at 2 to 5 MB/s a core",
            stacklevel=3,
        )


def pattern_of_tiktoken(pattern: str) -> str:
    """Return the pattern that splits as tiktoken does, which reads it with Rust's fancy-regex.

    ``&&`` within a class intersects there, and ``$`` is the end of the text. A pattern that is not
    compiled runs through `regex`, which reads most constructs alike.

    Raises:
        InvalidPatternError: ``pattern`` has a class that `regex` reads in another way.
    """
    if _find_name(pattern) is not None or _find_native(pattern) is not None:
        return pattern
    try:
        return translate(pattern, "fancy_regex", "regex")
    except UnsupportedPatternError as error:
        if str(error).startswith(("an operation on sets", "a class of POSIX")):
            raise InvalidPatternError(
                f"the split pattern {_shorten(pattern)} has {error}, which tiktoken and the "
                "package regex read in different ways; expected sets joined by && or --"
            ) from None
        return pattern


def steps_of(pattern: str) -> tuple[ChainStep, ...]:
    """Return the steps of a regular expression that may be a chain."""
    first, *others = regex.split(r"(\(\?#then(?: bytes)?\))", pattern)
    joints = zip(others[::2], others[1::2], strict=True)
    return ChainStep(first), *(ChainStep(step, how == THEN_BYTES) for how, step in joints)


def _find_name(pattern: str) -> str | None:
    if pattern in PATTERNS or pattern in _OTHER_NAMES:
        return _OTHER_NAMES.get(pattern, pattern)
    for name, published in PATTERNS.items():
        if pattern == published:
            return name
    return None


def _shorten(pattern: str) -> str:
    return repr(pattern) if len(pattern) <= 200 else f"{pattern[:200]!r}..."


def _check_custom(pattern: str) -> None:
    names = sorted({*PATTERNS, *_OTHER_NAMES})
    choices = f"expected one of {', '.join(names)}, or a regular expression"
    if not pattern:
        raise InvalidPatternError(
            f"empty split pattern: {choices}; 'none' takes each text as one pre-token"
        )
    # A plain word is a valid expression that matches only itself, but more likely a wrong name.
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
        for step in steps_of(pattern):
            compile_custom_pattern(step.regex)
    except InvalidPatternError as error:
        raise InvalidPatternError(
            f"the split pattern {_shorten(pattern)} {error}; {choices} in the syntax of the "
            "package regex"
        ) from None


def split_custom(pattern: str, text: str, document: int = 0) -> NDArray[np.int64]:
    r"""Split a text by the package ``regex``, as native code does where it can.

    Matches are pre-tokens. Unmatched text between them is a pre-token too, so nothing is lost. An
    empty match is a cut.

    Args:
        pattern: A regular expression that ``resolve_pattern`` accepted.
        text: Text without special tokens.
        document: Number of the document that contains it, for the error.

    Returns:
        int64[n + 1], ascending byte offsets into the UTF-8 form of ``text``, from 0 to its length:
        pre-token i is bytes ``[cuts[i], cuts[i + 1])``. ``[0]`` for the empty text.

    Raises:
        SlowPatternError: It takes longer than 10 seconds and 10 more for each million characters,
            twenty times what usual patterns take: the pattern backtracks.

    Example:
        >>> split_custom(r"\d+", "año 2024").tolist()
        [0, 5, 9]
    """
    first, *others = (regex.compile(step.regex) for step in steps_of(pattern))
    seconds = _SPLIT_SECONDS + len(text) * _SPLIT_SECONDS_A_CHAR
    deadline = time.monotonic() + seconds
    try:
        ends = _find_ends(first, text, deadline)
        for step in others:
            chunks = itertools.pairwise([0, *ends])
            ends = [
                start + end
                for start, stop in chunks
                for end in _find_ends(step, text[start:stop], deadline)
            ]
    except TimeoutError:
        raise SlowPatternError(
            f"the split pattern {_shorten(pattern)} takes more than {seconds:.0f} s for a text of "
            f"{len(text):,} characters, because it backtracks; change the pattern, for example "
            "repeats within repeats, or the text",
            seconds,
            len(text),
            document,
        ) from None
    cuts = [0, *ends]
    if text.isascii():
        return np.array(cuts, dtype=np.int64)
    data = np.frombuffer(text.encode(), dtype=np.uint8)
    offsets = np.flatnonzero((data & 0xC0) != 0x80)
    return np.append(offsets, len(data)).astype(np.int64, copy=False)[cuts]


def _find_ends(compiled: regex.Pattern[str], text: str, deadline: float) -> list[int]:
    """Return the ends of matches and of the text between them.

    Raises:
        TimeoutError: The clock `time.monotonic` has reached the deadline.
    """
    ends = []
    last = at = 0
    while at <= len(text):
        if (left := deadline - time.monotonic()) <= 0:
            raise TimeoutError
        match = compiled.search(text, at, timeout=left)
        if match is None:
            break
        start, end = match.span()
        if start == end == last:
            # Nothing, right after the last match: it does not count.
            at += 1
            continue
        if start > last:
            ends.append(start)
        if end > start:
            ends.append(end)
        last = at = end
    if last < len(text):
        ends.append(len(text))
    return ends
