"""Keeps credentials out of everything that people see: messages, logs, tracebacks.

`remember` takes note of a value, and `scrub` replaces every noted value, however it is quoted, by
`***`. Messages of errors are scrubbed when the error is made; `scrubbed_output` does the same for
what this process prints.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast
from urllib.parse import quote, quote_plus

SCRUBBED = "***"

# Replacing shorter texts would hide nothing and make messages unreadable.
_SHORTEST = 4
# Every form in which a value may turn up, the longest first.
_forms: tuple[str, ...] = ()


def remember(value: str) -> None:
    """Takes note of a value that nobody may see."""
    global _forms
    if len(value) < _SHORTEST or value in _forms:
        return
    quoted = {value, quote(value), quote(value, safe=""), quote_plus(value)}
    quoted |= {repr(value)[1:-1], json.dumps(value)[1:-1]}
    _forms = tuple(sorted({*_forms, *quoted}, key=len, reverse=True))


def scrub(text: str) -> str:
    """The text with `***` in the place of every value noted.

    >>> remember("correct-horse")
    >>> scrub("denied for correct-horse")
    'denied for ***'
    """
    for form in _forms:
        text = text.replace(form, SCRUBBED)
    return text


def scrub_error(error: BaseException) -> None:
    """Scrubs the texts of an error and of those that it follows from, in place."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        link.args = tuple(scrub(part) if isinstance(part, str) else part for part in link.args)
        link = link.__cause__ or link.__context__


class _ScrubbedText:
    """A text stream that scrubs what is written to it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(scrub(text))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def scrubbed_output() -> Iterator[None]:
    """While the block runs, what is printed, logged or shown as a traceback is scrubbed."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, _ScrubbedText(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
