"""What a plan says about a build before it starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from build_support import command, some_text, write_corpus

from pipelines import build
from pipelines.config import BuildConfig
from pipelines.stages import probe


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


def test_a_plan_names_large_files_that_cannot_be_split(tmp_path: Path) -> None:
    for number, size in enumerate([300, 40, 40, 40]):
        (tmp_path / f"{number}.txt.gz").write_bytes(bytes(size))
    keys = {"files": [str(tmp_path / "*.gz")], "range_bytes": "200B"}
    values = {"output": str(tmp_path / "out"), "input": keys}
    (warning,) = build.plan(BuildConfig.model_validate(values)).warnings
    assert warning.startswith("files that cannot be split (compressed, or one document each)")
    assert "larger than 4 tasks: 1, the largest" in warning
    assert "0.txt.gz" in warning
    more = {**values, "input": {**keys, "range_bytes": "1kB"}}
    assert build.plan(BuildConfig.model_validate(more)).warnings == ()


@pytest.mark.slow
def test_a_full_disk_is_said_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_corpus(tmp_path / "data", {"a.txt": some_text(20)})
    (tmp_path / "build.yaml").write_text(
        "output: out\ninput: {files: [data/*.txt]}\ntokenizer: {vocab_size: 300}\n"
    )
    monkeypatch.setattr(probe, "_free_bytes", lambda output: 10)
    done = command("build", tmp_path / "build.yaml", "--progress", "plain", here=True)
    assert done.returncode == 0
    before, _, _ = done.stderr.partition("[1/3]")
    assert "warning: the output may need " in before
    assert "and 10 bytes are free in" in before
