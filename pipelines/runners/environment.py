"""Where a portable runner's workers are, as Beam's options of the environment say it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pipelines.config import BeamConfig
from pipelines.errors import ConfigError
from pipelines.runners.kind import PLACE_OF_OPTIONS, WITH_PORT

_ENVIRONMENTS: Final = ("DOCKER", "EXTERNAL", "LOOPBACK", "PROCESS")
_URN_OF_ENVIRONMENT: Final = "beam:env:"


def check_environment(_config: BeamConfig, asked: Mapping[str, Any]) -> None:
    """Whether the options say where workers are, as Beam wants it said."""
    environment = asked["environment_type"]
    if environment is None or environment.startswith(_URN_OF_ENVIRONMENT):
        return
    if environment not in _ENVIRONMENTS:
        raise ConfigError(
            "No workers are of this kind.",
            expected=f"one of {', '.join(_ENVIRONMENTS)}",
            found=f"--environment_type={environment}",
            where=PLACE_OF_OPTIONS,
        )
    if environment == "EXTERNAL" and not WITH_PORT.fullmatch(pool_of(asked)):
        raise ConfigError(
            "Workers of a pool need its address.",
            expected="environment_config: host:port, such as localhost:50000",
            found=pool_of(asked) or "none",
            where=PLACE_OF_OPTIONS,
        )
    if environment == "PROCESS" and not _of_environment(asked, "command", "process_command"):
        raise ConfigError(
            "Workers that are processes need a command that starts one.",
            expected='environment_config: {"command": "/opt/apache/beam/boot"}, as JSON',
            found="no command",
            where=PLACE_OF_OPTIONS,
        )


def pool_of(asked: Mapping[str, Any]) -> str:
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


def workers_held_here(asked: Mapping[str, Any]) -> str | None:
    """What of the options has the work done in this process; None: nothing."""
    if asked["job_endpoint"] == "embed":
        return "job_endpoint embed, which is in the command"
    if asked["environment_type"] == "LOOPBACK":
        return "environment_type LOOPBACK, which runs the work in the command"
    return None
