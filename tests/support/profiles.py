"""How many examples property tests try: few of the same for a change, many others at night."""

from __future__ import annotations

import os
from typing import Final

from hypothesis import settings

# An example's time says little where tests share their cores.
settings.register_profile("change", deadline=None, max_examples=25, derandomize=True)
settings.register_profile("nightly", deadline=None, max_examples=100)
PROFILE: Final = os.environ.get("TESTS", "change")
settings.load_profile(PROFILE)


def times(factor: float) -> int:
    """A number of examples: so many times that of the profile.

    Args:
        factor: 1 is what a test does that asks for no number.
    """
    return max(1, round(factor * settings.get_profile(PROFILE).max_examples))
