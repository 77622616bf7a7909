"""Files inside archives: `zip://NAME::ARCHIVE` and `tar://NAME::ARCHIVE`, on any storage.

An archive's table of contents is read once a process; then a file in it is an interval of the
archive's bytes, read like any other file. What zip has compressed, and everything in a compressed
tar, can be read from the front only.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import threading
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from pipelines.config.values import escape, unescape
from pipelines.storage.remote_files import StoredFile, StoredHandle, current_mark, open_stored
from pipelines.storage.salvage import DECODING_ERRORS, SalvagedText

_PROTOCOLS: Final = ("zip", "tar")
_CONTENTS_KEPT: Final = 16
_LOCAL_HEADER_BYTES: Final = 30
_SKIPPED_AT_ONCE: Final = 1 << 20
_ENCRYPTED: Final = 1
_TAR_RECORD_BYTES: Final = 10240
# Bytes of text from one byte of data: deflate's is known, and others stay below the second, bz2's.
_HIGHEST_RATIOS: Final = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: 1032}
_HIGHEST_RATIO: Final = 1 << 20

# Of a tar as a whole, by the ends of its name.
_TAR_COMPRESSION: Final[dict[tuple[str, ...], Callable[[io.RawIOBase], Any]]] = {
    (".gz", ".tgz"): lambda file: gzip.GzipFile(fileobj=io.BufferedReader(file, 1 << 18)),
    (".bz2", ".tbz2", ".tbz"): lambda file: bz2.BZ2File(io.BufferedReader(file, 1 << 18)),
    (".xz", ".txz"): lambda file: lzma.LZMAFile(io.BufferedReader(file, 1 << 18)),  # noqa: SIM115
    (".zst", ".tzst"): lambda file: _Zstd(file),
}


class DamagedArchiveError(OSError):
    """An archive, or a file in it, is not what its format says.

    `readable`: how many of the bytes that were asked for could be read, from the first on.
    """

    readable: int = 0


@dataclass(frozen=True, slots=True)
class Member:
    """A file in an archive.

    Attributes:
        name: its path there.
        size: bytes of its content.
        offset: of its content in the archive (in a compressed tar: in the tar); for zip, of the
            header before it.
        zip_info: what zip says of it.
    """

    name: str
    size: int
    offset: int
    zip_info: zipfile.ZipInfo | None = None


@dataclass(frozen=True, slots=True)
class Contents:
    """Contents of an archive, whose size and mark these are.

    Attributes:
        members: by name; of several with one name, the last.
        repeated: all those whose name is not theirs alone, by name, in the order of the archive.
    """

    members: Mapping[str, Member]
    repeated: Mapping[str, Sequence[Member]]
    size: int
    mark: str


def split_url(url: str) -> tuple[str, str, str] | None:
    """Return protocol, pattern of paths in the archive, and URL of the archive; None for others.

    >>> split_url("zip://a/*.txt::s3://bucket/x.zip"), split_url("s3://bucket/x.zip")
    (('zip', 'a/*.txt', 's3://bucket/x.zip'), None)
    """
    first, separator, archive = url.partition("::")
    protocol, _, path = first.partition("://")
    if not separator or protocol not in _PROTOCOLS:
        return None
    return protocol, path.lstrip("/"), archive


def member_url(protocol: str, name: str, archive: str) -> str:
    """Return the URL of a file in an archive, whatever its name.

    >>> member_url("zip", "a[1].txt", "/x.zip"), member_url("zip", "a::b", "/x.zip")
    ('zip://a[1].txt::/x.zip', 'zip://a[:][:]b::/x.zip')
    """
    is_plain = unescape(name) == name and "::" not in f"{name}:"
    return f"{protocol}://{name if is_plain else escape(name)}::{archive}"


def archive_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the storage that holds an archive: all but those for the archive itself."""
    return {key: value for key, value in options.items() if key not in _PROTOCOLS}


def contents(protocol: str, archive: str, options: Mapping[str, Any]) -> Contents:
    """What is in an archive, as it is now.

    Raises:
        OSError: it can't be read.
        DamagedArchiveError: it is no archive of that kind.
    """
    size, mark = current_mark(archive, options)
    return _contents(protocol, archive, options, size, mark)


def _contents(
    protocol: str, archive: str, options: Mapping[str, Any], size: int, mark: str
) -> Contents:
    key = (protocol, archive, size, mark)
    with _LOCK:
        found = _KEPT.get(key)
    if found is not None:
        return found
    stored = open_stored(archive, options, size=size, mark=mark)
    try:
        members = _zip_members(stored) if protocol == "zip" else _tar_members(stored, archive)
    except OSError:
        raise
    except Exception as error:  # of any kind, where the bytes make no sense
        raise DamagedArchiveError(f"no {protocol} archive that can be read: {error}") from error
    finally:
        stored.close()
    by_name: dict[str, list[Member]] = {}
    for member in members:
        by_name.setdefault(member.name, []).append(member)
    found = Contents(
        {name: same[-1] for name, same in by_name.items()},
        {name: same for name, same in by_name.items() if len(same) > 1},
        size,
        mark,
    )
    with _LOCK:
        _KEPT[key] = found
        while len(_KEPT) > _CONTENTS_KEPT:
            _KEPT.popitem(last=False)
    return found


