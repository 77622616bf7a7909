"""Texts in blocks, cut anywhere, have the ids of the whole text."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from bpe_core import (
    BPETokenizer,
    CharBPETokenizer,
    count_pretokens,
    train_characters_from_counts,
    train_from_counts,
)
from bpe_core.errors import InvalidUtf8Error, UnknownTokenError
from pipelines.tokenizers import streams
from pipelines.tokenizers.files import Tokenizer
from pipelines.tokenizers.streams import StreamEncoder, decode_stream

END = "<|endoftext|>"
TEXT = (
    "the cat sat on  a mat and thought of 12 don't-s café 漢字 in Ünïcode\n\n" * 20 + END + " so\t"
) * 3


def trained(pattern: str) -> BPETokenizer:
    counts = count_pretokens([TEXT], pattern=pattern, special_tokens=[END])
    return train_from_counts(counts, 330, [END]).tokenizer()


def of_characters() -> BPETokenizer:
    counts = count_pretokens([TEXT], special_tokens=[END])
    return train_characters_from_counts(counts, 400, [END]).tokenizer()


def of_words() -> CharBPETokenizer:
    tokenizer = CharBPETokenizer("<unk>", special_tokens=[END])
    tokenizer.train([TEXT], 120)
    return tokenizer


@pytest.fixture(
    scope="module", params=["gpt2", "llama3", "none", r"\p{L}+|[^\p{L}]", "characters", "words"]
)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    made = {"characters": of_characters, "words": of_words}
    return made[request.param]() if request.param in made else trained(request.param)


def cut(data: bytes, seed: int) -> Iterator[bytes]:
    choose = random.Random(seed)
    while data:
        size = choose.randint(1, 300)
        yield data[:size]
        data = data[size:]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_BLOCK_BYTES", 500)
    monkeypatch.setattr(streams, "_PIECE_BYTES", 64)


@pytest.mark.parametrize("seed", range(3))
def test_ids_are_those_of_the_whole_text(tokenizer: Tokenizer, seed: int) -> None:
    blocks = [ids.tolist() for ids in StreamEncoder(tokenizer).encode(cut(TEXT.encode(), seed))]
    assert [token_id for ids in blocks for token_id in ids] == tokenizer.encode(TEXT)


def test_a_count_has_ids_and_bytes(tokenizer: Tokenizer) -> None:
    data = TEXT.encode()
    assert StreamEncoder(tokenizer).count(cut(data, 1)) == (len(tokenizer.encode(TEXT)), len(data))
    assert StreamEncoder(tokenizer).count([]) == (0, 0)


@pytest.mark.parametrize("pattern", ["gpt2", "llama3"])
def test_special_tokens_are_ordinary_text_on_request(pattern: str) -> None:
    tokenizer = trained(pattern)
    text = "so!" + END * 200 + "!" + TEXT
    blocks = StreamEncoder(tokenizer, ordinary=True).encode(cut(text.encode(), 1))
    ids = [token_id for ids in blocks for token_id in ids.tolist()]
    assert ids == tokenizer.encode(text, allowed_special="none")


def test_memory_is_bounded() -> None:
    """Ids come before the text ends, so not all of it is in memory."""
    blocks = cut(TEXT.encode() * 3, 2)
    arrays = StreamEncoder(trained("gpt2")).encode(blocks)
    next(arrays)
    assert sum(map(len, blocks)) > 9_000


def test_invalid_text_is_an_error_with_its_position(tokenizer: Tokenizer) -> None:
    blocks = cut(TEXT.encode() + b"\xff", 3)
    with pytest.raises(InvalidUtf8Error, match=f"byte {len(TEXT.encode()):,} of the text.*ff$"):
        list(StreamEncoder(tokenizer).encode(blocks))


def test_ids_become_their_text_again(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(TEXT)
    data = " ".join(map(str, ids)).encode()
    decoded = b"".join(decode_stream(tokenizer, cut(data, 4)))
    assert decoded == tokenizer.decode(ids).encode()


@pytest.mark.parametrize("text", [b"[1, 2,\n3]", b"1 2 3", b"\n1\t2 3\n"])
def test_ids_may_be_a_list(text: bytes) -> None:
    tokenizer = trained("gpt2")
    assert b"".join(decode_stream(tokenizer, [text])) == tokenizer.decode_bytes([1, 2, 3])


@pytest.mark.parametrize("text", [b"1 2 x3", b"-1", b"1.5", b"999999999"])
def test_other_text_and_unknown_ids_are_an_error(text: bytes) -> None:
    with pytest.raises(UnknownTokenError):
        list(decode_stream(trained("gpt2"), [text]))
