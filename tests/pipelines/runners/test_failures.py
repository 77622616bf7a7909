"""Errors of workers: they come back as they were raised, and nothing else is shown."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import apache_beam as beam
import grpc
import pytest
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc
from apache_beam.runners.portability import local_job_service
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.worker import data_plane, sdk_worker
from runner_support import config, run

from bpe_core.errors import FormatError
from pipelines import runners
from pipelines.errors import InputError, OutputError, PipelineError, WorkerVersionError
from pipelines.runners import failures

pytestmark = pytest.mark.beam

MODES = ["multi_threading", "in_memory"]


def fail_plainly(element: int) -> None:
    raise InputError(
        "Bad file.", expected="good", found="bad: worse", where="a.txt, byte 5", hint="Mend it."
    )


def fail_because(element: int) -> None:
    try:
        raise OSError("disk on fire")
    except OSError as error:
        raise OutputError("Can't write.", where="b.txt") from error


def fail_meanwhile(element: int) -> None:
    try:
        fail_plainly(element)
    except InputError:
        raise OutputError("Can't write.", where="b.txt") from None


def fail_in_core(element: int) -> None:
    raise FormatError("tokenizer.json, line 3: expected an object")


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("action", "kind", "text"),
    [
        (fail_plainly, InputError, "Bad file.\n  expected: good\n  found: bad: worse\n"
         "  where: a.txt, byte 5\n  what to do: Mend it."),
        (fail_because, OutputError, "Can't write.\n  where: b.txt"),
        (fail_meanwhile, OutputError, "Can't write.\n  where: b.txt"),
        (fail_in_core, FormatError, "tokenizer.json, line 3: expected an object"),
    ],
)  # fmt: skip
def test_our_errors_come_back_whole_and_nothing_else_is_shown(
    mode: str, action: Any, kind: type[Exception], text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    logging.getLogger("apache_beam.runners.portability.fn_api_runner.fn_runner").setLevel("ERROR")
    with pytest.raises(kind) as error:
        run(action, mode)
    assert type(error.value) is kind
    assert str(error.value) == text
    assert capfd.readouterr() == ("", "")


@pytest.mark.process
@pytest.mark.slow
def test_of_an_error_in_a_process_of_its_own_the_message_alone_comes_back(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    def fail_there(element: int) -> None:  # this module is not there
        raise InputError("Bad file.", where="a.txt, byte 5")

    with pytest.raises(InputError) as error:
        run(fail_there, "multi_processing")
    assert str(error.value) == "Bad file.\n  where: a.txt, byte 5"
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []


def test_of_what_workers_elsewhere_log_their_message_is_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failures.keep_errors_for_the_caller()
    failures.FAILURE.forget()

    def log(
        place: Any, level: int, message: str, location: str = "/of/beam/apache_beam/a.py"
    ) -> None:
        entry = beam_fn_api_pb2.LogEntry(message=message, log_location=f"{location}:5")
        record = logging.LogRecord("root", level, place.__file__, 1, str(entry), (), None)
        logger = logging.getLogger() if place is worker_handlers else local_job_service._LOGGER
        logger.handle(record)

    for place in (worker_handlers, local_job_service):
        log(place, logging.WARNING, "of no use")
        log(place, logging.WARNING, "two\nlines", "/of/program/a.py")
        log(place, logging.ERROR, "lost a connection")
        log(place, logging.ERROR, f"Error processing: {_TRACEBACK}{_STEP}\n")
    assert [record.getMessage() for record in caplog.records] == [
        "two\nlines",
        "lost a connection",
    ] * 2


def test_what_follows_from_an_error_of_ours_is_not_shown(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """When a pipeline has failed, Beam's other workers fail because it is gone."""

    def fail_in_beam() -> None:
        sdk_worker.print("Traceback …\nKeyError: 'bundle_7'", file=sys.stderr)
        data_plane._LOGGER.error("Failed to read inputs in the data plane.")
        thread = threading.Thread(target=beam.Create, args=["no list"])
        thread.start()
        thread.join()

    with pytest.raises(InputError):
        run(fail_plainly)
    fail_in_beam()
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []
    run(lambda element: None)
    sdk_worker.print("Traceback …\nRuntimeError: Channel closed prematurely.")  # of the other one
    assert capfd.readouterr() == ("", "")
    sdk_worker.print("Traceback …\nKeyError: 'bundle_7'", file=sys.stderr)
    data_plane._LOGGER.error("Failed to read inputs in the data plane.")
    assert "bundle_7" in capfd.readouterr().err
    assert len(caplog.records) == 1


