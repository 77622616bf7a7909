from __future__ import annotations

import itertools
import random
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import regex
from core_support import DEEPSEEK_V3, TEKKEN
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from profiles import share, times

from bpe_core import BPETokenizer, count_pretokens, patterns, train_from_iterator
from bpe_core._native import split_pretokens
from bpe_core.errors import BpeError, InvalidPatternError, SlowPatternError
from bpe_core.patterns import (
    PATTERNS,
    THEN,
    UNICODE_VERSION,
    pattern_with_rules,
    resolve_pattern,
    split_custom,
)

NATIVE = sorted({resolve_pattern(name).native or "" for name in PATTERNS})
NAMED = [name for name in NATIVE if name != "none"]

# Patterns with rules, by the names that native code has for them.
WITH_RULES = {
    resolve_pattern(ruled).native or "": ruled
    for ruled in [
        pattern_with_rules("gpt2", split_categories=True),
        pattern_with_rules("gpt2", max_digits=3),
        pattern_with_rules("gpt2", split_categories=True, max_digits=1),
        pattern_with_rules("cl100k", split_categories=True),
        pattern_with_rules("cl100k", max_digits=5),
        pattern_with_rules("cl100k_tiktoken", split_categories=True, max_digits=2),
        pattern_with_rules("qwen2", split_categories=True),
        pattern_with_rules("o200k", split_categories=True),
        pattern_with_rules("o200k", max_digits=2),
        pattern_with_rules("o200k", split_categories=True, max_digits=4),
    ]
}
# Published patterns that have a scanner of their own, by the names that native code has for them.
PUBLISHED = {
    "o200k/no_contractions/max_digits=1": TEKKEN,
    "deepseek_v3": THEN.join(DEEPSEEK_V3),
}
REGEXES = {**{name: PATTERNS[name] for name in NAMED}, **WITH_RULES, **PUBLISHED}
SPLITTING = list(REGEXES)

# One or more of every class that some pattern tells apart, of every length in UTF-8. Their classes
# are the same in all versions of Unicode that an installed `regex` may have.
TRICKY = [
    *"'''strevmldSTREVMLDabAB",
    "ſ",
    *"   \n\r\t\v\x1c\x85\xa0\u2003\u3000",
    *"019٣½Ⅷ𝟘",
    *"\u0301\u0fad\ufe0f\U000e0100",
    *"ǅʰªéÉßдДİﬆ𐐀𐐨",
    *"漢字한あ・\u3099\u3040\U00020000",
    *"//!.-_“…\u200d😀\x00\x7f\ufffd\U000f0000\U0010ffff",
]
LONG = [15, 16, 17, 30, 31, 32, 33, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 127, 128, 129]


def ends_by_regex(pattern: str, text: str) -> list[int]:
    if pattern == "deepseek_v3":
        return split_custom(REGEXES[pattern], text).tolist()[1:]
    ends: list[int] = []
    end = 0
    for match in regex.finditer(REGEXES[pattern], text):
        end += len(match[0].encode())
        ends.append(end)
    assert end == len(text.encode()), "a named pattern leaves no text unmatched"
    return ends


def check(pattern: str, text: str, capacity: int = 256) -> None:
    data = text.encode()
    expected = ends_by_regex(pattern, text)
    for portable in (False, True):
        found = split_pretokens(pattern, data, capacity, portable).tolist()
        assert found == expected, (pattern, text, portable)


def check_all(text: str) -> None:
    for pattern in SPLITTING:
        check(pattern, text)


@cache
def agreed_characters() -> list[str]:
    """Every code point whose class is the same in Unicode 16.0 and in the installed regex."""
    unicodedata2 = pytest.importorskip("unicodedata2", reason="says what Unicode 16.0 is")
    everything = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))
    category = dict.fromkeys(everything, "other")
    for name in ["Lu", "Ll", "Lt", "Lm", "Lo", "M", "N", "P", "S"]:
        category.update(dict.fromkeys(regex.findall(rf"\p{{{name}}}", everything), name))
    agreed = []
    for character, found in category.items():
        expected = unicodedata2.category(character)
        if expected[0] in "MNPS":
            expected = expected[0]
        elif expected[0] != "L":
            expected = "other"
        if expected == found:
            agreed.append(character)
    return agreed


def any_characters() -> st.SearchStrategy[str]:
    # By index: sampled_from would examine a million elements.
    agreed = agreed_characters()
    return st.integers(0, len(agreed) - 1).map(agreed.__getitem__)


