"""All knowledge of Beam's runners: how a pipeline is made, run, and how its errors come back."""

from __future__ import annotations

import importlib
import importlib.util
import io
import json
import logging
import os
import re
import shlex
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    PipelineOptions,
    PortableOptions,
)
from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_provision_api_pb2
from apache_beam.runners import common
from apache_beam.runners.portability.fn_api_runner import fn_runner
from apache_beam.runners.portability.job_server import JobServer
from apache_beam.runners.portability.portable_runner import (
    JobServiceHandle,
    PipelineResult,
    PortableRunner,
)
from apache_beam.runners.runner import PipelineRunner, create_runner
from apache_beam.runners.worker import data_plane, sdk_worker, sdk_worker_main, statesampler

from bpe_core.cores import usable_cores
from bpe_core.errors import BpeError
from pipelines import supervisor
from pipelines.config import BeamConfig
from pipelines.config.values import is_url
from pipelines.errors import ConfigError
from pipelines.storage.locks import DetachedJob

# An exception of ours in the text of a traceback, as Beam's workers send it: of several that follow
# from each other, the last.
_RAISED = re.compile(
    r"^(?P<module>(?:bpe_core|pipelines)(?:\.\w+)+)\.(?P<name>\w+Error): (?P<message>.*)",
    re.DOTALL | re.MULTILINE,
)
_NEXT_TRACEBACK = re.compile(r"\n\n[^\n]+:\n\n(?=Traceback )")
_BEAM_SUFFIX = re.compile(r" \[while running '[^']*'\]\s*\Z")

# What the thread that waits for a worker's process raises.
_WORKER_DIED = re.compile(r"Worker subprocess exited with return code (-?\d+)")
_ASKED_TO_END = (signal.SIGINT, signal.SIGTERM)  # by Ctrl-C, or with the command

_PLACE_OF_OPTIONS = "beam.options, or after --"
_PACKAGE_OF_DATAFLOW = "google.cloud.dataflow_v1beta3"
_HOW_WORKERS_GET_THE_PACKAGE = (
    "sdk_container_image",
    "extra_packages",
    "setup_file",
    "requirements_file",
)
_TEMPLATE = "template_location"
_EMBEDDED_FLINK = ("[local]", "[auto]")
_NOT_WAITING = (
    _TEMPLATE,
    "dry_run",
    "no_wait_until_finish",
    "wait_until_finish_duration",
)
_SECONDS_TO_CONNECT = 5.0
_ENVIRONMENTS = ("DOCKER", "EXTERNAL", "LOOPBACK", "PROCESS")
_URN_OF_ENVIRONMENT = "beam:env:"
_WITH_PORT = re.compile(r"(?:dns:///)?(?P<host>[^/\s]+):(?P<port>\d{1,5})")
_SAMPLING_MILLISECONDS = 10
_SECONDS_TO_DIE = 5.0
_LOGGERS_OF_RUNNERS = (
    "apache_beam.runners.portability.prism_runner",
    "apache_beam.runners.portability.local_job_service",
)


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
        ConfigError: an option that Beam does not know, or that this runner can't have.
    """
    options = options_of(config, beam_args, places)
    kind = _KINDS[config.runner]
    _end_stages_at_once()
    made = _pipeline_for(config, options)
    with (
        _our_errors(),
        FAILURE.watched() if kind.is_local else nullcontext(),
        _job_server_ended(made.runner),
        _metrics_kept(made),
        _cancelled_by_interruption(made),
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
    if config.runner == "FlinkRunner" and not options.view_as(PortableOptions).job_endpoint:
        # Else Beam starts a job server here, which says that a job runs before the cluster has it.
        options.view_as(FlinkRunnerOptions).flink_submit_uber_jar = True
    kind = _KINDS[config.runner]
    assert kind.job_of is not None, "check_detaches refuses others"
    running = _pipeline_for(config, options)
    with _our_errors():
        build(running)
        result = running.run()
        with _taken(config, options):  # a job server that works on it may be asked for its name
            name, url = kind.job_of(result, options)
    return DetachedJob(name=name, runner=config.runner, url=url, stages=tuple(stages))


def _pipeline_for(config: BeamConfig, options: PipelineOptions) -> beam.Pipeline:
    """A pipeline without steps; a service that can't be reached, or takes no job, is told of."""
    kind = _KINDS[config.runner]
    _keep_errors_for_the_caller()
    if not kind.is_local:
        _check_listens(config, options.get_all_options())
    with _taken(config, options):
        made = beam.Pipeline(runner=kind.make(options), options=options)
    if not kind.is_local:
        submit = made.runner.run_pipeline

        def submit_or_refuse(*arguments: Any, **keywords: Any) -> Any:
            with _taken(config, options):
                return submit(*arguments, **keywords)

        made.runner.run_pipeline = submit_or_refuse
    return made


