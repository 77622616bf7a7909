"""Streams of the bytes of an input file, decompressed if it is compressed, from any storage.

Any fault of a file (missing, changed since it was planned, unreadable, corrupt, truncated) raises
an InputError that names the file and the byte reached. Everything before the fault is returned
first; the error is raised by the next read, so a reader knows the first document that it lost. A
file is only read if it is the planned one: its size and version tag travel with its task and with
each request, so nothing is looked up before, and no range mixes two versions.

Reading ahead pays only where reading waits: for compressed files and remote storage. The operating
system reads local files ahead, and with one worker per core an extra thread gains nothing.
"""

from __future__ import annotations

import bz2
import io
import lzma
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Protocol, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipelines.config.values import MAX_EXPANSION
from pipelines.errors import (
    ChangedFileError,
    DamagedFileError,
    ForbiddenFileError,
    UnreadableFileError,
    VanishedFileError,
)
from pipelines.storage import archives
from pipelines.storage.expansion import check_expansion
from pipelines.storage.remote_files import (
    REQUEST_BYTES,
    ChangedError,
    NoRangesError,
    StoredFile,
    StoredHandle,
    open_stored,
)
from pipelines.storage.retries import describe
from pipelines.storage.salvage import DECODING_ERRORS, SalvagedText, Text
from pipelines.tasks.listing import InputFile

ByteArray = NDArray[np.uint8]

_COMPRESSED_READ_BYTES: Final = 1 << 18

# Small, so that an error is located precisely.
_TEXT_READ_BYTES: Final = 1 << 16


class Stream(Protocol):
    """Sequential bytes of a file."""

    @property
    def at_end(self) -> bool:
        """True if the stream is known to have no more bytes."""

    def available(self, amount: int) -> int:
        """Return how many of `amount` bytes the stream may still contain."""

    def read_into(self, target: ByteArray) -> int:
        """Fill the array with the next bytes; return their number.

        It is smaller only at the end and before an error, which the next read raises.
        """

    def skip_to(self, offset: int) -> None:
        """Continue at byte `offset`; backward only if the file is not compressed."""

    def close(self) -> None:
        """Close the file."""


def open_stream(
    file: InputFile,
    storage_options: Mapping[str, Any],
    read_bytes: int,
    read_ahead_to: int = sys.maxsize,
    *,
    salvage: bool = False,
    fetched: StoredFile | None = None,
    max_expansion: int = MAX_EXPANSION,
) -> Stream:
    """Open the text of a file as a stream.

    Args:
        file: the file as planned.
        storage_options: options of its file system.
        read_bytes: number of bytes per request to remote storage.
        read_ahead_to: byte after which nothing is read in advance.
        salvage: return all text before the damage of a compressed file; this decompresses it once
            or twice more.
        fetched: the file, if it is already open.
        max_expansion: limit of the text, as a multiple of the stored size.
    """

    def open_as_stored() -> Stream:
        stored = _StoredStream(file, fetched or _open_file(file, storage_options))
        if stored.is_local:  # the operating system reads ahead
            return stored
        return _ReadAhead(stored, max(read_bytes, REQUEST_BYTES), read_ahead_to)

    if file.compression is None:
        return open_as_stored()
    text = _DecompressedStream(
        file, open_as_stored, read_bytes, salvage=salvage, max_expansion=max_expansion
    )
    return _ReadAhead(text, read_bytes)


def open_handle(
    file: InputFile, storage_options: Mapping[str, Any], fetched: StoredFile | None = None
) -> InputHandle:
    """Open the bytes of a file as stored, as a seekable Python file, which must be closed.

    For libraries that read at any position, such as those for Parquet.

    Raises:
        InputError: the file cannot be opened.
    """
    return InputHandle(file, fetched or _open_file(file, storage_options))


class InputHandle(StoredHandle):
    """Input file as a seekable Python file; see `open_handle`."""

    def __init__(self, file: InputFile, opened: StoredFile) -> None:
        self._file = file
        self._opened = opened
        super().__init__(opened)

    def readinto(self, buffer: Any, /) -> int:
        """Fill the buffer; return the number of bytes, smaller only at the end."""
        with _translating_errors(self._file):
            return super().readinto(buffer)

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            self._opened.close()
        super().close()


