"""Errors of workers: raised here as they were there, without Beam's tracebacks around them."""

from __future__ import annotations

import importlib
import logging
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from traceback import walk_tb
from types import TracebackType
from typing import Any, Final

import grpc
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners import common
from apache_beam.runners.portability import local_job_service, portable_runner
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.portability.prism_runner import PrismJobServer, PrismRunnerLogFilter
from apache_beam.runners.worker import data_plane, sdk_worker
from apache_beam.utils import subprocess_server
from google.protobuf import text_format  # type: ignore[import-untyped]

from bpe_core.errors import BpeError
from pipelines import supervisor
from pipelines.errors import WorkerVersionError

# An exception of ours in the text of a traceback, as Beam's workers send it: of several that follow
# from each other, the last.
_RAISED: Final = re.compile(
    r"^(?P<module>(?:bpe_core|pipelines)(?:\.\w+)+)\.(?P<name>\w+Error): (?P<message>.*)",
    re.DOTALL | re.MULTILINE,
)
_NEXT_TRACEBACK: Final = re.compile(r"\n\n[^\n]+:\n\n(?=Traceback )")
# What follows our message: Beam's name of the step, then frames and causes of an engine in Java.
_END_OF_OURS: Final = re.compile(
    r" \[while running '[^']*'\]\s*$|^[ \t]+at [\w.$/<>]+\(|^Caused by: ", re.MULTILINE
)
# How Python says that a worker lacks this package, or has another version of it.
_PACKAGE: Final = r"'(?:bpe_core|pipelines)\b"
_NOT_LOADED: Final = re.compile(
    rf"^(?:ModuleNotFoundError: No module named {_PACKAGE}"
    rf"|ImportError: cannot import name '\w+' from {_PACKAGE}"
    rf"|AttributeError: Can't get attribute '\w+' on <module {_PACKAGE}).*",
    re.MULTILINE,
)

# What a worker raises that waits for elements of a pipeline that has ended, up to a second later.
_RUNNER_GONE: Final = "Channel closed prematurely."
# What the thread that waits for a worker's process raises.
_WORKER_DIED: Final = re.compile(r"Worker subprocess exited with return code (-?\d+)")
_ASKED_TO_END: Final = (signal.SIGINT, signal.SIGTERM)  # by Ctrl-C, or with the command
_SECONDS_TO_DIE: Final = 5.0
# What log whole records of workers, as texts.
_LOGS_OF_WORKERS: Final = {Path(worker_handlers.__file__), Path(local_job_service.__file__)}
_BEFORE_RECORD: Final = "Worker: "
# Threads of Beam that read a stream, and the logger of one. Others are told of its end: bundles
# that wait for elements or state, and whoever waits for a job.
_READ_STREAMS: Final = {
    *("read_grpc_client_inputs", data_plane._LOGGER.name),
    *("read_state", "wait_until_finish_read"),
}
_STARTS_JOB_SERVERS: Final = Path(subprocess_server.__file__)
_TELLS_OF_JOBS: Final = Path(portable_runner.__file__)
_OF_PRISM: Final = PrismRunnerLogFilter()


class _Failure:
    """The first error in a local pipeline: its workers stop before their next task.

    Beam tells of an error of one worker only when those before it have done all their tasks.
    """

    def __init__(self) -> None:
        self._watched = False
        self._error: Exception | None = None
        self._interrupted = False

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

    def interrupt(self) -> None:
        """Notes that the pipeline was interrupted."""
        self._interrupted = True

    @contextmanager
    def task(self) -> Iterator[None]:
        """A worker's task: not begun once another has failed; its own error is noted."""
        self.raise_again()
        with self.noted():
            yield

    def forget(self) -> None:
        """Forgets what ended an earlier pipeline."""
        self._error, self._interrupted = None, False

    @property
    def happened(self) -> bool:
        """Whether there was an error in the pipeline that runs."""
        return self._watched and self._error is not None

    @property
    def is_awaited(self) -> bool:
        """Whether a pipeline runs, and nothing has failed in it yet."""
        return self._watched and self._error is None

    @property
    def is_known(self) -> bool:
        """Whether an error of ours, or an interruption, ended the pipeline or is to end it."""
        return self._interrupted or isinstance(self._error, BpeError)

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
        raise type(error)(_without_what_follows(str(error))) from error
    except Exception as error:
        ours = error_of(str(error))
        if ours is None:
            raise
        raise ours from error


def error_of(text: str) -> BpeError | None:
    """The error of ours that the text of a traceback tells of, if one of ours began it."""
    last = _NEXT_TRACEBACK.split(text)[-1]
    found = _RAISED.search(last)
    if found is None:
        return _not_loaded(last)
    kind = getattr(importlib.import_module(found["module"]), found["name"], None)
    if not (isinstance(kind, type) and issubclass(kind, BpeError)):
        return None
    return kind(_without_what_follows(found["message"]))


