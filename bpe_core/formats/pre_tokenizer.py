r"""The pre_tokenizer of tokenizer.json: how text is split before merges apply.

The reader accepts chains with one `ByteLevel`, as in published byte-level tokenizers:

- GPT-2: `ByteLevel` with its own pattern; RoBERTa: with `add_prefix_space` too;
- Llama 3, Qwen, gpt-oss: one `Split`, then `ByteLevel` without a pattern;
- SmolLM, StarCoder: `Digits`, then `ByteLevel` with its own pattern;
- DeepSeek: several `Split`, then `ByteLevel`;
- Falcon: `Punctuation`, `ByteLevel`, `Digits`, `Split`.

More than one splitting step is a chain of patterns (`bpe_core.patterns`). Expressions are read as
Oniguruma reads them, and written in the syntax of `regex` where the two differ; what a behavior
makes of matches is part of the expression. Steps behind `ByteLevel` see the stand-ins of bytes.

`Whitespace` and `WhitespaceSplit` leave out white space; where they come first, that is a rule of
the tokenizer. Anything else that drops text is refused, and so is any other pre-tokenizer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, get_args

from bpe_core.formats.files import CannotHoldError, Location, malformed, quoted
from bpe_core.formats.json_values import expect, object_of, steps_of
from bpe_core.patterns import (
    PATTERNS,
    SPLITS_AT_WHITE_SPACE,
    THEN,
    THEN_BYTES,
    ChainStep,
    resolve_pattern,
)
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
_DROPPING = dict(zip(SPLITS_AT_WHITE_SPACE, ("WhitespaceSplit", "Whitespace"), strict=True))
_NAMES = {regex: name for name, regex in reversed(PATTERNS.items())}


class Splitting(NamedTuple):
    """How text is split: a pattern, and the rules for spaces of `TokenizerModel`."""

    pattern: str
    prefix_space: bool = False
    drop_white_space: bool = False


def pre_tokenizer_of(splitting: Splitting) -> dict[str, Any]:
    """Return the pre_tokenizer that splits so.

    Raises:
        CannotHoldError: The library may read a custom pattern differently.
    """
    pattern, prefix_space, drop_white_space = splitting
    resolved = resolve_pattern(pattern)
    byte_level = {**BYTE_LEVEL, "add_prefix_space": prefix_space}
    if resolved.name == "none" and not drop_white_space:
        return byte_level
    if resolved.name == "gpt2" and not drop_white_space:
        return {**byte_level, "use_regex": True}
    dropping: list[dict[str, Any]] = []
    steps = resolved.steps
    if steps[0].regex == PATTERNS["none"]:
        steps = steps[1:]
    if drop_white_space:
        dropping = [{"type": _DROPPING[steps[0].regex]}]
        steps = steps[1:]
    try:
        splits = [_step_of(step) for step in steps]
    except UnsupportedPatternError as error:
        raise CannotHoldError(
            f"the custom pattern may mean something else to Hugging Face's regex engine: {error}"
        ) from None
    num_before = sum(not step.of_bytes for step in steps)
    before, after = splits[:num_before], splits[num_before:]
    if prefix_space and [step.regex for step in steps[:num_before]] == [PATTERNS["gpt2"]]:
        return {"type": "Sequence", "pretokenizers": [{**byte_level, "use_regex": True}, *after]}
    if prefix_space and before:
        raise CannotHoldError(
            "a space is put before the text and not before each of its pieces, which the format "
            "can only say of GPT-2's pattern"
        )
    return {"type": "Sequence", "pretokenizers": [*dropping, *before, byte_level, *after]}


def splitting_of(location: Location, pre_tokenizer: Any) -> Splitting:
    """Return how a pre_tokenizer splits text.

    Raises:
        FormatError: It does something else; the message names the step.
    """
    steps = steps_of(location, "pre_tokenizer", pre_tokenizer, "pretokenizers")
    types = [step.get("type") for step in steps]
    # Not a set: the types in a damaged file may not be hashable.
    known = all(type_ == "ByteLevel" or type_ in list(_READERS) for type_ in types)
    if types.count("ByteLevel") != 1 or not known:
        raise malformed(
            location,
            "pre_tokenizer",
            f"steps of type {', '.join(_READERS)}, and one ByteLevel",
            quoted(types),
        )
    at = types.index("ByteLevel")
    byte_level = steps[at]
    prefix_space = byte_level.get("add_prefix_space", True)
    expect(location, "ByteLevel.add_prefix_space", prefix_space, True, False)
    if prefix_space and at > 0:
        raise malformed(
            location,
            "ByteLevel.add_prefix_space",
            f"false behind {types[at - 1]}, as it would put a space before every piece of a word",
            "true",
        )
    drops = False
    for i, type_ in enumerate(types[:at]):
        if type_ in _DROPPING.values():
            if i > 0:
                raise malformed(
                    location, "pre_tokenizer", f"{type_} as the first step", quoted(types)
                )
            if steps[at + 1 :]:
                raise malformed(
                    location,
                    "pre_tokenizer",
                    f"ByteLevel as the last step behind {type_}, as a later one could cut white "
                    "space that is left out",
                    quoted(types),
                )
            drops = True
    use_regex = byte_level.get("use_regex", True)
    expect(location, "ByteLevel.use_regex", use_regex, True, False)
    before, after = (
        [_READERS[step["type"]](location, step) for step in part]
        for part in (steps[:at], steps[at + 1 :])
    )
    if use_regex:
        before.append(PATTERNS["gpt2"])
    pattern = THEN_BYTES.join([THEN.join(before) or PATTERNS["none"], *after])
    return Splitting(_NAMES.get(pattern, pattern), prefix_space, drops)


def _step_of(step: ChainStep) -> dict[str, Any]:
    """Return the step that splits as one of a chain of patterns does.

    Raises:
        UnsupportedPatternError: The library cannot read it in the same way.
    """
    if step.of_bytes and step.regex in _DROPPING:
        return {"type": _DROPPING[step.regex]}  # no stand-in is white space
    written = translate(step.regex, "regex", "oniguruma")
    return {
        "type": "Split",
        "pattern": {"Regex": written},
        "behavior": "Isolated",
        "invert": False,
    }


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


_READERS: dict[str, Callable[[Location, dict[str, Any]], str]] = {
    "Split": _split,
    "Digits": _digits,
    "Punctuation": _punctuation,
    "WhitespaceSplit": lambda location, step: SPLITS_AT_WHITE_SPACE[0],
    "Whitespace": lambda location, step: SPLITS_AT_WHITE_SPACE[1],
}
