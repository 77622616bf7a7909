"""The bytes of an input file, decompressed if it is compressed, from any storage.

Whatever is wrong with a file (gone, another size than planned, corrupt, cut short) is an InputError
that names it and the byte reached.
"""

from __future__ import annotations

import bz2
import io
import lzma
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self, cast

import fsspec
import numpy as np
import pyarrow as pa
from fsspec.implementations.local import LocalFileSystem
from numpy.typing import NDArray

from pipelines.errors import InputError
from pipelines.tasks import InputFile

ByteArray = NDArray[np.uint8]

_COMPRESSED_READ_BYTES: Final = 1 << 18

# So little at a time that an error tells its place well.
_TEXT_READ_BYTES: Final = 1 << 16


class Stream(Protocol):
    """Bytes one after the other; `at_end`: it is known that nothing follows."""

    @property
    def at_end(self) -> bool:
        """Whether it is known that nothing follows."""

    def available(self, amount: int) -> int:
        """The most that can still come of `amount` bytes."""

    def read_into(self, target: ByteArray) -> int:
        """Fill the array with the next bytes; their number, fewer at the end only."""

    def skip_to(self, offset: int) -> None:
        """Go on at byte `offset`; backward only if the file is not compressed."""

    def close(self) -> None:
        """Close the file."""


def open_stream(
    file: InputFile,
    storage_options: Mapping[str, Any],
    read_bytes: int,
    read_ahead_to: int = sys.maxsize,
) -> Stream:
    """The text of a file as a stream.

    Args:
        file: as planned.
        storage_options: of its file system.
        read_bytes: how much is fetched at once from far away.
        read_ahead_to: beyond this byte nothing is read before it is asked for.
    """
    if file.compression is not None:
        return _ReadAhead(_DecompressedStream(file, storage_options, read_bytes), read_bytes)
    stored = _StoredStream(file, storage_options, read_bytes)
    # What lies on a local disk the system itself reads ahead.
    return stored if stored.is_local else _ReadAhead(stored, read_bytes, read_ahead_to)


class StreamPair:
    """Two streams of one file: `first`, and `behind`, opened when it is first asked for."""

    def __init__(
        self,
        file: InputFile,
        storage_options: Mapping[str, Any],
        read_bytes: int,
        read_ahead_to: int = sys.maxsize,
    ):
        self._open: Callable[[], Stream] = lambda: open_stream(
            file, storage_options, read_bytes, read_ahead_to
        )
        self.first = self._open()
        self._behind: Stream | None = None

    @property
    def behind(self) -> Stream:
        """The second stream."""
        if self._behind is None:
            self._behind = self._open()
        return self._behind

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.first.close()
        if self._behind is not None:
            self._behind.close()


def changed_file(file: InputFile, found: str) -> InputError:
    """The error for a file that is not what it was when the work was planned."""
    return InputError(
        "An input file has changed since the work was planned.",
        expected=f"{file.size:,} bytes",
        found=found,
        where=file.url,
        hint="Wait until the input is complete, then run the command again.",
    )


class _Handle(Protocol):
    def readinto(self, buffer: memoryview, /) -> int | None: ...
    def seek(self, offset: int, whence: int = 0, /) -> int: ...
    def close(self) -> None: ...


def _open_file(
    file: InputFile, storage_options: Mapping[str, Any], read_bytes: int
) -> tuple[_Handle, fsspec.AbstractFileSystem]:
    """Open a file without a buffer and make sure that it has the planned size.

    The file system must be kept: an archive's closes its files when it goes.
    """
    handle: _Handle
    try:
        filesystem, path = fsspec.core.url_to_fs(file.url, **storage_options)
        if isinstance(filesystem, LocalFileSystem):
            handle = Path(path).open("rb", buffering=0)  # noqa: SIM115
        else:
            handle = filesystem.open(path, "rb", block_size=read_bytes, cache_type="none")
        size = handle.seek(0, io.SEEK_END)
        handle.seek(0)
    except OSError as error:
        raise _unreadable(file, error) from error
    if size != file.size:
        handle.close()
        raise changed_file(file, f"{size:,} bytes")
    return handle, filesystem


