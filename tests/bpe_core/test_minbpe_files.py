"""minbpe's files: read and written byte for byte as minbpe does, or refused with the reason."""

from __future__ import annotations

import dataclasses
import doctest
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from equal_bytes_support import Pair, merged, pair_lists
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import times

import bpe_core.formats.minbpe
from bpe_core import (
    BasicTokenizer,
    BPETokenizer,
    GPT4Tokenizer,
    PretokenCounts,
    RegexTokenizer,
    train_bpe,
    train_from_counts,
)
from bpe_core.errors import FormatError, InvalidTokenizerError
from bpe_core.formats import CannotHoldError, minbpe_bytes, read_minbpe, write_minbpe
from bpe_core.formats.minbpe import MinbpeModel, model_of
from bpe_core.minbpe import GPT2_SPLIT_PATTERN, GPT4_SPLIT_PATTERN
from bpe_core.model import TokenizerModel
from bpe_core.patterns import PATTERNS

TEXT = "don't\nstop\n\n\n\ndon't é é"
# What minbpe writes for 8 merges of this text and two special tokens.
MODEL = (
    r"""minbpe v1
'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*"""
    r"""|\s*[\r\n]|\s+(?!\S)|\s+
2
<|b|> 300
<|a|> 299
10 10
100 111
257 110
39 116
32 195
260 169
115 116
262 111
"""
)
LAST_OF_VOCAB = r"""[\u000a][\u000a] -> [\u000a\u000a] 256
[d][o] -> [do] 257
[do][n] -> [don] 258
['][t] -> ['t] 259
[ ][�] -> [ �] 260
[ �][�] -> [ é] 261
[s][t] -> [st] 262
[st][o] -> [sto] 263
"""
SPECIALS_OF_VOCAB = "[<|b|>] 300\n[<|a|>] 299\n"


def trained() -> RegexTokenizer:
    tokenizer = RegexTokenizer()
    tokenizer.train(TEXT, 256 + 8)
    tokenizer.register_special_tokens({"<|b|>": 300, "<|a|>": 299})
    return tokenizer


def files_of(prefix: Path) -> tuple[str, str]:
    return tuple(  # type: ignore[return-value]
        prefix.with_suffix(suffix).read_bytes().decode() for suffix in (".model", ".vocab")
    )


def loaded(make: Callable[[], Any], path: Path) -> Any:
    tokenizer = make()
    tokenizer.load(path)
    return tokenizer


