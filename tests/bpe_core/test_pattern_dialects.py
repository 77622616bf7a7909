"""Split patterns as the libraries read them that their files are for: tokenizers and tiktoken."""

from __future__ import annotations

import itertools
import random
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
import tiktoken
from hypothesis import example, given, settings
from hypothesis import strategies as st
from profiles import times
from tokenizers import Regex, pre_tokenizers

from bpe_core._native import split_pretokens
from bpe_core.errors import FormatError, InvalidPatternError
from bpe_core.formats.pre_tokenizer import Splitting, pre_tokenizer_of, splitting_of
from bpe_core.patterns import PATTERNS, pattern_of_tiktoken, resolve_pattern, split_custom
from bpe_core.reference import split_pretokens as reference_pretokens
from bpe_core.split_patterns.parser import parse
from bpe_core.split_patterns.program import may_be_empty
from bpe_core.split_patterns.syntax import UnsupportedPatternError
from bpe_core.split_patterns.translation import Behavior, translate

BEHAVIORS = {
    "Isolated": "isolated",
    "Contiguous": "contiguous",
    "MergedWithPrevious": "merged_with_previous",
    "MergedWithNext": "merged_with_next",
}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
TEXTS = [
    *"'strevmaAbBxyz",
    *"   \n\r\t\xa0\u3000",
    *"0123٣½²",
    "\u0301",
    *"éÉßſ漢あ",
    *"!._-…",
    "\r\n",
]


def read(*steps: dict[str, Any]) -> str:
    root = {"type": "Sequence", "pretokenizers": [*steps, BYTE_LEVEL]}
    return splitting_of(Path("tokenizer.json"), root).pattern


def split_step(expression: str, behavior: str = "Isolated", invert: bool = False) -> dict[str, Any]:
    pattern = {"Regex": expression}
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def pieces_of(pattern: str, text: str) -> list[str]:
    data = text.encode()
    scanner = resolve_pattern(pattern).scanner
    if scanner is None:
        cuts = split_custom(pattern, text).tolist()
    else:
        cuts = [0, *split_pretokens(scanner, data).tolist()]
    return [data[a:b].decode() for a, b in itertools.pairwise(cuts)]


def their_pieces(step: Any, text: str) -> list[str]:
    return [text[a:b] for _, (a, b) in step.pre_tokenize_str(text) if a < b]


def check_against_tokenizers(pattern: str, step: Any, texts: list[str]) -> None:
    for text in texts:
        assert pieces_of(pattern, text) == their_pieces(step, text), (pattern, text)


def some_texts(seed: str, count: int = 80) -> list[str]:
    rng = random.Random(seed)
    return ["".join(rng.choices(TEXTS, k=rng.randrange(16))) for _ in range(count)]


ONIGURUMA = [
    r"\p{N}{1,3}+|\D",
    r"\s+$|\s|\S+",
    r"^a|.",
    r"[a-z&&[^aeiou]]+|.",
    r"\w+|\s+",
    r"\h+",
    r"(?i:[sdmt]|ve)",
    r"\b.",
    r"\N|\n",
    "a*|.",
    r"(?m).{3}",
    r"\d{1,3}(?=(?:\d{3})*\b)",
    r"(?=(\d{3})+(?!\d))",
    r" ?[^(\s|[.,!?…。，、।۔،])]+",
    r"\s?\p{L}+|\R",
    r"[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{2}",
    r"\p{In_Hiragana}|\p{^L}",
    "a{0,2}+b",
    r"x(?#then)y",
    r"\A.|.\Z|\z",
    r"(?>a+)b|a*+b|[]x]+?",
]


@pytest.mark.parametrize("expression", ONIGURUMA)
def test_expressions_of_tokenizer_json_split_as_the_library_does(expression: str) -> None:
    theirs = pre_tokenizers.Split(Regex(expression), "isolated")
    check_against_tokenizers(read(split_step(expression)), theirs, some_texts(expression))


@pytest.mark.parametrize("invert", [False, True])
@pytest.mark.parametrize("behavior", BEHAVIORS)
def test_behaviors_split_as_the_library_does(behavior: Behavior, invert: bool) -> None:
    for expression in (r"\p{N}{1,3}", "[ab]", r"\s", r"[.!]+|a\d", "(?i:sa)"):
        theirs = pre_tokenizers.Split(Regex(expression), BEHAVIORS[behavior], invert)
        ours = read(split_step(expression, behavior, invert))
        check_against_tokenizers(ours, theirs, some_texts(behavior))
    assert set(BEHAVIORS) | {"Removed"} == set(get_args(Behavior))


def test_removed_with_invert_is_isolated_where_everything_matches() -> None:
    step = split_step(PATTERNS["cl100k"].replace(r"\p{N}{1,3}", r"\p{N}{1,2}"), "Removed", True)
    assert resolve_pattern(read(step)).native == "cl100k/max_digits=2"


@pytest.mark.parametrize("behavior", BEHAVIORS)
def test_punctuation_splits_as_the_library_does(behavior: str) -> None:
    theirs = pre_tokenizers.Punctuation(BEHAVIORS[behavior])
    ours = read({"type": "Punctuation", "behavior": behavior})
    check_against_tokenizers(ours, theirs, some_texts(behavior))


