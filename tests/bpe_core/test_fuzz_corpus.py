"""Inputs that libFuzzer found (`make fuzz-native`), with the results of Python's libraries.

The targets in tests/native/fuzz compare native code with C++; here the same inputs are compared
with `regex`, `json`, `unicodedata`, and the reference.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import regex
from native_fuzzing import KEPT, SCANNED, fuzzed_patterns, inputs_to_compare, target_names

from bpe_core._native import (
    Encoder,
    JsonFields,
    Normalizer,
    SpecialSet,
    separator_problem,
    split_documents,
    split_pretokens,
    unescape_json,
    utf8_valid_prefix,
)
from bpe_core.patterns import resolve_pattern, scanned_patterns
from bpe_core.reference import apply_merges
from bpe_core.reference import split_documents as split_by_reference
from bpe_core.reference import split_pretokens as pretokens_by_reference

pytestmark = pytest.mark.slow

ENCODER_PATTERNS = ("none", *SCANNED)
ESCAPED, TEXT, INTEGER, OTHER = 2, 1, 3, 4


def known_text(data: bytes) -> str:
    """Return the characters that every version of Unicode in use classifies alike."""
    text = data.decode("utf-8", "ignore")
    return "".join(character for character in text if unicodedata.category(character) != "Cn")


class Input:
    """The bytes of an input, as fuzz.hpp reads them."""

    def __init__(self, data: bytes) -> None:
        self.left = data

    def take(self, size: int) -> bytes:
        taken, self.left = self.left[:size], self.left[size:]
        return taken

    def byte(self) -> int:
        return int.from_bytes(self.take(1))


def test_every_target_has_inputs() -> None:
    assert sorted(path.stem for path in KEPT.glob("*.txt")) == target_names()
    assert sum(path.stat().st_size for path in KEPT.iterdir()) < 200_000


def test_scanners_equal_regex() -> None:
    patterns = scanned_patterns()
    for data in inputs_to_compare("scanners"):
        text = known_text(data)
        for name in SCANNED:
            expected = [part.encode() for part in pretokens_by_reference(text, patterns[name])]
            for portable in (False, True):
                ends = split_pretokens(name, text.encode(), 256, portable).tolist()
                assert ends == np.cumsum([*map(len, expected)]).tolist(), (name, text, portable)


def test_compiled_patterns_equal_regex() -> None:
    patterns = fuzzed_patterns()
    for data in inputs_to_compare("patterns"):
        pattern = patterns[data[0] % len(patterns)]
        scanner = resolve_pattern(pattern).scanner
        text = known_text(data[1:])
        assert scanner is not None
        ends = split_pretokens(scanner, text.encode()).tolist()
        expected = [len(part.encode()) for part in pretokens_by_reference(text, pattern)]
        assert ends == np.cumsum(expected).tolist(), (pattern, text)


def read_merges(data: Input) -> list[tuple[int, int, int]]:
    """Return left, right and result of the merges: numbers of bytes, then of earlier results."""
    tokens = [bytes([byte]) for byte in range(256)]
    numbers: dict[bytes, int] = {}
    merges = []
    for _ in range(data.byte()):
        picked = [data.byte(), data.byte()]
        sides = [n % len(tokens) if n < 128 else len(tokens) - 1 - (n - 128) % 64 for n in picked]
        made = tokens[sides[0]] + tokens[sides[1]]
        if len(made) > 200:
            continue
        if made not in numbers:
            numbers[made] = len(tokens)
            tokens.append(made)
        merges.append((sides[0], sides[1], numbers[made]))
    return merges


def test_encoders_equal_the_reference() -> None:
    patterns = scanned_patterns()
    compared = 0
    for data in inputs_to_compare("encoder"):
        fuzzed = Input(data)
        options, pattern = fuzzed.byte(), ENCODER_PATTERNS[fuzzed.byte() % len(ENCODER_PATTERNS)]
        if options & 0b10011110 or fuzzed.byte() % 4:  # with rules that the reference lacks
            continue
        merges = read_merges(fuzzed)
        tokens = [bytes([byte]) for byte in range(256)]
        ranks: dict[tuple[bytes, bytes], int] = {}
        for rank, (left, right, result) in enumerate(merges):
            ranks.setdefault((tokens[left], tokens[right]), rank)
            if result == len(tokens):
                tokens.append(tokens[left] + tokens[right])
        ids = {token: number for number, token in enumerate(tokens)}
        columns = [np.array(column, np.uint32) for column in zip(*merges, strict=True)]
        columns = columns or [np.zeros(0, np.uint32)] * 3
        encoder = Encoder(np.arange(256), *columns, pattern=pattern)
        for document in fuzzed.left.split(b"\xff"):
            text = known_text(document)
            parts = pretokens_by_reference(text, patterns[pattern])
            expected = [
                ids[token] for part in parts for token in apply_merges(part.encode(), ranks)
            ]
            assert encoder.encode_text(text, SpecialSet([], [], [], [], [], [])) == expected
            compared += 1
    assert compared > 0


def test_fields_of_json_equal_those_of_python() -> None:
    fields = JsonFields([[b"a"], [b"b"], [b"meta", b"lang"]])
    reads: tuple[Callable[[Any], Any], ...] = (
        lambda record: record.get("a"),
        lambda record: record.get("b"),
        lambda record: (record.get("meta") or {}).get("lang"),
    )
    for data in inputs_to_compare("json_fields"):
        line = data.decode("utf-8", "ignore").encode()
        array = np.frombuffer(line, np.uint8).copy()
        starts, ends, kinds = fields.find(array, np.array([0]), np.array([len(line)]))
        if not np.isin(kinds, (TEXT, ESCAPED, INTEGER)).any():
            continue
        record = json.loads(regex.sub(rb"\bInf\b", b"Infinity", line), parse_int=str)
        escaped = kinds == ESCAPED
        ends[escaped] = unescape_json(array, starts[escaped], ends[escaped])
        for read, start, end, kind in zip(
            reads, starts[:, 0], ends[:, 0], kinds[:, 0], strict=True
        ):
            if kind in (TEXT, ESCAPED, INTEGER):
                found = array[start:end].tobytes().decode()
                expected = read(record)
                assert found == ("0" if kind == INTEGER and expected == "-0" else expected), line


def test_documents_equal_the_reference() -> None:
    compared = 0
    for data in inputs_to_compare("documents"):
        fuzzed = Input(data[2:])
        lengths = range(1 + fuzzed.byte() % 3)
        separators = [fuzzed.take(1 + fuzzed.byte() % 4) for _ in lengths]
        separators = [separator for separator in separators if separator]
        for _ in range(fuzzed.byte() % 3):
            fuzzed.take(1 + fuzzed.byte() % 6)
        text = fuzzed.left
        if not separators or separator_problem(separators) is not None:
            continue
        starts, ends, empty, rest, _, _ = split_documents(
            text, separators, 0, 0, len(text) + 1, len(text) + 1, len(text) + 1
        )
        found = [text[start:end] for start, end in zip(starts, ends, strict=True)]
        found += [text[rest:]] if rest < len(text) else []
        expected = split_by_reference(text, separators)
        assert found == [document for document in expected if document]
        assert empty == expected.count(b"")
        compared += 1
    assert compared > 20


@pytest.mark.parametrize("form", ["nfc", "nfkc"])
def test_normalization_equals_unicodedata(form: str) -> None:
    normalizer = Normalizer(form)
    for data in inputs_to_compare("text"):
        text = known_text(data[1:])
        expected = unicodedata.normalize(form.upper(), text)
        assert normalizer.normalize(text.encode()).decode() == expected


def test_valid_prefixes_equal_python() -> None:
    for data in inputs_to_compare("text"):
        text = data[1:]
        try:
            expected = len(text.decode().encode())
        except UnicodeDecodeError as error:
            expected = error.start
        assert utf8_valid_prefix(text) == expected