def _check_listens(config: BeamConfig, asked: Mapping[str, Any]) -> None:
    """Whether there is a job server, before everything is packed for it."""
    if not isinstance(asked["job_endpoint"], str):
        return
    address = _WITH_PORT.fullmatch(asked["job_endpoint"])
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
                    where=f"job_endpoint: {_PLACE_OF_OPTIONS}",
                    hint="Check the address, and whether the job server is running.",
                ) from error
        time.sleep(0.2)  # it may be starting


@contextmanager
def _taken(config: BeamConfig, options: PipelineOptions) -> Iterator[None]:
    """Says what was wrong where a runner does not take a job."""
    try:
        yield
    except BpeError:
        raise
    except (OSError, RuntimeError, ValueError, grpc.RpcError, grpc.FutureTimeoutError) as error:
        if _error_of(str(error)) is not None:
            raise
        said = error.details() if isinstance(error, grpc.Call) else str(error)
        server = options.view_as(PortableOptions).job_endpoint
        raise ConfigError(
            f"{config.runner} did not take the job.",
            found=f"{type(error).__name__}: {said or 'no answer in time'}",
            where=f"job server {server}; {_PLACE_OF_OPTIONS}" if server else _PLACE_OF_OPTIONS,
            hint="Check the addresses there, and whether the service is running.",
        ) from error


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
def _cancelled_by_interruption(pipeline: beam.Pipeline) -> Iterator[None]:
    """Cancels the job of a portable runner, which would go on without the command."""
    try:
        yield
    except KeyboardInterrupt:
        result = getattr(pipeline, "result", None)
        if isinstance(result, PipelineResult):
            with suppress(Exception):  # the server can't be reached, or the job has ended
                result.cancel()
        raise


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


def options_of(
    config: BeamConfig,
    beam_args: Sequence[str] = (),
    places: Sequence[str] = (),
    *,
    no_wait: bool = False,
) -> PipelineOptions:
    """The options of a pipeline.

    Raises:
        ConfigError: one that Beam does not know, that has a wrong value, or that does not go with
            the runner, with where the data are or, with `no_wait`, with leaving the job.
    """
    kind = _KINDS[config.runner]
    given = {**kind.defaults(config, beam_args), **config.options}
    options = PipelineOptions([*_flags(given), *beam_args])
    known = PipelineOptions([]).get_all_options()
    asked = _parsed(options)
    if unknown := sorted(asked.keys() - known.keys()):
        raise ConfigError(
            "An option is none of Beam's.",
            found=", ".join(f"--{name}" for name in unknown),
            where=_PLACE_OF_OPTIONS,
            hint="See the pipeline options of Apache Beam; keys of the configuration are "
            "overridden with --set.",
        )
    if asked["runner"] not in (None, config.runner):
        raise ConfigError(
            "The runner is not one of the options.",
            expected=f"{config.runner}, as beam.runner says",
            found=f"--runner={asked['runner']}",
            where=_PLACE_OF_OPTIONS,
            hint="Remove it, or change beam.runner.",
        )
    kind.check(config, asked)
    if no_wait:
        check_detaches(config, options)
    if kind.is_remote(asked):
        _check_reachable(config, places)
    if config.workers and kind.own_workers:
        raise ConfigError(
            "beam.workers has no effect on this runner.",
            expected=f"0 (the default) for {config.runner}, whose engine decides how much it does "
            "at a time",
            found=str(config.workers),
            where="beam.workers",
            hint="Leave it out, and set what the engine knows in beam.options.",
        )
    return options


def workers_of(config: BeamConfig, options: PipelineOptions) -> int | None:
    """How many workers a pipeline with these options has; None: its engine decides.

    >>> config = BeamConfig(workers=3)
    >>> workers_of(config, options_of(config, ["--direct_num_workers=2"]))
    2
    """
    return _KINDS[config.runner].workers(options.get_all_options())


