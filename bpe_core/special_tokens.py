"""Special tokens: checks, and finding them in text."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

import regex

from bpe_core._native import Normalizer, SpecialSet
from bpe_core.errors import SpecialTokenError

__all__ = [
    "TOKEN_FLAGS",
    "added_token_set",
    "check_special_tokens",
    "special_set",
    "split_special_tokens",
]

TOKEN_FLAGS = ("lstrip", "rstrip", "single_word", "normalized")
"""How Hugging Face's added tokens may be found:

lstrip, rstrip: white space before, or after it, belongs to the token.
single_word: it is one only where no letter, mark, digit or underscore is beside it.
normalized: it is found in normalized text, between the other tokens.
"""

_NATIVE_FLAGS = {"lstrip": 1, "rstrip": 2, "single_word": 4}


def check_special_tokens(special_tokens: Iterable[str]) -> tuple[str, ...]:
    """Return the special tokens as a tuple, in the order given.

    Raises:
        SpecialTokenError: one is empty, is given twice, is not a str or is not valid Unicode.
    """
    if isinstance(special_tokens, str):
        raise SpecialTokenError(
            f"special tokens: expected several texts, found the one text {special_tokens!r}; "
            "put it into a list"
        )
    checked: dict[str, None] = {}
    for token in special_tokens:
        if not isinstance(token, str) or not token:
            raise SpecialTokenError(
                f"special tokens: expected texts that are not empty, found {token!r}; "
                "remove it or give it a text"
            )
        if token in checked:
            raise SpecialTokenError(
                f"special tokens: expected each once, found {token!r} twice; remove one of them"
            )
        try:
            token.encode()
        except UnicodeEncodeError:
            raise SpecialTokenError(
                f"special tokens: expected Unicode text, found a lone surrogate in {token!r}"
            ) from None
        checked[token] = None
    return tuple(checked)


def special_set(tokens: Sequence[str], ids: Sequence[int] | None = None) -> SpecialSet:
    """Return the tokens as the native code searches them; ids default to their indices."""
    return SpecialSet([t.encode() for t in tokens], range(len(tokens)) if ids is None else ids)


def added_token_set(
    ids: Mapping[str, int],
    flags: Mapping[str, frozenset[str]],
    normalizer: Normalizer | None,
) -> SpecialSet:
    """Return tokens with `TOKEN_FLAGS`; those found in normalized text have no index."""
    plain = {text: i for text, i in ids.items() if "normalized" not in flags.get(text, ())}
    normalized: dict[bytes, tuple[int, int]] = {}
    bound: list[bytes] = []
    for text, token_id in ids.items():
        if text in plain:
            continue
        found = text.encode() if normalizer is None else normalizer.normalize(text.encode())
        normalized.setdefault(found, (token_id, _native_flags(flags[text])))
        bound.append(unicodedata.normalize("NFD", found.decode()).encode())
    is_single = any("single_word" in names for names in flags.values())
    return SpecialSet(
        [text.encode() for text in plain],
        plain.values(),
        [_native_flags(flags.get(text, frozenset())) for text in plain],
        [(text, token_id, bits) for text, (token_id, bits) in normalized.items()],
        bound,
        _word_characters() if is_single else (),
    )


def split_special_tokens(text: bytes, specials: SpecialSet) -> list[tuple[bytes, bool]]:
    """Cut a text at its special tokens: (part, is a special token), without empty parts.

    Of overlapping occurrences the leftmost counts; of those that begin together, the longest.

    Example:
        >>> split_special_tokens(b"a<s><s>>b", special_set(["<s>", "<s>>"]))
        [(b'a', False), (b'<s>', True), (b'<s>>', True), (b'b', False)]
    """
    parts: list[tuple[bytes, bool]] = []
    at = 0
    for begin, end, _ in specials.find_all(text):
        if begin > at:
            parts.append((text[at:begin], False))
        parts.append((text[begin:end], True))
        at = end
    if at < len(text):
        parts.append((text[at:], False))
    return parts


def _native_flags(names: Iterable[str]) -> int:
    return sum(_NATIVE_FLAGS.get(name, 0) for name in names)


@cache
def _word_characters() -> list[tuple[int, int]]:
    """Return the code points of `\\w` in Rust's regular expressions, as ranges."""
    word = regex.compile(r"[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]+")
    surrogates = range(0xD800, 0xE000)
    below = word.finditer("".join(map(chr, range(surrogates.start))))
    above = word.finditer("".join(map(chr, range(surrogates.stop, 0x110000))))
    shifted = ((m.start() + surrogates.stop, m.end() + surrogates.stop) for m in above)
    return [*((m.start(), m.end()) for m in below), *shifted]
