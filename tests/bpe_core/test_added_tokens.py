"""Added tokens with flags are found as Hugging Face's library finds them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from added_tokens import CHARACTERS, PHI_3, PHI_4, SETS, library, read
from core_support import parts_of
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import times
from tokenizers import AddedToken, Regex, Tokenizer, pre_tokenizers

from bpe_core import BPETokenizer
from bpe_core._native import SpecialSet
from bpe_core.errors import FormatError, InvalidTokenizerError, SpecialTokenError
from bpe_core.formats import read_arrow, read_huggingface, write_arrow, write_huggingface
from bpe_core.formats.files import CannotHoldError
from bpe_core.formats.gpt2 import vocab_merges_bytes
from bpe_core.formats.ranks import tiktoken_bytes
from bpe_core.model import TokenizerModel


def check(made: Tokenizer, ours: BPETokenizer, texts: Sequence[str]) -> None:
    expected = [made.encode(text, add_special_tokens=False).ids for text in texts]
    for text, ids in zip(texts, expected, strict=True):
        assert ours.encode(text) == ids, text
        assert ours.decode(ids) == ours.normalize(text)
    assert parts_of(*ours.encode_batch_to_numpy(texts)) == expected


@pytest.mark.parametrize("normalizer", [None, "NFC", "NFKC"])
@pytest.mark.parametrize("name", SETS)
def test_ids_equal_those_of_the_library(name: str, normalizer: str | None, tmp_path: Path) -> None:
    made = library(SETS[name], normalizer)
    ours = read(made, tmp_path)
    again = tmp_path / "again"
    ours.save(again)
    assert BPETokenizer.load(again) == ours
    assert read_huggingface(again / "tokenizer.json") == ours.model
    pieces = st.sampled_from([*CHARACTERS, *(token.content for token in SETS[name]), "   "])

    @settings(max_examples=times(1))
    @given(st.lists(st.lists(pieces, max_size=12).map("".join), min_size=1, max_size=3))
    def compare(texts: list[str]) -> None:
        check(made, ours, texts)

    compare()


@pytest.mark.parametrize("name", SETS)
def test_a_custom_pattern_finds_them_too(name: str, tmp_path: Path) -> None:
    made = library(SETS[name], "NFC")
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\p{L}{1,2}|\p{N}"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    ours = read(made, tmp_path)
    rng = random.Random(1)
    pieces = [*CHARACTERS, *(token.content for token in SETS[name]), " a"]
    check(made, ours, ["".join(rng.choices(pieces, k=rng.randrange(12))) for _ in range(100)])


@pytest.mark.parametrize("normalizer", [None, "NFC"])
@pytest.mark.parametrize("name", SETS)
def test_parts_of_a_text_have_the_ids_of_the_whole(
    name: str, normalizer: str | None, tmp_path: Path
) -> None:
    ours = read(library(SETS[name], normalizer), tmp_path)
    rng = random.Random(2)
    pieces = [*CHARACTERS, *(token.content for token in SETS[name]), " ab", "ab.", "   "]
    for _ in range(4):
        text = "".join(rng.choices(pieces, k=6000))
        whole = ours.encode(text)
        assert list(ours.encode_iterable([text])) == whole
        assert (
            list(ours.encode_iterable(text[i : i + 700] for i in range(0, len(text), 700))) == whole
        )
        runs = "".join(rng.choice(pieces) * rng.choice([1, 1, 900]) for _ in range(60))
        assert list(ours.encode_iterable([runs])) == ours.encode(runs)


@pytest.mark.slow
def test_thousands_of_tokens_are_found() -> None:
    rng = random.Random(3)
    tokens = sorted({"".join(rng.choices("<>ab \n▁é", k=rng.randrange(1, 9))) for _ in range(1000)})
    found = SpecialSet([token.encode() for token in tokens], range(len(tokens)))
    for size in (0, 1, 31, 32, 33, 34, 70, 500):
        for letters in ("xyz<", "<>ab \n▁é", "x"):
            text = "".join(rng.choices(letters, k=size)).encode()
            expected = []
            at = 0
            while at < len(text):
                fits = [t for t in tokens if text.startswith(t.encode(), at)]
                if not fits:
                    at += 1
                    continue
                longest = max(fits, key=lambda t: len(t.encode()))
                expected.append((at, at + len(longest.encode()), tokens.index(longest)))
                at = expected[-1][1]
            assert found.find_all(text) == expected


def test_a_subset_of_the_tokens_keeps_its_flags(tmp_path: Path) -> None:
    ours = read(library(PHI_4), tmp_path)
    first, second, _ = (token.content for token in PHI_4)
    text = f"a {first} b {second} c"
    some = ours.encode(text, allowed_special={first})
    assert some == [
        *ours.encode_ordinary("a"),
        ours.token_to_id(first),
        *ours.encode_ordinary(f"b {second} c"),
    ]
    with pytest.raises(SpecialTokenError, match="byte 1 of the text"):
        ours.encode(text, allowed_special="none_raise")


def test_offsets_are_refused_where_tokens_take_white_space(tmp_path: Path) -> None:
    ours = read(library(PHI_3), tmp_path)
    _, offsets = ours.encode_with_offsets("a<|user|>b")
    assert offsets.tolist() == [0, 1, 9, 10]
    for call in (ours.encode_with_offsets, lambda text: ours.truncate(text, 2)):
        with pytest.raises(ValueError, match="white space that special tokens take"):
            call("a<|user|> b")


def test_flags_that_contradict_the_tokens_are_refused(tmp_path: Path) -> None:
    base = {
        "tokens": [(i, bytes([i])) for i in range(256)],
        "special_tokens": {"<a>": 256, " b": 257},
    }
    for flags, message in (
        ({"<b>": ["rstrip"]}, "'<b>'"),
        ({"<a>": ["strip"]}, "found 'strip'"),
        ({"<a>": ["rstrip"]}, "' b' begins with the white space"),
    ):
        with pytest.raises(InvalidTokenizerError, match=message):
            TokenizerModel.from_tokens(**base, token_flags=flags)  # type: ignore[arg-type]
    tokens = [AddedToken("<a>", rstrip=True, special=True), AddedToken("\n", special=True)]
    with pytest.raises(FormatError, match="begins with the white space"):
        read(library(tokens), tmp_path)


def test_other_formats_keep_flags_or_refuse_them(tmp_path: Path) -> None:
    model = read(library(PHI_4), tmp_path).model
    plain = read(library([AddedToken(t.content, special=True) for t in PHI_4]), tmp_path).model
    assert model.fingerprint != plain.fingerprint
    write_arrow(model, tmp_path / "tokenizer.arrow")
    assert read_arrow(tmp_path / "tokenizer.arrow") == model
    write_huggingface(model, tmp_path / "t.json")
    assert read_huggingface(tmp_path / "t.json") == model
    for write in (vocab_merges_bytes, tiktoken_bytes):
        with pytest.raises(CannotHoldError, match=r"is found by its flags \(lstrip, rstrip\)"):
            write(model)


def test_normalized_tokens_without_a_normalizer_are_plain_ones(tmp_path: Path) -> None:
    tokens = [AddedToken("<a>", normalized=True), AddedToken("<b>", normalized=False)]
    assert read(library(tokens), tmp_path).model.token_flags == {}
