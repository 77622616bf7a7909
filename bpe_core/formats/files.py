"""Files at local paths and fsspec URLs as bytes, and the errors of malformed files."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from bpe_core.errors import BpeError, FormatError, InvalidPatternError, InvalidTokenizerError
from bpe_core.model import TokenizerModel

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

Location = str | os.PathLike[str]
Built = TypeVar("Built")

# Ten times the largest published vocabulary; a larger file is not a tokenizer's.
MAX_FILE_BYTES = 1 << 28
_URL = re.compile(r"([A-Za-z][\w+-]*::)*[A-Za-z][\w+-]*://")


class CannotHoldError(BpeError, ValueError):
    """A format cannot represent this tokenizer; the message contains the reason."""


def refuse_normalization(model: TokenizerModel) -> None:
    """Check, for a format of byte-level tokenizers, that there are no normalizer and token flags.

    Raises:
        CannotHoldError: The tokenizer normalizes, merges characters or has such flags.
    """
    for text, flags in model.token_flags.items():
        raise CannotHoldError(
            f"the special token {text!r} is found by its flags ({', '.join(sorted(flags))}), which "
            "the format does not have"
        )
    if model.characters is not None:
        raise CannotHoldError(
            "its merges are of characters, as SentencePiece's, and the format is for byte-level "
            "tokenizers"
        )
    if model.space_rules:
        raise CannotHoldError(
            f"spaces are added to text or left out ({', '.join(model.space_rules)}), which the "
            "format cannot say"
        )
    if model.normalizer is not None or model.normalize_quotes:
        steps = [model.normalizer, "normalize_quotes" if model.normalize_quotes else None]
        raise CannotHoldError(
            f"text is normalized before it is split ({', '.join(filter(None, steps))}), and the "
            "format has no normalizer"
        )


def join(directory: Location, name: str) -> str:
    """Return the location of a file in a directory."""
    return f"{os.fspath(directory).rstrip('/')}/{name}"


def read_bytes(location: Location) -> bytes:
    """Return the contents of a file of at most MAX_FILE_BYTES.

    Raises:
        FormatError: The file is larger.
        OSError: The file cannot be opened.
    """
    local = _local_path(location)
    with local.open("rb") if local else _open_remote(location) as file:
        data: bytes = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise FormatError(
            f"{os.fspath(location)}: expected a tokenizer file of at most {MAX_FILE_BYTES} bytes, "
            "found a larger one"
        )
    return data


def names_in(location: Location) -> list[str] | None:
    """Return the names of the files in a directory, or None if the location is not a directory.

    Raises:
        OSError: The directory cannot be listed.
    """
    local = _local_path(location)
    if local is not None:
        return [path.name for path in local.iterdir()] if local.is_dir() else None
    fs, path = _find_remote(location)
    if not fs.isdir(path):
        return None
    return [name.rstrip("/").rpartition("/")[2] for name in fs.ls(path, detail=False)]


def write_files(directory: Location, contents: dict[str, bytes]) -> None:
    """Write files so that each appears atomically, in the given order.

    On local disk, all are first written under temporary names that start with `.`, so that a full
    disk does not change the existing files.
    """
    local = _local_path(directory)
    if local is None:
        fs, root = _find_remote(directory)
        fs.makedirs(root, exist_ok=True)
        for name, data in contents.items():
            fs.pipe_file(f"{root}/{name}", data)
        return
    local.mkdir(parents=True, exist_ok=True)
    temporary = {name: local / f".{name}.{secrets.token_hex(8)}.tmp" for name in contents}
    try:
        for name, path in temporary.items():
            path.write_bytes(contents[name])
        for name, path in temporary.items():
            path.replace(local / name)
    finally:
        for path in temporary.values():
            path.unlink(missing_ok=True)


def write_file(location: Location, data: bytes) -> None:
    """Write one file so that it appears atomically."""
    directory, _, name = os.fspath(location).rpartition("/")
    write_files(directory or ".", {name: data})


def remove(location: Location) -> None:
    """Remove a file if it exists."""
    local = _local_path(location)
    if local is not None:
        local.unlink(missing_ok=True)
        return
    fs, path = _find_remote(location)
    if fs.exists(path):
        fs.rm_file(path)


def quoted(value: object) -> str:
    """Return a value from a file for a message, shortened."""
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:100]}... ({len(text)} characters)"


def malformed(location: Location, where: str, expected: str, found: str) -> FormatError:
    """Return the error for a malformed file."""
    place = f"{os.fspath(location)}: {where}" if where else os.fspath(location)
    return FormatError(f"{place}: expected {expected}, found {found}")


def read_text(location: Location) -> str:
    """Return the contents of a UTF-8 file without a byte-order mark at its start."""
    return _decode(location, read_bytes(location))


def read_json_object(location: Location) -> dict[str, Any]:
    """Return the object in a JSON file. A duplicate key is an error."""
    return parse_json_object(location, read_bytes(location))


def parse_json_object(location: Location, data: bytes) -> dict[str, Any]:
    """Return the object in the contents of a JSON file. A duplicate key is an error."""
    text = _decode(location, data)
    try:
        value = json.loads(text, object_pairs_hook=_object_of)
    except json.JSONDecodeError as error:
        raise malformed(
            location,
            f"line {error.lineno}",
            "JSON",
            f"a mistake at column {error.colno}: {error.msg}" if text.strip() else "nothing",
        ) from None
    except RecursionError:
        raise malformed(location, "", "JSON of limited depth", "values nested too deeply") from None
    except ValueError as error:  # a duplicate key, or a number of thousands of digits
        raise malformed(location, "", "a tokenizer's JSON", str(error)) from None
    if not isinstance(value, dict):
        raise malformed(location, "", "a JSON object", quoted(value))
    return value


def dump_json(value: object, *, indent: int | None = None) -> bytes:
    """Return JSON as UTF-8, with a line break at its end."""
    return (json.dumps(value, ensure_ascii=False, indent=indent) + "\n").encode()


def built(location: Location, build: Callable[[], Built]) -> Built:
    """Return the result of `build`. Turn contradictions into a FormatError that names the file."""
    try:
        return build()
    except (InvalidPatternError, InvalidTokenizerError) as error:
        raise FormatError(f"{os.fspath(location)}: {error}") from None


def _decode(location: Location, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise malformed(
            location, f"byte {error.start}", "UTF-8", quoted(data[error.start : error.start + 8])
        ) from None


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the key {key!r} twice")
            seen.add(key)
    return result


def _open_remote(location: Location) -> AbstractContextManager[IO[bytes]]:
    fs, path = _find_remote(location)
    opened: AbstractContextManager[IO[bytes]] = fs.open(path, "rb")
    return opened


def _find_remote(location: Location) -> tuple[AbstractFileSystem, str]:
    """Return the file system of a URL, and the path there."""
    from fsspec.core import url_to_fs  # takes long to import

    found: tuple[AbstractFileSystem, str] = url_to_fs(os.fspath(location))
    return found


def _local_path(location: Location) -> Path | None:
    """Return the path unless this is a URL, which begins with a protocol."""
    text = os.fspath(location).removeprefix("file://")
    return None if _URL.match(text) else Path(text)
