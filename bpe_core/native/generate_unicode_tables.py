"""Generate unicode_tables.cpp, the character classes for the scanners, for Unicode 16.0.

Unicode 16.0 is the version of tiktoken 0.14 and tokenizers 0.23. The classes come from the package
``unicodedata2`` at version 16.0.0 and not from Python's own ``unicodedata``, whose version depends
on the interpreter. Run it from the repository's root::

    python bpe_core/native/generate_unicode_tables.py

``--output`` writes to another file. The result is the same on every machine.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

UNICODE_VERSION = "16.0.0"
DEFAULT_OUTPUT = Path(__file__).with_name("unicode_tables.cpp")

# A block is the 64 code points that share all bytes of their UTF-8 form but the last.
BLOCK_SIZE = 64
NUM_CODE_POINTS = 0x110000

# The bits of CharClass in unicode_tables.hpp.
LETTER = 1
NUMBER = 2
WHITE_SPACE = 4
WORD_HEAD = 8
WORD_TAIL = 16
SYMBOL = 32
HAN_OR_KANA = 64
NON_ASCII = 128

# The property White_Space of PropList.txt. It is stable, and unicodedata does not provide it:
# str.isspace() also accepts U+001C to U+001F, whose bidirectional class is a separator.
WHITE_SPACE_CODE_POINTS = frozenset(
    map(ord, "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000")
) | frozenset(range(0x2000, 0x200B))


def class_of(category: str, code_point: int) -> int:
    """Return the class bits of a code point with the given general category."""
    bits = 0
    if category[0] == "L":
        bits |= LETTER
    if category[0] == "N":
        bits |= NUMBER
    if category in ("Lu", "Lt", "Lm", "Lo") or category[0] == "M":
        bits |= WORD_HEAD
    if category in ("Ll", "Lm", "Lo") or category[0] == "M":
        bits |= WORD_TAIL
    if code_point in WHITE_SPACE_CODE_POINTS:
        bits |= WHITE_SPACE
    if category[0] in "PS":
        bits |= SYMBOL
    if 0x3040 <= code_point <= 0x30FF or 0x4E00 <= code_point <= 0x9FA5:
        bits |= HAN_OR_KANA
    return bits


def all_classes() -> bytes:
    """Return the class byte of every code point, in order."""
    import unicodedata2  # type: ignore[import-not-found]

    if unicodedata2.unidata_version != UNICODE_VERSION:
        raise SystemExit(
            f"expected unicodedata2 of Unicode {UNICODE_VERSION}, found "
            f"{unicodedata2.unidata_version}: pip install unicodedata2=={UNICODE_VERSION}"
        )
    return bytes(
        class_of(unicodedata2.category(chr(code_point)), code_point)
        for code_point in range(NUM_CODE_POINTS)
    )


def format_rows(values: list[int], indent: str) -> str:
    """Return the numbers as lines of C++ no longer than 100 columns."""
    lines: list[str] = []
    line = indent
    for value in values:
        item = f"{value},"
        if len(line) + len(item) + 1 > 100:
            lines.append(line.rstrip())
            line = indent
        line += item + " "
    lines.append(line.rstrip())
    return "\n".join(lines)


def generate() -> str:
    """Return the text of unicode_tables.cpp."""
    classes = all_classes()
    numbers: dict[bytes, int] = {}
    stage1 = [
        numbers.setdefault(classes[start : start + BLOCK_SIZE], len(numbers))
        for start in range(0, NUM_CODE_POINTS, BLOCK_SIZE)
    ]
    stage2 = [value for block in numbers for value in block]
    byte_classes = [*classes[:128], *([NON_ASCII] * 128)]
    return f"""\
// Written by generate_unicode_tables.py from Unicode {UNICODE_VERSION}; do not edit.

#include "unicode_tables.hpp"

// clang-format off
namespace bpe {{

const uint8_t kByteClasses[256] = {{
{format_rows(byte_classes, "    ")}
}};

const uint16_t kClassBlockNumbers[kNumClassBlocks] = {{
{format_rows(stage1, "    ")}
}};

const uint8_t kClassBlocks[][kClassBlockSize] = {{
{format_rows(stage2, "    ")}
}};

}}  // namespace bpe
// clang-format on
"""


def write(
    generate: Callable[[], str], default_output: Path, arguments: list[str] | None = None
) -> None:
    """Write the generated text to the file that the command line names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, default=default_output)
    options = parser.parse_args(arguments)
    options.output.write_text(generate(), encoding="ascii", newline="\n")
    print(f"wrote {options.output}", file=sys.stderr)


def main(arguments: list[str] | None = None) -> None:
    """Write the tables of the scanners."""
    write(generate, DEFAULT_OUTPUT, arguments)


if __name__ == "__main__":
    main()
