"""minbpe's tokenizers have minbpe's merges, ids and interface, and say what is wrong."""

from __future__ import annotations

import base64
import copy
import hashlib
import pickle
import threading
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import regex
from core_support import texts, tiktoken_encoding
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import times

import bpe_core.minbpe
from bpe_core import BasicTokenizer, GPT4Tokenizer, RegexTokenizer
from bpe_core.errors import (
    FormatError,
    InvalidPatternError,
    InvalidTokenizerError,
    InvalidUtf8Error,
    SpecialTokenError,
    TrainingError,
    UnknownTokenError,
)
from bpe_core.minbpe import (
    GPT2_SPLIT_PATTERN,
    GPT4_SPECIAL_TOKENS,
    GPT4_SPLIT_PATTERN,
    get_stats,
    merge,
    render_token,
    replace_control_characters,
)
from bpe_core.patterns import PATTERNS

Pair = tuple[int, int]
Either = BasicTokenizer | RegexTokenizer

BOUNDARY = "\U0010ffff"  # between pieces of text; no id is as large
CLASSES = [BasicTokenizer, RegexTokenizer]
LLAMA = (
    "<|endoftext|>The llama (/ˈlɑːmə/; Spanish: [ˈʎama] or [ˈʝama]) is a domesticated camelid.\n"
    "<|fim_prefix|>Llamas weigh 130 to 200 kilograms,<|fim_suffix|> and carry 25–30% of it.\n\n"
)
SPECIALS = {"<|endoftext|>": 1000, "<|fim_prefix|>": 1001, "<|fim_suffix|>": 1002}


# The oracle: minbpe's loops, in which a text of ids is a str, each id a character.


def pieces_of(text: str, pattern: str) -> list[str]:
    return regex.findall(pattern, text) if pattern else [text]


def learned(text: str, pattern: str, merges: int) -> list[tuple[Pair, int]]:
    """The merges with their counts; fewer if no pair is left."""
    pieces = [piece.encode().decode("latin-1") for piece in pieces_of(text, pattern)]
    ids = BOUNDARY.join(pieces)
    found: list[tuple[Pair, int]] = []
    for new in range(256, 256 + merges):
        counts = Counter(pairwise(ids))  # in the order of first occurrence
        counts = Counter({pair: n for pair, n in counts.items() if BOUNDARY not in pair})
        if not counts:
            break
        left, right = max(counts, key=counts.__getitem__)
        found.append(((ord(left), ord(right)), counts[left, right]))
        ids = ids.replace(left + right, chr(new))
    return found


def learned_fast(text: str, pattern: str, merges: int) -> list[tuple[Pair, int]]:
    """The same for larger texts, with arrays."""
    boundary = 256 + merges
    size = boundary + 1
    pieces = pieces_of(text, pattern)
    ids = np.array([i for piece in pieces for i in (*piece.encode(), boundary)][:-1], np.int64)
    found: list[tuple[Pair, int]] = []
    for new in range(256, 256 + merges):
        pairs = ids[:-1] * size + ids[1:]
        inside = (ids[:-1] != boundary) & (ids[1:] != boundary)
        counts = np.bincount(pairs[inside], minlength=size * size)
        if not counts.any():
            break
        best = pairs[np.argmax(inside & (counts[pairs] == counts.max()))]
        found.append((divmod(int(best), size), int(counts[best])))
        taken: list[int] = []
        for place in np.flatnonzero(pairs == best).tolist():
            if not taken or place > taken[-1] + 1:
                taken.append(place)
        ids[taken] = new
        ids = np.delete(ids, np.array(taken) + 1)
    return found


def encoded(text: str, pattern: str, merges: dict[Pair, int]) -> list[int]:
    ids: list[int] = []
    for piece in pieces_of(text, pattern):
        piece_ids = list(piece.encode())
        while pairs := [pair for pair in get_stats(piece_ids) if pair in merges]:
            pair = min(pairs, key=merges.__getitem__)
            piece_ids = merge(piece_ids, pair, merges[pair])
        ids += piece_ids
    return ids


def trained(tokenizer: Either, text: str, vocab_size: int) -> Any:
    tokenizer.train(text, vocab_size)
    return tokenizer


