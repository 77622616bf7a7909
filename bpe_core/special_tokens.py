"""Special tokens: checked, and found in text, the longest first where one begins another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bpe_core._native import SpecialSet
from bpe_core.errors import SpecialTokenError

__all__ = ["check_special_tokens", "special_set", "split_special_tokens"]


def check_special_tokens(special_tokens: Iterable[str]) -> tuple[str, ...]:
    """The special tokens as a tuple, in the order given.

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
    """The tokens as the native code searches them; ids are their places unless given."""
    return SpecialSet([t.encode() for t in tokens], range(len(tokens)) if ids is None else ids)


def split_special_tokens(text: bytes, specials: SpecialSet) -> list[tuple[bytes, bool]]:
    """Cut a text at its special tokens: (part, is a special token), without empty parts.

    Of occurrences that overlap the leftmost counts, of those that begin at one place the longest.

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
