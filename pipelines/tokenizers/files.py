"""A tokenizer's directory on any storage, whatever the tokenizer's unit is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from bpe_core import BPETokenizer, CharBPETokenizer, formats
from bpe_core.model import TokenizerModel
from pipelines.storage.directory import Directory

Model: TypeAlias = TokenizerModel | CharBPETokenizer
Tokenizer: TypeAlias = BPETokenizer | CharBPETokenizer

# What each unit is loaded from.
_ARROW = "tokenizer.arrow"
_CHARACTERS = "char_bpe.json"
TRAINING = "training.json"
_FINGERPRINT = re.compile(r"[0-9a-f]{32}")


def save_tokenizer(
    model: Model, directory: Directory, training: Mapping[str, object] | None = None
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """What `formats.save_tokenizer` does, in a directory of the output.

    Returns:
        The files' entries of the manifest, and why formats were not written, by file.

    Raises:
        OutputError: the storage refuses.
    """
    with directory.output_errors(""), TemporaryDirectory(prefix="beam-bpe-") as local:
        if isinstance(model, CharBPETokenizer):
            not_written = model.save(local, training)
        else:
            not_written = formats.save_tokenizer(model, local, training)
        # Last, the file from which it is loaded: with it the tokenizer is whole.
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
    """The tokenizer in a directory.

    Raises:
        FormatError: its file is malformed.
        FileNotFoundError: there is none.
        OutputError: the storage refuses.
    """
    present = directory.sizes()
    name = _ARROW if _ARROW in present else _CHARACTERS
    if name not in present:
        raise FileNotFoundError(directory.path(_ARROW))
    if directory.is_local:
        return _load(name, directory.url)
    with TemporaryDirectory(prefix="beam-bpe-") as local:
        Path(local, name).write_bytes(directory.read_bytes(name))
        return _load(name, local)


def counts_fingerprint(directory: Directory) -> str | None:
    """The fingerprint of the counts that a tokenizer was trained from, None if it does not say."""
    training = (directory.read_json(TRAINING) or {}).get("training")
    found = training.get("counts") if isinstance(training, dict) else None
    return found if isinstance(found, str) and _FINGERPRINT.fullmatch(found) else None


def _load(name: str, local: str) -> Model:
    return formats.load_tokenizer(local) if name == _ARROW else CharBPETokenizer.load(local)


def tokenizer_of(model: Model) -> Tokenizer:
    """What encodes with it."""
    return model if isinstance(model, CharBPETokenizer) else BPETokenizer.from_model(model)


def cutting_rules(model: Model) -> dict[str, Any]:
    """What decides where long documents are cut for a tokenizer, as `source_readings` takes it."""
    return {
        "pattern": model.pattern,
        "special_tokens": tuple(model.special_tokens),
        # Documents are cut by neither of them where characters are the smallest tokens.
        "normalizer": getattr(model, "normalizer", None),
        "normalize_quotes": getattr(model, "normalize_quotes", False),
    }


def tokenizer_class(model: Model) -> str:
    """The name of the class in `bpe_core` that loads it."""
    return "CharBPETokenizer" if isinstance(model, CharBPETokenizer) else "BPETokenizer"