@pytest.mark.slow
def test_what_a_program_tells_after_an_error_of_ours_is_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(InputError) as error:
        run(fail_plainly)
    logging.warning("The program goes on.")
    logging.error(error.value)
    assert [record.getMessage() for record in caplog.records] == [
        "The program goes on.",
        str(error.value),
    ]
    shown: list[Any] = []
    with pytest.raises(TypeError) as failed:
        beam.Create("no list")
    of_program = failed.value.__traceback__
    assert of_program is not None
    for traceback in (of_program, of_program.tb_next):
        thread = threading.ExceptHookArgs((TypeError, failed.value, traceback, None))
        failures._thread_failed(thread, shown.append)
    assert [thread.exc_traceback for thread in shown] == [of_program]


_SAID = "Bad file.\n  found: bad: worse\n  where: a.txt, byte 5\n  what to do: Mend it."
_TRACEBACK = f"""Traceback (most recent call last):
  File "sdk_worker.py", line 309, in _execute
    response = task()
pipelines.errors.InputError: {_SAID}"""
_STEP = " [while running 'ReadTasks/Read-ptransform-31']"
_JAVA = """
\tat org.apache.beam.runners.fnexecution.control.FnApiControlClient.get(FnApiControlClient.java:9)
\tat java.base/java.lang.Thread.run(Thread.java:840)
\t... 13 more
"""


@pytest.mark.parametrize(
    "text",
    [
        f"{_TRACEBACK}{_STEP}",
        f"bundle inst004 stage-003 failed:{_TRACEBACK}{_STEP}\n",
        f"java.lang.RuntimeException: Error received from SDK harness: {_TRACEBACK}\n{_JAVA}",
        f"a: {_TRACEBACK}{_STEP}\n{_JAVA}Caused by: b: {_TRACEBACK}{_STEP}{_JAVA}",
        f"KeyError: 5\n\nDuring handling of it, there was another:\n\n{_TRACEBACK}{_STEP}",
        f"{_TRACEBACK}\nCaused by: java.io.IOException: gone{_JAVA}",
    ],
)
def test_of_what_an_engine_tells_our_message_is_left(text: str) -> None:
    error = failures.error_of(text)
    assert type(error) is InputError
    assert str(error) == _SAID


@pytest.mark.parametrize(
    "line",
    [
        "ModuleNotFoundError: No module named 'pipelines'",
        "ModuleNotFoundError: No module named 'bpe_core.formats'",
        "ImportError: cannot import name 'Work' from 'pipelines.runners' (/x/__init__.py)",
        "AttributeError: Can't get attribute 'Work' on <module 'pipelines.transforms' from 'x'>",
    ],
)
def test_of_workers_without_this_package_the_message_says_so(line: str) -> None:
    traceback = f"Traceback (most recent call last):\n  File 'cloudpickle.py', line 1\n{line}"
    for text in (traceback, f"java.lang.RuntimeException: {traceback}{_STEP}\n{_JAVA}"):
        error = failures.error_of(text)
        assert type(error) is WorkerVersionError
        assert f"found: {line}\n" in str(error)
        assert "Install the launcher's version there" in str(error)


@pytest.mark.parametrize("name", ["numpy", "pipelines_of_others", "mine.pipelines"])
def test_other_modules_that_workers_lack_keep_their_traceback(name: str) -> None:
    text = f"Traceback (most recent call last):\nModuleNotFoundError: No module named '{name}'"
    assert failures.error_of(text) is None


def fail_unexpectedly(element: int) -> None:
    raise ZeroDivisionError("odd")


def fail_because_of_ours(element: int) -> None:
    try:
        fail_plainly(element)
    except InputError as error:
        raise ZeroDivisionError("odd") from error


@pytest.mark.parametrize("action", [fail_unexpectedly, fail_because_of_ours])
def test_unexpected_errors_keep_their_traceback(action: Any) -> None:
    with pytest.raises(RuntimeError, match="ZeroDivisionError: odd"):
        run(action)


_LOCAL: dict[str, Any] = {}


@pytest.mark.parametrize("code", [-signal.SIGINT, -signal.SIGTERM, 1])
def test_of_workers_that_were_asked_to_end_no_traceback_is_shown(code: int) -> None:
    shown: list[Any] = []
    died = RuntimeError(f"Worker subprocess exited with return code {code}")
    failed = threading.ExceptHookArgs((RuntimeError, died, None, None))
    failures._thread_failed(failed, shown.append)
    assert shown == ([failed] if code == 1 else [])


