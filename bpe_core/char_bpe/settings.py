"""Settings of a character-level tokenizer apart from its vocabulary, and conversion to words."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from bpe_core._native import SpecialSet, mark_words
from bpe_core.buffers import concatenate
from bpe_core.errors import InvalidTokenizerError
from bpe_core.special_tokens import check_special_tokens, special_set, split_special_tokens

EndOfWordAs: TypeAlias = Literal["symbol", "suffix"]
Words: TypeAlias = Literal["whitespace", "bert", "whole_text"]
Method: TypeAlias = Literal["merges", "longest_first", "left_to_right"]
UnicodeNormalizer: TypeAlias = Literal["nfc", "nfd", "nfkc", "nfkd"]

_FORMS: dict[UnicodeNormalizer, Literal["NFC", "NFD", "NFKC", "NFKD"]] = {
    "nfc": "NFC",
    "nfd": "NFD",
    "nfkc": "NFKC",
    "nfkd": "NFKD",
}

# Bytes that never occur in UTF-8 mark the end of a word and special tokens; see native/words.
WORD_END = 0xFF
SPECIAL_MARK = 0xFE
_SPECIAL_INDEX_BYTES = 3

# Capitals of Unicode 15 to 17, which Python may not know yet, but Hugging Face's library does.
_NEW_LOWER_CASE = {
    0x1C89: 0x1C8A,
    0xA7CB: 0x264,
    **{capital: capital + 1 for capital in (0xA7CC, 0xA7CE, 0xA7D2, 0xA7D4, 0xA7DA)},
    0xA7DC: 0x19B,
    **{capital: capital + 0x20 for capital in range(0x10D50, 0x10D66)},
    **{capital: capital + 0x1B for capital in range(0x16EA0, 0x16EB9)},
    # Capital sigma is the same at the end of a word: characters are lowered one by one.
    0x3A3: 0x3C3,
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Checked arguments of `CharBPETokenizer`.

    Raises:
        InvalidTokenizerError: An argument is invalid.
        SpecialTokenError: A special token is empty or given twice.
    """

    unk_token: str | None
    end_of_word: str | None
    end_of_word_as: EndOfWordAs
    words: Words
    lowercase: bool
    unicode_normalizer: UnicodeNormalizer | None
    special_tokens: tuple[str, ...]
    method: Method
    _specials: SpecialSet = field(init=False, repr=False, compare=False)
    _no_specials: SpecialSet = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_choice("end_of_word_as", self.end_of_word_as, get_args(EndOfWordAs))
        check_choice("words", self.words, get_args(Words))
        check_choice("method", self.method, get_args(Method))
        if self.unicode_normalizer is not None:
            check_choice("unicode_normalizer", self.unicode_normalizer, (*_FORMS, None))
        for name in ("unk_token", "end_of_word"):
            text = getattr(self, name)
            if text is not None and (not isinstance(text, str) or not _is_word(text)):
                raise InvalidTokenizerError(
                    f"{name}: expected a text without whitespace, or None, found {text!r}"
                )
        object.__setattr__(self, "special_tokens", check_special_tokens(self.special_tokens))
        if self.end_of_word in (*self.special_tokens, self.unk_token) and self.end_of_word:
            raise InvalidTokenizerError(
                f"end_of_word: expected a text different from special tokens and unk_token, found "
                f"{self.end_of_word!r}"
            )
        object.__setattr__(self, "_specials", special_set(self.special_tokens))
        object.__setattr__(self, "_no_specials", special_set(()))

    NAMES: ClassVar[tuple[str, ...]] = (
        "unk_token",
        "end_of_word",
        "end_of_word_as",
        "words",
        "lowercase",
        "unicode_normalizer",
        "special_tokens",
        "method",
    )

    def as_json(self) -> dict[str, Any]:
        """Return the attributes by name."""
        values = {name: getattr(self, name) for name in self.NAMES}
        return {**values, "special_tokens": list(self.special_tokens)}

    @property
    def word_end(self) -> Literal["gap", "symbol", "suffix"]:
        """Return how native encoders treat the byte at the end of a word."""
        return "gap" if self.end_of_word is None else self.end_of_word_as

    @property
    def reserved(self) -> tuple[str, ...]:
        """Return the tokens with the first ids: special tokens and the unknown token."""
        return tuple(dict.fromkeys([*self.special_tokens, *filter(None, [self.unk_token])]))

    @property
    def normalizes(self) -> bool:
        """Return True if `normalized` may change a text."""
        return self.lowercase or self.unicode_normalizer is not None

    def normalized(self, text: str) -> str:
        """Return the text from which words are made."""
        if self.unicode_normalizer is not None:
            text = unicodedata.normalize(_FORMS[self.unicode_normalizer], text)
        if self.lowercase:
            text = text.translate(_NEW_LOWER_CASE).lower()
        return text

    def marked(
        self,
        data: bytes | memoryview | NDArray[np.uint8],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        *,
        find_specials: bool = True,
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return the words of documents data[starts[i]:ends[i]], which must be UTF-8.

        Returns:
            (marked, offsets int64[n + 1]): document i is marked[offsets[i]:offsets[i + 1]], with
            each word followed by WORD_END, and special tokens in the form of `special_marks`.
        """
        specials = self._specials if find_specials else self._no_specials
        if not self.normalizes:
            return mark_words(data, starts, ends, self.words, specials)
        documents = [
            self._marked_normalized(bytes(data[start:end]), specials)
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        ]
        buffer, offsets = concatenate(documents)
        return np.frombuffer(buffer, np.uint8), offsets

    def split_special_tokens(self, text: bytes) -> list[tuple[bytes, bool]]:
        """Cut a text at its special tokens: (part, is a special token)."""
        return split_special_tokens(text, self._specials)

    def _marked_normalized(self, document: bytes, specials: SpecialSet) -> bytes:
        parts = []
        for part, is_special in split_special_tokens(document, specials):
            if is_special:
                parts.append(self.special_marks[part.decode()])
                continue
            text = self.normalized(part.decode()).encode()
            bounds = np.array([0], np.int64), np.array([len(text)], np.int64)
            parts.append(mark_words(text, *bounds, self.words, self._no_specials)[0].tobytes())
        return b"".join(parts)

    @cached_property
    def special_marks(self) -> dict[str, bytes]:
        """Return the form of special tokens among marked words."""
        return {
            token: bytes([SPECIAL_MARK]) + i.to_bytes(_SPECIAL_INDEX_BYTES, "big")
            for i, token in enumerate(self.special_tokens)
        }


def check_choice(name: str, value: object, choices: tuple[object, ...]) -> None:
    """Raise InvalidTokenizerError for a value that is not one of the choices."""
    if value not in choices:
        listed = ", ".join(map(repr, choices))
        raise InvalidTokenizerError(f"{name}: expected one of {listed}, found {value!r}")


def _is_word(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return re.search(r"\s", text) is None and bool(text)
