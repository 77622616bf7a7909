"""Encoding by merges of characters with the native encoder, which merges bytes.

Its first rules build the characters of the vocabulary: (first byte, second byte) becomes the first
two bytes, that and the third byte the first three, and so on. In UTF-8 a byte that begins a
character never continues one, so these rules apply inside of characters alone, and having the
lowest ranks they apply before all others. The vocabulary's own merges follow in their order.

The splitter cuts between characters that stand side by side in no token, and cuts a character that
the vocabulary lacks into its bytes. So what it leaves together is short, and a pre-token has either
whole characters or one byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bpe_core._native import Encoder, SpecialSet, VocabularySplitter, last_joins
from bpe_core.buffers import concatenate, flatten, from_arrow, lengths_of, to_arrow
from bpe_core.characters import SPACE_SIGN, CharacterRules, Prefix
from bpe_core.errors import InvalidTokenizerError
from bpe_core.model import TokenizerModel

__all__ = [
    "SpacedText",
    "bytes_of_text",
    "character_splitter",
    "merges_of_pieces",
    "set_space_prefix",
    "spaced_text",
    "with_building_rules",
    "with_unknown_lengths",
]

_SIGN = SPACE_SIGN.encode()
_PLACES: dict[Prefix, str] = {
    "never": "nowhere",
    "first": "first_segment",
    "always": "every_segment",
    "document": "document",
}
# From here on the encoder's ids are of parts of characters, the 256 bytes first.
_INNER_IDS = 1 << 31


def character_splitter(model: TokenizerModel, rules: CharacterRules) -> VocabularySplitter:
    """Return the splitter of a model that merges characters."""
    characters = _characters_of(model, rules)
    made = model.bytes_of(from_arrow(pc.unique(to_arrow(model.merges[:, 2]))).astype(np.int64))
    unknown = "runs" if rules.fuse_unknown else "characters"
    return VocabularySplitter(
        np.fromiter(map(ord, characters), np.uint32, len(characters)),
        *flatten(made),
        rules.split_spaces,
        "bytes" if rules.byte_ids else unknown,
    )


def with_building_rules(model: TokenizerModel) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (byte ids, merges) for the native encoder.

    Those of the model, with merges before them that build characters if it merges characters.
    """
    byte_ids = model.byte_ids
    if (rules := model.characters) is None:
        return byte_ids, model.merges
    byte_ids = np.where(byte_ids < 0, np.arange(_INNER_IDS, _INNER_IDS + 256), byte_ids)
    building = _building_rules(_characters_of(model, rules), byte_ids)
    return byte_ids, np.concatenate([building, model.merges])


def set_space_prefix(encoder: Encoder, rules: CharacterRules) -> None:
    """Have an encoder put a space before texts as the rules say."""
    encoder.set_space_prefix(_PLACES[rules.prefix], rules.prefix_before_space)


@dataclass(frozen=True)
class SpacedText:
    """A text as its tokens have it: with spaces for the sign ▁, and those put before text.

    Attributes:
        data: the text in UTF-8.
        places: int64[len(data) + 1]; byte i stands for what is in the source from places[i] on. A
            space that was put before text has the place of what follows.
        bounds: where special tokens begin and end in `data`.
    """

    data: bytes
    places: NDArray[np.int64]
    bounds: frozenset[int]


def spaced_text(data: bytes, specials: SpecialSet, rules: CharacterRules) -> SpacedText:
    """Return a text as its tokens have it.

    Example:
        >>> from bpe_core.special_tokens import special_set
        >>> text = spaced_text("a\u2581b".encode(), special_set([]), CharacterRules(prefix="first"))
        >>> text.data, text.places.tolist()
        (b' a b', [0, 0, 1, 4, 5])
    """
    parts: list[bytes] = []
    places: list[NDArray[np.int64]] = []
    bounds: list[int] = []
    size = done = 0
    for begin, end, _ in [*specials.find_all(data), (len(data), len(data), -1)]:
        if data and rules.puts_space_before(data[done:begin], at_start=done == 0):
            parts.append(b" ")
            places.append(np.array([done]))
            size += 1
        for first, last in ((done, begin), (begin, end)):
            text = data[first:last]
            parts.append(text.replace(_SIGN, b" "))
            places.append(first + _kept_places(text))
            size += len(parts[-1])
            bounds.append(size)
        done = end
    return SpacedText(
        b"".join(parts), np.concatenate([*places, np.array([len(data)])]), frozenset(bounds)
    )


