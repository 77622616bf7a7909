"""Small files far away are asked for several at a time; documents and errors stay in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from storage_support import S3, listed

from pipelines.errors import ChangedFileError
from pipelines.readers import ReadOptions
from pipelines.readers.small_files import FETCHED_AT_ONCE, SMALL_BYTES
from pipelines.readers.tasks import SourceReading, TaskWork, read_task
from pipelines.tasks.listing import InputFile


@pytest.fixture
def at_once(s3: S3, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many requests the server was at, whenever one began; each takes 50 ms."""
    answer, lock = s3.server.application, threading.Lock()
    running, seen = [0], [0]

    def slowly(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        with lock:
            running[0] += 1
            seen.append(running[0])
        time.sleep(0.05)
        with lock:
            running[0] -= 1
        return answer(environ, start)

    monkeypatch.setattr(s3.server, "application", slowly)
    return seen


def documents(files: Sequence[InputFile], s3: S3) -> Iterator[bytes]:
    parts = tuple((file, 0, file.size) for file in files)
    work = TaskWork(index=0, of=1, hash=0, parts=parts)
    reading = SourceReading(options=ReadOptions(), storage_options=s3.options)
    for batch in read_task(work, [reading]):
        yield from (batch.document(i) for i in range(len(batch)))


def put(s3: S3, count: int) -> list[InputFile]:
    for i in range(count):
        s3.put(f"{i:03d}.txt", b"document %d" % i)
    files = listed(f"{s3.url}/*.txt", s3.options)
    s3.server.forget()
    return files


@pytest.mark.slow
def test_many_small_files_take_a_request_each_several_at_a_time(s3: S3, at_once: list[int]) -> None:
    files = put(s3, 64)
    assert list(documents(files, s3)) == [b"document %d" % i for i in range(64)]
    assert 4 < max(at_once) <= FETCHED_AT_ONCE
    assert s3.server.numbers() == {"GET": 64}


@pytest.mark.slow
def test_not_many_more_files_are_fetched_than_asked_for(s3: S3) -> None:
    files = put(s3, 64)
    reading = documents(files, s3)
    assert next(reading) == b"document 0"
    reading.close()  # type: ignore[attr-defined]
    assert len(s3.server.requests) <= FETCHED_AT_ONCE + 1
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("fetch")]


def test_large_files_among_small_ones_stay_in_their_place(s3: S3) -> None:
    large = b"x" * (SMALL_BYTES + 1)
    for name, data in (("0", b"a"), ("1", large), ("2", b""), ("3", b"b"), ("4", large)):
        s3.put(name, data)
    files = [file for file in listed(f"{s3.url}/*", s3.options) if file.size]
    assert list(documents(files, s3)) == [b"a", large, b"b", large]


def test_a_changed_file_is_an_error_after_the_documents_before_it(s3: S3) -> None:
    files = put(s3, 10)
    s3.put("004.txt", b"other text")
    found = documents(files, s3)
    assert [next(found) for _ in range(4)] == [b"document %d" % i for i in range(4)]
    with pytest.raises(ChangedFileError, match=r"004\.txt"):
        next(found)


def test_a_file_that_is_gone_is_an_error_that_names_it(s3: S3) -> None:
    (file,) = put(s3, 1)
    gone = replace(file, url=f"{s3.url}/gone.txt", name="gone.txt")
    with pytest.raises(ChangedFileError, match=r"gone\.txt"):
        list(documents([file, gone], s3))
