"""Pipelines: make them for a runner, run them, and clean up after them."""

from __future__ import annotations

import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from typing import Any, Final

import apache_beam as beam
import grpc
from apache_beam import pipeline as beam_pipeline
from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions
from apache_beam.runners.portability.fn_api_runner import fn_runner, worker_handlers
from apache_beam.runners.portability.job_server import JobServer
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.runners.runner import PipelineRunner
from apache_beam.runners.worker import data_plane, sdk_worker, statesampler

from bpe_core.errors import BpeError
from pipelines.config import BeamConfig
from pipelines.console.engine_jobs import EngineJob
from pipelines.errors import ConfigError, JobFailedError
from pipelines.runners.failures import (
    FAILURE,
    PIPELINE_ENDED,
    error_of,
    keep_errors_for_the_caller,
    our_errors,
)
from pipelines.runners.options import RUNNERS, options_of
from pipelines.runners.spec import PLACE_OF_OPTIONS, WITH_PORT, RunnerSpec
from pipelines.runners.watching import watched
from pipelines.storage.locks import DetachedJob
from pipelines.tasks.shared_queue import TaskQueue

_SECONDS_TO_CONNECT: Final = 5.0
_TRACEBACK: Final = "Traceback (most recent call last)"
_SAMPLING_MILLISECONDS: Final = 10
_OWN_STEPS: Final = threading.local()


@contextmanager
def pipeline(
    config: BeamConfig,
    beam_args: Sequence[str] = (),
    places: Sequence[str] = (),
    *,
    note_job: Callable[[EngineJob], None] = lambda _: None,
) -> Iterator[beam.Pipeline]:
    """Run the pipeline to which the block adds steps.

    Args:
        config: Runner, workers and options.
        beam_args: Options such as `--name=value`, which override those of the configuration.
        places: Paths or URLs that workers must reach.
        note_job: Called with the engine's job when it has finished, if the engine has a page for
            it.

    Raises:
        BpeError: An error of our code on a worker, as it was raised there.
        JobFailedError: The job did not finish, and no worker reported a reason.
        ConfigError: An option is unknown to Beam, or not possible with this runner.
    """
    options = options_of(config, beam_args, places)
    spec = RUNNERS[config.runner]
    _end_stages_at_once()
    _end_workers_and_bundles()
    made = _pipeline_for(config, options)
    with (
        _remove_directory(made),
        _labels_kept(),
        _report_failed_job(made, config),
        our_errors(),
        FAILURE.watched() if spec.is_local else nullcontext(),
        _stop_job_server(made.runner),
        _keep_metrics(made),
        watched(spec.page(made), note_job),
        _cancel_if_interrupted(made, spec) if not spec.is_local else nullcontext(),
        made as running,
    ):
        yield running


def submit(
    config: BeamConfig,
    build: Callable[[beam.Pipeline], object],
    beam_args: Sequence[str] = (),
    places: Sequence[str] = (),
    *,
    stages: Sequence[str] = (),
) -> DetachedJob:
    """Submit a pipeline without waiting for it.

    Args:
        config: Runner, workers and options.
        build: Function that adds the steps to a pipeline.
        beam_args: Options such as `--name=value`, which override those of the configuration.
        places: Paths or URLs that workers must reach.
        stages: Stages of a build that the job does.

    Raises:
        ConfigError: See `pipeline` and `check_detaches`; or the runner cannot be reached.
    """
    options = options_of(config, beam_args, places, no_wait=True)
    spec = RUNNERS[config.runner]
    spec.detach(options)
    assert spec.job_of is not None, "check_detaches accepts no others"
    running = _pipeline_for(config, options)
    with _remove_directory(running), our_errors(), _labels_kept():
        build(running)
        result = running.run()
        # Getting the job's name may need a request to the job server.
        with _report_rejected_job(config, options):
            name, url = spec.job_of(result, options)
    return DetachedJob(name=name, runner=config.runner, url=url, stages=tuple(stages))


def distribute(begin: beam.pvalue.PBegin, descriptors: Sequence[bytes]) -> beam.PCollection[bytes]:
    """Distribute descriptors of tasks to the workers, in their order.

    There is no splittable source: some engines would read all of it on one worker.
    """
    numbered = list(enumerate(descriptors))
    tasks = begin | "Tasks" >> beam.Create(numbered, reshuffle=False).with_output_types(
        tuple[int, bytes]
    )
    if not isinstance(begin.pipeline.runner, fn_runner.FnApiRunner):
        return tasks | "Deal" >> beam.Reshuffle() | "Dealt" >> beam.Values()
    # A GroupByKey distributes its keys evenly there. Reshuffle does the same for elements without
    # keys, but takes half as long again.
    return (
        tasks
        | "Deal" >> beam.GroupByKey()
        | "Dealt" >> beam.FlatMapTuple(lambda _, tasks: tasks).with_output_types(bytes)
    )


