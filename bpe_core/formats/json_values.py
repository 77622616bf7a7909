"""Checks of values in a JSON file."""

from __future__ import annotations

from typing import Any

from bpe_core.formats.files import Location, malformed, quoted


def object_of(location: Location, where: str, value: Any) -> dict[str, Any]:
    """Return the value, which must be an object.

    Raises:
        FormatError: It is not.
    """
    if not isinstance(value, dict):
        raise malformed(location, where, "an object", quoted(value))
    return value


def list_of(location: Location, where: str, value: Any) -> list[Any]:
    """Return the value, which must be a list.

    Raises:
        FormatError: It is not.
    """
    if not isinstance(value, list):
        raise malformed(location, where, "a list", quoted(value))
    return value


def expect(location: Location, where: str, value: Any, *expected: Any) -> None:
    """Raise FormatError if a JSON value is not one of the expected ones."""
    # 1 == True in Python, but the library does not accept a number as a flag.
    if any(type(value) is type(one) and value == one for one in expected):
        return
    names = {None: "null", True: "true", False: "false"}
    shown = " or ".join(names.get(one, repr(one)) for one in expected)
    raise malformed(location, where, shown, quoted(value))


def steps_of(location: Location, where: str, value: Any, members: str) -> list[dict[str, Any]]:
    """Return the steps of a `Sequence`, including nested ones, or a list of the value itself.

    Raises:
        FormatError: A step is not an object, or a sequence contains no list of steps.
    """
    steps: list[dict[str, Any]] = []
    waiting = [value]
    while waiting:
        step = object_of(location, where, waiting.pop())
        if step.get("type") == "Sequence":
            parts = list_of(location, f"{where}.{members}", step.get(members))
            waiting += reversed(parts)
        else:
            steps.append(step)
    return steps
