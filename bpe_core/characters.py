"""Rules of tokenizers whose merges begin with characters, as those of SentencePiece's BPE."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bpe_core._native import Normalizer
from bpe_core.buffers import to_arrow
from bpe_core.errors import InvalidTokenizerError

if TYPE_CHECKING:
    from bpe_core.model import TokenizerModel

__all__ = ["SPACE_SIGN", "CharacterRules", "Prefix"]

SPACE_SIGN = "\u2581"
"""The sign ▁, by which files of such tokenizers write a space."""

Prefix: TypeAlias = Literal["never", "first", "always", "document"]

_LATER: dict[str, Any] = {"table": "", "remove_spaces": False}
# No character has these bytes in UTF-8.
_NOT_IN_UTF8 = frozenset({0xC0, 0xC1, *range(0xF5, 0x100)})


@dataclass(frozen=True, kw_only=True)
class CharacterRules:
    """Rules of a tokenizer that merges characters, where a byte-level one merges bytes.

    A space and the sign ▁ (U+2581) are one character; the tokens have the space. Text between two
    special tokens is a segment.

    Attributes:
        byte_ids: ids of the 256 tokens for single bytes (`<0x00>` … `<0xFF>`), or -1 for a missing
            one: a character that the vocabulary lacks becomes those of its bytes. If empty, such a
            character becomes the model's `unknown_id`.
        fuse_unknown: adjacent characters that become the `unknown_id` become a single one.
        prefix: segments that get a space in front: none, the one at the start of the text, every
            segment, or the start of the text even if a special token is there.
        prefix_before_space: add this space even if the text starts with a space.
        split_spaces: a space starts a pre-token, so that tokens contain spaces only at their start.
        strip_prefix: decoding removes one space at the start of the text.
        hidden_tokens: special tokens that text never becomes, such as SentencePiece's control
            symbols.
        table: SentencePiece's table of characters that are replaced before anything else, in
            base64; empty for a tokenizer without one.
        remove_spaces: spaces at both ends of the text are left out, and all but the first of
            several.
    """

    byte_ids: tuple[int, ...] = ()
    fuse_unknown: bool = False
    prefix: Prefix = "never"
    prefix_before_space: bool = False
    split_spaces: bool = False
    strip_prefix: bool = False
    hidden_tokens: frozenset[str] = frozenset()
    table: str = ""
    remove_spaces: bool = False

    @property
    def normalizer(self) -> Normalizer | None:
        """The native normalizer of `table` and `remove_spaces`; None if they change nothing.

        Raises:
            InvalidTokenizerError: the table is damaged.
        """
        if not self.table and not self.remove_spaces:
            return None
        try:
            return Normalizer.of_table(b64decode(self.table, validate=True), self.remove_spaces)
        except ValueError as error:
            raise InvalidTokenizerError(
                f"character rules, table: expected one of SentencePiece, found another: {error}"
            ) from None

    def puts_space_before(self, segment: bytes, *, at_start: bool) -> bool:
        """Return true if a space is put before a segment of a text that is not empty.

        Args:
            segment: the text between two special tokens; may be empty.
            at_start: the segment begins the text.
        """
        if self.prefix == "never" or not (at_start or self.prefix == "always"):
            return False
        if not segment:
            return self.prefix == "document"
        return self.prefix_before_space or not segment.startswith((b" ", SPACE_SIGN.encode()))

    def to_json(self) -> dict[str, Any]:
        """Return the rules as a JSON object; `from_json` reads it."""
        rules = {**asdict(self), "hidden_tokens": sorted(self.hidden_tokens)}
        # Only where they are set: older tokenizers keep their fingerprints.
        return {name: value for name, value in rules.items() if name not in _LATER or value}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> CharacterRules:
        """Return the rules of a JSON object.

        Raises:
            InvalidTokenizerError: a key is unknown or missing, or a value has another type.
        """
        later = {name: default for name, default in _LATER.items() if name in value}
        defaults = {**CharacterRules().to_json(), **later}
        kinds = {name: type(default) for name, default in defaults.items()}
        lists = {"byte_ids": int, "hidden_tokens": str}
        for name in kinds.keys() | value.keys():
            found = value.get(name)
            kind = list if name in lists else kinds.get(name)
            items_fit = name not in lists or (
                isinstance(found, list) and all(type(item) is lists[name] for item in found)
            )
            if kind is None or type(found) is not kind or not items_fit:
                raise InvalidTokenizerError(
                    f"character rules: expected {sorted(kinds)} with values as in "
                    f"{CharacterRules().to_json()}, found {name!r} with {found!r}"
                )
        rest = {name: found for name, found in value.items() if name not in lists}
        return cls(
            byte_ids=tuple(value["byte_ids"]),
            hidden_tokens=frozenset(value["hidden_tokens"]),
            **rest,
        )

    def check(self, model: TokenizerModel) -> None:
        """Raise InvalidTokenizerError unless the rules fit the other parts of a model."""
        if self.prefix not in get_args(Prefix):
            raise InvalidTokenizerError(
                f"character rules, prefix: expected one of {list(get_args(Prefix))}, found "
                f"{self.prefix!r}"
            )
        if model.pattern != "none" or model.ignore_merges or model.space_rules:
            raise InvalidTokenizerError(
                "character rules: expected the pattern none, without ignore_merges and rules for "
                f"spaces of bytes, found {model.pattern!r}, ignore_merges {model.ignore_merges}, "
                f"{model.space_rules}"
            )
        if unknown := sorted(self.hidden_tokens - model.special_tokens.keys()):
            raise InvalidTokenizerError(
                f"hidden_tokens: expected some of the special tokens, found {unknown[0]!r}"
            )
        if self.normalizer is not None and (
            model.specials_in_text or model.normalizer or model.normalize_quotes
        ):
            raise InvalidTokenizerError(
                "character rules, table and remove_spaces: expected no other normalization, and no "
                f"special tokens that are found in text, found {sorted(model.specials_in_text)}, "
                f"{model.normalizer}, normalize_quotes {model.normalize_quotes}"
            )
        self._check_byte_ids(model)
        self._check_text(model)
        ids = model.byte_ids
        if ids[0x20] < 0 or ids[0x20] in self.byte_ids:
            raise InvalidTokenizerError(
                "character rules: expected a token for the space (▁ in files), found none"
            )
        missing = [byte for byte in range(256) if ids[byte] < 0 and byte not in _NOT_IN_UTF8]
        if self.byte_ids and missing:
            raise InvalidTokenizerError(
                "byte_ids: expected a token for each byte that characters without one consist of, "
                f"found none for 0x{missing[0]:02X}"
            )
        if self.byte_ids:
            return
        if model.unknown_id is None:
            raise InvalidTokenizerError(
                "character rules: expected byte_ids or an unknown_id for characters that have no "
                "token, found neither"
            )
        if model.unknown_id in model.token_ids:
            (token,) = model.bytes_of(np.array([model.unknown_id])).to_pylist()
            if len(token.decode()) == 1 or model.unknown_id in model.merges[:, 2]:
                raise InvalidTokenizerError(
                    f"unknown_id: expected an id that text does not get otherwise, found "
                    f"{model.unknown_id}, which is {token.decode()!r}"
                )

    def _check_byte_ids(self, model: TokenizerModel) -> None:
        if not self.byte_ids:
            return
        ids = np.array(self.byte_ids, np.int64)
        if len(ids) != 256:
            raise InvalidTokenizerError(f"byte_ids: expected 256 ids or none, found {len(ids)}")
        given = np.flatnonzero(ids >= 0)
        found = model.bytes_of(ids[given]).to_pylist()
        for byte, token in zip(given.tolist(), found, strict=True):
            if token != bytes([byte]):
                raise InvalidTokenizerError(
                    f"byte_ids: expected the id of the byte 0x{byte:02X}, found {ids[byte]}, which "
                    f"is {token!r}"
                )
        if np.isin(model.merges, ids[given]).any():
            raise InvalidTokenizerError(
                "byte_ids: expected no merges of the tokens that stand for bytes, found some"
            )

    def _check_text(self, model: TokenizerModel) -> None:
        texts = model.token_bytes.filter(to_arrow(~np.isin(model.token_ids, self.byte_ids)))
        try:
            texts.cast(pa.string())
        except pa.ArrowInvalid as error:
            raise InvalidTokenizerError(
                f"character rules: expected tokens of whole characters, found others: {error}"
            ) from None
        if pc.any(pc.match_substring(texts, SPACE_SIGN.encode())).as_py():
            raise InvalidTokenizerError(
                "character rules: expected tokens with spaces for the sign ▁, found the sign"
            )
