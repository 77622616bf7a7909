"""Values of storage options that come from the environment: `${NAME}`.

Options keep their references until a file system is opened, in the process that opens it. So no
configuration object, pipeline or descriptor sent to workers contains the values. `$${` stands for
the characters `${`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.errors import ConfigError
from pipelines.redaction import remember

_REFERENCE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$\{")
# Options that messages may show: keys that say where a storage is, and gcsfs's words for ways to
# authenticate.
_NO_SECRET_KEYS = frozenset(
    {"endpoint_url", "region_name", "region", "project", "account_name", "protocol", "profile"}
)
_NO_SECRET_VALUES = frozenset({"google_default", "anon", "browser", "cloud", "cache"})

Path = tuple[str | int, ...]


def references(value: object, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yield every `${NAME}` in options as (its key, NAME). NAME is empty if it is missing.

    >>> list(references({"key": "${A}", "headers": ["$${B}", "x ${C} ${"]}))
    [(('key',), 'A'), (('headers', 1), 'C'), (('headers', 1), '')]
    """
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from references(item, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from references(item, (*path, index))
    elif isinstance(value, str):
        for found in _REFERENCE.finditer(value):
            if found[0] != "$${":
                yield path, found[1] or ""


def missing_variable(name: str) -> tuple[str, str, str]:
    """Return the expected, found and hint texts of the error for a reference without a value."""
    hint = "Write $${ for a literal ${."
    if not name:
        return "${NAME}, with the name of an environment variable", "${ without a name", hint
    return (
        f"the environment variable {name} to be set",
        "it is not set",
        f"Set {name}, also for the workers. {hint}",
    )


def expanded(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with values from the environment, which redaction then hides.

    Raises:
        ConfigError: A variable is not set.
    """
    return {key: _expanded(value, (key,)) for key, value in options.items()}


def _expanded(value: Any, path: Path) -> Any:
    if isinstance(value, Mapping):
        return {key: _expanded(item, (*path, str(key))) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_expanded(item, (*path, index)) for index, item in enumerate(value)]
    if not isinstance(value, str):
        return value
    text = _REFERENCE.sub(lambda found: _value_of(found, path), value)
    if text != value or not (path[-1] in _NO_SECRET_KEYS or text in _NO_SECRET_VALUES):
        remember(text)
    return text


def _value_of(found: re.Match[str], path: Path) -> str:
    if found[0] == "$${":
        return "${"
    text = os.environ.get(found[1] or "")
    if text is None:
        expected, seen, hint = missing_variable(found[1] or "")
        key = ".".join(map(str, ("storage_options", *path)))
        raise ConfigError(key, expected=expected, found=seen, hint=hint)
    remember(text)
    return text
