"""Servers on the loopback address: S3 (moto) and HTTP with ranges, both counting and failing."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import fsspec
import pytest
from moto.server import DomainDispatcherApplication, create_backend_app
from storage_support import S3, Server, Web, serve
from werkzeug.datastructures import Headers
from werkzeug.wrappers import Request, Response

from pipelines.storage import retries


@pytest.fixture(scope="session")
def s3_server() -> Iterator[tuple[Server, str]]:
    server = Server(DomainDispatcherApplication(create_backend_app))
    running = serve(server)
    yield server, next(running)
    for _ in running:
        pass


@pytest.fixture
def s3(s3_server: tuple[Server, str]) -> Iterator[S3]:
    server, endpoint = s3_server
    bucket = S3(server, endpoint, f"b-{uuid.uuid4().hex}")
    bucket.backend.create_bucket(bucket.bucket, "us-east-1")
    server.forget()
    yield bucket
    server.forget()


@pytest.fixture
def web() -> Iterator[Web]:
    files: dict[str, bytes] = {}

    @Request.application
    def application(request: Request) -> Response:
        if found.token is not None and request.headers.get("X-Token") != found.token:
            return Response("who are you?", 403)
        data = files.get(request.path)
        if data is None:
            return Response("no such file", 404)
        headers = Headers({"Accept-Ranges": "bytes" if found.ranges else "none"})
        if found.etags:
            etag = f'"{hash(data) & 0xFFFFFFFF:x}"'
            headers["ETag"] = etag
            if request.headers.get("If-Match") not in (None, etag):
                return Response("another version", 412)
        asked = request.range
        if asked is None or not found.ranges:
            return Response(data, 200, headers)
        begin, end = asked.ranges[0]
        end = len(data) if end is None else min(end, len(data))
        if begin >= len(data):
            return Response("no such range", 416)
        headers["Content-Range"] = f"bytes {begin}-{end - 1}/{len(data)}"
        return Response(data[begin:end], 206, headers)

    server = Server(application)
    running = serve(server)
    found = Web(server, next(running), files)
    yield found
    for _ in running:
        pass


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses between repeated requests are noted, and not made."""
    pauses: list[float] = []
    monkeypatch.setattr(retries, "_sleep", pauses.append)
    return pauses


@pytest.fixture
def memory() -> Iterator[str]:
    """The URL of an empty folder in memory."""
    name = uuid.uuid4().hex
    yield f"memory://{name}"
    filesystem = fsspec.filesystem("memory")
    if filesystem.exists(f"/{name}"):
        filesystem.rm(f"/{name}", recursive=True)
