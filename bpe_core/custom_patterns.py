r"""Checks of regular expressions that users give as split patterns.

The package ``regex`` accepts more than can split text: it searches backwards on request, reads
letters by the locale of the machine, and takes all memory for an endless recursion or a huge
repeat. Such expressions are refused before any text is read.
"""

from __future__ import annotations

import regex

from bpe_core.errors import InvalidPatternError

__all__ = ["compile_custom_pattern"]

# `regex` copies what is repeated at least n times n times, with some 300 bytes a character.
_MOST_COPIES = 100_000

_SAMPLE = "a A1é(-'\n \t_"  # a character of each of the common classes

_PARTS = regex.compile(
    r"""
    \\.                                                 # an escape
    | \(\?\#[^)]*\)                                     # a comment
    | (?P<call>\(\?(?:R|[0-9]|[+-][0-9]|&|P[>&])[^)]*\))
    | (?P<open>\()
    | (?P<close>\))
    | \{(?P<least>[0-9]+)(?:,[0-9]*)?\}                 # a repeat
    | \[\^?\]?(?:\\.|[^\]\\])*\]                        # a class
    | .
    """,
    regex.VERBOSE | regex.DOTALL,
)


def compile_custom_pattern(expression: str) -> regex.Pattern[str]:
    """Compile a regular expression that is to split text.

    Raises:
        InvalidPatternError: The expression does not compile, or cannot split text. The message is
            a clause about the expression, which the caller names.

    Example:
        >>> compile_custom_pattern(r"(?r)[a-z]+")
        Traceback (most recent call last):
        bpe_core.errors.InvalidPatternError: searches backwards (flag r); remove the flag
    """
    _check_repeats(expression)
    try:
        compiled = regex.compile(expression)
    except (regex.error, ValueError, KeyError) as error:  # KeyError: before 2026.11
        raise InvalidPatternError(f"is not a valid regular expression: {error}") from None
    except (RecursionError, MemoryError):
        raise InvalidPatternError("is too large or nested too deeply; shorten it") from None
    if compiled.flags & regex.REVERSE:
        raise InvalidPatternError("searches backwards (flag r); remove the flag")
    if compiled.flags & regex.LOCALE:
        # Workers with different locales would split the same text differently.
        raise InvalidPatternError("depends on the locale of the machine (flag L); remove the flag")
    if any(part["call"] for part in _PARTS.finditer(expression)):
        _check_calls(compiled)
    return compiled


def _check_calls(compiled: regex.Pattern[str]) -> None:
    """Raise InvalidPatternError if a group calls itself before it consumes a character.

    `regex` does not notice such a call: it takes memory until there is none. A short text shows it.
    """
    try:
        for text in ("", _SAMPLE):
            compiled.search(text, timeout=1)
    except (TimeoutError, MemoryError):
        raise InvalidPatternError(
            "calls its groups without end; let each consume a character before it calls itself"
        ) from None


def _check_repeats(expression: str) -> None:
    """Raise InvalidPatternError if the compiled expression would take too much memory."""
    sizes = [0]  # of each open group, in characters after its repeats were copied
    last = 0  # size of the last part
    for part in _PARTS.finditer(expression):
        if part["open"]:
            sizes.append(0)
            last = 0
            continue
        if part["least"]:
            copies = max(int(part["least"]), 1)
            if last * copies > _MOST_COPIES and copies > 1:
                raise InvalidPatternError(
                    f"repeats its parts more than {_MOST_COPIES:,} times, {part[0]}; "
                    "use smaller numbers"
                )
            sizes[-1] += last * (copies - 1)
            last *= copies
            continue
        last = sizes.pop() if part["close"] and len(sizes) > 1 else 1
        sizes[-1] += last