def written(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


# ---- the classes


def test_files_have_the_bytes_that_minbpe_writes(tmp_path: Path) -> None:
    trained().save(tmp_path / "first")
    model, vocab = files_of(tmp_path / "first")
    assert model == MODEL
    assert vocab.splitlines()[0] == "[\\u0000] 0"
    assert vocab.splitlines()[ord("a")] == "[a] 97"
    assert vocab.splitlines()[255] == "[�] 255"
    assert vocab.endswith("[�] 255\n" + LAST_OF_VOCAB)
    loaded(RegexTokenizer, tmp_path / "first.model").save(tmp_path / "again")
    assert files_of(tmp_path / "again") == (MODEL, vocab + SPECIALS_OF_VOCAB)


def test_a_basic_tokenizer_has_an_empty_line_for_the_pattern(tmp_path: Path) -> None:
    tokenizer = BasicTokenizer()
    tokenizer.train("aaabdaaabac", 258)
    tokenizer.save(tmp_path / "basic")
    assert files_of(tmp_path / "basic")[0] == "minbpe v1\n\n0\n97 97\n256 97\n"
    assert loaded(BasicTokenizer, tmp_path / "basic.model") == tokenizer


def test_what_minbpe_wrote_is_loaded_whole(tmp_path: Path) -> None:
    tokenizer = RegexTokenizer("gpt2")
    tokenizer.train("something else", 260)
    tokenizer.load(written(tmp_path / "t.model", MODEL))
    assert tokenizer == trained()
    assert tokenizer.pattern == GPT4_SPLIT_PATTERN
    assert list(tokenizer.special_tokens.items()) == [("<|b|>", 300), ("<|a|>", 299)]
    assert tokenizer.inverse_special_tokens == {299: "<|a|>", 300: "<|b|>"}
    assert tokenizer.encode("don't<|a|>", "all") == trained().encode("don't<|a|>", "all")


def test_special_tokens_of_a_basic_tokenizer_are_kept_and_decoded(tmp_path: Path) -> None:
    text = "minbpe v1\n\n1\n<|end|> 300\n97 98\n"
    tokenizer = loaded(BasicTokenizer, written(tmp_path / "t.model", text))
    assert tokenizer.decode([256, 300]) == "ab<|end|>"
    assert 300 not in tokenizer.encode("<|end|>")
    tokenizer.save(tmp_path / "again")
    assert files_of(tmp_path / "again")[0] == text


def test_a_file_of_the_other_class_is_refused(tmp_path: Path) -> None:
    regex_file = written(tmp_path / "regex.model", MODEL)
    with pytest.raises(FormatError, match=r"regex.model: line 2: expected no pattern, found "):
        BasicTokenizer().load(regex_file)
    basic_file = written(tmp_path / "basic.model", "minbpe v1\n\n0\n97 97\n")
    tokenizer = trained()
    with pytest.raises(FormatError, match=r"basic.model: line 2: expected a pattern, found none"):
        tokenizer.load(basic_file)
    assert tokenizer == trained()


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("a\n|b", "has a line break"),
        ("a|\r", "minbpe removes white space around the pattern"),
        (" ?[a-z]+|.", "minbpe removes white space around the pattern"),
        (r"\d(?#then)[a-z]+", "minbpe splits by one regular expression"),
    ],
)
def test_patterns_that_a_line_cannot_hold_are_refused(
    pattern: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(CannotHoldError, match=message):
        RegexTokenizer(pattern).save(tmp_path / "t")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text", ["a b", " a", "a\t", "a\nb", "\r", "a\u00a0b", "\u2028", "a\u3000", "\x1c", "\x85"]
)
def test_special_tokens_with_white_space_are_refused(text: str, tmp_path: Path) -> None:
    tokenizer = trained()
    tokenizer.register_special_tokens({"<|a|>": 299, text: 300})
    assert tokenizer.encode(f"x{text}", "all")[-1] == 300
    with pytest.raises(CannotHoldError, match=r"the special token .* has white space"):
        tokenizer.save(tmp_path / "t")
    with pytest.raises(CannotHoldError, match=r"the special token .* has white space"):
        write_minbpe(tokenizer.model, tmp_path / "t")
    assert not list(tmp_path.iterdir())


def test_any_other_special_tokens_come_back(tmp_path: Path) -> None:
    texts = ['"quoted"', "'", "(.*)|[^\\s]+?", "ünïcödé", "日本", "🙂", "\x00", "\\u000a", "300"]
    texts += ["don", "d", "\u200d", "#", "minbpe"]  # also such that have the bytes of others
    tokenizer = trained()
    tokenizer.register_special_tokens({text: 900 - i for i, text in enumerate(texts)})
    tokenizer.save(tmp_path / "t")
    again = loaded(RegexTokenizer, tmp_path / "t.model")
    assert again == tokenizer
    assert list(again.special_tokens.items()) == list(tokenizer.special_tokens.items())
    assert read_minbpe(tmp_path / "t.model").special_tokens == tokenizer.special_tokens
    assert again.decode(again.encode("".join(texts), "all")) == "".join(texts)


# ---- as data


def test_a_class_and_its_data_are_the_same_tokenizer(tmp_path: Path) -> None:
    tokenizer = trained()
    assert RegexTokenizer.from_model(tokenizer.model) == tokenizer
    assert BPETokenizer.from_model(tokenizer.model).encode("don't<|a|>") == tokenizer.encode(
        "don't<|a|>", "all"
    )
    tokenizer.save(tmp_path / "t")
    assert read_minbpe(tmp_path / "t.model").fingerprint == tokenizer.model.fingerprint
    write_minbpe(read_minbpe(tmp_path / "t.model"), tmp_path / "data")
    assert RegexTokenizer.from_model(read_minbpe(tmp_path / "data.model")) == tokenizer
    by_id = {"<|a|>": 299, "<|b|>": 300}
    tokenizer.register_special_tokens(by_id)
    tokenizer.save(tmp_path / "by_id")
    loaded(RegexTokenizer, tmp_path / "by_id.model").save(tmp_path / "by_id")
    assert files_of(tmp_path / "data") == files_of(tmp_path / "by_id")


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("none", ""),
        ("gpt2", GPT2_SPLIT_PATTERN),
        ("r50k", GPT2_SPLIT_PATTERN),
        ("cl100k", GPT4_SPLIT_PATTERN),
        ("llama3", GPT4_SPLIT_PATTERN),
        *[(name, PATTERNS[name]) for name in ("o200k", "qwen2", "cl100k_tiktoken")],
        (PATTERNS["gpt2"], PATTERNS["gpt2"]),
        (r"[a-z]+", r"[a-z]+"),
        ("x", "x"),
    ],
)
def test_patterns_are_written_as_minbpe_has_them(pattern: str, line: str, tmp_path: Path) -> None:
    tokens = [(byte, bytes([byte])) for byte in range(256)]
    model = TokenizerModel.from_tokens(tokens, pattern=pattern)
    write_minbpe(model, tmp_path / "t")
    assert files_of(tmp_path / "t")[0] == f"minbpe v1\n{line}\n0\n"
    assert read_minbpe(tmp_path / "t.model").fingerprint == model.fingerprint


