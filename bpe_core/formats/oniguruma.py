r"""Regular expressions that Hugging Face's engine, Oniguruma, reads like `regex`.

The two differ silently: `{1,3}+` is possessive to one and a repeat of a repeat to the other, `^`
and `$` match at lines, `&&` in a class intersects, `\w`, `\b`, `\h`, `\N` and case-insensitive
letters mean different characters. So a custom pattern is exchanged only if it consists of the
constructs below, each of which was tried on random text in both engines. Letters that newer
versions of Unicode added may still differ: each engine has its own version.
"""

from __future__ import annotations

import regex

_PROPERTIES = (
    r"L[ultmo]?|M[nce]?|N[dlo]?|P[cdseifo]?|S[mcko]?|Z[slp]?|C[cf]|"
    "Arabic|Cyrillic|Greek|Han|Hangul|Hebrew|Hiragana|Katakana|Latin|Thai"
)
_PUNCTUATION = r"[!-/:-@\[-`{-~]"
_ESCAPE = (
    rf"\\(?:[sSdDrntf]|[pP]\{{\^?(?:{_PROPERTIES})\}}|x[0-9a-fA-F]{{2}}|u[0-9a-fA-F]{{4}}"
    rf"|{_PUNCTUATION})"
)
# In a class: no `[`, and none of && || ~~ --, which are set operations.
_CLASS = rf"\[\^?\]?(?:{_ESCAPE}|(?!&&|\|\||~~|--)[^\\\[\]])*\]"
_GROUP = r"\((?!\?)|\(\?(?:[:=!>]|<[=!])|\)"
_REPEAT = r"(?:[*+?]|\{\d+(?:,\d*)?\})\??(?![*+?{])|[*+?]\+(?![*+?{])"
# A case-insensitive group is known to agree only for the contractions.
_CONTRACTIONS = regex.escape("(?i:'s|'t|'re|'ve|'m|'ll|'d)")
_CONSTRUCT = regex.compile(
    rf"(?:{_CONTRACTIONS}|{_ESCAPE}|{_CLASS}|{_GROUP}|{_REPEAT}|\||\.|[^\\\[\](){{}}*+?|^$.])"
)


def first_difference(pattern: str) -> str | None:
    r"""Return the part of a pattern that Oniguruma may read differently from `regex`, or None.

    Example:
        >>> first_difference(r" ?\p{L}+|\s+")
        >>> first_difference(r"\p{L}+|\w+")
        '\\w+'
    """
    at = 0
    while at < len(pattern):
        construct = _CONSTRUCT.match(pattern, at)
        if construct is None:
            return pattern[at : at + 20]
        at = construct.end()
    try:
        empty = regex.match(pattern, "")
    except regex.error as error:
        return f"(no regular expression: {error})"
    # After an empty match, the engines continue at different positions.
    return "(matches the empty text)" if empty else None
