"""Generate normalization_tables.cpp, the data of Unicode 16.0 for normalizer.cpp.

The data come from the package ``unicodedata2`` at version 16.0.0 and not from Python's own
``unicodedata``, whose version depends on the interpreter. Run it from the repository's root::

    python bpe_core/native/generate_normalization_tables.py

``--output`` writes to another file. The result is the same on every machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from generate_unicode_tables import (  # type: ignore[import-not-found]
    BLOCK_SIZE,
    NUM_CODE_POINTS,
    UNICODE_VERSION,
    format_rows,
    write,
)

DEFAULT_OUTPUT = Path(__file__).with_name("normalization_tables.cpp")

# The bits of NormalizationFlag in normalization_tables.hpp.
CHARACTER = 1
NFC_BOUNDARY = 2
NFKC_BOUNDARY = 4
NFC_STABLE = 8
NFKC_STABLE = 16
COMPOSES = 32
QUOTE = 64

HANGUL_SYLLABLES = range(0xAC00, 0xD7A4)
# Vowels and final consonants, from which syllables are composed by arithmetic.
HANGUL_SECONDS = {*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)}

# Characters with the property Quotation_Mark of PropList.txt, without the brackets of East Asian
# text and the two ASCII ones.
QUOTES = dict.fromkeys("‘’‚‛‹›＇", "'") | dict.fromkeys("“”„‟«»⹂〝〞〟＂", '"')


class Record(NamedTuple):
    """Properties of a code point: a row of kNormalizationRecords."""

    canonical: tuple[int, ...]
    compatible: tuple[int, ...]
    combining_class: int
    flags: int


def collect() -> tuple[list[Record], dict[tuple[int, int], int]]:
    """Return the record of every code point, in order, and the primary composites by pair."""
    import unicodedata2  # type: ignore[import-not-found]

    if unicodedata2.unidata_version != UNICODE_VERSION:
        raise SystemExit(
            f"expected unicodedata2 of Unicode {UNICODE_VERSION}, found "
            f"{unicodedata2.unidata_version}: pip install unicodedata2=={UNICODE_VERSION}"
        )

    def code_points(form: str, character: str) -> tuple[int, ...]:
        return tuple(map(ord, unicodedata2.normalize(form, character)))

    composites: dict[tuple[int, int], int] = {}
    for code_point in range(NUM_CODE_POINTS):
        character = chr(code_point)
        parts = unicodedata2.decomposition(character).split()
        # Composition exclusions differ from their normalized form.
        is_composed = unicodedata2.normalize("NFC", character) == character
        if len(parts) == 2 and not parts[0].startswith("<") and is_composed:
            composites[int(parts[0], 16), int(parts[1], 16)] = code_point
    seconds = HANGUL_SECONDS | {second for _, second in composites}

    def record_of(code_point: int) -> Record:
        if code_point in HANGUL_SYLLABLES:
            return Record((), (), 0, CHARACTER | NFC_BOUNDARY | NFKC_BOUNDARY)
        character = chr(code_point)
        canonical = code_points("NFD", character)
        compatible = code_points("NFKD", character)
        combining_class = unicodedata2.combining(character)
        flags = CHARACTER
        for form, boundary, stable in (
            ("NFC", NFC_BOUNDARY, NFC_STABLE),
            ("NFKC", NFKC_BOUNDARY, NFKC_STABLE),
        ):
            if code_points(form, character) != (code_point,):
                continue
            if not combining_class and canonical[0] not in seconds:
                flags |= boundary
            elif canonical == (code_point,):
                flags |= stable
        if code_point in seconds:
            flags |= COMPOSES
        if character in QUOTES:
            flags |= QUOTE
        return Record(
            canonical if canonical != (code_point,) else (),
            compatible if compatible != (code_point,) else (),
            combining_class,
            flags,
        )

    return [record_of(code_point) for code_point in range(NUM_CODE_POINTS)], composites


def growth(records: list[Record], which: str) -> int:
    """Return the maximum number of bytes that a byte of UTF-8 becomes, rounded up."""
    most = 1
    for code_point, record in enumerate(records):
        if parts := getattr(record, which):
            size = sum(len(chr(part).encode()) for part in parts)
            most = max(most, -(-size // len(chr(code_point).encode())))
    return most


def generate() -> str:
    """Return the text of normalization_tables.cpp."""
    records, composites = collect()
    plain = records[ord("a")]
    numbers = {plain: 0}
    indices = [numbers.setdefault(record, len(numbers)) for record in records]
    blocks: dict[tuple[int, ...], int] = {}
    stage1 = [
        blocks.setdefault(tuple(indices[start : start + BLOCK_SIZE]), len(blocks))
        for start in range(0, NUM_CODE_POINTS, BLOCK_SIZE)
    ]
    stage2 = [index for block in blocks for index in block]

    places: dict[tuple[int, ...], int] = {(): 0}
    decompositions: list[int] = []
    for record in numbers:
        for parts in (record.canonical, record.compatible):
            if parts not in places:
                places[parts] = len(decompositions)
                decompositions += parts
    rows = "\n".join(
        f"    {{{places[record.canonical]}, {places[record.compatible]}, {len(record.canonical)}, "
        f"{len(record.compatible)}, {record.combining_class}, {record.flags}}},"
        for record in numbers
    )
    pairs = "\n".join(
        f"    {{0x{first:04X}, 0x{second:04X}, 0x{composite:04X}}},"
        for (first, second), composite in sorted(composites.items())
    )
    quotes = "\n".join(f"    {{0x{ord(q):04X}, {ord(to)}}}," for q, to in sorted(QUOTES.items()))
    return f"""\
// Written by generate_normalization_tables.py from Unicode {UNICODE_VERSION}; do not edit.

#include "normalization_tables.hpp"

// clang-format off
namespace bpe {{

const size_t kCanonicalGrowth = {growth(records, "canonical")};
const size_t kCompatibleGrowth = {growth(records, "compatible")};

const uint16_t kNormalizationBlockNumbers[kNumNormalizationBlocks] = {{
{format_rows(stage1, "    ")}
}};

const uint16_t kNormalizationBlocks[][kNormalizationBlockSize] = {{
{format_rows(stage2, "    ")}
}};

const NormalizationRecord kNormalizationRecords[] = {{
{rows}
}};

const uint32_t kDecompositions[] = {{
{format_rows(decompositions, "    ")}
}};

const Composite kComposites[] = {{
{pairs}
}};
const size_t kNumComposites = sizeof kComposites / sizeof kComposites[0];

const Quote kQuotes[] = {{
{quotes}
}};
const size_t kNumQuotes = sizeof kQuotes / sizeof kQuotes[0];

}}  // namespace bpe
// clang-format on
"""


def main(arguments: list[str] | None = None) -> None:
    """Write the tables of normalization."""
    write(generate, DEFAULT_OUTPUT, arguments)


if __name__ == "__main__":
    main()
