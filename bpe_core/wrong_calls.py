"""Errors that name the right call."""

from __future__ import annotations

from typing import Final

__all__ = ["attribute_error", "check_one_text", "package_error", "wrong_text"]

# Names of tiktoken, tokenizers, transformers and SentencePiece, with those of `BPETokenizer`.
_OURS: Final = {
    "tokenize": "encode",
    "encode_as_ids": "encode",
    "batch_encode": "encode_batch",
    "encode_ordinary_batch": 'encode_batch(texts, allowed_special="none")',
    "batch_decode": "decode_batch",
    "get_vocab": "vocab",
    "get_vocab_size": "vocab_size",
    "get_piece_size": "vocab_size",
    "max_token_value": "n_vocab",
    "bos_token_id": "bos_id",
    "eos_token_id": "eos_id",
    "eot_token": "eos_id",
    "convert_tokens_to_ids": "token_to_id",
    "encode_single_token": "token_to_id",
    "piece_to_id": "token_to_id",
    "convert_ids_to_tokens": "id_to_token",
    "id_to_piece": "id_to_token",
    "decode_single_token_bytes": "id_to_bytes",
    "from_file": "load",
    "save_pretrained": "save",
    "to_file": "save",
    "count": "count_tokens",
}


# Names that people look for in the packages themselves.
_OF_PACKAGES: Final[dict[str, dict[str, str]]] = {
    "bpe_core": {
        "Tokenizer": "BPETokenizer",
        "load": "BPETokenizer.load",
        "from_pretrained": "BPETokenizer.from_pretrained",
        "train": "train_bpe for files, train_from_iterator for texts",
    },
    "pipelines": {
        **{name: f"build.{name}" for name in ("add", "count", "encode", "replay", "train")},
        "load": "bpe_core.BPETokenizer.load",
        "BuildConfig": "pipelines.config.BuildConfig",
    },
}


def package_error(package: str, name: str) -> AttributeError:
    """Return the error for a name that a package does not have, with its name there.

    Example:
        >>> str(package_error("bpe_core", "load"))
        "module 'bpe_core' has no attribute 'load'; use BPETokenizer.load"
    """
    ours = _OF_PACKAGES.get(package, {}).get(name)
    use = "" if ours is None else f"; use {ours}"
    return AttributeError(f"module {package!r} has no attribute {name!r}{use}", name=name)


def attribute_error(owner: str, name: str) -> AttributeError:
    """Return the error for a name that a class does not have, with its name here.

    Example:
        >>> str(attribute_error("BPETokenizer", "get_vocab"))
        "'BPETokenizer' has no attribute 'get_vocab'; use vocab"
    """
    ours = f"; use {_OURS[name]}" if name in _OURS else ""
    return AttributeError(f"{owner!r} has no attribute {name!r}{ours}")


def check_one_text(text: object, method: str, batch: str | None = None) -> None:
    """Raise TypeError unless an argument is one text; `batch` is the method for several."""
    if not isinstance(text, (str, bytes, bytearray, memoryview)):
        raise wrong_text(text, method, batch)


def wrong_text(text: object, method: str, batch: str | None = None) -> TypeError:
    """Return the error for an argument that is not one text.

    Example:
        >>> str(wrong_text(["a", "b"], "encode", "encode_batch"))
        'encode takes one str or bytes; for a list use encode_batch'
        >>> str(wrong_text(5, "encode", "encode_batch"))
        'encode takes one str or bytes, found int'
    """
    if batch is not None and isinstance(text, (list, tuple)):
        return TypeError(f"{method} takes one str or bytes; for a list use {batch}")
    return TypeError(f"{method} takes one str or bytes, found {type(text).__name__}")
