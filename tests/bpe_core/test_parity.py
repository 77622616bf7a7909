"""Parity-aware training: equal to the reference, and to the trainer of Hugging Face."""

from __future__ import annotations

import json
from itertools import accumulate
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import times

from bpe_core import Group, GroupColumns, ParityRules, PretokenCounts, train_from_counts
from bpe_core._native import MergeLearner
from bpe_core.errors import CountOverflowError, TrainingError
from bpe_core.reference import learn_parity_merges, printable_stand_ins

# Words of several groups: of each, its counts by group.
Words = list[tuple[bytes, list[int]]]


def grouped_counts(words: Words, names: list[str], *, value: str | None = None) -> PretokenCounts:
    distinct: dict[bytes, list[int]] = {}
    for word, numbers in words:
        if word and any(numbers):
            sums = distinct.setdefault(word, [0] * len(names))
            sums[:] = [a + b for a, b in zip(sums, numbers, strict=True)]
    rows = [
        (word, [(g, n) for g, n in enumerate(numbers) if n])
        for word, numbers in sorted(distinct.items())
    ]
    columns = GroupColumns(
        np.array([0, *accumulate(len(entries) for _, entries in rows)], np.int64),
        np.array([g for _, entries in rows for g, _ in entries], np.int32),
        np.array([n for _, entries in rows for _, n in entries], np.int64),
    )
    groups = [Group(name) if value is None else Group("s", name) for name in names]
    return PretokenCounts.from_group_columns(
        np.frombuffer(b"".join(word for word, _ in rows), np.uint8),
        np.array([0, *accumulate(len(word) for word, _ in rows)], np.int64),
        groups,
        columns,
        {"group_by": value} if value else {},
    )


@st.composite
def grouped_words(draw: st.DrawFn, groups: int, max_size: int = 6) -> Words:
    """Words of few different bytes, so that pairs overlap and tie."""
    alphabet = draw(st.sampled_from([b"a", b"ab", b"abc", b" a!", b"\x00\xff\xad "]))
    letters = st.sampled_from([alphabet[i : i + 1] for i in range(len(alphabet))])
    word = st.lists(letters, max_size=12).map(b"".join)
    count = st.sampled_from([0, 0, 1, 1, 2, 7]) | st.integers(0, 2**40)
    counts = st.lists(count, min_size=groups, max_size=groups)
    return draw(st.lists(st.tuples(word, counts), max_size=max_size))


def learn(words: Words, groups: int, more: int, parallel: Words = [], **options: Any) -> Any:  # noqa: B006
    """Return merges, counts and the reason of the end, from the native learner in steps."""
    rows = [(word, list(enumerate(numbers))) for word, numbers in words]
    rows += [(word, list(enumerate(numbers, groups))) for word, numbers in parallel]
    rows = [(word, [(g, n) for g, n in entries if n]) for word, entries in rows]
    rows = [(word, entries) for word, entries in rows if entries]
    learner = MergeLearner.with_parity(
        b"".join(word for word, _ in rows),
        np.array([0, *accumulate(len(word) for word, _ in rows)], np.int64),
        np.array([0, *accumulate(len(entries) for _, entries in rows)], np.int64),
        np.array([g for _, entries in rows for g, _ in entries], np.int32),
        np.array([n for _, entries in rows for _, n in entries], np.int64),
        groups,
        **options,
    )
    while learner.learn(256 + more, 7):
        pass
    left, right, _, counts = (column.tolist() for column in learner.merges())
    pairs = [(learner.symbol(a), learner.symbol(b)) for a, b in zip(left, right, strict=True)]
    return pairs, counts, learner.stop_reason


# ---- equal to the reference