ATOMS = ["a", "b", "[ab]", "[^a]", r"\s", r"\w", r"\d", ".", "1", "(?i:s)", "[a1&&[^1]]", r"\h"]
PLACES = [r"\b", r"\B", "^", "$", r"\Z", r"\z", "(?=a)", r"(?!\s)", "(?<=a)", r"(?<!\d)"]
REPEATS = ["?", "*", "+", "{2}", "{1,3}", "??", "*?", "+?", "?+", "++", "*+", "{1,2}+", "{1,2}?"]
patterns = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        st.lists(inner | st.sampled_from(PLACES), min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.builds("(?:{}){}".format, inner, st.sampled_from(REPEATS)),
    ),
    max_leaves=6,
)
short_texts = st.lists(st.text(st.sampled_from("aab1cs²\n !"), max_size=8), min_size=1, max_size=6)


@settings(max_examples=times(2))
@given(patterns, short_texts)
def test_any_expression_of_tokenizer_json_splits_as_the_library_does(
    expression: str, texts: list[str]
) -> None:
    try:
        pattern = translate(expression, "oniguruma", "regex")
    except UnsupportedPatternError:
        return
    try:
        compiled = Regex(expression)
    except Exception as error:  # the library raises no other class
        assert "target of repeat operator is invalid" in str(error)  # repeats what may be nothing
        return
    check_against_tokenizers(pattern, pre_tokenizers.Split(compiled, "isolated"), texts)


@settings(max_examples=times(2))
@given(patterns, short_texts)
def test_a_pattern_that_is_written_splits_as_the_library_does(
    pattern: str, texts: list[str]
) -> None:
    try:
        (step,) = pre_tokenizer_of(Splitting(pattern))["pretokenizers"][:-1]
    except (ValueError, KeyError):
        return
    theirs = pre_tokenizers.Split(Regex(step["pattern"]["Regex"]), "isolated")
    check_against_tokenizers(pattern, theirs, texts)


@cache
def every_short_text() -> dict[bytes, int]:
    """Every text of up to five of these characters is a token, so that tokens are pieces."""
    texts = ["".join(t) for n in range(1, 6) for t in itertools.product("ab1 \n", repeat=n)]
    tokens = dict.fromkeys([bytes([b]) for b in range(256)] + [text.encode() for text in texts])
    return {token: rank for rank, token in enumerate(tokens)}


def check_against_tiktoken(pattern: str, texts: list[str]) -> None:
    ours = pattern_of_tiktoken(pattern)
    ranks = every_short_text()
    encoding = tiktoken.Encoding("x", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    for text in texts:
        expected = [token.decode() for token in encoding.decode_tokens_bytes(encoding.encode(text))]
        assert pieces_of(ours, text) == expected, (pattern, ours, text)


tiktoken_texts = st.lists(st.text(st.sampled_from("aab1 \n"), max_size=5), min_size=1, max_size=6)


@settings(max_examples=times(1))
@given(patterns, tiktoken_texts)
@example(r"[\w&&[^1]]+", ["ab1 a"])
@example(r"\s+$|a", ["a \n", " \n\n"])
@example(r"(?:a{1,2}+b)", ["aab"])
def test_any_pattern_of_tiktoken_splits_as_the_library_does(pattern: str, texts: list[str]) -> None:
    everything = rf"{pattern}|[\s\S]"
    try:
        translate(everything, "fancy_regex", "regex")
    except UnsupportedPatternError:
        return
    if not may_be_empty(parse(everything, "fancy_regex")):  # at which tiktoken panics
        check_against_tiktoken(everything, texts)


@pytest.mark.parametrize(
    ("expression", "obstacle"),
    [
        ("(?i:st)", "letters that ignoring case joins, st"),
        ("(?i:ß)", "a letter of several when ignoring case"),
        ("(?i:[ß])", "a letter of several when ignoring case"),
        (r"\p{N}{2}?", "a fixed number that is lazy"),
        ("a(?i)b", "flags in the middle"),
        (r"\xE9", "a byte"),
        ("(?~a)", "a flag"),
        (r"[[:alpha:]]", "a class of POSIX"),
        (r"\X", "an escape"),
    ],
)
def test_what_oniguruma_means_otherwise_is_refused_by_name(expression: str, obstacle: str) -> None:
    with pytest.raises(FormatError, match=obstacle):
        read(split_step(expression))


@pytest.mark.parametrize("pattern", [r"[[:alpha:]]+|.", r"[a-d~~[b-e]]+|."])
def test_classes_that_tiktoken_alone_means_so_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidPatternError, match="in different ways"):
        pattern_of_tiktoken(pattern)


def test_sets_of_tiktoken_intersect() -> None:
    pattern = pattern_of_tiktoken(r"[\p{Han}]+|[\p{L}&&[^\p{Han}]]+|.")
    assert reference_pretokens("ab漢字c", pattern) == ["ab", "漢字", "c"]
    assert resolve_pattern(pattern).tier == "automaton"