def tricky_text(rng: random.Random) -> str:
    alphabet = rng.choice(
        [TRICKY, [c for c in TRICKY if c.isascii()], rng.sample(TRICKY, 5), rng.sample(TRICKY, 3)]
    )
    size = rng.choice([5, 30, 150, 400])
    parts = []
    for _ in range(rng.randrange(1, size)):
        character = rng.choice(alphabet)
        parts.append(character * (rng.choice(LONG) if rng.random() < 0.02 else 1))
    return "".join(parts)


# What the scanners find


@pytest.mark.parametrize("pattern", SPLITTING)
def test_native_scanners_split_text_of_tricky_characters_as_regex_does(pattern: str) -> None:
    rng = random.Random(pattern)
    for _ in range(times(30)):
        check(pattern, tricky_text(rng), rng.choice([1, 2, 3, 64, 256]))


@pytest.mark.slow
@pytest.mark.parametrize("pattern", SPLITTING)
@settings(max_examples=times(1.5))
@given(st.data())
def test_native_scanners_split_any_text_as_regex_does(pattern: str, data: st.DataObject) -> None:
    characters = st.one_of(st.sampled_from(TRICKY), any_characters())
    runs = st.tuples(characters, st.one_of(st.integers(1, 3), st.sampled_from(LONG)))
    text = data.draw(
        st.one_of(
            st.lists(any_characters(), max_size=200).map("".join),
            st.text(st.sampled_from(TRICKY), max_size=200),
            st.lists(runs, max_size=40).map(lambda runs: "".join(c * n for c, n in runs)),
        )
    )
    check(pattern, text, data.draw(st.sampled_from([1, 7, 256])))


@pytest.mark.slow
@pytest.mark.parametrize("rest", ["", " " + "z" * 70], ids=["at the end", "inside"])
def test_every_short_combination_of_classes_is_split_as_regex_does(rest: str) -> None:
    for length in (1, 2, 3, 4):
        combinations = [*itertools.product("aS漢\u0301ſ1 \n'/", repeat=length)]
        for characters in combinations if length < 4 else share(combinations, 13):
            check_all("".join(characters) + rest)


@pytest.mark.slow
@pytest.mark.parametrize(
    "character", ["a", "A", "1", "!", " ", "\n", "'", "/", *"éд漢٣\u0301\u3000😀"]
)
def test_runs_of_every_length_are_split_as_regex_does(character: str) -> None:
    for length in share([*range(1, 20), *LONG], 2):
        for before, after in itertools.product(["", "x", " "], ["", "b", " b", "'s", "\n c", "8"]):
            check_all(before + character * length + after)


@pytest.mark.slow
def test_contractions_are_split_as_regex_does_wherever_they_are() -> None:
    forms = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'T", "'rE", "'VE", "'lL", "'ſ"]
    for form in [*forms, "'", "'x", "'r", "'l", "'vx"]:
        for offset in share(range(70), 3):
            check_all("y" * offset + form + "z w" * 30)
    pairs = [*itertools.product(forms, forms, ["", "a", "A", "漢", " ", "'"])]
    for first, second, between in share(pairs, 5):
        check_all("don" + first + between + second + " z" * 40)


@pytest.mark.parametrize("pattern", SPLITTING)
def test_the_capacity_changes_nothing(pattern: str) -> None:
    rng = random.Random(1)
    data = "".join(tricky_text(rng) for _ in range(20)).encode()
    whole = split_pretokens(pattern, data, 1 << 20).tolist()
    for capacity in [*range(1, 70), 255, 256, 257]:
        assert split_pretokens(pattern, data, capacity).tolist() == whole


def test_none_takes_a_text_as_one_pretoken_and_the_empty_text_has_none() -> None:
    assert split_pretokens("none", b"a b\n c").tolist() == [6]
    for pattern in NATIVE:
        assert split_pretokens(pattern, b"").tolist() == []


def corpora() -> list[Path]:
    root = Path(__file__).parents[2]
    return sorted([*root.glob("examples/data/*.txt"), *root.glob("../shared/data/*.zst")])


@pytest.mark.parametrize("path", corpora(), ids=lambda path: path.name)
def test_real_text_is_split_as_regex_does(path: Path) -> None:
    if path.suffix == ".zst":
        zstandard = pytest.importorskip("zstandard")
        with path.open("rb") as file:
            sample = zstandard.ZstdDecompressor().stream_reader(file).read(times(4000))
    else:
        sample = path.read_bytes()[: times(4000)]
    check_all(sample.decode(errors="ignore"))


