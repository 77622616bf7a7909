"""What a plan says about a build before it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines import build
from pipelines.config import BuildConfig


@pytest.mark.parametrize(
    ("pattern", "splitting"),
    [
        ("o200k", "by a native scanner"),
        (r"\w+", "by a compiled pattern"),
        (r"(?=(\d{3})+(?!\d))", "by a compiled pattern, in two passes"),
        (r"(\w)\1", "by the package regex, in Python"),
    ],
)
def test_a_plan_shows_how_text_is_split(pattern: str, splitting: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Some text.")
    config = BuildConfig.model_validate(
        {
            "output": str(tmp_path / "out"),
            "input": {"files": [str(tmp_path / "a.txt")]},
            "tokenizer": {"vocab_size": 300, "pattern": pattern},
        }
    )
    plan = build.plan(config)
    assert plan.splitting == splitting
    warned = any("an escape, \\1, which is not compiled" in text for text in plan.warnings)
    assert warned == ("regex" in splitting)
