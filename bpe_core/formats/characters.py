"""tokenizer.json of BPE that merges characters, as files of SentencePiece's kind have it.

Spaces are the sign ▁ there. A `Replace` in the normalizer makes them, or `Metaspace` as the
pre_tokenizer. A space before the text comes from `Prepend`, before every segment, or from
`Metaspace` by its `prepend_scheme`, where the text does not begin with one. With its `split`,
pre-tokens begin at spaces. With `byte_fallback`, a character without a token becomes the tokens
`<0x00>` … `<0xFF>` of its bytes, else `unk_token`, several in a row one if `fuse_unk` is set.

A `Split` at spaces, as in Gemma, does nothing: the normalizer left none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bpe_core.buffers import flatten, to_arrow, to_binary
from bpe_core.characters import SPACE_SIGN, CharacterRules, Prefix
from bpe_core.formats.files import CannotHoldError, Location, malformed, quoted
from bpe_core.formats.json_values import expect, steps_of
from bpe_core.formats.merges import FileMerges
from bpe_core.model import MAX_ID, TokenizerModel

__all__ = [
    "BYTE_TOKENS",
    "CharacterTokens",
    "decoder_of",
    "entries_of_characters",
    "merges_characters",
    "pre_tokenizer_of_characters",
    "rules_of",
    "space_steps",
]

BYTE_TOKENS = tuple(f"<0x{byte:02X}>" for byte in range(256))
"""The tokens that stand for single bytes."""

_PREPEND = {"type": "Prepend", "prepend": SPACE_SIGN}
_REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE_SIGN}
_SPLIT_AT_SPACES = {
    "type": "Split",
    "pattern": {"String": " "},
    "behavior": "MergedWithPrevious",
    "invert": False,
}
_DECODE_SPACES = {"type": "Replace", "pattern": {"String": SPACE_SIGN}, "content": " "}
_STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def merges_characters(root: Mapping[str, Any]) -> bool:
    """Return true if a tokenizer.json has the steps of SentencePiece's kind."""
    steps = [*_all_steps(root.get("normalizer")), *_all_steps(root.get("pre_tokenizer"))]
    types = [step.get("type") for step in steps]
    return "ByteLevel" not in types and (
        "Metaspace" in types or any(step in (_PREPEND, _REPLACE) for step in steps)
    )


def space_steps(rules: CharacterRules, specials: Iterable[str]) -> list[dict[str, Any]]:
    """Return the steps of the normalizer that make spaces what tokens have.

    Args:
        rules: the rules of the tokenizer.
        specials: special tokens that are found in text.

    Raises:
        CannotHoldError: the format cannot put spaces where the rules put them.
    """
    if rules.table or rules.remove_spaces:
        raise CannotHoldError(
            "SentencePiece's table replaces characters or spaces are left out, which the library "
            "does in another way"
        )
    prefix = _prefix_of_segments(rules, specials)
    if prefix == "never":
        return [_REPLACE]
    if not rules.prefix_before_space:
        return []  # Metaspace does it
    if prefix == "always":
        return [_PREPEND, _REPLACE]
    raise CannotHoldError(
        "a space is put before a text that begins with a space, and not before text after special "
        "tokens, which the format cannot say"
    )


def pre_tokenizer_of_characters(
    rules: CharacterRules, specials: Iterable[str]
) -> dict[str, Any] | None:
    """Return the pre_tokenizer that goes with `space_steps`."""
    if not space_steps(rules, specials):
        scheme = rules.prefix
    elif rules.split_spaces:
        scheme = "never"
    else:
        return None
    return {
        "type": "Metaspace",
        "replacement": SPACE_SIGN,
        "prepend_scheme": scheme,
        "split": rules.split_spaces,
    }


