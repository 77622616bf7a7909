"""Representations that stay short, whatever the values are."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any, TypeVar

__all__ = ["MOST_CHARACTERS", "format_fields", "short_repr", "shorten"]

MOST_CHARACTERS = 299
_OF_A_VALUE = 60
_T = TypeVar("_T")


def shorten(value: object, most: int = _OF_A_VALUE) -> str:
    """Return the `repr` of a value, or the beginning of a longer one.

    Example:
        >>> shorten("abc"), shorten([1] * 100), shorten("x" * 100, 10)
        ("'abc'", '<list of 100>', "'xxxxxx...")
    """
    if isinstance(value, (str, bytes)):
        value = value[: most + 1]
    elif isinstance(value, Collection) and (len(value) > most or len(repr(value)) > most):
        return f"<{type(value).__name__} of {len(value)}>"
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def format_fields(name: str, fields: Mapping[str, object], *sizes: str) -> str:
    """Return the `repr` of an object with these sizes and fields, in at most `MOST_CHARACTERS`.

    Example:
        >>> format_fields("Result", {"counts": list(range(100))}, "5 tokens")
        'Result(5 tokens, counts=<list of 100>)'
    """
    parts = [*sizes, *(f"{key}={shorten(value)}" for key, value in fields.items())]
    shown = f"{name}({', '.join(parts)})"
    return shown if len(shown) <= MOST_CHARACTERS else f"{shown[: MOST_CHARACTERS - 4]}...)"


def short_repr(owner: type[_T]) -> type[_T]:
    """Give a dataclass, whose fields may be long, a short `repr` without empty fields.

    Example:
        >>> from dataclasses import dataclass
        >>> @short_repr
        ... @dataclass
        ... class Result:
        ...     size: int
        ...     counts: list[int]
        ...     error: str | None = None
        >>> Result(5, list(range(100)))
        Result(size=5, counts=<list of 100>)
    """
    owner.__repr__ = _format_dataclass  # type: ignore[method-assign]
    return owner


def _format_dataclass(value: Any) -> str:
    shown = {each.name: getattr(value, each.name) for each in fields(value) if each.repr}
    given = {
        name: value
        for name, value in shown.items()
        if value is not None and not (isinstance(value, tuple) and not value)
    }
    return format_fields(type(value).__name__, given)
