"""vocab.json and merges.txt: GPT-2's two files, in printable stand-ins.

vocab.json maps each token to its id; merges.txt lists the merges in order of rank, one a line,
after a line `#version: 0.2`. The pair holds neither the pattern nor which entries are special.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from bpe_core.formats.files import (
    CannotHoldError,
    Location,
    built,
    dump_json,
    malformed,
    quoted,
    read_json_object,
    read_text,
    write_file,
)
from bpe_core.formats.stand_ins import from_stand_ins, to_stand_ins
from bpe_core.model import TokenizerModel

_HEADER = "#version: 0.2"


def read_vocab_merges(
    vocab_location: Location,
    merges_location: Location,
    special_tokens: Iterable[str] | Mapping[str, int] | None = None,
    *,
    pattern: str = "gpt2",
) -> TokenizerModel:
    """Reads vocab.json and merges.txt.

    Args:
        vocab_location: vocab.json.
        merges_location: merges.txt, with or without its version line.
        special_tokens: the texts that are special. One that vocab.json has, other than as a byte
            or as the result of a merge, keeps the id it has there; the others get max(id) + 1, …
            in the order given. A mapping states ids.
        pattern: a name of `bpe_core.PATTERNS` or a regular expression; the files do not say.

    Raises:
        FormatError: a file is malformed, or the two contradict each other.
        OSError: as opening them does.
    """
    entries = read_json_object(vocab_location)
    merges = [
        merge_of(merges_location, f"line {number}", line.split(" "))
        for number, line in _merge_lines(read_text(merges_location))
    ]
    made = {left + right for left, right in merges}
    asked = special_tokens if isinstance(special_tokens, Mapping) else list(special_tokens or ())
    specials = _special_ids(vocab_location, entries, asked, made)
    listed = {text for text in specials if not is_ordinary(text, made)}
    vocab = bytes_of_entries(vocab_location, "", entries, listed)
    return built(
        merges_location,
        lambda: TokenizerModel.from_vocab(vocab, merges, specials, pattern=pattern),
    )


def write_vocab_merges(
    model: TokenizerModel, vocab_location: Location, merges_location: Location
) -> None:
    """Writes vocab.json and merges.txt.

    Raises:
        CannotHoldError: the files would mean another tokenizer; the message says why.
    """
    vocab, merges = vocab_merges_bytes(model)
    write_file(vocab_location, vocab)
    write_file(merges_location, merges)


def vocab_merges_bytes(model: TokenizerModel) -> tuple[bytes, bytes]:
    """The contents of vocab.json and of merges.txt."""
    if model.ignore_merges:
        raise CannotHoldError(
            "some token is not what its own bytes merge into, and the format cannot say that a "
            "pre-token which is a token stays whole (ignore_merges)"
        )
    vocab = dump_json(entries_of(model))
    lines = [" ".join(pair) for pair in merges_of(model)]
    return vocab, "".join(f"{line}\n" for line in [_HEADER, *lines]).encode()


def entries_of(model: TokenizerModel) -> dict[str, int]:
    """All tokens by their text, ordinary ones in stand-ins, special ones as they are; by id.

    Raises:
        CannotHoldError: a special token's text is also the stand-ins of an ordinary token.
    """
    texts = _texts_of(model)
    entries = {text: i for i, text in texts.items()}
    for text, special_id in model.special_tokens.items():
        if text in entries:
            raise CannotHoldError(
                f"the special token {text!r} (id {special_id}) is also how the bytes "
                f"{from_stand_ins(text)!r} (id {entries[text]}) are written, and the format "
                "tells tokens apart by text"
            )
        texts[special_id] = text
    return {texts[i]: i for i in sorted(texts)}


def merges_of(model: TokenizerModel) -> list[tuple[str, str]]:
    """The two sides of each merge in stand-ins, in order of rank."""
    texts = _texts_of(model)
    return [(texts[left], texts[right]) for left, right, _ in model.merges.tolist()]


def _texts_of(model: TokenizerModel) -> dict[int, str]:
    """The ordinary tokens in stand-ins, by id."""
    tokens = model.tokens
    text = to_stand_ins(b"".join(token for _, token in tokens))  # a character a byte
    ends = itertools.accumulate(len(token) for _, token in tokens)
    return {i: text[end - len(token) : end] for (i, token), end in zip(tokens, ends, strict=True)}


def bytes_of_entries(
    location: Location, where: str, entries: Mapping[str, Any], specials: Collection[str]
) -> dict[int, bytes]:
    """Id to bytes of the entries that are not special tokens.

    Raises:
        FormatError: a value that is no id, an id given twice, a key that is not of stand-ins.
    """
    vocab: dict[int, bytes] = {}
    for text, token_id in entries.items():
        if type(token_id) is not int:
            raise malformed(location, f"{where}{text!r}", "an id", quoted(token_id))
        if text in specials:
            continue
        token = from_stand_ins(text)
        if token is None:
            raise malformed(
                location,
                f"{where}id {token_id}",
                "printable stand-ins of bytes, or a special token that is named as one",
                quoted(text),
            )
        if token_id in vocab:
            raise malformed(location, f"{where}{text!r}", "each id once", f"id {token_id} again")
        vocab[token_id] = token
    return vocab


def merge_of(location: Location, where: str, parts: Sequence[object]) -> tuple[bytes, bytes]:
    """The bytes of the two sides of a merge.

    Raises:
        FormatError: it is not two texts of stand-ins.
    """
    sides = [from_stand_ins(part) if isinstance(part, str) else None for part in parts]
    if len(sides) != 2 or not sides[0] or not sides[1]:
        raise malformed(location, where, "two tokens in printable stand-ins", quoted(list(parts)))
    return sides[0], sides[1]


def _merge_lines(text: str) -> list[tuple[int, str]]:
    """The lines that are merges, with their numbers from 1."""
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
    made: Collection[bytes],
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


def is_ordinary(text: str, made: Collection[bytes]) -> bool:
    """Whether an entry of this text is a byte or the result of a merge."""
    token = from_stand_ins(text)
    return token is not None and (len(token) == 1 or token in made)