def decoder_of(rules: CharacterRules) -> dict[str, Any]:
    """Return the decoder, which makes text of tokens."""
    fallback = [{"type": "ByteFallback"}] if rules.byte_ids else []
    strip = [_STRIP] if rules.strip_prefix else []
    return {
        "type": "Sequence",
        "decoders": [_DECODE_SPACES, *fallback, {"type": "Fuse"}, *strip],
    }


def rules_of(
    location: Location, root: Mapping[str, Any], model: Mapping[str, Any], byte_ids: tuple[int, ...]
) -> tuple[CharacterRules, list[dict[str, Any]]]:
    """Return the rules of a tokenizer.json, and the other steps of its normalizer.

    Raises:
        FormatError: a step does something else; the message names it.
    """
    normalizer = root.get("normalizer")
    steps = (
        [] if normalizer is None else steps_of(location, "normalizer", normalizer, "normalizers")
    )
    others = [step for step in steps if step not in (_PREPEND, _REPLACE)]
    if steps[: len(others)] != others:
        raise malformed(location, "normalizer", "steps for spaces behind all others", quoted(steps))
    is_prepended, is_replaced = _PREPEND in steps, _REPLACE in steps
    metaspace = _metaspace_of(location, root.get("pre_tokenizer"), has_no_spaces=is_replaced)
    if not is_replaced and metaspace is None:
        raise malformed(
            location,
            "normalizer",
            f"a Replace of spaces by {SPACE_SIGN}, or Metaspace as the pre_tokenizer",
            quoted(normalizer),
        )
    scheme, split_spaces = metaspace or ("never", False)
    rules = CharacterRules(
        byte_ids=byte_ids,
        fuse_unknown=model.get("fuse_unk", False),
        prefix="always" if is_prepended else scheme,
        prefix_before_space=is_prepended,
        split_spaces=split_spaces,
        strip_prefix=_strips(location, root.get("decoder")),
    )
    return rules, others


@dataclass(frozen=True, kw_only=True)
class CharacterTokens:
    """The entries of a vocabulary of characters that are ordinary tokens.

    Attributes:
        ids: int64[n], ascending.
        tokens: their bytes, n values.
        merges: int64[m, 3], ids (left, right, result) in order of rank.
        byte_ids: ids of the tokens of single bytes; empty if there is no fallback to them.
    """

    ids: NDArray[np.int64]
    tokens: pa.BinaryArray
    merges: NDArray[np.int64]
    byte_ids: tuple[int, ...]

    @classmethod
    def of_entries(
        cls,
        location: Location,
        entries: Mapping[str, Any],
        merges: FileMerges,
        specials: Mapping[str, int],
        *,
        byte_fallback: bool,
    ) -> CharacterTokens:
        """Return the tokens of model.vocab and the merges of model.merges.

        A special token is an ordinary one too if text can become it in both ways: if it is a
        character, or a part or the result of a merge. Of a pair given twice the last place counts.

        Raises:
            FormatError: an entry or a merge is malformed.
        """
        all_ids = _ids_of(location, entries)
        written = _written(location, entries)
        rows = _rows_of(location, entries, all_ids, written, merges)
        substitutes = set(BYTE_TOKENS) if byte_fallback else set()
        special_ids = np.array([entries.get(text, -1) for text in specials], np.int64)
        merged = np.isin(special_ids, rows).tolist()
        left_out = {
            text
            for text, is_merged in zip(specials, merged, strict=True)
            if not (is_merged or len(text) == 1 or text in substitutes)
        }
        is_kept = (text not in left_out for text in entries)
        kept = np.flatnonzero(np.fromiter(is_kept, np.bool_, len(entries)))
        kept = kept[np.argsort(all_ids[kept], kind="stable")]
        ids = all_ids[kept]
        again = np.flatnonzero(ids[1:] == ids[:-1])
        if len(again):
            text = written[int(kept[again[0] + 1])].as_py()
            raise malformed(
                location, f"model.vocab, {text!r}", "each id once", f"id {ids[again[0]]} again"
            )
        byte_ids = tuple(entries.get(text, -1) for text in BYTE_TOKENS) if byte_fallback else ()
        return cls(
            ids=ids,
            tokens=_bytes_of(location, written.take(to_arrow(kept)), ids, byte_ids),
            merges=rows,
            byte_ids=byte_ids,
        )


