"""Which format a file or a directory has, by its contents.

A directory of this package has tokenizer.arrow, from which the others were made. Of another one,
tokenizer.json counts, which says more than the vocab.json and merges.txt that often lie beside it.
"""

from __future__ import annotations

import codecs
import os
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

__all__ = ["FORMATS", "FormatName", "TokenizerFile", "find_tokenizer"]

FormatName: TypeAlias = Literal["arrow", "huggingface", "gpt2", "tiktoken", "minbpe"]
FORMATS: tuple[FormatName, ...] = get_args(FormatName)

# The files of a directory that are a tokenizer: the first that all are there is it.
_NAMED: dict[FormatName, tuple[str, ...]] = {
    "arrow": ("tokenizer.arrow",),
    "huggingface": ("tokenizer.json",),
    "gpt2": ("vocab.json", "merges.txt"),
}
_BY_ENDING: dict[FormatName, str] = {"tiktoken": ".tiktoken", "minbpe": ".model"}
# Of a character tokenizer, which is none of the formats.
_CHARACTERS = "char_bpe.json"
_RANK = regex.compile(rb"\s*[A-Za-z0-9+/]+={0,2} \d+\r?(?:\n|$)")


@dataclass(frozen=True, kw_only=True)
class TokenizerFile:
    """A file that holds a tokenizer.

    Attributes:
        format: of `FORMATS`.
        location: the file; of gpt2 its vocab.json.
    """

    format: FormatName
    location: str


def find_tokenizer(source: Location, format_: FormatName | None = None) -> TokenizerFile:
    """The tokenizer that a file is, or that a directory has.

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


def _in_directory(
    directory: Location, names: list[str], format_: FormatName | None
) -> TokenizerFile:
    found: dict[FormatName, list[str]] = {}
    for name, files in _NAMED.items():
        if set(files).issubset(names):
            found[name] = [files[0]]
    for name, ending in _BY_ENDING.items():
        if files := tuple(sorted(n for n in names if n.endswith(ending) and n[0] not in "._")):
            found[name] = list(files)
    if _CHARACTERS in names and not {"arrow", "huggingface"} & found.keys():
        raise _of_characters(join(directory, _CHARACTERS))
    if format_ is not None:
        found = {name: files for name, files in found.items() if name == format_}
    elif best := next((name for name in ("arrow", "huggingface") if name in found), None):
        found = {best: found[best]}
    candidates = [(name, file) for name, files in found.items() for file in files]
    if len(candidates) != 1:
        wanted = [" and ".join(files) for files in _NAMED.values()]
        endings = [f"one *{ending}" for ending in _BY_ENDING.values()]
        raise malformed(
            directory,
            "",
            "one tokenizer: " + ", or ".join([*wanted, *endings]),
            ", ".join(file for _, file in candidates) + "; name the file"
            if candidates
            else "none of them" + ("" if format_ is None else f" of the format {format_}"),
        )
    name, file = candidates[0]
    return TokenizerFile(format=name, location=join(directory, file))


def _format_of(location: Location) -> FormatName:
    data = read_bytes(location)
    if data.startswith(b"ARROW1"):
        return "arrow"
    if data.startswith(b"minbpe "):
        return "minbpe"
    if data.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{"):
        return _format_of_json(location)
    if _RANK.match(data):
        return "tiktoken"
    raise FormatError(
        f"{os.fspath(location)}: expected tokenizer.arrow, tokenizer.json, vocab.json, ranks in "
        f"base64 or minbpe's .model, found {_shown(data)}"
    )


def _format_of_json(location: Location) -> FormatName:
    root = read_json_object(location)
    if isinstance(root.get("model"), dict):
        return "huggingface"
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
        return "what may be a SentencePiece model, which is not byte-level BPE"
    return quoted(data[:40]) if data else "an empty file"
