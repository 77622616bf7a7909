"""Amount of testing: little for `make check`, the same for every change, much at night.

The variable TESTS names the profile: `check`, `change` (the default) or `nightly`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar

import pytest
from hypothesis import settings

T = TypeVar("T")

# An example's time says little where tests share their cores.
settings.register_profile("check", deadline=None, max_examples=5, derandomize=True)
settings.register_profile("change", deadline=None, max_examples=25, derandomize=True)
settings.register_profile("nightly", deadline=None, max_examples=100)
PROFILE: Final = os.environ.get("TESTS", "change")
settings.load_profile(PROFILE)


def times(factor: float) -> int:
    """Return a number of examples, as a multiple of the profile's.

    Args:
        factor: 1 is what a test does that asks for no number.
    """
    return max(1, round(factor * settings.get_profile(PROFILE).max_examples))


def share(items: Sequence[T], of: int) -> Sequence[T]:
    """Return all items at night; for a change one in `of`, including the first."""
    return items if PROFILE == "nightly" else items[::of]


def seldom(cases: Iterable[Any], of: int) -> list[Any]:
    """Return cases of a test; all but one in `of` are marked `nightly`."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.nightly)
        if index % of
        else case
        for index, case in enumerate(cases)
    ]
