"""Files of character-level tokenizers: char_bpe.json, and the two that Hugging Face's class reads.

char_bpe.json is one JSON object: `format`, `format_version`, `fingerprint` (of everything that
determines ids), `settings` (the arguments of `CharBPETokenizer`), and `vocabulary`: `vocab` (token
to id), `merges` (pairs in order of rank), `merge_counts`, `longest_first` (ids), `stop_reason` and
`tie_break`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import xxhash

from bpe_core.char_bpe.settings import Settings
from bpe_core.errors import FormatError, InvalidTokenizerError, SpecialTokenError
from bpe_core.formats.directory import TOKENIZER_FILES
from bpe_core.formats.files import (
    CannotHoldError,
    Location,
    dump_json,
    join,
    malformed,
    quoted,
    read_json_object,
    read_text,
    remove,
    write_files,
)

FILE_NAME = "char_bpe.json"
_FORMAT = "bpe-beam character BPE"
_VERSION = 1
_DECIDES_IDS = ("vocab", "merges", "longest_first")
_KEYS = ("vocab", "merges", "merge_counts", "longest_first", "stop_reason", "tie_break")
_PAIR = ("vocab.json", "merges.txt")
_BYTE_LEVEL = ("tokenizer.arrow", "tokenizer.json", "tokenizer.tiktoken")
_REASON = "it holds byte-level tokenizers, and this one's smallest tokens are characters"
_VERSION_LINE = "#version: 0.2"


def fingerprint(settings: Settings, vocabulary: Mapping[str, Any]) -> str:
    """Return the XXH3-128, in hex, of everything that determines ids."""
    deciding = {key: vocabulary[key] for key in _DECIDES_IDS}
    text = json.dumps([settings.as_json(), deciding], sort_keys=True)
    return xxhash.xxh3_128_hexdigest(text.encode())


def write(
    directory: Location,
    settings: Settings,
    vocabulary: Mapping[str, Any],
    found: str,
    training: Mapping[str, object] | None,
) -> dict[str, str]:
    """Write the files of `CharBPETokenizer.save`; `found` is the fingerprint."""
    not_written = dict.fromkeys(_BYTE_LEVEL, _REASON)
    contents: dict[str, bytes] = {}
    try:
        contents |= zip(_PAIR, huggingface_bytes(settings, vocabulary), strict=True)
    except CannotHoldError as error:
        not_written[" + ".join(_PAIR)] = str(error)
    if training is not None:
        summary = {
            "fingerprint": found,
            "ids": len(vocabulary["vocab"]),
            "merges": len(vocabulary["merges"]),
            "longest_token_characters": max(map(len, vocabulary["vocab"]), default=0),
            **settings.as_json(),
            "tie_break": vocabulary["tie_break"],
            "stop_reason": vocabulary["stop_reason"],
        }
        contents["training.json"] = dump_json(
            {
                "tokenizer": summary,
                **training,
                "files": [FILE_NAME, *contents],
                "not_written": not_written,
            },
            indent=2,
        )
    contents[FILE_NAME] = dump_json(
        {
            "format": _FORMAT,
            "format_version": _VERSION,
            "fingerprint": found,
            "settings": settings.as_json(),
            "vocabulary": vocabulary,
        }
    )
    write_files(directory, contents)
    for name in TOKENIZER_FILES - contents.keys():
        remove(join(directory, name))
    return not_written


def read(directory: Location) -> dict[str, Any]:
    """Return the content of char_bpe.json, with the types of its parts checked.

    Raises:
        FormatError: It is malformed.
        OSError: It cannot be opened.
    """
    location = join(directory, FILE_NAME)
    content = read_json_object(location)
    version = content.get("format"), content.get("format_version")
    if version != (_FORMAT, _VERSION):
        raise malformed(location, "format", f"{_FORMAT!r}, version {_VERSION}", quoted(version))
    for part, names in (("settings", Settings.NAMES), ("vocabulary", _KEYS)):
        keys = content.get(part)
        if not isinstance(keys, dict) or set(keys) != set(names):
            raise malformed(location, part, f"the keys {', '.join(names)}", quoted(keys))
    vocabulary = content["vocabulary"]
    is_valid = (
        isinstance(vocabulary["vocab"], dict)
        and isinstance(vocabulary["merges"], list)
        and all(
            isinstance(merge, list) and len(merge) == 2 and all(isinstance(t, str) for t in merge)
            for merge in vocabulary["merges"]
        )
        and all(
            vocabulary[name] is None
            or (
                isinstance(vocabulary[name], list) and all(type(i) is int for i in vocabulary[name])
            )
            for name in ("merge_counts", "longest_first")
        )
    )
    if not is_valid:
        raise malformed(
            location,
            "vocabulary",
            "vocab of texts to ids, merges as pairs of texts, lists of integers",
            quoted(vocabulary),
        )
    return content


def check_fingerprint(directory: Location, content: Mapping[str, Any], found: str) -> None:
    """Raise FormatError if the content does not match its fingerprint."""
    if content.get("fingerprint") != found:
        raise malformed(
            join(directory, FILE_NAME),
            "fingerprint",
            f"{found}, that of the content",
            quoted(content.get("fingerprint")),
        )


@contextmanager
def named(location: Location) -> Iterator[None]:
    """Turn contradictions in a file's content into a FormatError that names the file."""
    try:
        yield
    except (InvalidTokenizerError, SpecialTokenError, TypeError) as error:
        raise FormatError(f"{os.fspath(location)}: {error}") from None


def huggingface_bytes(settings: Settings, vocabulary: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """Return the bytes of vocab.json and merges.txt.

    Raises:
        CannotHoldError: `tokenizers.CharBPETokenizer` would not encode like this tokenizer.
    """
    if settings.word_end != "suffix" or settings.words == "whole_text":
        raise CannotHoldError(
            "tokenizers.CharBPETokenizer attaches the end of a word to its last character: "
            "needs end_of_word_as='suffix', and words"
        )
    if settings.method != "merges":
        raise CannotHoldError(f"its readers encode by merges, not by {settings.method}")
    lines = [_VERSION_LINE]
    for left, right in vocabulary["merges"]:
        if any(" " in token or "\n" in token for token in (left, right)):
            raise CannotHoldError(f"merges.txt cannot represent {left!r} + {right!r}")
        lines.append(f"{left} {right}")
    return dump_json(vocabulary["vocab"]), ("\n".join(lines) + "\n").encode()


def read_huggingface(
    vocab_filepath: Location, merges_filepath: Location
) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Return the vocabulary and merges in vocab.json and merges.txt.

    Raises:
        FormatError: A file is invalid.
        OSError: A file cannot be opened.
    """
    vocab = read_json_object(vocab_filepath)
    for token, token_id in vocab.items():
        if type(token_id) is not int:
            raise malformed(vocab_filepath, f"token {token!r}", "an id", quoted(token_id))
    merges = []
    lines = read_text(merges_filepath).split("\n")
    if lines[-1] == "":
        lines.pop()
    for number, line in enumerate(lines, 1):
        if line.startswith("#version"):
            continue
        pair = line.removesuffix("\r").split(" ")
        if len(pair) != 2 or not all(pair):
            raise malformed(
                merges_filepath, f"line {number}", "two tokens with a space between", quoted(line)
            )
        merges.append((pair[0], pair[1]))
    return vocab, merges
