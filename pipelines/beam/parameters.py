"""Attributes of transforms: what they may be, and what a runner's pages show of them."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from apache_beam.transforms.display import DisplayDataItem

from pipelines.errors import ConfigError


def wrong_value(
    transform: Any, name: str, expected: str, found: str, hint: str | None = None
) -> ConfigError:
    """The error of an attribute of a transform."""
    return ConfigError(
        f"{type(transform).__name__} has an attribute with a wrong value.",
        expected=expected,
        found=found,
        where=name,
        hint=hint,
    )


def check_choices(transform: Any, *names: str) -> None:
    """Whether attributes that are literals have one of their values.

    Raises:
        ConfigError: one has not.
    """
    hints = get_type_hints(type(transform))
    for name in names:
        value = getattr(transform, name)
        assert get_origin(hints[name]) is Literal
        if value not in get_args(hints[name]):
            expected = " or ".join(map(repr, get_args(hints[name])))
            raise wrong_value(transform, name, expected, repr(value))


def check_positive(transform: Any, *names: str) -> None:
    """Whether attributes are whole numbers above 0.

    Raises:
        ConfigError: one is not.
    """
    for name in names:
        value = getattr(transform, name)
        if type(value) is not int or value < 1:
            raise wrong_value(transform, name, "a whole number above 0", repr(value))


def check_name(transform: Any, *names: str) -> None:
    """Whether attributes can be part of a file's name.

    Raises:
        ConfigError: one can't.
    """
    for name in names:
        value = getattr(transform, name)
        if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9][\w-]*", value, re.ASCII):
            raise wrong_value(transform, name, "letters, digits, - and _", repr(value))


def check_special_tokens(transform: Any) -> None:
    """Whether the special tokens are a list of texts, each of them once.

    Raises:
        ConfigError: they are not.
    """
    value = transform.special_tokens
    if isinstance(value, list | tuple) and all(isinstance(t, str) and t for t in value):
        twice = sorted({token for token in value if value.count(token) > 1})
        if not twice:
            return
        found = f"{', '.join(map(repr, twice))} more than once"
    else:
        found = repr(value)
    expected = 'a list of texts that are not empty, each once, such as ["<|endoftext|>"]'
    raise wrong_value(transform, "special_tokens", expected, found)


def shown(transform: Any) -> dict[str, DisplayDataItem]:
    """The display data of a transform: its attributes, but never storage options."""
    return {
        field.name: DisplayDataItem(_text(getattr(transform, field.name))).drop_if_none()
        for field in fields(transform)
        if field.repr
    }


def _text(value: Any) -> Any:
    return value if value is None or isinstance(value, str | int | float) else str(value)
