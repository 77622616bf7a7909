"""Split patterns that are compiled, against the package `regex` and against each other."""

from __future__ import annotations

import importlib.util
import itertools
import random
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from core_support import DEEPSEEK_V3, INVALID_UTF8, TEKKEN, characters
from hypothesis import example, given, settings
from hypothesis import strategies as st
from profiles import times

from bpe_core._native import split_pretokens
from bpe_core.generate_scanner_fingerprints import DEFAULT_OUTPUT as SCANNERS
from bpe_core.generate_scanner_fingerprints import generate
from bpe_core.patterns import PATTERNS, THEN, THEN_BYTES, resolve_pattern, split_custom, steps_of
from bpe_core.reference import split_pretokens as reference_pretokens
from bpe_core.split_patterns import sets
from bpe_core.split_patterns.compiler import compile_steps
from bpe_core.split_patterns.sets import Named, Span, find_property, resolve
from bpe_core.split_patterns.syntax import UnsupportedPatternError
from bpe_core.stand_ins import to_stand_ins

_WORDS = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_TAILS = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_SPACE = r"\s*[\r\n]+|\s+(?!\S)|\s+"

# Of published tokenizers, without those that are among the named patterns.
PUBLISHED = {
    "tekken": TEKKEN,
    "qwen3.5": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
        r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + _SPACE
    ),
    "deepseek v3": THEN.join(DEEPSEEK_V3),
    "deepseek coder": THEN.join(
        [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}"]
    ),
    "nanochat": (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*"
        r"|\s*[\r\n]|\s+(?!\S)|\s+"
    ),
    "falcon": THEN_BYTES.join(
        [r"[!-/:-@\[-`{-~\p{P}]+" + THEN + PATTERNS["gpt2"], r"\p{N}+", "[0-9][0-9][0-9]"]
    ),
    "starcoder": THEN.join([r"\p{N}", PATTERNS["gpt2"]]),
    "superbpe": THEN.join([r"\p{N}+", r"(?=(\d{3})+(?!\d))", PATTERNS["gpt2"]]),
    "tiny aya": THEN.join([r"\d{1,3}(?=(?:\d{3})*\b)", PATTERNS["o200k"]]),
    "kimi": (
        r"(?V1)[\p{Han}]+|[^\r\n\p{L}\p{N}]?"
        rf"[{_WORDS}&&[^\p{{Han}}]]*[{_TAILS}&&[^\p{{Han}}]]+(?:'s|'t|'re|'ve|'m|'ll|'d)?"
        rf"|[^\r\n\p{{L}}\p{{N}}]?[{_WORDS}&&[^\p{{Han}}]]+[{_TAILS}&&[^\p{{Han}}]]*"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _SPACE
    ),
}
NAMED = {name: PATTERNS[name] for name in PATTERNS if name != "none"}
MADE_UP = [
    *("a*", "a|", r"\b", r"\B", "(?=b)", r"\b\w+\b", r"\d+(?!x)|a+b", r"(?<=a)b+|c*?d"),
    *("^a+|b$", "a+?b|ab*?", r"(?<!\w)[a-z]+", r"\s+$", "(?i)st|[k-z]+", r"x*+a|\w++\d"),
    *(r"(?>\s*)\n|\S+", r"(?<=ab)c|\w", r"(?m)^\s*|\w+$", r"\h+|\p{Latin}{2,}", r"[^\W\d_]+"),
    *(r".+?(?=\d\d)", r"(?s).{3}", r"\A\w|\w\Z", r"(?:ab?){2,3}", "é|😀", r"(?i)ſ|É+"),
]
TEXTS = [*"'strevmldSTabAB", "ſ", *"   \n\r\t\xa0\u3000\x1c", *"019٣½", "\u0301", *"ǅʰéÉßд漢あゟ한"]
TEXTS += [*"//!.-_“…😀\x00\u200c\ufffd", "12", "1234567", "'ll", "\r\n"]
tricky_texts = st.lists(st.sampled_from(TEXTS) | characters, max_size=24).map("".join)


def ends_of(pattern: str, data: bytes, capacity: int = 256) -> list[int]:
    splitter = compile_steps(steps_of(pattern)).splitter
    ends: list[int] = split_pretokens(splitter, data, capacity).tolist()
    return ends


def expected_cuts(pattern: str, text: str) -> list[int]:
    """Cuts by the package `regex`, which reads bytes as their stand-ins where the pattern does."""
    of_characters, *of_bytes = pattern.split(THEN_BYTES)
    cuts: list[int] = split_custom(of_characters, text).tolist()
    data = text.encode()
    for step in of_bytes:
        found = [0]
        for begin, end in itertools.pairwise(cuts):
            chunk = to_stand_ins(data[begin:end])
            places = split_custom(step, chunk).tolist()[1:]
            found += [begin + len(chunk.encode()[:place].decode()) for place in places]
        cuts = found
    return cuts


