"""Pipelines: made for a runner, run, and ended whatever happens."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from typing import Any, Final

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions
from apache_beam.runners.portability.fn_api_runner import fn_runner
from apache_beam.runners.portability.job_server import JobServer
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.runners.runner import PipelineRunner
from apache_beam.runners.worker import statesampler

from bpe_core.errors import BpeError
from pipelines.config import BeamConfig
from pipelines.errors import ConfigError, JobFailedError
from pipelines.runners.failures import FAILURE, error_of, keep_errors_for_the_caller, our_errors
from pipelines.runners.options import KINDS, options_of
from pipelines.runners.spec import PLACE_OF_OPTIONS, WITH_PORT, Kind
from pipelines.storage.locks import DetachedJob

_SECONDS_TO_CONNECT: Final = 5.0
_TRACEBACK: Final = "Traceback (most recent call last)"
_SAMPLING_MILLISECONDS: Final = 10


@contextmanager
def pipeline(
    config: BeamConfig, beam_args: Sequence[str] = (), places: Sequence[str] = ()
) -> Iterator[beam.Pipeline]:
    """A pipeline that runs when the block ends.

    Args:
        config: runner, workers and options.
        beam_args: options such as `--name=value`, which win over those of the configuration.
        places: paths or URLs that workers must reach.

    Raises:
        BpeError: what our code raised on a worker, as it was raised there.
        JobFailedError: the job did not finish, and no worker said why.
        ConfigError: an option that Beam does not know, or that this runner can't have.
    """
    options = options_of(config, beam_args, places)
    kind = KINDS[config.runner]
    _end_stages_at_once()
    made = _pipeline_for(config, options)
    with (
        _ends_told(made, config),
        our_errors(),
        FAILURE.watched() if kind.is_local else nullcontext(),
        _job_server_ended(made.runner),
        _metrics_kept(made),
        _cancelled_by_interruption(made, kind) if not kind.is_local else nullcontext(),
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
    """Has a runner begin a pipeline, and does not wait for it.

    Args:
        config: runner, workers and options.
        build: adds the steps to a pipeline.
        beam_args: options such as `--name=value`, which win over those of the configuration.
        places: paths or URLs that workers must reach.
        stages: of a build that the job does.

    Raises:
        ConfigError: as `pipeline` and `check_detaches` do, or the runner can't be reached.
    """
    options = options_of(config, beam_args, places, no_wait=True)
    kind = KINDS[config.runner]
    kind.detach(options)
    assert kind.job_of is not None, "check_detaches refuses others"
    running = _pipeline_for(config, options)
    with our_errors():
        build(running)
        result = running.run()
        # A job server that works on it may be asked for its name.
        with _refusals_told(config, options):
            name, url = kind.job_of(result, options)
    return DetachedJob(name=name, runner=config.runner, url=url, stages=tuple(stages))


def deal(begin: beam.pvalue.PBegin, descriptors: Sequence[bytes]) -> beam.PCollection[bytes]:
    """Descriptors of tasks, dealt to the workers in their order.

    Nothing that can be split: on some engines one worker alone would do all of it.
    """
    numbered = list(enumerate(descriptors))
    tasks = begin | "Tasks" >> beam.Create(numbered, reshuffle=False).with_output_types(
        tuple[int, bytes]
    )
    if not isinstance(begin.pipeline.runner, fn_runner.FnApiRunner):
        return tasks | "Deal" >> beam.Reshuffle() | "Dealt" >> beam.Values()
    # There a GroupByKey deals its keys evenly: what Reshuffle does for elements without keys, with
    # a third less to run.
    return (
        tasks
        | "Deal" >> beam.GroupByKey()
        | "Dealt" >> beam.FlatMapTuple(lambda _, tasks: tasks).with_output_types(bytes)
    )


def _pipeline_for(config: BeamConfig, options: PipelineOptions) -> beam.Pipeline:
    """A pipeline without steps; a service that can't be reached, or takes no job, is told of."""
    kind = KINDS[config.runner]
    keep_errors_for_the_caller()
    FAILURE.forget()
    if not kind.is_local:
        _check_listens(config, options.get_all_options())
    with _refusals_told(config, options):
        made = beam.Pipeline(runner=kind.make(options), options=options)
    if not kind.is_local:
        run_pipeline = made.runner.run_pipeline

        def run_or_refuse(*arguments: Any, **keywords: Any) -> Any:
            with _refusals_told(config, options):
                return run_pipeline(*arguments, **keywords)

        made.runner.run_pipeline = run_or_refuse
    return made


def _check_listens(config: BeamConfig, asked: Mapping[str, Any]) -> None:
    """Whether there is a job server, before everything is packed for it."""
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
                    f"{config.runner} can't reach its job server.",
                    expected=f"one that listens at {asked['job_endpoint']}",
                    found=f"{asked['job_endpoint']}: {error}",
                    where=f"job_endpoint: {PLACE_OF_OPTIONS}",
                    hint="Check the address, and whether the job server is running.",
                ) from error
        time.sleep(0.2)  # it may be starting


@contextmanager
def _refusals_told(config: BeamConfig, options: PipelineOptions) -> Iterator[None]:
    """Says what was wrong where a runner does not take a job."""
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
            f"{config.runner} did not take the job.",
            found=f"{type(error).__name__}: {said or 'no answer in time'}",
            where=f"job server {server}; {PLACE_OF_OPTIONS}" if server else PLACE_OF_OPTIONS,
            hint="Check the options and addresses there, and whether the service is running.",
        ) from error


@contextmanager
def _ends_told(pipeline: beam.Pipeline, config: BeamConfig) -> Iterator[None]:
    """Says so where an engine ended a job. Unexpected errors of workers keep their tracebacks."""
    try:
        yield
    except BpeError:
        raise
    except Exception as error:
        said = error.details() if isinstance(error, grpc.Call) else str(error)
        # A job that was not begun, or that runs in this process, has no result.
        if getattr(pipeline, "result", None) is None or _TRACEBACK in said:
            raise
        raise JobFailedError(
            f"{config.runner} did not finish the job.",
            found=said.strip() or type(error).__name__,
            hint="Run the same command again: what is finished is kept. If no worker or machine "
            "was lost, and nobody cancelled the job, the engine's log says more.",
        ) from error


@contextmanager
def _job_server_ended(runner: PipelineRunner) -> Iterator[None]:
    """Ends the job server that a portable runner starts, a process, with the pipeline.

    Beam ends it when Python ends in its own way, or at once on Ctrl-C, when it is still to cancel
    the job. What it knows, such as metrics, must have been asked for before.
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
def _metrics_kept(pipeline: beam.Pipeline) -> Iterator[None]:
    """Asks a job server for the metrics of a pipeline that has ended; its result keeps them."""
    yield
    if isinstance(pipeline.runner, PortableRunner):
        with suppress(Exception):  # then it has none
            pipeline.result.metrics()


@contextmanager
def _cancelled_by_interruption(pipeline: beam.Pipeline, kind: Kind) -> Iterator[None]:
    """Cancels the job of an engine, which would go on without the command."""
    try:
        yield
    except KeyboardInterrupt:
        FAILURE.interrupt()
        result = getattr(pipeline, "result", None)
        if result is not None:
            with suppress(Exception):  # the engine can't be reached, or the job has ended
                kind.cancel(result, pipeline.options)
        raise


@cache
def _end_stages_at_once() -> None:
    """Samples more often what Beam's workers are at.

    At the end of a stage each waits for its sampler, which sleeps up to 200 ms by default.
    """
    statesampler.StateSampler.__init__.__defaults__ = (_SAMPLING_MILLISECONDS,)
