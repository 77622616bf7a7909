"""Tokenizer directories on any storage, for byte-level and character-level tokenizers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias

from bpe_core import BPETokenizer, CharBPETokenizer, formats
from bpe_core.errors import FormatError, InvalidTokenizerError
from bpe_core.model import TokenizerModel
from bpe_core.vocabulary_cuts import shows_segments, vocabulary_splitter
from pipelines.errors import InputError
from pipelines.storage.directory import Directory

Model: TypeAlias = TokenizerModel | CharBPETokenizer
Tokenizer: TypeAlias = BPETokenizer | CharBPETokenizer

# The file from which each kind of tokenizer is loaded.
_ARROW = "tokenizer.arrow"
_CHARACTERS = "char_bpe.json"
TRAINING = "training.json"
_FINGERPRINT = re.compile(r"[0-9a-f]{32}")


def save_tokenizer(
    model: Model, directory: Directory, training: Mapping[str, object] | None = None
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Save a tokenizer in every format that can store it, in a directory of the output.

    Returns:
        The manifest entries of the files, and the reasons why others were not written, by file.

    Raises:
        OutputError: the storage fails.
    """
    with directory.output_errors(""), TemporaryDirectory(prefix="beam-bpe-") as local:
        if isinstance(model, CharBPETokenizer):
            not_written = model.save(local, training)
        else:
            not_written = formats.save_tokenizer(model, local, training)
        # The file from which it is loaded comes last: it marks the tokenizer as complete.
        written = sorted(path.name for path in Path(local).iterdir())
        files = []
        for name in sorted(written, key=(_ARROW, _CHARACTERS).__contains__):
            with directory.write(name) as file:
                file.write(Path(local, name).read_bytes())
            files.append({"name": name, "bytes": file.size, "xxh3_128": file.hexdigest})
    stale = formats.TOKENIZER_FILES & directory.sizes().keys() - set(written)
    directory.remove_files(sorted(stale))
    return sorted(files, key=lambda file: str(file["name"])), not_written


def load_model(directory: Directory) -> Model:
    """Load the tokenizer in a directory.

    Raises:
        InputError: the file is malformed.
        FileNotFoundError: there is no tokenizer.
        OutputError: the storage fails.
    """
    present = directory.sizes()
    name = _ARROW if _ARROW in present else _CHARACTERS
    if name not in present:
        raise FileNotFoundError(directory.path(_ARROW))
    if directory.is_local:
        return _load(name, directory.url, directory)
    with TemporaryDirectory(prefix="beam-bpe-") as local:
        Path(local, name).write_bytes(directory.read_bytes(name))
        return _load(name, local, directory)


def counts_fingerprint(directory: Directory) -> str | None:
    """Return the fingerprint of the counts that a tokenizer was trained on; None if unknown."""
    training = (directory.read_json(TRAINING) or {}).get("training")
    found = training.get("counts") if isinstance(training, dict) else None
    return found if isinstance(found, str) and _FINGERPRINT.fullmatch(found) else None


def _load(name: str, local: str, directory: Directory) -> Model:
    try:
        with directory.reading_errors(name):
            return formats.load_tokenizer(local) if name == _ARROW else CharBPETokenizer.load(local)
    except (FormatError, InvalidTokenizerError) as error:
        raise InputError(
            "The tokenizer cannot be read.",
            found=str(error),
            where=directory.path(name),
            hint="Restore the file from a copy, or train again: `beam-bpe train CONFIG --restart`.",
        ) from None


def make_tokenizer(model: Model) -> Tokenizer:
    """Return a tokenizer that encodes with the model."""
    return model if isinstance(model, CharBPETokenizer) else BPETokenizer.from_model(model)


def model_of(tokenizer: Tokenizer) -> Model:
    """Return the model that a tokenizer encodes with."""
    return tokenizer.model if isinstance(tokenizer, BPETokenizer) else tokenizer


def find_affixes(model: Model) -> dict[str, str | None]:
    """Return the values of `encode.prepend` and `encode.append` with the model's own tokens.

    Example:
        >>> from bpe_core.model import TokenizerModel
        >>> model = TokenizerModel.from_tokens([(0, b"a")], special_tokens={"<s>": 1, "</s>": 2})
        >>> find_affixes(model)
        {'prepend': '<s>', 'append': '</s>'}
    """
    texts: dict[int | None, str] = {i: text for text, i in model.special_tokens.items()}
    start, end = getattr(model, "document_boundaries", (None, None))
    return {"prepend": texts.get(start), "append": texts.get(end)}


def format_affixes(model: Model) -> str:
    """Return the keys of a configuration that put the model's own tokens around documents."""
    return " and ".join(
        f"encode.{key}: {json.dumps(text, ensure_ascii=False)}"
        for key, text in find_affixes(model).items()
    )


def cutting_rules(model: Model) -> dict[str, Any]:
    """Return the rules for cutting long documents, as arguments of `source_readings`."""
    rules: dict[str, Any] = {
        "pattern": model.pattern,
        "special_tokens": tuple(specials_in_text(model)),
        "token_flags": {},
        "splitter": None,
        "after_special": True,
        # Neither affects cuts for character-level tokenizers.
        "normalizer": getattr(model, "normalizer", None),
        "normalize_quotes": getattr(model, "normalize_quotes", False),
    }
    if isinstance(model, CharBPETokenizer):
        return rules
    if _replaces_characters(model) or not shows_segments(model):
        return {**rules, "pattern": "none"}
    return {
        **rules,
        "token_flags": model.token_flags,
        "splitter": vocabulary_splitter(model),
        "after_special": not model.prefix_space,
    }


# Rules by which no document is cut.
WHOLE_TEXTS: Final[Mapping[str, Any]] = {
    "pattern": "none",
    "special_tokens": (),
    "normalizer": None,
    "normalize_quotes": False,
}


def _replaces_characters(model: TokenizerModel) -> bool:
    """Return True if a table replaces characters or spaces are left out; how far is not known."""
    rules = model.characters
    return rules is not None and (rules.table != "" or rules.remove_spaces)


def specials_in_text(model: Model) -> Mapping[str, int]:
    """Return the special tokens that a tokenizer finds in text, with their ids."""
    return model.special_tokens if isinstance(model, CharBPETokenizer) else model.specials_in_text
