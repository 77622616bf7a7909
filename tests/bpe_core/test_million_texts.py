"""A million random texts of each tokenizer file have the ids of the library that owns its format.

The variable PUBLISHED_TOKENIZERS may name a directory of published files, in folders NAME: each
tokenizer.json is compared with tokenizers, NAME.tiktoken (a name of tiktoken's) with tiktoken,
`.model` with sentencepiece, tekken*.json with mistral-common. Without it, small files are trained.
To run it alone:

    TESTS=nightly .venv/bin/python -m pytest -m nightly tests/bpe_core/test_million_texts.py -s
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
from added_tokens import SETS, library
from character_support import TEXT, character_json
from core_support import agrees, published_tokenizer, tiktoken_encoding
from profiles import PROFILE
from tokenizers import Tokenizer

from bpe_core import BPETokenizer, count_pretokens, formats, train_from_counts
from bpe_core.formats.huggingface import huggingface_bytes
from bpe_core.formats.ranks import tiktoken_bytes

TEXTS_OF_EACH = 1_000_000 if PROFILE == "nightly" else 500
BATCH = 50_000
DECK = 1 << 16
MOST_PIECES = 14
SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "vocab"

# White space, contractions, digits, line ends, marks, joiners: what patterns and merges treat in
# their own way.
_WORDS = """
    ' 's 'LL 'Ve ’s 'ſ don't a b z A Zz the The ſ İ ß ǅ é e\u0301 Å \u212b ﬁ Ω мир 한국어 日本語 ー
    かな カ العربية हिन्दी ไทย 0 1 12 123 1234567 ٣ ½ ² ① １２ . , ! ?! ... … - -- _ / // ( ) { } # $
    + = < > <| |> <s s> <0x0A> ▁ ▁▁ >▁</ Ġ 😀 👩🏽 👨\u200d👩\u200d👧 🇨🇭
