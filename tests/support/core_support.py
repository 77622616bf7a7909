"""Helpers for tests of bpe_core: random text, spans of documents, peers."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import regex
import tiktoken
import unicodedata2
from hypothesis import strategies as st
from numpy.typing import NDArray
from tiktoken_ext import openai_public
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from bpe_core import BPETokenizer
from bpe_core.patterns import PATTERNS
from bpe_core.reference import printable_stand_ins

NATIVE_PATTERNS = [*PATTERNS, "r50k"]
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""The pattern of Mistral's tekken."""

DEEPSEEK_V3 = (
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
"""The chain of DeepSeek V3."""

SPECIALS = ["<s>", "<s><s>", "s><", "<e>"]

FRAGMENTS = [
    *["<s>", "<s><s>", "<s", "s>", "<e>", "a", "b", "ab", "Z", "é", "İ", "ſ", "日本", "\u0301"],
    *["'", "'s", "'LL", "’s", " ", "  ", "\n", "\r\n", "\t", "\xa0", "7", "1234", "١", "½"],
    *["!?", "/", "--", "😀", "\x00", "\u200d", "the", " the", "internationalization", "aaaa"],
]


@cache
def agrees(character: str) -> bool:
    """Return True if the installed regex classifies a character like Unicode 16.0."""
    category = unicodedata2.category(character)
    return regex.fullmatch(rf"\p{{{category}}}", character) is not None


# All of Unicode but surrogates and what newer versions of it class otherwise.
characters = st.characters(exclude_categories=["Cs"]).filter(agrees)
texts = st.lists(st.sampled_from(FRAGMENTS) | characters, max_size=40).map("".join)

INVALID_UTF8 = [
    *[
        b"\x80",
        b"\xbf",
        b"\xc0",
        b"\xc1\x81",
        b"\xc3",
        b"\xe2\x82",
        b"\xe0\x80\x80",
        b"\xed\xa0\x80",
    ],
    *[b"\xf0\x9f\x98", b"\xf0\x80\x80\x80", b"\xf4\x90\x80\x80", b"\xf5", b"\xff", b"\xfe\xff"],
]
# Bytes that are UTF-8 in part.
dirty_bytes = st.lists(
    st.sampled_from([f.encode() for f in FRAGMENTS]) | st.sampled_from(INVALID_UTF8) | st.binary(),
    max_size=12,
).map(b"".join)


def joined(documents: Sequence[bytes]) -> tuple[bytes, NDArray[np.int64], NDArray[np.int64]]:
    """Return one buffer, with the starts and ends of the documents in it."""
    bounds = np.zeros(len(documents) + 1, np.int64)
    np.cumsum([len(document) for document in documents], out=bounds[1:])
    return b"".join(documents), bounds[:-1], bounds[1:]


def parts_of(ids: NDArray[np.integer], offsets: NDArray[np.int64]) -> list[list[int]]:
    """Return the ids of each document."""
    assert offsets[0] == 0
    assert offsets[-1] == len(ids)
    return [part.tolist() for part in np.split(ids, offsets[1:-1])]


STAND_INS = printable_stand_ins()
BYTES_OF_STAND_INS = {character: byte for byte, character in STAND_INS.items()}


def stand_ins(token: bytes) -> str:
    """Return a token in the form of text-keyed vocabularies."""
    return "".join(STAND_INS[byte] for byte in token)


def from_stand_ins(text: str) -> bytes:
    """Return the token for a text of stand-ins."""
    return bytes(BYTES_OF_STAND_INS[character] for character in text)


def huggingface_merges(documents: Iterable[str], merges: int) -> list[tuple[bytes, bytes]]:
    """Return the merges of Hugging Face's trainer: byte-level, GPT-2's pattern, no minimum."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=256 + merges,
        min_frequency=0,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    learned = json.loads(tokenizer.to_str())["model"]["merges"]
    return [(from_stand_ins(left), from_stand_ins(right)) for left, right in learned]


def minbpe_merges(chunks: Iterable[bytes], merges: int) -> list[tuple[bytes, bytes]]:
    """Return the merges that minbpe's classes learn, according to their published interface.

    `get_stats` adds up the pairs of all chunks in a dict, in the order of the text; the merge is
    `max(stats, key=stats.get)`, the first of the most frequent; `merge` goes from left to right.
    """
    parts = [list(chunk) for chunk in chunks if len(chunk) > 1]
    vocab = [bytes([byte]) for byte in range(256)]
    learned: list[tuple[bytes, bytes]] = []
    while len(learned) < merges:
        stats = Counter(chain.from_iterable(map(pairwise, parts)))
        if not stats:
            break
        left, right = max(stats, key=stats.__getitem__)
        new = len(vocab)
        parts = [_minbpe_merge(ids, left, right, new) if left in ids else ids for ids in parts]
        learned.append((vocab[left], vocab[right]))
        vocab.append(vocab[left] + vocab[right])
    return learned


def _minbpe_merge(ids: list[int], left: int, right: int, new: int) -> list[int]:
    merged: list[int] = []
    at = 0
    while True:
        try:
            place = ids.index(left, at, len(ids) - 1)
        except ValueError:
            return merged + ids[at:]
        found = ids[place + 1] == right
        merged += ids[at:place]
        merged.append(new if found else left)
        at = place + 1 + found


def huggingface_tokenizer(
    vocab: Mapping[int, bytes], merges: Iterable[tuple[bytes, bytes]]
) -> Tokenizer:
    """Return a Hugging Face tokenizer with GPT-2's pattern and no special tokens."""
    tokenizer = Tokenizer(
        models.BPE(
            {stand_ins(token): i for i, token in vocab.items()},
            [(stand_ins(left), stand_ins(right)) for left, right in merges],
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


@cache
def tiktoken_encoding(name: str, path: str) -> tiktoken.Encoding:
    """Return tiktoken's encoding of that name, with ranks from a file instead of the network."""
    ranks = {
        base64.b64decode(token): int(rank)
        for token, rank in map(bytes.split, Path(path).read_bytes().splitlines())
    }
    # Only the ranks come from elsewhere: pattern and special tokens are tiktoken's own.
    original = openai_public.load_tiktoken_bpe
    openai_public.load_tiktoken_bpe = lambda *_, **__: ranks
    try:
        arguments = openai_public.ENCODING_CONSTRUCTORS[f"{name}_base"]()
    finally:
        openai_public.load_tiktoken_bpe = original
    return tiktoken.Encoding(**arguments)


@cache
def published_tokenizer(name: str, path: str) -> BPETokenizer:
    """Return this package's tokenizer of the same ranks and special tokens."""
    specials = tiktoken_encoding(name, path)._special_tokens
    return BPETokenizer.from_tiktoken(path, pattern=name, special_tokens=specials)


def ids_in_another_process(tokenizer: BPETokenizer, text: bytes) -> tuple[list[int], int, int]:
    return tokenizer.encode(text), hash(tokenizer), tokenizer.count_tokens("ab")