def share(begin: beam.pvalue.PBegin, queue: TaskQueue[Any]) -> beam.PCollection[bytes]:
    """Let workers that are threads of this process take tasks from a queue."""
    return (
        begin
        | "Tasks"
        >> beam.Create(
            [(worker, b"") for worker in range(queue.workers)], reshuffle=False
        ).with_output_types(tuple[int, bytes])
        | "Deal" >> beam.GroupByKey()  # gives one key to each worker
        | "Dealt" >> beam.FlatMap(lambda _: queue.take()).with_output_types(bytes)
    )


def _pipeline_for(config: BeamConfig, options: PipelineOptions) -> beam.Pipeline:
    """Return a pipeline without steps. It reports a service that rejects jobs or is unreachable."""
    spec = RUNNERS[config.runner]
    keep_errors_for_the_caller()
    FAILURE.forget()
    if not spec.is_local:
        _check_listens(config, options.get_all_options())
    with _report_rejected_job(config, options):
        made = beam.Pipeline(runner=spec.make(options), options=options)
    if not spec.is_local:
        run_pipeline = made.runner.run_pipeline

        def run_or_refuse(*arguments: Any, **keywords: Any) -> Any:
            with _report_rejected_job(config, options):
                return run_pipeline(*arguments, **keywords)

        made.runner.run_pipeline = run_or_refuse
    return made


def _check_listens(config: BeamConfig, asked: Mapping[str, Any]) -> None:
    """Check that there is a job server before the package is prepared for it."""
    if not isinstance(asked["job_endpoint"], str):
        return
    address = WITH_PORT.fullmatch(asked["job_endpoint"])
    if address is None:
        return
    seconds = min(_SECONDS_TO_CONNECT, asked["job_server_timeout"])
    until = time.monotonic() + seconds
    while True:
        try:
            host = address["host"].strip("[]")
            socket.create_connection((host, int(address["port"])), seconds).close()
            return
        except (OSError, OverflowError, UnicodeError) as error:
            if time.monotonic() >= until or not isinstance(error, ConnectionRefusedError):
                raise ConfigError(
                    f"{config.runner} cannot reach its job server.",
                    expected=f"one that listens at {asked['job_endpoint']}",
                    found=f"{asked['job_endpoint']}: {error}",
                    where=f"job_endpoint: {PLACE_OF_OPTIONS}",
                    hint="Check the address, and check that the job server is running.",
                ) from error
        time.sleep(0.2)  # it may be starting


@contextmanager
def _report_rejected_job(config: BeamConfig, options: PipelineOptions) -> Iterator[None]:
    """Raise ConfigError if the runner rejected a job."""
    try:
        yield
    except BpeError:
        raise
    except (OSError, RuntimeError, ValueError, grpc.RpcError, grpc.FutureTimeoutError) as error:
        if error_of(str(error)) is not None:
            raise
        said = error.details() if isinstance(error, grpc.Call) else str(error)
        server = options.view_as(PortableOptions).job_endpoint
        raise ConfigError(
            f"{config.runner} rejected the job.",
            found=f"{type(error).__name__}: {said or 'no answer in time'}",
            where=f"job server {server}; {PLACE_OF_OPTIONS}" if server else PLACE_OF_OPTIONS,
            hint="Check these options and addresses, and check that the service is running.",
        ) from error


@contextmanager
def _report_failed_job(pipeline: beam.Pipeline, config: BeamConfig) -> Iterator[None]:
    """Raise JobFailedError if the engine ended a job. Unexpected errors keep their tracebacks."""
    try:
        yield
    except BpeError:
        raise
    except Exception as error:
        said = error.details() if isinstance(error, grpc.Call) else str(error)
        # A job that was not started, or that runs in this process, has no result.
        if getattr(pipeline, "result", None) is None or _TRACEBACK in said:
            raise
        raise JobFailedError(
            f"{config.runner} did not finish the job.",
            found=said.strip() or type(error).__name__,
            hint="Run the same command again: what is finished is kept. If no worker or machine "
            "was lost, and nobody cancelled the job, see the engine's log.",
        ) from error