def check_training(tokenizer: Either, text: str, merges: int, oracle: Any = learned) -> None:
    """Merges, their counts and the vocabulary are those of the oracle."""
    expected = oracle(text, tokenizer.pattern, merges)
    tokenizer.train(text, 256 + len(expected))
    assert list(tokenizer.merges.items()) == [
        (pair, 256 + rank) for rank, (pair, _) in enumerate(expected)
    ]
    assert tokenizer.model.merge_counts is not None
    assert tokenizer.model.merge_counts.tolist() == [count for _, count in expected]
    vocab = {byte: bytes([byte]) for byte in range(256)}
    for (left, right), new in tokenizer.merges.items():
        vocab[new] = vocab[left] + vocab[right]
    assert tokenizer.vocab == vocab


# ---- training and encoding


@pytest.mark.parametrize("make", CLASSES)
def test_the_example_of_wikipedia(make: Callable[[], Either]) -> None:
    tokenizer = trained(make(), "aaabdaaabac", 256 + 3)
    assert tokenizer.encode("aaabdaaabac") == [258, 100, 258, 97, 99]
    assert tokenizer.merges == {(97, 97): 256, (256, 97): 257, (257, 98): 258}
    assert tokenizer.decode([258, 100, 258, 97, 99]) == "aaabdaaabac"


@settings(max_examples=times(1))
@given(st.text("ab", max_size=60) | texts, st.integers(0, 40))
def test_merges_are_minbpes_for_any_text(text: str, merges: int) -> None:
    for tokenizer in (
        BasicTokenizer(),
        RegexTokenizer(),
        RegexTokenizer(GPT2_SPLIT_PATTERN),
        RegexTokenizer(r"[ab]{1,3}|[^ab]"),
    ):
        check_training(tokenizer, text, merges)
        check_training(tokenizer, text, merges, learned_fast)
        ids = encoded(text, tokenizer.pattern, dict(tokenizer.merges))
        ordinary: Any = getattr(tokenizer, "encode_ordinary", tokenizer.encode)
        assert ordinary(text) == ids
        assert tokenizer.decode(ids) == text


@pytest.mark.slow
@pytest.mark.parametrize("make", CLASSES)
def test_merges_are_minbpes_on_the_example_corpus(make: Callable[[], Either], kjv: bytes) -> None:
    tokenizer = make()
    text = kjv.decode()
    check_training(tokenizer, text[: times(2000)], 256 + times(2.44), learned_fast)
    other = text[-20_000:]
    assert tokenizer.encode(other) == encoded(other, tokenizer.pattern, dict(tokenizer.merges))


@pytest.mark.slow
@pytest.mark.parametrize("make", CLASSES)
@pytest.mark.parametrize("name", ["prose", "multilingual"])
def test_merges_are_minbpes_on_real_text(
    make: Callable[[], Either], name: str, shared_text: Callable[..., bytes]
) -> None:
    tokenizer = make()
    check_training(tokenizer, shared_text(name, times(2000)).decode(), 500, learned_fast)
    other = shared_text(name, 300_000).decode()[-5_000:]
    assert tokenizer.encode(other) == encoded(other, tokenizer.pattern, dict(tokenizer.merges))


@pytest.mark.soak
@pytest.mark.parametrize("make", CLASSES)
@pytest.mark.parametrize("name", ["prose", "multilingual"])
def test_merges_are_minbpes_on_several_megabytes(
    make: Callable[[], Either], name: str, shared_text: Callable[..., bytes]
) -> None:
    check_training(make(), shared_text(name, 4_000_000).decode(), 1000, learned_fast)


@pytest.mark.slow
@pytest.mark.parametrize("make", CLASSES)
def test_a_whole_corpus_is_encoded_and_decoded(make: Callable[[], Either], kjv: bytes) -> None:
    tokenizer = trained(make(), kjv.decode(), 1000)
    ids = tokenizer.encode(kjv.decode())
    assert len(ids) < 0.6 * len(kjv)
    assert tokenizer.decode(ids) == kjv.decode()


def test_verbose_prints_each_merge_with_its_count(capsys: pytest.CaptureFixture[str]) -> None:
    BasicTokenizer().train("aaabdaaab\n\n\n\nac", 256 + 4, verbose=True)
    assert capsys.readouterr().out == (
        "merge 1/4: (97, 97) -> 256 (b'aa') had 4 occurrences\n"
        "merge 2/4: (10, 10) -> 257 (b'\\n\\n') had 3 occurrences\n"
        "merge 3/4: (256, 97) -> 258 (b'aaa') had 2 occurrences\n"
        "merge 4/4: (258, 98) -> 259 (b'aaab') had 2 occurrences\n"
    )


