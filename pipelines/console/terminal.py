"""Text of others on a terminal: it shows, and does nothing.

Texts and names of the corpus may hold escape sequences, which would move the cursor, set the title
or hide what stands there, and marks that turn the direction of writing.
"""

from __future__ import annotations

import unicodedata


def visible(data: bytes | str) -> str:
    r"""Text that only shows: letters, signs, spaces, line breaks and tabs; the rest is escaped.

    >>> visible("a\x1b[31m\u202eb\n".encode() + b"\xff")
    'a\\x1b[31m\\u202eb\n\\xff'
    """
    text = data if isinstance(data, str) else data.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in "\n\t" or unicodedata.category(c) == "Zs" else _escaped(c)
        for c in text
    )


def _escaped(character: str) -> str:
    return (
        character.encode("ascii", "backslashreplace").decode()
        if ord(character) > 0x7F
        else (f"\\x{ord(character):02x}")
    )