def _unreadable(file: InputFile, error: OSError) -> InputError:
    return InputError(
        "An input file can't be read.",
        expected=f"the file of {file.size:,} bytes that was there when the work was planned",
        found=f"{type(error).__name__}: {error}",
        where=file.url,
        hint="Check that the file is there and readable, also on the workers; if the input has "
        "changed on purpose, run the command again.",
    )


class _StoredStream:
    """The bytes of a file as stored, up to the planned size."""

    def __init__(self, file: InputFile, storage_options: Mapping[str, Any], read_bytes: int):
        self._file = file
        self._position = 0
        self._handle, self._filesystem = _open_file(file, storage_options, read_bytes)

    @property
    def is_local(self) -> bool:
        """Whether the file is on a disk of this machine."""
        return isinstance(self._filesystem, LocalFileSystem)

    @property
    def at_end(self) -> bool:
        return self._position >= self._file.size

    def available(self, amount: int) -> int:
        return min(amount, self._file.size - self._position)

    def read_into(self, target: ByteArray) -> int:
        view = target.data[: self.available(len(target))]
        done = 0
        while done < len(view):
            try:
                got = self._handle.readinto(view[done:])
            except OSError as error:
                raise _unreadable(self._file, error) from error
            if not got:
                raise changed_file(self._file, f"the end of the file at byte {self._position:,}")
            done += got
            self._position += got
        return done

    def skip_to(self, offset: int) -> None:
        if offset != self._position:
            self._handle.seek(offset)
            self._position = offset

    def close(self) -> None:
        self._handle.close()


class _DecompressedStream:
    """The text of a compressed file: that of all its members or frames, one after the other."""

    def __init__(self, file: InputFile, storage_options: Mapping[str, Any], read_bytes: int):
        self._file = file
        self._position = 0
        handle, self._filesystem = _open_file(file, storage_options, read_bytes)
        self._stored = io.BufferedReader(cast(io.RawIOBase, handle), read_bytes)
        self._text = _DECOMPRESSORS[file.compression or ""](self._stored)
        self.at_end = False

    def available(self, amount: int) -> int:
        return amount

    def read_into(self, target: ByteArray) -> int:
        view = target.data
        done = 0
        while done < len(view):
            try:
                got = self._text.readinto(view[done : done + _TEXT_READ_BYTES])
            except (OSError, EOFError, lzma.LZMAError, pa.ArrowException) as error:
                raise InputError(
                    "A compressed input file is corrupt or cut short.",
                    expected=f"{self._file.compression} data up to byte {self._file.size:,}, the "
                    "end of the file",
                    found=f"{error}, after {self._position:,} bytes of text, when compressed data "
                    f"was read up to byte {self._stored.tell():,}",
                    where=self._file.url,
                    hint="Get the file again or leave it out of input.files; if it is compressed "
                    "in another way or not at all, set input.compression.",
                ) from error
            if not got:
                self.at_end = True
                break
            done += got
            self._position += got
        return done

    def skip_to(self, offset: int) -> None:
        skipped = np.empty(min(offset - self._position, 1 << 20), np.uint8)
        while self._position < offset:
            if not self.read_into(skipped[: offset - self._position]):
                raise changed_file(self._file, f"the end of its text at byte {self._position:,}")

    def close(self) -> None:
        self._stored.close()