@pytest.mark.slow
@settings(max_examples=times(3))
@given(data=st.data())
def test_merges_counts_and_stop_reason_equal_the_reference(data: st.DataObject) -> None:
    groups = data.draw(st.integers(1, 4))
    words = data.draw(grouped_words(groups))
    more = data.draw(st.sampled_from([0, 1, 5, 20]))
    parallel = data.draw(st.just([]) | grouped_words(groups))
    ratios = data.draw(
        st.lists(st.sampled_from([1.0, 2.57, 0.3]), min_size=groups, max_size=groups)
    )
    options: dict[str, Any] = {
        "tie_break": data.draw(st.sampled_from(["lexicographic", "first_id", "huggingface"])),
        "min_frequency": data.draw(st.sampled_from([1, 1, 2, 50])),
        "global_merges": data.draw(st.sampled_from([0, 0, 3])),
        "window_size": data.draw(st.sampled_from([0, 0, 1, 5])),
        "alpha": data.draw(st.sampled_from([0.5, 1.0, 1.3, 2.0])),
        "ratios": [] if parallel else ratios,
    }
    limits = data.draw(st.sampled_from([{}, {"max_token_bytes": 3}, {"forbidden_tokens": [b"aa"]}]))
    expected = learn_parity_merges(words, 256 + more, development=parallel, **options, **limits)
    if options["tie_break"] == "huggingface":
        options["tie_break"] = "stand_ins"
    assert learn(words, groups, more, parallel, **options, **limits) == expected


