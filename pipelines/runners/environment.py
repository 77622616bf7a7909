"""Where a portable runner's workers are, as Beam's options of the environment say it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from apache_beam.portability import common_urns, python_urns

from pipelines.config import BeamConfig
from pipelines.errors import ConfigError
from pipelines.runners.spec import PLACE_OF_OPTIONS, WITH_PORT, is_this_machine

_OF_URN: Final = {
    common_urns.environments.DOCKER.urn: "DOCKER",
    common_urns.environments.EXTERNAL.urn: "EXTERNAL",
    python_urns.EMBEDDED_PYTHON_LOOPBACK: "LOOPBACK",
    common_urns.environments.PROCESS.urn: "PROCESS",
}
EMBEDDED_FLINK: Final = ("[local]", "[auto]")  # in the job server
_EMBEDDED: Final = ("embed", *EMBEDDED_FLINK)  # in the command, or in what it starts


def check_environment(
    _config: BeamConfig, asked: Mapping[str, Any], unsaid: str = "DOCKER"
) -> None:
    """Whether the options say where workers are, as Beam wants it said, and engines reach them.

    Args:
        asked: the options.
        unsaid: kind of workers that the runner takes where none is given.
    """
    kind = _kind_of_workers(asked, unsaid)
    if kind not in _OF_URN.values():
        raise ConfigError(
            "No workers are of this kind.",
            expected=f"one of {', '.join(_OF_URN.values())}",
            found=f"--environment_type={kind}",
            where=PLACE_OF_OPTIONS,
        )
    if kind == "EXTERNAL" and not WITH_PORT.fullmatch(_pool_of(asked)):
        raise ConfigError(
            "Workers of a pool need its address.",
            expected="environment_config: host:port, such as localhost:50000",
            found=_pool_of(asked) or "none",
            where=PLACE_OF_OPTIONS,
        )
    if kind == "PROCESS" and not _of_environment(asked, "command", "process_command"):
        raise ConfigError(
            "Workers that are processes need a command that starts one.",
            expected='environment_config: {"command": "/opt/apache/beam/boot"}, as JSON',
            found="no command",
            where=PLACE_OF_OPTIONS,
        )
    engine = _engine_elsewhere(asked)
    if kind == "LOOPBACK" and engine is not None:
        default = "" if asked["environment_type"] else ", the default"
        raise ConfigError(
            "An engine on other machines can't reach this process.",
            expected="environment_type DOCKER, EXTERNAL or PROCESS for an engine elsewhere",
            found=f"LOOPBACK{default}, which runs the work in this process, with {engine}",
            where=PLACE_OF_OPTIONS,
            hint="Set environment_type, and environment_config to the image or the address of the "
            "worker pool.",
        )


def workers_elsewhere(asked: Mapping[str, Any], unsaid: str = "DOCKER") -> str | None:
    """What of the options has workers where paths of this machine mean nothing; None: nothing.

    Containers are such a place on this machine too. What a job server on this machine passes its
    jobs on to, it alone knows.
    """
    engine = _engine_elsewhere(asked)
    if engine is not None:
        return engine
    kind = _kind_of_workers(asked, unsaid)
    if kind == "DOCKER":
        return "environment_type DOCKER" + ("" if asked["environment_type"] else ", the default")
    if kind == "EXTERNAL" and not is_this_machine(_pool_of(asked)):
        return f"a worker pool at {_pool_of(asked)}"
    return None


def workers_held_here(asked: Mapping[str, Any], unsaid: str = "DOCKER") -> str | None:
    """What of the options has the work done in this process; None: nothing."""
    if asked["job_endpoint"] == "embed":
        return "job_endpoint embed, which is in the command"
    if _kind_of_workers(asked, unsaid) == "LOOPBACK":
        return "environment_type LOOPBACK, which runs the work in the command"
    return None


def _kind_of_workers(asked: Mapping[str, Any], unsaid: str) -> str:
    given = asked["environment_type"] or unsaid
    return _OF_URN.get(given, given)


def _engine_elsewhere(asked: Mapping[str, Any]) -> str | None:
    """The job server or the cluster that the options name, if it is not on this machine."""
    for name in ("job_endpoint", "flink_master"):
        address = asked[name]
        if address and address not in _EMBEDDED and not is_this_machine(address):
            return f"{name} {address}"
    return None


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
