"""Location of a portable runner's workers, according to Beam's environment options."""

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
_EMBEDDED: Final = ("embed", *EMBEDDED_FLINK)  # in the launcher, or in a process that it starts


def check_environment(
    _config: BeamConfig, asked: Mapping[str, Any], default: str = "DOCKER"
) -> None:
    """Check that Beam's environment options are complete, and that engines can reach the workers.

    Args:
        asked: The options.
        default: Type of workers that the runner uses if none is given.
    """
    kind = _kind_of_workers(asked, default)
    if kind not in _OF_URN.values():
        raise ConfigError(
            "Unknown environment_type.",
            expected=f"one of {', '.join(_OF_URN.values())}",
            found=f"--environment_type={kind}",
            where=PLACE_OF_OPTIONS,
        )
    if kind == "EXTERNAL" and not WITH_PORT.fullmatch(_pool_of(asked)):
        raise ConfigError(
            "The environment_type EXTERNAL needs the address of a worker pool.",
            expected="environment_config: host:port, such as localhost:50000",
            found=_pool_of(asked) or "none",
            where=PLACE_OF_OPTIONS,
        )
    if kind == "PROCESS" and not _of_environment(asked, "command", "process_command"):
        raise ConfigError(
            "The environment_type PROCESS needs the command that starts a worker.",
            expected='environment_config: {"command": "/opt/apache/beam/boot"}, as JSON',
            found="no command",
            where=PLACE_OF_OPTIONS,
        )
    engine = _engine_elsewhere(asked)
    if kind == "LOOPBACK" and engine is not None:
        suffix = "" if asked["environment_type"] else ", the default"
        raise ConfigError(
            "An engine on other machines cannot reach this process.",
            expected="environment_type DOCKER, EXTERNAL or PROCESS for a remote engine",
            found=f"LOOPBACK{suffix}, which runs the work in this process, with {engine}",
            where=PLACE_OF_OPTIONS,
            hint="Set environment_type, and set environment_config to the image or the address "
            "of the "
            "worker pool.",
        )


def find_remote_workers(asked: Mapping[str, Any], default: str = "DOCKER") -> str | None:
    """Return the option that makes paths of this machine meaningless for workers, or None.

    Containers on this machine count, too. A job server on this machine may pass its jobs on to
    other machines, which the options do not show.
    """
    engine = _engine_elsewhere(asked)
    if engine is not None:
        return engine
    kind = _kind_of_workers(asked, default)
    if kind == "DOCKER":
        return "environment_type DOCKER" + ("" if asked["environment_type"] else ", the default")
    if kind == "EXTERNAL" and not is_this_machine(_pool_of(asked)):
        return f"a worker pool at {_pool_of(asked)}"
    return None


def find_local_workers(asked: Mapping[str, Any], default: str = "DOCKER") -> str | None:
    """Return the option that keeps the work in this process, or None."""
    if asked["job_endpoint"] == "embed":
        return "job_endpoint embed, which runs in the launcher"
    if _kind_of_workers(asked, default) == "LOOPBACK":
        return "environment_type LOOPBACK, which runs the work in the launcher"
    return None


def _kind_of_workers(asked: Mapping[str, Any], default: str) -> str:
    given = asked["environment_type"] or default
    return _OF_URN.get(given, given)


def _engine_elsewhere(asked: Mapping[str, Any]) -> str | None:
    """Return the job server or cluster in the options if it is not on this machine, or None."""
    for name in ("job_endpoint", "flink_master"):
        address = asked[name]
        if address and address not in _EMBEDDED and not is_this_machine(address):
            return f"{name} {address}"
    return None


def _pool_of(asked: Mapping[str, Any]) -> str:
    """Return the address of a worker pool, or ""."""
    given = asked["environment_config"] or ""
    if given and not given.lstrip().startswith("{"):
        return str(given)
    return _of_environment(asked, "url", "external_service_address")


def _of_environment(asked: Mapping[str, Any], key: str, option: str) -> str:
    """Return a key of the JSON in environment_config or, without it, one of environment_options."""
    given = asked["environment_config"]
    if not given:
        named = [text.partition("=") for text in asked["environment_options"] or ()]
        return next((value for name, _, value in named if name == option), "")
    try:
        return str(json.loads(given)[key] or "")
    except (ValueError, KeyError, TypeError):
        return ""
