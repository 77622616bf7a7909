r"""The pre_tokenizer of tokenizer.json: how text is split before merges apply.

The reader accepts chains of `Split`, `Digits` and `Punctuation` that end in `ByteLevel`, as in
published byte-level tokenizers:

- GPT-2: `ByteLevel` with its own pattern;
- Llama 3, Qwen, gpt-oss: one `Split`, then `ByteLevel` without a pattern;
- SmolLM, StarCoder: `Digits`, then `ByteLevel` with its own pattern;
- DeepSeek: several `Split`, then `ByteLevel`.

More than one splitting step is a chain of patterns (`bpe_core.patterns`). Expressions are read as
Oniguruma reads them, and written in the syntax of `regex` where the two differ; what a behavior
makes of matches is part of the expression. What drops text is refused, and so is any other
pre-tokenizer.
"""

from __future__ import annotations

from typing import Any, get_args

from bpe_core.formats.files import CannotHoldError, Location, malformed, quoted
from bpe_core.formats.json_values import expect, object_of, steps_of
from bpe_core.patterns import PATTERNS, THEN, resolve_pattern
from bpe_core.split_patterns.parser import parse
from bpe_core.split_patterns.sets import Named, Span, Union
from bpe_core.split_patterns.syntax import Character, Node, Sequence, UnsupportedPatternError
from bpe_core.split_patterns.translation import Behavior, isolate, translate, write

BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": False,
}
_PUNCTUATION = Character(
    Union((Span(33, 47), Span(58, 64), Span(91, 96), Span(123, 126), Named("gc=P")))
)
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
    try:
        steps = [translate(step, "regex", "oniguruma") for step in resolved.steps]
    except UnsupportedPatternError as error:
        raise CannotHoldError(
            f"the custom pattern may mean something else to Hugging Face's regex engine: {error}"
        ) from None
    splits = [
        {"type": "Split", "pattern": {"Regex": step}, "behavior": "Isolated", "invert": False}
        for step in steps
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
    known = all(type_ in ("Split", "Digits", "Punctuation") for type_ in types[:-1])
    if not types or types[-1] != "ByteLevel" or not known:
        raise malformed(
            location,
            "pre_tokenizer",
            "steps of type Split, Digits or Punctuation, and ByteLevel as the last",
            quoted(types),
        )
    readers = {"Split": _split, "Digits": _digits, "Punctuation": _punctuation}
    expressions = [readers[step["type"]](location, step) for step in steps[:-1]]
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


def _split(location: Location, split: dict[str, Any]) -> str:
    pattern = object_of(location, "Split.pattern", split.get("pattern"))
    expression, literal = pattern.get("Regex"), pattern.get("String")
    found = literal if expression is None else expression
    if not isinstance(found, str) or not found or len(pattern) != 1:
        raise malformed(
            location, "Split.pattern", '{"Regex": ...} or {"String": ...}', quoted(pattern)
        )
    invert = split.get("invert", False)
    expect(location, "Split.invert", invert, True, False)
    behavior = _behavior(location, "Split.behavior", split.get("behavior"))
    try:
        if expression is not None and behavior == "Isolated":
            return translate(expression, "oniguruma", "regex")
        node: Node
        if expression is None:
            node = Sequence(tuple(Character(Span(ord(c), ord(c))) for c in found))
        else:
            node = parse(expression, "oniguruma")
        isolated = isolate(node, behavior, invert=invert)
        if isolated is node and expression is not None:
            return translate(expression, "oniguruma", "regex")
        return write(isolated, "regex")
    except UnsupportedPatternError as error:
        raise malformed(
            location,
            "Split.pattern and Split.behavior",
            "what a pattern of this package can mean",
            str(error),
        ) from None


def _behavior(location: Location, where: str, value: Any) -> Behavior:
    expect(location, where, value, *get_args(Behavior))
    behavior: Behavior = value
    return behavior


def _digits(location: Location, step: dict[str, Any]) -> str:
    individual = step.get("individual_digits", False)
    expect(location, "Digits.individual_digits", individual, True, False)
    return r"\p{N}" if individual else r"\p{N}+"


def _punctuation(location: Location, step: dict[str, Any]) -> str:
    where = "Punctuation.behavior"
    behavior = _behavior(location, where, step.get("behavior", "Isolated"))
    try:
        return write(isolate(_PUNCTUATION, behavior, invert=False), "regex")
    except UnsupportedPatternError as error:
        raise malformed(location, where, "one that drops no text", str(error)) from None
