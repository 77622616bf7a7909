"""Files as their storage holds them, read anywhere, each read checked to be of the same file.

A read gives all the bytes asked for or fails: too few of them are never taken for a file's end.
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

from pipelines.storage.filesystems import is_local, locate, mark_of, plain_path, protocols
from pipelines.storage.retries import TruncatedError, persistently, status_of

# Of one request at most: its bytes take several times as long to come as its answer to begin.
REQUEST_BYTES: Final = 8 << 20
_FIRST_BLOCK: Final = 64 << 10

_PRECONDITION_FAILED: Final = 412
_RANGE_NOT_SATISFIABLE: Final = 416
_PARTIAL_CONTENT: Final = 206


class ChangedError(OSError):
    """A file is not what it was; the text says what is there now."""


class NoRangesError(OSError):
    """A server gives whole files only."""


class StoredFile(Protocol):
    """An open file.

    `size`: in bytes. `is_local`: whether it is on a disk of this machine.
    """

    size: int
    is_local: bool

    def read_into(self, view: memoryview, offset: int) -> None:
        """Fill the view with the bytes from `offset` on.

        Raises:
            ChangedError: the file is not what it was when it was planned.
            OSError: it can't be read.
        """

    def close(self) -> None:
        """Close the file."""


def open_stored(
    url: str, options: Mapping[str, Any], *, size: int | None = None, mark: str = ""
) -> StoredFile:
    """Open a file, which is no part of an archive.

    Args:
        url: a path of the local disk or an fsspec URL.
        options: of its file system.
        size: what it must be, if that is known.
        mark: what it must be, if that is known; see `mark_of`.

    Raises:
        ChangedError: it has another size or mark.
        OSError: it can't be opened.
    """
    if (plain := plain_path(url)) is not None:
        return _LocalFile(plain, size, mark)
    filesystem, path = locate(url, options)
    if is_local(filesystem):
        return _LocalFile(path, size, mark)
    fetch: _Fetch
    if size is not None and hasattr(filesystem, "_call_s3"):
        fetch = _S3Object(filesystem, path, size, mark).fetch
    elif size is not None and "https" in filesystem.protocol:
        fetch = _WebFile(filesystem, path, size, mark).fetch
    else:
        # No condition goes with a request: what is there now is looked up once.
        info = persistently(lambda: filesystem.info(path))
        _check(size, mark, int(info["size"]), mark_of(info))
        if size is None:
            return open_stored(url, options, size=int(info["size"]), mark=mark_of(info))

        # The Hub's file system would read ahead.
        exactly = {"cache_type": "none"} if "hf" in protocols(filesystem) else {}

        def fetch(start: int, end: int) -> bytes:
            data: bytes = filesystem.cat_file(path, start=start, end=end, **exactly)
            return data

    return _RemoteFile(fetch, size)


def current_mark(url: str, options: Mapping[str, Any]) -> tuple[int, str]:
    """Size and mark of a file as it is now."""
    filesystem, path = locate(url, options)
    if is_local(filesystem):
        status = Path(path).stat()
        return status.st_size, local_mark(status)
    info = persistently(lambda: filesystem.info(path))
    return int(info["size"]), mark_of(info)


def read_range(
    filesystem: fsspec.AbstractFileSystem, path: str, start: int = 0, end: int | None = None
) -> bytes:
    """The bytes [start, end) of a file as it is now, fewer where it ends: one request."""
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
    """An object's bytes with what the server says of it."""
    reply = await filesystem._call_s3("get_object", **request)
    async with reply["Body"] as body:
        return await body.read(), reply


def local_mark(status: os.stat_result) -> str:
    """The mark of a file on a local disk."""
    return f"mtime_ns={status.st_mtime_ns}"


def _check(size: int | None, mark: str, found_size: int | None, found_mark: str) -> None:
    """Compare what is known; marks of two kinds say nothing about each other."""
    if size is not None and found_size is not None and found_size != size:
        raise ChangedError(f"{found_size:,} bytes")
    same_kind = mark.partition("=")[0] == found_mark.partition("=")[0]
    if same_kind and mark != found_mark:
        raise ChangedError(f"as many bytes, but changed since ({mark} → {found_mark})")


class _LocalFile:
    is_local = True

    def __init__(self, path: str, size: int | None, mark: str):
        self._number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        status = os.fstat(self._number)
        self.size = status.st_size if size is None else size
        self._mark = mark
        try:
            _check(size, mark, status.st_size, local_mark(status))
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
        # After the read, so that what was read is of the file that was planned.
        status = os.fstat(self._number)
        _check(self.size, self._mark, status.st_size, local_mark(status))

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
    """The size of the whole file in `bytes 0-99/1000`."""
    total = (content_range or "").rpartition("/")[2]
    return int(total) if total.isdigit() else None


class _S3Object:
    """Requests of ranges on the condition that the object is the one planned: no look-up before."""

    def __init__(
        self, filesystem: fsspec.AbstractFileSystem, path: str, size: int, mark: str
    ) -> None:
        self._filesystem = filesystem
        bucket, key, version = filesystem.split_path(path)
        self._size, self._mark = size, mark
        self._request = {"Bucket": bucket, "Key": key}
        if version is not None:
            self._request["VersionId"] = version
        kind, _, etag = mark.partition("=")
        if kind == "ETag" and not filesystem.local_expiry_check:
            self._request["IfMatch"] = etag

    def fetch(self, start: int, end: int) -> bytes:
        request = {**self._request, "Range": f"bytes={start}-{end - 1}"}
        data, reply = sync(self._filesystem.loop, _get_object, self._filesystem, request)
        _check(self._size, self._mark, _total_of(reply.get("ContentRange")), mark_of(reply))
        return bytes(data)


class _WebFile:
    """Requests of ranges to a web server; its headers tell whether the file is the same."""

    def __init__(
        self, filesystem: fsspec.AbstractFileSystem, url: str, size: int, mark: str
    ) -> None:
        self._filesystem, self._url = filesystem, url
        self._size, self._mark = size, mark
        options = dict(filesystem.kwargs)
        self._headers = {**options.pop("headers", {}), "Accept-Encoding": "identity"}
        self._options = options
        kind, _, value = mark.partition("=")
        if kind == "ETag" and value.startswith('"'):  # a weak one never matches
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
            _check(self._size, self._mark, total, mark_of(reply.headers))
            if not is_range and (start, end) != (0, self._size):
                raise NoRangesError("the server gives whole files only, no ranges of them")
            data: bytes = await reply.read()
            return data


class StoredHandle(io.RawIOBase):
    """A stored file, or `size` bytes of it from `start` on, as a Python file.

    For libraries that look for things in a file: as long as reads follow each other, each request
    of a remote file is twice as large as the last, so that few are made and little is read in vain.
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
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True

    def tell(self) -> int:
        """Where the next read begins."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go to a byte."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes; fewer come at the end only. No more room is taken than there are bytes:
        who reads a damaged file may ask for any number.
        """
        left = max(0, self._size - self._position)
        return super().read(left if size < 0 else min(size, left)) or b""

    def readinto(self, buffer: Any, /) -> int:
        """Fill the buffer; fewer bytes come at the end only."""
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
            # Who looks at a file's end looks at what is before it next.
            begin = min(begin, max(0, self._size - _FIRST_BLOCK))
        amount = max(self._position - begin + wanted, self._next_amount)
        block = bytearray(min(amount, self._size - begin))
        self._stored.read_into(memoryview(block), self._start + begin)
        self._block, self._block_start = bytes(block), begin

    def close(self) -> None:
        """Forget the file, which its opener closes."""
        self._block = b""
        super().close()
