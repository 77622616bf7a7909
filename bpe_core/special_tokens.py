"""Special tokens: checks, and finding them in text."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache

import regex

from bpe_core._native import Normalizer, SpecialSet
from bpe_core.errors import InvalidTokenizerError, SpecialTokenError

__all__ = [
    "TOKEN_FLAGS",
    "added_token_set",
    "assign_special_ids",
    "check_special_tokens",
    "find_text_end",
    "find_text_start",
    "find_word_characters",
    "prepare_added_tokens",
    "special_set",
    "split_special_tokens",
]

TOKEN_FLAGS = ("lstrip", "rstrip", "single_word", "normalized")
"""How Hugging Face's added tokens may be found:

lstrip, rstrip: white space before, or after it, belongs to the token.
single_word: it is one only where no letter, mark, digit or underscore is beside it.
normalized: it is found in normalized text, between the other tokens.
"""

# The usual names of the tokens that begin and end a text, in published tokenizers.
_STARTS = (
    "<s>",
    "<bos>",
    "<|startoftext|>",
    "<|begin_of_text|>",
    "<BOS_TOKEN>",
    "<\uff5cbegin\u2581of\u2581sentence\uff5c>",
)
_ENDS = (
    "</s>",
    "<eos>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOS_TOKEN>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
)
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


def assign_special_ids(
    vocab: Mapping[int, bytes],
    merges: Iterable[tuple[bytes, bytes]],
    special_tokens: Iterable[str] | Mapping[str, int],
) -> dict[str, int]:
    """Return the id of each special token: that of its entry in the vocabulary, or a new one.

    Raises:
        SpecialTokenError: A special token is empty or given twice.
        InvalidTokenizerError: Another token has the id of one.
    """
    if isinstance(special_tokens, Mapping):
        check_special_tokens(special_tokens)
        for text, token_id in special_tokens.items():
            found = vocab.get(token_id)
            if found is not None and found != text.encode():
                raise InvalidTokenizerError(
                    f"special token {text!r}: expected an id that no other token has, found "
                    f"{token_id}, which is {found!r} in the vocabulary"
                )
        return dict(special_tokens)
    specials = check_special_tokens(special_tokens)
    entries: dict[bytes, list[int]] = {text.encode(): [] for text in specials}
    for token_id, token in vocab.items():
        if token in entries:
            entries[token].append(token_id)
    ordinary = {bytes([b]) for b in range(256)} | {left + right for left, right in merges}
    next_id = max(vocab, default=-1) + 1
    ids: dict[str, int] = {}
    for text in specials:
        own = sorted(entries[text.encode()])
        # If ordinary text can be merged into these bytes, one entry belongs to ordinary text.
        if len(own) > (text.encode() in ordinary):
            ids[text] = own[0]
        else:
            ids[text] = next_id
            next_id += 1
    return ids


def special_set(tokens: Sequence[str], ids: Sequence[int] | None = None) -> SpecialSet:
    """Return the tokens as the native code searches them; ids default to their indices."""
    return SpecialSet([t.encode() for t in tokens], range(len(tokens)) if ids is None else ids)


def added_token_set(
    ids: Mapping[str, int],
    flags: Mapping[str, frozenset[str]],
    normalizer: Normalizer | None,
) -> SpecialSet:
    """Return tokens with `TOKEN_FLAGS`; those found in normalized text have no index."""
    plain, normalized = prepare_added_tokens(ids, flags, normalizer)
    is_single = any("single_word" in names for names in flags.values())
    return SpecialSet(
        [text.encode() for text, _, _ in plain],
        [token_id for _, token_id, _ in plain],
        [bits for _, _, bits in plain],
        [(text.encode(), token_id, bits) for text, token_id, bits in normalized],
        [unicodedata.normalize("NFD", text).encode() for text, _, _ in normalized],
        find_word_characters() if is_single else (),
    )


def prepare_added_tokens(
    ids: Mapping[str, int],
    flags: Mapping[str, frozenset[str]],
    normalizer: Normalizer | None,
) -> tuple[list[tuple[str, int, int]], list[tuple[str, int, int]]]:
    """Return the tokens found in text, and those found in normalized text between these.

    Each is a text, which is normalized where text is, an id, and bits of its flags: 1 for lstrip, 2
    for rstrip and 4 for single_word.

    Example:
        >>> flags = {"a": frozenset({"rstrip", "normalized"})}
        >>> prepare_added_tokens({"<s>": 1, "a": 2}, flags, None)
        ([('<s>', 1, 0)], [('a', 2, 2)])
    """
    plain: list[tuple[str, int, int]] = []
    normalized: dict[str, tuple[str, int, int]] = {}
    for text, token_id in ids.items():
        names = flags.get(text, frozenset())
        if "normalized" not in names:
            plain.append((text, token_id, _native_flags(names)))
            continue
        found = text if normalizer is None else normalizer.normalize(text.encode()).decode()
        normalized.setdefault(found, (found, token_id, _native_flags(names)))
    return plain, list(normalized.values())


def find_text_start(names: Collection[str]) -> str | None:
    """Return the special token that begins a text by its usual name; None without exactly one.

    Example:
        >>> find_text_start(["<s>", "</s>"]), find_text_start(["<|im_start|>"])
        ('<s>', None)
    """
    return _find_only(_STARTS, names)


def find_text_end(names: Collection[str]) -> str | None:
    """Return the special token that ends a text by its usual name; None without exactly one.

    Example:
        >>> find_text_end(["<|endoftext|>", "<|im_end|>"]), find_text_end(["</s>", "<eos>"])
        ('<|endoftext|>', None)
    """
    return _find_only(_ENDS, names)


def _find_only(usual: Sequence[str], names: Collection[str]) -> str | None:
    found = [name for name in usual if name in names]
    return found[0] if len(found) == 1 else None


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
def find_word_characters() -> list[tuple[int, int]]:
    """Return the code points of `\\w` in Rust's regular expressions, as ranges."""
    word = regex.compile(r"[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]+")
    surrogates = range(0xD800, 0xE000)
    below = word.finditer("".join(map(chr, range(surrogates.start))))
    above = word.finditer("".join(map(chr, range(surrogates.stop, 0x110000))))
    shifted = ((m.start() + surrogates.stop, m.end() + surrogates.stop) for m in above)
    return [*((m.start(), m.end()) for m in below), *shifted]
