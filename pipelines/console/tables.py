"""Tables of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from bpe_core.visible_text import visible


def format_markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    yield "| " + " | ".join(heads) + " |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def format_markdown_code(value: object) -> str:
    """Return a value from elsewhere as code in a table in Markdown.

    >>> format_markdown_code("a|b`")
    "`a\\\\|b'`"
    """
    text = visible(str(value)).replace("`", "'").replace("|", "\\|").replace("\n", " ")
    return f"`{text}`"


def format_table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield aligned rows: the first column to the left, numbers to the right.

    >>> print(*format_table([["", "tokens"], ["web", "1,024"]]), sep="\\n")
           tokens
      web   1,024
    """
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))] if rows else []
    for row in rows:
        right = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        cells = [row[0].ljust(widths[0]), *right[1:]]
        yield f"  {'  '.join(cells)}".rstrip()
