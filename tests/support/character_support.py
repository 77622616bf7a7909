"""Small tokenizers that merge characters, as tokenizer.json has them."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from functools import cache
from typing import Any

import fsspec
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from bpe_core import BPETokenizer
from bpe_core.formats.characters import BYTE_TOKENS

SPECIALS = ["<unk>", "<s>", "</s>"]
TEXT = (
    "In the beginning God created the heaven and the earth. And the earth was without form, and "
    "void; and darkness was upon the face of the deep. 1234 12.50 </s> don't  stop   here\n\n"
    "def f(x):\n    return x[0]  # the first\n\n\n        else: <unk> == 'a'\n"
    "Größe naïve café Москва и мир слово 日本語の文字 日本の言語 中国的文字 한국어 문자 "
    "aaaa aaaaa aaaaaaa 👩🏽 👨🏽 e\u0301 a\u0301 >▁</p> <p> ----- ===== …… 、。，、。 "
)

_REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
_PREPEND = {"type": "Prepend", "prepend": "▁"}
_LLAMA = {"type": "Sequence", "normalizers": [_PREPEND, _REPLACE]}
_GEMMA_SPLIT = {
    "type": "Split",
    "pattern": {"String": " "},
    "behavior": "MergedWithPrevious",
    "invert": False,
}


def _metaspace(scheme: str, split: bool) -> dict[str, Any]:
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}


# Normalizer and pre_tokenizer of published files, and of others that the library allows.
STEPS: dict[str, tuple[Any, Any]] = {
    "llama": (_LLAMA, None),
    "yi": ({"type": "Sequence", "normalizers": [_REPLACE]}, None),
    "gemma": (_REPLACE, _GEMMA_SPLIT),
    "nfkc": ({"type": "Sequence", "normalizers": [{"type": "NFKC"}, _PREPEND, _REPLACE]}, None),
    "both": (_LLAMA, _metaspace("first", True)),
    "legacy": (None, {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}),
    **{
        f"{scheme}{'-split' * split}": (None, _metaspace(scheme, split))
        for scheme in ("always", "first", "never")
        for split in (True, False)
    },
}

# byte_fallback, unk_token and fuse_unk.
FALLBACKS = {
    "bytes": (True, "<unk>", True),
    "unknown": (False, "<unk>", False),
    "fused": (False, "<unk>", True),
}


def character_json(
    steps: str = "llama",
    fallback: str = "bytes",
    *,
    added: Iterable[tuple[str, bool]] = (
        ("<s>", True),
        ("</s>", True),
        ("▁▁", False),
        ("\n", False),
    ),
) -> dict[str, Any]:
    """Return a tokenizer.json with these steps, trained on TEXT.

    Args:
        steps: of STEPS.
        fallback: of FALLBACKS.
        added: added tokens, with their `special`.
    """
    normalizer, pre_tokenizer = copy.deepcopy(STEPS[steps])
    byte_fallback, unknown, fuse = FALLBACKS[fallback]
    tokens, merges = _trained()
    listed = [*SPECIALS, *(BYTE_TOKENS if byte_fallback else ()), *tokens]
    vocab = {token: i for i, token in enumerate(dict.fromkeys(listed))}
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": vocab.setdefault(text, len(vocab)),
                "content": text,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": special,
            }
            for text, special in added
        ],
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                *([{"type": "ByteFallback"}] if byte_fallback else []),
                {"type": "Fuse"},
                *(strip if steps == "llama" else []),
            ],
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": unknown,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": fuse,
            "byte_fallback": byte_fallback,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": [list(pair) for pair in merges],
        },
    }


def read_json(text: str) -> BPETokenizer:
    """Return the tokenizer of a tokenizer.json with this text."""
    location = "memory://character-merges/tokenizer.json"
    with fsspec.open(location, "w") as file:
        file.write(text)
    return BPETokenizer.from_huggingface(location)


@cache
def _trained() -> tuple[list[str], list[tuple[str, str]]]:
    """Return tokens and all merges that join two tokens into one, like converters of `.model`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    # Runs of spaces, and one token with a space behind another character, as in Gemma 3.
    tokenizer.pre_tokenizer = pre_tokenizers.Split(">▁</", "isolated")
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=[], show_progress=False, max_token_length=12
    )
    tokenizer.train_from_iterator(
        [word for line in TEXT.splitlines(keepends=True) for word in _words(line)], trainer
    )
    model = json.loads(tokenizer.to_str())["model"]
    ranks = {token: rank for rank, token in enumerate(model["vocab"])}
    by_result = {
        token: [
            (token[:i], token[i:])
            for i in range(1, len(token))
            if token[:i] in ranks and token[i:] in ranks
        ]
        for token in ranks
    }
    return list(ranks), [pair for pairs in by_result.values() for pair in pairs]


def _words(line: str) -> list[str]:
    """Return words with the spaces before them, so that few tokens contain several words."""
    words = [""]
    for before, character in zip(" " + line, line, strict=False):
        if character == " " and before not in " >":
            words.append("")
        words[-1] += character
    return words
