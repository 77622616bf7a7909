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
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from pipelines.stored import StoredFile, StoredHandle, current_mark, open_stored

_PROTOCOLS: Final = ("zip", "tar")
_CONTENTS_KEPT: Final = 16
_LOCAL_HEADER_BYTES: Final = 30
_SKIPPED_AT_ONCE: Final = 1 << 20
_ENCRYPTED: Final = 1

# Of a tar as a whole, by the ends of its name.
_TAR_COMPRESSION: Final[dict[tuple[str, ...], Callable[[io.RawIOBase], Any]]] = {
    (".gz", ".tgz"): lambda file: gzip.GzipFile(fileobj=io.BufferedReader(file, 1 << 18)),
    (".bz2", ".tbz2", ".tbz"): lambda file: bz2.BZ2File(io.BufferedReader(file, 1 << 18)),
    (".xz", ".txz"): lambda file: lzma.LZMAFile(io.BufferedReader(file, 1 << 18)),  # noqa: SIM115
    (".zst", ".tzst"): lambda file: _Zstd(file),
}


class DamagedArchiveError(OSError):
    """An archive, or a file in it, is not what its format says."""


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
    """What is in an archive, whose size and mark these are."""

    members: Mapping[str, Member]
    size: int
    mark: str


def split_url(url: str) -> tuple[str, str, str] | None:
    """Protocol, path in the archive, and URL of the archive; None for any other URL.

    >>> split_url("zip://a/*.txt::s3://bucket/x.zip"), split_url("s3://bucket/x.zip")
    (('zip', 'a/*.txt', 's3://bucket/x.zip'), None)
    """
    first, separator, archive = url.partition("::")
    protocol, _, path = first.partition("://")
    if not separator or protocol not in _PROTOCOLS:
        return None
    return protocol, path.lstrip("/"), archive


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
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError) as error:
        raise DamagedArchiveError(f"no {protocol} archive that can be read: {error}") from error
    finally:
        stored.close()
    found = Contents({member.name: member for member in members}, size, mark)
    with _LOCK:
        _KEPT[key] = found
        while len(_KEPT) > _CONTENTS_KEPT:
            _KEPT.popitem(last=False)
    return found


_LOCK = threading.Lock()
_KEPT: OrderedDict[tuple[str, str, int, str], Contents] = OrderedDict()


def _zip_members(stored: StoredFile) -> list[Member]:
    with zipfile.ZipFile(cast(Any, StoredHandle(stored))) as archive:
        return [
            Member(info.filename, info.file_size, info.header_offset, info)
            for info in archive.infolist()
            if not info.is_dir()
        ]


def _tar_members(stored: StoredFile, name: str) -> list[Member]:
    with tarfile.open(fileobj=_tar_text(stored, name), mode="r:") as archive:
        return [
            Member(info.name.removeprefix("./"), info.size, info.offset_data)
            for info in archive
            if info.isreg() and not info.issparse()
        ]


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
    options = archive_options(options)
    known = _known_contents(protocol, archive, mark) or contents(protocol, archive, options)
    stored = open_stored(archive, options, size=known.size, mark=mark or known.mark)
    member = known.members.get(path)
    if member is None:
        raise FileNotFoundError(f"{path} is not in the archive")
    if protocol == "tar" and _tar_opener(archive) is None:
        return _Interval(stored, member.offset, member.size)
    if protocol == "tar":
        return _FromTheFront(stored, lambda: _tar_text(stored, archive), member.offset, member.size)
    info = member.zip_info
    assert info is not None
    begin = _content_offset(stored, info)
    if info.compress_type == zipfile.ZIP_STORED:
        return _Interval(stored, begin, member.size)
    return _FromTheFront(
        stored,
        lambda: zipfile.ZipExtFile(
            cast(Any, StoredHandle(stored, begin, info.compress_size)), "r", info
        ),
        0,
        member.size,
    )


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


class _FromTheFront:
    """A file behind a decompressor; to go back in it, or to its start, is to begin again."""

    def __init__(
        self, stored: StoredFile, open_text: Callable[[], Any], start: int, size: int
    ) -> None:
        self._stored, self._open_text, self._start = stored, open_text, start
        self.size = size
        self.is_local = stored.is_local
        self._text: Any = None
        self._position = 0  # in the text

    def read_into(self, view: memoryview, offset: int) -> None:
        target = self._start + offset
        if self._text is None or target < self._position:
            self._text, self._position = self._open_text(), 0
        skipped = memoryview(bytearray(min(target - self._position, _SKIPPED_AT_ONCE)))
        while self._position < target:
            self._fill(skipped[: target - self._position])
        self._fill(view)

    def _fill(self, view: memoryview) -> None:
        done = 0
        while done < len(view):
            try:
                got = self._text.readinto(view[done:])
            except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError) as error:
                raise DamagedArchiveError(f"{error}, at byte {self._position:,}") from error
            except gzip.BadGzipFile as error:
                raise DamagedArchiveError(f"{error}, at byte {self._position:,}") from error
            if not got:
                raise DamagedArchiveError(f"it ends at byte {self._position:,}")
            done += got
            self._position += got

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