def test_verbose_prints_every_merge_of_many_once(
    kjv: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = RegexTokenizer()
    tokenizer.train(kjv[:50_000].decode(), 256 + 1000, verbose=True)
    assert tokenizer.model.merge_counts is not None
    counts = tokenizer.model.merge_counts.tolist()
    assert capsys.readouterr().out.splitlines() == [
        f"merge {i + 1}/1000: {pair} -> {new} ({tokenizer.vocab[new]}) had {counts[i]} occurrences"
        for i, (pair, new) in enumerate(tokenizer.merges.items())
    ]


def test_a_text_that_names_a_file_is_a_text(tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    path.write_text("zzzzzzzz")
    tokenizer = trained(BasicTokenizer(), str(path), 257)
    assert tokenizer.vocab[256] in str(path).encode()


def test_pairs_that_occur_once_are_merged() -> None:
    assert trained(BasicTokenizer(), "abc", 258).encode("abc") == [257]


def test_training_again_replaces_what_was_learned() -> None:
    tokenizer = trained(trained(BasicTokenizer(), "abab", 257), "cdcd", 257)
    assert tokenizer.merges == {(99, 100): 256}


@pytest.mark.parametrize("make", CLASSES)
@pytest.mark.parametrize(
    ("text", "vocab_size", "message"),
    [
        ("abab", 255, "vocab_size: expected at least 256, the number of bytes, found 255"),
        ("abab", "300", "vocab_size: expected an integer, found '300'"),
        ("abab", True, "vocab_size: expected an integer, found True"),
        ("abab", 300, "vocab_size: expected at most 258, because .* after 2 merges, found 300"),
        ("", 257, "vocab_size: expected at most 256, because .* after 0 merges, found 257"),
    ],
)
def test_a_vocabulary_that_cannot_be_is_refused(
    make: Callable[[], Either], text: str, vocab_size: Any, message: str
) -> None:
    tokenizer = trained(make(), "xyxy", 257)
    before = tokenizer.merges
    with pytest.raises(TrainingError, match=message):
        tokenizer.train(text, vocab_size)
    assert tokenizer.merges == before


def test_tokens_that_outgrow_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bpe_core.minbpe.MOST_TOKEN_BYTES", 10_000)
    text = "".join(map(chr, range(256, 1500)))  # its merges make one token, longer each time
    with pytest.raises(TrainingError, match=r"vocab_size: expected less than 512, .* found 1000"):
        BasicTokenizer().train(text, 1000)


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(TypeError, match="expected a text as str, found bytes"):
        BasicTokenizer().train(b"abab", 257)  # type: ignore[arg-type]
    with pytest.raises(InvalidUtf8Error, match=r"character 2 of the text: .* '\\ud800'"):
        RegexTokenizer().train("ab\ud800", 257)


@pytest.mark.parametrize("make", CLASSES)
def test_lone_surrogates_are_encoded_as_the_replacement_character(
    make: Callable[[], Either],
) -> None:
    assert make().encode("a\ud800") == list("a\ufffd".encode())


# ---- decoding


@pytest.mark.parametrize("make", CLASSES)
@pytest.mark.parametrize("unknown", [257, 1000, -1, 2**40])
def test_unknown_ids_are_named(make: Callable[[], Either], unknown: int) -> None:
    tokenizer = trained(make(), "abab", 257)
    with pytest.raises(UnknownTokenError, match=f"id {unknown}: "):
        tokenizer.decode([97, unknown])


@pytest.mark.parametrize("make", CLASSES)
def test_parts_of_characters_are_replaced(make: Callable[[], Either]) -> None:
    assert make().decode([*"é".encode()[:1], *b"a"]) == "\ufffda"
    assert make().decode(np.array([0x61, 0xFF])) == "a\ufffd"


# ---- special tokens


@pytest.fixture
def llama() -> RegexTokenizer:
    tokenizer = RegexTokenizer()
    tokenizer.train(LLAMA, 256 + 64)
    tokenizer.register_special_tokens(SPECIALS)
    return tokenizer


def test_special_tokens_become_ids_as_allowed(llama: RegexTokenizer) -> None:
    all_ids = llama.encode(LLAMA, "all")
    assert [i for i in all_ids if i >= 1000] == [1000, 1001, 1002]
    assert llama.decode(all_ids) == LLAMA
    ordinary = llama.encode_ordinary(LLAMA)
    assert max(ordinary) < 320
    assert llama.encode(LLAMA, "none") == llama.encode(LLAMA, set()) == ordinary
    chosen = llama.encode(LLAMA, allowed_special={"<|fim_suffix|>", "<|not registered|>"})
    assert [i for i in chosen if i >= 1000] == [1002]
    assert llama.decode(chosen) == LLAMA


def test_a_special_token_in_the_text_is_an_error_unless_it_is_allowed(
    llama: RegexTokenizer,
) -> None:
    assert llama.encode("llamas") == llama.encode_ordinary("llamas")
    with pytest.raises(SpecialTokenError, match=r"byte 0 of the text: .*endoftext"):
        llama.encode(LLAMA)
    with pytest.raises(SpecialTokenError, match=r"allowed_special: .* found 'some'"):
        llama.encode("llamas", "some")  # type: ignore[arg-type]


def test_of_special_tokens_that_overlap_the_longest_counts() -> None:
    tokenizer = RegexTokenizer()
    tokenizer.register_special_tokens({"<s>": 300, "<s><s>": 301})
    assert tokenizer.encode("<s><s><s>", "all") == [301, 300]


def test_special_tokens_are_ordinary_text_in_training() -> None:
    tokenizer = RegexTokenizer()
    tokenizer.register_special_tokens({"<s>": 300})
    tokenizer.train("<s><s><s>", 258)
    assert tokenizer.merges == {(60, 115): 256, (62, 60): 257} or tokenizer.pattern
    assert tokenizer.merges == dict(
        zip(
            [pair for pair, _ in learned("<s><s><s>", tokenizer.pattern, 2)],
            (256, 257),
            strict=True,
        )
    )
    assert tokenizer.special_tokens == {"<s>": 300}


def test_registering_replaces_the_special_tokens(llama: RegexTokenizer) -> None:
    llama.register_special_tokens({"<b>": 401, "<a>": 400})
    assert list(llama.special_tokens.items()) == [("<b>", 401), ("<a>", 400)]
    assert llama.inverse_special_tokens == {401: "<b>", 400: "<a>"}
    assert llama.encode("<a><|endoftext|>", "all")[0] == 400
    assert 1000 not in llama.encode(LLAMA, "all")


@pytest.mark.parametrize(
    ("special_tokens", "message"),
    [
        ({"<s>": 5}, "'<s>': expected an id that no byte or merge has: 320 or above, found 5"),
        ({"<s>": 319}, "320 or above, found 319"),
        ({"<s>": 400, "<t>": 400}, "found 400 twice"),
        ({"<s>": -1}, "found -1"),
        ({"<s>": "400"}, "found '400'"),
        ({"": 400}, "expected a text, found ''"),
    ],
)
def test_special_tokens_that_contradict_the_rest_are_refused(
    special_tokens: Any, message: str, llama: RegexTokenizer
) -> None:
    with pytest.raises(InvalidTokenizerError, match=message):
        llama.register_special_tokens(special_tokens)
    assert llama.special_tokens == SPECIALS


def test_a_merge_never_takes_the_id_of_a_special_token() -> None:
    tokenizer = RegexTokenizer()
    tokenizer.register_special_tokens({"<s>": 257})
    tokenizer.train("abab abab", 257)
    with pytest.raises(TrainingError, match="at most 257, the id of the special token '<s>'"):
        tokenizer.train("abab abab", 258)


# ---- patterns


def test_the_default_pattern_is_minbpes_for_gpt4() -> None:
    assert RegexTokenizer().pattern == GPT4_SPLIT_PATTERN
    assert RegexTokenizer().encode_ordinary("x") == [120]
    assert BasicTokenizer().pattern == ""


def test_patterns_are_strings_or_names() -> None:
    text = "It's 123456 O'CLOCK\r\n\n  there's"
    for pattern, same in [("gpt2", GPT2_SPLIT_PATTERN), ("cl100k", GPT4_SPLIT_PATTERN)]:
        assert RegexTokenizer(pattern).pattern == same
        assert RegexTokenizer(pattern) == RegexTokenizer(same)
    assert RegexTokenizer("o200k").pattern == PATTERNS["o200k"]
    for pattern in (GPT2_SPLIT_PATTERN, GPT4_SPLIT_PATTERN, PATTERNS["qwen2"]):
        check_training(RegexTokenizer(pattern), text * 3, 20)


def test_what_a_pattern_leaves_unmatched_is_kept() -> None:
    tokenizer = trained(RegexTokenizer(r"\d+"), "año 12 año 12", 260)
    assert tokenizer.decode(tokenizer.encode("año 12!")) == "año 12!"


@pytest.mark.parametrize("pattern", ["(", "", "gpt3"])
def test_patterns_that_are_none_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidPatternError):
        RegexTokenizer(pattern)


# ---- as values


@pytest.mark.parametrize("make", CLASSES)
def test_copies_are_equal_and_independent(make: Callable[[], Either]) -> None:
    tokenizer = trained(make(), LLAMA, 300)
    _ = tokenizer.vocab, tokenizer.merges  # cached
    for same in (
        pickle.loads(pickle.dumps(tokenizer)),
        copy.copy(tokenizer),
        copy.deepcopy(tokenizer),
        trained(make(), LLAMA, 300),
    ):
        assert same == tokenizer
        assert same.encode("llama") == tokenizer.encode("llama")
        same.train("xyxy", 257)
        assert same != tokenizer
    assert len(tokenizer.merges) == 44


def test_tokenizers_differ_by_class_merges_pattern_and_special_tokens(
    llama: RegexTokenizer,
) -> None:
    assert BasicTokenizer() == BasicTokenizer()
    assert RegexTokenizer() != RegexTokenizer("gpt2")
    assert RegexTokenizer() != BasicTokenizer()
    assert llama != trained(RegexTokenizer(), LLAMA, 256 + 64)
    with pytest.raises(TypeError, match="unhashable"):
        hash(llama)


def test_they_are_shown_in_short(llama: RegexTokenizer) -> None:
    assert repr(BasicTokenizer()) == (
        "BasicTokenizer(256 tokens, 0 of them special, 0 merges, pattern 'none')"
    )
    assert repr(llama) == (
        "RegexTokenizer(323 tokens, 3 of them special, 64 merges, pattern 'cl100k')"
    )


def test_attributes_cannot_be_changed_by_mistake(llama: RegexTokenizer) -> None:
    for name in ("merges", "vocab", "special_tokens", "inverse_special_tokens"):
        with pytest.raises(TypeError):
            getattr(llama, name)["x"] = 1
    with pytest.raises(AttributeError):
        llama.merges = {}  # type: ignore[misc]


def test_the_vocabulary_has_special_tokens_after_loading_alone(
    llama: RegexTokenizer, tmp_path: Path
) -> None:
    assert len(llama.vocab) == 256 + 64
    llama.save(tmp_path / "llama")
    loaded = RegexTokenizer()
    loaded.load(tmp_path / "llama.model")
    assert loaded == llama
    assert loaded.vocab == {**llama.vocab, **{i: t.encode() for t, i in SPECIALS.items()}}


def test_one_tokenizer_may_be_used_and_trained_by_many_threads() -> None:
    tokenizer = trained(RegexTokenizer(), LLAMA, 300)
    versions = [
        trained(RegexTokenizer(), LLAMA, size).encode_ordinary(LLAMA) for size in (280, 300)
    ]
    found: list[list[int]] = []

    def work() -> None:
        for _ in range(50):
            found.append(tokenizer.encode_ordinary(LLAMA))
            assert tokenizer.decode(found[-1]) == LLAMA

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for size in (300, 300):
        tokenizer.train(LLAMA, size)
    for thread in threads:
        thread.join()
    assert len(found) == 200
    assert all(ids in versions for ids in found)


# ---- helpers


def test_pairs_are_counted_in_order_of_first_occurrence() -> None:
    assert get_stats([1, 2, 3, 1, 2]) == {(1, 2): 2, (2, 3): 1, (3, 1): 1}
    assert list(get_stats([3, 3, 3, 1])) == [(3, 3), (3, 1)]
    counts = {(1, 2): 5}
    assert get_stats([1, 2, 1], counts) is counts
    assert counts == {(1, 2): 6, (2, 1): 1}
    assert get_stats([]) == get_stats([1]) == {}


def test_pairs_are_merged_from_the_left() -> None:
    assert merge([1, 2, 3, 1, 2], (1, 2), 4) == [4, 3, 4]
    assert merge([1, 1, 1], (1, 1), 2) == [2, 1]
    assert merge([], (1, 1), 2) == []


def test_control_characters_are_escaped() -> None:
    assert replace_control_characters("a\nb\x00\u200d\U000e0001 é") == (
        "a\\u000ab\\u0000\\u200d\\ue0001 é"
    )
    assert replace_control_characters("\u00a0\u3000") == "\u00a0\u3000"
    assert render_token(b"\n\xff") == "\\u000a\ufffd"
    assert render_token(b" the") == " the"


# ---- GPT-4


@pytest.fixture(scope="module")
def gpt4(published_vocabulary: Callable[[str], Path]) -> GPT4Tokenizer:
    return GPT4Tokenizer(published_vocabulary("cl100k"))


@pytest.fixture(scope="module")
def cl100k(published_vocabulary: Callable[[str], Path]) -> Any:
    return tiktoken_encoding("cl100k", str(published_vocabulary("cl100k")))


SHORT = [
    "",
    "?",
    "hello world!!!? (안녕하세요!) lol123 😉",
    "a \n",
    " \n\n ",
    "'S 'ſ",
    "\u3000\r\n",
]


@pytest.mark.slow
@settings(max_examples=times(2))
@given(text=texts)
def test_ids_are_those_of_tiktoken(text: str, gpt4: GPT4Tokenizer, cl100k: Any) -> None:
    for part in [text, *SHORT]:
        ids = gpt4.encode(part)
        assert ids == cl100k.encode(part)
        assert gpt4.decode(ids) == part


@pytest.mark.slow
@pytest.mark.parametrize("name", ["prose", "multilingual"])
def test_ids_of_real_text_are_those_of_tiktoken(
    name: str, gpt4: GPT4Tokenizer, cl100k: Any, shared_text: Callable[..., bytes]
) -> None:
    text = shared_text(name, 1_000_000).decode()
    ids = gpt4.encode(text, allowed_special="all")
    assert ids == cl100k.encode(text, allowed_special="all")
    assert gpt4.decode(ids) == text


def test_special_tokens_of_gpt4(gpt4: GPT4Tokenizer, cl100k: Any) -> None:
    assert gpt4.special_tokens == GPT4_SPECIAL_TOKENS == cl100k._special_tokens
    text = "<|endoftext|>one\n<|fim_prefix|>two  <|fim_suffix|> x<|fim_middle|>\n\n<|endofprompt|>"
    ids = gpt4.encode(text, allowed_special="all")
    assert ids == cl100k.encode(text, allowed_special="all")
    assert gpt4.decode(ids) == text
    assert gpt4.encode_ordinary(text) == cl100k.encode_ordinary(text)
    with pytest.raises(SpecialTokenError):
        gpt4.encode(text)


@pytest.mark.slow
def test_gpt4s_bytes_are_shuffled_and_its_vocabulary_is_not(
    gpt4: GPT4Tokenizer, cl100k: Any
) -> None:
    assert [gpt4.byte_shuffle[byte] for byte in range(256)] == [
        cl100k.encode_single_token(bytes([byte])) for byte in range(256)
    ]
    assert gpt4.inverse_byte_shuffle[gpt4.byte_shuffle[7]] == 7
    assert len(gpt4.vocab) == 100256
    assert all(token == cl100k.decode_single_token_bytes(i) for i, token in gpt4.vocab.items())
    for (left, right), new in gpt4.merges.items():
        assert gpt4.vocab[left] + gpt4.vocab[right] == gpt4.vocab[new]
    assert len(gpt4.merges) == 100_000


def test_gpt4_is_copied_as_any_other(gpt4: GPT4Tokenizer) -> None:
    same = pickle.loads(pickle.dumps(gpt4))
    assert same == gpt4
    assert same.encode("hello world") == gpt4.encode("hello world")
    assert same.byte_shuffle == gpt4.byte_shuffle
    same.register_special_tokens({"<|im_start|>": 100264})
    assert same != gpt4
    assert same.encode("<|im_start|>", "all") == [100264]


RANKS = "".join(
    f"{line}\n"
    for line in ["YWE= 256", "YWFh 257", "YmI= 258"]  # aa, aaa, bb
)


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of a few ranks that passes for cl100k's; ids of bytes are reversed."""
    lines = [f"{base64.b64encode(bytes([255 - i])).decode()} {i}\n" for i in range(256)]
    path = tmp_path / "small.tiktoken"
    path.write_text("".join(lines) + RANKS)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(bpe_core.minbpe, "_CL100K_SHA256", digest)
    return path


def test_merges_are_recovered_from_ranks(small: Path) -> None:
    tokenizer = GPT4Tokenizer(small)
    a, b = 255 - ord("a"), 255 - ord("b")
    assert tokenizer.merges == {(a, a): 256, (256, a): 257, (b, b): 258}
    assert tokenizer.encode("aaaabb!") == [256, 256, 258, 255 - ord("!")]
    assert tokenizer.decode([257, 258]) == "aaabb"
    assert tokenizer.byte_shuffle[0] == 255


def test_the_vocabulary_of_gpt4_can_be_looked_at(small: Path, tmp_path: Path) -> None:
    path = tmp_path / "gpt4.vocab"
    GPT4Tokenizer(small).save_vocab(path)
    lines = path.read_text("utf-8").split("\n")
    assert len(lines) == 260
    assert lines[0] == "[\ufffd] 0"
    assert lines[255 - 10] == "[\\u000a] 245"
    assert lines[256:] == ["[a][a] -> [aa] 256", "[aa][a] -> [aaa] 257", "[b][b] -> [bb] 258", ""]


def test_gpt4_cannot_be_trained_saved_or_loaded(small: Path, tmp_path: Path) -> None:
    tokenizer = GPT4Tokenizer(small)
    for refused in (
        lambda: tokenizer.train("abab", 300),
        lambda: tokenizer.save(tmp_path / "gpt4"),
        lambda: tokenizer.load(tmp_path / "gpt4.model"),
        lambda: GPT4Tokenizer.from_model(tokenizer.model),
    ):
        with pytest.raises(NotImplementedError, match="GPT4Tokenizer"):
            refused()
    assert list(tmp_path.iterdir()) == [small]


@pytest.mark.parametrize("variable", ["TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"])
def test_ranks_come_from_tiktokens_cache(
    variable: str, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"ranks_path, found None, .* tiktoken's cache"):
        GPT4Tokenizer()
    small.rename(tmp_path / "9b5ad71b2ce5302211f9c61530b329a4922fc6a4")
    assert GPT4Tokenizer().encode("aaa") == [257]


def test_the_cache_has_tiktokens_name_for_the_file(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tiktoken import load
    from tiktoken_ext import openai_public

    asked: list[str] = []
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(load, "check_hash", lambda data, expected: not asked.append(expected))
    name = hashlib.sha1(bpe_core.minbpe._CL100K_URL.encode()).hexdigest()
    small.rename(tmp_path / name)
    assert len(openai_public.cl100k_base()["mergeable_ranks"]) == 259
    monkeypatch.undo()
    assert asked == [bpe_core.minbpe._CL100K_SHA256]


def test_a_cache_that_is_switched_off_has_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    with pytest.raises(FileNotFoundError, match="tiktoken's cache"):
        GPT4Tokenizer()


def test_other_ranks_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut.tiktoken"
    path.write_text(RANKS)
    with pytest.raises(
        FormatError, match=r"cut.tiktoken: expected cl100k_base.tiktoken, of SHA-256"
    ):
        GPT4Tokenizer(path)
    with pytest.raises(FileNotFoundError):
        GPT4Tokenizer(tmp_path / "nothing.tiktoken")


def test_the_basic_tokenizer_has_no_special_tokens() -> None:
    tokenizer = BasicTokenizer()
    assert tokenizer.special_tokens == {}
    assert tokenizer.inverse_special_tokens == {}


def test_special_tokens_without_ids_are_refused() -> None:
    tokenizer = RegexTokenizer()
    with pytest.raises(TypeError, match=r"a mapping of texts to ids, .* found list"):
        tokenizer.register_special_tokens(["<s>"])  # type: ignore[arg-type]
    assert tokenizer.special_tokens == {}
