"""tokenizer.json: Hugging Face tokenizers' file, for BPE of bytes or of characters.

The vocabulary of a byte-level tokenizer is in printable stand-ins and has the special tokens too,
so that they keep their ids: the library gives ids of its own choice to added tokens that are not in
the vocabulary. The pre-tokenizer splits by the pattern and then turns bytes into stand-ins.

`formats/characters.py` has what is different if merges are of characters.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bpe_core.buffers import concatenate, flatten
from bpe_core.characters import CharacterRules
from bpe_core.formats.characters import (
    CharacterTokens,
    decoder_of,
    entries_of_characters,
    merges_characters,
    pre_tokenizer_of_characters,
    rules_of,
    space_steps,
)
from bpe_core.formats.files import (
    CannotHoldError,
    Location,
    built,
    dump_json,
    malformed,
    quoted,
    write_file,
)
from bpe_core.formats.gpt2 import (
    OrdinaryTokens,
    is_ordinary,
    texts_of,
)
from bpe_core.formats.json_values import expect, list_of, object_of, steps_of
from bpe_core.formats.merges import FileMerges, read_tokenizer_json
from bpe_core.formats.pre_tokenizer import BYTE_LEVEL, Splitting, pre_tokenizer_of, splitting_of
from bpe_core.formats.ranks import makes_its_tokens
from bpe_core.formats.template import around_of, post_processor_of
from bpe_core.formats.token_texts import TokenTexts
from bpe_core.model import TokenizerModel
from bpe_core.normalization import QUOTES
from bpe_core.special_tokens import TOKEN_FLAGS
from bpe_core.stand_ins import from_stand_ins, to_stand_ins

_END_OF_TEXT = "<|endoftext|>"
_NORMALIZERS = {"NFC": "nfc", "NFKC": "nfkc"}
# The effect of `normalize_quotes` as the library's steps.
_QUOTE_STEPS: list[dict[str, Any]] = [
    {
        "type": "Replace",
        "pattern": {"Regex": "[" + "".join(q for q, to in QUOTES.items() if to == target) + "]"},
        "content": target,
    }
    for target in ("'", '"')
]
# Comparing added tokens takes time proportional to the sum of the squares of their lengths.
_MOST_COMPARED = 20_000_000


_MODEL: dict[str, Any] = {
    "type": "BPE",
    "dropout": None,
    "unk_token": None,
    "continuing_subword_prefix": None,
    "end_of_word_suffix": None,
    "fuse_unk": False,
    "byte_fallback": False,
    "ignore_merges": False,
}


def write_huggingface(model: TokenizerModel, location: Location) -> None:
    """Write tokenizer.json.

    Raises:
        CannotHoldError: The library would give other ids; the message contains the reason.
    """
    write_file(location, huggingface_bytes(model))


def huggingface_bytes(model: TokenizerModel) -> bytes:
    """Return the contents of tokenizer.json."""
    rules = model.characters
    written = _bytes_json(model) if rules is None else _characters_json(model, rules)
    root = dump_json(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [
                _added_token(
                    text, i, text not in model.nonspecial_tokens, model.token_flags.get(text, ())
                )
                for text, i in model.specials_in_text.items()
            ],
            "normalizer": None,
            "pre_tokenizer": None,
            "post_processor": post_processor_of(model, written.around),
            **written.steps,
            "model": {**_MODEL, **written.settings},
        }
    )
    # The model comes last, and these two come last in the model.
    vocab, merges = written.texts.vocabulary_json(), written.texts.merges_json()
    return b'%b, "vocab": %b, "merges": %b}}\n' % (root.removesuffix(b"}}\n"), vocab, merges)


@dataclass(frozen=True, kw_only=True)
class _Written:
    """The parts of tokenizer.json that differ between merges of bytes and of characters.

    Attributes:
        steps: The steps around the model, by their keys.
        settings: Settings of the model that differ from `_MODEL`.
        texts: The texts of all tokens.
        around: Texts of the tokens that belong around a text, by id.
    """

    steps: dict[str, Any]
    settings: dict[str, Any]
    texts: TokenTexts
    around: Mapping[int, str]


def _bytes_json(model: TokenizerModel) -> _Written:
    missing = np.flatnonzero(model.byte_ids < 0)
    if len(missing):
        raise CannotHoldError(
            f"the byte 0x{missing[0]:02X} has no id; Hugging Face leaves such bytes out quietly"
        )
    texts = texts_of(model)
    _check_whole_pretokens(model)
    splitting = Splitting(model.pattern, model.prefix_space, model.drop_white_space)
    return _Written(
        steps={
            "normalizer": _normalizer_json(_unicode_steps(model)),
            "pre_tokenizer": pre_tokenizer_of(splitting),
            "decoder": {**BYTE_LEVEL, "use_regex": True},
        },
        settings={"ignore_merges": model.ignore_merges},
        texts=texts,
        around={i: text for text, i in model.special_tokens.items()},
    )


def _characters_json(model: TokenizerModel, rules: CharacterRules) -> _Written:
    texts = entries_of_characters(model, rules)
    found = model.specials_in_text
    ordinary = concatenate([texts[i].encode() for i in model.token_ids.tolist()])
    return _Written(
        steps={
            "normalizer": _normalizer_json([*_unicode_steps(model), *space_steps(rules, found)]),
            "pre_tokenizer": pre_tokenizer_of_characters(rules, found),
            "decoder": decoder_of(rules),
        },
        settings={
            "unk_token": None if model.unknown_id is None else texts.get(model.unknown_id),
            "fuse_unk": rules.fuse_unknown,
            "byte_fallback": bool(rules.byte_ids),
        },
        texts=TokenTexts.of(model, *ordinary),
        around=texts,
    )


def tokenizer_config_bytes(model: TokenizerModel) -> bytes:
    """Return the contents of tokenizer_config.json, where `transformers` finds bos and eos.

    They are those that the model states, or the tokens that are put before and after a text. If
    none is put after it, `<|endoftext|>` is the eos if there is such a special token.
    """
    texts = {i: text for text, i in model.special_tokens.items()}
    config: dict[str, object] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,  # true would remove spaces when decoding
    }
    if len(model.prepend) == 1 and (bos := texts.get(model.prepend[0])):
        config["bos_token"] = bos
    if len(model.append) == 1 and (eos := texts.get(model.append[0])):
        config["eos_token"] = eos
    elif not model.append and _END_OF_TEXT in model.special_tokens:
        config["eos_token"] = _END_OF_TEXT
    stated = {"bos_token": model.bos_token, "eos_token": model.eos_token}
    config |= {key: text for key, text in stated.items() if text is not None}
    return dump_json(config, indent=2)


def read_huggingface(location: Location) -> TokenizerModel:
    """Read a tokenizer.json of a BPE tokenizer, of bytes or of characters.

    All added tokens become special tokens; those with `"special": false` are the model's
    `nonspecial_tokens`. The tokens that a template puts around a text are its `prepend` and
    `append`, which encoding leaves out: ids are those of `encode(text, add_special_tokens=False)`.

    Raises:
        FormatError: The file is malformed, or contains something that would change ids and that
            this package does not support: another normalizer than NFC and NFKC, another model than
            BPE, dropout, truncation, ….
        OSError: The file cannot be opened.
    """
    root, merges = read_tokenizer_json(location)
    for key, instead in (("truncation", "cut"), ("padding", "pad")):
        if root.get(key) is not None:
            raise malformed(
                location,
                key,
                f"null, as encode gives the ids of the whole text and no others; set it to null in "
                f"the file, and {instead} the ids yourself",
                quoted(root[key]),
            )
    model = object_of(location, "model", root.get("model"))
    vocab = object_of(location, "model.vocab", model.get("vocab"))
    added = list_of(location, "added_tokens", root.get("added_tokens") or [])
    specials = _specials_of(location, added, vocab)
    read = _read_characters if merges_characters(root) else _read_bytes
    parts = read(location, root, model, vocab, specials, merges)
    known = {*specials.values(), *(parts["token_ids"].tolist() if "characters" in parts else ())}
    parts["prepend"], parts["append"] = around_of(location, root.get("post_processor"), known)
    normalizer = root.get("normalizer")
    if normalizer is not None and not steps_of(location, "normalizer", normalizer, "normalizers"):
        normalizer = None
    parts["token_flags"] = _flags_of(location, added, normalizer, "characters" in parts)
    parts["nonspecial_tokens"] = frozenset(
        token["content"] for token in added if not token.get("special", False)
    )
    return built(location, lambda: TokenizerModel(**parts))


def _read_bytes(
    location: Location,
    root: dict[str, Any],
    model: dict[str, Any],
    vocab: dict[str, Any],
    specials: dict[str, int],
    merges: FileMerges,
) -> dict[str, Any]:
    _check_model(location, model)
    _check_bytes(location, vocab)
    splitting = splitting_of(location, root.get("pre_tokenizer"))
    _check_decoder(location, root.get("decoder"))
    normalizer, normalize_quotes = _normalizer_of(location, root.get("normalizer"))
    _check_apart(location, specials, vocab, ())
    tokens = OrdinaryTokens.of_entries(
        location, "model.vocab, ", vocab, specials, leave_out_others=True
    )
    rows = merges.find_rows(*flatten(tokens.tokens), tokens.ids, stand_ins=True)
    if rows is None:
        _check_apart(location, specials, vocab, merges.sides)
        rows = tokens.merges_of(location, merges.sides, lambda rank: f"model.merges[{rank}]")
    return {
        "token_ids": tokens.ids,
        "token_bytes": tokens.tokens,
        "merges": rows,
        "special_tokens": specials,
        **splitting._asdict(),
        # Left out where it changes nothing.
        "ignore_merges": model.get("ignore_merges", False)
        and not makes_its_tokens(tokens.ids, tokens.tokens, rows),
        "normalizer": normalizer,
        "normalize_quotes": normalize_quotes,
    }


def _read_characters(
    location: Location,
    root: dict[str, Any],
    model: dict[str, Any],
    vocab: dict[str, Any],
    specials: dict[str, int],
    merges: FileMerges,
) -> dict[str, Any]:
    _check_model(location, model)
    for key in ("ignore_merges", "byte_fallback", "fuse_unk"):
        allowed = (False,) if key == "ignore_merges" else (False, True)
        expect(location, f"model.{key}", model.get(key, False), *allowed)
    unknown = model.get("unk_token")
    if unknown is not None and not isinstance(unknown, str):
        raise malformed(location, "model.unk_token", "a token or null", quoted(unknown))
    tokens = CharacterTokens.of_entries(
        location, vocab, merges, specials, byte_fallback=model.get("byte_fallback", False)
    )
    rules, others = rules_of(location, root, model, tokens.byte_ids)
    normalizer, normalize_quotes = _normalizer_of(
        location, {"type": "Sequence", "normalizers": others}
    )
    return {
        "token_ids": tokens.ids,
        "token_bytes": tokens.tokens,
        "merges": tokens.merges,
        "special_tokens": specials,
        "pattern": "none",
        "normalizer": normalizer,
        "normalize_quotes": normalize_quotes,
        "unknown_id": None if unknown is None else vocab.get(unknown),
        "characters": rules,
    }


def _added_token(
    text: str, token_id: int, special: bool, flags: Collection[str]
) -> dict[str, object]:
    return {
        "id": token_id,
        "content": text,
        **{flag: flag in flags for flag in ("single_word", "lstrip", "rstrip", "normalized")},
        "special": special,
    }


def _unicode_steps(model: TokenizerModel) -> list[dict[str, Any]]:
    forms = [{"type": type_} for type_, form in _NORMALIZERS.items() if form == model.normalizer]
    return [*forms, *(_QUOTE_STEPS if model.normalize_quotes else [])]


def _normalizer_json(steps: list[dict[str, Any]]) -> dict[str, Any] | None:
    if not steps:
        return None
    return steps[0] if len(steps) == 1 else {"type": "Sequence", "normalizers": steps}


def _normalizer_of(location: Location, normalizer: Any) -> tuple[str | None, bool]:
    """Return the Unicode normalization form, and True if `normalize_quotes` follows it."""
    if normalizer is None:
        return None, False
    steps = steps_of(location, "normalizer", normalizer, "normalizers")
    quotes = steps[-len(_QUOTE_STEPS) :] == _QUOTE_STEPS
    types = [step.get("type") for step in steps[: -len(_QUOTE_STEPS) if quotes else None]]
    if not types:
        return None, quotes
    if len(types) > 1 or types[0] not in list(_NORMALIZERS):
        raise malformed(location, "normalizer", "null, NFC or NFKC", quoted(types))
    return _NORMALIZERS[types[0]], quotes


def _flags_of(
    location: Location, added: list[Any], normalizer: Any, merges_characters: bool
) -> dict[str, frozenset[str]]:
    """Return the flags of added tokens; `normalized` where it matters.

    The library looks for normalized tokens in normalized text, after the others.
    """
    flags = {
        token["content"]: frozenset(flag for flag in TOKEN_FLAGS if token.get(flag, False))
        for token in added
    }
    by_kind: dict[bool, list[str]] = {False: [], True: []}
    for text, names in flags.items():
        by_kind["normalized" in names].append(text)
    is_plain = normalizer is None and not set().union(*flags.values()) - {"normalized"}
    if is_plain and not _overlap(by_kind[False], by_kind[True]):
        return {}
    if not by_kind[True]:
        return {text: names for text, names in flags.items() if names}
    if merges_characters:
        raise malformed(
            location,
            f"added_tokens, 'normalized' of {quoted(by_kind[True][0])}",
            "false, as special tokens are found in the text before spaces become signs",
            "True",
        )
    return {text: names for text, names in flags.items() if names}


def _check_whole_pretokens(model: TokenizerModel) -> None:
    """Refuse a special token whose text equals the stand-ins of other bytes.

    With `ignore_merges`, Hugging Face would give its id to a pre-token of these bytes.
    """
    if not model.ignore_merges:
        return
    for text in model.special_tokens:
        if from_stand_ins(text) not in (None, text.encode()):
            raise CannotHoldError(
                f"the special token {text!r} is also the stand-ins of {from_stand_ins(text)!r}, "
                "and Hugging Face would give its id to that pre-token (ignore_merges)"
            )


def _check_decoder(location: Location, decoder: Any) -> None:
    """Check that a decoder, which may be missing, only decodes bytes."""
    if decoder is not None:
        for step in steps_of(location, "decoder", decoder, "decoders"):
            expect(location, "decoder.type", step.get("type"), "ByteLevel")


def _check_model(location: Location, model: dict[str, Any]) -> None:
    expect(location, "model.type", model.get("type", "BPE"), "BPE")
    if model.get("dropout"):
        raise malformed(location, "model.dropout", "null", quoted(model["dropout"]))
    if not isinstance(model.get("ignore_merges", False), bool):
        raise malformed(
            location, "model.ignore_merges", "true or false", quoted(model["ignore_merges"])
        )
    for key in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(key):
            raise malformed(
                location,
                f"model.{key}",
                "null: byte-level tokens, or SentencePiece's",
                quoted(model[key]),
            )


def _check_bytes(location: Location, vocab: dict[str, Any]) -> None:
    missing = [byte for byte in range(256) if to_stand_ins(bytes([byte])) not in vocab]
    if missing:
        # Hugging Face would fall back to unk_token or <0x..> tokens, or drop the byte.
        raise malformed(
            location,
            "model.vocab",
            "the 256 bytes in printable stand-ins",
            f"none for byte 0x{missing[0]:02X}",
        )


def _specials_of(location: Location, added: list[Any], vocab: Mapping[str, Any]) -> dict[str, int]:
    """Return the added tokens with the library's ids, checked against the file's."""
    specials: dict[str, int] = {}
    largest = len(vocab) - 1
    for i, entry in enumerate(added):
        where = f"added_tokens[{i}]"
        token = object_of(location, where, entry)
        text = token.get("content")
        if not isinstance(text, str) or not text or text in specials:
            raise malformed(location, f"{where}.content", "a text, each once", quoted(text))
        for key in (*TOKEN_FLAGS, "special"):
            expect(location, f"{where}.{key} of {text!r}", token.get(key, False), False, True)
        given = vocab.get(text, largest + 1)
        if type(given) is not int or token.get("id") != given:
            raise malformed(
                location,
                f"{where}.id of {text!r}",
                f"{given}, which the library gives",
                quoted(token.get("id")),
            )
        largest = max(largest, given)
        specials[text] = given
    return specials


def _overlap(plain: list[str], normalized: list[str]) -> bool:
    """Return true if texts of the two lists can overlap, or if they are too many to compare."""
    if not plain or not normalized:
        return False
    if sum(len(text) ** 2 for text in plain + normalized) > _MOST_COMPARED:
        return True
    for one, other in ((plain, normalized), (normalized, plain)):
        whole = set(one)
        beginnings = {text[:n] for text in one for n in range(1, len(text) + 1)}
        for text in other:
            ends = any(text[i:] in beginnings for i in range(len(text)))
            parts = (text[i:j] for i in range(len(text)) for j in range(i + 1, len(text) + 1))
            if ends or any(part in whole for part in parts):
                return True
    return False


def _check_apart(
    location: Location, specials: Mapping[str, int], vocab: Mapping[str, Any], merges: Sequence[Any]
) -> None:
    """Refuse an added token that ordinary text can also become."""
    # Only these can be the result of a merge.
    asked = {text for text in specials if text in vocab and from_stand_ins(text) is not None}
    try:
        made = asked.intersection(map("".join, merges))
    except TypeError:
        made = set()  # a merge without texts is reported where merges are read
    for text in asked:
        if is_ordinary(text, made):
            raise malformed(
                location,
                f"added token {text!r}",
                "an id that ordinary text does not get",
                f"id {specials[text]}, a byte's or a merge's",
            )
