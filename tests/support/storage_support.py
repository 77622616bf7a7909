"""Helpers for tests of storages: servers that count and fail, planned files, their documents."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from werkzeug.serving import make_server
from werkzeug.wrappers import Request, Response

from pipelines.config import SourceConfig
from pipelines.readers import ReadOptions, read_range
from pipelines.readers.streams import open_stream
from pipelines.tasks.listing import InputFile, list_files
from pipelines.tasks.plan import Range

SECRET = "g3h31m-w1e-n1e+/="
KEY = "AKIAGEHEIMGEHEIM"

FAULTS = ("slow_down", "internal_error", "unavailable", "reset", "truncated", "silent")


@dataclass
class Seen:
    """Request as the server received it."""

    method: str
    path: str
    query: str
    range: str | None
    status: int
    sent: int = 0


@dataclass
class Server:
    """WSGI application on the loopback address that records requests and injects faults.

    Attributes:
        faults: what becomes of the next requests that `fails` is true for; None: nothing.
    """

    application: Callable[..., Iterable[bytes]]
    requests: list[Seen] = field(default_factory=list)
    faults: Iterator[str | None] = field(default_factory=lambda: iter(()))
    fails: Callable[[Request], bool] = lambda request: True
    silence: float = 3.0

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        request = Request(environ)
        seen = Seen(
            request.method, request.path, request.query_string.decode(),
            request.headers.get("Range"), 0,
        )  # fmt: skip
        with self._lock:
            self.requests.append(seen)
            fault = next(self.faults, None) if self.fails(request) else None
        if fault == "slow_down":
            return self._refuse(seen, 503, "SlowDown")(environ, start_response)
        if fault == "internal_error":
            return self._refuse(seen, 500, "InternalError")(environ, start_response)
        if fault == "not_implemented":
            return self._refuse(seen, 501, "NotImplemented")(environ, start_response)
        if fault == "unavailable":
            seen.status = 503
            return Response("try later", 503)(environ, start_response)
        if fault == "reset":
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            start_response("200 OK", [])
            return []
        if fault == "silent":
            time.sleep(self.silence)

        def started(status: str, headers: Any, *rest: Any) -> Any:
            seen.status = int(status.split()[0])
            return start_response(status, headers, *rest)

        body = b"".join(self.application(environ, started))
        if fault == "truncated":
            body = body[: len(body) // 2]  # and the connection ends
        seen.sent = len(body)
        return [body]

    _lock: Any = field(default_factory=threading.Lock)

    def _refuse(self, seen: Seen, status: int, code: str) -> Response:
        seen.status = status
        text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}!</Message></Error>"
        return Response(text, status, content_type="application/xml")

    def fail(self, *faults: str | None, when: Callable[[Request], bool] | None = None) -> None:
        """Inject these faults, in order, into the next requests for which `when` is true."""
        self.faults = iter(faults)
        self.fails = when or (lambda request: True)

    def fail_always(self, fault: str, when: Callable[[Request], bool] | None = None) -> None:
        self.fail(when=when)
        self.faults = iter(lambda: fault, None)

    def fail_at_random(self, seed: int, share: float) -> None:
        """Inject seeded random faults, at most four in a row."""

        def chosen() -> Iterator[str | None]:
            numbers, row = random.Random(seed), 0
            while True:
                failing = numbers.random() < share and row < 4
                row = row + 1 if failing else 0
                yield numbers.choice(FAULTS[:-1]) if failing else None

        self.fail()
        self.faults = chosen()

    def forget(self) -> None:
        self.requests.clear()
        self.fail()

    def numbers(self) -> dict[str, int]:
        """Return the number of requests of each method."""
        methods = [seen.method for seen in self.requests]
        return {method: methods.count(method) for method in sorted(set(methods))}


def serve(server: Server) -> Iterator[str]:
    running = make_server("127.0.0.1", 0, server, threaded=True)
    thread = threading.Thread(target=running.serve_forever, args=[0.02], daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{running.server_port}"
    running.shutdown()
    thread.join()


@dataclass
class S3:
    """Separate bucket on the S3 server."""

    server: Server
    endpoint: str
    bucket: str

    @property
    def options(self) -> dict[str, Any]:
        return {
            "key": KEY,
            "secret": SECRET,
            "endpoint_url": self.endpoint,
            "client_kwargs": {"region_name": "us-east-1"},
        }

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}"

    @property
    def backend(self) -> Any:
        """Return the server's own memory, to access files without a request."""
        from moto.s3.models import s3_backends

        return s3_backends["123456789012"]["aws"]

    def put(self, name: str, data: bytes) -> None:
        self.backend.put_object(self.bucket, name, data)

    def get(self, name: str) -> bytes:
        value: bytes = self.backend.get_object(self.bucket, name).value
        return value

    @property
    def names(self) -> set[str]:
        return set(self.backend.buckets[self.bucket].keys)

    @property
    def unfinished_uploads(self) -> int:
        return len(self.backend.buckets[self.bucket].multiparts)


@dataclass
class Web:
    """Files of an HTTP server; `ranges`: True if it supports range requests."""

    server: Server
    url: str
    files: dict[str, bytes]
    ranges: bool = True
    etags: bool = True
    token: str | None = None  # that a request must have


# --- files and their documents


def listed(url: str, options: Mapping[str, Any] | None = None) -> list[InputFile]:
    source = SourceConfig(files=(url,), separator="\n", storage_options=dict(options or {}))
    return list_files(source)


def file_at(url: str, options: Mapping[str, Any] | None = None) -> InputFile:
    (file,) = listed(url, options)
    return file


def text_of(file: InputFile, options: Mapping[str, Any] | None = None) -> bytes:
    """Return the whole text, read like the readers do."""
    stream = open_stream(file, options or {}, 2 << 20)
    parts = []
    try:
        while not stream.at_end:
            target = np.empty(max(stream.available(2 << 20), 1), np.uint8)
            parts.append(target[: stream.read_into(target)].tobytes())
    finally:
        stream.close()
    return b"".join(parts)


def documents_of(
    file: InputFile, options: Mapping[str, Any] | None = None, range_bytes: int = 1000
) -> list[bytes]:
    """Return the documents of all ranges of a file, in order."""
    found = []
    step = range_bytes if file.compression is None else max(file.size, 1)
    for start in range(0, file.size, step):
        part = Range(file=0, start=start, end=min(start + step, file.size))
        for batch in read_range(file, part, ReadOptions(separator=b"\n"), options):
            found += [batch.document(i) for i in range(len(batch))]
    return found


def some_lines(number: int) -> bytes:
    return b"".join(b"document %d with words\n" % i for i in range(number))