# Promises about any bytes


@pytest.mark.parametrize("pattern", NATIVE)
@settings(max_examples=times(1.5))
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=20),
            st.text(max_size=40).map(str.encode),
            st.sampled_from([b"word " * 20, b"\xed\xa0\x80", b"\xc0\x80", b"\xf5", b"\xe6\xbc"]),
        ),
        max_size=8,
    ).map(b"".join)
)
def test_pieces_of_invalid_utf8_cover_it_whatever_the_capacity(pattern: str, data: bytes) -> None:
    ends = split_pretokens(pattern, data).tolist()
    assert ends == sorted(set(ends))
    assert ends[-1:] == [len(data)][: len(data)]
    assert 0 not in ends
    assert split_pretokens(pattern, data, 1).tolist() == ends
    for end in ends[:10]:
        rest = [e - end for e in ends if e > end]
        assert split_pretokens(pattern, data[end:]).tolist() == rest or pattern == "none"


@pytest.mark.parametrize("pattern", SPLITTING)
def test_time_is_linear_in_the_text(pattern: str) -> None:
    units = [
        " ",
        "\n",
        "a",
        "A",
        "1",
        "!",
        "'",
        "/",
        "漢",
        "\u0301",
        "\u3000",
        "\n  ",
        " \n",
        "/\n",
    ]
    units += [
        "aA",
        "漢A",
        "A漢",
        "\u0301A",
        "a'",
        "don't",
        "!\u0301",
        "a漢",
        "дД",
        "😀\ufe0f",
        "1a",
    ]
    for unit in units:
        data = (unit * (times(10_000) // len(unit.encode()))).encode()
        for text in (data, data + b"x", b"a" + data + b"\n"):
            start = time.perf_counter()
            split_pretokens(pattern, text, 1)
            # Some milliseconds; quadratic time would be minutes.
            assert time.perf_counter() - start < 5, unit


@pytest.mark.parametrize("pattern", SPLITTING)
@pytest.mark.parametrize("first", [b"\xc1", b"\xed\xa0", b"\xf4\x90", b"\xf8", b"\xff"])
def test_bytes_that_start_no_character_are_the_same_for_every_scanner(
    pattern: str, first: bytes
) -> None:
    """In blocks of vector instructions too, whatever follows."""
    for rest in (b"", b"\xbf", b"\xbf\xbf", b"\xbf\xbf\xbf"):
        data = b"-" + first + rest + b"word 12 " + "漢é".encode()
        for text in (data, data * 9):
            expected = split_pretokens(pattern, text, 256, True).tolist()
            assert split_pretokens(pattern, text).tolist() == expected, text


# A cut after a letter and before what is neither letter nor mark nor apostrophe


def cut_places(text: str) -> list[int]:
    return [match.start() for match in regex.finditer(r"(?<=\p{L})(?=[^\p{L}\p{M}'])", text)]


@pytest.mark.parametrize("pattern", SPLITTING)
def test_a_cut_between_a_letter_and_what_joins_no_word_changes_no_pretoken(pattern: str) -> None:
    rng = random.Random(pattern)
    checked = 0
    while checked < times(30):
        text = tricky_text(rng)
        whole = split_pretokens(pattern, text.encode()).tolist()
        for place in cut_places(text):
            left, right = text[:place].encode(), text[place:].encode()
            pieces = split_pretokens(pattern, left).tolist()
            pieces += [len(left) + end for end in split_pretokens(pattern, right).tolist()]
            assert pieces == whole, (text, place)
            checked += 1


# Names and expressions


def test_every_name_resolves_to_a_native_scanner_and_a_valid_expression() -> None:
    for name in PATTERNS:
        pattern = resolve_pattern(name)
        assert pattern.native in NATIVE
        assert pattern.name == pattern.native
        assert pattern.regex == PATTERNS[name]
        assert pattern.unicode_version == UNICODE_VERSION
        assert resolve_pattern(pattern.regex) == pattern
    assert resolve_pattern("r50k") == resolve_pattern("gpt2")
    assert resolve_pattern("llama3") == resolve_pattern("cl100k")


def numbers_of(pattern: str, text: str) -> list[str]:
    return [piece for piece in pieces(pattern, text) if piece.strip().isdecimal()]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PATTERNS if name != "none"])
