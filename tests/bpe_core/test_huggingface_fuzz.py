"""Changed tokenizer.json files are refused, or give the ids of the library."""

from __future__ import annotations

import pytest
from profiles import times
from tokenizer_fuzzing import run_cases


@pytest.mark.slow
def test_changed_files_agree_or_are_refused() -> None:
    kinds, failures = run_cases(first_seed=1, number=times(6))
    assert not failures
    assert kinds["agrees"] > 0