def check(pattern: str, text: str, capacity: int = 256) -> None:
    expected = expected_cuts(pattern, text)[1:]
    assert ends_of(pattern, text.encode(), capacity) == expected, (pattern, text)


# --- what is split


@pytest.mark.parametrize("name", [*PUBLISHED, *NAMED])
def test_published_patterns_split_as_regex_does(name: str) -> None:
    pattern = PUBLISHED.get(name) or NAMED[name]
    rng = random.Random(name)
    for _ in range(200):
        text = "".join(rng.choices(TEXTS, k=rng.randrange(30)))
        check(pattern, text, rng.choice([1, 2, 3, 256]))


@pytest.mark.parametrize("pattern", MADE_UP)
def test_made_up_patterns_split_as_regex_does(pattern: str) -> None:
    rng = random.Random(pattern)
    for _ in range(150):
        text = "".join(rng.choices([*"abcd 12x\n", *TEXTS], k=rng.randrange(16)))
        check(pattern, text, rng.choice([1, 2, 256]))


@pytest.mark.parametrize(
    "pattern", ["[0-9]+", r"\p{N}{1,3}", "漢+", "[,;]", r"[aeiou]", "é", r"\b1", "1a"]
)
def test_long_gaps_end_where_they_should(pattern: str) -> None:
    rng = random.Random(pattern)
    for _ in range(100):
        runs = [rng.choice(TEXTS) * rng.choice([1, 2, 17, 40]) for _ in range(6)]
        check(pattern, "".join(runs), rng.choice([1, 2, 256]))


@pytest.mark.slow
def test_published_patterns_split_prose_as_regex_does(shared_text: object) -> None:
    assert callable(shared_text)
    for corpus in ("prose", "multilingual"):
        text = shared_text(corpus, 40_000).decode("utf-8", "ignore")
        for pattern in PUBLISHED.values():
            check(pattern, text)


# Not [^a]: `regex` takes the wrong one of two sets that each lack one character.
_ATOMS = [
    *("a", "b", "é", "[ab]", "[^ac]", r"\s", r"\w", r"\d", ".", r"\S", r"[^\s\w]", "[^\\d\n]"),
    *(r"\p{L}", r"\P{Lu}", "(?i:s)", "1"),
]
_PLACES = [r"\b", r"\B", "^", r"\Z", "(?=a)", r"(?!\s)", r"(?<=a)", r"(?<!\d)", "(?!$)"]
_REPEATS = ["?", "*", "+", "{2}", "{1,3}", "??", "*?", "+?", "?+", "++", "*+", "{1,2}+"]


def _repeated(body: str, repeat: str) -> str:
    return f"{body}{repeat}" if len(body) == 1 or body in _ATOMS else f"(?:{body}){repeat}"


