"""Requests to a storage, repeated as long as their error may be temporary.

The libraries differ in what they repeat: s3fs throttled and broken requests, botocore below it
errors of the server, fsspec's HTTP nothing, gcsfs and the Azure client most errors. Nested
repetitions would multiply. So one rule applies to all, and the libraries' own repetition is
switched off where they allow it (`filesystems.py`).
"""

from __future__ import annotations

import errno
import http.client
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pipelines.redaction import redact, redact_error

if TYPE_CHECKING:
    from tenacity import Retrying

ATTEMPTS: Final = 8
# No attempt starts after this many seconds.
LAST_BEGIN_SECONDS: Final = 180.0
# Pauses are random, up to 0.5, 1, 2, 4, 8, 16 and 20 seconds.
_FIRST_PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 20.0

_Result = TypeVar("_Result")

_TRANSIENT_STATUS: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
# S3 reports these as errors of the caller (400).
_TRANSIENT_CODES: Final = frozenset(
    {"RequestTimeout", "BadDigest", "IncompleteBody", "XAmzContentSHA256Mismatch", "SlowDown"}
)
# By name, to avoid importing libraries for their errors: aiohttp, botocore and Azure.
_TRANSIENT_NAMES: Final = frozenset(
    {
        "ClientConnectionError",
        "ClientPayloadError",
        "FSTimeoutError",
        "HTTPClientError",
        "IncompleteReadError",
        "ResponseParserError",
        "ResponseStreamingError",
        "ServiceRequestError",
        "ServiceResponseError",
        "TransportError",
    }
)
_TRANSIENT_ERRNO: Final = frozenset(
    {errno.EIO, errno.EREMOTEIO, errno.EBUSY, errno.EAGAIN, errno.ENETUNREACH, errno.EHOSTUNREACH}
)


class StorageError(OSError):
    """A request to a storage failed. The text contains its answer and the number of attempts."""


class TruncatedError(OSError):
    """Fewer bytes arrived than requested, in the middle of a file; the request is repeated."""


def persistently(action: Callable[[], _Result]) -> _Result:
    """Return the result of an action on a storage, repeating it while its error may be temporary.

    Raises:
        OSError: The error of the action, if repeating is useless.
        StorageError: All attempts failed, or the error is not an OSError.
    """
    begun = time.monotonic()
    tries = 1
    failed: Exception | None = None

    def attempt() -> _Result:
        nonlocal tries, failed
        if failed is not None:
            error, failed = failed, None
            raise error
        tries += 1
        return action()

    try:
        try:
            return action()
        except Exception as error:
            if not is_transient(error):
                raise
            failed = error
        result: _Result = _policy()(attempt)
        return result
    except Exception as error:
        redact_error(error)
        if isinstance(error, OSError) and not is_transient(error):
            raise
        seconds = time.monotonic() - begun
        often = f" (the same {tries} times in {seconds:.0f} s)" if tries > 1 else ""
        raise StorageError(describe(error) + often) from error


def _policy() -> Retrying:
    import tenacity  # takes long to import, and hardly any command needs it

    return tenacity.Retrying(
        retry=tenacity.retry_if_exception(is_transient),
        stop=tenacity.stop_after_attempt(ATTEMPTS) | tenacity.stop_after_delay(LAST_BEGIN_SECONDS),
        wait=tenacity.wait_random_exponential(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS),
        sleep=_sleep,
        reraise=True,
    )


def _sleep(seconds: float) -> None:
    time.sleep(seconds)


def describe(error: BaseException) -> str:
    """Return the text of the most specific error in a chain, for a message."""
    if isinstance(error, StorageError):
        return redact(str(error))
    telling = _telling(error) or error
    return redact(f"{type(telling).__name__}: {str(telling) or repr(telling)}")


def is_transient(error: BaseException) -> bool:
    """Return True if the same request may succeed later."""
    telling = _telling(error)
    if telling is None:
        return isinstance(error, OSError) and error.errno in _TRANSIENT_ERRNO
    if _is_broken_connection(telling) or _code(telling) in _TRANSIENT_CODES:
        return True
    return _status(telling) in _TRANSIENT_STATUS


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status in the server's answer, or None for other errors."""
    telling = _telling(error)
    return None if telling is None or _is_broken_connection(telling) else _status(telling)


def _telling(error: BaseException) -> BaseException | None:
    """Return the first error of the chain that is a broken connection or a server's answer.

    Libraries turn an answer of 503 into an error that looks like a missing file, and a broken
    connection into one that looks like an answer of 400.
    """
    return next(
        (
            link
            for link in _chain(error)
            if _is_broken_connection(link) or _status(link) is not None
        ),
        None,
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes."""
    link: BaseException | None = error
    for _ in range(16):
        if link is None:
            return
        yield link
        link = link.__cause__ or link.__context__


def _is_broken_connection(error: BaseException) -> bool:
    if isinstance(
        error, ConnectionError | TimeoutError | TruncatedError | http.client.IncompleteRead
    ):
        return True
    return any(kind.__name__ in _TRANSIENT_NAMES for kind in type(error).__mro__)


def _response(error: BaseException) -> dict[str, Any]:
    response = getattr(error, "response", None)  # of botocore's ClientError
    return response if isinstance(response, dict) else {}


def _code(error: BaseException) -> str | None:
    code = _response(error).get("Error", {}).get("Code")
    return code if isinstance(code, str) else None


def _status(error: BaseException) -> int | None:
    for name in ("status", "status_code", "code"):
        found = getattr(error, name, None)
        if isinstance(found, int) and 300 <= found < 600:
            return found
    response = getattr(error, "response", None)  # of the Hub's library
    found = getattr(response, "status_code", None)
    if isinstance(found, int):
        return found
    found = _response(error).get("ResponseMetadata", {}).get("HTTPStatusCode")
    return found if isinstance(found, int) else None
