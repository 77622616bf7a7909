"""SentencePiece's `.model`: pieces with scores, of BPE.

The file is a Protocol Buffer (`ModelProto`) with the pieces, whose places are their ids, and with
how text is normalized. Encoding joins the two neighbours that make the piece of the highest score,
of equal ones the leftmost. As with ranks, each piece has one last join (see `formats/ranks.py`), so
merges by pairs say the same.

- Normal pieces are ordinary tokens. Byte pieces stand for the bytes of characters that have no
  piece; without them these become the unknown piece, several in a row once.
- User-defined pieces are special tokens, which text becomes. It never becomes control pieces and
  the unknown piece.
- `add_dummy_prefix` puts a space before the text.
- A table (`nmt_nfkc` and others) replaces characters before that, and `remove_extra_whitespaces`
  leaves out spaces. Both are applied if no pieces are user-defined, which would be left alone.

What changes ids in another way is refused by name: another model than BPE, unused pieces.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from bpe_core.character_encoding import bytes_of_text, merges_of_pieces
from bpe_core.characters import SPACE_SIGN, CharacterRules
from bpe_core.formats.characters import BYTE_TOKENS, entries_of_characters
from bpe_core.formats.files import (
    CannotHoldError,
    Location,
    built,
    malformed,
    quoted,
    read_bytes,
    write_file,
)
from bpe_core.formats.protobuf import Field, WireError, fields_of, message
from bpe_core.model import TokenizerModel

__all__ = ["is_sentencepiece", "read_sentencepiece", "sentencepiece_bytes", "write_sentencepiece"]

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)
_KINDS = {_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE}
_MODEL_TYPES = {1: "Unigram", 2: "BPE", 3: "Word", 4: "Char"}
_BPE = 2

# Numbers of fields: of the model, of a piece, of the trainer's and of the normalizer's settings.
_PIECES, _TRAINER, _NORMALIZER, _DENORMALIZER = 1, 2, 3, 5
_TEXT, _SCORE, _KIND = 1, 2, 3
_MODEL_TYPE, _VOCAB_SIZE, _SPACE_BEHIND, _BYTE_FALLBACK = 3, 4, 24, 35
_IDS = {"unk": 40, "bos": 41, "eos": 42, "pad": 43}
_NAMES = {"unk": 45, "bos": 46, "eos": 47, "pad": 48}
_NAME, _TABLE, _PREFIX, _REMOVE_SPACES, _ESCAPE_SPACES = 1, 2, 3, 4, 5
_ABSENT = (1 << 64) - 1  # -1 as a number of the format
_PIECE_DEFAULTS: dict[int, Any] = {_TEXT: b"", _SCORE: 0.0, _KIND: _NORMAL}


_Settings: TypeAlias = "dict[int, int | float | bytes]"


@dataclass(frozen=True, slots=True)
class _Piece:
    text: str
    score: float = 0.0
    kind: int = _NORMAL


@dataclass(frozen=True, slots=True)
class _Normalizer:
    table: bytes
    has_prefix: bool
    remove_spaces: bool


def is_sentencepiece(data: bytes) -> bool:
    """Return true if the bytes begin as those of a `.model`: with two short pieces."""
    return data[:1] == b"\n" == data[2:3] and data[2 + data[1] : 3 + data[1]] == b"\n"


def read_sentencepiece(location: Location) -> TokenizerModel:
    """Read a `.model` of SentencePiece.

    Raises:
        FormatError: The file is malformed, or contains something that would change ids and that
            this package does not support; the message names it.
        OSError: The file cannot be opened.
    """
    try:
        fields = list(fields_of(read_bytes(location)))
        settings: dict[int, _Settings] = {_TRAINER: {}, _NORMALIZER: {}, _DENORMALIZER: {}}
        pieces: list[_Piece] = []
        for number, value in fields:
            if number in settings and isinstance(value, bytes):
                settings[number] |= fields_of(value)
            elif number == _PIECES:
                pieces.append(_piece_of(location, len(pieces), value))
    except WireError as error:
        raise malformed(location, "", "SentencePiece's Protocol Buffer", str(error)) from None
    byte_fallback = _check_trainer(location, settings[_TRAINER])
    normalizer = _check_normalizer(location, settings[_NORMALIZER], settings[_DENORMALIZER])
    _check_pieces(location, pieces, byte_fallback=byte_fallback)
    defined = [piece.text for piece in pieces if piece.kind == _USER_DEFINED]
    if defined and (normalizer.table or normalizer.remove_spaces):
        name = "normalizer" if normalizer.table else "remove_extra_whitespaces"
        raise malformed(
            location,
            name,
            "none beside user-defined pieces, which it leaves alone",
            f"one, and {quoted(defined[0])}",
        )
    return built(location, lambda: _model_of(pieces, normalizer))


def write_sentencepiece(model: TokenizerModel, location: Location) -> None:
    """Write a `.model` for SentencePiece.

    Raises:
        CannotHoldError: The library would give other ids; the message contains the reason.
    """
    write_file(location, sentencepiece_bytes(model))


def sentencepiece_bytes(model: TokenizerModel) -> bytes:
    """Return the contents of a `.model`."""
    rules = model.characters
    if rules is None:
        raise CannotHoldError("its merges are of bytes, and SentencePiece's are of characters")
    _check_can_hold(model, rules)
    pieces = _pieces_of(model, rules)
    has_prefix = rules.prefix != "never"
    steps = _Normalizer(b64decode(rules.table), has_prefix, rules.remove_spaces)
    if not np.array_equal(_model_of(pieces, steps).merges, model.merges):
        raise CannotHoldError(
            "SentencePiece joins by the scores of results, of which each has one, and that would "
            "be other merges than the tokenizer's"
        )
    trainer: list[Field] = [
        (_MODEL_TYPE, _BPE),
        (_VOCAB_SIZE, len(pieces)),
        (_BYTE_FALLBACK, int(bool(rules.byte_ids))),
    ]
    unknown = () if model.unknown_id is None else (model.unknown_id,)
    around = {"unk": unknown, "bos": model.prepend, "eos": model.append, "pad": ()}
    for name, ids in around.items():
        trainer.append((_IDS[name], ids[0] if len(ids) == 1 else _ABSENT))
        if len(ids) == 1:
            trainer.append((_NAMES[name], pieces[ids[0]].text.encode()))
    normalizer: list[Field] = [
        (_NAME, b"user_defined" if steps.table else b"identity"),
        *([(_TABLE, steps.table)] if steps.table else []),
        (_PREFIX, int(has_prefix)),
        (_REMOVE_SPACES, int(steps.remove_spaces)),
        (_ESCAPE_SPACES, 1),
    ]
    written = [
        message([(_TEXT, piece.text.encode()), (_SCORE, piece.score), (_KIND, piece.kind)])
        for piece in pieces
    ]
    fields: list[Field] = [(_PIECES, piece) for piece in written]
    return message([*fields, (_TRAINER, message(trainer)), (_NORMALIZER, message(normalizer))])


def _piece_of(location: Location, number: int, value: int | float | bytes) -> _Piece:
    fields = dict(fields_of(value)) if isinstance(value, bytes) else {}
    text, score, kind = (fields.get(key, default) for key, default in _PIECE_DEFAULTS.items())
    if isinstance(text, bytes) and isinstance(score, float) and kind in _KINDS:
        try:
            return _Piece(text.decode(), score, kind)
        except UnicodeDecodeError:
            pass
    raise malformed(
        location, f"piece {number}", "a text with its score and its type", quoted(fields or value)
    )


def _check_trainer(location: Location, trainer: _Settings) -> bool:
    """Return `byte_fallback`, if the model is of BPE."""
    found = trainer.get(_MODEL_TYPE, 1)
    if found != _BPE:
        raise malformed(
            location,
            "model_type",
            "BPE, which joins pieces",
            _MODEL_TYPES.get(found, quoted(found)) if isinstance(found, int) else quoted(found),
        )
    _expect(location, "treat_whitespace_as_suffix", trainer.get(_SPACE_BEHIND, 0), 0)
    return bool(_expect(location, "byte_fallback", trainer.get(_BYTE_FALLBACK, 0), 0, 1))


def _check_normalizer(
    location: Location, normalizer: _Settings, denormalizer: _Settings
) -> _Normalizer:
    if denormalizer.get(_TABLE):
        raise malformed(
            location,
            "denormalizer",
            "identity: no table of characters to be replaced",
            quoted(denormalizer.get(_NAME, b"")),
        )
    table = normalizer.get(_TABLE, b"")
    if not isinstance(table, bytes):
        raise malformed(location, "normalizer", "a table of characters", quoted(table))
    removes = _expect(location, "remove_extra_whitespaces", normalizer.get(_REMOVE_SPACES, 1), 0, 1)
    _expect(location, "escape_whitespaces", normalizer.get(_ESCAPE_SPACES, 1), 1)
    prefix = _expect(location, "add_dummy_prefix", normalizer.get(_PREFIX, 1), 0, 1)
    return _Normalizer(table, bool(prefix), bool(removes))


def _expect(location: Location, name: str, found: object, *expected: int) -> object:
    if found not in expected:
        wanted = " or ".join("true" if value else "false" for value in expected)
        shown = {0: "false", 1: "true"}.get(found) if isinstance(found, int) else None
        raise malformed(location, name, wanted, shown or quoted(found))
    return found


def _check_pieces(location: Location, pieces: list[_Piece], *, byte_fallback: bool) -> None:
    numbers: dict[str, int] = {}
    for number, piece in enumerate(pieces):
        text, where = piece.text, f"piece {number}, {piece.text!r}"
        first = numbers.setdefault(text, number)
        if not text or first != number:
            found = f"the text of piece {first} again" if text else "none"
            raise malformed(location, where, "a text of its own", found)
        if piece.kind == _UNUSED:
            raise malformed(location, where, "a piece that is used", "one of the type unused")
        if piece.kind == _BYTE and not (byte_fallback and text in BYTE_TOKENS):
            raise malformed(location, where, "a byte as <0x00>, with byte_fallback", quoted(text))
        if piece.kind in (_CONTROL, _UNKNOWN) and len(text) == 1:
            raise malformed(
                location, where, "more than one character: text never becomes it", quoted(text)
            )
        if " " in text or (piece.kind == _USER_DEFINED and SPACE_SIGN in text):
            expected = "no space and no ▁, as it is found before spaces change"
            raise malformed(location, where, expected, quoted(text))
    unknown = sum(piece.kind == _UNKNOWN for piece in pieces)
    if unknown != 1:
        raise malformed(location, "pieces", "one of the type unknown", str(unknown))
    _check_scores(location, [p for p in pieces if p.kind == _NORMAL and len(p.text) > 1])


def _check_scores(location: Location, joined: list[_Piece]) -> None:
    """Refuse pieces of equal scores unless they are runs of a character that is never doubled else.

    Of equal scores the leftmost join comes first. In a run of characters that is the longest one:
    to the left of what has grown nothing can be joined, to the right are only single characters.
    """
    by_score: dict[float, list[str]] = {}
    for piece in joined:
        by_score.setdefault(piece.score, []).append(piece.text)
    tied = {text for texts in by_score.values() if len(texts) > 1 for text in texts}
    doubled = {
        text[i]
        for text in {piece.text for piece in joined} - tied
        for i in range(1, len(text))
        if text[i - 1] == text[i]
    }
    for piece in joined:
        is_run = len(set(piece.text)) == 1 and piece.text[0] not in doubled
        if math.isnan(piece.score) or (piece.text in tied and not is_run):
            others = [text for text in by_score.get(piece.score, []) if text != piece.text]
            raise malformed(
                location,
                f"piece {piece.text!r}",
                "a score of its own",
                f"{piece.score}" + (f", that of {others[0]!r}" if others else ""),
            )


def _model_of(pieces: list[_Piece], normalizer: _Normalizer) -> TokenizerModel:
    has_prefix = normalizer.has_prefix
    ids = {
        kind: {piece.text: i for i, piece in enumerate(pieces) if piece.kind == kind}
        for kind in _KINDS
    }
    normal, substitutes = ids[_NORMAL], ids[_BYTE]
    hidden = ids[_UNKNOWN] | ids[_CONTROL]
    (unknown_id,) = ids[_UNKNOWN].values()
    tokens = [(i, bytes_of_text(text)) for text, i in normal.items()]
    tokens += [(i, bytes([int(text[3:5], 16)])) for text, i in substitutes.items()]
    by_score = sorted(
        (text for text in normal if len(text) > 1),
        key=lambda text: (-pieces[normal[text]].score, -len(text)),
    )
    return TokenizerModel.from_tokens(
        tokens,
        merges_of_pieces(normal, by_score),
        special_tokens=hidden | ids[_USER_DEFINED],
        nonspecial_tokens=ids[_USER_DEFINED],
        pattern="none",
        unknown_id=unknown_id,
        characters=CharacterRules(
            byte_ids=tuple(substitutes.get(text, -1) for text in BYTE_TOKENS)
            if substitutes
            else (),
            fuse_unknown=True,
            prefix="document" if has_prefix else "never",
            prefix_before_space=has_prefix,
            strip_prefix=has_prefix,
            hidden_tokens=frozenset(hidden),
            table=b64encode(normalizer.table).decode(),
            remove_spaces=normalizer.remove_spaces,
        ),
    )


def _check_can_hold(model: TokenizerModel, rules: CharacterRules) -> None:
    """Raise CannotHoldError if the format has no words for a rule."""
    found = model.specials_in_text
    is_document = rules.prefix == "document" or not found
    reasons = {
        "text is normalized": model.normalizer is not None or model.normalize_quotes,
        "a space always begins a token": rules.split_spaces,
        "a space is put before some texts only, or before text after special tokens": (
            rules.prefix != "never" and not (rules.prefix_before_space and is_document)
        ),
        "not every byte has a token": -1 in rules.byte_ids,
        "several unknown characters become several ids": (
            not rules.byte_ids and not rules.fuse_unknown
        ),
        "it has no token for the unknown that text never becomes": (
            model.unknown_id not in {model.special_tokens[text] for text in rules.hidden_tokens}
        ),
        "a special token that is found in text has a space": any(
            character in text for text in found for character in (" ", SPACE_SIGN)
        ),
    }
    if reason := next((reason for reason, holds in reasons.items() if holds), None):
        raise CannotHoldError(f"{reason}, which SentencePiece's format cannot say")


def _pieces_of(model: TokenizerModel, rules: CharacterRules) -> list[_Piece]:
    texts = entries_of_characters(model, rules)
    if list(texts) != list(range(len(texts))):
        raise CannotHoldError("ids are places in SentencePiece's format, and these have gaps")
    kinds = dict.fromkeys(rules.byte_ids, _BYTE)
    for text, i in model.special_tokens.items():
        kinds[i] = _CONTROL if text in rules.hidden_tokens else _USER_DEFINED
    if model.unknown_id is not None:
        kinds[model.unknown_id] = _UNKNOWN
    ranks = {result: rank for rank, result in enumerate(model.merges[:, 2].tolist())}
    # Pieces that nothing makes come after all others.
    return [
        _Piece(
            text, 0.0 if i in kinds else -float(ranks.get(i, len(ranks) + i)), kinds.get(i, _NORMAL)
        )
        for i, text in texts.items()
    ]
