"""tekken.json: Mistral's file of ranks, with the pattern and the special tokens.

Ids begin with the special tokens; a rank's id is the rank plus their number. The list of ranks is
longer than the vocabulary: only the first are tokens. Special tokens without a name in the file get
one by their number, as mistral-common gives it.

mistral-common never finds special tokens in a text. Here they are special tokens like others: with
`encode(text, allowed_special="none")` ids are those of mistral-common for any text.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np

from bpe_core.buffers import to_binary
from bpe_core.formats.files import Location, malformed, quoted, read_json_object
from bpe_core.formats.json_values import list_of, object_of
from bpe_core.formats.ranks import MAX_TOKEN_BYTES, model_of_ranks
from bpe_core.model import MAX_ID, TokenizerModel
from bpe_core.patterns import PATTERNS
from bpe_core.split_patterns.syntax import UnsupportedPatternError
from bpe_core.split_patterns.translation import translate

# Special tokens of the first files, which contain none. Later versions of the format must.
_FIRST_SPECIAL_TOKENS: Final = (
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]"),
    *("[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
    "[TOOL_CONTENT]",
)
_LAST_WITHOUT_SPECIAL_TOKENS: Final = 7
_MOST_SPECIAL_TOKENS: Final = 1 << 20


def is_tekken(root: dict[str, Any]) -> bool:
    """Return True if a JSON object is that of a tekken.json."""
    config = root.get("config")
    return isinstance(root.get("vocab"), list) and isinstance(config, dict) and "pattern" in config


def read_tekken(location: Location) -> TokenizerModel:
    """Read a tekken.json.

    Raises:
        FormatError: the file is malformed.
        OSError: as opening it does.
    """
    root = read_json_object(location)
    config = object_of(location, "config", root.get("config"))
    pattern = config.get("pattern")
    if not isinstance(pattern, str) or not pattern:
        raise malformed(location, "config.pattern", "a regular expression", quoted(pattern))
    try:
        pattern = translate(pattern, "fancy_regex", "regex")
    except UnsupportedPatternError as error:
        raise malformed(
            location, "config.pattern", "what a pattern of this package can mean", str(error)
        ) from None
    reserved = _number(location, config, "default_num_special_tokens", _MOST_SPECIAL_TOKENS)
    size = _number(location, config, "default_vocab_size", MAX_ID + 1)
    specials, kept = _special_tokens(location, root, config.get("version"), reserved)
    ranks = list_of(location, "vocab", root.get("vocab"))
    if not 256 <= size - reserved <= len(ranks):
        raise malformed(
            location,
            "config.default_vocab_size",
            f"{reserved} special tokens and 256 to {len(ranks)} of the tokens in vocab",
            str(size),
        )
    tokens = list(_tokens(location, ranks[: size - reserved]))
    model = model_of_ranks(
        location,
        np.arange(reserved, size, dtype=np.int64),
        to_binary(tokens),
        pattern=_NAMES.get(pattern, pattern),
        special_tokens=specials,
    )
    return replace(model, nonspecial_tokens=kept)


_NAMES = {regex: name for name, regex in reversed(PATTERNS.items())}


def _number(location: Location, config: dict[str, Any], key: str, most: int) -> int:
    value = config.get(key)
    if type(value) is not int or not 0 <= value <= most:
        raise malformed(location, f"config.{key}", f"a number from 0 to {most}", quoted(value))
    return value


def _special_tokens(
    location: Location, root: dict[str, Any], version: Any, reserved: int
) -> tuple[dict[str, int], frozenset[str]]:
    """Return all special tokens with their ids, and those that decoding keeps."""
    entries = root.get("special_tokens")
    if entries is None:
        if not _is_first_version(version):
            raise malformed(
                location, "special_tokens", f"a list, in version {quoted(version)}", "none"
            )
        entries = [
            {"rank": rank, "token_str": text, "is_control": True}
            for rank, text in enumerate(_FIRST_SPECIAL_TOKENS)
        ]
    entries = list_of(location, "special_tokens", entries)
    if len(entries) > reserved:
        raise malformed(
            location,
            "special_tokens",
            f"at most {reserved}, as config.default_num_special_tokens says",
            str(len(entries)),
        )
    specials: dict[str, int] = {}
    kept = set()
    for rank, entry in enumerate(entries):
        where = f"special_tokens[{rank}]"
        token = object_of(location, where, entry)
        text = token.get("token_str")
        if not isinstance(text, str) or not text or text in specials:
            raise malformed(location, f"{where}.token_str", "a text, each once", quoted(text))
        if token.get("rank") != rank:
            raise malformed(location, f"{where}.rank", str(rank), quoted(token.get("rank")))
        specials[text] = rank
        if token.get("is_control") is False:
            kept.add(text)
    for rank in range(len(entries), reserved):
        text = f"<SPECIAL_{rank}>"
        if text in specials:
            raise malformed(
                location,
                "special_tokens",
                f"{text} for rank {rank} alone",
                f"rank {specials[text]}",
            )
        specials[text] = rank
    return specials, frozenset(kept)


def _is_first_version(version: Any) -> bool:
    """Return True for versions whose files need not contain special tokens: v1 to v7."""
    number = version.removeprefix("v") if isinstance(version, str) else ""
    return number.isdigit() and int(number) <= _LAST_WITHOUT_SPECIAL_TOKENS


def _tokens(location: Location, ranks: list[Any]) -> Iterator[bytes]:
    seen: set[bytes] = set()
    for rank, entry in enumerate(ranks):
        where = f"vocab[{rank}]"
        token = object_of(location, where, entry)
        if token.get("rank") != rank:
            raise malformed(location, f"{where}.rank", str(rank), quoted(token.get("rank")))
        encoded = token.get("token_bytes")
        try:
            data = binascii.a2b_base64(encoded, strict_mode=True)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            data = b""
        if not 0 < len(data) <= MAX_TOKEN_BYTES:
            raise malformed(
                location,
                f"{where}.token_bytes",
                f"1 to {MAX_TOKEN_BYTES} bytes in base64",
                quoted(encoded),
            )
        if data in seen:
            raise malformed(location, where, "each token once", f"{quoted(data)} again")
        if rank < 256 and data != bytes([rank]):
            raise malformed(location, where, f"the byte 0x{rank:02X}", quoted(data))
        seen.add(data)
        yield data
