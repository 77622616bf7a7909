"""A local file becomes a file of a storage: visible when all of it is there, never before."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import fsspec
from fsspec.asyn import sync

from pipelines.retries import persistently

# Larger files go up in parts of this size, each repeated alone if it fails; S3 allows 10,000.
PART_BYTES: Final = 16 << 20
_MOST_PARTS: Final = 10_000

# Of one request. The time limits of the client begin with the answer: when a connection breaks at
# the wrong moment of sending, it would wait for minutes.
REQUEST_SECONDS = 300.0

_Call = Callable[..., Any]


def upload(filesystem: fsspec.AbstractFileSystem, source: Path, path: str) -> None:
    """Write a file to a storage as a whole.

    Raises:
        OSError: it could not be written; nothing is visible then.
    """
    if hasattr(filesystem, "_call_s3"):
        _upload_s3(filesystem, source, path)
    else:
        persistently(lambda: filesystem.put_file(str(source), path))


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
        # Its parts would be stored, and paid for, until somebody looks. Once: the storage may be
        # what fails.
        with suppress(Exception):
            _call(filesystem, "abort_multipart_upload", **target, UploadId=upload_id)
        raise


def _call(filesystem: fsspec.AbstractFileSystem, method: str, **arguments: Any) -> Any:
    return sync(filesystem.loop, filesystem._call_s3, method, timeout=REQUEST_SECONDS, **arguments)


def _complete(call: _Call, upload_id: str, parts: list[dict[str, Any]], size: int) -> None:
    try:
        call("complete_multipart_upload", UploadId=upload_id, MultipartUpload={"Parts": parts})
    except FileNotFoundError:
        # What was repeated because its answer got lost finds nothing left to do.
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
