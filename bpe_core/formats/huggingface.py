"""tokenizer.json: Hugging Face tokenizers' file, for byte-level BPE.

The vocabulary is in printable stand-ins and has the special tokens too, so that they keep their
ids: the library gives ids of its own choice to added tokens that are not in the vocabulary. The
pre-tokenizer splits by the pattern and then turns bytes into stand-ins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bpe_core.formats.files import (
    CannotHoldError,
    Location,
    built,
    dump_json,
    malformed,
    quoted,
    read_json_object,
    write_file,
)
from bpe_core.formats.gpt2 import (
    bytes_of_entries,
    entries_of,
    is_ordinary,
    merge_of,
    merges_of,
)
from bpe_core.formats.oniguruma import first_difference
from bpe_core.formats.ranks import why_not_ranks
from bpe_core.formats.stand_ins import from_stand_ins, to_stand_ins
from bpe_core.model import TokenizerModel
from bpe_core.patterns import PATTERNS, resolve_pattern

_BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": False,
}
_NAMES = {regex: name for name, regex in reversed(PATTERNS.items())}


def write_huggingface(model: TokenizerModel, location: Location) -> None:
    """Writes tokenizer.json.

    Raises:
        CannotHoldError: the library would give other ids; the message says why.
    """
    write_file(location, huggingface_bytes(model))


def huggingface_bytes(model: TokenizerModel) -> bytes:
    """The contents of tokenizer.json."""
    missing = set(range(256)) - {token[0] for _, token in model.tokens if len(token) == 1}
    if missing:
        raise CannotHoldError(
            f"the byte 0x{min(missing):02X} has no id; Hugging Face leaves such bytes out quietly"
        )
    entries = entries_of(model)
    _check_whole_pretokens(model)
    return dump_json(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [_added_token(*item) for item in model.special_tokens.items()],
            "normalizer": None,
            "pre_tokenizer": _pre_tokenizer(model.pattern),
            "post_processor": None,
            "decoder": {**_BYTE_LEVEL, "use_regex": True},
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": model.ignore_merges,
                "vocab": entries,
                "merges": list(map(list, merges_of(model))),
            },
        }
    )


def read_huggingface(location: Location) -> TokenizerModel:
    """Reads a tokenizer.json of a byte-level BPE tokenizer.

    All added tokens become special tokens. What a post-processor puts around a text is not part
    of the tokenizer: ids are those of `encode(text, add_special_tokens=False)`.

    Raises:
        FormatError: the file is malformed, or has something that would change ids and that this
            package does not do: a normalizer, another model than BPE, dropout, truncation, ….
        OSError: as opening it does.
    """
    root = read_json_object(location)
    for key in ("truncation", "padding", "normalizer"):
        _expect(location, key, root.get(key), None)
    model = _object(location, "model", root.get("model"))
    vocab = _object(location, "model.vocab", model.get("vocab"))
    _check_model(location, model, vocab)
    pattern = _pattern_of(location, root.get("pre_tokenizer"))
    decoder = _object(location, "decoder", root.get("decoder"))
    _expect(location, "decoder.type", decoder.get("type"), "ByteLevel")

    specials = _specials_of(location, root.get("added_tokens") or [], vocab)
    ordinary = bytes_of_entries(location, "model.vocab, ", vocab, specials)
    merges = [
        merge_of(location, f"model.merges[{rank}]", _sides(merge))
        for rank, merge in enumerate(_list(location, "model.merges", model.get("merges")))
    ]
    made = {left + right for left, right in merges}
    for text, token_id in specials.items():
        if text in vocab and is_ordinary(text, made):
            raise malformed(
                location,
                f"added token {text!r}",
                "an id that ordinary text does not get",
                f"id {token_id}, a byte's or a merge's",
            )
    result = built(
        location,
        lambda: TokenizerModel.from_vocab(
            ordinary,
            merges,
            specials,
            pattern=pattern,
            ignore_merges=model.get("ignore_merges", False),
        ),
    )
    return _without_idle_flag(result)


def _added_token(text: str, token_id: int) -> dict[str, object]:
    return {
        "id": token_id,
        "content": text,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }


def _pre_tokenizer(pattern: str) -> dict[str, object]:
    resolved = resolve_pattern(pattern)
    if resolved.name == "none":
        return dict(_BYTE_LEVEL)
    if resolved.name == "gpt2":
        return {**_BYTE_LEVEL, "use_regex": True}
    if resolved.name is None and (difference := first_difference(pattern)) is not None:
        raise CannotHoldError(
            "the custom pattern may mean something else to Hugging Face's regex engine, from "
            f"{difference!r} on"
        )
    split = {
        "type": "Split",
        "pattern": {"Regex": resolved.regex},
        "behavior": "Isolated",
        "invert": False,
    }
    return {"type": "Sequence", "pretokenizers": [split, dict(_BYTE_LEVEL)]}


def _check_whole_pretokens(model: TokenizerModel) -> None:
    """Refuses a special token that a whole pre-token of other bytes would be taken for."""
    if not model.ignore_merges:
        return
    for text in model.special_tokens:
        if from_stand_ins(text) not in (None, text.encode()):
            raise CannotHoldError(
                f"the special token {text!r} is also the stand-ins of {from_stand_ins(text)!r}, "
                "and Hugging Face would give its id to that pre-token (ignore_merges)"
            )


def _check_model(location: Location, model: dict[str, Any], vocab: dict[str, Any]) -> None:
    _expect(location, "model.type", model.get("type", "BPE"), "BPE")
    if model.get("dropout"):
        raise malformed(location, "model.dropout", "null", quoted(model["dropout"]))
    if not isinstance(model.get("ignore_merges", False), bool):
        raise malformed(
            location, "model.ignore_merges", "true or false", quoted(model["ignore_merges"])
        )
    for key in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(key):
            raise malformed(location, f"model.{key}", "null: byte-level tokens", quoted(model[key]))
    missing = [byte for byte in range(256) if to_stand_ins(bytes([byte])) not in vocab]
    if missing:
        # Hugging Face would fall back to unk_token or <0x..> tokens, or leave the byte out.
        raise malformed(
            location,
            "model.vocab",
            "the 256 bytes in printable stand-ins",
            f"none for byte 0x{missing[0]:02X}",
        )


def _pattern_of(location: Location, pre_tokenizer: Any) -> str:
    steps = _object(location, "pre_tokenizer", pre_tokenizer)
    if steps.get("type") == "Sequence":
        members = _list(location, "pre_tokenizer.pretokenizers", steps.get("pretokenizers"))
    else:
        members = [steps]
    chain = [_object(location, "pre_tokenizer", member) for member in members]
    types = [member.get("type") for member in chain]
    if types not in (["ByteLevel"], ["Split", "ByteLevel"]):
        raise malformed(
            location, "pre_tokenizer", "ByteLevel, or Split and ByteLevel", quoted(types)
        )
    byte_level = chain[-1]
    _expect(location, "ByteLevel.add_prefix_space", byte_level.get("add_prefix_space", True), False)
    use_regex = byte_level.get("use_regex", True)
    if len(chain) == 1:
        return "gpt2" if use_regex else "none"
    _expect(location, "ByteLevel.use_regex, after a Split,", use_regex, False)
    return _split_pattern(location, chain[0])


def _split_pattern(location: Location, split: dict[str, Any]) -> str:
    source = _object(location, "Split.pattern", split.get("pattern")).get("Regex")
    if not isinstance(source, str):
        raise malformed(location, "Split.pattern", '{"Regex": ...}', quoted(split.get("pattern")))
    name = _NAMES.get(source)
    behavior = split.get("behavior"), split.get("invert", False)
    # To remove what does not match is to isolate matches, if the pattern matches everything.
    isolates = behavior[0] == "Isolated" or (behavior == ("Removed", True) and name is not None)
    if not isolates:
        raise malformed(location, "Split.behavior and Split.invert", '"Isolated"', quoted(behavior))
    if name is None and (difference := first_difference(source)) is not None:
        raise malformed(
            location,
            "Split.pattern",
            "a known pattern, or one that this package's regex engine reads as Hugging Face's does",
            f"one that may differ from {difference!r} on",
        )
    return name or source


def _specials_of(location: Location, added: Any, vocab: Mapping[str, Any]) -> dict[str, int]:
    """The added tokens with the ids that the library gives them, checked against the stated."""
    specials: dict[str, int] = {}
    normalized = set()
    for i, entry in enumerate(_list(location, "added_tokens", added)):
        where = f"added_tokens[{i}]"
        token = _object(location, where, entry)
        text = token.get("content")
        if not isinstance(text, str) or not text or text in specials:
            raise malformed(location, f"{where}.content", "a text, each once", quoted(text))
        for key in ("single_word", "lstrip", "rstrip"):
            _expect(location, f"{where}.{key}", token.get(key, False), False)
        given = vocab.get(text, max([len(vocab) - 1, *specials.values()]) + 1)
        if token.get("id") != given:
            raise malformed(
                location,
                f"{where}.id of {text!r}",
                f"{given}, which the library gives",
                quoted(token.get("id")),
            )
        specials[text] = given
        normalized.add(bool(token.get("normalized", False)))
    if len(normalized) > 1:
        _check_no_overlap(location, list(specials))
    return specials


def _check_no_overlap(location: Location, texts: list[str]) -> None:
    """The library looks for normalized tokens after the others; that shows where they overlap."""
    whole = set(texts)
    beginnings = {text[:n] for text in texts for n in range(1, len(text) + 1)}
    for text in texts:
        ends = any(text[i:] in beginnings for i in range(1, len(text)))
        parts = (text[i:j] for i in range(len(text)) for j in range(i + 1, len(text) + 1))
        if ends or any(part in whole for part in parts if part != text):
            raise malformed(
                location,
                "added_tokens",
                '"normalized" alike for all, as some overlap',
                f"both, and {text!r} overlaps another",
            )


def _without_idle_flag(model: TokenizerModel) -> TokenizerModel:
    """The model without `ignore_merges` where that changes nothing."""
    if not model.ignore_merges:
        return model
    plain = TokenizerModel(
        token_ids=model.token_ids,
        token_bytes=model.token_bytes,
        merges=model.merges,
        special_tokens=model.special_tokens,
        pattern=model.pattern,
    )
    return plain if why_not_ranks(plain) is None else model


def _sides(merge: Any) -> list[Any]:
    """The sides of a merge written as "a b", or as a list."""
    if isinstance(merge, str):
        return merge.split(" ")
    return merge if isinstance(merge, list) else [merge]


def _object(location: Location, where: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise malformed(location, where, "an object", quoted(value))
    return value


def _list(location: Location, where: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise malformed(location, where, "a list", quoted(value))
    return value


def _expect(location: Location, where: str, value: Any, expected: Any) -> None:
    if value != expected:
        shown = {None: "null", True: "true", False: "false"}.get(expected, repr(expected))
        raise malformed(location, where, shown, quoted(value))
