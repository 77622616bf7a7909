from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray

from bpe_core._native import split_pretokens
from bpe_core.patterns import PATTERNS, UNICODE_VERSION

NATIVE = Path(__file__).parents[2] / "bpe_core" / "native"

# Planes with assigned characters, whole; of the others (nothing there but private use) one code
# point of each block of 64, the unit of the tables.
PROBED = [
    *(c for c in range(0x40000) if not 0xD800 <= c < 0xE000),
    *range(0xE0000, 0xE0400),
    *range(0xE0400, 0x110000, 64),
    *range(0x40000, 0xE0000, 64),
]
CHUNK = 1 << 16

# What stands before and after a code point to show its class, each in a line of its own: which
# of letters, numbers and symbols it joins (gpt2), and how o200k takes its case.
FRAMES = [("a", ""), ("1", ""), ("!", ""), ("A", "A")]


def generator() -> ModuleType:
    pytest.importorskip("unicodedata2", reason="the tables come from unicodedata2")
    spec = importlib.util.spec_from_file_location("g", NATIVE / "generate_unicode_tables.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_in_the_repository_are_what_their_generator_writes(tmp_path: Path) -> None:
    output = tmp_path / "unicode_tables.cpp"
    generator().main(["--output", str(output)])
    assert output.read_bytes() == (NATIVE / "unicode_tables.cpp").read_bytes(), (
        "run python bpe_core/native/generate_unicode_tables.py"
    )


def test_the_tables_are_of_the_version_that_patterns_name() -> None:
    assert generator().UNICODE_VERSION == UNICODE_VERSION
    assert f'"{UNICODE_VERSION}"' in (NATIVE / "unicode_tables.cpp").read_text()


def probe_text(code_points: list[int]) -> str:
    return "".join(f"{a}{chr(c)}{b}a\n" for c in code_points for a, b in FRAMES)


def chunks() -> list[list[int]]:
    return [PROBED[start : start + CHUNK] for start in range(0, len(PROBED), CHUNK)]


@pytest.mark.parametrize("code_points", chunks(), ids=lambda chunk: f"U+{chunk[0]:04X}")
def test_every_code_point_has_the_class_that_hugging_face_tokenizers_give_it(
    code_points: list[int],
) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    text = probe_text(code_points)
    data = text.encode()
    bytes_before = np.flatnonzero((np.frombuffer(data, np.uint8) & 0xC0) != 0x80)
    bytes_before = np.append(bytes_before, len(data))
    for pattern in ("gpt2", "o200k"):
        splitter = tokenizers.pre_tokenizers.Split(
            tokenizers.Regex(PATTERNS[pattern]), behavior="isolated"
        )
        ends = np.array([end for _, (_, end) in splitter.pre_tokenize_str(text)])
        assert_same_ends(split_pretokens(pattern, data), bytes_before[ends], data)


@pytest.mark.parametrize("code_points", chunks(), ids=lambda chunk: f"U+{chunk[0]:04X}")
def test_every_code_point_has_the_class_that_tiktoken_gives_it(code_points: list[int]) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    # tiktoken shows tokens, not pre-tokens, so the vocabulary must be able to merge whatever comes
    # to stand in one pre-token: bytes into the character, then the character with its neighbours.
    # Only the end of a line need not merge, so a boundary before its last two characters says
    # nothing.
    ranks = {bytes([byte]): byte for byte in range(256)}
    characters = [chr(c).encode() for c in code_points]
    for size in (2, 3, 4):
        for character in characters:
            if len(character) >= size:
                ranks.setdefault(character[:size], len(ranks))
    for before, after in FRAMES:
        for character in characters:
            ranks.setdefault(before.encode() + character, len(ranks))
            if after:
                ranks.setdefault(character + after.encode(), len(ranks))
                ranks.setdefault((before.encode() + character + after.encode()), len(ranks))
    text = probe_text(code_points)
    data = text.encode()
    line_ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
    for pattern in ("gpt2", "o200k"):
        encoding = tiktoken.Encoding(
            "probe", pat_str=PATTERNS[pattern], mergeable_ranks=ranks, special_tokens={}
        )
        token_bytes = encoding.decode_tokens_bytes(encoding.encode_ordinary(text))
        ends = np.cumsum([len(token) for token in token_bytes])
        unclear = np.concatenate([line_ends - 1, line_ends, line_ends + 1])
        expected = np.setdiff1d(ends, unclear)
        found = np.setdiff1d(split_pretokens(pattern, data), unclear)
        assert_same_ends(found, expected, data)


def assert_same_ends(found: NDArray[np.int64], expected: NDArray[np.int64], data: bytes) -> None:
    if not np.array_equal(found, expected):
        place = int(np.setxor1d(found, expected)[0])
        raise AssertionError(
            f"pre-tokens differ at byte {place}, in {data[place - 8 : place + 8].decode(errors='replace')!r}"
        )
