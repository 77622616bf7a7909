"""Errors of workers: raised here as they were there, without Beam's tracebacks around them."""

from __future__ import annotations

import importlib
import logging
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

from apache_beam.runners import common
from apache_beam.runners.worker import data_plane, sdk_worker

from bpe_core.errors import BpeError
from pipelines import supervisor

# An exception of ours in the text of a traceback, as Beam's workers send it: of several that follow
# from each other, the last.
_RAISED: Final = re.compile(
    r"^(?P<module>(?:bpe_core|pipelines)(?:\.\w+)+)\.(?P<name>\w+Error): (?P<message>.*)",
    re.DOTALL | re.MULTILINE,
)
_NEXT_TRACEBACK: Final = re.compile(r"\n\n[^\n]+:\n\n(?=Traceback )")
_BEAM_SUFFIX: Final = re.compile(r" \[while running '[^']*'\]\s*\Z")

# What the thread that waits for a worker's process raises.
_WORKER_DIED: Final = re.compile(r"Worker subprocess exited with return code (-?\d+)")
_ASKED_TO_END: Final = (signal.SIGINT, signal.SIGTERM)  # by Ctrl-C, or with the command
_SECONDS_TO_DIE: Final = 5.0
_LOGGERS_OF_RUNNERS: Final = (
    "apache_beam.runners.portability.prism_runner",
    "apache_beam.runners.portability.local_job_service",
)


class _Failure:
    """The first error in a local pipeline: its workers stop before their next task.

    Beam tells of an error of one worker only when those before it have done all their tasks.
    """

    def __init__(self) -> None:
        self._watched = False
        self._error: Exception | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """While a local pipeline runs. Elsewhere a failed bundle may be tried again."""
        self._watched, self._error = True, None
        try:
            yield
        except RuntimeError as error:
            # A dead worker's channel may be noticed before its death, which ends this process.
            if "Channel closed" in str(error):
                time.sleep(_SECONDS_TO_DIE)
            raise
        finally:
            self._watched = False

    def note(self, error: Exception) -> None:
        """Remembers the error, if a pipeline runs and it is its first."""
        if self._watched and self._error is None:
            self._error = error

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Notes the error with which the block, a worker's task, ends."""
        try:
            yield
        except Exception as error:
            self.note(error)
            raise

    @property
    def happened(self) -> bool:
        """Whether there was an error in the pipeline that runs."""
        return self._watched and self._error is not None

    @property
    def is_awaited(self) -> bool:
        """Whether a pipeline runs, and nothing has failed in it yet."""
        return self._watched and self._error is None

    @property
    def is_ours(self) -> bool:
        """Whether the pipeline that runs, or the last one, failed with an error of ours."""
        return isinstance(self._error, BpeError)

    def raise_again(self) -> None:
        """Raises the error if there was one."""
        if self._watched and self._error is not None:
            raise self._error


FAILURE = _Failure()


@contextmanager
def our_errors() -> Iterator[None]:
    """Raises an error of ours as itself where Beam wraps it: as the text of a traceback."""
    try:
        yield
    except BpeError as error:
        raise type(error)(_BEAM_SUFFIX.sub("", str(error))) from error
    except Exception as error:
        ours = error_of(str(error))
        if ours is None:
            raise
        raise ours from error


def error_of(text: str) -> BpeError | None:
    """The error of ours that the text of a traceback tells of, if one of ours began it."""
    found = _RAISED.search(_NEXT_TRACEBACK.split(text)[-1])
    if found is None:
        return None
    kind = getattr(importlib.import_module(found["module"]), found["name"], None)
    if not (isinstance(kind, type) and issubclass(kind, BpeError)):
        return None
    return kind(_BEAM_SUFFIX.sub("", found["message"]).rstrip())


@cache
def keep_errors_for_the_caller() -> None:
    """Keeps Beam's workers from showing tracebacks of our errors, and of those that follow.

    For good: when a pipeline has failed, its workers fail too, because it is gone.
    """
    sdk_worker.print = _print_others
    # The root logger shows what runners elsewhere tell of their workers.
    others = [logging.getLogger(name) for name in (None, *_LOGGERS_OF_RUNNERS)]
    for logger in (sdk_worker._LOGGER, common._LOGGER, data_plane._LOGGER, *others):
        logger.addFilter(_is_shown)
    # That job servers are started and ended is no warning.
    logging.getLogger("apache_beam.utils.subprocess_server").setLevel(logging.ERROR)
    show = threading.excepthook
    threading.excepthook = lambda failed: _thread_failed(failed, show)


def _thread_failed(
    failed: threading.ExceptHookArgs, show: Callable[[threading.ExceptHookArgs], Any]
) -> None:
    """Shows the error of a thread, but not what follows from ours or from an interruption.

    Where a process of a worker died, Beam would wait for it for ever.
    """
    died = _WORKER_DIED.fullmatch(str(failed.exc_value))
    if died is not None and FAILURE.is_awaited:
        supervisor.end_as_worker_did(int(died[1]))
    if died is not None and -int(died[1]) in _ASKED_TO_END:
        return
    if not FAILURE.is_ours:
        show(failed)


def _is_shown(record: logging.LogRecord) -> bool:
    if record.name == "PrismRunner" and record.levelno < logging.WARNING:
        return False
    text = record.getMessage()
    if record.exc_info is not None and record.exc_info[1] is not None:
        text += f"\n\n{record.exc_info[1]}"
    return _is_of_others(record.msg, text)


def _print_others(text: object, **keywords: Any) -> None:
    if _is_of_others(text, str(text)):
        print(text, **keywords)


def _is_of_others(shown: object, text: str) -> bool:
    ours = shown if isinstance(shown, BpeError) else error_of(text)
    if ours is not None:
        FAILURE.note(ours)
    return ours is None and not FAILURE.is_ours
