"""All knowledge of Beam's runners: how a pipeline is made, run, and how its errors come back."""

from __future__ import annotations

import importlib
import io
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from functools import cache
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_provision_api_pb2
from apache_beam.runners import common
from apache_beam.runners.portability.fn_api_runner import fn_runner
from apache_beam.runners.portability.portable_runner import JobServiceHandle
from apache_beam.runners.worker import data_plane, sdk_worker, statesampler

from bpe_core.cores import usable_cores
from bpe_core.errors import BpeError
from pipelines.config import BeamConfig
from pipelines.errors import ConfigError

# An exception of ours in the text of a traceback, as Beam's workers send it: of several that follow
# from each other, the last.
_RAISED = re.compile(
    r"^(?P<module>(?:bpe_core|pipelines)(?:\.\w+)+)\.(?P<name>\w+Error): (?P<message>.*)",
    re.DOTALL | re.MULTILINE,
)
_NEXT_TRACEBACK = re.compile(r"\n\n[^\n]+:\n\n(?=Traceback )")
_BEAM_SUFFIX = re.compile(r" \[while running '[^']*'\]\s*\Z")

_PLACE_OF_OPTIONS = "beam.options, or after --"
_SAMPLING_MILLISECONDS = 10


@contextmanager
def pipeline(config: BeamConfig, beam_args: Sequence[str] = ()) -> Iterator[beam.Pipeline]:
    """A pipeline that runs when the block ends.

    Args:
        config: runner, workers and options.
        beam_args: options such as `--name=value`, which win over those of the configuration.

    Raises:
        BpeError: what our code raised on a worker, as it was raised there.
        ConfigError: an option that Beam does not know.
    """
    options = options_of(config, beam_args)
    _keep_errors_for_the_caller()
    _end_stages_at_once()
    with (
        _our_errors(),
        FAILURE.watched(),
        beam.Pipeline(runner=_local_runner(options), options=options) as running,
    ):
        yield running


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
    def is_ours(self) -> bool:
        """Whether the pipeline that runs, or the last one, failed with an error of ours."""
        return isinstance(self._error, BpeError)

    def raise_again(self) -> None:
        """Raises the error if there was one."""
        if self._watched and self._error is not None:
            raise self._error


FAILURE = _Failure()


def options_of(config: BeamConfig, beam_args: Sequence[str] = ()) -> PipelineOptions:
    """The options of a local pipeline.

    Raises:
        ConfigError: one that Beam does not know, or that has a wrong value.
    """
    given = {
        "direct_running_mode": "multi_threading",
        "direct_num_workers": config.workers or usable_cores(),
        **config.options,
    }
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
    return options


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
        if value is True:
            yield f"--{name}"
        elif isinstance(value, list):
            yield from (f"--{name}={item}" for item in value)
        elif value is not None and value is not False:
            yield f"--{name}={value}"


def _local_runner(options: PipelineOptions) -> fn_runner.FnApiRunner:
    """The runner that DirectRunner means, without its search for another one on the network.

    The bare DirectRunner first tries to download Prism, and with it ignores the number of workers.
    Its provision information hands the options on to the workers.
    """
    encoded = JobServiceHandle.encode_pipeline_options(options.get_all_options())
    information = beam_provision_api_pb2.ProvisionInfo(pipeline_options=encoded)
    return fn_runner.FnApiRunner(provision_info=fn_runner.ExtendedProvisionInfo(information))


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
    for logger in (sdk_worker._LOGGER, common._LOGGER, data_plane._LOGGER):
        logger.addFilter(lambda record: _is_of_others(record.msg, record.getMessage()))
    show = threading.excepthook
    threading.excepthook = lambda failed: None if FAILURE.is_ours else show(failed)


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
