"""Description of a runner for the rest of the package."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from apache_beam import Pipeline
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineRunner

from pipelines.config import BeamConfig
from pipelines.runners.watching import JobPage

PLACE_OF_OPTIONS: Final = "beam.options, or after --"
WITH_PORT: Final = re.compile(r"(?:dns:///)?(?P<host>[^/\s]+):(?P<port>\d{1,5})")
_HOST: Final = re.compile(r"(?:https?://|dns:///)?(?:[^/@]*@)?(\[[^]]*\]|[^:/]*)")


@dataclass(frozen=True, kw_only=True)
class RunnerSpec:
    """Properties of a runner, and functions for its special cases.

    Attributes:
        is_local: True if the work is done in this process, or in child processes.
        defaults: Default options by name; the configuration and the command line override them.
        check: Raises ConfigError for impossible combinations of options.
        elsewhere: Returns the option because of which paths of this machine have no meaning for
            workers, or None.
        decides_workers: True if it has no option for the number of workers.
        workers: Returns the number of workers with these options, or None if the engine decides.
        make: Makes the runner.
        in_launcher: Returns the option that makes a job end with the launcher, or None.
        detach: Sets options for a job that continues without the launcher.
        job_of: Returns the id of such a job and the page to watch it; None without such jobs.
        cancel: Cancels the job of a result, which would otherwise continue without the launcher.
        page: Returns the engine's interface for the job of a pipeline; None if it has none.
    """

    is_local: bool = False
    defaults: Callable[[BeamConfig, Sequence[str]], Mapping[str, Any]] = lambda *_: {}
    check: Callable[[BeamConfig, Mapping[str, Any]], None] = lambda *_: None
    elsewhere: Callable[[Mapping[str, Any]], str | None] = lambda _: None
    decides_workers: bool = False
    workers: Callable[[Mapping[str, Any]], int | None] = lambda _: None
    make: Callable[[PipelineOptions], PipelineRunner]
    in_launcher: Callable[[Mapping[str, Any]], str | None] = lambda _: None
    detach: Callable[[PipelineOptions], None] = lambda _: None
    job_of: Callable[[Any, PipelineOptions], tuple[str, str | None]] | None = None
    cancel: Callable[[Any, PipelineOptions], None] = lambda result, _: result.cancel()
    page: Callable[[Pipeline], JobPage | None] = lambda _: None


def is_this_machine(address: str) -> bool:
    """Return True if an address, with or without a port, belongs to this machine only.

    >>> is_this_machine("http://localhost:8081"), is_this_machine("flink.example:8081")
    (True, False)
    """
    host = _HOST.match(address)
    return host is not None and host[1] in ("localhost", "127.0.0.1", "[::1]")
