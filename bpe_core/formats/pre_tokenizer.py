r"""The pre_tokenizer of tokenizer.json: how text is split before merges apply.

The reader accepts chains of `Split` and `Digits` that end in `ByteLevel`, as in published
byte-level tokenizers:

- GPT-2: `ByteLevel` with its own pattern;
- Llama 3, Qwen, gpt-oss: one `Split`, then `ByteLevel` without a pattern;
- SmolLM, StarCoder: `Digits`, then `ByteLevel` with its own pattern;
- DeepSeek: several `Split`, then `ByteLevel`.

More than one splitting step is a chain of patterns (`bpe_core.patterns`). Steps that join or drop
pieces (`Removed`, `MergedWithNext`, …) are refused, and so is any other pre-tokenizer.
"""

from __future__ import annotations

from typing import Any

import regex

from bpe_core.formats.files import CannotHoldError, Location, malformed, quoted
from bpe_core.formats.json_values import expect, object_of, steps_of
from bpe_core.formats.oniguruma import first_difference
from bpe_core.patterns import PATTERNS, THEN, resolve_pattern

BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": False,
}
_NAMES = {regex: name for name, regex in reversed(PATTERNS.items())}


def pre_tokenizer_of(pattern: str) -> dict[str, object]:
    """Return the pre_tokenizer that splits like the pattern.

    Raises:
        CannotHoldError: The library may read a custom pattern differently.
    """
    resolved = resolve_pattern(pattern)
    if resolved.name == "none":
        return dict(BYTE_LEVEL)
    if resolved.name == "gpt2":
        return {**BYTE_LEVEL, "use_regex": True}
    for step in resolved.steps:
        if (difference := _difference(step)) is not None:
            raise CannotHoldError(
                "the custom pattern may mean something else to Hugging Face's regex engine, from "
                f"{difference!r} on"
            )
    splits = [
        {"type": "Split", "pattern": {"Regex": step}, "behavior": "Isolated", "invert": False}
        for step in resolved.steps
    ]
    return {"type": "Sequence", "pretokenizers": [*splits, dict(BYTE_LEVEL)]}


def pattern_of(location: Location, pre_tokenizer: Any) -> str:
    """Return the pattern that splits like a pre_tokenizer.

    Raises:
        FormatError: There is none; the message names the step.
    """
    steps = steps_of(location, "pre_tokenizer", pre_tokenizer, "pretokenizers")
    types = [step.get("type") for step in steps]
    # Not a set: the types in a damaged file may not be hashable.
    known = all(type_ in ("Split", "Digits") for type_ in types[:-1])
    if not types or types[-1] != "ByteLevel" or not known:
        raise malformed(
            location,
            "pre_tokenizer",
            "steps of type Split or Digits, and ByteLevel as the last",
            quoted(types),
        )
    expressions = [
        _split_pattern(location, step) if step["type"] == "Split" else _digits(location, step)
        for step in steps[:-1]
    ]
    byte_level = steps[-1]
    expect(location, "ByteLevel.add_prefix_space", byte_level.get("add_prefix_space", True), False)
    use_regex = byte_level.get("use_regex", True)
    expect(location, "ByteLevel.use_regex", use_regex, True, False)
    if use_regex:
        expressions.append(PATTERNS["gpt2"])
    if not expressions:
        return "none"
    pattern = THEN.join(expressions)
    return _NAMES.get(pattern, pattern)


def _split_pattern(location: Location, split: dict[str, Any]) -> str:
    pattern = object_of(location, "Split.pattern", split.get("pattern"))
    expression = pattern.get("Regex")
    if expression is None and isinstance(pattern.get("String"), str):
        expression = regex.escape(pattern["String"], special_only=True)
    if not isinstance(expression, str) or not expression or len(pattern) != 1:
        raise malformed(
            location, "Split.pattern", '{"Regex": ...} or {"String": ...}', quoted(pattern)
        )
    behavior = split.get("behavior"), split.get("invert", False)
    # Removing what does not match equals isolating matches if the pattern matches everything.
    isolates = behavior == ("Removed", True) and expression in _NAMES
    if behavior[0] != "Isolated" and not isolates:
        raise malformed(location, "Split.behavior and Split.invert", '"Isolated"', quoted(behavior))
    if (difference := _difference(expression)) is not None:
        raise malformed(
            location,
            "Split.pattern",
            "a known pattern, or one that this package's regex engine reads as Hugging Face's does",
            f"one that may differ from {difference!r} on",
        )
    return expression


def _digits(location: Location, step: dict[str, Any]) -> str:
    individual = step.get("individual_digits", False)
    expect(location, "Digits.individual_digits", individual, True, False)
    return r"\p{N}" if individual else r"\p{N}+"


def _difference(expression: str) -> str | None:
    return None if expression in _NAMES else first_difference(expression)
