"""Pipelines: made, run, and what a job server that is not there is told of."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from traceback import walk_stack
from types import SimpleNamespace
from typing import Any, ClassVar

import apache_beam as beam
import pytest
from apache_beam.portability.api import beam_fn_api_pb2, endpoints_pb2
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.portability.job_server import JobServer, StopOnExitJobServer
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.runners.worker import data_plane, statesampler
from apache_beam.runners.worker.sdk_worker import GrpcStateHandlerFactory
from apache_beam.runners.worker.statecache import StateCache
from build_support import ROOT
from runner_support import config, run

from pipelines import runners
from pipelines.config import BeamConfig
from pipelines.errors import ConfigError
from pipelines.runners import running
from pipelines.runners.flink import FLINK
from pipelines.runners.spec import RunnerSpec

pytestmark = pytest.mark.beam

POOL = {"environment_type": "EXTERNAL", "environment_config": "localhost:1"}
UNREACHED = {"job_endpoint": "localhost:1", "job_server_timeout": 1, **POOL}


_SLEEPS: list[int] = []


def note_the_sleep_of_the_sampler(_: int) -> None:
    _SLEEPS.append(statesampler.get_current_tracker().sampling_period_ms)


def test_the_sampler_that_a_stage_waits_for_at_its_end_sleeps_only_shortly() -> None:
    run(note_the_sleep_of_the_sampler)
    assert _SLEEPS
    assert max(_SLEEPS) <= 10


def test_an_error_while_the_pipeline_is_made_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(KeyError), runners.pipeline(config()):
        assert list(tmp_path.iterdir())  # Beam made a folder, and removes it only after a run
        raise KeyError
    assert list(tmp_path.iterdir()) == []


_IS_INTERRUPTED = threading.Event()


def wait_for_the_interruption(_: int) -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    _IS_INTERRUPTED.wait()


def test_an_interrupted_pipeline_leaves_no_thread_that_waits() -> None:
    run(abs)  # starts threads that later pipelines use again
    before = beam_threads()
    for _ in range(3):
        _IS_INTERRUPTED.clear()
        with pytest.raises(KeyboardInterrupt):
            run(wait_for_the_interruption)
        _IS_INTERRUPTED.set()
        run(abs)
    end = time.monotonic() + 10
    while beam_threads() > before and time.monotonic() < end:
        time.sleep(0.01)
    assert beam_threads() <= before


def beam_threads() -> int:
    """The number of threads, without those of Beam's pool that have nothing to do."""
    idle = ["wait", "acquire", "run"]  # innermost first: a pool's thread between two tasks
    return sum(
        [frame.f_code.co_name for frame, _ in walk_stack(top)][:3] != idle
        for top in sys._current_frames().values()
    )


def test_a_worker_that_connects_after_the_end_is_asked_to_end() -> None:
    running._end_workers_and_bundles()
    connection = worker_handlers.ControlConnection()
    bundle = connection.push(beam_fn_api_pb2.InstructionRequest(instruction_id="1"))
    connection.close()
    with pytest.raises(RuntimeError, match="has ended"):
        bundle.get()
    assert connection.get_req().instruction_id == "1"
    assert connection.get_req() is worker_handlers.BeamFnControlServicer._DONE_MARKER


def test_a_worker_opens_no_connections_after_its_end() -> None:
    running._end_workers_and_bundles()
    for factory, create in [
        (data_plane.GrpcClientDataChannelFactory(), "create_data_channel_from_url"),
        (GrpcStateHandlerFactory(StateCache(0)), "create_state_handler"),
    ]:
        factory.close()
        address = endpoints_pb2.ApiServiceDescriptor(url="localhost:1")
        with pytest.raises(RuntimeError, match="has ended"):
            getattr(factory, create)(address if "state" in create else address.url)


@pytest.mark.process
@pytest.mark.slow
def test_the_command_shows_none_of_beams_warnings_at_import() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import pipelines.runners"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize(
    ("runner", "options", "problem"),
    [
        ("FlinkRunner", {"flink_master": "localhost:1", **POOL}, "rejected the job"),
        ("PortableRunner", UNREACHED, r"reach its job server[^$]*found: localhost:1: .*refused"),
    ],
)
def test_what_nobody_took_is_told_with_where_it_was_to_go(
    runner: str, options: Mapping[str, Any], problem: str, tmp_path: Path
) -> None:
    with zipfile.ZipFile(tmp_path / "job.jar", "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\r\n\r\n")
    given = {"flink_job_server_jar": str(tmp_path / "job.jar"), **options}
    config = BeamConfig(runner=runner, options=given)
    with pytest.raises(ConfigError, match=f"{runner} .*{problem}"):
        runners.submit(config, lambda pipeline: pipeline | beam.Create([b""]))