def test_words_as_frequent_as_in_languages_equal_the_reference() -> None:
    # Counts that span many orders of magnitude, so that each group needs lower thresholds.
    random = Random(5)
    syllables = [
        "".join(random.choices("aeioubcdlnrst", k=random.randint(1, 3))) for _ in range(40)
    ]
    words = [
        (
            "".join(random.choices(syllables, k=random.randint(1, 4))).encode(),
            [10 ** random.randint(0, 6) // (i + 1) for _ in range(3)],
        )
        for i in range(120)
    ]
    expected = learn_parity_merges(words, 306, ratios=[1, 1, 1.5])
    assert learn(words, 3, 50, ratios=[1, 1, 1.5], tie_break="lexicographic") == expected


# ---- equal to Hugging Face's trainer


def their_merges(
    texts: list[list[str]], more: int, parallel: list[list[str]] | None = None, **options: Any
) -> list[tuple[bytes, bytes]]:
    """Return the merges that Hugging Face's trainer learns from words of each group."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from tokenizers.trainers import ParityBpeTrainer

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split("|", "removed"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    ratios = options.pop("ratio", None)
    trainer = ParityBpeTrainer(num_merges=more, show_progress=False, **options)
    trainer.train_from_iterator(
        tokenizer,
        [iter(["|".join(words)]) for words in texts],
        dev_iterators=parallel and [iter(["|".join(words)]) for words in parallel],
        ratio=ratios,
    )
    byte_of = {text: byte for byte, text in printable_stand_ins().items()}
    return [
        (bytes(byte_of[c] for c in left), bytes(byte_of[c] for c in right))
        for left, right in json.loads(tokenizer.to_str())["model"]["merges"]
    ]


def count_texts(texts: list[list[str]]) -> PretokenCounts:
    words = [
        (word.encode(), [int(i == group) for i in range(len(texts))])
        for group, listed in enumerate(texts)
        for word in listed
    ]
    return grouped_counts(words, [f"{i}" for i in range(len(texts))])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("by", ["ratios", "development"])
@pytest.mark.parametrize("window", [None, 5])
def test_merges_equal_those_of_the_trainer_of_hugging_face(
    seed: int, by: str, window: int | None
) -> None:
    pytest.importorskip("tokenizers.trainers", reason="tokenizers has no trainers")
    random = Random(seed)
    num_groups = random.randint(2, 4)

    def make_text(number: int) -> list[str]:
        alphabet = random.choice(["abcd", "abcé \xad~", "αβγ!"])
        return ["".join(random.choices(alphabet, k=random.randint(1, 9))) for _ in range(number)]

    texts = [make_text(random.randint(40, 80)) for _ in range(num_groups)]
    parallel = [make_text(20) for _ in range(num_groups)] if by == "development" else None
    ratios = [random.choice([1.0, 1.5, 2.57]) for _ in texts] if parallel is None else None
    global_merges = random.choice([0, 3])
    # With a window, their trainer may not end once a group has no pairs left.
    more = 15 if window else 60
    options = {"window_size": window, "alpha": 1.3, "variant": "window"} if window else {}
    theirs = their_merges(
        texts, more, parallel, ratio=ratios, global_merges=global_merges, min_frequency=1, **options
    )
    rules = ParityRules(
        ratios=None if ratios is None else {f"{i}": ratio for i, ratio in enumerate(ratios)},
        development=None if parallel is None else count_texts(parallel),
        global_merges=global_merges,
        window_size=window,
        alpha=1.3,
    )
    ours = train_from_counts(count_texts(texts), 256 + more, tie_break="huggingface", parity=rules)
    assert ours.merges == theirs


# ---- rules


WORDS: Words = [(b"the cat", [90, 0]), (b"the dog", [80, 0]), (b"ein hund", [0, 3]), (b"x", [1, 1])]


def test_the_group_that_is_compressed_least_gets_the_next_merge() -> None:
    counts = grouped_counts(WORDS, ["en", "de"][::-1])
    plain = train_from_counts(counts, 260)
    fair = train_from_counts(counts, 260, parity=ParityRules())
    made = [left + right for left, right in fair.merges]
    assert all(token in b"the cat the dog" for token in map(b"".join, plain.merges))
    assert any(token in b"ein hund" and token not in b"the cat the dog" for token in made)
    assert fair.merge_counts[0] in (3, 170)


def test_groups_are_those_of_a_field_too() -> None:
    by_source = grouped_counts(WORDS, ["de", "en"])
    by_field = grouped_counts(WORDS, ["de", "en"], value="lang")
    one = train_from_counts(by_source, 262, parity=ParityRules())
    other = train_from_counts(by_field, 262, parity=ParityRules(by="lang"))
    assert one.merges == other.merges


def test_a_higher_ratio_gets_more_merges() -> None:
    counts = grouped_counts(WORDS, ["en", "xx"])
    rules = ParityRules(ratios={"en": 1, "xx": 9})
    made = [left + right for left, right in train_from_counts(counts, 262, parity=rules).merges]
    assert all(token in b"ein hund" for token in made)


def test_the_tokenizer_says_how_it_was_trained() -> None:
    counts = grouped_counts(WORDS, ["de", "en"])
    rules = ParityRules(ratios={"en": 1, "de": 2}, window_size=3)
    model = train_from_counts(counts, 258, parity=rules).model
    assert model.training_options is not None
    assert model.training_options["parity"]["ratios"] == {"en": 1, "de": 2}


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"by": "lang"}, "by: expected counts that are kept apart by lang, found counts by source"),
        ({"ratios": {"en": 1}}, r"a ratio for each of 'de', 'en', found none for 'de'"),
        ({"ratios": {"en": 1, "dee": 1}}, r"'dee', unknown \(did you mean 'de'\?\); none for 'de'"),
        ({"ratios": {"en": 1, "de": 0}}, "ratios above 0, found 0 for 'de'"),
        ({"alpha": -1}, "alpha above 0, found -1"),
        ({"window_size": 0}, "window_size of at least 1, found 0"),
        ({"global_merges": -1}, "global_merges of at least 0, found -1"),
        (
            {"development": grouped_counts([(b"ab", [1])], ["en"])},
            "development text for each of 'de', 'en', found none for 'de'",
        ),
    ],
)
def test_wrong_rules_are_refused(rules: dict[str, Any], message: str) -> None:
    counts = grouped_counts(WORDS, ["de", "en"])
    with pytest.raises(TrainingError, match=message):
        train_from_counts(counts, 258, parity=ParityRules(**rules))


def test_counts_without_groups_are_refused() -> None:
    counts = PretokenCounts.from_mapping({b"ab": 3})
    with pytest.raises(TrainingError, match="found counts that are not kept apart"):
        train_from_counts(counts, 258, parity=ParityRules())


def test_too_many_groups_are_refused() -> None:
    counts = grouped_counts([(b"ab", [1] * 1025)], [f"{i:04}" for i in range(1025)])
    with pytest.raises(TrainingError, match="at most 1,024 groups, found 1,025"):
        train_from_counts(counts, 258, parity=ParityRules())


def test_counts_that_exceed_64_bits_together_are_refused() -> None:
    with pytest.raises((CountOverflowError, OverflowError), match="2\\^63"):
        learn([(b"ab", [2**62, 2**62])], 2, 1, ratios=[1, 1], tie_break="lexicographic")
