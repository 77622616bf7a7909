"""Limit for files that contain much more text than bytes: compression bombs.

A file of a few kilobytes can stand for terabytes of text: in compressed streams, in archives, in
pages of Parquet, in a long value that all rows share. The text of a file is therefore limited to a
multiple of its stored size, `input.max_expansion`. Text that people write stays far below it.
"""

from __future__ import annotations

from typing import Final

from pipelines.errors import ExpansionError

# Small files may expand to this much: they cannot fill memory or a disk.
ALLOWED_BYTES: Final = 64 << 20


def most_text(stored_bytes: int, max_expansion: int) -> int:
    """Return how many bytes of text a file of this size may contain."""
    return max(ALLOWED_BYTES, stored_bytes * max_expansion)


def check_expansion(
    url: str, stored_bytes: int, text_bytes: int, max_expansion: int, what: str
) -> None:
    """Check that a file contains no more than its stored size permits.

    Args:
        url: The file.
        stored_bytes: Its size.
        text_bytes: Bytes that it contains, or claims to contain.
        max_expansion: The limit, `input.max_expansion`.
        what: Description of the bytes.

    Raises:
        ExpansionError: It contains more.
    """
    most = most_text(stored_bytes, max_expansion)
    if text_bytes > most:
        raise ExpansionError(
            "An input file expands to much more than its size, as a compression bomb does.",
            expected=f"at most {most:,} bytes: {max_expansion:,} times the {stored_bytes:,} bytes "
            f"that are stored (input.max_expansion), or {ALLOWED_BYTES:,}",
            found=f"{what} of {text_bytes:,} bytes",
            where=url,
            hint="Exclude the file with input.exclude. If you trust it, raise input.max_expansion.",
        )