class StreamPair:
    """Two streams of one file: `first`, and `second`, which is opened on first use."""

    def __init__(
        self,
        file: InputFile,
        storage_options: Mapping[str, Any],
        read_bytes: int,
        read_ahead_to: int = sys.maxsize,
        *,
        salvage: bool = False,
        fetched: StoredFile | None = None,
        max_expansion: int = MAX_EXPANSION,
    ):
        self._open: Callable[[], Stream] = lambda: open_stream(
            file,
            storage_options,
            read_bytes,
            read_ahead_to,
            salvage=salvage,
            fetched=fetched,
            max_expansion=max_expansion,
        )
        self.first = self._open()
        self._second: Stream | None = None

    @property
    def second(self) -> Stream:
        """Stream for a second pass."""
        if self._second is None:
            self._second = self._open()
        return self._second

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.first.close()
        if self._second is not None:
            self._second.close()


def changed_file_error(file: InputFile, found: str) -> ChangedFileError:
    """Return the error for a file that has changed since the work was planned."""
    return ChangedFileError(
        "An input file has changed since the work was planned.",
        expected=f"{file.size:,} bytes" + (f", {file.version_tag}" if file.version_tag else ""),
        found=found,
        where=file.url,
        hint="Wait until the input is complete, then run the command again.",
    )


@contextmanager
def _translating_errors(file: InputFile) -> Iterator[None]:
    """Convert errors of the storage to errors of the input."""
    try:
        yield
    except ChangedError as error:
        raise changed_file_error(file, str(error)) from error
    except FileNotFoundError as error:
        raise VanishedFileError(
            "An input file no longer exists.",
            expected=f"the file of {file.size:,} bytes that existed when the work was planned",
            found=describe(error),
            where=file.url,
            hint="Restore it, and check that the workers see the same storage. If the input has "
            "changed on purpose, run the command again.",
        ) from error
    except PermissionError as error:
        raise ForbiddenFileError(
            "Permission to read an input file is denied.",
            expected="read permission",
            found=describe(error),
            where=file.url,
            hint="Grant read permission to the user or the credentials of the workers.",
        ) from error
    except archives.DamagedArchiveError as error:
        raise DamagedFileError(
            "An archive is corrupt or truncated.",
            found=str(error),
            where=file.url,
            hint="Download it again, or exclude it from input.files.",
        ) from error
    except NoRangesError as error:
        raise _unreadable_error(
            file, error, "Copy the file to another storage, or set range_bytes above its size."
        ) from error
    except OSError as error:
        raise _unreadable_error(
            file,
            error,
            "Check that the file is readable, also on the workers, then run the command again; "
            "finished work is kept.",
        ) from error


def _unreadable_error(file: InputFile, error: OSError, hint: str) -> UnreadableFileError:
    return UnreadableFileError(
        "An input file cannot be read.",
        expected=f"the file of {file.size:,} bytes that existed when the work was planned",
        found=describe(error),
        where=file.url,
        hint=hint,
    )


def _open_file(file: InputFile, storage_options: Mapping[str, Any]) -> StoredFile:
    open_any = open_stored if archives.split_url(file.url) is None else archives.open_member
    with _translating_errors(file):
        return open_any(file.url, storage_options, size=file.size, version_tag=file.version_tag)


class _StoredStream:
    """Stream of the bytes of a file as stored, up to the planned size."""

    def __init__(self, file: InputFile, stored: StoredFile):
        self._file = file
        self._position = 0
        self._stored = stored

    @property
    def is_local(self) -> bool:
        """True if the file is on a disk of this machine."""
        return self._stored.is_local

    @property
    def at_end(self) -> bool:
        return self._position >= self._file.size

    def available(self, amount: int) -> int:
        return min(amount, self._file.size - self._position)

    def read_into(self, target: ByteArray) -> int:
        view = target.data[: self.available(len(target))]
        done = len(view)
        with _translating_errors(self._file):
            try:
                self._stored.read_into(view, self._position)
            except archives.DamagedArchiveError as error:
                if not error.readable:
                    raise
                done = error.readable
        self._position += done
        return done

    def skip_to(self, offset: int) -> None:
        self._position = offset

    def close(self) -> None:
        self._stored.close()