class _RefusesState(beam_fn_api_pb2_grpc.BeamFnStateServicer):  # type: ignore[misc]
    """An engine that has forgotten the worker."""

    def State(self, requests: Any, context: grpc.ServicerContext) -> Any:
        context.abort(grpc.StatusCode.UNKNOWN, "worker_id: '1' not registered in worker pool")


def test_a_stream_of_state_that_an_engine_refuses_is_told_to_those_who_need_it_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shown: list[Any] = []
    failed: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", failed.append)
    server = grpc.server(futures.ThreadPoolExecutor())
    beam_fn_api_pb2_grpc.add_BeamFnStateServicer_to_server(_RefusesState(), server)
    port = server.add_insecure_port("localhost:0")
    server.start()
    with grpc.insecure_channel(f"localhost:{port}") as channel:
        state = sdk_worker.GrpcStateHandler(beam_fn_api_pb2_grpc.BeamFnStateStub(channel))
        with (
            state.process_instruction_id("bundle_1"),
            pytest.raises(grpc.RpcError, match="not registered"),
        ):
            state.get_raw(beam_fn_api_pb2.StateKey())
    server.stop(None)
    failures._thread_failed(failed[0], shown.append)
    assert shown == []
    ended = (type(failed[0].exc_value), failed[0].exc_value, None)
    failures.keep_errors_for_the_caller()
    failures.FAILURE.forget()
    data_plane._LOGGER.error("Failed to read inputs in the data plane.", exc_info=ended)
    assert caplog.records == []
    # An error of that thread's own is no end of a stream.
    of_its_own = (KeyError, KeyError("7"), None, failed[0].thread)
    failures._thread_failed(threading.ExceptHookArgs(of_its_own), shown.append)
    assert len(shown) == 1


@pytest.mark.parametrize(
    ("reason", "is_shown"), [("(Socket closed)", False), ("Connection refused", True)]
)
def test_a_worker_whose_engine_has_ended_shows_nothing(reason: str, is_shown: bool) -> None:
    shown: list[Any] = []
    thread = threading.Thread(name="run_worker_job-001[job]_ref_Environment_1")
    error = grpc.RpcError(reason)
    failures._thread_failed(
        threading.ExceptHookArgs((type(error), error, None, thread)), shown.append
    )
    assert bool(shown) == is_shown


class _Work(beam.DoFn):  # type: ignore[misc]
    def __init__(self, failing: int) -> None:
        self._failing = failing

    def process(self, element: int) -> Iterator[int]:
        runners.FAILURE.raise_again()
        with runners.FAILURE.noted(runners.FAILURE.run):
            _LOCAL["tasks"].append(element)
            if element == self._failing:
                _LOCAL["failed"].set()
                raise InputError("Bad file.", where="a.txt")
            _LOCAL["failed"].wait(20)
            time.sleep(0.2)
        yield element


@pytest.mark.parametrize("failing", [0, 1])
def test_when_a_worker_fails_the_others_stop_before_their_next_task(failing: int) -> None:
    failed = threading.Event()
    tasks: list[int] = []

    _LOCAL["failed"], _LOCAL["tasks"] = failed, tasks
    with pytest.raises(InputError, match="Bad file"), runners.pipeline(config()) as pipeline:
        (
            pipeline
            | "Make" >> beam.Create(range(12), reshuffle=False)
            | "Deal" >> beam.Reshuffle()
            | "Work" >> beam.ParDo(_Work(failing))
        )
    assert failing in tasks
    assert len(tasks) <= 3


def test_a_failure_is_forgotten_with_its_pipeline_and_elsewhere_never_noted() -> None:
    with pytest.raises(InputError):
        run(fail_plainly)
    assert not runners.FAILURE.happened
    with pytest.raises(InputError), runners.FAILURE.noted(runners.FAILURE.run):
        raise InputError("Outside of a local pipeline, a bundle may be tried again.")
    assert not runners.FAILURE.happened


def test_workers_of_an_interrupted_pipeline_do_not_fail_the_next_one() -> None:
    failure = runners.FAILURE
    with pytest.raises(KeyboardInterrupt), failure.watched():
        former = failure.run
        task = failure.task(former)
        task.__enter__()  # a task that is under way
        raise KeyboardInterrupt
    with failure.watched():
        assert failure.run not in ("", former)
        lost = InputError("The lock is lost.")
        assert not task.__exit__(InputError, lost, None)
        with pytest.raises(PipelineError, match="ended"), failure.task(former):
            pytest.fail("a worker of the former pipeline began a task")
        failure.note(InputError(f"{lost} [while running 'Count']"))  # as Beam logs it
        assert not failure.happened
        with pytest.raises(InputError), failure.task(failure.run):
            raise InputError("Bad file.")
        assert failure.happened
