"""Every public object of bpe_core has a short repr."""

from __future__ import annotations

import inspect

import numpy as np

import bpe_core
from bpe_core import (
    BasicTokenizer,
    BPETokenizer,
    CharBPETokenizer,
    GPT4Tokenizer,
    Group,
    GroupColumns,
    ParityRules,
    PretokenCounts,
    RegexTokenizer,
    TrainingResult,
    UseCounter,
    VocabularySize,
    VocabularyUse,
    find_unreachable,
    prune_tokenizer,
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
        *counted_objects(result),
    ]
    return {type(each): each for each in objects}


def counted_objects(result: TrainingResult) -> list[object]:
    """Objects of many groups, and of many ids."""
    groups = [Group(f"source {i}", "x" * 20) for i in range(500)]
    numbers = np.arange(500)
    columns = GroupColumns(np.arange(501), numbers.astype(np.int32), numbers + 1)
    use = VocabularyUse(
        tokens=1,
        bytes=2,
        pretokens=3,
        single_token_pretokens=4,
        used_ids=5,
        last_thousand_tokens=6,
    )
    size = VocabularySize(
        vocab_size=600,
        ids=600,
        total=use,
        sources={group.source: use for group in groups},
        groups=dict.fromkeys(groups, use),
    )
    rules = ParityRules(ratios={group.source: 1.0 for group in groups})
    pruned = prune_tokenizer(result.model, np.ones(len(result.model.token_ids), bool))
    tokenizer = result.tokenizer()
    counter = UseCounter(tokenizer)
    unreachable = find_unreachable(tokenizer)
    counted = counter.count(PretokenCounts.from_mapping({b"low": 1}))
    return [groups[0], columns, use, size, rules, pruned, counter, unreachable, counted]


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
