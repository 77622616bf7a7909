"""JSON for people and programs, written fast and with little memory even for a million entries.

Python writes indented JSON with an encoder that is itself in Python. Here only the outer levels are
indented; each item of a list is on one line, which the encoder in C writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

_PARTS_AT_ONCE: Final = 1 << 14


def encoded(value: object) -> Iterator[bytes]:
    r"""Yield the JSON of a value, with sorted keys, in blocks.

    >>> print(b"".join(encoded({"b": [{"x": 1}, {"x": 2}], "a": {"c": []}})).decode(), end="")
    {
      "a": {
        "c": []
      },
      "b": [
        {"x": 1},
        {"x": 2}
      ]
    }
    """
    parts = _parts(value, "\n")
    while block := "".join(islice(parts, _PARTS_AT_ONCE)):
        yield block.encode()
    yield b"\n"


def _parts(value: object, line: str) -> Iterator[str]:
    """Yield parts of the text. `line` starts a new line with the value's indentation."""
    inner = f"{line}  "
    if isinstance(value, Mapping) and value:
        begin = "{"
        for key in sorted(value):
            yield f"{begin}{inner}{_one_line(key)}: "
            yield from _parts(value[key], inner)
            begin = ","
        yield f"{line}}}"
    elif isinstance(value, list | tuple) and any(
        isinstance(item, Mapping | list) for item in value
    ):
        begin = "["
        for item in value:
            yield f"{begin}{inner}{_one_line(item)}"
            begin = ","
        yield f"{line}]"
    else:
        yield _one_line(value)


_one_line: Final = json.JSONEncoder(sort_keys=True, ensure_ascii=False).encode
