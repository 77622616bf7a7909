"""Values of a JSON file, checked against what is expected of them."""

from __future__ import annotations

from typing import Any

from bpe_core.formats.files import Location, malformed, quoted


def object_of(location: Location, where: str, value: Any) -> dict[str, Any]:
    """The value, which must be an object.

    Raises:
        FormatError: it is not.
    """
    if not isinstance(value, dict):
        raise malformed(location, where, "an object", quoted(value))
    return value


def list_of(location: Location, where: str, value: Any) -> list[Any]:
    """The value, which must be a list.

    Raises:
        FormatError: it is not.
    """
    if not isinstance(value, list):
        raise malformed(location, where, "a list", quoted(value))
    return value


def expect(location: Location, where: str, value: Any, *expected: Any) -> None:
    """Raises FormatError if the value, of JSON, is none of those expected."""
    # 1 == True, but the library takes no number for a flag.
    if any(type(value) is type(one) and value == one for one in expected):
        return
    names = {None: "null", True: "true", False: "false"}
    shown = " or ".join(names.get(one, repr(one)) for one in expected)
    raise malformed(location, where, shown, quoted(value))


def steps_of(location: Location, where: str, value: Any, members: str) -> list[dict[str, Any]]:
    """The parts of a `Sequence`, also of nested ones, or the value alone if it is none.

    Raises:
        FormatError: a part is no object, or a sequence has no list of them.
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
