"""Tokenizer directory: every format that can represent the tokenizer, and training.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from bpe_core.buffers import lengths_of
from bpe_core.formats.arrow import arrow_bytes, read_arrow
from bpe_core.formats.files import CannotHoldError, Location, dump_json, join, remove, write_files
from bpe_core.formats.gpt2 import vocab_merges_bytes
from bpe_core.formats.huggingface import huggingface_bytes, tokenizer_config_bytes
from bpe_core.formats.ranks import tiktoken_bytes
from bpe_core.formats.sentencepiece import sentencepiece_bytes
from bpe_core.formats.tiktoken_call import call_name, tiktoken_call
from bpe_core.model import TokenizerModel
from bpe_core.patterns import resolve_pattern

__all__ = ["TOKENIZER_FILES", "load_tokenizer", "save_tokenizer"]

_ARROW = "tokenizer.arrow"


def save_tokenizer(
    model: TokenizerModel, directory: Location, training: Mapping[str, object] | None = None
) -> dict[str, str]:
    """Write a tokenizer in every format of its kind that can represent it.

    tokenizer.arrow, which `load_tokenizer` reads, is written last. Files of formats that cannot
    represent this tokenizer are removed if another tokenizer left them, also a character-level one.

    Args:
        model: The tokenizer.
        directory: The directory, which is made if it does not exist.
        training: Additional content of training.json, JSON values by key; the keys `tokenizer`,
            `files` and `not_written` are reserved.

    Returns:
        The reasons why formats were not written, by the names of their files.

    Raises:
        OSError: A file cannot be written.

    Example:
        >>> model = TokenizerModel.from_tokens([(0, b"a"), (1, b"b"), (2, b"ab")], [(0, 1, 2)])
        >>> save_tokenizer(model, "memory://tokenizer", {"documents": 31102})["tokenizer.tiktoken"]
        'the byte 0x00 has no id; tiktoken fails at a byte without a rank'
    """
    contents: dict[str, bytes] = {}
    not_written: dict[str, str] = {}
    for names, encode in (_OF_BYTES if model.characters is None else _OF_CHARACTERS).items():
        try:
            contents |= zip(names, encode(model), strict=True)
        except CannotHoldError as error:
            not_written[" + ".join(names)] = str(error)
    for main, (name, companion) in _COMPANIONS.items():
        if main in contents:
            try:
                contents[name] = companion(model)
            except CannotHoldError as error:
                not_written[name] = str(error)
    contents["training.json"] = dump_json(
        {
            "tokenizer": _summary(model),
            **(training or {}),
            "files": [_ARROW, *contents],
            "not_written": not_written,
        },
        indent=2,
    )
    contents[_ARROW] = arrow_bytes(model)
    write_files(directory, contents)
    for name in TOKENIZER_FILES - contents.keys():
        remove(join(directory, name))
    return not_written


def load_tokenizer(directory: Location) -> TokenizerModel:
    """Read the tokenizer that `save_tokenizer` wrote.

    Raises:
        FormatError: Its tokenizer.arrow is malformed.
        FileNotFoundError: There is none.
    """
    return read_arrow(join(directory, _ARROW))


_Encoders: TypeAlias = "dict[tuple[str, ...], Callable[[TokenizerModel], tuple[bytes, ...]]]"
_HUGGINGFACE: _Encoders = {("tokenizer.json",): lambda model: (huggingface_bytes(model),)}
_OF_BYTES: _Encoders = {
    **_HUGGINGFACE,
    ("vocab.json", "merges.txt"): vocab_merges_bytes,
    ("tokenizer.tiktoken",): lambda model: (tiktoken_bytes(model),),
}
_OF_CHARACTERS: _Encoders = {
    **_HUGGINGFACE,
    ("tokenizer.model",): lambda model: (sentencepiece_bytes(model),),
}

# Files that libraries require beside the file of a format.
_COMPANIONS: dict[str, tuple[str, Callable[[TokenizerModel], bytes]]] = {
    "tokenizer.json": ("tokenizer_config.json", tokenizer_config_bytes),
    "tokenizer.tiktoken": (
        call_name("tokenizer.tiktoken"),
        lambda model: tiktoken_call(model, "tokenizer.tiktoken"),
    ),
}
# All possible files of a tokenizer directory, byte-level or character-level.
TOKENIZER_FILES = frozenset(
    {_ARROW, "char_bpe.json", "training.json"}
    | {name for names in (_OF_BYTES | _OF_CHARACTERS) for name in names}
    | {name for name, _ in _COMPANIONS.values()}
)


def _summary(model: TokenizerModel) -> dict[str, object]:
    pattern = resolve_pattern(model.pattern)
    return {
        "fingerprint": model.fingerprint,
        "ids": len(model),
        "largest_id": model.max_id,
        "merges": len(model.merges),
        "longest_token_bytes": int(lengths_of(model.token_bytes).max(initial=0)),
        "special_tokens": dict(model.special_tokens),
        "nonspecial_tokens": sorted(model.nonspecial_tokens),
        **(
            {"token_flags": {text: sorted(flags) for text, flags in model.token_flags.items()}}
            if model.token_flags
            else {}
        ),
        "prepend": list(model.prepend),
        "append": list(model.append),
        "pattern": model.pattern,
        "pattern_regex": pattern.regex,
        "unicode_version": pattern.unicode_version,
        "normalizer": model.normalizer,
        "normalize_quotes": model.normalize_quotes,
        **({"characters": model.characters.to_json()} if model.characters else {}),
        **dict.fromkeys(model.space_rules, True),
        "ignore_merges": model.ignore_merges,
        "tie_break": model.tie_break,
        "stop_reason": model.stop_reason,
        "counts_fingerprint": model.counts_fingerprint,
        "training_options": model.training_options,
    }
