"""What a runner is to the rest of the package."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineRunner

from pipelines.config import BeamConfig

PLACE_OF_OPTIONS: Final = "beam.options, or after --"
WITH_PORT: Final = re.compile(r"(?:dns:///)?(?P<host>[^/\s]+):(?P<port>\d{1,5})")
_HOST: Final = re.compile(r"(?:https?://|dns:///)?(?:[^/@]*@)?(\[[^]]*\]|[^:/]*)")


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What is particular to a runner.

    Attributes:
        is_local: whether the work is done in this process, or in children that it waits for.
        defaults: options, by name, that those of the configuration and of the command win over.
        check: refuses what does not go together.
        elsewhere: what of the options has workers where paths of this machine mean nothing; None:
            nothing.
        decides_workers: whether it has no option for their number.
        workers: how many there are, by the options; None: the engine decides.
        make: the runner.
        held_here: what of the options makes a job end with the command; None: nothing.
        detach: sets what a job needs that goes on without the command.
        job_of: id of such a job, and where it can be watched; None: there are none.
        cancel: ends the job of a result, which would go on without the command.
    """

    is_local: bool = False
    defaults: Callable[[BeamConfig, Sequence[str]], Mapping[str, Any]] = lambda *_: {}
    check: Callable[[BeamConfig, Mapping[str, Any]], None] = lambda *_: None
    elsewhere: Callable[[Mapping[str, Any]], str | None] = lambda _: None
    decides_workers: bool = False
    workers: Callable[[Mapping[str, Any]], int | None] = lambda _: None
    make: Callable[[PipelineOptions], PipelineRunner]
    held_here: Callable[[Mapping[str, Any]], str | None] = lambda _: None
    detach: Callable[[PipelineOptions], None] = lambda _: None
    job_of: Callable[[Any, PipelineOptions], tuple[str, str | None]] | None = None
    cancel: Callable[[Any, PipelineOptions], None] = lambda result, _: result.cancel()


def is_this_machine(address: str) -> bool:
    """Whether an address, with or without its port, is one of this machine alone.

    >>> is_this_machine("http://localhost:8081"), is_this_machine("flink.example:8081")
    (True, False)
    """
    host = _HOST.match(address)
    return host is not None and host[1] in ("localhost", "127.0.0.1", "[::1]")
