"""Tokenizers by any name that a user may give them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pipelines.errors import InputError
from pipelines.manifest.names import SHARD_FILE, SIZES
from pipelines.storage.directory import Directory
from pipelines.tokenizers.files import Model, Tokenizer, load_model, make_tokenizer
from pipelines.tokenizers.sources import is_published, missing_tokenizer, read_source


def open_tokenizer(location: str) -> Tokenizer:
    """Return the tokenizer in a directory, a file, the output of a build, or on the Hub.

    Args:
        location: Path, URL or `hf://ORG/NAME[@REVISION][/PATH]`.

    Raises:
        ConfigError: There is none.
        InputError: It cannot be read.
    """
    return make_tokenizer(find_model(location))


def find_model(location: str, storage_options: Mapping[str, Any] | None = None) -> Model:
    """Return the model of a tokenizer; arguments and errors are those of `open_tokenizer`.

    Args:
        location: Path, URL or `hf://ORG/NAME[@REVISION][/PATH]`.
        storage_options: Options of its file system.
    """
    options = storage_options or {}
    place = Directory(url=location, storage_options=options)
    if is_published(place):
        return read_source(location, storage_options=options, compare=False).model
    if SIZES in (place / "tokenizer").other_names():
        with suppress(InputError):  # nothing is encoded yet, or the record is damaged
            return _find_model_of_dataset(location, options)
    for directory in (place, place / "tokenizer"):
        with suppress(FileNotFoundError, NotADirectoryError):
            return load_model(directory)
    try:
        return _find_model_of_dataset(location, options)
    except InputError:
        missing = missing_tokenizer(place, location)
        if any(map(SHARD_FILE.fullmatch, place.sizes())):
            missing.hint = (
                f"These are counts. `beam-bpe evaluate TOKENIZER --counts {location}` evaluates a "
                f"tokenizer on them, `beam-bpe counts top {location}` shows them."
            )
        raise missing from None


def _find_model_of_dataset(location: str, options: Mapping[str, Any]) -> Model:
    from pipelines.dataset.reading import TokenDataset

    return TokenDataset.open(location, options).find_model()