patterns = st.recursive(
    st.sampled_from(_ATOMS),
    lambda inner: st.one_of(
        st.lists(inner | st.sampled_from(_PLACES), min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.builds(_repeated, inner, st.sampled_from(_REPEATS)),
        st.builds("(?={}){}".format, inner, inner),
    ),
    max_leaves=8,
)
short_texts = st.text(st.sampled_from("aabbé1sſS \n!"), max_size=10)


@settings(max_examples=times(3))
@given(patterns, st.lists(short_texts, min_size=1, max_size=5), st.integers(1, 3))
@example("a+b", ["aaab", "aac"], 1)
def test_any_pattern_that_compiles_splits_as_regex_does(
    pattern: str, texts: list[str], capacity: int
) -> None:
    try:
        compile_steps(steps_of(pattern))
    except UnsupportedPatternError:
        return
    for text in texts:
        check(pattern, text, capacity)


@settings(max_examples=times(1))
@given(st.lists(st.sampled_from([*MADE_UP, r"\d", "[ab]+"]), min_size=2, max_size=4), tricky_texts)
def test_chains_split_as_regex_does(steps: list[str], text: str) -> None:
    check(THEN.join(steps), text, 3)
    pieces = [piece.encode() for piece in reference_pretokens(text, THEN.join(steps))]
    ends = list(itertools.accumulate(map(len, pieces)))
    assert ends_of(THEN.join(steps), text.encode()) == ends


@pytest.mark.parametrize("name", PUBLISHED)
def test_bytes_that_are_not_utf8_are_split_too(name: str) -> None:
    rng = random.Random(name)
    parts = [*INVALID_UTF8, *(text.encode() for text in TEXTS)]
    for _ in range(100):
        data = b"".join(rng.choices(parts, k=rng.randrange(1, 20)))
        ends = ends_of(PUBLISHED[name], data)
        assert ends == sorted(set(ends))
        assert ends[-1] == len(data)
        assert ends == ends_of(PUBLISHED[name], data, 1)


def test_threads_share_a_chain() -> None:
    pattern = PUBLISHED["superbpe"]
    texts = [f"year {n} and {n * 1234567}, then more" * 20 for n in range(1, 40)]
    expected = [ends_of(pattern, text.encode()) for text in texts]
    failures = []

    def split_all() -> None:
        for text, ends in zip(texts, expected, strict=True):
            if ends_of(pattern, text.encode(), 7) != ends:
                failures.append(text)

    threads = [threading.Thread(target=split_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_groups_of_digits_from_the_right_take_linear_time() -> None:
    data = b"1" * 200_000
    began = time.process_time()
    ends = ends_of(PUBLISHED["superbpe"], data)
    assert len(ends) == 66_667
    assert time.process_time() - began < 1


# --- which patterns split alike


def fingerprint_of(pattern: str) -> str | None:
    (found,) = compile_steps(steps_of(pattern)).fingerprints
    return found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a+b|a", "a(?:a*b)?"),
        (r"\p{L}+|\p{N}", r"\p{Number}|\p{Letter}{1,}"),
        ("[a-c]x|[d-f]x", "[a-f]x"),
        (r" ?\p{L}++|\s++$", r" ?\p{L}+|\s+\Z"),
        ("(?i:'s|'t)", "'(?i:[st])"),
        ("a*?b", "[a]*b"),
        ("ab|ac", "a[bc]"),
    ],
)
def test_automata_that_match_alike_have_one_fingerprint(one: str, other: str) -> None:
    assert fingerprint_of(one) == fingerprint_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("a|ab", "ab|a"), ("a+", "a+?"), (r"\d", r"\p{N}"), ("a*", "a+"), (r"\s+(?!\S)", r"\s+")],
)
def test_automata_that_match_otherwise_have_others(one: str, other: str) -> None:
    assert fingerprint_of(one) != fingerprint_of(other)


@pytest.mark.slow
@settings(max_examples=times(3))
@given(st.lists(patterns, min_size=12, max_size=12), st.lists(short_texts, min_size=4, max_size=4))
def test_random_patterns_with_one_fingerprint_split_alike(
    candidates: list[str], texts: list[str]
) -> None:
    groups: dict[str, list[str]] = {}
    for pattern in candidates:
        try:
            found = fingerprint_of(pattern)
        except UnsupportedPatternError:
            continue
        if found is not None:
            groups.setdefault(found, []).append(pattern)
    for alike in groups.values():
        for text in texts:
            expected = ends_of(alike[0], text.encode())
            assert all(ends_of(other, text.encode()) == expected for other in alike[1:]), alike


@pytest.mark.slow
def test_the_fingerprints_of_scanners_are_those_of_their_patterns() -> None:
    assert SCANNERS.read_text(encoding="ascii") == generate()


FAILING_FAR_AHEAD = {
    "a+b": "a",
    "(?:ab)+c|(?:ba)+d": "ab",
    "a+b|a(?=aaa)": "a",
    "(?s)[ab]*c|b": "ab",
    "é+b|": "é",
    THEN.join(["x", "a+b", r"[ab]+c|\w"]): "a",
}


@pytest.mark.parametrize("pattern", FAILING_FAR_AHEAD)
def test_matches_that_fail_far_ahead_split_as_regex_does(pattern: str) -> None:
    rng = random.Random(pattern)
    for _ in range(60):
        units = rng.choices(["a", "ab", "aab", "é", *"bcdx1 "], k=rng.randrange(1, 6))
        text = "".join(unit * rng.choice([1, 2, 70, 130, 200]) for unit in units)
        check(pattern, text, rng.choice([1, 2, 256]))


@pytest.mark.parametrize("pattern", FAILING_FAR_AHEAD)
def test_time_is_linear_where_matches_fail_far_ahead(pattern: str) -> None:
    data = (FAILING_FAR_AHEAD[pattern] * 100_000).encode()
    began = time.process_time()
    assert ends_of(pattern, data)[-1] == len(data)
    # Quadratic time would be more than ten seconds.
    assert time.process_time() - began < 2


# --- where text may be cut


@pytest.mark.parametrize("name", [*PUBLISHED, *NAMED])
def test_a_safe_cut_changes_no_pretoken(name: str) -> None:
    pattern = PUBLISHED.get(name) or NAMED[name]
    splitter = compile_steps(steps_of(pattern)).splitter
    rng = random.Random(name)
    split = partial(split_pretokens, splitter)
    for _ in range(150):
        text = "".join(rng.choices(TEXTS, k=20))
        whole = split(text.encode()).tolist()
        for left, right in itertools.pairwise(range(len(text))):
            if splitter.may_cut(ord(text[left]), ord(text[right])):
                head, tail = text[:right].encode(), text[right:].encode()
                parts = [*split(head).tolist(), *(len(head) + split(tail)).tolist()]
                assert parts == whole, (text, right)


