"""Reading a tokenizer of any format, from a file, a directory, or the output of a build."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from bpe_core.formats.arrow import read_arrow
from bpe_core.formats.boundaries import with_boundaries
from bpe_core.formats.detection import (
    FormatName,
    TokenizerFile,
    find_tokenizer,
    names_of_tokenizer,
)
from bpe_core.formats.files import Location, join, malformed, names_in, read_bytes
from bpe_core.formats.gpt2 import read_vocab_merges
from bpe_core.formats.huggingface import read_huggingface
from bpe_core.formats.minbpe import read_minbpe
from bpe_core.formats.ranks import read_tiktoken
from bpe_core.formats.ranks_config import find_ranks_config
from bpe_core.formats.sentencepiece import read_sentencepiece
from bpe_core.formats.tekken import read_tekken
from bpe_core.model import TokenizerModel
from bpe_core.special_tokens import check_special_tokens

__all__ = ["enter_output", "load_any", "merges_name", "read_ranks", "read_tokenizer"]

_OF_A_BUILD = "tokenizer"  # the directory of the tokenizer in an output
_SIZES = "sizes"  # in that directory, the directory of smaller tokenizers of the same training
# Formats that do not state these tokens themselves, or whose libraries read them from beside.
_WITH_CONFIG = frozenset({"huggingface", "sentencepiece", "gpt2", "tiktoken"})
_CHARACTERS = "char_bpe.json"  # the file of a character tokenizer


def load_any(source: Location) -> TokenizerModel:
    """Read the tokenizer at a location.

    Args:
        source: A file of any format, a directory with one, or the output of a build.

    Raises:
        FormatError: There is no tokenizer or several; a file is damaged, or does not contain
            everything, such as ranks, which lack the pattern.
        FileNotFoundError: There is nothing.
        OSError: A file cannot be read.
    """
    names = names_in(source)
    if names is None and "://" not in os.fspath(source) and not Path(source).exists():
        name = os.fspath(source)
        hub = f"; for a repository of the Hub: from_pretrained({name!r})"
        advice = hub if name.count("/") == 1 and name[0] not in "./~" else ""
        raise FileNotFoundError(errno.ENOENT, f"No tokenizer is here{advice}", name)
    return read_tokenizer(find_tokenizer(enter_output(source)))


def enter_output(source: Location) -> Location:
    """Return the directory of the tokenizer in the output of a build; other locations unchanged.

    Of tokenizers of several sizes it is the one that encoded, or the largest.

    Raises:
        OSError: A directory cannot be listed.
    """
    names = names_in(source) or []
    if _OF_A_BUILD not in names or names_of_tokenizer(names) or _CHARACTERS in names:
        return source
    inner = join(source, _OF_A_BUILD)
    inside = names_in(inner)
    if inside is None:
        return source
    return _find_encoder(source, inner) if _SIZES in inside else inner


def _find_encoder(output: Location, largest: Location) -> Location:
    """Return the directory of the size whose fingerprint the manifest of the tokens contains."""
    manifest = _read_object(join(output, "tokens/manifest.json"))
    sizes = _read_object(join(largest, "manifest.json")).get("sizes")
    for size in sizes if isinstance(sizes, list) else ():
        if isinstance(size, dict) and size.get("fingerprint") == manifest.get("tokenizer"):
            return join(largest, f"{_SIZES}/{size.get('vocab_size_asked_for')}")
    return largest


def _read_object(location: Location) -> dict[str, object]:
    """Return the JSON object in a file, or an empty one if it cannot be read."""
    try:
        value = json.loads(read_bytes(location))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def read_tokenizer(
    file: TokenizerFile,
    *,
    merges: Location | None = None,
    pattern: str | None = None,
    special_tokens: Mapping[str, int] | Iterable[str] = (),
) -> TokenizerModel:
    """Read a tokenizer.

    Args:
        file: The file.
        merges: The merges.txt of a vocab.json; None for the one beside it.
        pattern: The pattern, for formats that do not contain it; None for GPT-2's of a vocab.json,
            for that of the class that a tokenizer_config.json beside ranks names, and for that of
            a published encoding of tiktoken.
        special_tokens: Texts with or without ids, for formats that do not contain them.

    Raises:
        FormatError: The file is damaged or has another format, or the pattern is not known.
        OSError: A file cannot be read.
    """
    location = file.location
    readers: dict[FormatName, Callable[[], TokenizerModel]] = {
        "arrow": lambda: read_arrow(location),
        "huggingface": lambda: read_huggingface(location),
        "minbpe": lambda: read_minbpe(location),
        "sentencepiece": lambda: read_sentencepiece(location),
        "tekken": lambda: read_tekken(location),
        "gpt2": lambda: read_vocab_merges(
            location,
            _merges_beside(location) if merges is None else merges,
            special_tokens,
            pattern=pattern or "gpt2",
        ),
        "tiktoken": lambda: _read_ranks_and_config(location, pattern, special_tokens),
    }
    model = readers[file.format]()
    return with_boundaries(model, location) if file.format in _WITH_CONFIG else model


def read_ranks(
    location: Location, pattern: str, special_tokens: Mapping[str, int] | Iterable[str] = ()
) -> TokenizerModel:
    """Read ranks as tiktoken does.

    Args:
        location: The file.
        pattern: A name or a regular expression; `cl100k` means tiktoken's variant of it.
        special_tokens: Texts with their ids, or only texts, which get the ids max(id) + 1, ….

    Raises:
        FormatError: The file is damaged or has another format.
        OSError: The file cannot be read.
    """
    model = read_tiktoken(location, pattern="cl100k_tiktoken" if pattern == "cl100k" else pattern)
    if not isinstance(special_tokens, Mapping):
        specials = check_special_tokens(special_tokens)
        special_tokens = {text: i for i, text in enumerate(specials, model.max_id + 1)}
    return replace(model, special_tokens=special_tokens)


def merges_name(name: str) -> str:
    """Return the name of the merges.txt that belongs to a vocab.json.

    Example:
        >>> merges_name("vocab.json"), merges_name("gpt2-vocab.json")
        ('merges.txt', 'gpt2-merges.txt')
    """
    return name.replace("vocab", "merges").removesuffix(".json") + ".txt"


def _merges_beside(location: Location) -> str:
    directory, slash, name = os.fspath(location).rpartition("/")
    if "vocab" not in name:
        raise malformed(
            location,
            "",
            "a name such as vocab.json, by which its merges.txt is found",
            f"{name!r}; use BPETokenizer.from_files(vocab, merges)",
        )
    return f"{directory}{slash}{merges_name(name)}"


def _read_ranks_and_config(
    location: Location, pattern: str | None, special_tokens: Mapping[str, int] | Iterable[str]
) -> TokenizerModel:
    config = None if special_tokens else find_ranks_config(location, published=pattern is None)
    pattern = pattern or (config.pattern if config else None)
    if pattern is None:
        raise malformed(
            location,
            "",
            "its split pattern, which ranks do not contain",
            "none; use BPETokenizer.from_tiktoken(path, pattern=…, special_tokens=…)",
        )
    if config is None:
        return read_ranks(location, pattern, special_tokens)
    model = read_ranks(location, pattern)
    specials = config.special_tokens_after(model.max_id)
    return replace(model, special_tokens=specials, nonspecial_tokens=config.nonspecial_tokens)
