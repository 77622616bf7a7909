"""All knowledge of Beam's runners: how a pipeline is made, run, and how its errors come back."""

from __future__ import annotations

import importlib
import io
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_provision_api_pb2
from apache_beam.runners.portability.fn_api_runner import fn_runner
from apache_beam.runners.portability.portable_runner import JobServiceHandle

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
_LOGGERS_OF_ERRORS = ("apache_beam.runners.common", "apache_beam.runners.worker.sdk_worker")
_BEAM_SUFFIX = re.compile(r" \[while running '[^']*'\]\s*\Z")

_PLACE_OF_OPTIONS = "beam.options, or after --"


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
    options = _options(config, beam_args)
    with _our_errors(), beam.Pipeline(runner=_local_runner(options), options=options) as running:
        yield running


def _options(config: BeamConfig, beam_args: Sequence[str]) -> PipelineOptions:
    given = {
        "direct_running_mode": "multi_threading",
        "direct_num_workers": config.workers or len(os.sched_getaffinity(0)),
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
    """Raises an error of ours as itself where Beam wraps it, and keeps Beam from logging it too."""
    loggers = [logging.getLogger(name) for name in _LOGGERS_OF_ERRORS]
    for logger in loggers:
        logger.addFilter(_is_not_ours)
    try:
        yield
    except BpeError as error:
        raise type(error)(_BEAM_SUFFIX.sub("", str(error))) from error
    except Exception as error:
        ours = _error_of(str(error))
        if ours is None:
            raise
        raise ours from error
    finally:
        for logger in loggers:
            logger.removeFilter(_is_not_ours)


def _is_not_ours(record: logging.LogRecord) -> bool:
    return not isinstance(record.msg, BpeError) and _error_of(record.getMessage()) is None


def _error_of(text: str) -> BpeError | None:
    found = _RAISED.search(_NEXT_TRACEBACK.split(text)[-1])
    if found is None:
        return None
    kind = getattr(importlib.import_module(found["module"]), found["name"], None)
    if not (isinstance(kind, type) and issubclass(kind, BpeError)):
        return None
    return kind(_BEAM_SUFFIX.sub("", found["message"]).rstrip())
