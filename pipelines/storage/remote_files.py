"""Files of any storage, read at any position; each read is checked to be of the same version.

A read returns all requested bytes or fails, so that a short answer never passes for a file's end. A
file's size and version tag are part of the task's descriptor and of each request (If-Match), so no
lookup precedes a read, and no range mixes two versions.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import fsspec
from fsspec.asyn import sync

from pipelines.storage.filesystems import is_local, locate, plain_path, protocols, version_tag_of
from pipelines.storage.retries import TruncatedError, persistently, status_of

# Of one request at most: transferring this many bytes takes several times the latency.
REQUEST_BYTES: Final = 8 << 20
_FIRST_BLOCK: Final = 64 << 10

_PRECONDITION_FAILED: Final = 412
_RANGE_NOT_SATISFIABLE: Final = 416
_PARTIAL_CONTENT: Final = 206


class ChangedError(OSError):
    """A file has changed since it was planned. The text describes its current state."""


class NoRangesError(OSError):
    """A server does not support ranges."""


class StoredFile(Protocol):
    """Open file.

    Attributes:
        size: Size in bytes.
        is_local: True if it is on a disk of this machine.
    """

    size: int
    is_local: bool

    def read_into(self, view: memoryview, offset: int) -> None:
        """Fill the view with the bytes from `offset` on.

        Raises:
            ChangedError: The file has changed since it was planned.
            OSError: It cannot be read.
        """

    def close(self) -> None:
        """Close the file."""


def open_stored(
    url: str, options: Mapping[str, Any], *, size: int | None = None, version_tag: str = ""
) -> StoredFile:
    """Open a file that is not part of an archive.

    Args:
        url: Path of the local disk or fsspec URL.
        options: Options of its file system.
        size: Required size, if known.
        version_tag: Required version tag, if known; see `version_tag_of`.

    Raises:
        ChangedError: It has another size or version tag.
        OSError: It cannot be opened.
    """
    if (plain := plain_path(url)) is not None:
        return _LocalFile(plain, size, version_tag)
    filesystem, path = locate(url, options)
    if is_local(filesystem):
        return _LocalFile(path, size, version_tag)
    fetch: _Fetch
    if size is not None and hasattr(filesystem, "_call_s3"):
        fetch = _S3Object(filesystem, path, size, version_tag).fetch
    elif size is not None and "https" in filesystem.protocol:
        fetch = _WebFile(filesystem, path, size, version_tag).fetch
    else:
        # Requests have no condition here, so the current version is looked up once.
        info = persistently(lambda: filesystem.info(path))
        _check(size, version_tag, int(info["size"]), version_tag_of(info))
        if size is None:
            return open_stored(
                url, options, size=int(info["size"]), version_tag=version_tag_of(info)
            )

        # The Hub's file system would read ahead.
        exactly = {"cache_type": "none"} if "hf" in protocols(filesystem) else {}

        def fetch(start: int, end: int) -> bytes:
            data: bytes = filesystem.cat_file(path, start=start, end=end, **exactly)
            return data

    return _RemoteFile(fetch, size)


def current_version(url: str, options: Mapping[str, Any]) -> tuple[int, str]:
    """Return the current size and version tag of a file."""
    filesystem, path = locate(url, options)
    if is_local(filesystem):
        status = Path(path).stat()
        return status.st_size, local_version_tag(status)
    info = persistently(lambda: filesystem.info(path))
    return int(info["size"]), version_tag_of(info)


def read_range(
    filesystem: fsspec.AbstractFileSystem, path: str, start: int = 0, end: int | None = None
) -> bytes:
    """Return the bytes [start, end) of a file, fewer at its end, in one request."""
    if not hasattr(filesystem, "_call_s3"):
        whole = start == 0 and end is None
        data: bytes = (
            filesystem.cat_file(path) if whole else filesystem.cat_file(path, start=start, end=end)
        )
        return data
    bucket, key, _ = filesystem.split_path(path)
    request = {"Bucket": bucket, "Key": key}
    if start or end is not None:
        request["Range"] = f"bytes={start}-" + ("" if end is None else str(end - 1))
    try:
        data, _ = sync(filesystem.loop, _get_object, filesystem, request)
    except OSError as error:
        if status_of(error) == _RANGE_NOT_SATISFIABLE:
            return b""
        raise
    return data


async def _get_object(
    filesystem: fsspec.AbstractFileSystem, request: Mapping[str, str]
) -> tuple[bytes, Mapping[str, Any]]:
    """Return an object's bytes, and the server's information on it."""
    reply = await filesystem._call_s3("get_object", **request)
    async with reply["Body"] as body:
        return await body.read(), reply


def local_version_tag(status: os.stat_result) -> str:
    """Return the version tag of a file on a local disk."""
    return f"mtime_ns={status.st_mtime_ns}"


def _check(size: int | None, version_tag: str, found_size: int | None, found_tag: str) -> None:
    """Compare the known values; version tags of different kinds cannot be compared."""
    if size is not None and found_size is not None and found_size != size:
        raise ChangedError(f"{found_size:,} bytes")
    same_kind = version_tag.partition("=")[0] == found_tag.partition("=")[0]
    if same_kind and version_tag != found_tag:
        raise ChangedError(f"as many bytes, but changed since ({version_tag} → {found_tag})")


class _LocalFile:
    is_local = True

    def __init__(self, path: str, size: int | None, version_tag: str):
        self._number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        status = os.fstat(self._number)
        self.size = status.st_size if size is None else size
        self._version_tag = version_tag
        try:
            _check(size, version_tag, status.st_size, local_version_tag(status))
        except ChangedError:
            self.close()
            raise

    def read_into(self, view: memoryview, offset: int) -> None:
        done = 0
        while done < len(view):
            got = os.preadv(self._number, [view[done:]], offset + done)
            if not got:
                raise ChangedError(f"the end of the file at byte {offset + done:,}")
            done += got
        # Check after the read that the bytes belong to the planned version.
        status = os.fstat(self._number)
        _check(self.size, self._version_tag, status.st_size, local_version_tag(status))

    def close(self) -> None:
        if self._number >= 0:
            os.close(self._number)
        self._number = -1


# The bytes [start, end) of a file.
_Fetch = Callable[[int, int], bytes]


class _RemoteFile:
    is_local = False

    def __init__(self, fetch: _Fetch, size: int):
        self._fetch = fetch
        self.size = size

    def read_into(self, view: memoryview, offset: int) -> None:
        for begin in range(0, len(view), REQUEST_BYTES):
            part = view[begin : begin + REQUEST_BYTES]
            part[:] = persistently(partial(self._whole, offset + begin, len(part)))

    def _whole(self, start: int, length: int) -> bytes:
        try:
            data = self._fetch(start, start + length)
        except ChangedError:
            raise
        except Exception as error:
            if status_of(error) == _PRECONDITION_FAILED:
                raise ChangedError("another version of it") from error
            if status_of(error) == _RANGE_NOT_SATISFIABLE:
                raise ChangedError(f"its end before byte {start + length:,}") from error
            raise
        if len(data) != length:
            raise TruncatedError(f"{len(data):,} of the {length:,} bytes at byte {start:,} came")
        return data

    def close(self) -> None:
        pass  # each request is complete in itself


def _total_of(content_range: str | None) -> int | None:
    """Return the total size in `bytes 0-99/1000`."""
    total = (content_range or "").rpartition("/")[2]
    return int(total) if total.isdigit() else None


class _S3Object:
    """Object that is read on the condition that it is the planned version, without a lookup."""

    def __init__(
        self, filesystem: fsspec.AbstractFileSystem, path: str, size: int, version_tag: str
    ) -> None:
        self._filesystem = filesystem
        bucket, key, version = filesystem.split_path(path)
        self._size, self._version_tag = size, version_tag
        self._request = {"Bucket": bucket, "Key": key}
        if version is not None:
            self._request["VersionId"] = version
        kind, _, etag = version_tag.partition("=")
        # Before 2026.3, s3fs lacks this option.
        if kind == "ETag" and not getattr(filesystem, "local_expiry_check", False):
            self._request["IfMatch"] = etag

    def fetch(self, start: int, end: int) -> bytes:
        request = {**self._request, "Range": f"bytes={start}-{end - 1}"}
        data, reply = sync(self._filesystem.loop, _get_object, self._filesystem, request)
        _check(
            self._size,
            self._version_tag,
            _total_of(reply.get("ContentRange")),
            version_tag_of(reply),
        )
        return bytes(data)


class _WebFile:
    """File on a web server, whose headers show whether it is the planned version."""

    def __init__(
        self, filesystem: fsspec.AbstractFileSystem, url: str, size: int, version_tag: str
    ) -> None:
        self._filesystem, self._url = filesystem, url
        self._size, self._version_tag = size, version_tag
        options = dict(filesystem.kwargs)
        self._headers = {**options.pop("headers", {}), "Accept-Encoding": "identity"}
        self._options = options
        kind, _, value = version_tag.partition("=")
        if kind == "ETag" and value.startswith('"'):  # a weak ETag never matches
            self._headers["If-Match"] = value

    def fetch(self, start: int, end: int) -> bytes:
        data: bytes = sync(self._filesystem.loop, self._get, start, end)
        return data

    async def _get(self, start: int, end: int) -> bytes:
        session = await self._filesystem.set_session()
        headers = {**self._headers, "Range": f"bytes={start}-{end - 1}"}
        url = self._filesystem.encode_url(self._url)
        async with session.get(url, headers=headers, **self._options) as reply:
            if reply.status == 404:
                raise FileNotFoundError(self._url)
            reply.raise_for_status()
            is_range = reply.status == _PARTIAL_CONTENT
            total = _total_of(reply.headers.get("Content-Range")) if is_range else None
            _check(self._size, self._version_tag, total, version_tag_of(reply.headers))
            if not is_range and (start, end) != (0, self._size):
                raise NoRangesError("the server does not support requests of byte ranges")
            data: bytes = await reply.read()
            return data


class StoredHandle(io.RawIOBase):
    """Stored file, or `size` bytes of it from `start` on, as a Python file.

    For libraries that jump around in a file: while reads are sequential, each request of a remote
    file is twice as large as the previous one, so that there are few requests and little unneeded
    data.
    """

    def __init__(self, stored: StoredFile, start: int = 0, size: int | None = None) -> None:
        self._stored = stored
        self._start = start
        self._size = stored.size - start if size is None else size
        self._position = 0
        self._block = b""
        self._block_start = 0
        self._next_amount = _FIRST_BLOCK

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go to a byte."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes, fewer only at the end.

        Memory is allocated for existing bytes only: a reader of a damaged file may request any
        number.
        """
        left = max(0, self._size - self._position)
        return super().read(left if size < 0 else min(size, left)) or b""

    def readinto(self, buffer: Any, /) -> int:
        """Fill the buffer, with fewer bytes only at the end."""
        view = memoryview(buffer).cast("B")
        view = view[: max(0, min(len(view), self._size - self._position))]
        done = 0
        while done < len(view):
            at = self._position - self._block_start
            if not 0 <= at < len(self._block):
                if self._stored.is_local or len(view) - done >= REQUEST_BYTES:
                    self._stored.read_into(view[done:], self._start + self._position)
                    self._position += len(view) - done
                    return len(view)
                self._load_block(len(view) - done)
                continue
            part = self._block[at : at + len(view) - done]
            view[done : done + len(part)] = part
            done += len(part)
            self._position += len(part)
        return done

    def _load_block(self, wanted: int) -> None:
        begin = self._position
        if begin == self._block_start + len(self._block):
            self._next_amount = min(2 * self._next_amount, REQUEST_BYTES)
        else:
            self._next_amount = _FIRST_BLOCK
            # A reader of a file's end continues with the bytes before it.
            begin = min(begin, max(0, self._size - _FIRST_BLOCK))
        amount = max(self._position - begin + wanted, self._next_amount)
        block = bytearray(min(amount, self._size - begin))
        self._stored.read_into(memoryview(block), self._start + begin)
        self._block, self._block_start = bytes(block), begin

    def close(self) -> None:
        """Drop the file, which its opener closes."""
        self._block = b""
        super().close()
