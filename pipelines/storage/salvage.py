"""Recovery of the readable part of damaged compressed data, up to the last byte.

A decompressor that meets damage, or an early end, discards the output of the current step, and the
size of a step depends on buffers. So the data is decompressed again: first in small steps to find
out approximately where it fails, then up to that position and on byte by byte. The result then
depends on the data alone.
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

# Errors of decompressors for invalid data.
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
# Small, since the text of a failing read is read again byte by byte.
_TEXT_READ_BYTES: Final = 1 << 12


class Text(Protocol):
    """Decompressor over data that it reads itself."""

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill the buffer with the next bytes. Return their number, 0 at the end."""


class SalvagedText:
    """Text of damaged data from its start up to the damage.

    Args:
        open_data: Opens the compressed data, from its start, as a Python file.
        open_text: Opens the decompressor over such a file. It must not read ahead.
    """

    def __init__(
        self, open_data: Callable[[], io.RawIOBase], open_text: Callable[[Any], Text]
    ) -> None:
        self._open_data = open_data
        self._open_text = open_text
        self._blocks = self._read()
        self._block = memoryview(b"")

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill the buffer with the next bytes. Return their number, 0 at the damage."""
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
        position = 0  # position in the text
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
        # The decompressor requests data when it has hardly any left: the damage is in the last
        # steps.
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
    """File whose reads return few bytes at once, and single bytes from some position on."""

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
