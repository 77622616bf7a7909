"""Errors of workers, raised in the launcher without Beam's tracebacks around them."""

from __future__ import annotations

import importlib
import logging
import re
import signal
import threading
import time
import uuid
from collections import deque
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
from pipelines.errors import PipelineError, WorkerVersionError

# One of our exceptions in the text of a traceback from Beam's workers: the last of a chain.
_RAISED: Final = re.compile(
    r"^(?P<module>(?:bpe_core|pipelines)(?:\.\w+)+)\.(?P<name>\w+Error): (?P<message>.*)",
    re.DOTALL | re.MULTILINE,
)
_NEXT_TRACEBACK: Final = re.compile(r"\n\n[^\n]+:\n\n(?=Traceback )")
# The text after our message: Beam's name of the step, then frames and causes of a Java engine.
_END_OF_OURS: Final = re.compile(
    r" \[while running '[^']*'\]\s*$|^[ \t]+at [\w.$/<>]+\(|^Caused by: ", re.MULTILINE
)
# Python's errors if a worker lacks this package, or has another version of it.
_PACKAGE: Final = r"'(?:bpe_core|pipelines)\b"
_NOT_LOADED: Final = re.compile(
    rf"^(?:ModuleNotFoundError: No module named {_PACKAGE}"
    rf"|ImportError: cannot import name '\w+' from {_PACKAGE}"
    rf"|AttributeError: Can't get attribute '\w+' on <module {_PACKAGE}).*",
    re.MULTILINE,
)

# Raised by a worker that opens a connection of a pipeline that has ended.
PIPELINE_ENDED: Final = "The pipeline has ended."
# Raised by a worker that waits for its elements, up to a second later.
_RUNNER_GONE: Final = "Channel closed prematurely."
# Raised by the thread that waits for a worker's process.
_WORKER_DIED: Final = re.compile(r"Worker subprocess exited with return code (-?\d+)")
_ASKED_TO_END: Final = (signal.SIGINT, signal.SIGTERM)  # by Ctrl-C, or together with the launcher
_SECONDS_TO_DIE: Final = 5.0
# Workers of a pipeline that has ended finish at most the task that they have begun.
_FORMER_RUNS: Final = 64
# Modules that log whole records of workers, as texts.
_LOGS_OF_WORKERS: Final = {Path(worker_handlers.__file__), Path(local_job_service.__file__)}
_BEFORE_RECORD: Final = "Worker: "
# Threads of Beam that read a stream, and the logger of one. Others report the end of the stream:
# bundles that wait for elements or state, and the code that waits for a job.
_READ_STREAMS: Final = {
    *("read_grpc_client_inputs", data_plane._LOGGER.name),
    *("read_state", "wait_until_finish_read"),
}
_RUNS_WORKER: Final = "run_worker_"  # reads the stream of instructions
_STARTS_JOB_SERVERS: Final = Path(subprocess_server.__file__)
_REPORTS_JOBS: Final = Path(portable_runner.__file__)
_OF_PRISM: Final = PrismRunnerLogFilter()


class _Failure:
    """First error in a local pipeline, after which its workers start no more tasks.

    Beam reports an error of one worker only when the workers before it have done all their tasks.
    The workers of an interrupted pipeline may still run in this process when the next one does, so
    each task brings the run to which it belongs.
    """

    def __init__(self) -> None:
        self.run = ""  # of the local pipeline that is watched, or empty if none is
        self._ended: deque[str] = deque(maxlen=_FORMER_RUNS)
        # Errors of workers whose pipeline has ended.
        self._former: deque[str] = deque(maxlen=_FORMER_RUNS)
        self._error: Exception | None = None
        self._interrupted = False

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Record errors while a local pipeline runs. Other runners may retry a failed bundle."""
        self.run, self._error = uuid.uuid4().hex, None
        try:
            yield
        except RuntimeError as error:
            # The channel of a dead worker may close before its death is noticed, which ends this
            # process.
            if "Channel closed" in str(error):
                time.sleep(_SECONDS_TO_DIE)
            raise
        except KeyboardInterrupt:
            self.interrupt()
            raise
        finally:
            self._ended.append(self.run)
            self.run = ""

    def note(self, error: Exception) -> None:
        """Record the error if a pipeline runs and this is its first error."""
        is_former = str(error).startswith(tuple(self._former))  # Beam adds the name of the step
        if self.is_awaited and not is_former:
            self._error = error

    @contextmanager
    def noted(self, run: str) -> Iterator[None]:
        """Record the error with which the block, a worker's task of a run, ends."""
        try:
            yield
        except Exception as error:
            if run in self._ended:
                self._former.append(str(error))  # Beam logs it, too
            self.note(error)
            raise

    def interrupt(self) -> None:
        """Record that the pipeline was interrupted."""
        self._interrupted = True

    @contextmanager
    def task(self, run: str) -> Iterator[None]:
        """Run a worker's task of a run, unless another task has failed, and record its error.

        Raises:
            PipelineError: The run has ended without this worker.
        """
        with self.noted(run):
            if run in self._ended:
                raise PipelineError("The pipeline of this task has ended.")
            self.raise_again()
            yield

    def forget(self) -> None:
        """Remove the error of an earlier pipeline."""
        self._error, self._interrupted = None, False

    @property
    def happened(self) -> bool:
        """Return True if the running pipeline had an error."""
        return bool(self.run) and self._error is not None

    @property
    def is_awaited(self) -> bool:
        """Return True if a pipeline is running and has had no error yet."""
        return bool(self.run) and self._error is None

    @property
    def is_known(self) -> bool:
        """Return True if one of our errors, or an interruption, ended or will end the pipeline."""
        return self._interrupted or isinstance(self._error, BpeError)

    def raise_again(self) -> None:
        """Raise the recorded error, if there is one."""
        if self.run and self._error is not None:
            raise self._error


