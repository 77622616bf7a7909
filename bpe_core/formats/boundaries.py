"""Tokens that begin and end a text, as the tokenizer_config.json beside a tokenizer states them.

`transformers` reads its `bos_token` and `eos_token` from there. They affect no ids.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from bpe_core.formats.files import Location, join, malformed, names_in, quoted, read_json_object
from bpe_core.formats.ranks_config import CONFIG
from bpe_core.model import TokenizerModel

_KEYS: Final = ("bos_token", "eos_token")


def with_boundaries(model: TokenizerModel, location: Location) -> TokenizerModel:
    """Return a model with the boundaries that the file beside its own states, if there is one.

    Only special tokens count, and only if they differ from those that the model has without it.

    Raises:
        FormatError: The file is malformed.
        OSError: It cannot be opened.
    """
    directory = str(location).rpartition("/")[0] or "."
    if CONFIG not in (names_in(directory) or []):
        return model
    config = join(directory, CONFIG)
    root = read_json_object(config)
    stated = {key: _text(config, key, root.get(key)) for key in _KEYS}
    known = {"bos_token": model.bos_id, "eos_token": model.eos_id}
    changed: dict[str, Any] = {
        key: text
        for key, text in stated.items()
        if text in model.special_tokens and model.special_tokens[text] != known[key]
    }
    return replace(model, **changed) if changed else model


def _text(location: Location, key: str, value: Any) -> str:
    """Return the text of a token, which may be an object with its flags; "" for null."""
    text = value.get("content") if isinstance(value, dict) else value
    if text is None:
        return ""
    if not isinstance(text, str):
        raise malformed(location, key, "a text, an object with its content, or null", quoted(value))
    return text
