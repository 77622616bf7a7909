"""What has to be known of a long document before its first piece is given."""

from __future__ import annotations

import codecs
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from bpe_core import _native
from pipelines.batches import FIRST_BYTES
from pipelines.readers.streams import ByteArray

LONGEST_CHARACTER: Final = 4

_REPLACEMENT: Final = "\ufffd".encode()


class Readable(Protocol):
    """The text of a long document, to be read once more."""

    def read_into(self, target: ByteArray) -> int:
        """Fill the array with the next bytes; their number, fewer at the end only."""


class MemoryText:
    """A text in memory as a stream."""

    def __init__(self, text: ByteArray):
        self._rest = text

    def read_into(self, target: ByteArray) -> int:
        """Fill the array with the next bytes; their number, fewer at the end only."""
        done = min(len(self._rest), len(target))
        target[:done] = self._rest[:done]
        self._rest = self._rest[done:]
        return done


class Specials:
    """The special tokens, as the search for cuts needs them."""

    def __init__(self, tokens: tuple[bytes, ...]):
        self.matcher = _native.SpecialSet(list(tokens), list(range(len(tokens))))
        self.longest = max(map(len, tokens), default=0)
        # Whether one may arise only when invalid bytes are replaced by U+FFFD.
        self.replacing_makes_one = any(_REPLACEMENT in token for token in tokens)


def count_characters(text: ByteArray) -> int:
    """Number of characters of a valid text."""
    bounds = np.array([0, len(text)])
    return int(_native.count_characters(text, bounds[:1], bounds[1:])[0])


class LongDocument:
    """What a pass over the text of a long document finds out, chunk by chunk.

    Attributes:
        place: where the file has it: `DocumentBatch.offsets`.
        ids: the record's own id alone in an array; None where records have none.
        length: bytes seen so far, in the end of all of it.
        invalid_at: where its valid UTF-8 ends; None if all of it is valid.
        invalid_bytes: up to four bytes that stand there.
        special_at: where the first special token occurs; None if none does.
        characters: Unicode characters seen so far, if they are counted; for invalid bytes those
            that replace them.
        head: its first bytes.
    """

    def __init__(
        self,
        place: int,
        specials: Specials,
        ids: pa.StringArray | None,
        *,
        count_characters: bool = False,
    ):
        self.place = place
        self.ids = ids
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
        # What the next chunk is needed to judge: an unfinished character, an unfinished token.
        self._character: ByteArray = np.empty(0, np.uint8)
        self._token: ByteArray = np.empty(0, np.uint8)

    @property
    def record_id(self) -> str | None:
        """The record's own id."""
        value: str | None = None if self.ids is None else self.ids[0].as_py()
        return value

    @property
    def hashes(self) -> NDArray[np.uint64]:
        """The xxh3-128 of what was seen, uint64[1, 2]: high, low."""
        high, low = divmod(self._hasher.intdigest(), 1 << 64)
        return np.array([[high, low]], np.uint64)

    def add(self, chunk: ByteArray, *, is_last: bool) -> None:
        """Look at the next bytes of the document."""
        self._hasher.update(chunk.data)
        self.head += chunk[: FIRST_BYTES - len(self.head)].tobytes()
        if self.invalid_at is None:
            self._check_utf8(chunk, is_last)
        else:
            self._count_repaired(chunk, is_last)
        if self.special_at is None and self._specials.longest:
            self._find_special(chunk, is_last)
        self.length += len(chunk)

    def _check_utf8(self, chunk: ByteArray, is_last: bool) -> None:
        text = np.concatenate([self._character, chunk])
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
        """Counts the characters from the first invalid byte on."""
        if self._count_characters:
            self.characters += len(self._repairing.decode(rest.data, is_last))

    def _find_special(self, chunk: ByteArray, is_last: bool) -> None:
        text = np.concatenate([self._token, chunk])
        bounds = np.array([0, len(text)])
        place = int(self._specials.matcher.find_first(text, bounds[:1], bounds[1:])[0])
        # One that begins earlier may still be unfinished, unless this one is far from the end.
        if place >= 0 and (is_last or place + self._specials.longest <= len(text)):
            self.special_at = self.length - len(self._token) + place
        self._token = text[max(0, len(text) - self._specials.longest + 1) :]
