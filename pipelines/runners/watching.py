"""Watching the job of a pipeline at its engine: its page, its state, its figures.

A thread asks the engine while the launcher waits. The engine may be unreachable for the launcher,
ask for a password, or answer with a page for people: this is reported once, and never affects the
pipeline.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from pipelines.console import progress
from pipelines.console.engine_jobs import MOST_MESSAGES, EngineJob
from pipelines.redaction import redact

_SECONDS: Final = 2.0  # between two questions
_MOST_SECONDS: Final = 60.0  # after many questions without an answer
_SECONDS_TO_END: Final = 5.0
_SECONDS_BETWEEN_LAST: Final = 0.2
_FAILURES_TO_REPORT: Final = 3  # in a row: a busy engine may miss one


class PageError(Exception):
    """Reason why an engine's page did not answer."""


class JobPage(Protocol):
    """The engine's interface for the job of one pipeline.

    Its functions may raise any error, of the network and of libraries.
    """

    def find(self) -> EngineJob | None:
        """Return the job, or None while the engine does not have it."""

    def read(self, job: EngineJob) -> EngineJob:
        """Return the job with its current state and figures."""


@contextmanager
def watched(page: JobPage | None, note: Callable[[EngineJob], None]) -> Iterator[None]:
    """Show the link and the figures of a job while the block runs it.

    Args:
        page: The engine's page, or None for an engine without one.
        note: Called at the end of the block, if the job was found, with what was read last.
    """
    if page is None:
        yield
        return
    watcher = _Watcher(page)
    watcher.start()
    try:
        yield
    except BaseException:
        watcher.end(0)
        raise
    watcher.end(_SECONDS_TO_END)
    if watcher.job is not None:
        note(watcher.job)


class _Watcher:
    """Thread that asks a page until it is ended, and then until the job is over."""

    def __init__(self, page: JobPage) -> None:
        self.job: EngineJob | None = None
        self._page = page
        self._ended = threading.Event()
        self._deadline = 0.0
        self._failures = 0
        self._complained = False
        self._left: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="engine-page", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def end(self, seconds: float) -> None:
        """Ask until the job is over, and wait for it at most so long."""
        self._deadline = time.monotonic() + seconds
        self._ended.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        seconds = self._try_to_look(_SECONDS)
        while not self._ended.wait(seconds):
            seconds = self._try_to_look(seconds)
        self._try_to_look(seconds)
        # A pipeline can be done before its engine has noted it.
        while not self._failures and self.job is not None and not self.job.is_over:
            if time.monotonic() > self._deadline:
                return
            time.sleep(_SECONDS_BETWEEN_LAST)
            self._try_to_look(seconds)

    def _try_to_look(self, seconds: float) -> float:
        """Ask the page, and return the seconds until the next question."""
        try:
            self._look()
        except Exception as error:  # whatever a page or a library does, the job goes on
            self._failures += 1
            if self._failures == _FAILURES_TO_REPORT:
                self._complain(error)
            return min(2 * seconds, _MOST_SECONDS)
        self._failures = 0
        return _SECONDS

    def _look(self) -> None:
        if self.job is None:
            found = self._page.find()
            if found is None:
                return
            self.job = found
            progress.leave("job", f"{found.engine} {found.id}: {found.url}")
        self.job = self._page.read(self.job)
        progress.show_engine(self.job)
        for message in self.job.messages:
            if message not in self._left and len(self._left) < MOST_MESSAGES:
                self._left.add(message)
                progress.leave("job", message)

    def _complain(self, error: Exception) -> None:
        if not self._complained:
            reason = " ".join(redact(str(error) or type(error).__name__).split())[:300]
            progress.leave("job", f"the engine does not report figures: {reason}")
        self._complained = True
