"""Text for checks of tokenizers."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Final

_CHARACTERS_OF_A_CATEGORY: Final = 5
# A text for every script, and what patterns treat in their own way.
_TEXTS: Final = (
    "It's what they'd've said: WE'LL see, I'M sure, don't you? 'Tis so; naïve; caf e\u0301.",
    "\n  def area(r: float) -> float:\n\t\treturn 3.14 * r**2  # 1,000 or 12345678?\r\n\r",
    "{\"key\": [null, -1e-5], 'x_1': `a && b || !c`}; // https://example.org/?q=%20&n=42#top",
    "Жили-были старик со старухой. Η γάτα κοιμάται· अब सो जाओ। แมวกำลังนอนหลับ",
    "猫は縁側で寝ている。고양이가 잔다. 第\uff13个\uff0c共½页。 القط نائم، ١٢٣. החתול ישן.",
    "\u01c4ungla \u01c5 \ufb01n \u017f \u212a \u212b 🙂 👍🏽 👩\u200d👧 🇨🇭 \u00a0\u2028\u3000",
    "\x00\x07\x7f ---===!!!...…—“quoted”   \t \n   \n\n\n end   ",
)


def _lines() -> Iterator[str]:
    """Yield characters of every category, each in several contexts.

    Only characters that were in Unicode 3.2 with their present category: tables of libraries differ
    in newer ones.
    """
    old = unicodedata.ucd_3_2_0
    found: dict[str, list[str]] = {}
    for code in (*range(0x3400), *range(0x10300, 0x10450), *range(0x1D400, 0x1D440), 0xE0001):
        category = unicodedata.category(chr(code))
        known = found.setdefault(category, [])
        if category in ("Cn", "Cs", "Co") or old.category(chr(code)) != category:
            continue
        if code < 0x100 or len(known) < _CHARACTERS_OF_A_CATEGORY:
            known.append(chr(code))
    for characters in found.values():
        for c in characters:
            yield f"{c}a {c}{c} b{c}c 1{c}2 ,{c}. A{c}"


SAMPLE: Final = "\n".join([*_TEXTS, *_lines()])
"""Contractions, digits, code, many scripts, emoji, white space; every category of characters."""
