"""Kinds of tokens, by what their bytes look like."""

from __future__ import annotations

import unicodedata
from typing import Final, Literal, TypeAlias

__all__ = ["TOKEN_KINDS", "TokenKind", "classify_token"]

TokenKind: TypeAlias = Literal[
    "begin", "inside", "words", "digits", "signs", "space", "mixed", "bytes", "special"
]

TOKEN_KINDS: Final[dict[TokenKind, str]] = {
    "begin": "begins a word",
    "inside": "inside a word",
    "words": "several words",
    "digits": "digits",
    "signs": "punctuation",
    "space": "white space",
    "mixed": "mixed",
    "bytes": "part of a character",
    "special": "special token",
}
_SPACES: Final = (" ", "▁")


def classify_token(token: bytes) -> TokenKind:
    r"""Return the kind of an ordinary token.

    >>> [classify_token(token) for token in (b" the", b"ing", b" of the", b"12", b"\xe2\x82")]
    ['begin', 'inside', 'words', 'digits', 'bytes']
    """
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return "bytes"
    # Unknown ids without a token have no bytes.
    if not text or text.isspace() or text == "▁":
        return "space"
    after_space = text.startswith(_SPACES)
    core = text.replace("▁", " ").strip()
    if core.isalpha():  # most tokens: the other tests go through the characters one by one
        return "begin" if after_space else "inside"
    if any(c.isspace() for c in core):
        return "words" if any(c.isalpha() for c in core) else "signs"
    letters = sum(c.isalpha() for c in core)
    if not any(c.isalnum() for c in core):
        # Vowel signs and other marks of Indic and Arabic scripts are not letters for `isalpha`.
        return "inside" if all(_is_mark(c) for c in core) else "signs"
    if letters == 0 and all(c.isnumeric() for c in core):
        return "digits"
    if all(c.isalpha() or _is_mark(c) for c in core):
        return "begin" if after_space else "inside"
    return "mixed"


def _is_mark(character: str) -> bool:
    return unicodedata.category(character).startswith("M")