@pytest.mark.parametrize("split_categories", [False, True])
@pytest.mark.parametrize("max_digits", [None, 1, 2, 3, 10, 59, 60, 61, 62, 63, 64, 65, 1000])
def test_rules_make_patterns_that_native_code_scans(
    name: str, split_categories: bool, max_digits: int | None
) -> None:
    ruled = pattern_with_rules(name, split_categories=split_categories, max_digits=max_digits)
    resolved = resolve_pattern(ruled)
    assert resolved.native is not None
    assert resolved.unicode_version == UNICODE_VERSION
    assert resolve_pattern(resolved.regex) == resolved
    rng = random.Random(name)
    for _ in range(20):
        parts = [*tricky_text(rng), *(rng.choice("7٣") * rng.choice(LONG) for _ in range(5))]
        text = "".join(rng.sample(parts, len(parts)))
        found = split_custom(resolved.regex, text).tolist()[1:]
        for portable in (False, True):
            ends = split_pretokens(resolved.native, text.encode(), 256, portable)
            assert ends.tolist() == found
    if max_digits is not None:
        groups = numbers_of(resolved.regex, "x" + "7" * 2001)
        assert max(map(len, groups)) == max_digits
        assert all(len(group) == max_digits for group in groups[:-1])


@pytest.mark.parametrize("name", [name for name in PATTERNS if name != "none"])
def test_with_split_categories_no_pretoken_has_two_of_letters_numbers_and_others(name: str) -> None:
    ruled = resolve_pattern(pattern_with_rules(name, split_categories=True)).regex
    letters = r"\p{L}\p{M}" if name == "o200k" else r"\p{L}"
    kinds = [rf"[{letters}]", r"\p{N}", rf"[^\s{letters}\p{{N}}]"]
    rng = random.Random(name)
    for _ in range(times(10)):
        for piece in pieces(ruled, tricky_text(rng)):
            assert sum(bool(regex.search(kind, piece)) for kind in kinds) <= 1, piece


@pytest.mark.parametrize(
    ("pattern", "rules", "without", "with_rules"),
    [
        (
            "gpt2",
            {"split_categories": True},
            ["don", "'t", " a", "?"],
            ["don", "'", "t", " a", "?"],
        ),
        ("gpt2", {"max_digits": 3}, [" 12345", "!"], [" 123", "45", "!"]),
        ("cl100k", {"split_categories": True}, ["(a", "?\n", "\tb"], ["(", "a", "?\n", "\t", "b"]),
        ("cl100k", {"max_digits": 1}, ["123", "4"], ["1", "2", "3", "4"]),
        ("qwen2", {"max_digits": 2}, ["1", "2", "3"], ["12", "3"]),
        ("o200k", {"split_categories": True}, ["IPod's", ".Go"], ["IPod", "'", "s", ".", "Go"]),
        ("o200k", {"max_digits": 4}, ["123", "45"], ["1234", "5"]),
    ],
)
def test_what_each_rule_changes(
    pattern: str, rules: dict[str, Any], without: list[str], with_rules: list[str]
) -> None:
    text = "".join(without)
    assert pieces(resolve_pattern(pattern).regex, text) == without
    assert pieces(resolve_pattern(pattern_with_rules(pattern, **rules)).regex, text) == with_rules


def test_rules_that_change_nothing_leave_the_name() -> None:
    assert pattern_with_rules("llama3") == "llama3"
    assert pattern_with_rules("llama3", max_digits=3) == "llama3"
    assert pattern_with_rules("qwen2", max_digits=3) == "cl100k"
    assert pattern_with_rules(r"\w+|\W+") == r"\w+|\W+"
    assert pattern_with_rules(PATTERNS["gpt2"], max_digits=2) == pattern_with_rules(
        "gpt2", max_digits=2
    )


@pytest.mark.parametrize(
    ("pattern", "rules", "message"),
    [
        (r"\w+|\W+", {"split_categories": True}, "which already defines how text is split"),
        ("none", {"max_digits": 3}, "found 'none', which splits nothing"),
        ("gpt2", {"max_digits": 0}, "max_digits: expected at least 1, or None, found 0"),
        ("gpt2", {"max_digits": True}, "expected at least 1, or None, found True"),
        ("gtp2", {"max_digits": 2}, "did you mean 'gpt2'"),
    ],
)
def test_rules_where_they_mean_nothing_are_refused(
    pattern: str, rules: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidPatternError, match=regex.escape(message)):
        pattern_with_rules(pattern, **rules)


