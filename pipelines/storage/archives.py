"""Files inside archives: `zip://NAME::ARCHIVE` and `tar://NAME::ARCHIVE`, on any storage.

The table of contents of an archive is read once per process; then a file in it is a byte range of
the archive, read like any other file. Compressed files in a zip, and all files in a compressed tar,
can only be read from the start. fsspec's own archives are not used: they read through shared
handles, which are not safe for threads and do not repeat failed requests.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import tarfile
import threading
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from pipelines.config.values import escape, unescape
from pipelines.errors import ExpansionError
from pipelines.storage.expansion import check_expansion
from pipelines.storage.remote_files import StoredFile, StoredHandle, current_version, open_stored
from pipelines.storage.salvage import DECODING_ERRORS, SalvagedText

_PROTOCOLS: Final = ("zip", "tar")
_CONTENTS_KEPT: Final = 16
_LOCAL_HEADER_BYTES: Final = 30
_SKIPPED_AT_ONCE: Final = 1 << 20
_ENCRYPTED: Final = 1
_TAR_RECORD_BYTES: Final = 10240
# Maximum bytes of text per byte of data. Deflate's is known; others stay below the second, bz2's.
_HIGHEST_RATIOS: Final = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: 1032}
_HIGHEST_RATIO: Final = 1 << 20

# Compression of a whole tar, by the end of its name.
_TAR_COMPRESSION: Final[dict[tuple[str, ...], Callable[[io.RawIOBase], Any]]] = {
    (".gz", ".tgz"): lambda file: gzip.GzipFile(fileobj=io.BufferedReader(file, 1 << 18)),
    (".bz2", ".tbz2", ".tbz"): lambda file: bz2.BZ2File(io.BufferedReader(file, 1 << 18)),
    (".xz", ".txz"): lambda file: lzma.LZMAFile(io.BufferedReader(file, 1 << 18)),  # noqa: SIM115
    (".zst", ".tzst"): lambda file: _Zstd(file),
}


class DamagedArchiveError(OSError):
    """An archive, or a file in it, does not follow its format.

    `readable` is the number of requested bytes that could be read, from the first one.
    """

    readable: int = 0


@dataclass(frozen=True, slots=True)
class Member:
    """File in an archive.

    Attributes:
        name: Its path in the archive.
        size: Size of its content.
        offset: Offset of its content in the archive (in a compressed tar: in the tar); for zip,
            of the header before it.
        zip_info: Its entry in zip's table of contents.
    """

    name: str
    size: int
    offset: int
    zip_info: zipfile.ZipInfo | None = None


@dataclass(frozen=True, slots=True)
class Contents:
    """Contents of an archive, with the archive's size and version tag.

    Attributes:
        members: Files by name; of several with one name, the last.
        repeated: All files whose name occurs several times, by name, in the order of the archive.
    """

    members: Mapping[str, Member]
    repeated: Mapping[str, Sequence[Member]]
    size: int
    version_tag: str


def split_url(url: str) -> tuple[str, str, str] | None:
    """Return protocol, path pattern in the archive, and URL of the archive; None for other URLs.

    >>> split_url("zip://a/*.txt::s3://bucket/x.zip"), split_url("s3://bucket/x.zip")
    (('zip', 'a/*.txt', 's3://bucket/x.zip'), None)
    """
    first, separator, archive = url.partition("::")
    protocol, _, path = first.partition("://")
    if not separator or protocol not in _PROTOCOLS:
        return None
    return protocol, path.lstrip("/"), archive


def member_url(protocol: str, name: str, archive: str) -> str:
    """Return the URL of a file in an archive. The name may contain any characters.

    >>> member_url("zip", "a[1].txt", "/x.zip"), member_url("zip", "a::b", "/x.zip")
    ('zip://a[1].txt::/x.zip', 'zip://a[:][:]b::/x.zip')
    >>> member_url("zip", "/etc/a.txt", "/x.zip")
    'zip://[/]etc/a.txt::/x.zip'
    """
    is_plain = unescape(name) == name and "::" not in f"{name}:" and not name.startswith("/")
    # `split_url` drops slashes at the front, so that of a name is escaped.
    path = name if is_plain else re.sub("^/", "[/]", escape(name))
    return f"{protocol}://{path}::{archive}"


def archive_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the storage that contains an archive, without those of the archive."""
    return {key: value for key, value in options.items() if key not in _PROTOCOLS}


def contents(
    protocol: str, archive: str, options: Mapping[str, Any], max_expansion: int | None = None
) -> Contents:
    """Return the current contents of an archive.

    Args:
        protocol: "zip" or "tar".
        archive: Its URL.
        options: Options of its storage.
        max_expansion: Limit of the text to read for it, of a compressed tar, as a multiple of the
            archive's size; None for an archive that was listed before.

    Raises:
        ExpansionError: It exceeds the limit.
        OSError: It cannot be read.
        DamagedArchiveError: It is not an archive of that kind.
    """
    size, version_tag = current_version(archive, options)
    return _contents(protocol, archive, options, size, version_tag, max_expansion)


