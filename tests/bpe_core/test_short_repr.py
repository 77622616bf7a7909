"""Every public object of bpe_core has a short repr."""

from __future__ import annotations

import inspect

import bpe_core
from bpe_core import (
    BasicTokenizer,
    BPETokenizer,
    CharBPETokenizer,
    GPT4Tokenizer,
    PretokenCounts,
    RegexTokenizer,
    train_from_counts,
)
from bpe_core.short_repr import MOST_CHARACTERS, format_fields, shorten

PATTERN = "|".join(f"(?:{chr(i)}+)" for i in range(0x4E00, 0x4E40))
SPECIALS = [f"<|a long special token {i}|>" for i in range(500)]


def public_objects() -> dict[type, object]:
    """An object of each public class, as large as its repr might be long."""
    counts = PretokenCounts.from_mapping({b"low %d" % i: i + 1 for i in range(2000)})
    counts.metadata["pattern"] = PATTERN
    result = train_from_counts(counts, 1000, SPECIALS)
    regex = RegexTokenizer(PATTERN)
    regex.train("low lower", 257)
    characters = CharBPETokenizer(special_tokens=SPECIALS)
    characters.train(["low lower"], 600)
    objects: list[object] = [
        *(counts, result, BPETokenizer.from_model(result.model), BasicTokenizer(), regex),
        *(characters, GPT4Tokenizer.__new__(GPT4Tokenizer), bpe_core.BpeError("x")),
    ]
    return {type(each): each for each in objects}


def test_public_objects_have_a_short_repr() -> None:
    objects = public_objects()
    classes = {
        value for name in bpe_core.__all__ if inspect.isclass(value := getattr(bpe_core, name))
    }
    assert objects.keys() == classes
    objects.pop(GPT4Tokenizer)  # without ranks; its repr is that of RegexTokenizer
    assert GPT4Tokenizer.__repr__ is RegexTokenizer.__repr__
    for each in objects.values():
        assert len(repr(each)) <= MOST_CHARACTERS, type(each)


def test_values_are_shortened() -> None:
    assert shorten("a" * 10**6) == "'" + "a" * 56 + "..."
    assert shorten(list(range(10**6))) == "<list of 1000000>"
    assert shorten([1, 2]) == "[1, 2]"
    assert shorten({"a" * 100: 1}) == "<dict of 1>"
    many = {f"key{i}": "x" * 50 for i in range(20)}
    assert len(format_fields("Name", many)) == MOST_CHARACTERS