def test_published_forms_have_no_possessive_quantifiers() -> None:
    for published in PATTERNS.values():
        assert not regex.search(r"[+*?]\+|[0-9]\}\+", published)


def test_the_patterns_of_tiktoken_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    openai_public = pytest.importorskip("tiktoken_ext.openai_public")
    monkeypatch.setattr(openai_public, "load_tiktoken_bpe", lambda *_, **__: {})
    expected = {"r50k_base": "gpt2", "cl100k_base": "cl100k_tiktoken", "o200k_base": "o200k"}
    for encoding, name in expected.items():
        pat_str = getattr(openai_public, encoding)()["pat_str"]
        assert resolve_pattern(pat_str).name == name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rewritten", "name"),
    [
        (r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+""", "gpt2"),
        (
            r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s""",
            "gpt2",
        ),
        (
            r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++"""
            r"""[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+""",
            "cl100k",
        ),
        (
            r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++"""
            r"""[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s""",
            "cl100k_tiktoken",
        ),
        (  # nanochat's
            r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++"""
            r"""[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+""",
            "cl100k/max_digits=2",
        ),
    ],
)
def test_rewritten_forms_split_as_the_pattern_they_resolve_to(rewritten: str, name: str) -> None:
    assert resolve_pattern(rewritten).native == name
    rng = random.Random(name)
    for _ in range(1500):
        text = tricky_text(rng)
        found = split_custom(rewritten, text)
        assert found.tolist() == [0, *split_pretokens(name, text.encode()).tolist()], text


@pytest.mark.parametrize("native", PUBLISHED)
def test_published_patterns_are_recognized_by_their_meaning(native: str) -> None:
    published = PUBLISHED[native]
    resolved = resolve_pattern(published)
    assert (resolved.native, resolved.name, resolved.tier) == (native, None, "scanner")
    assert resolved.regex == published
    grouped = published.replace("[\\r\\n]+", "(?:[\\n\\r]+)").replace(r"\p{N}", r"\p{Number}")
    assert resolve_pattern(grouped).native == native
    for changed in (
        published.replace(r"\p{N}", r"\d"),
        published.replace("+(?!", "{2,}(?!"),
        published + f"{THEN}a",
    ):
        assert resolve_pattern(changed).native is None


def test_another_expression_is_compiled_over_the_same_unicode() -> None:
    pattern = resolve_pattern(r"\w+|\W+")
    assert pattern.name is None
    assert pattern.native is None
    assert pattern.regex == r"\w+|\W+"
    assert pattern.tier == "automaton"
    assert pattern.unicode_version == UNICODE_VERSION


def test_an_expression_that_is_not_compiled_records_the_version_of_regex() -> None:
    pattern = resolve_pattern(r"(\w)\1|.")
    assert pattern.tier == "regex"
    assert pattern.obstacle == "an escape, \\1"
    assert pattern.scanner is None
    assert regex.__version__ in pattern.unicode_version


@pytest.mark.parametrize(
    ("pattern", "parts"),
    [
        ("(a", ["'(a'", "missing )"]),
        (r"\p{Nonsense}", [r"\p{Nonsense}", "unknown property"]),
        ("gtp2", ["unknown split pattern 'gtp2'", "did you mean 'gpt2'", "(?:gtp2)"]),
        ("cl100k_base", ["did you mean 'cl100k'"]),
        ("", ["empty", "'none'"]),
    ],
)
def test_what_is_no_pattern_is_refused_with_what_to_do(pattern: str, parts: list[str]) -> None:
    with pytest.raises(InvalidPatternError) as caught:
        resolve_pattern(pattern)
    assert isinstance(caught.value, BpeError)
    assert isinstance(caught.value, ValueError)
    for part in [*parts, "expected one of cl100k"]:
        assert part in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(?r)[a-z]+", r"searches backwards \(flag r\)"),
        (r"\d+(?#then)(?r:\w)", r"searches backwards \(flag r\)"),
        (r"(?L)\w+", r"depends on the locale of the machine \(flag L\)"),
        ("(?V0)(?V1)a", r"VERSION0 and VERSION1 flags are mutually incompatible|V0\|V1"),
        ("(" * 3000 + "a" + ")" * 3000, "is too large or nested too deeply"),
        ("a{10000000}", r"repeats its parts more than 100,000 times, \{10000000\}"),
        (r"[])]|(?:\w(?:b{99}\)){99,}?c){99}", r"more than 100,000 times, \{99\}"),
        ("(?R)|a", "calls its groups without end"),
        (r"(?P<x>(?=\d)(?&x))", "calls its groups without end"),
        ("a|\ud800", "found a lone surrogate"),
        (None, "expected a name or a regular expression as str, found None"),
        (["a"], r"found \['a'\]"),
        (b"a", "found b'a'"),
    ],
)
def test_refuses_expressions_that_cannot_split_text(pattern: Any, message: str) -> None:
    with pytest.raises(InvalidPatternError, match=message):
        resolve_pattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        r"\((?:[^()]|(?R))*\)",
        r"(?P<word>\p{L}+)(?:-(?&word))*",
        "[0-9a-f]{64}|[0-9a-f]{40}|(?:b{99}){99}|a{0,99999999}",
        "(?p)a|ab",
        "(?:ab){e<=1}",
        r"\G.",
        "a(*SKIP)b|a",
        r"a\Kb",
        r"\b",
    ],
)
def test_unusual_expressions_split_text(pattern: str) -> None:
    assert resolve_pattern(pattern).native is None
    assert "".join(pieces(pattern, "(ab(a)b) ab-ba é\n12")) == "(ab(a)b) ab-ba é\n12"


# Custom expressions


def pieces(pattern: str, text: str) -> list[str]:
    cuts = split_custom(pattern, text)
    data = text.encode()
    return [data[a:b].decode() for a, b in itertools.pairwise(cuts.tolist())]


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (r"\d+", "año 2024, мир", ["año ", "2024", ", мир"]),
        (r"\w+", "one two", ["one", " ", "two"]),
        (r"x*", "axxb", ["a", "xx", "b"]),
        (r"", "abc", ["a", "b", "c"]),
        (r"(?=b)", "abc", ["a", "bc"]),
        (r"b|", "abc", ["a", "b", "c"]),
        (r".", "a\nb", ["a", "\n", "b"]),
        (r"a", "", []),
        (r"q", "😀漢", ["😀漢"]),
    ],
)
def test_unmatched_text_is_a_pretoken_and_empty_matches_cut(
    pattern: str, text: str, expected: list[str]
) -> None:
    assert pieces(pattern, text) == expected


@settings(max_examples=times(2))
@given(
    st.text(st.sampled_from(TRICKY), max_size=60),
    st.sampled_from([r"\w+", r"\s*", r"[^\s]+|\s", r"\p{Lu}\p{Ll}*", r"(?<=a)b?", "é|😀", r"\X"]),
)
@example("", r"\w+")
def test_custom_pretokens_cover_the_text(text: str, pattern: str) -> None:
    cuts: NDArray[np.int64] = split_custom(pattern, text)
    assert cuts.dtype == np.int64
    assert cuts[0] == 0
    assert cuts[-1] == len(text.encode())
    assert np.all(np.diff(cuts) > 0)
    found = pieces(pattern, text)
    assert "".join(found) == text
    matches = [match[0] for match in regex.finditer(pattern, text) if match[0]]
    rest = iter(found)
    assert all(match in rest for match in matches), "every match is a piece, in order"


@pytest.mark.parametrize("pattern", SPLITTING)
def test_a_named_pattern_as_a_custom_one_gives_the_same(pattern: str) -> None:
    rng = random.Random(pattern)
    for _ in range(300):
        text = tricky_text(rng)
        ends = split_pretokens(pattern, text.encode()).tolist()
        assert split_custom(REGEXES[pattern], text).tolist() == [0, *ends]


SLOW = r"(?:a|a)+(?=b)|(?P<sign>!)(?P=sign)|\w|."


def test_a_pattern_that_backtracks_for_ever_is_an_error_that_numbers_the_document(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(patterns, "_SPLIT_SECONDS", 0.05)
    texts = ["aab", "a" * 60]
    with pytest.raises(SlowPatternError, match=r"0 s for a text of 60 characters") as caught:
        split_custom(SLOW, texts[1], 7)
    assert (caught.value.chars, caught.value.document) == (60, 7)
    with pytest.raises(SlowPatternError) as caught:
        count_pretokens(texts, pattern=SLOW)
    with pytest.warns(UserWarning, match="package regex"):
        tokenizer = BPETokenizer.from_model(train_from_iterator(texts[:1], 257, pattern=SLOW).model)
    assert tokenizer.decode(tokenizer.encode(texts[0])) == texts[0]
    with pytest.raises(SlowPatternError) as caught:
        tokenizer.encode_batch(texts)
    assert caught.value.document == 1
