"""SentencePiece's `.model`: its ids, what is refused, and files that it reads."""

from __future__ import annotations

import io
import os
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import fsspec
import pytest
import sentencepiece
from character_support import TEXT
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import times
from tokenizers import Tokenizer

from bpe_core import BPETokenizer, formats
from bpe_core.errors import FormatError
from bpe_core.formats import CannotHoldError, find_tokenizer
from bpe_core.formats.protobuf import fields_of, message
from bpe_core.formats.sentencepiece import sentencepiece_bytes

FRAGMENTS = [
    *[
        " ",
        "  ",
        "     ",
        "▁",
        "▁▁",
        "\n",
        "\n\n",
        "\t",
        "\x00",
        ".",
        ",",
        "a",
        "aa",
        "aaaaa",
        "the",
    ],
    *[
        "<s>",
        "</s>",
        "<unk>",
        "<0x0A>",
        "<sep>",
        "<sep><sep>",
        "<sep",
        "日本",
        "語",
        "한",
        "👩🏽",
        "Ж",
        "é",
    ],
    *["heaven", " the", "1234", "e\u0301", "ﬁ", "Ω", "ΩΩ", "-----", ">▁</"],
]
texts = st.lists(st.sampled_from(FRAGMENTS) | st.characters(exclude_categories=["Cs"]), max_size=30)
VARIANTS: dict[str, dict[str, Any]] = {
    "llama": {"byte_fallback": True},
    "gemma": {"byte_fallback": True, "add_dummy_prefix": False},
    "unknown": {},
    "symbols": {"user_defined_symbols": ["<sep>", "<sep><sep>", "é"], "byte_fallback": True},
    "runs": {"byte_fallback": True, "allow_whitespace_only_pieces": True},
    "across": {"byte_fallback": True, "split_by_whitespace": False},
    "control": {"control_symbols": ["[INST]", "<sep>"], "bos_id": -1, "eos_id": 3, "pad_id": 0,
                "unk_id": 1},
    "spaces": {"byte_fallback": True, "remove_extra_whitespaces": True},
    "nmt": {"byte_fallback": True, "remove_extra_whitespaces": True,
            "normalization_rule_name": "nmt_nfkc"},
    "nfkc": {"normalization_rule_name": "nfkc", "add_dummy_prefix": False},
    "folded": {"normalization_rule_name": "nmt_nfkc_cf", "remove_extra_whitespaces": True},
}  # fmt: skip
NORMALIZED = ("spaces", "nmt", "nfkc", "folded")
PUBLISHED = sorted(Path(os.environ.get("PUBLISHED_TOKENIZERS", "-")).glob("**/*.model*"))


@cache
def trained(variant: str) -> bytes:
    return train(**VARIANTS[variant])


def train(**options: Any) -> bytes:
    file = io.BytesIO()
    settings = {
        "model_type": "bpe",
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
    }
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT.splitlines() * 3),
        model_writer=file,
        vocab_size=420 if options.get("byte_fallback") else 200,
        hard_vocab_limit=False,
        minloglevel=2,
        **{**settings, **options},
    )
    return file.getvalue()


def read(data: bytes) -> BPETokenizer:
    location = "memory://sentencepiece/tokenizer.model"
    with fsspec.open(location, "wb") as file:
        file.write(data)
    assert find_tokenizer(location).format == "sentencepiece"
    return BPETokenizer.from_sentencepiece(location)


@cache
def peers(variant: str) -> tuple[BPETokenizer, sentencepiece.SentencePieceProcessor]:
    data = trained(variant)
    return read(data), sentencepiece.SentencePieceProcessor(model_proto=data)


def check(tokenizer: BPETokenizer, processor: Any, texts: Sequence[str]) -> None:
    for text, expected in zip(texts, processor.encode(list(texts)), strict=True):
        assert tokenizer.encode(text) == expected, text


def random_texts(n: int) -> list[str]:
    rng = random.Random(1)
    ranges = [(0x20, 0x7F), (0x80, 0x800), (0x800, 0xD800), (0xE000, 0x110000)]
    return [
        "".join(
            rng.choice(FRAGMENTS) if rng.random() < 0.9 else chr(rng.randrange(*rng.choice(ranges)))
            for _ in range(rng.randrange(20))
        )
        for _ in range(n)
    ]


