"""vocab.json and merges.txt: GPT-2's two files, in printable stand-ins.

vocab.json maps each token to its id; merges.txt lists the merges in order of rank, one per line,
after the line `#version: 0.2`. They contain neither the pattern nor which entries are special.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bpe_core._native import entries_in_stand_ins, stand_ins_of
from bpe_core.buffers import flatten, to_binary
from bpe_core.errors import FormatError
from bpe_core.formats.files import (
    CannotHoldError,
    Location,
    built,
    malformed,
    quoted,
    read_json_object,
    read_text,
    refuse_normalization,
    write_file,
)
from bpe_core.formats.token_texts import TokenTexts
from bpe_core.model import MAX_ID, TokenizerModel
from bpe_core.stand_ins import from_stand_ins

_HEADER = "#version: 0.2"


def read_vocab_merges(
    vocab_location: Location,
    merges_location: Location,
    special_tokens: Iterable[str] | Mapping[str, int] | None = None,
    *,
    pattern: str = "gpt2",
) -> TokenizerModel:
    """Read vocab.json and merges.txt.

    Args:
        vocab_location: vocab.json.
        merges_location: merges.txt, with or without its version line.
        special_tokens: The texts that are special. If vocab.json contains one, other than as a byte
            or as the result of a merge, it keeps its id; the others get max(id) + 1, … in the order
            given. A mapping contains ids.
        pattern: A name in `bpe_core.PATTERNS`, or a regular expression; the files contain none.

    Raises:
        FormatError: A file is malformed, or the two contradict each other.
        OSError: A file cannot be opened.
    """
    entries = read_json_object(vocab_location)
    lines = _merge_lines(read_text(merges_location))
    merges = [line.split(" ") for _, line in lines]
    made = set(map("".join, merges))
    asked = special_tokens if isinstance(special_tokens, Mapping) else list(special_tokens or ())
    specials = _special_ids(vocab_location, entries, asked, made)
    listed = {text for text in specials if not is_ordinary(text, made)}
    tokens = OrdinaryTokens.of_entries(vocab_location, "", entries, listed)
    rows = tokens.merges_of(merges_location, merges, lambda rank: f"line {lines[rank][0]}")
    return built(
        merges_location,
        lambda: TokenizerModel(
            token_ids=tokens.ids,
            token_bytes=tokens.tokens,
            merges=rows,
            special_tokens=specials,
            pattern=pattern,
        ),
    )


def write_vocab_merges(
    model: TokenizerModel, vocab_location: Location, merges_location: Location
) -> None:
    """Write vocab.json and merges.txt.

    Raises:
        CannotHoldError: The files would define another tokenizer; the message contains the reason.
    """
    vocab, merges = vocab_merges_bytes(model)
    write_file(vocab_location, vocab)
    write_file(merges_location, merges)


def vocab_merges_bytes(model: TokenizerModel) -> tuple[bytes, bytes]:
    """Return the contents of vocab.json and of merges.txt."""
    refuse_normalization(model)
    if model.gives_unknown_id:
        raise CannotHoldError(
            f"bytes without an id become {model.unknown_id}, the unknown_id, which the files "
            "cannot say"
        )
    if model.ignore_merges:
        raise CannotHoldError(
            "some token is not what its own bytes merge into, and the format cannot say that a "
            "pre-token which is a token stays whole (ignore_merges)"
        )
    texts = texts_of(model)
    merges = f"{_HEADER}\n".encode() + texts.merge_lines()
    return texts.vocabulary_json() + b"\n", merges


def texts_of(model: TokenizerModel) -> TokenTexts:
    """Return the texts of all tokens: ordinary ones as stand-ins, special ones as they are.

    Raises:
        CannotHoldError: A special token's text equals the stand-ins of an ordinary token, or two
            ordinary tokens have the same bytes.
    """
    if model.equal_ids is not None:
        first, second = model.equal_ids
        raise CannotHoldError(
            f"ids {first} and {second} have the same bytes, and the format tells tokens apart by "
            "text"
        )
    _check_specials_apart(model)
    return TokenTexts.of(model, *stand_ins_of(*flatten(model.token_bytes)))


def _check_specials_apart(model: TokenizerModel) -> None:
    """Refuse a special token whose text equals the stand-ins of an ordinary token."""
    meant = {text: from_stand_ins(text) for text in model.special_tokens}
    written = to_binary([data for data in meant.values() if data is not None])
    if not pc.any(pc.is_in(model.token_bytes, value_set=written)).as_py():
        return
    for text, data in meant.items():
        ids = [] if data is None else model.ids_of(data)
        if ids:
            raise CannotHoldError(
                f"the special token {text!r} (id {model.special_tokens[text]}) is also how the "
                f"bytes {data!r} (id {ids[0]}) are written, and the format tells tokens apart by "
                "text"
            )


@dataclass(frozen=True, kw_only=True)
class OrdinaryTokens:
    """Entries of a vocabulary in stand-ins that are not special tokens.

    Attributes:
        ids: int64[n], ascending.
        tokens: The tokens' bytes, n values.
        entries: The entries from which they were made.
        specials: Special tokens among the entries, which are left out.
    """

    ids: NDArray[np.int64]
    tokens: pa.BinaryArray
    entries: Mapping[str, int]
    specials: Collection[str]

    @classmethod
    def of_entries(
        cls,
        location: Location,
        where: str,
        entries: Mapping[str, Any],
        specials: Collection[str],
        *,
        leave_out_others: bool = False,
    ) -> OrdinaryTokens:
        """Return the entries of a file, without those of special tokens.

        Args:
            location: the file, for errors.
            where: the place in it.
            entries: text to id.
            specials: texts of special tokens.
            leave_out_others: leave out texts that are not of stand-ins, which no text becomes.

        Raises:
            FormatError: A value is not an id, an id occurs twice, or a key is not made of
                stand-ins.
        """
        columns = entries_in_stand_ins(dict(entries), specials, MAX_ID)
        if columns is not None:
            ids, data, offsets = columns
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
            tokens = pa.BinaryArray.from_buffers(pa.binary(), len(ids), buffers)
            return cls(ids=ids, tokens=tokens, entries=entries, specials=specials)
        if leave_out_others:
            kept = {
                text: token_id
                for text, token_id in entries.items()
                if text in specials or from_stand_ins(text) is not None
            }
            return cls.of_entries(location, where, kept, specials)
        raise cls._first_wrong_entry(location, where, entries, specials)

    @staticmethod
    def _first_wrong_entry(
        location: Location, where: str, entries: Mapping[str, Any], specials: Collection[str]
    ) -> FormatError:
        for text, token_id in entries.items():
            if type(token_id) is not int or not 0 <= token_id <= MAX_ID:
                return malformed(
                    location, f"{where}{text!r}", f"an id of 0 ... {MAX_ID}", quoted(token_id)
                )
        by_id: dict[int, str] = {}
        for text, token_id in sorted(entries.items(), key=lambda entry: entry[1]):
            if text in specials:
                continue
            if from_stand_ins(text) is None:
                return malformed(
                    location,
                    f"{where}id {token_id}",
                    "printable stand-ins of bytes, or a special token that is named as one",
                    quoted(text),
                )
            if token_id in by_id:
                return malformed(
                    location, f"{where}{text!r}", "each id once", f"id {token_id} again"
                )
            by_id[token_id] = text
        raise AssertionError("no entry is wrong")

    @cached_property
    def by_text(self) -> Mapping[str, int]:
        """Id by the text of its entry."""
        return {text: i for text, i in self.entries.items() if text not in self.specials}

    def merges_of(
        self, location: Location, merges: Sequence[list[Any]], where: Callable[[int], str]
    ) -> NDArray[np.int64]:
        """Return the ids (left, right, result) of merges, each a list of its two sides.

        Of a pair that occurs twice, the last rank counts, as in GPT-2's and Hugging Face's
        encoders.

        Raises:
            FormatError: A merge is not two texts of stand-ins, or a side or the result is not an
                ordinary token; `where` returns its position in the file.
        """
        ids = self.by_text
        texts = (text for left, right in merges for text in (left, right, left + right))
        try:
            found = np.fromiter((ids[text] for text in texts), np.int64, 3 * len(merges))
        except (KeyError, TypeError, ValueError):
            raise self._first_wrong_merge(location, merges, where) from None
        found = found.reshape(-1, 3)
        pairs = found[::-1, 0] << 32 | found[::-1, 1]
        _, from_end = np.unique(pairs, return_index=True)
        rows: NDArray[np.int64] = found[np.sort(len(found) - 1 - from_end)]
        return rows

    def _first_wrong_merge(
        self, location: Location, merges: Sequence[list[Any]], where: Callable[[int], str]
    ) -> FormatError:
        for rank, merge in enumerate(merges):
            sides = [from_stand_ins(side) if isinstance(side, str) else None for side in merge]
            if len(sides) != 2 or not sides[0] or not sides[1]:
                expected = "two tokens in printable stand-ins"
                return malformed(location, where(rank), expected, quoted(merge))
            left, right = merge
            for text in (left, right, left + right):
                if text not in self.by_text:
                    return malformed(
                        location,
                        f"merge {rank}, {quoted(sides[0])} + {quoted(sides[1])}",
                        "bytes of ordinary tokens",
                        f"no id for {quoted(from_stand_ins(text))}; add it to the vocabulary",
                    )
        raise AssertionError("no merge is wrong")


def _merge_lines(text: str) -> list[tuple[int, str]]:
    """Return the lines that are merges, with their numbers from 1."""
    # Not splitlines: only \n and \r\n end a line here.
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return [
        (number, line)
        for number, line in enumerate(lines, 1)
        if line and not (number == 1 and line.startswith("#version:"))
    ]


def _special_ids(
    location: Location,
    entries: Mapping[str, Any],
    special_tokens: Sequence[str] | Mapping[str, int],
    made: Collection[str],
) -> dict[str, int]:
    listed = {
        text: entries[text]
        for text in special_tokens
        if text in entries and not is_ordinary(text, made)
    }
    if isinstance(special_tokens, Mapping):
        for text, token_id in listed.items():
            if token_id != special_tokens[text]:
                raise malformed(
                    location, repr(text), f"id {special_tokens[text]}, as asked", f"id {token_id}"
                )
        return dict(special_tokens)
    free = max((i for i in entries.values() if type(i) is int), default=-1) + 1
    others = [text for text in dict.fromkeys(special_tokens) if text not in listed]
    return listed | {text: free + i for i, text in enumerate(others)}


def is_ordinary(text: str, made: Collection[str]) -> bool:
    """Return True if an entry with this text is a byte or the result of one of the merges."""
    return text in made or (len(text) == 1 and from_stand_ins(text) is not None)
