"""Conversion of pydantic's errors to problems with our wording and their positions."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence

from pydantic import ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from pipelines.config.yaml_document import (
    KeyPath,
    Problem,
    YamlDocument,
    describe_value,
    format_path,
    is_secret,
    shorten,
)

_EXPECTED = {
    "literal_error": "{expected}",
    "string_type": "text",
    "string_too_short": "non-empty text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "dict_type": "a mapping of keys to values",
    "model_type": "a mapping of keys to values",
    "model_attributes_type": "a mapping of keys to values",
    "tuple_type": "a list",
    "too_short": "a list of at least {min_length}",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
}


def refusal(*problems: Problem) -> PydanticCustomError:
    """Return the error with which a validator reports problems, with paths relative to its key."""
    text = "; ".join(
        f"{format_path(problem.path)}: expected {problem.expected}" for problem in problems
    )
    return PydanticCustomError("refused", "{text}", {"text": text, "problems": problems})


def did_you_mean(word: str, known: Sequence[str]) -> str | None:
    """Return a question that suggests the closest known word, or None if none is close."""
    matches = difflib.get_close_matches(word, known, n=1)
    return f"Did you mean {matches[0]}?" if matches else None


def problems_of(
    error: ValidationError, source: YamlDocument, known: Sequence[tuple[str, ...]]
) -> list[Problem]:
    """Return all problems that pydantic found in the values of a document.

    `known` are the paths of all existing keys, without indices of lists.
    """
    single_source = not isinstance(source.values.get("input"), list)
    problems = []
    for details in error.errors(include_url=False):
        if details["type"] == "too_short" and details["input"]:
            continue  # the list is too short only because its elements are invalid
        for problem in _problems_of_one(details, known):
            path: KeyPath = (*details["loc"], *problem.path)
            if single_source and path[:2] == ("input", 0):
                path = ("input", *path[2:])
            problems.append(
                Problem(path, problem.expected, problem.found, problem.hint, source.where(path))
            )
    return problems


def _problems_of_one(details: ErrorDetails, known: Sequence[tuple[str, ...]]) -> Sequence[Problem]:
    kind, context, value = details["type"], details.get("ctx", {}), details["input"]
    if kind == "extra_forbidden":
        return [_unknown_key(details["loc"], known)]
    if kind == "missing":
        return [Problem((), expected="this key: it has no default", found="nothing")]
    found = describe_value(value)
    if is_secret(details["loc"]):
        found = "another value (not shown: it may be a credential)"
    if kind == "refused":
        return [
            Problem(problem.path, problem.expected, problem.found or found, problem.hint)
            for problem in context["problems"]
        ]
    hint = None
    if kind == "literal_error" and isinstance(value, str):
        hint = did_you_mean(value, re.findall(r"'([^']+)'", context["expected"]))
    if kind == "tuple_type" and isinstance(value, str):
        hint = f"Write a list: [{json.dumps(shorten(value), ensure_ascii=False)}]."
    expected = _EXPECTED[kind].format(**context) if kind in _EXPECTED else details["msg"]
    return [Problem((), expected, found, hint)]


def _unknown_key(path: KeyPath, known: Sequence[tuple[str, ...]]) -> Problem:
    key = str(path[-1])
    section = tuple(step for step in path[:-1] if isinstance(step, str))
    siblings = [other[-1] for other in known if other[:-1] == section]
    elsewhere = [format_path(other) for other in known if other[-1] == key]
    return Problem(
        (),
        expected="one of the keys " + ", ".join(siblings),
        found=f"the unknown key {shorten(key)}",
        hint=did_you_mean(key, siblings)
        or (f"Did you mean {elsewhere[0]}?" if elsewhere else None),
    )
