"""GPT-2's printable stand-ins: each byte as one visible character.

Bytes that are printable in Latin-1, except for the space, stand for themselves; the others become
U+0100, U+0101, ... in order. So a space is `Ġ` and a line break `Ċ`. Text-keyed formats
(vocab.json, merges.txt, tokenizer.json) write tokens this way.

Source: the encoder published with GPT-2 (Radford et al., 2019).
"""

from __future__ import annotations

_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in set(_PRINTABLE)]
_TO_CHARACTER = {byte: 0x100 + i for i, byte in enumerate(_OTHERS)}
# Latin-1 characters that are not stand-ins become U+FFFF, so that they do not pass for a byte.
_TO_BYTE = dict.fromkeys(_OTHERS, 0xFFFF) | {c: byte for byte, c in _TO_CHARACTER.items()}


def to_stand_ins(token: bytes) -> str:
    """Return the stand-ins of a token's bytes.

    Example:
        >>> to_stand_ins(b" the")
        'Ġthe'
    """
    return token.decode("latin-1").translate(_TO_CHARACTER)


def from_stand_ins(text: str) -> bytes | None:
    """Return the bytes of a text of stand-ins, or None if a character is not a stand-in.

    Example:
        >>> from_stand_ins("Ġthe")
        b' the'
    """
    try:
        return text.translate(_TO_BYTE).encode("latin-1")
    except UnicodeEncodeError:
        return None
