"""Untrusted text as it is shown on terminals and pages: with escapes for what cannot be seen.

Texts and names of the corpus may contain escape sequences, which move the cursor, set the title or
hide other text, and marks that change the direction of writing.
"""

from __future__ import annotations

import unicodedata

__all__ = ["escape", "format_token", "is_visible", "visible"]

_ESCAPES = str.maketrans({"\n": "\\n", "\t": "\\t"})


def visible(data: bytes | str) -> str:
    r"""Escape everything but printable characters, spaces, line breaks and tabs.

    >>> visible("a\x1b[31m\u202eb\n".encode() + b"\xff")
    'a\\x1b[31m\\u202eb\n\\xff'
    """
    text = data if isinstance(data, str) else data.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(c if is_visible(c) else escape(c) for c in text)


def is_visible(character: str) -> bool:
    """Return True for printable characters, spaces, line breaks and tabs."""
    return character.isprintable() or character in "\n\t" or unicodedata.category(character) == "Zs"


def escape(character: str) -> str:
    r"""Return the escape sequence of a character.

    >>> escape("\x1b"), escape("\u202e")
    ('\\x1b', '\\u202e')
    """
    return (
        character.encode("ascii", "backslashreplace").decode()
        if ord(character) > 0x7F
        else f"\\x{ord(character):02x}"
    )


def format_token(token_id: int, token: bytes) -> str:
    r"""Return the line of a token: its id, a tab, and its text in quotation marks.

    >>> format_token(262, b" a\n\xff")
    '262\t" a\\n\\xff"'
    """
    return f'{token_id}\t"{visible(token).translate(_ESCAPES)}"'
