"""Formatting of sizes and durations."""

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


def format_seconds(seconds: float) -> str:
    """Format a duration with one or two units.

    >>> format_seconds(0.4), format_seconds(75), format_seconds(7_500)
    ('1 s', '1 min 15 s', '2 h 5 min')
    """
    whole = max(1, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    minutes = whole // 60
    return f"{minutes // 60:,} h" + (f" {minutes % 60} min" if minutes % 60 else "")
