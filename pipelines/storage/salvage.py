"""What can still be read of compressed data that is damaged, to the last byte.

A decompressor that meets damage, or an end too early, gives nothing of the step in which it meets
it, and how much one step is depends on buffers. So the data is decompressed again: in small steps
to find out about where it fails, then up to there and byte by byte from there on. What comes out
then follows from the data alone.
"""

from __future__ import annotations

import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

import pyarrow as pa

from pipelines.errors import DamagedFileError

# What decompressors raise when data is not what their format says.
DECODING_ERRORS: Final = (
    OSError,
    EOFError,
    lzma.LZMAError,
    zlib.error,
    zipfile.BadZipFile,
    struct.error,
    pa.ArrowException,
)

_STEP_BYTES: Final = 512
# Little, as from where a read begins that fails the text is read byte by byte.
_TEXT_READ_BYTES: Final = 1 << 12


class Text(Protocol):
    """A decompressor over data that it reads itself."""

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill the buffer with the next bytes; their number, 0 at the end."""


class SalvagedText:
    """The text of damaged data from its start, as far as there is any.

    Args:
        open_data: gives the compressed data, from its start, as a Python file.
        open_text: the decompressor over such a file; it must not read further than it needs.
    """

    def __init__(
        self, open_data: Callable[[], io.RawIOBase], open_text: Callable[[Any], Text]
    ) -> None:
        self._open_data = open_data
        self._open_text = open_text
        self._blocks = self._read()
        self._block = memoryview(b"")

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill the buffer with the next bytes; their number, 0 where the damage is."""
        while not self._block:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._block = memoryview(block)
        done = min(len(buffer), len(self._block))
        buffer[:done] = self._block[:done]
        self._block = self._block[done:]
        return done

    def _read(self) -> Iterator[bytes]:
        position = 0  # in the text
        data = _InSteps(self._open_data())
        try:
            text = self._open_text(data)
            while True:
                block = _next_block(text, _TEXT_READ_BYTES)
                if not block:
                    return
                position += len(block)
                yield block
        except (*DECODING_ERRORS, DamagedFileError):
            pass
        # Data is asked for when there is hardly any left: the damage is in the last steps.
        data = _InSteps(self._open_data(), single_from=data.position - 4 * _STEP_BYTES)
        try:
            text = self._open_text(data)
            while position:
                position -= len(_next_block(text, min(position, _TEXT_READ_BYTES)))
            while byte := _next_block(text, 1):
                yield byte
        except (*DECODING_ERRORS, DamagedFileError):
            pass


def _next_block(text: Text, most: int) -> bytes:
    block = bytearray(most)
    return bytes(block[: text.readinto(memoryview(block))])


class _InSteps(io.RawIOBase):
    """A file of which reads give little at once: single bytes from a place on."""

    def __init__(self, data: io.RawIOBase, single_from: int | None = None) -> None:
        self._data = data
        self._single_from = single_from
        self.position = 0

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.position

    def read(self, size: int = -1, /) -> bytes:
        step = bytearray(min(size, _STEP_BYTES) if size >= 0 else _STEP_BYTES)
        return bytes(step[: self.readinto(step)])

    def readinto(self, buffer: Any, /) -> int:
        near = self._single_from is not None and self.position >= self._single_from
        view = memoryview(buffer)[: 1 if near else _STEP_BYTES]
        got = self._data.readinto(view) or 0
        self.position += got
        return got
