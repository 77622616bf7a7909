r"""Facts that ranks lack: special tokens, and the pattern or the class that splits.

Published ranks come with a tokenizer_config.json whose `added_tokens_decoder` has the special
tokens by their ids. The split pattern is in the code of the class that it names. That code is never
run; the patterns of the published classes are known here, and all facts of tiktoken's encodings.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from bpe_core.formats.files import (
    Location,
    join,
    malformed,
    names_in,
    quoted,
    read_bytes,
    read_json_object,
)
from bpe_core.formats.json_values import expect, object_of

CONFIG: Final = "tokenizer_config.json"

# `(?!\p{Han})` before a class is the class without Han.
_NO_HAN_UPPER: Final = r"(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
_NO_HAN_LOWER: Final = r"(?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])"
_SUFFIX: Final = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
KIMI: Final = "|".join(
    [
        r"[\p{Han}]+",
        rf"[^\r\n\p{{L}}\p{{N}}]?{_NO_HAN_UPPER}*{_NO_HAN_LOWER}+{_SUFFIX}",
        rf"[^\r\n\p{{L}}\p{{N}}]?{_NO_HAN_UPPER}+{_NO_HAN_LOWER}*{_SUFFIX}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)


@dataclass(frozen=True, kw_only=True)
class _RanksClass:
    """A published class that encodes with ranks.

    Attributes:
        pattern: the pattern by which it splits.
        reserved: number of ids after the ranks that are special tokens, named in the file or not.
    """

    pattern: str
    reserved: int = 0


_CLASSES: Final[Mapping[str, _RanksClass]] = {
    "TikTokenTokenizer": _RanksClass(pattern=KIMI, reserved=256),  # Kimi K2, Moonlight
    "ChatGLM4Tokenizer": _RanksClass(pattern="llama3"),  # GLM-4
}


# The encodings of tiktoken by the SHA-256 of their files: pattern and special tokens.
_ENDOFTEXT: Final = "<|endoftext|>"
_PUBLISHED: Final[Mapping[str, tuple[str, Mapping[str, int]]]] = {
    "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930": (  # r50k_base
        "r50k",
        {_ENDOFTEXT: 50256},
    ),
    "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069": (  # p50k_base
        "r50k",
        {_ENDOFTEXT: 50256},
    ),
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7": (  # cl100k_base
        "cl100k",
        {
            _ENDOFTEXT: 100257,
            "<|fim_prefix|>": 100258,
            "<|fim_middle|>": 100259,
            "<|fim_suffix|>": 100260,
            "<|endofprompt|>": 100276,
        },
    ),
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d": (  # o200k_base
        "o200k",
        {_ENDOFTEXT: 199999, "<|endofprompt|>": 200018},
    ),
}


@dataclass(frozen=True, kw_only=True)
class RanksConfig:
    """Facts that ranks lack, from a tokenizer_config.json or of a published encoding.

    Attributes:
        pattern: pattern of the class that it names, or None if the class is unknown.
        class_name: name of the class.
        special_tokens: text to id of the special tokens that the file names.
        nonspecial_tokens: special tokens that decoding keeps.
        reserved: number of ids after the ranks that are special tokens, named in the file or not.
        is_file: False for a published encoding, which is known without a file.
    """

    pattern: str | None
    class_name: str | None = None
    special_tokens: Mapping[str, int]
    nonspecial_tokens: frozenset[str] = frozenset()
    reserved: int = 0
    is_file: bool = True

    def special_tokens_after(self, largest_rank: int) -> dict[str, int]:
        """Return all special tokens, by id; those without a name get that of their class."""
        specials = dict(self.special_tokens)
        named = set(specials.values())
        for token_id in range(largest_rank + 1, largest_rank + 1 + self.reserved):
            if token_id not in named:
                specials.setdefault(f"<|reserved_token_{token_id}|>", token_id)
        return dict(sorted(specials.items(), key=lambda item: item[1]))


def find_ranks_config(ranks: Location, *, published: bool) -> RanksConfig | None:
    """Return what is known of a file of ranks, or None.

    Args:
        ranks: The file.
        published: True to recognize the encodings of tiktoken, unless a tokenizer_config.json
            beside them states the pattern.

    Raises:
        FormatError: The file beside them is malformed, or a token has a flag that would change ids.
        OSError: A file cannot be opened.
    """
    config = _read_ranks_config(ranks)
    if not published or (config is not None and config.pattern is not None):
        return config
    found = _PUBLISHED.get(hashlib.sha256(read_bytes(ranks)).hexdigest())
    if found is None:
        return config
    pattern, special_tokens = found
    return RanksConfig(pattern=pattern, special_tokens=special_tokens, is_file=False)


def _read_ranks_config(ranks: Location) -> RanksConfig | None:
    """Read the tokenizer_config.json beside a file of ranks, or return None if there is no file.

    Raises:
        FormatError: the file is malformed, or a token has a flag that would change ids.
        OSError: a file cannot be opened.
    """
    directory = str(ranks).rpartition("/")[0] or "."
    if CONFIG not in (names_in(directory) or []):
        return None
    location = join(directory, CONFIG)
    root = read_json_object(location)
    name = root.get("tokenizer_class")
    class_name = name if isinstance(name, str) else None
    known = _CLASSES.get(class_name or "")
    added = object_of(location, "added_tokens_decoder", root.get("added_tokens_decoder", {}))
    specials: dict[str, int] = {}
    kept = set()
    for key, entry in added.items():
        text, is_special = _added_token(location, key, entry)
        if text in specials:
            raise malformed(location, "added_tokens_decoder", "each text once", f"{text!r} again")
        specials[text] = int(key)
        if not is_special:
            kept.add(text)
    return RanksConfig(
        pattern=None if known is None else known.pattern,
        class_name=class_name,
        special_tokens=specials,
        nonspecial_tokens=frozenset(kept),
        reserved=0 if known is None else known.reserved,
    )


def _added_token(location: Location, key: str, entry: Any) -> tuple[str, bool]:
    """Return the text of an added token, and whether decoding may leave it out."""
    where = f"added_tokens_decoder[{key!r}]"
    token = object_of(location, where, entry)
    text = token.get("content")
    if not key.isdecimal() or not key.isascii() or len(key) > 10:
        raise malformed(location, "added_tokens_decoder", "ids", quoted(key))
    if not isinstance(text, str) or not text:
        raise malformed(location, f"{where}.content", "a text", quoted(text))
    for flag in ("single_word", "lstrip", "rstrip"):
        expect(location, f"{where}.{flag} of {text!r}", token.get(flag, False), False)
    special = token.get("special", True)
    expect(location, f"{where}.special of {text!r}", special, True, False)
    return text, special
