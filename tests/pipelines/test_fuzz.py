"""Whole builds, and reading, from files damaged at random; `make fuzz` does more of it."""

from __future__ import annotations

from pathlib import Path

import fuzzing
import pytest
from profiles import seldom


@pytest.mark.parametrize("first", seldom(range(0, 200, 40), 5))
@pytest.mark.nightly
def test_builds_from_damaged_files_end_accounted_for_or_with_an_error_that_names_one(
    tmp_path: Path, first: int
) -> None:
    found = [fuzzing.fuzz_build(seed, tmp_path) for seed in range(first, first + 40)]
    assert found.count("built") > 15
    assert {"DamagedFileError", "BadFileLimitError"} <= set(found)


@pytest.mark.slow
def test_readers_of_damaged_files_give_what_is_there_or_an_error_that_names_them(
    tmp_path: Path,
) -> None:
    for seed in range(300):
        fuzzing.fuzz_reader(seed, tmp_path)


@pytest.mark.beam
@pytest.mark.parametrize("seed", [0, 40])
def test_builds_from_damaged_files_through_beam(tmp_path: Path, seed: int) -> None:
    fuzzing.fuzz_build(seed, tmp_path)