def entries_of_characters(model: TokenizerModel, rules: CharacterRules) -> dict[int, str]:
    """Return all tokens as the format writes them, by id, ascending.

    Raises:
        CannotHoldError: two ids would have the same text, or one id two.
    """
    texts: dict[int, str] = {}
    substitutes = dict(zip(rules.byte_ids, BYTE_TOKENS, strict=False))
    for token_id, token in model.tokens:
        text = substitutes.get(token_id)
        texts[token_id] = token.decode().replace(" ", SPACE_SIGN) if text is None else text
    for text, token_id in model.special_tokens.items():
        if texts.setdefault(token_id, text) != text:
            raise CannotHoldError(
                f"id {token_id} is {texts[token_id]!r} and the special token {text!r}"
            )
    ids: dict[str, int] = {}
    for token_id, text in texts.items():
        if ids.setdefault(text, token_id) != token_id:
            raise CannotHoldError(
                f"ids {ids[text]} and {token_id} are both written {text!r}, and the format tells "
                "tokens apart by text"
            )
    return dict(sorted(texts.items()))


def _prefix_of_segments(rules: CharacterRules, specials: Iterable[str]) -> Prefix:
    """Return the prefix in terms of segments; the same where no special tokens cut text."""
    if rules.prefix != "document":
        return rules.prefix
    if found := next(iter(specials), None):
        raise CannotHoldError(
            "a space is put before the text and not before what follows special tokens in it, as "
            f"{found!r}, which the format cannot say"
        )
    return "always"


def _metaspace_of(
    location: Location, pre_tokenizer: Any, *, has_no_spaces: bool
) -> tuple[Prefix, bool] | None:
    """Return the prefix of `Metaspace` and its `split`, or None if there is no Metaspace."""
    steps = (
        []
        if pre_tokenizer is None
        else steps_of(location, "pre_tokenizer", pre_tokenizer, "pretokenizers")
    )
    if has_no_spaces:
        steps = [step for step in steps if step != _SPLIT_AT_SPACES]
    types = [step.get("type") for step in steps]
    if types not in ([], ["Metaspace"]):
        raise malformed(
            location,
            "pre_tokenizer",
            "null or Metaspace, as merges are of characters",
            quoted(types),
        )
    if not steps:
        return None
    step = steps[0]
    expect(location, "Metaspace.replacement", step.get("replacement"), SPACE_SIGN)
    scheme = step.get("prepend_scheme", "always")
    expect(location, "Metaspace.prepend_scheme", scheme, "always", "first", "never")
    split = step.get("split", True)
    expect(location, "Metaspace.split", True if split is None else split, True, False)
    return scheme, split is not False


def _strips(location: Location, decoder: Any) -> bool:
    """Return true if a decoder leaves out a space at the beginning."""
    if decoder is None:
        return False
    steps = steps_of(location, "decoder", decoder, "decoders")
    metaspace = [step for step in steps if step.get("type") == "Metaspace"]
    plain = [_DECODE_SPACES, {"type": "ByteFallback"}, {"type": "Fuse"}, _STRIP]
    if unknown := [step for step in steps if step not in [*plain, *metaspace]]:
        raise malformed(
            location,
            "decoder",
            f"Replace of {SPACE_SIGN} by a space, ByteFallback, Fuse, Strip of one space, or "
            "Metaspace",
            quoted(unknown[0]),
        )
    return _STRIP in steps or any(
        step.get("prepend_scheme", "always") != "never" for step in metaspace
    )