@pytest.mark.parametrize("tie_break", ["lexicographic", "first_id", "huggingface"])
def test_what_is_trained_here_without_special_tokens_is_minbpes(
    tie_break: Any, tmp_path: Path
) -> None:
    counts = PretokenCounts.from_mapping({b"low": 5, b" lower": 2, b" newest": 6, b" widest": 3})
    model = train_from_counts(counts, 270, tie_break=tie_break).model
    write_minbpe(model, tmp_path / "t")
    assert read_minbpe(tmp_path / "t.model").fingerprint == model.fingerprint
    with_specials = model.with_special_tokens({"<|end|>": 270})
    write_minbpe(with_specials, tmp_path / "t")
    assert read_minbpe(tmp_path / "t.model").fingerprint == with_specials.fingerprint
    again = loaded(RegexTokenizer, tmp_path / "t.model")
    text = "lowest newer<|end|>"
    assert again.encode(text, "all") == BPETokenizer.from_model(with_specials).encode(text)


def test_train_bpe_without_special_tokens_gives_minbpes_ids(kjv_path: Path, tmp_path: Path) -> None:
    tokenizer = BPETokenizer(*train_bpe(kjv_path, 1000))
    write_minbpe(tokenizer.model, tmp_path / "kjv")
    text = "In the beginning God created the heaven and the earth."
    same = loaded(RegexTokenizer, tmp_path / "kjv.model")
    assert same.encode(text) == tokenizer.encode(text)
    assert same.pattern == GPT2_SPLIT_PATTERN


