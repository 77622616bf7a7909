"""The bytes of an input file, decompressed if it is compressed, from any storage.

Whatever is wrong with a file (gone, changed since it was planned, unreadable, corrupt, cut short)
is an InputError that names it and the byte reached. It comes with the first read that begins where
nothing more can be read: what can be is given before.
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

from pipelines.errors import (
    ChangedFileError,
    DamagedFileError,
    ForbiddenFileError,
    UnreadableFileError,
    VanishedFileError,
)
from pipelines.storage import archives
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
        """Fill the array with the next bytes; their number, fewer at the end and before an error.

        The error comes with the next read.
        """

    def skip_to(self, offset: int) -> None:
        """Go on at byte `offset`; backward only if the file is not compressed."""

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
) -> Stream:
    """The text of a file as a stream.

    Args:
        file: as planned.
        storage_options: of its file system.
        read_bytes: how much is fetched at once from far away.
        read_ahead_to: beyond this byte nothing is read before it is asked for.
        salvage: whether a compressed file that is damaged gives all that comes before the damage:
            it is decompressed once or twice more for that.
        fetched: the file, if it is open already.
    """

    def open_as_stored() -> Stream:
        stored = _StoredStream(file, fetched or _open_file(file, storage_options))
        if stored.is_local:  # what lies on a local disk the system itself reads ahead
            return stored
        return _ReadAhead(stored, max(read_bytes, REQUEST_BYTES), read_ahead_to)

    if file.compression is None:
        return open_as_stored()
    text = _DecompressedStream(file, open_as_stored, read_bytes, salvage=salvage)
    return _ReadAhead(text, read_bytes)


def open_handle(
    file: InputFile, storage_options: Mapping[str, Any], fetched: StoredFile | None = None
) -> InputHandle:
    """The bytes of a file as stored, as a Python file that can be read anywhere.

    For libraries that look for things in a file, as those for Parquet do. Must be closed.

    Raises:
        InputError: as reading does.
    """
    return InputHandle(file, fetched or _open_file(file, storage_options))


class InputHandle(StoredHandle):
    """See `open_handle`."""

    def __init__(self, file: InputFile, opened: StoredFile) -> None:
        self._file = file
        self._opened = opened
        super().__init__(opened)

    def readinto(self, buffer: Any, /) -> int:
        """Fill the buffer; fewer bytes come at the end only."""
        with _reading(self._file):
            return super().readinto(buffer)

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            self._opened.close()
        super().close()


class StreamPair:
    """Two streams of one file: `first`, and `behind`, opened when it is first asked for."""

    def __init__(
        self,
        file: InputFile,
        storage_options: Mapping[str, Any],
        read_bytes: int,
        read_ahead_to: int = sys.maxsize,
        *,
        salvage: bool = False,
        fetched: StoredFile | None = None,
    ):
        self._open: Callable[[], Stream] = lambda: open_stream(
            file, storage_options, read_bytes, read_ahead_to, salvage=salvage, fetched=fetched
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


def changed_file(file: InputFile, found: str) -> ChangedFileError:
    """The error for a file that is not what it was when the work was planned."""
    return ChangedFileError(
        "An input file has changed since the work was planned.",
        expected=f"{file.size:,} bytes" + (f", {file.mark}" if file.mark else ""),
        found=found,
        where=file.url,
        hint="Wait until the input is complete, then run the command again.",
    )


@contextmanager
def _reading(file: InputFile) -> Iterator[None]:
    """Errors of the storage as errors of the input."""
    try:
        yield
    except ChangedError as error:
        raise changed_file(file, str(error)) from error
    except FileNotFoundError as error:
        raise VanishedFileError(
            "An input file can't be read: it is gone.",
            expected=f"the file of {file.size:,} bytes that was there when the work was planned",
            found=describe(error),
            where=file.url,
            hint="Restore it, and check that the workers see the same storage; if the input has "
            "changed on purpose, run the command again.",
        ) from error
    except PermissionError as error:
        raise ForbiddenFileError(
            "An input file may not be read.",
            expected="permission to read it",
            found=describe(error),
            where=file.url,
            hint="Allow the user or the credentials of the workers to read it.",
        ) from error
    except archives.DamagedArchiveError as error:
        raise DamagedFileError(
            "An archive is corrupt or cut short.",
            found=str(error),
            where=file.url,
            hint="Get it again or leave it out of input.files.",
        ) from error
    except NoRangesError as error:
        raise _unreadable(
            file, error, "Copy the file to another storage, or set range_bytes above its size."
        ) from error
    except OSError as error:
        raise _unreadable(
            file,
            error,
            "Check that the file is readable, also on the workers, and run the command again: what "
            "is finished is kept.",
        ) from error


def _unreadable(file: InputFile, error: OSError, hint: str) -> UnreadableFileError:
    return UnreadableFileError(
        "An input file can't be read.",
        expected=f"the file of {file.size:,} bytes that was there when the work was planned",
        found=describe(error),
        where=file.url,
        hint=hint,
    )


def _open_file(file: InputFile, storage_options: Mapping[str, Any]) -> StoredFile:
    open_any = open_stored if archives.split_url(file.url) is None else archives.open_member
    with _reading(file):
        return open_any(file.url, storage_options, size=file.size, mark=file.mark)


class _StoredStream:
    """The bytes of a file as stored, up to the planned size."""

    def __init__(self, file: InputFile, stored: StoredFile):
        self._file = file
        self._position = 0
        self._stored = stored

    @property
    def is_local(self) -> bool:
        """Whether the file is on a disk of this machine."""
        return self._stored.is_local

    @property
    def at_end(self) -> bool:
        return self._position >= self._file.size

    def available(self, amount: int) -> int:
        return min(amount, self._file.size - self._position)

    def read_into(self, target: ByteArray) -> int:
        view = target.data[: self.available(len(target))]
        done = len(view)
        with _reading(self._file):
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
    """A stream as a Python file that is read from the front."""

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
    """The text of a compressed file: that of all its members or frames, one after the other."""

    def __init__(
        self,
        file: InputFile,
        open_as_stored: Callable[[], Stream],
        read_bytes: int,
        *,
        salvage: bool = False,
    ):
        self._file = file
        self._position = 0
        self._open_as_stored = open_as_stored
        self._opened: list[Stream] = []
        self._open_text = _DECOMPRESSORS[file.compression or ""]
        self._stored = io.BufferedReader(self._from_start(), read_bytes)
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
                    raise self._damaged() from self._damage
                break
            done += got
            self._position += got
        return done

    def _read_text(self, view: memoryview) -> int:
        try:
            return self._text.readinto(view)
        except (*DECODING_ERRORS, DamagedFileError) as error:
            self._damage = error
            if not self._salvage:
                raise self._damaged() from error
        self._text = SalvagedText(self._from_start, self._open_text)
        left = self._position
        while left:
            got = self._text.readinto(memoryview(bytearray(min(left, len(view)))))
            if not got:  # as if there had been nothing more
                return 0
            left -= got
        return self._text.readinto(view)

    def _from_start(self) -> _StreamHandle:
        self._opened.append(self._open_as_stored())
        return _StreamHandle(self._opened[-1])

    def _damaged(self) -> DamagedFileError:
        if isinstance(self._damage, DamagedFileError):
            return self._damage
        return DamagedFileError(
            "A compressed input file is corrupt or cut short.",
            expected=f"{self._file.compression} data up to byte {self._file.size:,}, the end of "
            "the file",
            # How far data was read depends on buffers, and rejects don't. How much text there is
            # before the damage is known only when it was salvaged.
            found=f"{self._damage}, "
            + (
                f"after {self._position:,} bytes of text"
                if self._salvage
                else f"when data was read up to byte {self._stored.tell():,}"
            ),
            where=self._file.url,
            hint="Get the file again or leave it out of input.files; if it is compressed in "
            "another way or not at all, set input.compression.",
        )

    def skip_to(self, offset: int) -> None:
        skipped = np.empty(min(offset - self._position, 1 << 20), np.uint8)
        while self._position < offset:
            if not self.read_into(skipped[: offset - self._position]):
                raise changed_file(self._file, f"the end of its text at byte {self._position:,}")

    def close(self) -> None:
        self._stored.close()
        for stream in self._opened:
            stream.close()


class _ReadAhead:
    """A stream of which a thread reads the next bytes while the last ones are worked on.

    While a chunk of `chunk_bytes` is used, the next is read: up to byte `until`, and only when one
    read follows another. An error comes when all before it was given.
    """

    def __init__(self, stream: Stream, chunk_bytes: int, until: int = sys.maxsize):
        self._stream = stream
        self._chunk_bytes = chunk_bytes
        self._until = until
        self._position = 0
        self._follows = False  # whether a read was the last thing done
        self._thread = ThreadPoolExecutor(1, "read-ahead")
        self._chunks: deque[ByteArray] = deque()  # read, not asked for yet
        self._coming: Future[ByteArray] | None = None  # being read, behind them
        self._error: Exception | None = None  # behind what was read

    @property
    def at_end(self) -> bool:
        return self._coming is None and not self._chunks and self._stream.at_end

    def available(self, amount: int) -> int:
        return amount

    def read_into(self, target: ByteArray) -> int:
        done = 0
        try:
            done = self._take_all(target)
            while done < len(target) and self._coming is not None:
                self._await()
                self._begin_chunk()
                done += self._take_all(target[done:])
            if done < len(target) and self._error is None:
                got = self._stream.read_into(target[done:])
                self._position += got
                done += got
        except Exception as error:
            self._error = error
        if self._error is not None and not done:
            met, self._error = self._error, None
            raise met
        if self._follows:
            self._begin_chunk()
        self._follows = True
        return done

    def skip_to(self, offset: int) -> None:
        try:
            self._await()
        except Exception as error:
            self._error = error
        skipped = offset - self._position
        if 0 <= skipped <= sum(map(len, self._chunks)):
            while skipped:
                skipped -= self._take(np.empty(skipped, np.uint8))
        else:
            self._chunks.clear()
            self._error = None
            self._stream.skip_to(offset)
        self._position = offset
        self._follows = False

    def close(self) -> None:
        self._thread.shutdown()
        self._stream.close()

    def _take_all(self, target: ByteArray) -> int:
        done = 0
        while self._chunks and done < len(target):
            done += self._take(target[done:])
        return done

    def _take(self, target: ByteArray) -> int:
        chunk = self._chunks.popleft()
        amount = min(len(chunk), len(target))
        target[:amount] = chunk[:amount]
        if amount < len(chunk):
            self._chunks.appendleft(chunk[amount:])
        self._position += amount
        return amount

    def _begin_chunk(self) -> None:
        if self._coming is not None or self._error is not None or len(self._chunks) > 1:
            return
        if self._stream.at_end:
            return
        read_to = self._position + sum(map(len, self._chunks))
        amount = min(self._chunk_bytes, self._until - read_to)
        if amount > 0:
            self._coming = self._thread.submit(self._read_chunk, amount)

    def _read_chunk(self, amount: int) -> ByteArray:
        chunk = np.empty(self._stream.available(amount), np.uint8)
        return chunk[: self._stream.read_into(chunk)]

    def _await(self) -> None:
        if self._coming is not None:
            coming, self._coming = self._coming, None
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
_DECOMPRESSORS: Final[dict[str, Callable[[Any], Text]]] = {
    "gzip": lambda stored: pa.CompressedInputStream(pa.PythonFile(stored, "r"), "gzip"),
    "zstd": lambda stored: pa.CompressedInputStream(pa.PythonFile(stored, "r"), "zstd"),
    "bz2": lambda stored: _Members(stored, bz2.BZ2Decompressor),
    "xz": lambda stored: _Members(stored, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ), b"\0"),
}