def _all_steps(value: Any) -> list[dict[str, Any]]:
    """Return the steps of a normalizer or pre_tokenizer as far as they are well formed."""
    steps: list[dict[str, Any]] = []
    waiting = [value]
    while waiting:
        step = waiting.pop()
        if isinstance(step, list):
            waiting += step
        elif isinstance(step, dict):
            steps.append(step)
            waiting += [step.get("normalizers"), step.get("pretokenizers")]
    return steps


def _ids_of(location: Location, entries: Mapping[str, Any]) -> NDArray[np.int64]:
    if set(map(type, entries.values())) <= {int}:
        with suppress(OverflowError):
            ids = np.fromiter(entries.values(), np.int64, len(entries))
            if not len(ids) or (ids.min() >= 0 and ids.max() <= MAX_ID):
                return ids
    text, wrong = next(
        (text, found)
        for text, found in entries.items()
        if type(found) is not int or not 0 <= found <= MAX_ID
    )
    raise malformed(location, f"model.vocab, {text!r}", f"an id of 0 ... {MAX_ID}", quoted(wrong))


def _written(location: Location, entries: Mapping[str, Any]) -> pa.StringArray:
    try:
        return to_binary([text.encode() for text in entries]).cast(pa.string())
    except UnicodeEncodeError as error:
        raise malformed(location, "model.vocab", "Unicode texts", quoted(error.object)) from None


def _rows_of(
    location: Location,
    entries: Mapping[str, Any],
    ids: NDArray[np.int64],
    written: pa.StringArray,
    merges: FileMerges,
) -> NDArray[np.int64]:
    rows = merges.find_rows(*flatten(written.cast(pa.binary())), ids, stand_ins=False)
    return _rows_of_sides(location, entries, merges.sides) if rows is None else rows


def _rows_of_sides(
    location: Location, entries: Mapping[str, Any], merges: Sequence[Sequence[Any]]
) -> NDArray[np.int64]:
    try:
        texts = (text for left, right in merges for text in (left, right, left + right))
        found = np.fromiter((entries[text] for text in texts), np.int64, 3 * len(merges))
    except (KeyError, TypeError, ValueError):
        raise _first_wrong_merge(location, entries, merges) from None
    found = found.reshape(-1, 3)
    pairs = found[::-1, 0] << 32 | found[::-1, 1]
    _, from_end = np.unique(pairs, return_index=True)
    rows: NDArray[np.int64] = found[np.sort(len(found) - 1 - from_end)]
    return rows


def _first_wrong_merge(
    location: Location, entries: Mapping[str, Any], merges: Sequence[Sequence[Any]]
) -> Exception:
    for rank, merge in enumerate(merges):
        where = f"model.merges[{rank}]"
        if len(merge) != 2 or not all(isinstance(side, str) and side for side in merge):
            return malformed(location, where, "two tokens", quoted(merge))
        for text in (*merge, "".join(merge)):
            if text not in entries:
                return malformed(
                    location, where, "tokens of the vocabulary", f"no id for {quoted(text)}"
                )
    raise AssertionError("no merge is wrong")


def _bytes_of(
    location: Location,
    written: pa.StringArray,
    ids: NDArray[np.int64],
    byte_ids: tuple[int, ...],
) -> pa.BinaryArray:
    has_space = pc.match_substring(written, " ")
    if pc.any(has_space).as_py():
        raise malformed(
            location,
            f"model.vocab, {written.filter(has_space)[0].as_py()!r}",
            f"tokens with {SPACE_SIGN} for spaces, as text has no others",
            "a space",
        )
    tokens = pc.replace_substring(written, SPACE_SIGN, " ").cast(pa.binary())
    values = {token_id: bytes([byte]) for byte, token_id in enumerate(byte_ids)}
    is_byte = np.isin(ids, byte_ids)
    single = to_binary([values[i] for i in ids[is_byte].tolist()])
    return pc.replace_with_mask(tokens, to_arrow(is_byte), single)
