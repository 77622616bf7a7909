"""The characters that the library tokenizers normalizes as this package does."""

from __future__ import annotations

from functools import cache

import unicodedata2
from tokenizers import normalizers

from bpe_core._native import Normalizer


@cache
def normalizes_alike(character: str) -> bool:
    """Return False for characters newer than the library's tables, which are of Unicode 9."""
    theirs, ours = normalizers.NFKC(), Normalizer("nfkc")
    return all(
        theirs.normalize_str(text) == ours.normalize(text.encode()).decode()
        for text in (
            character,
            f"a\u0315{character}\u0300",
            f"a\u0334{character}",
            unicodedata2.normalize("NFD", character),
        )
    )
