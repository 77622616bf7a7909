"""Escaping of control characters in untrusted text before it reaches the terminal.

Texts and names of the corpus may contain escape sequences, which move the cursor, set the title or
hide other text, and marks that change the direction of writing.
"""

from __future__ import annotations

import unicodedata


def visible(data: bytes | str) -> str:
    r"""Escape everything but printable characters, spaces, line breaks and tabs.

    >>> visible("a\x1b[31m\u202eb\n".encode() + b"\xff")
    'a\\x1b[31m\\u202eb\n\\xff'
    """
    text = data if isinstance(data, str) else data.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in "\n\t" or unicodedata.category(c) == "Zs" else _escape(c)
        for c in text
    )


def _escape(character: str) -> str:
    return (
        character.encode("ascii", "backslashreplace").decode()
        if ord(character) > 0x7F
        else (f"\\x{ord(character):02x}")
    )
