"""Log of a command: lines with times, in a file or on standard error."""

from __future__ import annotations

import logging
import sys
from datetime import datetime
from pathlib import Path
from typing import TextIO

from bpe_core.visible_text import visible
from pipelines.console import displays
from pipelines.console.displays import Snapshot, StageEnd
from pipelines.errors import OutputError
from pipelines.redaction import redact


class Log(logging.Handler):
    """Log that shows progress and receives the warnings of libraries.

    Args:
        path: File to append to; None: standard error.

    Raises:
        OutputError: The file cannot be written.
    """

    def __init__(self, path: Path | None) -> None:
        super().__init__(logging.WARNING)
        self.interval = displays.LINE_SECONDS
        self._file: TextIO | None = None
        if path is not None:
            try:
                self._file = path.open("a", encoding="utf-8")
            except OSError as error:
                raise OutputError(
                    "The log cannot be written.",
                    found=str(error),
                    where=f"--log {path}",
                    hint="Choose another file.",
                ) from None

    @property
    def has_file(self) -> bool:
        """Return True if the log is a file."""
        return self._file is not None

    def add(self, text: str, level: str = "INFO") -> None:
        """Write a text, with the time before each of its lines."""
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        lines = visible(redact(text)).splitlines()
        stream = self._file or sys.stderr
        # One write, so that lines of several processes do not mix.
        stream.write("".join(f"{now} {level} {line}\n" for line in lines))
        stream.flush()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record of Python's logging."""
        self.add(f"{record.name}: {record.getMessage()}", record.levelname)

    def describe(self, text: str) -> None:
        """Write what is being done."""
        self.add(text)

    def leave(self, kind: str, text: str) -> None:
        """Write the line."""
        self.add(f"{kind}: {text}")

    def update(self, snapshot: Snapshot) -> None:
        """Write the figures of the current work."""
        self.add(snapshot.line())

    def end_work(self) -> None:
        """Do nothing."""

    def end_stage(self, end: StageEnd) -> None:
        """Write the result of a stage."""
        self.add(str(end))

    def close(self) -> None:
        """Do nothing: the log is open until the process ends."""