def check_waits(options: PipelineOptions) -> None:
    """A build goes on from what a pipeline has written, so it must wait for its end.

    Raises:
        ConfigError: an option would have it go on before.
    """
    asked = options.get_all_options()
    found = [name for name in _NOT_WAITING if asked.get(name)]
    if found:
        raise ConfigError(
            "A build must wait for its pipelines, which these options do not let run to their end.",
            expected="no " + ", ".join(f"--{name}" for name in _NOT_WAITING),
            found=", ".join(f"--{name}" for name in found),
            where=_PLACE_OF_OPTIONS,
            hint="Remove them, and let the command run until the build is finished; or submit its "
            "pipelines with --no-wait.",
        )


def check_detaches(config: BeamConfig, options: PipelineOptions) -> None:
    """With --no-wait a job must live on when the command has left.

    Raises:
        ConfigError: it would not, or an option says something else of waiting.
    """
    asked = options.get_all_options()
    kind = _KINDS[config.runner]
    found = kind.held_here(asked)
    if kind.job_of is None or found is not None:
        raise ConfigError(
            "With --no-wait a job goes on without the command, which this one can't.",
            expected="FlinkRunner or PortableRunner with a cluster or job server of its own and "
            "workers beside it, or DataflowRunner",
            found=found or f"{config.runner}, which works in processes of the command",
            where=f"beam.runner; {_PLACE_OF_OPTIONS}",
            hint="Leave out --no-wait, or change where the job runs.",
        )
    others = [name for name in _NOT_WAITING if name != _TEMPLATE and asked.get(name)]
    if others:
        raise ConfigError(
            "Whether the command waits is said twice.",
            expected="--no-wait alone",
            found=", ".join(f"--{name}" for name in others),
            where=_PLACE_OF_OPTIONS,
            hint="Remove them.",
        )


def _parsed(options: PipelineOptions) -> dict[str, Any]:
    """All options with their values. Beam's parser would print its long usage and leave."""
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            values: dict[str, Any] = options.get_all_options(retain_unknown_options=True)
    except SystemExit:
        raise ConfigError(
            "An option of Beam has a wrong value.",
            found=said.getvalue().rstrip().rpartition("error: ")[2],
            where=_PLACE_OF_OPTIONS,
        ) from None
    return values