RUNS = [
    first + unit * n + last
    for unit in " a-"
    for n in range(24)
    for first in ("", "x", " <sep>")
    for last in ("", "the")
]


@pytest.mark.parametrize("variant", VARIANTS)
def test_ids_are_those_of_sentencepiece(variant: str) -> None:
    check(*peers(variant), ["", *FRAGMENTS, *RUNS, *random_texts(times(40))])


@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=times(2))
@given(parts=texts)
def test_any_text_has_the_ids_of_sentencepiece(variant: str, parts: list[str]) -> None:
    check(*peers(variant), ["".join(parts)])


@pytest.mark.nightly
@pytest.mark.parametrize("variant", VARIANTS)
def test_many_random_texts_have_the_ids_of_sentencepiece(variant: str) -> None:
    check(*peers(variant), random_texts(150_000))


@pytest.mark.nightly
@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.name)
def test_published_files_give_the_ids_of_sentencepiece(path: Path) -> None:
    tokenizer = BPETokenizer.from_sentencepiece(path)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    check(tokenizer, processor, [*FRAGMENTS, *RUNS, *random_texts(20_000)])


@settings(max_examples=times(1))
@given(parts=st.lists(texts.map("".join), max_size=6), variant=st.sampled_from(list(VARIANTS)))
def test_a_stream_has_the_ids_of_its_text(parts: list[str], variant: str) -> None:
    tokenizer, _ = peers(variant)
    long = [part * 300 for part in parts]
    assert list(tokenizer.encode_iterable(long)) == tokenizer.encode("".join(long))


@pytest.mark.parametrize("variant", VARIANTS)
def test_files_that_are_written_have_the_same_ids(variant: str, tmp_path: Path) -> None:
    tokenizer, processor = peers(variant)
    not_written = tokenizer.save(tmp_path)
    assert BPETokenizer.load(tmp_path) == tokenizer
    assert BPETokenizer.from_sentencepiece(tmp_path / "tokenizer.model") == tokenizer
    samples = random_texts(times(4))
    written = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "tokenizer.model"))
    check(tokenizer, written, samples)
    assert written.unk_id() == processor.unk_id()
    reasons = {"symbols": "not before what follows special tokens"}
    reasons |= dict.fromkeys(NORMALIZED, "replaces characters or spaces are left out")
    if variant in reasons:
        assert reasons[variant] in not_written["tokenizer.json"]
        return
    assert not not_written
    library = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in samples:
        assert library.encode(text, add_special_tokens=False).ids == tokenizer.encode(text)


@pytest.mark.parametrize("variant", NORMALIZED)
def test_every_character_is_replaced_as_by_sentencepiece(variant: str) -> None:
    points = [*range(0x3400), *range(0xF900, 0x10000, 3), *range(0x1D400, 0x1F800, 5)]
    characters = [chr(c) for c in points if not 0xD800 <= c < 0xE000]
    check(*peers(variant), [f"a{c} {c}b{c}" for c in characters])
    check(*peers(variant), characters)


@pytest.mark.parametrize("variant", NORMALIZED)
def test_normalized_text_is_decoded(variant: str) -> None:
    tokenizer, processor = peers(variant)
    for text in random_texts(50):
        if "unknown" not in variant and "\u2047" not in processor.decode(processor.encode(text)):
            assert tokenizer.decode(tokenizer.encode(text)) == tokenizer.normalize(text)


def test_offsets_need_normalized_text() -> None:
    tokenizer, _ = peers("nmt")
    with pytest.raises(ValueError, match="expected normalized text"):
        tokenizer.encode_with_offsets("the  end")
    ids, offsets = tokenizer.encode_with_offsets("the end")
    assert len(offsets) == len(ids) + 1
    assert (offsets[0], offsets[-1]) == (0, 7)