@settings(max_examples=times(2))
@given(st.lists(patterns, min_size=1, max_size=3), st.lists(short_texts, min_size=1, max_size=4))
def test_a_safe_cut_of_any_chain_changes_no_pretoken(steps: list[str], texts: list[str]) -> None:
    try:
        splitter = compile_steps(steps_of(THEN.join(steps))).splitter
    except UnsupportedPatternError:
        return
    for text in texts:
        whole = split_pretokens(splitter, text.encode()).tolist()
        for place in range(1, len(text)):
            if splitter.may_cut(ord(text[place - 1]), ord(text[place])):
                head, tail = text[:place].encode(), text[place:].encode()
                ends = (len(head) + split_pretokens(splitter, tail)).tolist()
                assert [*split_pretokens(splitter, head).tolist(), *ends] == whole


@pytest.mark.parametrize("name", NAMED)
def test_the_cuts_of_named_patterns_are_among_those_of_their_automata(name: str) -> None:
    splitter = compile_steps(steps_of(NAMED[name])).splitter
    for letter, other in itertools.product("aZéß漢", " \n.1!/…\u3000😀\u200d"):
        assert splitter.may_cut(ord(letter), ord(other)), (letter, other)


@pytest.mark.parametrize("name", PUBLISHED)
def test_long_documents_of_published_patterns_are_cut_between_words(name: str) -> None:
    splitter = compile_steps(steps_of(PUBLISHED[name])).splitter
    assert splitter.may_cut(ord("a"), ord(" "))
    assert splitter.has_cuts


def test_patterns_without_certain_boundaries_have_no_cuts() -> None:
    assert resolve_pattern(r"\w+").has_safe_cuts
    assert not resolve_pattern(".{5}").has_safe_cuts
    assert not resolve_pattern(r"[\s\S]{2}").has_safe_cuts


# --- what is compiled


@pytest.mark.parametrize(
    ("pattern", "tier"),
    [
        (PUBLISHED["tekken"], "scanner"),
        (PUBLISHED["kimi"], "automaton"),
        (PUBLISHED["deepseek v3"], "scanner"),
        (PUBLISHED["deepseek coder"], "automaton"),
        (PUBLISHED["superbpe"], "two_passes"),
        (r"(a)\1", "regex"),
        ("gpt2", "scanner"),
    ],
)
def test_a_pattern_knows_how_it_is_run(pattern: str, tier: str) -> None:
    assert resolve_pattern(pattern).tier == tier


@pytest.mark.parametrize(
    ("pattern", "obstacle"),
    [
        (r"(a)\1", "an escape, \\1"),
        ("(?:a|ab)++c", "an atomic group or possessive repetition"),
        (r"\X", "an escape, \\X"),
        ("(?:a*)*b", "a repetition of what may be nothing"),
        ("(?=ab(?=cd))", "look-around within look-around"),
        ("a{1,9999}", "an automaton of more than"),
        ("[[:alpha:]]", "a class of POSIX"),
        (r"(?i)\p{Lu}", "letters of one case when ignoring case"),
        ("(?R)?a", "a flag"),
    ],
)
def test_what_is_not_compiled_is_named(pattern: str, obstacle: str) -> None:
    with pytest.raises(UnsupportedPatternError) as raised:
        compile_steps(steps_of(pattern))
    assert obstacle in str(raised.value)


# --- sets of characters


@pytest.mark.slow
def test_the_sets_in_the_repository_are_what_their_generator_writes(tmp_path: Path) -> None:
    pytest.importorskip("unicodedataplus", reason="the sets come from unicodedataplus")
    folder = Path(sets.__file__).parent
    spec = importlib.util.spec_from_file_location("g", folder / "generate_unicode_sets.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main(["--output", str(tmp_path / "sets.txt")])
    assert (tmp_path / "sets.txt").read_bytes() == (folder / "unicode_sets.txt").read_bytes()


def test_properties_have_the_names_of_the_standard() -> None:
    assert find_property("lowercase-letter") == find_property("Ll") == Named("gc=Ll")
    assert find_property("Script=hani") == find_property("Han") == Named("sc=Han")
    assert find_property("In_Hiragana", blocks="In") == Named("blk=Hiragana")
    assert find_property("InHiragana") is None
    assert find_property("Nonsense") is None
    assert resolve(Named("blk=Hiragana")) == (0x3040, 0x30A0)
    assert resolve(sets.Complement(Span(0, 64))) == (65, 0x110000)