def _flags(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        if any(isinstance(v, Mapping) for v in (value if isinstance(value, list) else [value])):
            raise ConfigError(
                "An option of Beam has a wrong value.",
                expected="a text, number, true, false, or a list of these; JSON as a text",
                found="a mapping",
                where=f"beam.options.{name}",
            )
        if value is True:
            yield f"--{name}"
        elif isinstance(value, list):
            yield from (f"--{name}={item}" for item in value)
        elif value is not None and value is not False:
            yield f"--{name}={value}"


# --- the runners -----------------------------------------------------------------------------


def _local_defaults(config: BeamConfig, beam_args: Sequence[str]) -> dict[str, Any]:
    option = "--direct_running_mode="
    asked = [argument.removeprefix(option) for argument in beam_args if argument.startswith(option)]
    mode = [config.options.get("direct_running_mode", "multi_threading"), *asked][-1]
    workers = config.workers or (1 if mode == "in_memory" else usable_cores())
    # Processes would tell of their beginning and their end, among the lines of progress.
    quiet = {"default_sdk_harness_log_level": "ERROR"} if mode == "multi_processing" else {}
    return {"direct_running_mode": mode, "direct_num_workers": workers, **quiet}


def _check_local(_config: BeamConfig, asked: Mapping[str, Any]) -> None:
    given = asked["direct_num_workers"]
    if given < 0:
        raise ConfigError(
            "There can't be fewer workers than none.",
            expected="a whole number from 1, or 0 for one for each core",
            found=f"--direct_num_workers={given}",
            where=f"beam.workers; {_PLACE_OF_OPTIONS}",
        )
    workers = _local_workers(asked)
    if asked["direct_running_mode"] == "in_memory" and workers > 1:
        raise ConfigError(
            "The mode in_memory has one worker.",
            expected="1 worker, or another direct_running_mode",
            found=f"{workers} workers" + ", one for each core" * (given == 0),
            where=f"beam.workers; {_PLACE_OF_OPTIONS}",
            hint="Set beam.workers: 1, or leave out direct_running_mode: multi_threading uses all "
            "cores.",
        )


def _local_workers(asked: Mapping[str, Any]) -> int:
    """As Beam has it, 0 is all cores of the machine."""
    return int(asked["direct_num_workers"]) or os.cpu_count() or 1


class _LocalRunner(fn_runner.FnApiRunner):  # type: ignore[misc]
    """Begins processes of workers with `worker_process`."""

    def run_via_runner_api(self, pipeline_proto: Any, options: PipelineOptions) -> Any:
        for environment in pipeline_proto.components.environments.values():
            if environment.urn == python_urns.SUBPROCESS_SDK:
                safe_path = ["-P"] if sys.flags.safe_path else []
                worker = ["-m", "pipelines.worker_process", sdk_worker_main.__name__]
                environment.payload = shlex.join([sys.executable, *safe_path, *worker]).encode()
        return super().run_via_runner_api(pipeline_proto, options)


def _local_runner(options: PipelineOptions) -> _LocalRunner:
    """The runner that DirectRunner means, without its search for another one on the network.

    The bare DirectRunner first tries to download Prism, and with it ignores the number of workers.
    Its provision information hands the options on to the workers.
    """
    encoded = JobServiceHandle.encode_pipeline_options(options.get_all_options())
    information = beam_provision_api_pb2.ProvisionInfo(pipeline_options=encoded)
    return _LocalRunner(provision_info=fn_runner.ExtendedProvisionInfo(information))


def _flink_defaults(config: BeamConfig, _args: Sequence[str]) -> dict[str, Any]:
    return {"parallelism": config.workers} if config.workers else {}


def _flink_workers(asked: Mapping[str, Any]) -> int | None:
    return asked["parallelism"] if asked["parallelism"] > 0 else None


def _check_portable(config: BeamConfig, asked: Mapping[str, Any]) -> None:
    if not asked["job_endpoint"]:
        raise ConfigError(
            "PortableRunner needs a job server.",
            expected="its address, such as job_endpoint: localhost:8099; embed: one in the command",
            found="no job_endpoint",
            where=_PLACE_OF_OPTIONS,
        )
    _check_environment(config, asked)


def _check_environment(_config: BeamConfig, asked: Mapping[str, Any]) -> None:
    """Whether the options say where workers are, as Beam wants it said."""
    environment = asked["environment_type"]
    if environment is None or environment.startswith(_URN_OF_ENVIRONMENT):
        return
    if environment not in _ENVIRONMENTS:
        raise ConfigError(
            "No workers are of this kind.",
            expected=f"one of {', '.join(_ENVIRONMENTS)}",
            found=f"--environment_type={environment}",
            where=_PLACE_OF_OPTIONS,
        )
    if environment == "EXTERNAL" and not _WITH_PORT.fullmatch(_pool_of(asked)):
        raise ConfigError(
            "Workers of a pool need its address.",
            expected="environment_config: host:port, such as localhost:50000",
            found=_pool_of(asked) or "none",
            where=_PLACE_OF_OPTIONS,
        )
    if environment == "PROCESS" and not _of_environment(asked, "command", "process_command"):
        raise ConfigError(
            "Workers that are processes need a command that starts one.",
            expected='environment_config: {"command": "/opt/apache/beam/boot"}, as JSON',
            found="no command",
            where=_PLACE_OF_OPTIONS,
        )


def _pool_of(asked: Mapping[str, Any]) -> str:
    """The address of a pool of workers; empty if there is none."""
    given = asked["environment_config"] or ""
    if given and not given.lstrip().startswith("{"):
        return str(given)
    return _of_environment(asked, "url", "external_service_address")


def _of_environment(asked: Mapping[str, Any], key: str, option: str) -> str:
    """A key of the JSON in environment_config or, without that, one of environment_options."""
    given = asked["environment_config"]
    if not given:
        named = [text.partition("=") for text in asked["environment_options"] or ()]
        return next((value for name, _, value in named if name == option), "")
    try:
        return str(json.loads(given)[key] or "")
    except (ValueError, KeyError, TypeError):
        return ""


def _check_flink(config: BeamConfig, asked: Mapping[str, Any]) -> None:
    _check_environment(config, asked)
    if asked["environment_type"] == "LOOPBACK" and not _is_this_machine(asked["flink_master"]):
        raise ConfigError(
            "Workers of a cluster can't reach this process.",
            expected="environment_type DOCKER, EXTERNAL or PROCESS for a cluster elsewhere",
            found=f"LOOPBACK, which runs the work in this process, with {asked['flink_master']}",
            where=_PLACE_OF_OPTIONS,
            hint="Set environment_type, and environment_config to the image or the address of the "
            "worker pool.",
        )


def _flink_held_here(asked: Mapping[str, Any]) -> str | None:
    if asked["flink_master"] in _EMBEDDED_FLINK and not asked["job_endpoint"]:
        return f"flink_master {asked['flink_master']}, which runs in processes of the command"
    return _workers_held_here(asked)


def _workers_held_here(asked: Mapping[str, Any]) -> str | None:
    if asked["job_endpoint"] == "embed":
        return "job_endpoint embed, which is in the command"
    if asked["environment_type"] == "LOOPBACK":
        return "environment_type LOOPBACK, which runs the work in the command"
    return None


def _flink_job(result: Any, options: PipelineOptions) -> tuple[str, str | None]:
    """The cluster's own id of a job that it got as a jar, else that of the job server."""
    from apache_beam.runners.portability import flink_uber_jar_job_server  # slow to import

    service = result._job_service
    if not isinstance(service, flink_uber_jar_job_server.FlinkUberJarJobServer):
        return _portable_job(result, options)
    name: str = service._jobs[result._job_id]._flink_job_id
    return name, f"{service._master_url}/jobs/{name}"


def _portable_job(result: Any, _options: PipelineOptions) -> tuple[str, str | None]:
    return result._job_id, None


def _dataflow_job(result: Any, options: PipelineOptions) -> tuple[str, str | None]:
    asked = options.get_all_options()
    if not result.has_job:
        return f"template {asked[_TEMPLATE]}", None
    name = result.job_id()
    return name, (
        f"https://console.cloud.google.com/dataflow/jobs/{asked['region']}/{name}"
        f"?project={asked['project']}"
    )


def _flink_is_remote(asked: Mapping[str, Any]) -> bool:
    return not _is_this_machine(asked["flink_master"]) or asked["environment_type"] == "DOCKER"


def _portable_is_remote(asked: Mapping[str, Any]) -> bool:
    if asked["environment_type"] in (None, "DOCKER"):
        return True
    return asked["environment_type"] == "EXTERNAL" and not _is_this_machine(_pool_of(asked))


def _is_this_machine(address: str) -> bool:
    if address in _EMBEDDED_FLINK:
        return True
    host = re.sub(r"^https?://", "", address).rpartition(":")[0] or address
    return host in ("localhost", "127.0.0.1", "[::1]", "::1")


def _dataflow_defaults(config: BeamConfig, _args: Sequence[str]) -> dict[str, Any]:
    # The main session would be that of the command, which no worker needs.
    most = {"max_num_workers": config.workers} if config.workers else {}
    return {"no_save_main_session": True, **most}


def _check_dataflow(_config: BeamConfig, asked: Mapping[str, Any]) -> None:
    if not _is_installed(_PACKAGE_OF_DATAFLOW):
        raise ConfigError(
            "DataflowRunner needs a package that is not installed.",
            expected=_PACKAGE_OF_DATAFLOW,
            where="beam.runner: DataflowRunner",
            hint="pip install 'bpe-beam[dataflow]'",
        )
    missing = [name for name in ("project", "region", "temp_location") if not asked.get(name)]
    if missing:
        raise ConfigError(
            "Dataflow needs more options.",
            expected="project, region, and a temp_location in Google Cloud Storage",
            found="none for " + ", ".join(missing),
            where=_PLACE_OF_OPTIONS,
        )
    if not any(asked.get(name) for name in _HOW_WORKERS_GET_THE_PACKAGE):
        raise ConfigError(
            "Dataflow's workers would not have this package.",
            expected="one of " + ", ".join(_HOW_WORKERS_GET_THE_PACKAGE),
            found="none of them",
            where=_PLACE_OF_OPTIONS,
            hint="Name the image of deploy/Dockerfile in sdk_container_image, or the wheel that "
            "`make wheel` builds in extra_packages.",
        )
    place = asked["temp_location"]
    if not place.startswith("gs://") and not _is_this_machine(asked["dataflow_endpoint"]):
        raise ConfigError(
            "Dataflow's workers can't reach this place.",
            expected="temp_location in Google Cloud Storage, gs://bucket/folder",
            found=place,
            where=_PLACE_OF_OPTIONS,
        )


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of a package that it is in
        return False


def _check_reachable(config: BeamConfig, places: Sequence[str]) -> None:
    local = [place for place in places if not is_url(place) or place.startswith("memory://")]
    if local:
        raise ConfigError(
            "Workers on other machines can't reach a path of this machine.",
            expected="URLs of a storage that all workers reach, such as s3://bucket/folder",
            found=local[0],
            where=f"beam.runner: {config.runner}",
            hint="Use an object store; for a folder that is mounted alike on every machine, write "
            "file:///path.",
        )


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """What is particular to a runner.

    Attributes:
        is_local: whether the work is done in this process, or in children that it waits for.
        defaults: options, by name, that those of the configuration and of the command win over.
        check: refuses what does not go together.
        is_remote: whether workers may be on other machines.
        own_workers: whether it has no option for their number.
        workers: how many there are, by the options; None: the engine decides.
        make: the runner.
        held_here: what of the options makes a job end with the command; None: nothing.
        job_of: id of a job that goes on without the command, and where it can be watched; None:
            there are none.
    """

    is_local: bool = False
    defaults: Callable[[BeamConfig, Sequence[str]], Mapping[str, Any]] = lambda *_: {}
    check: Callable[[BeamConfig, Mapping[str, Any]], None] = lambda *_: None
    is_remote: Callable[[Mapping[str, Any]], bool] = lambda _: False
    own_workers: bool = False
    workers: Callable[[Mapping[str, Any]], int | None] = lambda _: None
    make: Callable[[PipelineOptions], PipelineRunner]
    held_here: Callable[[Mapping[str, Any]], str | None] = lambda _: None
    job_of: Callable[[Any, PipelineOptions], tuple[str, str | None]] | None = None


_KINDS: Final[Mapping[str, _Kind]] = {
    "DirectRunner": _Kind(
        is_local=True,
        defaults=_local_defaults,
        check=_check_local,
        workers=_local_workers,
        make=_local_runner,
    ),
    "FlinkRunner": _Kind(
        defaults=_flink_defaults,
        check=_check_flink,
        workers=_flink_workers,
        is_remote=_flink_is_remote,
        make=lambda _: create_runner("FlinkRunner"),
        held_here=_flink_held_here,
        job_of=_flink_job,
    ),
    "PrismRunner": _Kind(
        own_workers=True,
        check=_check_environment,
        make=lambda _: create_runner("PrismRunner"),
    ),
    "PortableRunner": _Kind(
        own_workers=True,
        check=_check_portable,
        is_remote=_portable_is_remote,
        make=lambda _: create_runner("PortableRunner"),
        held_here=_workers_held_here,
        job_of=_portable_job,
    ),
    "DataflowRunner": _Kind(
        defaults=_dataflow_defaults,
        check=_check_dataflow,
        is_remote=lambda _: True,
        make=lambda _: create_runner("DataflowRunner"),
        job_of=_dataflow_job,
    ),
}


# --- errors ----------------------------------------------------------------------------------


@contextmanager
def _our_errors() -> Iterator[None]:
    """Raises an error of ours as itself where Beam wraps it: as the text of a traceback."""
    try:
        yield
    except BpeError as error:
        raise type(error)(_BEAM_SUFFIX.sub("", str(error))) from error
    except Exception as error:
        ours = _error_of(str(error))
        if ours is None:
            raise
        raise ours from error


@cache
def _end_stages_at_once() -> None:
    """Samples more often what Beam's workers are at.

    At the end of a stage each waits for its sampler, which sleeps up to 200 ms by default.
    """
    statesampler.StateSampler.__init__.__defaults__ = (_SAMPLING_MILLISECONDS,)


@cache
def _keep_errors_for_the_caller() -> None:
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
    ours = shown if isinstance(shown, BpeError) else _error_of(text)
    if ours is not None:
        FAILURE.note(ours)
    return ours is None and not FAILURE.is_ours


def _error_of(text: str) -> BpeError | None:
    found = _RAISED.search(_NEXT_TRACEBACK.split(text)[-1])
    if found is None:
        return None
    kind = getattr(importlib.import_module(found["module"]), found["name"], None)
    if not (isinstance(kind, type) and issubclass(kind, BpeError)):
        return None
    return kind(_BEAM_SUFFIX.sub("", found["message"]).rstrip())