def test_a_damaged_table_is_refused() -> None:
    data = trained("nmt")
    fields = []
    for number, value in fields_of(data):
        if number == 3 and isinstance(value, bytes):
            value = message((n, v[:-1] if n == 2 else v) for n, v in fields_of(value))  # type: ignore[index]
        fields.append((number, value))
    with pytest.raises(FormatError, match="table"):
        read(message(fields))


def test_text_becomes_user_defined_pieces_and_never_control_pieces() -> None:
    tokenizer, _ = peers("symbols")
    assert tokenizer.special_tokens["<sep><sep>"] in tokenizer.encode("a<sep><sep>b")
    assert tokenizer.special_tokens["<s>"] not in tokenizer.encode("<s>")
    assert tokenizer.encode("<s>", {"<s>"})[-1] == tokenizer.special_tokens["<s>"]


def test_decoding_restores_the_text() -> None:
    for variant in ("llama", "gemma", "symbols"):
        tokenizer, _ = peers(variant)
        for text in FRAGMENTS:
            assert tokenizer.decode(tokenizer.encode(text)) == text.replace("▁", " ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model_type": "unigram"}, "model_type: expected BPE.*found Unigram"),
        ({"model_type": "char"}, "found Char"),
        ({"model_type": "word"}, "found Word"),
        (
            {"normalization_rule_name": "nmt_nfkc", "user_defined_symbols": ["<sep>"]},
            "normalizer: expected none beside user-defined pieces",
        ),
        (
            {"remove_extra_whitespaces": True, "user_defined_symbols": ["<sep>"]},
            "remove_extra_whitespaces: expected none beside user-defined pieces",
        ),
        ({"treat_whitespace_as_suffix": True}, "treat_whitespace_as_suffix"),
        ({"user_defined_symbols": ["a b"]}, "no space and no ▁"),
        ({"control_symbols": ["\x01"]}, "more than one character"),
    ],
)
def test_what_would_change_ids_is_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        read(train(**{"byte_fallback": True, **options}))


def changed(data: bytes, change: Any) -> bytes:
    """The file with other pieces: `change` gives the fields of each, or None to leave it out."""
    fields = []
    for number, value in fields_of(data):
        if number == 1 and isinstance(value, bytes):
            new = change(dict(fields_of(value)))
            if new is None:
                continue
            value = message(new.items())
        fields.append((number, value))
    return message(fields)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: {**p, 2: -5.0} if len(p[1]) > 1 else p, "a score of its own"),
        (lambda p: {**p, 2: float("nan")} if p[1] == b"th" else p, "a score of its own"),
        (lambda p: {**p, 3: 5} if p[1] == b"th" else p, "a piece that is used"),
        (lambda p: {**p, 3: 9} if p[1] == b"th" else p, "a text with its score and its type"),
        (lambda p: {**p, 1: b"\xff"} if p[1] == b"th" else p, "a text with its score"),
        (lambda p: {**p, 1: b"a"} if p[1] == b"th" else p, "a text of its own"),
        (lambda p: {**p, 3: 2} if p[1] == b"th" else p, "one of the type unknown"),
        (lambda p: {**p, 3: 6} if p[1] == b"th" else p, "a byte as <0x00>"),
        (lambda p: None if p[1] == b"h" else p, "characters that are pieces too"),
        (lambda p: None if p[1] == "▁".encode() else p, "characters that are pieces|the space"),
        (lambda p: None if p[1] == b"<0xE3>" else p, "for each byte"),
    ],
)
def test_damaged_pieces_are_refused(change: Any, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        read(changed(trained("llama"), change))


@settings(max_examples=times(4))
@given(data=st.data())
def test_damaged_bytes_are_refused_or_read(data: st.DataObject) -> None:
    whole = bytearray(trained("unknown"))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(16, len(whole) - 1))
        whole[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    location = "memory://sentencepiece/damaged.model"
    with fsspec.open(location, "wb") as file:
        file.write(bytes(whole))
    try:
        formats.read_sentencepiece(location)
    except FormatError as error:
        assert location in str(error)


def test_a_byte_level_tokenizer_is_not_written() -> None:
    with pytest.raises(CannotHoldError, match="merges are of bytes"):
        sentencepiece_bytes(BPETokenizer({0: b"a"}, []).model)