@contextmanager
def _stop_job_server(runner: PipelineRunner) -> Iterator[None]:
    """Stop the process of a job server that a portable runner started when the pipeline ends.

    Beam stops it only at a normal exit of Python, or on Ctrl-C at once, although the server is
    needed to cancel the job. Its information, such as metrics, must be fetched before.
    """
    if not isinstance(runner, PortableRunner):
        yield
        return
    servers: list[JobServer] = []
    make = runner.default_job_server

    def noted(options: PipelineOptions) -> JobServer:
        server = make(options)
        servers.append(server)
        start = server.start

        def start_only() -> Any:
            if threading.current_thread() is not threading.main_thread():
                with suppress(ValueError):  # its last step is a handler, which no thread may set
                    start()
                return start()  # the server that runs now
            handler = signal.getsignal(signal.SIGINT)
            stub = start()
            signal.signal(signal.SIGINT, handler)
            return stub

        server.start = start_only
        return server

    runner.default_job_server = noted
    try:
        yield
    finally:
        for server in servers:
            server.stop()


@contextmanager
def _remove_directory(pipeline: beam.Pipeline) -> Iterator[None]:
    """Remove the pipeline's temporary files: Beam keeps them in IPython, and if it does not run."""
    try:
        yield
    finally:
        shutil.rmtree(pipeline.local_tempdir, ignore_errors=True)


@contextmanager
def _keep_metrics(pipeline: beam.Pipeline) -> Iterator[None]:
    """Fetch the metrics of a finished pipeline from the job server, and keep them in its result."""
    yield
    if isinstance(pipeline.runner, PortableRunner):
        with suppress(Exception):  # the job server has no metrics
            pipeline.result.metrics()


@contextmanager
def _cancel_if_interrupted(pipeline: beam.Pipeline, spec: RunnerSpec) -> Iterator[None]:
    """Cancel the job of an engine on Ctrl-C; otherwise it would continue without the launcher."""
    try:
        yield
    except KeyboardInterrupt:
        FAILURE.interrupt()
        result = getattr(pipeline, "result", None)
        if result is not None:
            with suppress(Exception):  # the engine cannot be reached, or the job has ended
                spec.cancel(result, pipeline.options)
        raise


@contextmanager
def _labels_kept() -> Iterator[None]:
    """Keep the labels of the steps that this thread adds, also in a notebook.

    There, Beam puts the number of the cell in front. For that it imports its interactive runner,
    which fails with pandas 3.
    """
    _skip_labels_of_notebooks()
    _OWN_STEPS.are_added = True
    try:
        yield
    finally:
        _OWN_STEPS.are_added = False


@cache
def _skip_labels_of_notebooks() -> None:
    before = beam_pipeline.alter_label_if_ipython

    def alter_label(transform: beam.PTransform, values: Any) -> None:
        if not getattr(_OWN_STEPS, "are_added", False):
            before(transform, values)

    beam_pipeline.alter_label_if_ipython = alter_label


@cache
def _end_stages_at_once() -> None:
    """Make Beam's workers sample their state more often.

    At the end of a stage, each waits for its sampler, which by default sleeps up to 200 ms.
    """
    statesampler.StateSampler.__init__.__defaults__ = (_SAMPLING_MILLISECONDS,)


@cache
def _end_workers_and_bundles() -> None:
    """Make local workers, and Beam's threads that wait for them, end with an interrupted pipeline.

    Beam asks only connected workers to end, but waits for all of them. The threads that wait for a
    bundle would wait forever, as would those of connections that a bundle opens after the end, and
    keep what the pipeline used. So would those that send what a bundle has written every second,
    which needs none: it is little, and sent at the bundle's end.
    """
    worker_handlers.DATA_BUFFER_TIME_LIMIT_MS = 0
    close = worker_handlers.ControlConnection.close

    def close_completely(connection: worker_handlers.ControlConnection) -> None:
        if connection._state == worker_handlers.BeamFnControlServicer.UNSTARTED_STATE:
            connection.push(worker_handlers.BeamFnControlServicer._DONE_MARKER)
        close(connection)
        connection.abort(RuntimeError(PIPELINE_ENDED))

    worker_handlers.ControlConnection.close = close_completely
    channels, states = data_plane.GrpcClientDataChannelFactory, sdk_worker.GrpcStateHandlerFactory
    _close_for_good(channels, "create_data_channel_from_url", lambda channel: channel.close())
    _close_for_good(states, "create_state_handler", lambda state: state.done())


def _close_for_good(
    factory: Any, create_name: str, close_connection: Callable[[Any], object]
) -> None:
    """Make a worker's factory of connections refuse to open more when it was closed."""
    create, close = getattr(factory, create_name), factory.close

    def close_for_good(self: Any) -> None:
        self.is_closed = True
        close(self)

    def create_unless_closed(self: Any, *arguments: Any, **keywords: Any) -> Any:
        made = create(self, *arguments, **keywords)
        if self.is_closed:
            close_connection(made)
            raise RuntimeError(PIPELINE_ENDED)
        return made

    factory.is_closed = False
    factory.close = close_for_good
    setattr(factory, create_name, create_unless_closed)