BYTES = [(byte, bytes([byte])) for byte in range(256)]
AB = [*BYTES, (256, b"ab"), (257, b"aba")]


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (
            TokenizerModel.from_tokens([(i + 1, t) for i, t in BYTES], special_tokens={"<s>": 0}),
            "ids 0 to 255 are the bytes in order, and here id 0 is no ordinary token",
        ),
        (
            TokenizerModel.from_tokens([(255 - i, t) for i, t in BYTES]),
            r"id 0 is b'\\xff'; special tokens would come last",
        ),
        (TokenizerModel.from_tokens(BYTES[:-1]), "here id 255 is no ordinary token"),
        (
            TokenizerModel.from_tokens(
                [*AB, (258, b"ba")], [(97, 98, 256), (256, 97, 257), (98, 97, 258), (97, 258, 257)]
            ),
            "merge 3 makes id 259 of earlier ids, and here it makes id 257 of 97 and 258",
        ),
        (
            TokenizerModel.from_tokens([*BYTES, (300, b"ab")], [(97, 98, 300)]),
            "merge 0 makes id 256 of earlier ids, and here it makes id 300 of 97 and 98",
        ),
        (
            TokenizerModel.from_tokens(
                [*BYTES, (256, b"aba"), (257, b"ab")], [(257, 97, 256), (97, 98, 257)]
            ),
            "makes id 256 of 257 and 97",
        ),
        (
            TokenizerModel.from_tokens(AB, [(97, 98, 256)]),
            "id 257, b'aba', is neither",
        ),
        (TokenizerModel.from_tokens(BYTES, normalizer="nfc"), "the format has no normalizer"),
        (TokenizerModel.from_tokens(BYTES, normalize_quotes=True), "the format has no normalizer"),
        (
            TokenizerModel.from_tokens(BYTES, ignore_merges=True),
            r"\(ignore_merges\)",
        ),
    ],
)
def test_other_tokenizers_are_refused_with_the_reason(
    model: TokenizerModel, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(CannotHoldError, match=reason):
        write_minbpe(model, tmp_path / "t")
    with pytest.raises(CannotHoldError, match=reason):
        RegexTokenizer.from_model(model)
    assert not list(tmp_path.iterdir())


def test_a_class_refuses_data_of_the_other() -> None:
    tokens = TokenizerModel.from_tokens(BYTES, pattern="none")
    assert BasicTokenizer.from_model(tokens) == BasicTokenizer()
    with pytest.raises(CannotHoldError, match="a BasicTokenizer has none"):
        RegexTokenizer.from_model(tokens)
    with pytest.raises(CannotHoldError, match="a RegexTokenizer splits by it"):
        BasicTokenizer.from_model(dataclasses.replace(tokens, pattern="gpt2"))


@pytest.mark.slow
def test_gpt4s_shuffled_bytes_are_refused(published_vocabulary: Callable[[str], Path]) -> None:
    model = GPT4Tokenizer(published_vocabulary("cl100k")).model
    with pytest.raises(CannotHoldError, match="ids 0 to 255 are the bytes in order"):
        minbpe_bytes(model)
    assert BPETokenizer.from_model(model).encode("hello world") == [15339, 1917]


@settings(max_examples=times(0.6))
@given(
    pair_lists(),
    st.dictionaries(st.text('<|s>é"', min_size=1), st.integers(300, 400), max_size=3),
    st.lists(st.text("ab", max_size=100), max_size=3),
)
def test_any_merges_and_special_tokens_come_back(
    tmp_path_factory: pytest.TempPathFactory,
    pairs: list[Pair],
    specials: dict[str, int],
    texts: list[str],
) -> None:
    if len(set(specials.values())) < len(specials):
        return
    prefix = tmp_path_factory.getbasetemp() / "any"
    values = MinbpeModel(pattern="", special_tokens=specials, merges=pairs)
    write_minbpe(model_of(values), prefix)
    tokenizer = loaded(BasicTokenizer, prefix.with_suffix(".model"))
    assert list(tokenizer.merges) == pairs
    assert tokenizer.special_tokens == specials
    for text in texts:  # also where two merges make the same bytes
        assert tokenizer.encode(text) == merged(text.encode(), pairs)


# ---- malformed files


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: expected the line 'minbpe v1', found the end of the file"),
        ("minbpe v2\n\n0\n", "line 1: expected the line 'minbpe v1', found 'minbpe v2'"),
        ("minbpe v1\n", "line 2: expected the split pattern, or an empty line, found the end"),
        ("minbpe v1\n\n", "line 3: expected the number of special tokens, found the end"),
        ("minbpe v1\n\nx\n", "line 3: expected the number of special tokens, found 'x'"),
        ("minbpe v1\n\n-1\n", "line 3: .* found '-1'"),
        ("minbpe v1\n\n²\n", "line 3: .* found '²'"),
        ("minbpe v1\n\n2\n<s> 300\n", "line 5: expected a special token .*, found the end"),
        ("minbpe v1\n\n1\n<s> 1 300\n", "line 4: expected a special token .* found '<s> 1 300'"),
        ("minbpe v1\n\n1\n<s>\n", "line 4: expected a special token .* found '<s>'"),
        ("minbpe v1\n\n1\n<s> 3_0\n", "line 4: expected a special token .* found '<s> 3_0'"),
        ("minbpe v1\n\n2\n<s> 300\n<s> 301\n", "line 5: expected each special token once"),
        (
            "minbpe v1\n\n2\n<s> 300\n<t> 300\n",
            "each once, found 300 twice: of the special token '<s>' and of '<t>'",
        ),
        (
            "minbpe v1\n\n1\n<s> 256\n97 98\n",
            "found 256 twice: of the special token '<s>' and of an ordinary token",
        ),
        ("minbpe v1\n\n1\n<s> 9999999999\n", "expected an id of 0 ... 2147483647"),
        ("minbpe v1\n\n0\n97 98\n97\n", "line 5: expected two ids below 257, found '97'"),
        ("minbpe v1\n\n0\n97 98\n257 97\n", "line 5: expected two ids below 257, found '257 97'"),
        ("minbpe v1\n\n0\n97 98 256\n", "line 4: expected two ids below 256"),
        ("minbpe v1\n\n0\n97 b\n", "line 4: expected two ids below 256, found '97 b'"),
        ("minbpe v1\n\n0\n\n", "line 4: expected two ids below 256, found ''"),
        ("minbpe v1\n\n0\n97 98\n97 98\n", "line 5: expected each merge once, found '97 98'"),
        ("minbpe v1\n(\n0\n", "is not a valid regular expression"),
        ("minbpe v1\ngpt3\n0\n", "unknown split pattern 'gpt3'"),
    ],
)
def test_malformed_files_are_refused_naming_the_line(
    text: str, message: str, tmp_path: Path
) -> None:
    path = written(tmp_path / "broken.model", text)
    with pytest.raises(FormatError, match=message) as caught:
        read_minbpe(path)
    assert str(caught.value).startswith(f"{path}: ")
    tokenizer = BasicTokenizer()
    with pytest.raises(FormatError):
        tokenizer.load(path)
    assert tokenizer == BasicTokenizer()