class _ReadAhead:
    """A stream of which a thread reads the next bytes while the last ones are worked on.

    At most `chunk_bytes` are read ahead, up to byte `until`, and only when one read follows
    another. An error comes with the read that meets it.
    """

    def __init__(self, stream: Stream, chunk_bytes: int, until: int = sys.maxsize):
        self._stream = stream
        self._chunk_bytes = chunk_bytes
        self._until = until
        self._position = 0
        self._follows = False  # whether a read was the last thing done
        self._thread = ThreadPoolExecutor(1, "read-ahead")
        # What is being read, or else the rest of what was.
        self._coming: Future[ByteArray] | None = None
        self._chunk: ByteArray = np.empty(0, np.uint8)

    @property
    def at_end(self) -> bool:
        return self._coming is None and not len(self._chunk) and self._stream.at_end

    def available(self, amount: int) -> int:
        return amount

    def read_into(self, target: ByteArray) -> int:
        self._await()
        done = min(len(self._chunk), len(target))
        target[:done] = self._chunk[:done]
        self._chunk = self._chunk[done:]
        if done < len(target):
            done += self._stream.read_into(target[done:])
        self._position += done
        if self._follows and not len(self._chunk) and not self._stream.at_end:
            self._begin_chunk()
        self._follows = True
        return done

    def skip_to(self, offset: int) -> None:
        self._await()
        skipped = offset - self._position
        if 0 <= skipped <= len(self._chunk):
            self._chunk = self._chunk[skipped:]
        else:
            self._chunk = self._chunk[:0]
            self._stream.skip_to(offset)
        self._position = offset
        self._follows = False

    def close(self) -> None:
        self._thread.shutdown()
        self._stream.close()

    def _begin_chunk(self) -> None:
        amount = min(self._chunk_bytes, self._until - self._position)
        if amount > 0:
            self._coming = self._thread.submit(self._read_chunk, amount)

    def _read_chunk(self, amount: int) -> ByteArray:
        chunk = np.empty(self._stream.available(amount), np.uint8)
        return chunk[: self._stream.read_into(chunk)]

    def _await(self) -> None:
        if self._coming is not None:
            coming, self._coming = self._coming, None
            self._chunk = coming.result()


class _Text(Protocol):
    def readinto(self, buffer: memoryview, /) -> int: ...


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Members:
    """The text of compressed members in a row, for bz2 and xz.

    Unlike BZ2File and LZMAFile it allows no garbage after a member: that may be a damaged member,
    which they leave out without a word.
    """

    def __init__(
        self,
        stored: io.BufferedIOBase,
        new_decompressor: Callable[[], _Decompressor],
        padding: bytes = b"",
    ):
        self._stored = stored
        self._new_decompressor = new_decompressor
        self._padding = padding  # may stand between and after members
        self._member: _Decompressor | None = None
        self._data = b""

    def readinto(self, buffer: memoryview, /) -> int:
        while True:
            if self._member is None and not self._begin_member():
                return 0
            member = self._member
            assert member is not None
            if member.needs_input and not self._data:
                self._data = self._stored.read(_COMPRESSED_READ_BYTES)
                if not self._data:
                    raise EOFError("the compressed data ends too early")
            text = member.decompress(self._data, len(buffer))
            self._data = b""
            if member.eof:
                self._data = member.unused_data
                self._member = None
            if text:
                buffer[: len(text)] = text
                return len(text)

    def _begin_member(self) -> bool:
        """Find the next member; False if there is none."""
        while not (data := self._data.lstrip(self._padding)):
            self._data = self._stored.read(_COMPRESSED_READ_BYTES)
            if not self._data:
                return False
        self._data = data
        self._member = self._new_decompressor()
        return True


# Arrow's readers for gzip and zstd are as fast as any and notice a missing end, which the stream
# reader of the package zstandard does not. Arrow's bz2 fails on empty members; it has no xz.
_DECOMPRESSORS: Final[dict[str, Callable[[io.BufferedIOBase], _Text]]] = {
    "gzip": lambda stored: pa.CompressedInputStream(pa.PythonFile(stored, "r"), "gzip"),
    "zstd": lambda stored: pa.CompressedInputStream(pa.PythonFile(stored, "r"), "zstd"),
    "bz2": lambda stored: _Members(stored, bz2.BZ2Decompressor),
    "xz": lambda stored: _Members(stored, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ), b"\0"),
}