"""
FRAGMENTS = [
    *[" ", " ", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\r", "\t", "\xa0", "\u3000"],
    *["\u2028", "\x85", "\x00", "\x1c", "\u200b", "\u200d", "\ufeff", "\ufffd", "\u0301", "\u093f"],
    " the",
    *_WORDS.split(),
]
RANGES = [(0, 0x80), (0x80, 0x800), (0x800, 0xD800), (0xE000, 0x10000), (0x10000, 0x110000)]


class Peers:
    """This package's tokenizer and the owner's.

    Args:
        ours: the tokenizer.
        encode: the owner's ids of texts.
        has_special_tokens: the owner finds special tokens in text.
    """

    def __init__(
        self,
        ours: BPETokenizer,
        encode: Callable[[list[str]], Sequence[Sequence[int]]],
        *,
        has_special_tokens: bool = True,
    ) -> None:
        self.ours = ours
        self.encode = encode
        self.allowed: Any = "all" if has_special_tokens else "none"


def huggingface(path: Path) -> Peers:
    theirs = Tokenizer.from_file(str(path))

    def encode(texts: list[str]) -> list[list[int]]:
        return [e.ids for e in theirs.encode_batch_fast(texts, add_special_tokens=False)]

    return Peers(BPETokenizer.from_huggingface(path), encode)


def tiktoken(path: Path) -> Peers:
    name = path.stem.removesuffix("_base")
    theirs = tiktoken_encoding(name, str(path))
    return Peers(
        published_tokenizer(name, str(path)),
        lambda texts: theirs.encode_batch(texts, num_threads=2, allowed_special="all"),
    )


def sentencepiece_model(path: Path) -> Peers:
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return Peers(BPETokenizer.from_sentencepiece(path), theirs.encode)


def tekken(path: Path) -> Peers:
    module = pytest.importorskip("mistral_common.tokens.tokenizers.tekken")
    theirs = module.Tekkenizer.from_file(path)
    return Peers(
        BPETokenizer.from_model(formats.read_tekken(path)),
        lambda texts: [theirs.encode(text, bos=False, eos=False) for text in texts],
        has_special_tokens=False,
    )


READERS: list[tuple[str, Callable[[Path], Peers]]] = [
    ("*/tokenizer.json", huggingface),
    ("*/*.tiktoken", tiktoken),
    ("*/*.model*", sentencepiece_model),
    ("*/tekken*.json", tekken),
]
FILES = [
    pytest.param(read, path, id=f"{path.parent.name}-{path.name}")
    for pattern, read in READERS
    for path in sorted(Path(os.environ.get("PUBLISHED_TOKENIZERS", "-")).glob(pattern))
]


def byte_level_file(directory: Path) -> Path:
    counts = count_pretokens([TEXT.encode() * 3], pattern="o200k", special_tokens=["<|end|>"])
    model = train_from_counts(counts, 600, ["<|end|>"]).model
    (directory / "tokenizer.json").write_bytes(huggingface_bytes(model))
    return directory / "tokenizer.json"


def file_without_pattern(directory: Path) -> Path:
    counts = count_pretokens(TEXT.splitlines(), pattern="none", special_tokens=["<|end|>"])
    model = train_from_counts(counts, 600, ["<|end|>"]).model
    (directory / "tokenizer.json").write_bytes(huggingface_bytes(model))
    return directory / "tokenizer.json"


def file_with_flags(directory: Path) -> Path:
    library(SETS["mixed"], "NFC").save(str(directory / "tokenizer.json"))
    return directory / "tokenizer.json"


def characters_file(directory: Path) -> Path:
    (directory / "tokenizer.json").write_text(json.dumps(character_json("llama")))
    return directory / "tokenizer.json"


def sentencepiece_file(directory: Path) -> Path:
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT.splitlines() * 3),
        model_writer=file,
        model_type="bpe",
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        byte_fallback=True,
        vocab_size=420,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    (directory / "tokenizer.model").write_bytes(file.getvalue())
    return directory / "tokenizer.model"


def ranks_file(directory: Path) -> Path:
    model = train_from_counts(count_pretokens([TEXT.encode() * 3], pattern="o200k"), 600).model
    (directory / "o200k_base.tiktoken").write_bytes(tiktoken_bytes(model))
    return directory / "o200k_base.tiktoken"


MADE = [
    (huggingface, byte_level_file),
    (huggingface, file_without_pattern),
    (huggingface, file_with_flags),
    (huggingface, characters_file),
    (sentencepiece_model, sentencepiece_file),
    (tiktoken, ranks_file),
]


def random_texts(ours: BPETokenizer, n: int, seed: int) -> Iterator[list[str]]:
    """Yield batches of texts of fragments, tokens, special tokens and any characters."""
    rng = np.random.default_rng(seed)
    specials = list(ours.special_tokens)
    texts = [token.decode("utf-8", "ignore") for _, token in ours.model.tokens]
    tokens = [text for text in texts if text]
    for begin in range(0, n, BATCH):
        deck: list[str] = []
        for source, share in ((FRAGMENTS, 0.5), (tokens, 0.3), (specials, 0.05)):
            if source:
                places = rng.integers(0, len(source), int(DECK * share))
                deck += [source[place] for place in places.tolist()]
        for low, high in RANGES:
            code_points = rng.integers(low, high, DECK // 40)
            deck += filter(agrees, map(chr, code_points.tolist()))
        lengths = rng.integers(0, MOST_PIECES, min(BATCH, n - begin))
        drawn = [deck[i] for i in rng.integers(0, len(deck), int(lengths.sum())).tolist()]
        ends = np.cumsum(lengths).tolist()
        yield ["".join(drawn[a:b]) for a, b in zip([0, *ends[:-1]], ends, strict=True)]


def check(peers: Peers) -> None:
    compared = 0
    for texts in random_texts(peers.ours, TEXTS_OF_EACH, seed=1):
        ours = peers.ours.encode_batch(texts, allowed_special=peers.allowed)
        for text, found, expected in zip(texts, ours, peers.encode(texts), strict=True):
            assert found == list(expected), repr(text)
        compared += len(texts)
    assert compared == TEXTS_OF_EACH
    print(f"\n{compared:,} texts have the same ids")


@pytest.mark.nightly
@pytest.mark.parametrize(("read", "path"), FILES)
def test_random_texts_have_the_ids_of_the_owner(read: Callable[[Path], Peers], path: Path) -> None:
    check(read(path))


@pytest.mark.slow
@pytest.mark.parametrize(("read", "make"), MADE, ids=[make.__name__ for _, make in MADE])
def test_random_texts_of_small_files_have_the_ids_of_the_owner(
    read: Callable[[Path], Peers], make: Callable[[Path], Path], tmp_path: Path
) -> None:
    check(read(make(tmp_path)))