FAILURE = _Failure()


@contextmanager
def our_errors() -> Iterator[None]:
    """Raise one of our errors directly if Beam wraps it as the text of a traceback."""
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
    """Return our error in the text of a traceback, or None if another error is its cause."""
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
        "A worker cannot load this package.",
        expected=f"bpe-beam {version('bpe-beam')} with its dependencies, installed for the workers",
        found=_without_what_follows(found[0]),
        hint="Install the launcher's version there: in the workers' image, in the "
        "environment of their pool, or on Dataflow with extra_packages.",
    )


@cache
def keep_errors_for_the_caller() -> None:
    """Keep Beam's workers from showing tracebacks of our errors and of their consequences.

    This is permanent: when a pipeline has failed, its workers fail too, because it no longer
    exists. Messages of code other than Beam, such as a program that uses this package, are always
    shown.
    """
    sdk_worker.print = _print_others
    of_workers = (sdk_worker._LOGGER, common._LOGGER, data_plane._LOGGER)
    for logger in of_workers:
        logger.addFilter(_is_shown)
    local_job_service._LOGGER.addFilter(_is_shown_of_beam)
    logging.getLogger(PrismJobServer.__name__).addFilter(_is_shown_of_prism)
    # The root logger shows messages about remote workers, and messages of programs.
    logging.getLogger().addFilter(
        lambda record: not _is_of_beam(record.pathname) or _is_shown_of_beam(record)
    )
    # Starting and stopping a job server is not worth a warning.
    subprocess_server._LOGGER.setLevel(logging.ERROR)
    show = threading.excepthook
    threading.excepthook = lambda failed: _thread_failed(failed, show)


def _thread_failed(
    failed: threading.ExceptHookArgs, show: Callable[[threading.ExceptHookArgs], Any]
) -> None:
    """Show the error of a thread, unless it follows from one of our errors or an interruption.

    If a worker process has died, end this process: Beam would wait for it forever.
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
    """Return True if the error is the end of a stream, which Beam reports to the code that waits.

    If no code waits for it, it is harmless. The streams of a failed pipeline may end while the next
    one runs; Prism forgets a worker as soon as its job is done, and refuses streams that open after
    that.
    """
    if not isinstance(error, grpc.RpcError):
        return False
    return reader in _READ_STREAMS or (
        reader.startswith(_RUNS_WORKER) and "closed" in str(error)  # not: could not be opened
    )


def _is_shown_of_beam(record: logging.LogRecord) -> bool:
    """Filter Beam's messages about remote workers in the same way, and shorten their records."""
    if Path(record.pathname) in _LOGS_OF_WORKERS:
        with suppress(text_format.ParseError):
            text = record.getMessage().removeprefix(_BEFORE_RECORD)
            entry = text_format.Parse(text, beam_fn_api_pb2.LogEntry())
            if record.levelno < logging.ERROR and _is_of_beam(entry.log_location):
                return False
            record.msg, record.args = entry.message, ()
    elif record.levelno < logging.ERROR and Path(record.pathname) == _STARTS_JOB_SERVERS:
        return False
    elif record.levelno == logging.ERROR and Path(record.pathname) == _REPORTS_JOBS:
        return False  # failures of a job are reported by its error
    return _is_shown(record)


def _is_shown_of_prism(record: logging.LogRecord) -> bool:
    """Filter Prism's output in the same way; failures are reported by the error of the job."""
    _OF_PRISM.filter(
        record
    )  # adds the origin of the line, which Beam's own filter does only after this one
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
    if _RUNNER_GONE in text or PIPELINE_ENDED in text:
        return False
    ours = shown if isinstance(shown, BpeError) else error_of(text)
    if ours is not None:
        FAILURE.note(ours)
    return ours is None and not FAILURE.is_known


def _began_in_beam(traceback: TracebackType | None) -> bool:
    """Return True if the thread runs a function of Beam."""
    files = (frame.f_code.co_filename for frame, _ in walk_tb(traceback))
    return _is_of_beam(next((file for file in files if file != threading.__file__), ""))


def _is_of_beam(file: str) -> bool:
    return "apache_beam" in Path(file).parts
