from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from core_support import DEEPSEEK_V3, TEKKEN
from numpy.typing import NDArray
from profiles import share

from bpe_core._native import split_pretokens
from bpe_core.patterns import PATTERNS, THEN, UNICODE_VERSION, resolve_pattern, steps_of
from bpe_core.split_patterns.compiler import compile_steps

NATIVE = Path(__file__).parents[2] / "bpe_core" / "native"

# All code points as far as Unicode 16.0 has assigned some, and one of each block of 64 beyond: the
# tables have one entry a block there.
PROBED = [
    *(c for c in range(0x32400) if not 0xD800 <= c < 0xE000),
    *range(0x32400, 0xE0000, 64),
    *range(0xE0000, 0xE0200),
    *range(0xE0200, 0x110000, 64),
]

# What stands before and after a code point, in a line of its own, and together shows its class to
# o200k: letter or mark, number, symbol or mark, and upper or lower case.
PATTERN = "o200k"
FRAMES = [("a", ""), ("1", ""), ("!", ""), ("A", "A")]


def generator() -> ModuleType:
    pytest.importorskip("unicodedata2", reason="the tables come from unicodedata2")
    spec = importlib.util.spec_from_file_location("g", NATIVE / "generate_unicode_tables.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_tables_in_the_repository_are_what_their_generator_writes(tmp_path: Path) -> None:
    output = tmp_path / "unicode_tables.cpp"
    generator().main(["--output", str(output)])
    assert output.read_bytes() == (NATIVE / "unicode_tables.cpp").read_bytes(), (
        "run python bpe_core/native/generate_unicode_tables.py"
    )


def test_the_tables_are_of_the_version_that_patterns_name() -> None:
    assert generator().UNICODE_VERSION == UNICODE_VERSION
    assert f"Unicode {UNICODE_VERSION};" in (NATIVE / "unicode_tables.cpp").read_text()


def probe_text(code_points: list[int]) -> str:
    return "".join(f"{a}{chr(c)}{b}a\n" for c in code_points for a, b in FRAMES)


def chunks() -> list[list[int]]:
    bounds = [0, 0x10000 - 0x800, 0x20000 - 0x800, 0x30000 - 0x800, len(PROBED)]
    return [PROBED[start:end] for start, end in itertools.pairwise(bounds)]


def assert_same_ends(found: NDArray[np.int64], expected: NDArray[np.int64], data: bytes) -> None:
    if not np.array_equal(found, expected):
        place = int(np.setxor1d(found, expected)[0])
        around = data[max(place - 8, 0) : place + 8].decode(errors="replace")
        raise AssertionError(f"pre-tokens differ at byte {place}, in {around!r}")


@pytest.mark.parametrize("code_points", chunks(), ids=lambda chunk: f"from U+{chunk[0]:04X}")
def test_every_code_point_has_the_class_that_hugging_face_tokenizers_give_it(
    code_points: list[int],
) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    text = probe_text(share(code_points, 7))
    data = text.encode()
    offsets = np.flatnonzero((np.frombuffer(data, np.uint8) & 0xC0) != 0x80)
    offsets = np.append(offsets, len(data))
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(PATTERNS[PATTERN]), "isolated")
    ends = np.array([end for _, (_, end) in split.pre_tokenize_str(text)])
    assert_same_ends(split_pretokens(PATTERN, data), offsets[ends], data)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [(TEKKEN,), DEEPSEEK_V3], ids=["tekken", "deepseek"])
@pytest.mark.parametrize("code_points", chunks(), ids=lambda chunk: f"from U+{chunk[0]:04X}")
def test_every_code_point_is_split_by_scanners_as_by_automata(
    steps: tuple[str, ...], code_points: list[int]
) -> None:
    pattern = THEN.join(steps)
    native = resolve_pattern(pattern).native
    assert native is not None
    frames = [*FRAMES, ("\x01", ""), (" ", " "), ("  ", "1"), ("!", "\n"), ("漢", "・"), ("é", "é")]
    text = "".join(f"{a}{chr(c)}{b}\r" for c in share(code_points, 3) for a, b in frames)
    data = text.encode()
    expected = split_pretokens(compile_steps(steps_of(pattern)).splitter, data)
    for portable in (False, True):
        assert_same_ends(split_pretokens(native, data, 256, portable), expected, data)


# The characters of ASCII one by one: they are in the frames of each other, and those of the frames
# are left out. The vocabularies for planes 2 and up take long to make.
TIKTOKEN_CHUNKS = [
    pytest.param([[c] for c in range(128) if chr(c) not in "aA1!"], id="ASCII"),
    pytest.param([share(chunks()[0][128:], 7)], id="from U+0080"),
    pytest.param([share(chunks()[1], 7)], id="from U+10000"),
    pytest.param(chunks()[2:], id="from U+20000", marks=pytest.mark.soak),
]


@pytest.mark.slow
@pytest.mark.parametrize("chunks", TIKTOKEN_CHUNKS)
def test_every_code_point_has_the_class_that_tiktoken_gives_it(chunks: list[list[int]]) -> None:
    for code_points in chunks:
        check_with_tiktoken(code_points)


def check_with_tiktoken(code_points: list[int]) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    # tiktoken shows tokens, not pre-tokens. So its vocabulary must be able to merge what comes to
    # stand in one pre-token: bytes into the character, then the character with its frame.
    ranks = {bytes([byte]): byte for byte in range(256)}
    characters = [chr(c).encode() for c in code_points]
    for size in (2, 3, 4):
        for character in characters:
            if len(character) >= size:
                ranks.setdefault(character[:size], len(ranks))
    for character in characters:
        for before, _ in FRAMES:
            ranks.setdefault(before.encode() + character, len(ranks))
        ranks.setdefault(character + b"A", len(ranks))
        ranks.setdefault(b"A" + character + b"A", len(ranks))
    text = probe_text(code_points)
    data = text.encode()
    encoding = tiktoken.Encoding(
        "probe", pat_str=PATTERNS[PATTERN], mergeable_ranks=ranks, special_tokens={}
    )
    tokens = encoding.decode_tokens_bytes(encoding.encode_ordinary(text))
    ends = np.cumsum([len(token) for token in tokens])
    # How a line ends need not merge.
    line_ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
    unclear = np.concatenate([line_ends - 1, line_ends, line_ends + 1])
    found = np.setdiff1d(split_pretokens(PATTERN, data), unclear)
    assert_same_ends(found, np.setdiff1d(ends, unclear), data)
