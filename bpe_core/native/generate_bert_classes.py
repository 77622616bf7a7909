"""Generate bert_classes.hpp: the effect of Hugging Face's BERT normalizer and pre-tokenizer.

Every code point is put between two letters and passed to both, since the tables in that library
have an older version of Unicode than its documentation claims. Run it from the repository's root::

    python bpe_core/native/generate_bert_classes.py

Needs the package ``tokenizers``.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from generate_unicode_tables import write  # type: ignore[import-not-found]

DEFAULT_OUTPUT = Path(__file__).with_name("bert_classes.hpp")
KINDS = ("letter", "removed", "space", "alone")


def kind_of(character: str, normalizer: object, pre_tokenizer: object) -> str:
    """Return the effect on a character inside a word."""
    text = normalizer.normalize_str(f"a{character}b")  # type: ignore[attr-defined]
    words = [word for word, _ in pre_tokenizer.pre_tokenize_str(text)]  # type: ignore[attr-defined]
    found = {
        (f"a{character}b",): "letter",
        ("ab",): "removed",
        ("a", "b"): "space",
        ("a", character, "b"): "alone",
    }
    return found[tuple(words)]


def generate() -> str:
    """Return the text of bert_classes.hpp."""
    import tokenizers

    normalizer = tokenizers.normalizers.BertNormalizer(lowercase=False)
    pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    characters = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    kinds = {c: kind_of(chr(c), normalizer, pre_tokenizer) for c in characters}
    rows = []
    for kind, run in groupby(characters, kinds.__getitem__):
        members = list(run)
        if kind != "letter":
            rows.append(f"    {{0x{members[0]:04X}, 0x{members[-1]:04X}, BertKind::{kind}}},")
    ranges = "\n".join(rows)
    return f"""\
// Written by generate_bert_classes.py from tokenizers {tokenizers.__version__}; do not edit.
#pragma once

#include <cstdint>

namespace bpe {{

// Kind of a character in BERT's words: part of one, nothing, a gap, or a word of its own.
enum class BertKind : uint8_t {{ {", ".join(KINDS)} }};

struct BertRange {{
  uint32_t first, last;
  BertKind kind;
}};

// clang-format off
inline constexpr BertRange kBertRanges[] = {{
{ranges}
}};
// clang-format on

}}  // namespace bpe
"""


def main(arguments: list[str] | None = None) -> None:
    """Write the kinds of characters."""
    write(generate, DEFAULT_OUTPUT, arguments)


if __name__ == "__main__":
    main()
