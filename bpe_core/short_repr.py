"""Representations that stay short, whatever the values are."""

from __future__ import annotations

from collections.abc import Collection, Mapping

__all__ = ["MOST_CHARACTERS", "format_fields", "shorten"]

MOST_CHARACTERS = 299
_OF_A_VALUE = 60


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