def _without_what_follows(message: str) -> str:
    return _END_OF_OURS.split(message, maxsplit=1)[0].rstrip()


def _not_loaded(text: str) -> WorkerVersionError | None:
    found = _NOT_LOADED.search(text)
    if found is None:
        return None
    return WorkerVersionError(
        "A worker can't load this package.",
        expected=f"bpe-beam {version('bpe-beam')} with what it needs, installed where workers run",
        found=_without_what_follows(found[0]),
        hint="Install it there, in the version of the command: in the workers' image, in the "
        "environment of their pool, or on Dataflow with extra_packages.",
    )


@cache
def keep_errors_for_the_caller() -> None:
    """Keeps Beam's workers from showing tracebacks of our errors, and of those that follow.

    For good: when a pipeline has failed, its workers fail too, because it is gone. What others than
    Beam tell, such as the program that this package is a part of, is always shown.
    """
    sdk_worker.print = _print_others
    of_workers = (sdk_worker._LOGGER, common._LOGGER, data_plane._LOGGER)
    for logger in of_workers:
        logger.addFilter(_is_shown)
    local_job_service._LOGGER.addFilter(_is_shown_of_beam)
    logging.getLogger(PrismJobServer.__name__).addFilter(_is_shown_of_prism)
    # The root logger shows what runners elsewhere tell of their workers, and what programs tell.
    logging.getLogger().addFilter(
        lambda record: not _is_of_beam(record.pathname) or _is_shown_of_beam(record)
    )
    # That job servers are started and ended is no warning.
    subprocess_server._LOGGER.setLevel(logging.ERROR)
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
        supervisor.end_like_worker(int(died[1]))
    if died is not None and -int(died[1]) in _ASKED_TO_END:
        return
    if failed.thread is not None and _is_end_of_stream(failed.thread.name, failed.exc_value):
        return
    if not (FAILURE.is_known and _began_in_beam(failed.exc_traceback)):
        show(failed)


def _is_end_of_stream(reader: str, error: BaseException | None) -> bool:
    """Whether a stream ended; Beam raises its error where somebody waits for it.

    If nobody does, all is well. The streams of a pipeline that failed may end while the next one
    runs; Prism forgets a worker as soon as its job is done, and refuses those that open only then.
    """
    return reader in _READ_STREAMS and isinstance(error, grpc.RpcError)


def _is_shown_of_beam(record: logging.LogRecord) -> bool:
    """The same for what Beam tells of workers elsewhere: of their records the messages alone."""
    if Path(record.pathname) in _LOGS_OF_WORKERS:
        with suppress(text_format.ParseError):
            text = record.getMessage().removeprefix(_BEFORE_RECORD)
            entry = text_format.Parse(text, beam_fn_api_pb2.LogEntry())
            if record.levelno < logging.ERROR and _is_of_beam(entry.log_location):
                return False
            record.msg, record.args = entry.message, ()
    elif record.levelno < logging.ERROR and Path(record.pathname) == _STARTS_JOB_SERVERS:
        return False
    elif record.levelno == logging.ERROR and Path(record.pathname) == _TELLS_OF_JOBS:
        return False  # of what a job failed comes back as its error
    return _is_shown(record)


def _is_shown_of_prism(record: logging.LogRecord) -> bool:
    """The same for what Prism prints; of what it fails comes back as the error of the job."""
    _OF_PRISM.filter(record)  # says whose line it is; Beam's own comes after this one
    if record.name == "PrismRunner":
        return False
    return record.levelno >= logging.WARNING and _is_shown(record)


def _is_shown(record: logging.LogRecord) -> bool:
    text = record.getMessage()
    if record.exc_info is not None and record.exc_info[1] is not None:
        if _is_end_of_stream(record.name, record.exc_info[1]):
            return False
        text += f"\n\n{record.exc_info[1]}"
    return _is_of_others(record.msg, text)


def _print_others(text: object, **keywords: Any) -> None:
    if _is_of_others(text, str(text)):
        print(text, **keywords)


def _is_of_others(shown: object, text: str) -> bool:
    if _RUNNER_GONE in text:
        return False
    ours = shown if isinstance(shown, BpeError) else error_of(text)
    if ours is not None:
        FAILURE.note(ours)
    return ours is None and not FAILURE.is_known


def _began_in_beam(traceback: TracebackType | None) -> bool:
    """Whether what a thread runs is a function of Beam's."""
    files = (frame.f_code.co_filename for frame, _ in walk_tb(traceback))
    return _is_of_beam(next((file for file in files if file != threading.__file__), ""))


def _is_of_beam(file: str) -> bool:
    return "apache_beam" in Path(file).parts
