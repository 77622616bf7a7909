"""Scan of a long document to its end, before its first chunk is yielded."""

from __future__ import annotations

import codecs
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from bpe_core import _native
from bpe_core.special_tokens import added_token_set, special_set
from pipelines.batches import FIRST_BYTES
from pipelines.readers.options import TokenFlags
from pipelines.readers.streams import ByteArray

LONGEST_CHARACTER: Final = 4

_REPLACEMENT: Final = "\ufffd".encode()


class Readable(Protocol):
    """Stream of the text of a long document, for the second pass."""

    def read_into(self, target: ByteArray) -> int:
        """Fill the array with the next bytes; return their number, smaller only at the end."""


class MemoryText:
    """Stream of a text in memory."""

    def __init__(self, text: ByteArray):
        self._rest = text

    def read_into(self, target: ByteArray) -> int:
        """Fill the array with the next bytes; return their number, smaller only at the end."""
        done = min(len(self._rest), len(target))
        target[:done] = self._rest[:done]
        self._rest = self._rest[done:]
        return done


class Specials:
    """Special tokens, prepared for the scan of a document and for the search for cuts.

    Attributes:
        matcher: finds their texts, whatever their flags.
        uncut: finds them as a tokenizer does, so that no cut changes which ones are found.
        longest: length in bytes of the longest one.
        replacing_makes_one: replacing invalid bytes by U+FFFD can create such a token.
    """

    def __init__(
        self, tokens: tuple[bytes, ...], flags: TokenFlags, normalizer: _native.Normalizer | None
    ):
        ids = {token.decode(): i for i, token in enumerate(tokens)}
        self.matcher = special_set(list(ids))
        self.uncut = added_token_set(
            ids, {text: frozenset(names) for text, names in flags}, normalizer
        )
        self.longest = max(map(len, tokens), default=0)
        self.replacing_makes_one = any(_REPLACEMENT in token for token in tokens)


def count_characters(text: ByteArray) -> int:
    """Return the number of characters of a valid text."""
    bounds = np.array([0, len(text)])
    return int(_native.count_characters(text, bounds[:1], bounds[1:])[0])


class LongDocument:
    """Result of the first pass over a long document, block by block.

    Attributes:
        offset: offset in the file; see `DocumentBatch.offsets`.
        ids: array with the record's own id only; None if records have no ids.
        kept: columns that token files keep, of this record only; None if its source keeps none.
        length: number of bytes so far.
        invalid_at: length of the valid UTF-8 prefix; None if everything is valid so far.
        invalid_bytes: up to four bytes at `invalid_at`.
        special_at: position of the first special token, or None.
        characters: number of Unicode characters so far, if they are counted; invalid bytes count
            as the characters that replace them.
        head: the first bytes.
    """

    def __init__(
        self,
        offset: int,
        specials: Specials,
        ids: pa.StringArray | None,
        kept: pa.RecordBatch | None = None,
        *,
        count_characters: bool = False,
    ):
        self.offset = offset
        self.ids = ids
        self.kept = kept
        self.length = 0
        self.invalid_at: int | None = None
        self.invalid_bytes = b""
        self.special_at: int | None = None
        self.characters = 0
        self.head = b""
        self._count_characters = count_characters
        self._repairing = codecs.getincrementaldecoder("utf-8")("replace")
        self._specials = specials
        self._hasher = xxhash.xxh3_128()
        # Ends of the last block that only the next one can complete: a character, a token.
        self._character: ByteArray = np.empty(0, np.uint8)
        self._token: ByteArray = np.empty(0, np.uint8)

    @property
    def record_id(self) -> str | None:
        """The record's own id, if it has one."""
        value: str | None = None if self.ids is None else self.ids[0].as_py()
        return value

    @property
    def hashes(self) -> NDArray[np.uint64]:
        """xxh3-128 of the bytes so far, uint64[1, 2]: high, low."""
        high, low = divmod(self._hasher.intdigest(), 1 << 64)
        return np.array([[high, low]], np.uint64)

    def add(self, block: ByteArray, *, is_last: bool) -> None:
        """Scan the next bytes of the document."""
        self._hasher.update(block.data)
        self.head += block[: FIRST_BYTES - len(self.head)].tobytes()
        if self.invalid_at is None:
            self._check_utf8(block, is_last)
        else:
            self._count_repaired(block, is_last)
        if self.special_at is None and self._specials.longest:
            self._find_special(block, is_last)
        self.length += len(block)

    def _check_utf8(self, block: ByteArray, is_last: bool) -> None:
        text = np.concatenate([self._character, block])
        valid = _native.utf8_valid_prefix(text)
        if self._count_characters:
            self.characters += count_characters(text[:valid])
        rest = text[valid:]
        if len(rest) >= LONGEST_CHARACTER or (is_last and len(rest)):
            self.invalid_at = self.length - len(self._character) + valid
            self.invalid_bytes = rest[:LONGEST_CHARACTER].tobytes()
            self._count_repaired(rest, is_last)
        self._character = rest

    def _count_repaired(self, rest: ByteArray, is_last: bool) -> None:
        """Count the characters from the first invalid byte on."""
        if self._count_characters:
            self.characters += len(self._repairing.decode(rest.data, is_last))

    def _find_special(self, block: ByteArray, is_last: bool) -> None:
        text = np.concatenate([self._token, block])
        bounds = np.array([0, len(text)])
        position = int(self._specials.matcher.find_first(text, bounds[:1], bounds[1:])[0])
        # A longer token that starts earlier may be incomplete, unless this one is far from the end.
        if position >= 0 and (is_last or position + self._specials.longest <= len(text)):
            self.special_at = self.length - len(self._token) + position
        self._token = text[max(0, len(text) - self._specials.longest + 1) :]
