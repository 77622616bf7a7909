"""Numbers as people write them: `64MiB`, `1.5GB`, `32k`, `2_000`.

k, M, G and T are powers of 1000, also before B; KiB, MiB, GiB and TiB are powers of 1024. The
command line shares this module with the configuration, so it imports nothing that is slow to load.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_LONGEST: Final = 100
_NUMBER: Final = r"\d+(_\d+)*(\.\d+)?"
_POWERS: Final = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4}


@dataclass(frozen=True)
class Quantity:
    """A kind of number with its units.

    Attributes:
        pattern: Regex of its texts, also for JSON schemas.
        expected: Description of its values for messages.
    """

    pattern: str
    expected: str

    def parse(self, text: str) -> int:
        """Return the number that a text represents.

        >>> BYTES.parse("1.5KiB"), BYTES.parse("1 MB"), NUMBER.parse("32k"), NUMBER.parse("2_000")
        (1536, 1000000, 32000, 2000)

        Raises:
            ValueError: The text is not such a number, or the number is not whole.
        """
        if len(text) > _LONGEST or not re.fullmatch(self.pattern, text, re.ASCII):
            raise ValueError(f"expected {self.expected}")
        number, unit = re.split(r" ?(?=[A-Za-z]|$)", text, maxsplit=1)
        base = 1024 if unit.endswith("iB") else 1000
        power = _POWERS[unit.removesuffix("B").removesuffix("i")]
        whole, _, fraction = number.replace("_", "").partition(".")
        scaled, remainder = divmod(int(whole + fraction) * base**power, 10 ** len(fraction))
        if remainder:
            raise ValueError(f"expected {self.expected}")
        return int(scaled)


BYTES: Final = Quantity(
    pattern=rf"^{_NUMBER} ?([kKMGT]?B?|[KMGT]iB)$",
    expected="a size such as 64MiB, 1.5GB or 2_000, in bytes",
)
NUMBER: Final = Quantity(
    pattern=rf"^{_NUMBER} ?[kKMGT]?$", expected="a whole number such as 32k, 1.5M or 2_000"
)