def _contents(
    protocol: str,
    archive: str,
    options: Mapping[str, Any],
    size: int,
    version_tag: str,
    max_expansion: int | None,
) -> Contents:
    key = (protocol, archive, size, version_tag)
    with _LOCK:
        found = _KEPT.get(key)
    if found is not None:
        return found
    stored = open_stored(archive, options, size=size, version_tag=version_tag)
    try:
        if protocol == "zip":
            members = _zip_members(stored)
        else:
            members = _tar_members(stored, archive, max_expansion)
    except (OSError, ExpansionError):
        raise
    except Exception as error:  # errors of any type, for meaningless bytes
        raise DamagedArchiveError(f"not a readable {protocol} archive: {error}") from error
    finally:
        stored.close()
    by_name: dict[str, list[Member]] = {}
    for member in members:
        by_name.setdefault(member.name, []).append(member)
    found = Contents(
        {name: same[-1] for name, same in by_name.items()},
        {name: same for name, same in by_name.items() if len(same) > 1},
        size,
        version_tag,
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
    """Check the sizes in the table of contents, which has no checksum.

    The amount of work follows from the sizes; those of a damaged archive could mean billions of
    tasks.
    """
    ratio = _HIGHEST_RATIOS.get(info.compress_type, _HIGHEST_RATIO)
    fits = (
        0
        <= info.header_offset
        <= info.header_offset + _LOCAL_HEADER_BYTES + info.compress_size
        <= archive_size
    )
    if not fits or info.file_size > ratio * info.compress_size + _HIGHEST_RATIO:
        raise DamagedArchiveError(
            f"its table of contents lists {info.filename!r} with {info.file_size:,} bytes, "
            f"stored as {info.compress_size:,} at byte {info.header_offset:,}, which is impossible"
        )


def _tar_members(stored: StoredFile, name: str, max_expansion: int | None) -> list[Member]:
    text = _Blocks(_tar_text(stored, name))

    def check(text_bytes: int) -> None:
        if max_expansion is not None:
            check_expansion(name, stored.size, text_bytes, max_expansion, "files")

    with tarfile.open(fileobj=cast(Any, text), mode="r:") as archive:
        members = []
        for info in archive:
            check(info.offset_data + info.size)
            if info.isreg() and not info.issparse():
                members.append(Member(info.name.removeprefix("./"), info.size, info.offset_data))
    text.check_end()
    return members


class _Blocks:
    """Text of a tar, with a check that it ended where Python's reader stopped.

    The reader treats an unreadable header as the end, and does not look at anything after the end.
    """

    def __init__(self, text: Any) -> None:
        self._text = text
        self._last = b""
        self.seek, self.tell = text.seek, text.tell

    def read(self, size: int) -> bytes:
        self._last = self._text.read(size)
        return self._last

    def check_end(self) -> None:
        """Check the end of the archive, after the reader looked for the last header."""
        if not self._last:
            raise DamagedArchiveError("no end-of-archive marker: it may be truncated")
        while block := self._last:
            if block.strip(b"\0"):
                raise DamagedArchiveError(
                    f"neither a header nor zeros up to the end, before byte {self.tell():,}"
                )
            self.read(_TAR_RECORD_BYTES)


def _tar_text(stored: StoredFile, name: str) -> Any:
    """Return the tar itself, decompressed if necessary."""
    handle = StoredHandle(stored)
    open_text = _tar_opener(name)
    return handle if open_text is None else open_text(handle)


def _tar_opener(name: str) -> Callable[[io.RawIOBase], Any] | None:
    matching = (
        open_text for ends, open_text in _TAR_COMPRESSION.items() if name.lower().endswith(ends)
    )
    return next(matching, None)


def open_member(
    url: str, options: Mapping[str, Any], *, size: int | None = None, version_tag: str = ""
) -> StoredFile:
    """Open a file in an archive. Its version tag is the archive's.

    Raises:
        ChangedError: The archive, or the size of the file in it, has changed.
        FileNotFoundError: The archive contains no such file.
        OSError: It cannot be read.
    """
    parts = split_url(url)
    assert parts is not None
    protocol, path, archive = parts
    path = unescape(path)
    options = archive_options(options)
    known = _known_contents(protocol, archive, version_tag) or contents(protocol, archive, options)
    stored = open_stored(
        archive, options, size=known.size, version_tag=version_tag or known.version_tag
    )
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
        raise DamagedArchiveError("the file would extend beyond the end of the archive")
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


def _known_contents(protocol: str, archive: str, version_tag: str) -> Contents | None:
    """Return the cached contents of the archive with this version tag, without looking at it."""
    with _LOCK:
        return next(
            (
                found
                for key, found in _KEPT.items()
                if version_tag and key[:2] == (protocol, archive) and key[3] == version_tag
            ),
            None,
        )


def _content_offset(stored: StoredFile, info: zipfile.ZipInfo) -> int:
    """Return the offset of the content, which follows a local header."""
    if info.flag_bits & _ENCRYPTED:
        raise DamagedArchiveError("the file is encrypted")
    header = bytearray(_LOCAL_HEADER_BYTES)
    stored.read_into(memoryview(header), info.header_offset)
    if header[:4] != b"PK\3\4":
        raise DamagedArchiveError(f"no file starts at byte {info.header_offset:,} of the archive")
    name_bytes = int.from_bytes(header[26:28], "little")
    extra_bytes = int.from_bytes(header[28:30], "little")
    return info.header_offset + _LOCAL_HEADER_BYTES + name_bytes + extra_bytes


class _Interval:
    """Byte range of an archive that contains a file uncompressed."""

    def __init__(self, stored: StoredFile, start: int, size: int) -> None:
        self._stored, self._start = stored, start
        self.size = size
        self.is_local = stored.is_local

    def read_into(self, view: memoryview, offset: int) -> None:
        self._stored.read_into(view, self._start + offset)

    def close(self) -> None:
        self._stored.close()


class _StorageError(Exception):
    """Reading failed because of the storage (the cause of this error), not because of the data."""


class _Data(StoredHandle):
    def readinto(self, buffer: Any, /) -> int:
        try:
            return super().readinto(buffer)
        except Exception as error:
            raise _StorageError from error


class _FromTheFront:
    """File behind a decompressor. To go back in it, decompression starts again."""

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
        self._position = 0  # position in the text
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
    """Text of a zstd stream, which cannot go back, as a file that knows its position."""

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
