r"""minbpe's two files: `.model`, which contains the tokenizer, and `.vocab`, for people.

A `.model` has the lines

    minbpe v1
    the split pattern; empty: text is not split
    the number of special tokens
    one line for each: its text, a space, its id
    one line for each merge, in order: the ids of its left and right side

Ids 0 to 255 are the bytes; merge i makes id 256 + i. `.vocab` shows the bytes of every id, control
characters as `\u000a` and bytes that are not UTF-8 as U+FFFD, so it cannot be read back.

Source: https://github.com/karpathy/minbpe, `Tokenizer.save` and `Tokenizer.load`.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from bpe_core.errors import InvalidTokenizerError
from bpe_core.formats.files import (
    CannotHoldError,
    Location,
    built,
    malformed,
    quoted,
    read_text,
    refuse_normalization,
    write_file,
)
from bpe_core.model import MAX_ID, MOST_TOKEN_BYTES, TokenizerModel
from bpe_core.patterns import GPT2_SPLIT_PATTERN, GPT4_SPLIT_PATTERN, resolve_pattern

Pair = tuple[int, int]

_VERSION = "minbpe v1"
_FORMS = {"gpt2": GPT2_SPLIT_PATTERN, "cl100k": GPT4_SPLIT_PATTERN}


@dataclass(frozen=True, kw_only=True)
class MinbpeModel:
    """Content of a `.model` file, in its order.

    Attributes:
        pattern: A regular expression, or "" for none.
        special_tokens: Text to id.
        merges: The ids of both sides; merge i makes id 256 + i.
    """

    pattern: str
    special_tokens: dict[str, int] = field(default_factory=dict)
    merges: list[Pair] = field(default_factory=list)


def read_minbpe(location: Location) -> TokenizerModel:
    """Read a `.model` file.

    Raises:
        FormatError: The file is malformed, or its ids contradict each other.
        OSError: The file cannot be opened.
    """
    found = read_model_file(location)
    return built(location, lambda: model_of(found))


def write_minbpe(model: TokenizerModel, prefix: Location) -> None:
    """Write `prefix` + ".model" and `prefix` + ".vocab".

    Raises:
        CannotHoldError: minbpe would read another tokenizer from them; the message contains the
            reason.
    """
    write_both(prefix, *minbpe_bytes(model))


def minbpe_bytes(model: TokenizerModel) -> tuple[bytes, bytes]:
    """Return the contents of `.model` and of `.vocab`, with special tokens in order of id.

    A named pattern is written in minbpe's or its published form, and `none` as an empty line.

    Raises:
        CannotHoldError: minbpe cannot represent the tokenizer.
    """
    found = minbpe_model(model)
    merges = {pair: 256 + rank for rank, pair in enumerate(found.merges)}
    return model_file_bytes(found), vocab_file_bytes(model.vocab, merges)


def minbpe_model(model: TokenizerModel) -> MinbpeModel:
    """Return a tokenizer in minbpe's form.

    Raises:
        CannotHoldError: The ids are not the bytes in order and then merges in order, each of
            earlier ids and with a separate id; or the tokenizer has a normalizer, a chain of
            patterns or `ignore_merges`.
    """
    refuse_normalization(model)
    if len(resolve_pattern(model.pattern).steps) > 1:
        raise CannotHoldError("the pattern is a chain of several, and minbpe takes one")
    if model.ignore_merges:
        raise CannotHoldError(
            "some token is not what its own bytes merge into, and minbpe cannot say that a "
            "pre-token which is a token stays whole (ignore_merges)"
        )
    tokens = dict(model.tokens)
    for byte in range(256):
        if tokens.get(byte) != bytes([byte]):
            found = repr(tokens[byte]) if byte in tokens else "no ordinary token"
            raise CannotHoldError(
                f"minbpe's ids 0 to 255 are the bytes in order, and here id {byte} is {found}; "
                "special tokens would come last"
            )
    ids = set(range(256))
    for rank, (left, right, result) in enumerate(model.merges.tolist()):
        if result != 256 + rank or left not in ids or right not in ids:
            raise CannotHoldError(
                f"minbpe's merge {rank} makes id {256 + rank} of earlier ids, and here it makes "
                f"id {result} of {left} and {right}"
            )
        ids.add(result)
    if others := tokens.keys() - ids:
        raise CannotHoldError(
            f"minbpe's tokens are bytes and results of merges, and id {min(others)}, "
            f"{quoted(tokens[min(others)])}, is neither"
        )
    pairs = list(map(tuple, model.merges[:, :2].tolist()))
    pattern = "" if model.pattern == "none" else split_pattern(model.pattern)
    return MinbpeModel(pattern=pattern, special_tokens=dict(model.special_tokens), merges=pairs)


def model_of(found: MinbpeModel) -> TokenizerModel:
    """Return the tokenizer that minbpe makes of these values.

    Raises:
        InvalidPatternError, InvalidTokenizerError: They contradict each other.
    """
    _check_size(found.merges)
    tokens = [bytes([byte]) for byte in range(256)]
    for left, right in found.merges:
        tokens.append(tokens[left] + tokens[right])
    pairs = np.array(found.merges, np.int64).reshape(-1, 2)
    results = np.arange(256, len(tokens), dtype=np.int64)
    return TokenizerModel.from_tokens(
        enumerate(tokens),
        map(tuple, np.column_stack([pairs, results]).tolist()),
        special_tokens=found.special_tokens,
        pattern=found.pattern or "none",
    )


def _check_size(merges: list[Pair]) -> None:
    """Check the total size of tokens: a few lines, each doubling a token, could fill any memory."""
    lengths = [1] * 256
    total = len(lengths)
    for rank, (left, right) in enumerate(merges):
        lengths.append(lengths[left] + lengths[right])
        total += lengths[-1]
        if total > MOST_TOKEN_BYTES:
            raise InvalidTokenizerError(
                f"merge {rank}: expected tokens of at most {MOST_TOKEN_BYTES:,} bytes in all, "
                "found more"
            )


def split_pattern(pattern: str) -> str:
    """Return a pattern in minbpe's form: its own or the published one of a name, others unchanged.

    Raises:
        InvalidPatternError: It is not a name and does not compile.

    Example:
        >>> split_pattern("gpt2") == GPT2_SPLIT_PATTERN, split_pattern("[a-z]+")
        (True, '[a-z]+')
    """
    resolved = resolve_pattern(pattern)
    if resolved.name is None or not pattern.isidentifier():
        return pattern
    return _FORMS.get(resolved.name, resolved.regex)


def read_model_file(location: Location) -> MinbpeModel:
    """Read a `.model` file without interpreting it.

    Raises:
        FormatError: A line is invalid.
        OSError: The file cannot be opened.
    """
    lines = _lines(read_text(location))

    def line(number: int, expected: str) -> str:
        if number > len(lines):
            raise malformed(location, f"line {number}", expected, "the end of the file")
        return lines[number - 1]

    version = f"the line {_VERSION!r}"
    if line(1, version).strip() != _VERSION:
        raise malformed(location, "line 1", version, quoted(lines[0]))
    pattern = line(2, "the split pattern, or an empty line")
    number_of_specials = "the number of special tokens"
    if not _is_number(line(3, number_of_specials).strip()):
        raise malformed(location, "line 3", number_of_specials, quoted(lines[2]))
    first_merge = 4 + int(lines[2])
    special_tokens: dict[str, int] = {}
    for number in range(4, first_merge):
        special = "a special token without white space and its id"
        fields = line(number, special).split()
        if len(fields) != 2 or not _is_number(fields[1]):
            raise malformed(location, f"line {number}", special, quoted(lines[number - 1]))
        if fields[0] in special_tokens:
            raise malformed(location, f"line {number}", "each special token once", quoted(fields))
        special_tokens[fields[0]] = int(fields[1])
    merges = _merges_of(location, first_merge, lines[first_merge - 1 :])
    return MinbpeModel(pattern=pattern, special_tokens=special_tokens, merges=merges)


def _merges_of(location: Location, first_line: int, lines: list[str]) -> list[Pair]:
    merges: dict[Pair, None] = {}
    for number, line in enumerate(lines, first_line):
        sides = tuple(int(field) if _is_number(field) else MAX_ID for field in line.split())
        new_id = 256 + len(merges)
        if len(sides) != 2 or max(sides) >= new_id:
            raise malformed(location, f"line {number}", f"two ids below {new_id}", quoted(line))
        if sides in merges:
            raise malformed(location, f"line {number}", "each merge once", quoted(line))
        merges[sides] = None
    return list(merges)


def model_file_bytes(values: MinbpeModel) -> bytes:
    """Return the contents of a `.model` file.

    Raises:
        CannotHoldError: minbpe would read something else: whitespace in a special token or around
            the pattern, a line break in the pattern, or a chain of patterns.
    """
    pattern = values.pattern
    if pattern and len(resolve_pattern(pattern).steps) > 1:
        raise CannotHoldError(
            f"minbpe splits by one regular expression, and {quoted(pattern)} is a chain of them"
        )
    if pattern != pattern.strip():
        raise CannotHoldError(
            f"minbpe removes white space around the pattern, and this one is {quoted(pattern)}; "
            "put it into a group: (?:…)"
        )
    if "\n" in pattern or "\r" in pattern:
        raise CannotHoldError(
            f"the pattern {quoted(pattern)} has a line break, and a line of the file holds it"
        )
    for text in values.special_tokens:
        if text.split() != [text]:
            raise CannotHoldError(
                f"the special token {text!r} has white space, at which minbpe cuts the line that "
                "holds it"
            )
    lines = [_VERSION, pattern, str(len(values.special_tokens))]
    lines += (f"{text} {i}" for text, i in values.special_tokens.items())
    lines += (f"{left} {right}" for left, right in values.merges)
    return "".join(f"{line}\n" for line in lines).encode()


def vocab_file_bytes(vocab: Mapping[int, bytes], merges: Mapping[Pair, int]) -> bytes:
    """Return the contents of a `.vocab` file: one line per id, with the parts of its merge.

    Args:
        vocab: Id to bytes, in the order of the lines.
        merges: Pair of ids to the resulting id.
    """
    shown = {i: render_token(token) for i, token in vocab.items()}
    pairs = {i: pair for pair, i in merges.items()}

    def line(i: int) -> str:
        if i not in pairs:
            return f"[{shown[i]}] {i}\n"
        left, right = pairs[i]
        return f"[{shown[left]}][{shown[right]}] -> [{shown[i]}] {i}\n"

    return "".join(map(line, vocab)).encode()


def write_both(prefix: Location, model_file: bytes, vocab_file: bytes) -> None:
    """Write `prefix` + ".model" and `prefix` + ".vocab"."""
    write_file(f"{os.fspath(prefix)}.model", model_file)
    write_file(f"{os.fspath(prefix)}.vocab", vocab_file)


def replace_control_characters(text: str) -> str:
    r"""Return the text with control characters and others without a glyph as `\u` escapes.

    These are the characters of Unicode's category C, in the version of Python's `unicodedata`.

    Example:
        >>> print(replace_control_characters("a\nb"))
        a\u000ab
    """
    if text.isprintable():  # most tokens need no look at each character
        return text
    return "".join(
        f"\\u{ord(character):04x}" if unicodedata.category(character)[0] == "C" else character
        for character in text
    )


def render_token(token: bytes) -> str:
    r"""Return a token for people: control characters escaped, bytes that are not UTF-8 as U+FFFD.

    Example:
        >>> print(render_token(b" end\r\n"), render_token("é".encode()[:1]))
         end\u000d\u000a �
    """
    return replace_control_characters(token.decode("utf-8", errors="replace"))


def _lines(text: str) -> list[str]:
    """Return the lines of a text. Unlike `splitlines`, only line feeds and returns end a line."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return lines if lines[-1] else lines[:-1]


def _is_number(field: str) -> bool:
    return field.isascii() and field.isdigit() and len(field) <= 10
