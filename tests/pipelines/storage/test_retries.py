"""What is repeated, how often, and what is told in the end."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from pipelines.storage import retries
from pipelines.storage.retries import StorageError, TruncatedError, is_transient, persistently


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr(retries, "_sleep", found.append)
    return found


class ServerError(Exception):
    """As aiohttp's and Azure's."""

    def __init__(self, status: int) -> None:
        super().__init__(f"answer {status}")
        self.status = status


class BotoError(Exception):
    """As botocore's."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.response = {
            "Error": {"Code": code},
            "ResponseMetadata": {"HTTPStatusCode": status},
        }


class ClientPayloadError(Exception):
    """Of that name in aiohttp."""


def follows(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        ServerError(503),
        ServerError(429),
        BotoError(500, "InternalError"),
        BotoError(400, "RequestTimeout"),
        ConnectionResetError(),
        TimeoutError(),
        TruncatedError("short"),
        ClientPayloadError(),
        OSError(errno.EIO, "io"),
        follows(FileNotFoundError("x"), ServerError(503)),
        follows(OSError(errno.EBUSY, "busy"), BotoError(503, "SlowDown")),
        follows(ClientPayloadError(), ServerError(400)),
    ],
    ids=repr,
)
def test_what_may_pass_is_repeated(error: Exception, pauses: list[float]) -> None:
    assert is_transient(error)
    left = [error] * 5

    def action() -> str:
        if left:
            raise left.pop()
        return "done"

    assert persistently(action) == "done"
    assert len(pauses) == 5
    for number, pause in enumerate(pauses):
        assert 0 <= pause <= 0.5 * 2**number


@pytest.mark.parametrize(
    "error",
    [
        ServerError(403),
        BotoError(404, "NoSuchKey"),
        FileNotFoundError("x"),
        PermissionError("x"),
        OSError(errno.ENOSPC, "full"),
        ValueError("a mistake"),
        follows(PermissionError("x"), ServerError(403)),
        follows(ServerError(412), ConnectionResetError()),
    ],
    ids=repr,
)
def test_what_does_not_pass_is_raised_at_once(error: Exception, pauses: list[float]) -> None:
    with pytest.raises(OSError) as found:
        persistently(raising(error))
    assert not pauses
    if isinstance(error, OSError):
        assert found.value is error
    else:
        assert isinstance(found.value, StorageError)
        assert found.value.__cause__ is error


def test_what_stays_is_raised_with_the_number_of_attempts(pauses: list[float]) -> None:
    with pytest.raises(StorageError, match=r"ServerError: answer 503 \(the same 8 times in 0 s\)"):
        persistently(raising(follows(FileNotFoundError("x"), ServerError(503))))
    assert len(pauses) == retries.ATTEMPTS - 1
    assert sum(pauses) <= 0.5 + 1 + 2 + 4 + 8 + 16 + 20


def raising(error: Exception) -> Callable[[], None]:
    def action() -> None:
        raise error

    return action


def test_a_chain_of_errors_that_bites_its_tail_ends() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert not is_transient(first)