def test_a_job_server_that_is_not_there_is_told_of_also_where_the_command_waits() -> None:
    config = BeamConfig(runner="PortableRunner", options=UNREACHED)
    with (
        pytest.raises(ConfigError, match="found: localhost:1: "),
        runners.pipeline(config) as pipeline,
    ):
        pipeline | beam.Create([b""])


@pytest.mark.parametrize("waits", [True, False])
def test_a_job_server_that_listens_but_says_nothing_is_told_of(waits: bool) -> None:
    with socket.create_server(("localhost", 0)) as silent:
        endpoint = f"localhost:{silent.getsockname()[1]}"
        options = {**UNREACHED, "job_endpoint": endpoint}
        config = BeamConfig(runner="PortableRunner", options=options)
        with pytest.raises(ConfigError, match=rf"no answer in time\n.* {endpoint};"):
            if waits:
                with runners.pipeline(config) as pipeline:
                    pipeline | beam.Create([b""])
            else:
                runners.submit(config, lambda pipeline: pipeline | beam.Create([b""]))


class _Job:
    """In place of the result of an engine that is far away."""

    def __init__(self, fails: bool) -> None:
        self.cancelled = 0
        self._fails = fails

    def cancel(self) -> None:
        self.cancelled += 1
        if self._fails:
            raise ConnectionError


@pytest.mark.parametrize("fails", [False, True])
def test_an_interruption_cancels_the_job_of_any_engine(fails: bool) -> None:
    job = _Job(fails)
    pipeline = SimpleNamespace(result=job, options=None)
    spec = RunnerSpec(make=lambda _: None)
    with (
        pytest.raises(KeyboardInterrupt),
        running._cancel_if_interrupted(pipeline, spec),
    ):
        raise KeyboardInterrupt
    assert job.cancelled == 1
    with running._cancel_if_interrupted(pipeline, spec):
        pass
    with pytest.raises(KeyError), running._cancel_if_interrupted(pipeline, spec):
        raise KeyError
    assert job.cancelled == 1


class _Cluster(BaseHTTPRequestHandler):
    """Answers as Flink's REST interface; notes what is to be cancelled."""

    jobs: ClassVar[list[dict[str, Any]]] = []
    cancelled: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self._answer({"jobs": self.jobs} if self.path == "/jobs/overview" else {})

    def do_PATCH(self) -> None:
        self.cancelled.append(self.path)
        self._answer({})

    def _answer(self, content: Any) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.parametrize("named", [False, True])
def test_of_a_flink_cluster_only_the_running_job_of_the_command_is_cancelled(named: bool) -> None:
    with ThreadingHTTPServer(("localhost", 0), _Cluster) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        given = {"flink_master": f"localhost:{server.server_port}", **POOL}
        if named:
            given["job_name"] = "nightly"
        options = runners.options_of(BeamConfig(runner="FlinkRunner", options=given))
        name = options.get_all_options()["job_name"]
        _Cluster.cancelled = []
        _Cluster.jobs = [
            {"jid": "a", "name": name, "end-time": 1},
            {"jid": "b", "name": name, "end-time": -1},
            {"jid": "c", "name": "other", "end-time": -1},
        ]
        FLINK.cancel(_Job(fails=False), options)
        server.shutdown()
    # One that the user gave may be that of another job as well.
    assert _Cluster.cancelled == ([] if named else ["/jobs/b?mode=cancel"])


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.nightly
def test_processes_of_workers_say_nothing_of_their_beginning_and_end(
    capfd: pytest.CaptureFixture[str],
) -> None:
    run(lambda element: None, "multi_processing")
    assert capfd.readouterr() == ("", "")


class _Server(JobServer):  # type: ignore[misc]
    """Job server that counts how often it is started and stopped."""

    def __init__(self) -> None:
        self.started = self.stopped = 0

    def start(self) -> str:
        self.started += 1
        return "localhost:1"

    def stop(self) -> None:
        self.stopped += 1


@pytest.mark.parametrize("in_thread", [False, True])
def test_job_servers_start_in_any_thread_and_leave_signals_alone(in_thread: bool) -> None:
    server = _Server()
    runner = PortableRunner()
    runner.default_job_server = lambda _: StopOnExitJobServer(server)
    handler = signal.getsignal(signal.SIGINT)
    addresses: list[object] = []

    def run() -> None:
        with running._stop_job_server(runner):
            addresses.append(runner.default_job_server(None).start())
            assert signal.getsignal(signal.SIGINT) is handler

    if in_thread:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    else:
        run()
    assert addresses == ["localhost:1"]
    assert (server.started, server.stopped) == (1, 1)
