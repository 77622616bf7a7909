r"""tokenizer_config.json beside a file of ranks: special tokens, and the class that splits.

Published ranks come with a tokenizer_config.json whose `added_tokens_decoder` has the special
tokens by their ids. The split pattern is in the code of the class that it names. That code is never
run; the patterns of the published classes are known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from bpe_core.formats.files import Location, join, malformed, names_in, quoted, read_json_object
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


@dataclass(frozen=True, kw_only=True)
class RanksConfig:
    """Content of a tokenizer_config.json that ranks lack.

    Attributes:
        pattern: pattern of the class that it names, or None if the class is unknown.
        class_name: name of the class.
        special_tokens: text to id of the special tokens that the file names.
        nonspecial_tokens: special tokens that decoding keeps.
        reserved: number of ids after the ranks that are special tokens, named in the file or not.
    """

    pattern: str | None
    class_name: str | None
    special_tokens: Mapping[str, int]
    nonspecial_tokens: frozenset[str]
    reserved: int

    def special_tokens_after(self, largest_rank: int) -> dict[str, int]:
        """Return all special tokens, by id; those without a name get that of their class."""
        specials = dict(self.special_tokens)
        named = set(specials.values())
        for token_id in range(largest_rank + 1, largest_rank + 1 + self.reserved):
            if token_id not in named:
                specials.setdefault(f"<|reserved_token_{token_id}|>", token_id)
        return dict(sorted(specials.items(), key=lambda item: item[1]))


def read_ranks_config(ranks: Location) -> RanksConfig | None:
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
