"""Formatting of sizes."""

from __future__ import annotations


def format_bytes(size: int) -> str:
    """Format a size, with units of powers of 1000.

    >>> format_bytes(999), format_bytes(4_404_445)
    ('999 bytes', '4.4 MB')
    """
    if size < 1000:
        return f"{size} byte" + ("" if size == 1 else "s")
    for unit, scale in (("kB", 1e3), ("MB", 1e6), ("GB", 1e9), ("TB", 1e12)):
        if size < 999.95 * scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size / 1e15:.1f} PB"
