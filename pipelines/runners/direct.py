"""DirectRunner: threads or child processes of the launcher."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_provision_api_pb2
from apache_beam.runners.portability.fn_api_runner import fn_runner
from apache_beam.runners.portability.portable_runner import JobServiceHandle
from apache_beam.runners.worker import sdk_worker_main

from bpe_core.cores import usable_cores
from pipelines.config import BeamConfig
from pipelines.errors import ConfigError
from pipelines.runners.spec import PLACE_OF_OPTIONS, RunnerSpec


def _defaults(config: BeamConfig, beam_args: Sequence[str]) -> dict[str, Any]:
    said = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    said.add_argument("--direct_running_mode", nargs="?")
    asked = said.parse_known_args(beam_args)[0].direct_running_mode
    # Native code releases the global lock, so threads use all cores, and share tables and caches.
    mode = asked or config.options.get("direct_running_mode", "multi_threading")
    workers = config.workers or (1 if mode == "in_memory" else usable_cores())
    # Worker processes would log their start and their end between the lines of progress.
    quiet = {"default_sdk_harness_log_level": "ERROR"} if mode == "multi_processing" else {}
    return {"direct_running_mode": mode, "direct_num_workers": workers, **quiet}


def _check(_config: BeamConfig, asked: Mapping[str, Any]) -> None:
    given = asked["direct_num_workers"]
    if given < 0:
        raise ConfigError(
            "The number of workers cannot be negative.",
            expected="a positive whole number, or 0 for one worker per core",
            found=f"--direct_num_workers={given}",
            where=f"beam.workers; {PLACE_OF_OPTIONS}",
        )
    workers = _workers(asked)
    if asked["direct_running_mode"] == "in_memory" and workers > 1:
        raise ConfigError(
            "The mode in_memory supports only one worker.",
            expected="1 worker, or a different direct_running_mode",
            found=f"{workers} workers" + ", one per core" * (given == 0),
            where=f"beam.workers; {PLACE_OF_OPTIONS}",
            hint="Set beam.workers: 1, or remove direct_running_mode: multi_threading uses all "
            "cores.",
        )


def _workers(asked: Mapping[str, Any]) -> int:
    """Return the number of workers. As in Beam, 0 means all cores of the machine."""
    return int(asked["direct_num_workers"]) or os.cpu_count() or 1


class _LocalRunner(fn_runner.FnApiRunner):  # type: ignore[misc]
    """Runner that starts worker processes with `worker_process`."""

    def run_via_runner_api(self, pipeline_proto: Any, options: PipelineOptions) -> Any:
        for environment in pipeline_proto.components.environments.values():
            if environment.urn == python_urns.SUBPROCESS_SDK:
                safe_path = ["-P"] if sys.flags.safe_path else []
                worker = ["-m", "pipelines.worker_process", sdk_worker_main.__name__]
                environment.payload = shlex.join([sys.executable, *safe_path, *worker]).encode()
        return super().run_via_runner_api(pipeline_proto, options)


def _runner(options: PipelineOptions) -> _LocalRunner:
    """Return the runner behind DirectRunner, without its search for another one on the network.

    The bare DirectRunner first tries to download Prism, and then ignores the number of workers. The
    runner's provision information passes the options on to the workers.
    """
    encoded = JobServiceHandle.encode_pipeline_options(options.get_all_options())
    information = beam_provision_api_pb2.ProvisionInfo(pipeline_options=encoded)
    return _LocalRunner(provision_info=fn_runner.ExtendedProvisionInfo(information))


DIRECT: Final = RunnerSpec(
    is_local=True, defaults=_defaults, check=_check, workers=_workers, make=_runner
)
