"""DataflowRunner: Google's service."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any, Final

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import create_runner

from pipelines.config import BeamConfig
from pipelines.errors import ConfigError
from pipelines.runners.dataflow_page import DataflowPage, job_url
from pipelines.runners.spec import PLACE_OF_OPTIONS, RunnerSpec, is_this_machine

TEMPLATE: Final = "template_location"
_PACKAGE: Final = "google.cloud.dataflow_v1beta3"
_HOW_WORKERS_GET_THE_PACKAGE: Final = (
    "sdk_container_image",
    "extra_packages",
    "setup_file",
)


def _defaults(config: BeamConfig, _args: Sequence[str]) -> dict[str, Any]:
    # The main session would be that of the launcher, which no worker needs.
    most = {"max_num_workers": config.workers} if config.workers else {}
    return {"no_save_main_session": True, **most}


def _check(_config: BeamConfig, asked: Mapping[str, Any]) -> None:
    if not _is_installed(_PACKAGE):
        raise ConfigError(
            "DataflowRunner needs a package that is not installed.",
            expected=_PACKAGE,
            where="beam.runner: DataflowRunner",
            hint="pip install 'apache-beam[gcp]' gcsfs (the extra `dataflow` of this package)",
        )
    missing = [name for name in ("project", "region", "temp_location") if not asked.get(name)]
    if missing:
        raise ConfigError(
            "Dataflow needs more options.",
            expected="project, region, and a temp_location in Google Cloud Storage",
            found="none for " + ", ".join(missing),
            where=PLACE_OF_OPTIONS,
        )
    if not any(asked.get(name) for name in _HOW_WORKERS_GET_THE_PACKAGE):
        raise ConfigError(
            "Dataflow's workers would not have this package installed.",
            expected="one of " + ", ".join(_HOW_WORKERS_GET_THE_PACKAGE),
            found="none of them",
            where=PLACE_OF_OPTIONS,
            hint="Set sdk_container_image to an image built from deploy/Dockerfile, or "
            "extra_packages to the wheels that `make wheel` builds.",
        )
    place = asked["temp_location"]
    if not place.startswith("gs://") and not is_this_machine(asked["dataflow_endpoint"]):
        raise ConfigError(
            "Dataflow's workers cannot reach this location.",
            expected="temp_location in Google Cloud Storage, gs://bucket/folder",
            found=place,
            where=PLACE_OF_OPTIONS,
        )


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of a parent package
        return False


def _job_of(result: Any, options: PipelineOptions) -> tuple[str, str | None]:
    asked = options.get_all_options()
    if not result.has_job:
        return f"template {asked[TEMPLATE]}", None
    name = result.job_id()
    return name, job_url(asked["project"], asked["region"], name)


DATAFLOW: Final = RunnerSpec(
    defaults=_defaults,
    check=_check,
    elsewhere=lambda _: "machines of Google Cloud",
    make=lambda _: create_runner("DataflowRunner"),
    job_of=_job_of,
    page=DataflowPage,
)
