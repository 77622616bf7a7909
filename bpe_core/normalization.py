"""Normalization of text before it is split into pre-tokens.

Special tokens are found in the original text; each part between them is normalized separately. So
a special token keeps its spelling and its id, and ordinary text stays ordinary even if its
normalized form spells a special token.

The Unicode normalization form is applied first, then quotes are replaced. The form is that of
Unicode 16.0, whatever Python's version is: native code does the work (`native/normalizer.hpp`).
"""

from __future__ import annotations

from bpe_core._native import Normalizer
from bpe_core.errors import InvalidTokenizerError

__all__ = ["NORMALIZERS", "QUOTES", "checked_normalizer", "native_normalizer"]

NORMALIZERS = ("nfc", "nfkc")
"""The Unicode normalization forms: canonical and compatibility composition."""

QUOTES: dict[str, str] = {
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2039\u203a\uff07", "'"),
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u00ab\u00bb\u2e42\u301d\u301e\u301f\uff02", '"'),
}
"""Replacements that `normalize_quotes` makes.

The characters are those with the Unicode property Quotation_Mark except the corner brackets of
East Asian text. Primes (\u2032 \u2033), which mark minutes and feet, and letters that look like
apostrophes (\u02bc \u02bb) are not replaced.
"""


def checked_normalizer(normalizer: str | None) -> str | None:
    """Return the normalizer; None also for "none", its name in configurations.

    Raises:
        InvalidTokenizerError: it is neither None, "none" nor one of `NORMALIZERS`.
    """
    if normalizer is None or normalizer == "none":
        return None
    if normalizer not in NORMALIZERS:
        raise InvalidTokenizerError(
            f"normalizer: expected 'nfc', 'nfkc' or None, found {normalizer!r}"
        )
    return normalizer


def native_normalizer(normalizer: str | None, normalize_quotes: bool) -> Normalizer | None:
    """Return the normalizer for native code; None if it would change nothing.

    Raises:
        InvalidTokenizerError: an unknown normalizer.

    Example:
        >>> native = native_normalizer("nfc", normalize_quotes=True)
        >>> native.normalize("\u2018cafe\u0301\u2019".encode()).decode()
        "'caf\xe9'"
    """
    normalizer = checked_normalizer(normalizer)
    if normalizer is None and not normalize_quotes:
        return None
    return Normalizer(normalizer, normalize_quotes)