def with_unknown_lengths(
    text: SpacedText,
    lengths: NDArray[np.int64],
    is_unknown: NDArray[np.bool_],
    model: TokenizerModel,
) -> NDArray[np.int64]:
    """Return the lengths of the tokens of a text in bytes, with those of unknown characters.

    Args:
        text: the text.
        lengths: int64[n], lengths of known tokens.
        is_unknown: bool[n], true for tokens of unknown characters.
        model: the tokenizer, without tokens for single bytes.
    """
    rules = model.characters
    if rules is None or rules.byte_ids or not is_unknown.any():
        return lengths
    characters = _characters_of(model, rules)
    lengths = np.where(is_unknown, 0, lengths)
    starts = np.cumsum(lengths) - lengths
    moved = 0
    for token in np.flatnonzero(is_unknown).tolist():
        start = end = int(starts[token]) + moved
        while end < len(text.data):
            size = _character_size(text.data, end)
            if text.data[end : end + size].decode("utf-8", "replace") in characters:
                break
            end += size
            if not rules.fuse_unknown or end in text.bounds:
                break
        lengths[token] = end - start
        moved += end - start
    return lengths


def merges_of_pieces(ids: Mapping[str, int], ranked: Sequence[str]) -> list[tuple[int, int, int]]:
    """Return the merges by which pieces are joined, the best one first and the leftmost of equal.

    These are the last joins of the pieces that their own characters reach: no others ever apply
    (`formats/ranks.py` has the proof, for bytes).

    Args:
        ids: ids of the pieces, which may be characters.
        ranked: pieces of several characters, the best first.

    Raises:
        InvalidTokenizerError: a piece is joined of something that is not a piece.
    """
    # Bytes, parts of characters and characters come first, so that characters are joined first.
    characters = sorted({character for text in ranked for character in text})
    encoded = [bytes_of_text(character) for character in characters]
    parts = sorted({token[:n] for token in encoded for n in range(2, len(token))}, key=len)
    id_of = {bytes_of_text(text): i for text, i in ids.items()}
    ranks = [bytes([byte]) for byte in range(256)]
    ranks += [*parts, *(token for token in encoded if len(token) > 1)]
    num_characters = len(ranks)
    ranks += map(bytes_of_text, ranked)
    left, right = last_joins(*concatenate(ranks))
    merges = []
    for rank in range(num_characters, len(ranks)):
        if left[rank] < 0:
            continue
        sides = ranks[left[rank]], ranks[right[rank]]
        for side in sides:
            if side not in id_of:
                raise InvalidTokenizerError(
                    f"piece {ranks[rank].decode()!r}: expected characters that are pieces too, "
                    f"found {side.decode('utf-8', 'replace')!r}, which is none"
                )
        merges.append((id_of[sides[0]], id_of[sides[1]], id_of[ranks[rank]]))
    return merges


def bytes_of_text(text: str) -> bytes:
    """Return the bytes of a token that a file writes as this text."""
    return text.replace(SPACE_SIGN, " ").encode()


def _kept_places(text: bytes) -> NDArray[np.int64]:
    """Return the offsets of a text's bytes, of the sign ▁ that of its first one."""
    keep = np.ones(len(text), np.bool_)
    at = text.find(_SIGN)
    while at >= 0:
        keep[at + 1 : at + len(_SIGN)] = False
        at = text.find(_SIGN, at + len(_SIGN))
    return np.flatnonzero(keep)


def _character_size(data: bytes, at: int) -> int:
    """Return the number of bytes of the character at an offset; 1 for a byte that is not UTF-8."""
    for size in range(1, 5):
        try:
            data[at : at + size].decode()
        except UnicodeDecodeError:
            continue
        return size
    return 1


def _characters_of(model: TokenizerModel, rules: CharacterRules) -> dict[str, int]:
    """Return the characters that are tokens, with their ids; the space also as its sign."""
    is_text = ~np.isin(model.token_ids, rules.byte_ids)
    # No character has more than four bytes.
    short = lengths_of(model.token_bytes) <= 4
    kept = is_text & short
    texts = model.token_bytes.filter(to_arrow(kept)).cast(pa.string()).to_pylist()
    ids = model.token_ids[kept].tolist()
    characters = {text: i for text, i in zip(texts, ids, strict=True) if len(text) == 1}
    return {**characters, SPACE_SIGN: characters[" "]}


def _building_rules(
    characters: Mapping[str, int], byte_ids: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return int64[n, 3], rules that build characters of several bytes, shorter parts first."""
    parts: dict[bytes, int] = {bytes([byte]): i for byte, i in enumerate(byte_ids.tolist())}
    rules: dict[int, list[tuple[int, int, int]]] = {2: [], 3: [], 4: []}
    for character, token_id in characters.items():
        encoded = character.encode()
        left = parts[encoded[:1]]
        for length in range(2, len(encoded) + 1):
            part = encoded[:length]
            if part not in parts:
                is_whole = length == len(encoded)
                parts[part] = token_id if is_whole else _INNER_IDS + len(parts)
                rules[length].append((left, parts[part[-1:]], parts[part]))
            left = parts[part]
    return np.array([rule for part in rules.values() for rule in part], np.int64).reshape(-1, 3)