class _StreamHandle(io.RawIOBase):
    """Stream as a Python file that is read sequentially."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._position = 0

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any, /) -> int:
        got = self._stream.read_into(np.frombuffer(buffer, np.uint8))
        self._position += got
        return got


class _DecompressedStream:
    """Stream of the decompressed text of all members or frames of a compressed file."""

    def __init__(
        self,
        file: InputFile,
        open_as_stored: Callable[[], Stream],
        read_bytes: int,
        *,
        salvage: bool = False,
        max_expansion: int = MAX_EXPANSION,
    ):
        self._file = file
        self._max_expansion = max_expansion
        self._position = 0
        self._open_as_stored = open_as_stored
        self._opened: list[Stream] = []
        self._open_text = _DECOMPRESSORS[file.compression or ""]
        self._stored = io.BufferedReader(self._open_from_start(), read_bytes)
        self._text: Text = self._open_text(self._stored)
        self._salvage = salvage
        self._damage: Exception | None = None
        self.at_end = False

    def available(self, amount: int) -> int:
        return amount

    def read_into(self, target: ByteArray) -> int:
        view = target.data
        done = 0
        while done < len(view):
            got = self._read_text(view[done : done + _TEXT_READ_BYTES])
            if not got:
                if self._damage is None:
                    self.at_end = True
                elif not done:
                    raise self._damage_error() from self._damage
                break
            done += got
            self._position += got
        check_expansion(
            self._file.url, self._file.size, self._position, self._max_expansion, "text"
        )
        return done

    def _read_text(self, view: memoryview) -> int:
        try:
            return self._text.readinto(view)
        except (*DECODING_ERRORS, DamagedFileError) as error:
            self._damage = error
            if not self._salvage:
                raise self._damage_error() from error
        self._text = SalvagedText(self._open_from_start, self._open_text)
        left = self._position
        while left:
            got = self._text.readinto(memoryview(bytearray(min(left, len(view)))))
            if not got:  # treated as the end
                return 0
            left -= got
        return self._text.readinto(view)

    def _open_from_start(self) -> _StreamHandle:
        self._opened.append(self._open_as_stored())
        return _StreamHandle(self._opened[-1])

    def _damage_error(self) -> DamagedFileError:
        if isinstance(self._damage, DamagedFileError):
            return self._damage
        return DamagedFileError(
            "A compressed input file is corrupt or truncated.",
            expected=f"{self._file.compression} data up to byte {self._file.size:,}, the end of "
            "the file",
            # The position in the compressed data depends on buffers, but rejects must not. The
            # length of the text before the damage is known only after salvaging.
            found=f"{self._damage}, "
            + (
                f"after {self._position:,} bytes of text"
                if self._salvage
                else f"after reading up to byte {self._stored.tell():,}"
            ),
            where=self._file.url,
            hint="Download the file again, or exclude it from input.files. If its compression is "
            "another one or none, set input.compression.",
        )

    def skip_to(self, offset: int) -> None:
        skipped = np.empty(min(offset - self._position, 1 << 20), np.uint8)
        while self._position < offset:
            if not self.read_into(skipped[: offset - self._position]):
                raise changed_file_error(
                    self._file, f"the end of its text at byte {self._position:,}"
                )

    def close(self) -> None:
        self._stored.close()
        for stream in self._opened:
            stream.close()


class _ReadAhead:
    """Stream that reads the next bytes in a thread while the last ones are processed.

    While a chunk of `chunk_bytes` is used, the next one is read: up to byte `until`, and only
    after two consecutive reads. An error is raised after everything before it was returned.
    """

    def __init__(self, stream: Stream, chunk_bytes: int, until: int = sys.maxsize):
        self._stream = stream
        self._chunk_bytes = chunk_bytes
        self._until = until
        self._position = 0
        self._follows = False  # the last operation was a read
        self._thread = ThreadPoolExecutor(1, "read-ahead")
        self._chunks: deque[ByteArray] = deque()  # read, but not yet requested
        self._pending: Future[ByteArray] | None = None  # the chunk being read, after `_chunks`
        self._error: Exception | None = None  # raised after `_chunks`

    @property
    def at_end(self) -> bool:
        return self._pending is None and not self._chunks and self._stream.at_end

    def available(self, amount: int) -> int:
        return amount

    def read_into(self, target: ByteArray) -> int:
        done = 0
        try:
            done = self._copy_chunks(target)
            while done < len(target) and self._pending is not None:
                self._await_chunk()
                self._start_chunk()
                done += self._copy_chunks(target[done:])
            if done < len(target) and self._error is None:
                got = self._stream.read_into(target[done:])
                self._position += got
                done += got
        except Exception as error:
            self._error = error
        if self._error is not None and not done:
            pending, self._error = self._error, None
            raise pending
        if self._follows:
            self._start_chunk()
        self._follows = True
        return done

    def skip_to(self, offset: int) -> None:
        try:
            self._await_chunk()
        except Exception as error:
            self._error = error
        skipped = offset - self._position
        if 0 <= skipped <= sum(map(len, self._chunks)):
            while skipped:
                skipped -= self._copy_chunk(np.empty(skipped, np.uint8))
        else:
            self._chunks.clear()
            self._error = None
            self._stream.skip_to(offset)
        self._position = offset
        self._follows = False

    def close(self) -> None:
        self._thread.shutdown()
        self._stream.close()

    def _copy_chunks(self, target: ByteArray) -> int:
        done = 0
        while self._chunks and done < len(target):
            done += self._copy_chunk(target[done:])
        return done

    def _copy_chunk(self, target: ByteArray) -> int:
        chunk = self._chunks.popleft()
        amount = min(len(chunk), len(target))
        target[:amount] = chunk[:amount]
        if amount < len(chunk):
            self._chunks.appendleft(chunk[amount:])
        self._position += amount
        return amount

    def _start_chunk(self) -> None:
        if self._pending is not None or self._error is not None or len(self._chunks) > 1:
            return
        if self._stream.at_end:
            return
        read_to = self._position + sum(map(len, self._chunks))
        amount = min(self._chunk_bytes, self._until - read_to)
        if amount > 0:
            self._pending = self._thread.submit(self._read_chunk, amount)

    def _read_chunk(self, amount: int) -> ByteArray:
        chunk = np.empty(self._stream.available(amount), np.uint8)
        return chunk[: self._stream.read_into(chunk)]

    def _await_chunk(self) -> None:
        if self._pending is not None:
            coming, self._pending = self._pending, None
            if len(chunk := coming.result()):
                self._chunks.append(chunk)


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _CompressedMembers:
    """Text of consecutive compressed members, for bz2 and xz.

    Unlike BZ2File and LZMAFile, this refuses garbage after a member: it may be a damaged member,
    which they skip silently.
    """

    def __init__(
        self,
        stored: io.BufferedIOBase,
        new_decompressor: Callable[[], _Decompressor],
        padding: bytes = b"",
    ):
        self._stored = stored
        self._new_decompressor = new_decompressor
        self._padding = padding  # allowed between and after members
        self._member: _Decompressor | None = None
        self._data = b""

    def readinto(self, buffer: memoryview, /) -> int:
        while True:
            if self._member is None and not self._start_member():
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

    def _start_member(self) -> bool:
        """Start the next member. Return False at the end of the file."""
        while not (data := self._data.lstrip(self._padding)):
            self._data = self._stored.read(_COMPRESSED_READ_BYTES)
            if not self._data:
                return False
        self._data = data
        self._member = self._new_decompressor()
        return True


# Arrow's readers for gzip and zstd are fast and detect a missing end, which the stream reader of
# the package zstandard does not. Arrow's bz2 fails on empty members, and it has no xz.
_DECOMPRESSORS: Final[dict[str, Callable[[Any], Text]]] = {
    "gzip": lambda stored: pa.CompressedInputStream(pa.PythonFile(stored, "r"), "gzip"),
    "zstd": lambda stored: pa.CompressedInputStream(pa.PythonFile(stored, "r"), "zstd"),
    "bz2": lambda stored: _CompressedMembers(stored, bz2.BZ2Decompressor),
    "xz": lambda stored: _CompressedMembers(
        stored, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ), b"\0"
    ),
}