def test_what_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.model"
    path.write_bytes(b"minbpe v1\n\xff\n0\n")
    with pytest.raises(FormatError, match="byte 10: expected UTF-8"):
        read_minbpe(path)
    with pytest.raises(FileNotFoundError):
        BasicTokenizer().load(tmp_path / "nothing.model")


def test_merges_that_double_their_tokens_are_refused_before_they_are_made(tmp_path: Path) -> None:
    doubling = "97 97\n" + "".join(f"{i} {i}\n" for i in range(256, 300))
    path = written(tmp_path / "t.model", "minbpe v1\n\n0\n" + doubling)
    with pytest.raises(FormatError, match="merge 29: expected tokens of at most 2,147,483,647"):
        read_minbpe(path)
    with pytest.raises(InvalidTokenizerError):
        model_of(MinbpeModel(pattern="", merges=[(97, 97), *[(i, i) for i in range(256, 300)]]))


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_any_line_ends_and_a_byte_order_mark_are_read(line_end: str, tmp_path: Path) -> None:
    text = MODEL.replace("\n", line_end)
    assert loaded(RegexTokenizer, written(tmp_path / "t.model", text)) == trained()
    assert loaded(RegexTokenizer, written(tmp_path / "b.model", "\ufeff" + text)) == trained()
    last = written(tmp_path / "c.model", text.removesuffix(line_end))
    assert loaded(RegexTokenizer, last) == trained()


@pytest.mark.slow
def test_damaged_files_are_format_errors_and_never_anything_else(tmp_path: Path) -> None:
    draw = random.Random(0)
    path = tmp_path / "t.model"
    whole = MODEL.encode()
    for _ in range(400):
        data = bytearray(whole)
        for _ in range(draw.randint(1, 3)):
            begin = draw.randrange(len(data))
            data[begin : begin + draw.randint(0, 5)] = draw.randbytes(draw.randint(0, 4))
        path.write_bytes(data)
        try:
            model = read_minbpe(path)
        except FormatError as error:
            assert str(path) in str(error)
        else:
            assert len(model.merges) < 20


# ---- where files are


def test_paths_may_be_text_or_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trained().save("here")
    assert files_of(tmp_path / "here")[0] == MODEL
    trained().save("memory://minbpe/there")
    assert fsspec.filesystem("memory").cat_file("/minbpe/there.model").decode() == MODEL
    tokenizer = RegexTokenizer()
    tokenizer.load("memory://minbpe/there.model")
    assert tokenizer == trained()
    trained().save(str(tmp_path / "new" / "t.v2"))
    assert (tmp_path / "new" / "t.v2.model").read_text() == MODEL


def test_the_vocabulary_shows_every_token(tmp_path: Path) -> None:
    tokenizer = trained()
    _, vocab = minbpe_bytes(tokenizer.model)
    lines = vocab.decode().split("\n")
    assert len(lines) == len(tokenizer.model) + 1
    ids = [int(line.rsplit(" ", 1)[1]) for line in lines[:-1]]
    assert ids == list(tokenizer.model.vocab)
    assert np.all(np.diff(ids) > 0)


def test_examples_in_docstrings_hold() -> None:
    assert doctest.testmod(bpe_core.formats.minbpe).failed == 0
