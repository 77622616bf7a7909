"""Two hundred patterns split as the libraries do that they are written for."""

from __future__ import annotations

import itertools
import random

import pytest
import tiktoken
from pattern_samples import FANCY, ONIGURUMA, REGEX
from profiles import PROFILE
from tokenizers import Regex, pre_tokenizers

from bpe_core._native import split_pretokens
from bpe_core.patterns import pattern_of_tiktoken, resolve_pattern, split_custom
from bpe_core.split_patterns.translation import translate

TEXTS_OF_EACH = 2000 if PROFILE == "nightly" else 12
PIECES = [
    *[*"'strevmaAbBxyz", *"   \n\r\t\xa0\u3000", *"0123٣½²", "\u0301", *"éÉßſ漢あがアж한αΩ"],
    *[*"!?.,_-…(){}[]<>#/\\@:", "\r\n", "\n\n", "'s", "'LL", " the", "ab", "abc", "123", "1234567"],
    *["😀", "\u200d", "ǅ", "İ", "\u2028", "\x85", "\x00", "▁"],
]

pytestmark = pytest.mark.slow


def random_texts(seed: str) -> list[str]:
    rng = random.Random(seed)
    return ["".join(rng.choices(PIECES, k=rng.randrange(14))) for _ in range(TEXTS_OF_EACH)]


def pieces_of(pattern: str, text: str) -> list[str]:
    resolved = resolve_pattern(pattern)
    assert resolved.scanner is not None, f"not compiled: {resolved.obstacle}"
    data = text.encode()
    cuts = [0, *split_pretokens(resolved.scanner, data).tolist()]
    return [data[a:b].decode() for a, b in itertools.pairwise(cuts)]


def test_there_are_two_hundred_patterns() -> None:
    listed = [*REGEX, *ONIGURUMA, *FANCY]
    assert len(listed) >= 200
    for patterns in (REGEX, ONIGURUMA, FANCY):
        assert len(set(patterns)) == len(patterns)


@pytest.mark.parametrize("pattern", REGEX)
def test_a_pattern_splits_as_regex_does(pattern: str) -> None:
    for text in random_texts(pattern):
        data = text.encode()
        cuts = split_custom(pattern, text).tolist()
        expected = [data[a:b].decode() for a, b in itertools.pairwise(cuts)]
        assert pieces_of(pattern, text) == expected, text


@pytest.mark.parametrize("expression", ONIGURUMA)
def test_an_expression_of_tokenizer_json_splits_as_tokenizers_does(expression: str) -> None:
    theirs = pre_tokenizers.Split(Regex(expression), "isolated")
    pattern = translate(expression, "oniguruma", "regex")
    for text in random_texts(expression):
        expected = [text[a:b] for _, (a, b) in theirs.pre_tokenize_str(text) if a < b]
        assert pieces_of(pattern, text) == expected, text


@pytest.mark.parametrize("pattern", FANCY)
def test_a_pattern_of_ranks_splits_as_tiktoken_does(pattern: str) -> None:
    pattern = rf"{pattern}|[\s\S]"  # tiktoken drops what a pattern leaves
    ours = pattern_of_tiktoken(pattern)
    texts = [text[:24] for text in random_texts(pattern)]
    parts = (
        text[a:b] for text in texts for a, b in itertools.combinations(range(len(text) + 1), 2)
    )
    # Every part of a text is a token, so that tokens are pieces.
    tokens = dict.fromkeys([*(bytes([b]) for b in range(256)), *(part.encode() for part in parts)])
    theirs = tiktoken.Encoding(
        "x",
        pat_str=pattern,
        mergeable_ranks={token: rank for rank, token in enumerate(tokens)},
        special_tokens={},
    )
    for text in texts:
        expected = [token.decode() for token in theirs.decode_tokens_bytes(theirs.encode(text))]
        assert pieces_of(ours, text) == expected, (ours, text)
