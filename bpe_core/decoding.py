"""The tokens of a tokenizer: its properties, looking tokens up, and decoding."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import SupportsIndex

import numpy as np
from numpy.typing import NDArray

from bpe_core.model import TokenizerModel
from bpe_core.token_table import TokenTable, to_documents

__all__ = ["TokenDecoder"]


class TokenDecoder:
    """The part of a `BPETokenizer` that needs its model alone."""

    _model: TokenizerModel

    @property
    def model(self) -> TokenizerModel:
        """The tokenizer as data."""
        return self._model

    @cached_property
    def vocab(self) -> dict[int, bytes]:
        """Id to bytes, special tokens included: a copy, so changing it has no effect."""
        return dict(self._tokens.by_id)

    @cached_property
    def merges(self) -> list[tuple[bytes, bytes]]:
        """Pairs of bytes in order of rank."""
        return self._model.merge_bytes

    @property
    def special_tokens(self) -> dict[str, int]:
        """The special tokens' ids."""
        return dict(self._model.special_tokens)

    @property
    def prepend(self) -> tuple[int, ...]:
        """Ids that a tokenizer.json puts before a text; `encode` does not add them."""
        return self._model.prepend

    @property
    def append(self) -> tuple[int, ...]:
        """Ids that a tokenizer.json puts after a text; `encode` does not add them."""
        return self._model.append

    @property
    def vocab_size(self) -> int:
        """The number of tokens, special tokens included; the same as `len(tokenizer)`."""
        return len(self._model)

    @property
    def n_vocab(self) -> int:
        """The largest id + 1, the number of rows that an embedding needs.

        It is above `vocab_size` only if there are gaps between ids.
        """
        return self._model.max_id + 1

    @property
    def bos_id(self) -> int | None:
        """The id of the special token that begins a text, None if there is no such token.

        It is the only one of `prepend`, or else the only special token with a usual name, such as
        `<s>` or `<|begin_of_text|>`. `encode` does not add it.
        """
        return self._model.bos_id

    @property
    def eos_id(self) -> int | None:
        """The id of the special token that ends a text, None if there is no such token.

        It is the only one of `append`, or else the only special token with a usual name, such as
        `<|endoftext|>` or `</s>`; not a token that ends turns of a chat. `encode` does not add it.

        Example:
            >>> BPETokenizer({0: b"a"}, [], ["<|endoftext|>"]).eos_id
            1
        """
        return self._model.eos_id

    @property
    def pattern(self) -> str:
        """The split pattern: a name in `bpe_core.PATTERNS` or a regular expression."""
        return self._model.pattern

    @property
    def unknown_id(self) -> int | None:
        """The id for bytes that have none; None: such bytes are an error."""
        return self._model.unknown_id

    @property
    def normalizer(self) -> str | None:
        """The Unicode normalization form applied before text is split: "nfc", "nfkc" or None."""
        return self._model.normalizer

    @property
    def normalize_quotes(self) -> bool:
        """True if typographic quotes become ' and " before text is split."""
        return self._model.normalize_quotes

    def __len__(self) -> int:
        """Return the number of tokens, special tokens included."""
        return len(self._model)

    def token_to_id(self, token: str | bytes) -> int | None:
        """Return the id of one token, None if there is no such token.

        A str is looked up among the special tokens first, bytes among the ordinary ones. This
        matters only if a special and an ordinary token have the same bytes.

        Raises:
            TypeError: the token is neither str nor bytes.

        Example:
            >>> tokenizer = BPETokenizer({0: b"a", 1: b"\\xff"}, [], ["<s>", "a"])
            >>> tokenizer.token_to_id("<s>"), tokenizer.token_to_id(b"\\xff")
            (2, 1)
            >>> tokenizer.token_to_id("a"), tokenizer.token_to_id(b"a"), tokenizer.token_to_id("b")
            (3, 0, None)
        """
        return self._tokens.find(token)

    def id_to_token(self, token_id: int) -> str | None:
        """Return the text of one id, None if there is no such id.

        Bytes that are not UTF-8, such as a part of a character, become U+FFFD; `id_to_bytes`
        returns the bytes.

        Example:
            >>> tokenizer = BPETokenizer({0: b" a", 1: b"\\xff"}, [], ["<s>"])
            >>> [tokenizer.id_to_token(i) for i in range(4)]
            [' a', '\ufffd', '<s>', None]
        """
        if not isinstance(token_id, SupportsIndex):
            instead = (
                "for a token use token_to_id"
                if isinstance(token_id, (str, bytes))
                else "for several: [tokenizer.id_to_token(i) for i in ids]"
            )
            raise TypeError(f"id_to_token takes an id, found {type(token_id).__name__}; {instead}")
        token = self._tokens.by_id.get(token_id)
        return None if token is None else token.decode("utf-8", "replace")

    def id_to_bytes(self, token_id: int) -> bytes:
        """Return the bytes of one id.

        Raises:
            UnknownTokenError: the vocabulary does not have the id.

        Example:
            >>> BPETokenizer({0: b"a", 1: b"\\xff"}, []).id_to_bytes(1)
            b'\\xff'
        """
        return self._tokens.to_bytes([token_id])[0]

    def decode_bytes(self, ids: Iterable[int] | NDArray[np.integer]) -> bytes:
        """Return the bytes of ids; without the first space if encoding put one before the text.

        Raises:
            UnknownTokenError: the vocabulary does not have an id.
            TypeError: the argument is not a one-dimensional sequence of ids.
        """
        data = b"".join(self._tokens.to_bytes(ids))
        characters = self._model.characters
        return (
            data if characters is None or not characters.strip_prefix else data.removeprefix(b" ")
        )

    def decode(self, ids: Iterable[int] | NDArray[np.integer], errors: str = "replace") -> str:
        """Return the text of ids; `errors` is that of `bytes.decode`.

        With a normalizer the text is the normalized one (see `normalize`), not the original.

        Raises:
            UnknownTokenError, TypeError: see `decode_bytes`.
        """
        return self.decode_bytes(ids).decode("utf-8", errors)

    def decode_batch(
        self,
        batch: Iterable[Iterable[int] | NDArray[np.integer]]
        | tuple[NDArray[np.integer], NDArray[np.int64]],
        errors: str = "replace",
    ) -> list[str]:
        """Return the texts of many documents; arguments and errors are those of `decode`.

        Args:
            batch: the ids of each document, or (ids, offsets) of `encode_batch_to_numpy`.
            errors: see `decode`.

        Example:
            >>> tokenizer = BPETokenizer({i: bytes([i]) for i in range(256)}, [])
            >>> tokenizer.decode_batch([[97, 98], [], [99]])
            ['ab', '', 'c']
            >>> tokenizer.decode_batch(tokenizer.encode_batch_to_numpy(["ab", "c"]))
            ['ab', 'c']
        """
        return [self.decode(ids, errors) for ids in to_documents(batch)]

    def decode_tokens_bytes(self, ids: Iterable[int] | NDArray[np.integer]) -> list[bytes]:
        """Return the bytes of each id.

        Raises:
            UnknownTokenError, TypeError: see `decode_bytes`.

        Example:
            >>> BPETokenizer({0: b"a", 1: b"\\xff"}, []).decode_tokens_bytes([0, 1, 0])
            [b'a', b'\\xff', b'a']
        """
        return self._tokens.to_bytes(ids)

    @cached_property
    def _tokens(self) -> TokenTable:
        return TokenTable(self._model)