_LOCK = threading.Lock()
_KEPT: OrderedDict[tuple[str, str, int, str], Contents] = OrderedDict()


def _zip_members(stored: StoredFile) -> list[Member]:
    with zipfile.ZipFile(cast(Any, StoredHandle(stored))) as archive:
        infos = [info for info in archive.infolist() if not info.is_dir()]
    for info in infos:
        _check_sizes(info, stored.size)
    return [Member(info.filename, info.file_size, info.header_offset, info) for info in infos]


def _check_sizes(info: zipfile.ZipInfo, archive_size: int) -> None:
    """Nothing in the table protects its numbers, and from sizes follows how much work there is."""
    ratio = _HIGHEST_RATIOS.get(info.compress_type, _HIGHEST_RATIO)
    fits = (
        0
        <= info.header_offset
        <= info.header_offset + _LOCAL_HEADER_BYTES + info.compress_size
        <= archive_size
    )
    if not fits or info.file_size > ratio * info.compress_size + _HIGHEST_RATIO:
        raise DamagedArchiveError(
            f"its table says that {info.filename!r} has {info.file_size:,} bytes, stored as "
            f"{info.compress_size:,} at byte {info.header_offset:,}, which can't be"
        )


def _tar_members(stored: StoredFile, name: str) -> list[Member]:
    text = _Blocks(_tar_text(stored, name))
    with tarfile.open(fileobj=cast(Any, text), mode="r:") as archive:
        members = [
            Member(info.name.removeprefix("./"), info.size, info.offset_data)
            for info in archive
            if info.isreg() and not info.issparse()
        ]
    text.check_end()
    return members


class _Blocks:
    """The text of a tar, and whether it ended where Python's reader stopped.

    That takes a header that it can't read for the end, and looks at nothing behind the end.
    """

    def __init__(self, text: Any) -> None:
        self._text = text
        self._last = b""
        self.seek, self.tell = text.seek, text.tell

    def read(self, size: int) -> bytes:
        self._last = self._text.read(size)
        return self._last

    def check_end(self) -> None:
        """After the last header was looked for."""
        if not self._last:
            raise DamagedArchiveError("no mark of its end: it may be cut short")
        while block := self._last:
            if block.strip(b"\0"):
                raise DamagedArchiveError(
                    f"neither a header nor zeros up to the end, before byte {self.tell():,}"
                )
            self.read(_TAR_RECORD_BYTES)


def _tar_text(stored: StoredFile, name: str) -> Any:
    """The tar itself, decompressed if it is compressed."""
    handle = StoredHandle(stored)
    open_text = _tar_opener(name)
    return handle if open_text is None else open_text(handle)


def _tar_opener(name: str) -> Callable[[io.RawIOBase], Any] | None:
    matching = (
        open_text for ends, open_text in _TAR_COMPRESSION.items() if name.lower().endswith(ends)
    )
    return next(matching, None)


def open_member(
    url: str, options: Mapping[str, Any], *, size: int | None = None, mark: str = ""
) -> StoredFile:
    """Open a file in an archive; its mark is the archive's.

    Raises:
        ChangedError: the archive, or the size of the file in it, has changed.
        FileNotFoundError: the archive has no such file.
        OSError: it can't be read.
    """
    parts = split_url(url)
    assert parts is not None
    protocol, path, archive = parts
    path = unescape(path)
    options = archive_options(options)
    known = _known_contents(protocol, archive, mark) or contents(protocol, archive, options)
    stored = open_stored(archive, options, size=known.size, mark=mark or known.mark)
    member = known.members.get(path)
    if member is None:
        raise FileNotFoundError(f"{path} is not in the archive")
    if protocol == "tar" and _tar_opener(archive) is None:
        return _Interval(stored, member.offset, member.size)
    if protocol == "tar":
        return _FromTheFront(
            stored,
            lambda: _Data(stored),
            cast(Any, _tar_opener(archive)),
            member.offset,
            member.size,
        )
    info = member.zip_info
    assert info is not None
    begin = _content_offset(stored, info)
    is_stored = info.compress_type == zipfile.ZIP_STORED
    if begin + (member.size if is_stored else info.compress_size) > stored.size:
        raise DamagedArchiveError("the file would end behind the archive's end")
    if is_stored:
        return _Interval(stored, begin, member.size)
    return _FromTheFront(
        stored,
        lambda: _Data(stored, begin, info.compress_size),
        lambda data: _zip_text(data, info),
        0,
        member.size,
    )


