"""Encoding by merges: a character-level vocabulary as rules over the bytes of UTF-8.

The native encoder merges bytes. Here, its first rules build characters: for each character of the
vocabulary, (first byte, second byte) → its first two bytes, then this and the third byte, and so
on. In UTF-8, a byte that starts a character never continues one. The left side of each of these
rules starts with a first byte, and the right side is a continuation byte. So they only apply inside
characters. They have the lowest ranks, so they apply before all others: afterwards the symbols are
characters, and the vocabulary's own merges follow in their order.

The end of a word is the byte 0xFF, which does not occur in UTF-8. If it is a suffix, further rules
attach it to the last character, whether the result is a token or unknown.

A character that is not in the vocabulary leaves one symbol that starts it, which becomes the
unknown token, and continuation bytes, which are dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from bpe_core._native import Encoder, SpecialSet
from bpe_core.char_bpe.settings import WORD_END, Settings

UNKNOWN = -1
_DROPPED = -2

Rule = tuple[int, int, int]


class MergeEncoder:
    """Encoder of marked words by merges, which threads may share.

    Args:
        settings: Settings of the tokenizer.
        vocab: Token to id.
        merges: Pairs of tokens in order of rank. Of a pair that occurs twice, the last rank counts.
    """

    def __init__(
        self,
        settings: Settings,
        vocab: Mapping[str, int],
        merges: Iterable[tuple[str, str]],
    ) -> None:
        symbols = _Symbols(settings, vocab)
        rules = np.array([*symbols.rules, *symbols.merge_rules(merges)], np.uint32).reshape(-1, 3)
        special_ids = [vocab[token] for token in settings.special_tokens]
        self._symbol_of_id = {token_id: symbols.new(token_id) for token_id in special_ids}
        self._marks = SpecialSet(list(settings.special_marks.values()), self._symbol_of_id.values())
        self._ids = np.array(symbols.ids, np.int32)
        left, right, result = (np.ascontiguousarray(rules[:, i]) for i in range(3))
        self._encoder = Encoder(
            np.arange(256, dtype=np.int64), left, right, result, -1, "marked_words"
        )

    def encode(
        self,
        marked: NDArray[np.uint8],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        *,
        prepend: Iterable[int] = (),
        append: Iterable[int] = (),
        num_threads: int = 1,
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return (ids, offsets) of documents of marked words; unknown characters become UNKNOWN.

        `prepend` and `append` are ids of special tokens.
        """
        symbols, offsets = self._encoder.encode_documents(
            marked,
            starts,
            ends,
            self._marks,
            [self._symbol_of_id[i] for i in prepend],
            [self._symbol_of_id[i] for i in append],
            32,
            num_threads,
        )
        ids = self._ids[symbols]
        if not len(ids) or ids.min() > _DROPPED:
            return ids, offsets
        kept = ids != _DROPPED
        kept_before = np.zeros(len(ids) + 1, np.int64)
        np.cumsum(kept, out=kept_before[1:])
        return ids[kept], kept_before[offsets]


class _Symbols:
    """Symbols of the native encoder, with their final ids, and the rules that make characters."""

    def __init__(self, settings: Settings, vocab: Mapping[str, int]) -> None:
        self._vocab = vocab
        self.ids: list[int] = [UNKNOWN] * 256
        for byte in range(0x80, 0xC0):
            self.ids[byte] = _DROPPED
        self.ids[WORD_END] = _DROPPED
        self._symbols: dict[str, int] = {}
        self._characters: dict[str, int] = {}
        self.rules: list[Rule] = []
        self._marker = settings.end_of_word if settings.word_end == "symbol" else None
        suffix = settings.end_of_word if settings.word_end == "suffix" else None
        if self._marker is not None:
            self.ids[WORD_END] = vocab.get(self._marker, UNKNOWN)
            self._symbols[self._marker] = WORD_END
        # Text never gets the id of a special token.
        ordinary = vocab.keys() - set(settings.reserved)
        characters = {token for token in ordinary if len(token) == 1}
        if suffix is not None:
            characters |= {token[0] for token in ordinary if token[1:] == suffix}
        self._add_characters(sorted(characters))
        if suffix is not None:
            self._add_suffixes(sorted(characters), suffix)

    def new(self, token_id: int) -> int:
        """Add a symbol with this final id, and return it."""
        self.ids.append(token_id)
        return len(self.ids) - 1

    def of_token(self, token: str) -> int:
        """Return the symbol of a token of the vocabulary."""
        if token not in self._symbols:
            self._symbols[token] = self.new(self._vocab[token])
        return self._symbols[token]

    def merge_rules(self, merges: Iterable[tuple[str, str]]) -> Iterable[Rule]:
        """Yield the rules of the vocabulary's merges."""
        for left, right in reversed(dict.fromkeys(reversed(list(merges)))):
            result = self.of_token(left + right)
            for a in self._variants(left):
                for b in self._variants(right):
                    yield a, b, result

    def _variants(self, token: str) -> list[int]:
        """Return a token's symbols: two if it is one character and the end of word."""
        symbols = [self.of_token(token)]
        if token == self._marker and len(token) == 1:
            symbols.append(self._characters[token])
        return symbols

    def _add_characters(self, characters: list[str]) -> None:
        prefixes: dict[bytes, int] = {}
        rules: dict[int, list[Rule]] = {2: [], 3: [], 4: []}
        for character in characters:
            encoded = character.encode()
            if len(encoded) == 1:
                self._add_character(character, encoded[0])
                continue
            left = encoded[0]
            for length in range(2, len(encoded) + 1):
                prefix = encoded[:length]
                if prefix not in prefixes:
                    prefixes[prefix] = self.new(UNKNOWN)
                    rules[length].append((left, encoded[length - 1], prefixes[prefix]))
                left = prefixes[prefix]
            self._add_character(character, left)
        self.rules += [rule for length in rules for rule in rules[length]]

    def _add_character(self, character: str, symbol: int) -> None:
        self.ids[symbol] = self._vocab.get(character, UNKNOWN)
        self._characters[character] = symbol
        self._symbols.setdefault(character, symbol)

    def _add_suffixes(self, characters: list[str], suffix: str) -> None:
        unknown = self.new(UNKNOWN)
        for character in characters:
            token = character + suffix
            result = self.of_token(token) if token in self._vocab else unknown
            self.rules.append((self._characters[character], WORD_END, result))
