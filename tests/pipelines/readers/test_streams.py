"""Reading ahead; what streams give is tested with the readers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import fsspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import times

from pipelines.readers.streams import ByteArray, _ReadAhead, open_stream
from pipelines.tasks.listing import InputFile

DATA = bytes(range(256)) * 2
PATIENCE_SECONDS = 20.0


class Recorded:
    """A stream of bytes that notes how far it was read, and fails at a byte."""

    def __init__(self, data: bytes = DATA, fails_at: int | None = None) -> None:
        self.position = 0
        self.furthest = 0
        self.threads: set[str] = set()
        self.read = threading.Semaphore(0)
        self.closed = False
        self._data = data
        self._fails_at = fails_at

    @property
    def at_end(self) -> bool:
        return self.position >= len(self._data)

    def available(self, amount: int) -> int:
        return min(amount, len(self._data) - self.position)

    def read_into(self, target: ByteArray) -> int:
        part = self._data[self.position : self.position + len(target)]
        if self._fails_at is not None and self.position + len(part) > self._fails_at:
            raise OSError(f"damaged at byte {self._fails_at}")
        target[: len(part)] = np.frombuffer(part, np.uint8)
        self.skip_to(self.position + len(part))
        self.threads.add(threading.current_thread().name)
        self.read.release()
        return len(part)

    def skip_to(self, offset: int) -> None:
        self.position = offset
        self.furthest = max(self.furthest, offset)

    def close(self) -> None:
        self.closed = True


def taken(stream: _ReadAhead, amount: int) -> bytes:
    target = np.empty(amount, np.uint8)
    return target[: stream.read_into(target)].tobytes()


@given(
    steps=st.lists(st.tuples(st.booleans(), st.integers(0, len(DATA))), max_size=12),
    chunk=st.integers(1, 70),
    until=st.integers(0, len(DATA)),
)
@settings(max_examples=times(2))
def test_reads_and_skips_give_the_bytes_of_the_stream(
    steps: list[tuple[bool, int]], chunk: int, until: int
) -> None:
    stream = _ReadAhead(Recorded(), chunk, until)
    position = 0
    for is_read, number in steps:
        if is_read:
            found = taken(stream, number % 90)
            assert found == DATA[position : position + number % 90]
            position += len(found)
        else:
            stream.skip_to(number)
            position = number
        if stream.at_end:
            assert position == len(DATA)
    while found := taken(stream, 50):
        assert found == DATA[position : position + 50]
        position += len(found)
    assert stream.at_end
    assert position == len(DATA)
    stream.close()


@pytest.fixture
def recorded() -> Iterator[tuple[Recorded, _ReadAhead]]:
    source = Recorded()
    stream = _ReadAhead(source, 100, until=330)
    yield source, stream
    stream.close()


def test_the_next_bytes_are_read_before_they_are_asked_for(
    recorded: tuple[Recorded, _ReadAhead],
) -> None:
    source, stream = recorded
    taken(stream, 100)
    taken(stream, 100)
    for _ in range(3):
        assert source.read.acquire(timeout=PATIENCE_SECONDS)
    assert source.position == 300
    assert len(source.threads) == 2
    assert taken(stream, 100) == DATA[200:300]


def test_what_is_read_ahead_is_bounded(recorded: tuple[Recorded, _ReadAhead]) -> None:
    source, stream = recorded
    for wanted in range(0, 330, 10):
        taken(stream, 10)
        stream._await_chunk()
        assert source.furthest <= wanted + 10 + 2 * 100
        assert source.furthest <= 330
    assert source.furthest == 330
    assert taken(stream, 10) == DATA[330:340]


def test_nothing_is_read_ahead_until_one_read_follows_another(
    recorded: tuple[Recorded, _ReadAhead],
) -> None:
    source, stream = recorded
    for offset in (200, 150, 30):
        stream.skip_to(offset)
        taken(stream, 5)
        stream._await_chunk()
        assert source.position == offset + 5


def test_an_error_comes_with_the_read_that_meets_it() -> None:
    stream = _ReadAhead(Recorded(fails_at=250), 100)
    assert taken(stream, 100) + taken(stream, 100) == DATA[:200]
    with pytest.raises(OSError, match="damaged at byte 250"):
        taken(stream, 100)
    stream.close()


def test_closing_waits_for_what_is_being_read() -> None:
    source = Recorded()
    stream = _ReadAhead(source, 100)
    taken(stream, 10)
    taken(stream, 10)
    stream.close()
    assert source.closed
    assert source.position == 120


def test_only_files_that_are_compressed_or_far_away_are_read_ahead(tmp_path: Path) -> None:
    def is_read_ahead(url: str, compression: str | None) -> bool:
        file = InputFile(
            source=0,
            source_name=None,
            url=url,
            name="f",
            size=3,
            version_tag="",
            compression=compression,
        )
        stream = open_stream(file, {}, 1 << 20)
        stream.close()
        return isinstance(stream, _ReadAhead)

    (tmp_path / "f").write_bytes(b"abc")
    fsspec.filesystem("memory").pipe("/streams/f", b"abc")
    assert not is_read_ahead(str(tmp_path / "f"), None)
    assert is_read_ahead(str(tmp_path / "f"), "gzip")
    assert is_read_ahead("memory://streams/f", None)
