"""Progress in a notebook: one output of a cell, which is updated in its place."""

from __future__ import annotations

import sys
from html import escape
from typing import Any, Final

from bpe_core.visible_text import visible
from pipelines.console.displays import Snapshot, StageEnd

__all__ = ["NotebookBar", "in_notebook"]

_SECONDS: Final = 0.5


def in_notebook() -> bool:
    """Return True if this process is the kernel of a notebook, which shows HTML."""
    found = sys.modules.get("IPython")
    shell = None if found is None else found.get_ipython()
    return getattr(shell, "kernel", None) is not None


class NotebookBar:
    """Bar below the lines of the finished stages, which stay."""

    def __init__(self) -> None:
        self.interval = _SECONDS
        self._lines: list[str] = []
        self._handle: Any = None

    def describe(self, text: str) -> None:
        """Show a text and an animated bar."""
        self._draw(text, None)

    def leave(self, kind: str, text: str) -> None:
        """Add the line."""
        self._lines.append(f"{kind}: {text}")

    def update(self, snapshot: Snapshot) -> None:
        """Draw the bar."""
        self._draw(snapshot.line(), snapshot.fraction)

    def end_work(self) -> None:
        """Keep the bar: the next work draws it again."""

    def end_stage(self, end: StageEnd) -> None:
        """Add the line."""
        self._lines.append(str(end))
        self._show(self._lines, "")

    def close(self) -> None:
        """Remove the bar."""
        if self._handle is not None:
            self._show(self._lines, "")

    def _draw(self, text: str, fraction: float | None) -> None:
        value = "" if fraction is None else f' value="{fraction:.4f}"'
        bar = f'<progress max="1"{value} aria-label="progress"></progress> '
        self._show([*self._lines, text], bar)

    def _show(self, lines: list[str], bar: str) -> None:
        """Show lines; the bar stands before the last one."""
        from IPython.display import display

        shown = [visible(line) for line in lines]
        rows = [f"<div>{escape(line)}</div>" for line in shown]
        if bar:
            rows[-1] = f"<div>{bar}{escape(shown[-1])}</div>"
        content = {"text/html": "".join(rows), "text/plain": "\n".join(shown)}
        if self._handle is None:
            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)
