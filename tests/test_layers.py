"""The layer rule: imports run downwards only, as `[tool.importlinter]` in pyproject.toml has it."""

from __future__ import annotations

from pathlib import Path

import pytest
from importlinter.cli import lint_imports

ROOT = Path(__file__).parents[1]


def test_imports_run_downwards_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    code = lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)
    assert code == 0, capsys.readouterr().out


def test_the_root_has_entry_points_and_base_modules_alone() -> None:
    assert {path.stem for path in (ROOT / "pipelines").glob("*.py")} == {
        *("__init__", "__main__", "build", "expansion_service", "row_transforms", "transforms"),
        *("accounting", "batches", "errors", "metrics", "redaction", "supervisor", "versions"),
        "worker_process",
    }