def _zip_text(data: Any, info: zipfile.ZipInfo) -> Any:
    try:
        return zipfile.ZipExtFile(data, "r", info)
    except (NotImplementedError, RuntimeError) as error:
        raise DamagedArchiveError(str(error)) from error


def _known_contents(protocol: str, archive: str, mark: str) -> Contents | None:
    """What is known of the archive with that mark, without a look at it."""
    with _LOCK:
        return next(
            (
                found
                for key, found in _KEPT.items()
                if mark and key[:2] == (protocol, archive) and key[3] == mark
            ),
            None,
        )


def _content_offset(stored: StoredFile, info: zipfile.ZipInfo) -> int:
    """Where the content begins: behind a header of its own."""
    if info.flag_bits & _ENCRYPTED:
        raise DamagedArchiveError("the file is encrypted")
    header = bytearray(_LOCAL_HEADER_BYTES)
    stored.read_into(memoryview(header), info.header_offset)
    if header[:4] != b"PK\3\4":
        raise DamagedArchiveError(f"no file begins at byte {info.header_offset:,} of the archive")
    name_bytes = int.from_bytes(header[26:28], "little")
    extra_bytes = int.from_bytes(header[28:30], "little")
    return info.header_offset + _LOCAL_HEADER_BYTES + name_bytes + extra_bytes


class _Interval:
    """Bytes of an archive that are a file as they are."""

    def __init__(self, stored: StoredFile, start: int, size: int) -> None:
        self._stored, self._start = stored, start
        self.size = size
        self.is_local = stored.is_local

    def read_into(self, view: memoryview, offset: int) -> None:
        self._stored.read_into(view, self._start + offset)

    def close(self) -> None:
        self._stored.close()


class _StorageError(Exception):
    """Reading failed because of the storage, which is its cause: no fault of the data."""


class _Data(StoredHandle):
    def readinto(self, buffer: Any, /) -> int:
        try:
            return super().readinto(buffer)
        except Exception as error:
            raise _StorageError from error


class _FromTheFront:
    """A file behind a decompressor; to go back in it, or to its start, is to begin again."""

    def __init__(
        self,
        stored: StoredFile,
        open_data: Callable[[], io.RawIOBase],
        open_text: Callable[[Any], Any],
        start: int,
        size: int,
    ) -> None:
        self._stored, self._start = stored, start
        self._open_data, self._open_text = open_data, open_text
        self.size = size
        self.is_local = stored.is_local
        self._text: Any = None
        self._position = 0  # in the text
        self._damage = ""

    def read_into(self, view: memoryview, offset: int) -> None:
        target = self._start + offset
        if self._text is None or target < self._position:
            self._text, self._position = self._open_text(self._open_data()), 0
            self._damage = ""
        try:
            self._read_or_salvage(target, view)
        except _StorageError as error:
            assert error.__cause__ is not None
            raise error.__cause__ from None

    def _read_or_salvage(self, target: int, view: memoryview) -> None:
        try:
            self._read_at(target, view)
        except DamagedArchiveError:
            raise
        except DECODING_ERRORS as error:
            self._damage = str(error)
            self._text, self._position = SalvagedText(self._open_data, self._open_text), 0
            self._read_at(target, view)

    def _read_at(self, target: int, view: memoryview) -> None:
        skipped = memoryview(bytearray(min(max(target - self._position, 0), _SKIPPED_AT_ONCE)))
        while self._position < target:
            wanted = skipped[: target - self._position]
            if self._take(wanted) < len(wanted):
                raise self._damaged(0)
        done = self._take(view)
        if done < len(view):
            raise self._damaged(done)

    def _take(self, view: memoryview) -> int:
        done = 0
        while done < len(view) and (got := self._text.readinto(view[done:])):
            done += got
            self._position += got
        return done

    def _damaged(self, readable: int) -> DamagedArchiveError:
        problem = self._damage or "it ends too early"
        error = DamagedArchiveError(f"{problem}, at byte {self._position:,}")
        error.readable = readable
        return error

    def close(self) -> None:
        self._stored.close()


class _Zstd(io.RawIOBase):
    """The text of a zstd stream, which can't go back, as a file that knows its place."""

    def __init__(self, file: io.RawIOBase) -> None:
        import pyarrow as pa

        self._stream = pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd")
        self._position = 0

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        target = offset + (self._position if whence == io.SEEK_CUR else 0)
        while self._position < target:
            if not self.read(min(target - self._position, _SKIPPED_AT_ONCE)):
                break
        return self._position

    def readinto(self, buffer: Any, /) -> int:
        got = int(self._stream.readinto(buffer))
        self._position += got
        return got
