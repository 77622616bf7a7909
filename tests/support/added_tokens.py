"""Small byte-level tokenizers with added tokens of published kinds, made by `tokenizers`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from bpe_core import BPETokenizer

MERGES = [("a", "b"), ("Ġ", "a"), ("Ġ", "Ġ"), ("Ġa", "b"), ("c", "c")]
SPACES = [" ", "  ", "\n", "\t", "\u3000", "\u2028", "\x85", "\x1c", "\u200b", "\u00a0"]


def library(
    tokens: Sequence[AddedToken], normalizer: str | None = None, *, use_regex: bool = True
) -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: i for i, token in enumerate([*alphabet, *map("".join, MERGES)])}
    made = Tokenizer(models.BPE(vocab, MERGES))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    if normalizer is not None:
        made.normalizer = getattr(normalizers, normalizer)()
    for token in tokens:
        (made.add_special_tokens if token.special else made.add_tokens)([token])
    return made


def read(made: Tokenizer, path: Path) -> BPETokenizer:
    made.save(str(path / "tokenizer.json"))
    return BPETokenizer.from_huggingface(path)


PHI_3 = [
    AddedToken(text, rstrip=text != "<s>", special=True, normalized=False)
    for text in ("<s>", "</s>", "<|user|>", "<|end|>")
]
PHI_4 = [
    AddedToken(text, lstrip=True, rstrip=True, special=True, normalized=False)
    for text in ("<|im_start|>", "<|im_end|>", "<|im_sep|>")
]
NEOX = [
    *(AddedToken(text, special=True, normalized=False) for text in ("<|endoftext|>", "<|pad|>")),
    *(AddedToken(" " * n, special=False, normalized=True) for n in range(24, 1, -1)),
]
WORDS = [
    AddedToken("xe", single_word=True, special=False, normalized=False),
    AddedToken("xec", single_word=True, special=True, normalized=False),
    AddedToken("ec", special=True, normalized=False),
    AddedToken("éa", single_word=True, special=False, normalized=False),
]
# Kinds that overlap, and texts that normalizing changes.
MIXED = [
    AddedToken("<a>", special=False, normalized=True),
    AddedToken("a>b", special=True, normalized=False),
    AddedToken("\u212b", special=False, normalized=True, lstrip=True),
    AddedToken("e\u0301x", special=False, normalized=True, single_word=True),
    AddedToken("x>", special=False, normalized=True, rstrip=True),
]
SETS = {"phi3": PHI_3, "phi4": PHI_4, "neox": NEOX, "words": WORDS, "mixed": MIXED}
CHARACTERS = [*SPACES, *"abcxe<>._1'", "é", "\u0301", "Å", "\u212b", "漢", "²", "\u200d", "①", "٣"]
