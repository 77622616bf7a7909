"""Detection of the format of a file or directory, by its contents.

A directory of this package has tokenizer.arrow, from which the others were made. In another one,
tokenizer.json has precedence, and then tekken.json: they contain more than the files that often lie
beside them (vocab.json and merges.txt, tokenizer.model).
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import regex

from bpe_core.errors import FormatError
from bpe_core.formats.files import (
    Location,
    join,
    malformed,
    names_in,
    quoted,
    read_bytes,
    read_json_object,
)
from bpe_core.formats.ranks_config import CONFIG
from bpe_core.formats.sentencepiece import is_sentencepiece
from bpe_core.formats.tekken import is_tekken

__all__ = [
    "FORMATS",
    "WRITTEN_FORMATS",
    "FormatName",
    "TokenizerFile",
    "WrittenFormat",
    "find_tokenizer",
    "names_of_tokenizer",
]

WrittenFormat: TypeAlias = Literal[
    "arrow", "huggingface", "gpt2", "tiktoken", "minbpe", "sentencepiece"
]
FormatName: TypeAlias = Literal[WrittenFormat, "tekken"]
WRITTEN_FORMATS: tuple[WrittenFormat, ...] = get_args(WrittenFormat)
FORMATS: tuple[FormatName, ...] = get_args(FormatName)

# Names of the files of each format; all of them are needed.
_NAMED: dict[FormatName, tuple[str, ...]] = {
    "arrow": ("tokenizer.arrow",),
    "huggingface": ("tokenizer.json",),
    "tekken": ("tekken.json",),
    "gpt2": ("vocab.json", "merges.txt"),
}
# If a directory contains one of these, files of other formats beside it are ignored.
_PREFERRED: tuple[FormatName, ...] = ("arrow", "huggingface", "tekken")
# The format of files with these endings is determined by their contents.
_ENDINGS = (".tiktoken", ".model")
# A character tokenizer's file, which is not one of the formats.
_CHARACTERS = "char_bpe.json"
_RANK = regex.compile(rb"\s*[A-Za-z0-9+/]+={0,2} \d+\r?(?:\n|$)")


@dataclass(frozen=True, kw_only=True)
class TokenizerFile:
    """File that contains a tokenizer.

    Attributes:
        format: One of `FORMATS`.
        location: The file; for gpt2, its vocab.json.
    """

    format: FormatName
    location: str


def find_tokenizer(source: Location, format_: FormatName | None = None) -> TokenizerFile:
    """Return the tokenizer that a file is, or that a directory contains.

    Args:
        source: a file of any format, or a directory with one.
        format_: the format, if the caller knows it.

    Raises:
        FormatError: there is none, or there are several.
        OSError: as opening it does.

    Example:
        >>> from bpe_core.formats import save_tokenizer
        >>> from bpe_core.model import TokenizerModel
        >>> _ = save_tokenizer(TokenizerModel.from_tokens([(0, b"a")]), "memory://found")
        >>> find_tokenizer("memory://found")
        TokenizerFile(format='arrow', location='memory://found/tokenizer.arrow')
    """
    names = names_in(source)
    if names is not None:
        return _in_directory(source, names, format_)
    found = format_ or _format_of(source)
    return TokenizerFile(format=found, location=os.fspath(source))


def names_of_tokenizer(names: Collection[str]) -> list[str]:
    """Return the files of a directory that `find_tokenizer` and the readers may open.

    Example:
        >>> names_of_tokenizer(["tokenizer.json", "tokenizer.model", "model.safetensors"])
        ['tokenizer.json']
    """
    for format_ in _PREFERRED:
        if set(_NAMED[format_]).issubset(names):
            return [*_NAMED[format_], *({CONFIG} & {*names})]
    beside = {"vocab.json", "merges.txt", CONFIG}
    return sorted(
        name
        for name in names
        if name in beside or (name.endswith(_ENDINGS) and name[0] not in "._")
    )


def _in_directory(
    directory: Location, names: list[str], format_: FormatName | None
) -> TokenizerFile:
    found: list[tuple[FormatName, str]] = [
        (name, files[0]) for name, files in _NAMED.items() if set(files).issubset(names)
    ]
    preferred = [pair for pair in found if pair[0] in _PREFERRED]
    if _CHARACTERS in names and not {"arrow", "huggingface"} & {name for name, _ in found}:
        raise _of_characters(join(directory, _CHARACTERS))
    if format_ is None and preferred:
        found = preferred[:1]
    else:
        others = sorted(n for n in names if n.endswith(_ENDINGS) and n[0] not in "._")
        found += [(_format_of(join(directory, name)), name) for name in others]
        found = [pair for pair in found if format_ in (None, pair[0])]
    if len(found) != 1:
        wanted = [" and ".join(files) for files in _NAMED.values()]
        endings = [f"one *{ending}" for ending in _ENDINGS]
        raise malformed(
            directory,
            "",
            "one tokenizer: " + ", or ".join([*wanted, *endings]),
            ", ".join(file for _, file in found) + "; name the file"
            if found
            else _describe_others(names, format_),
        )
    name, file = found[0]
    return TokenizerFile(format=name, location=join(directory, file))


def _describe_others(names: Sequence[str], format_: FormatName | None) -> str:
    if format_ is not None:
        return f"none of them of the format {format_}"
    if not names:
        return "none of them: the directory is empty"
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return f"none of them, only {', '.join(sorted(names)[:8])}{more}"


def _format_of(location: Location) -> FormatName:
    data = read_bytes(location)
    if data.startswith(b"ARROW1"):
        return "arrow"
    if data.startswith(b"minbpe "):
        return "minbpe"
    if is_sentencepiece(data):
        return "sentencepiece"
    if data.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{"):
        return _format_of_json(location)
    if _RANK.match(data):
        return "tiktoken"
    raise FormatError(
        f"{os.fspath(location)}: expected tokenizer.arrow, tokenizer.json, tekken.json, "
        f"vocab.json, ranks in base64 or a .model, found {_shown(data)}"
    )


def _format_of_json(location: Location) -> FormatName:
    root = read_json_object(location)
    if isinstance(root.get("model"), dict):
        return "huggingface"
    if is_tekken(root):
        return "tekken"
    if isinstance(root.get("vocabulary"), dict):
        raise _of_characters(location)
    if isinstance(root.get("tokenizer_class"), str):
        raise malformed(
            location,
            "",
            "tokenizer.json or vocab.json",
            "what may be a tokenizer_config.json, which has no tokens; name the tokenizer.json "
            "beside it, or their directory",
        )
    return "gpt2"


def _of_characters(location: Location) -> FormatError:
    return malformed(
        location,
        "",
        "a byte-level tokenizer",
        "a character tokenizer, which is not converted: CharBPETokenizer.load reads it, and its "
        "save writes the files of Hugging Face's class where these can hold it",
    )


def _shown(data: bytes) -> str:
    if data.startswith(b"#version") or regex.match(rb"\S+ \S+\r?\n", data):
        return "what may be a merges.txt; name the vocab.json beside it, or their directory"
    if b"<unk>" in data[:64]:
        return "what may be a SentencePiece model, damaged or cut off"
    return quoted(data[:40]) if data else "an empty file"
