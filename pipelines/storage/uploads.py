"""Upload of local files to a storage, where they become visible only when complete.

Object stores show an object when its upload is complete. Other storages may show a file while it is
being written: there it is written under another name, and renamed.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import fsspec
from fsspec.asyn import sync

from pipelines.storage.filesystems import OBJECT_STORES, is_local, protocols
from pipelines.storage.retries import persistently, status_of

# Larger files are uploaded in parts of this size, each repeated separately; S3 allows 10,000.
PART_BYTES: Final = 16 << 20
_MOST_PARTS: Final = 10_000

# Limit for one request. The client's own time limits only start with the response: if a connection
# breaks while sending, it could wait for minutes.
REQUEST_SECONDS = 300.0

# Where a rename cannot replace a file, a file that is being replaced is missing for less than this.
AWAY_SECONDS = 1.0

_Call = Callable[..., Any]

_PRECONDITION_FAILED: Final = 412
_NOT_IMPLEMENTED: Final = 501
_WHOLE_WHEN_VISIBLE: Final = OBJECT_STORES | {"memory"}


def temporary_path(path: str) -> str:
    """Return the path under which the file `path` is written, in the same directory."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}.{name}.{secrets.token_hex(8)}.tmp"


def shows_unfinished(filesystem: fsspec.AbstractFileSystem) -> bool:
    """Return True if a file is visible, under a temporary name, while it is being written."""
    if is_local(filesystem):
        return True
    renames = type(filesystem).mv is not fsspec.AbstractFileSystem.mv  # the base class copies
    return renames and _WHOLE_WHEN_VISIBLE.isdisjoint(protocols(filesystem))


def upload(filesystem: fsspec.AbstractFileSystem, source: Path, path: str) -> None:
    """Write a file to a storage atomically.

    Raises:
        OSError: It could not be written, and nothing is visible.
    """
    if hasattr(filesystem, "_call_s3"):
        _upload_s3(filesystem, source, path)
    elif shows_unfinished(filesystem):
        _put_and_rename(filesystem, path, lambda to: filesystem.put_file(str(source), to))
    else:
        persistently(lambda: filesystem.put_file(str(source), path))


def create(filesystem: fsspec.AbstractFileSystem, path: str, data: bytes) -> bool:
    """Write a small file unless it exists. Return True if it was written.

    This is one conditional request if the storage supports that. Otherwise existence is checked
    first, and two concurrent writers may both succeed.

    Raises:
        OSError: It could not be written.
    """
    try:
        persistently(lambda: _create(filesystem, path, data))
    except FileExistsError:
        return False
    except OSError as error:
        if status_of(error) == _PRECONDITION_FAILED:
            return False
        if status_of(error) != _NOT_IMPLEMENTED:
            raise
        if persistently(lambda: filesystem.exists(path)):
            return False
        persistently(lambda: filesystem.pipe_file(path, data))
    return True


def _create(filesystem: fsspec.AbstractFileSystem, path: str, data: bytes) -> None:
    if is_local(filesystem):
        temporary = Path(temporary_path(path))
        try:
            temporary.write_bytes(data)
            Path(path).hardlink_to(temporary)  # a hard link never replaces a file
        finally:
            temporary.unlink(missing_ok=True)
    elif hasattr(filesystem, "_call_s3"):
        bucket, key, _ = filesystem.split_path(path)
        _call(filesystem, "put_object", Bucket=bucket, Key=key, Body=data, IfNoneMatch="*")
    elif not shows_unfinished(filesystem):
        filesystem.pipe_file(path, data, mode="create")
    elif filesystem.exists(path) or _comes_back(filesystem, path):
        raise FileExistsError(path)
    else:
        _put_and_rename(filesystem, path, lambda to: filesystem.pipe_file(to, data))


def _comes_back(filesystem: fsspec.AbstractFileSystem, path: str) -> bool:
    """Return True if a file was missing only while it was being replaced."""
    time.sleep(AWAY_SECONDS)
    return bool(filesystem.exists(path))


def _put_and_rename(
    filesystem: fsspec.AbstractFileSystem, path: str, put: Callable[[str], None]
) -> None:
    temporary = temporary_path(path)
    try:
        persistently(lambda: filesystem.makedirs(filesystem._parent(path), exist_ok=True))
        persistently(lambda: put(temporary))
        try:
            filesystem.mv(temporary, path)
        except OSError:  # some storages cannot rename over an existing file
            if not filesystem.exists(path):
                raise
            filesystem.rm_file(path)
            filesystem.mv(temporary, path)
    except BaseException:
        with suppress(Exception):
            filesystem.rm_file(temporary)
        raise


def _upload_s3(filesystem: fsspec.AbstractFileSystem, source: Path, path: str) -> None:
    bucket, key, _ = filesystem.split_path(path)
    target = {"Bucket": bucket, "Key": key}
    size = source.stat().st_size

    def call(method: str, **arguments: Any) -> Any:
        return persistently(lambda: _call(filesystem, method, **target, **arguments))

    if size <= PART_BYTES:
        call("put_object", Body=source.read_bytes())
        return
    upload_id = call("create_multipart_upload")["UploadId"]
    try:
        parts = _upload_parts(call, source, upload_id, max(PART_BYTES, -(-size // _MOST_PARTS)))
        _complete(call, upload_id, parts, size)
    except BaseException:
        # Remaining parts would be stored, and paid for, until someone removes them. Try once only:
        # the storage may be what fails.
        with suppress(Exception):
            _call(filesystem, "abort_multipart_upload", **target, UploadId=upload_id)
        raise


def _call(filesystem: fsspec.AbstractFileSystem, method: str, **arguments: Any) -> Any:
    return sync(filesystem.loop, filesystem._call_s3, method, timeout=REQUEST_SECONDS, **arguments)


def _complete(call: _Call, upload_id: str, parts: list[dict[str, Any]], size: int) -> None:
    try:
        call("complete_multipart_upload", UploadId=upload_id, MultipartUpload={"Parts": parts})
    except FileNotFoundError:
        # A repeated request, whose response was lost, fails because the upload is already complete.
        if call("head_object")["ContentLength"] != size:
            raise


def _upload_parts(
    call: _Call, source: Path, upload_id: str, part_bytes: int
) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    with source.open("rb") as file:
        while part := file.read(part_bytes):
            number = len(parts) + 1
            reply = call("upload_part", UploadId=upload_id, PartNumber=number, Body=part)
            parts.append({"PartNumber": number, "ETag": reply["ETag"]})
    return parts
