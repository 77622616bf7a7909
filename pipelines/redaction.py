"""Redaction of credentials in messages, logs and tracebacks.

`remember` registers a secret, and `redact` replaces every registered secret, however it is quoted,
by `***`. Messages of errors are redacted when the error is created; `redacted_output` redacts
everything that this process prints.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast
from urllib.parse import quote, quote_plus

REDACTED = "***"

# Replacing shorter texts would hide nothing and make messages unreadable.
_SHORTEST = 4
# All quoted forms of the secrets, the longest first.
_forms: tuple[str, ...] = ()


def remember(value: str) -> None:
    """Register a secret."""
    global _forms
    if len(value) < _SHORTEST or value in _forms:
        return
    quoted = {value, quote(value), quote(value, safe=""), quote_plus(value)}
    quoted |= {repr(value)[1:-1], json.dumps(value)[1:-1]}
    _forms = tuple(sorted({*_forms, *quoted}, key=len, reverse=True))


def redact(text: str) -> str:
    """Replace every registered secret in a text by `***`.

    >>> remember("correct-horse")
    >>> redact("denied for correct-horse")
    'denied for ***'
    """
    for form in _forms:
        text = text.replace(form, REDACTED)
    return text


def redact_error(error: BaseException) -> None:
    """Redact the texts of an error and of its causes, in place."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        link.args = tuple(redact(part) if isinstance(part, str) else part for part in link.args)
        link = link.__cause__ or link.__context__


class _RedactedText:
    """Text stream that redacts everything written to it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(redact(text))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def redacted_output() -> Iterator[None]:
    """Redact everything printed, logged or shown as a traceback while the block runs."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, _RedactedText(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
