"""Imports run downwards only, as `[tool.importlinter]` in pyproject.toml has it, and at the top."""

from __future__ import annotations

import ast
import logging.config
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

ROOT = Path(__file__).parents[1]


def test_imports_run_downwards_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    # It disables all loggers that exist, and adds the working directory to the path.
    monkeypatch.setattr(logging.config, "dictConfig", lambda config: None)
    monkeypatch.setattr(sys, "path", [*sys.path])
    code = lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)
    assert code == 0, capsys.readouterr().out


def test_the_root_has_entry_points_and_base_modules_alone() -> None:
    assert {path.stem for path in (ROOT / "pipelines").glob("*.py")} == {
        *("__init__", "__main__", "build", "expansion_service", "row_transforms", "transforms"),
        *("accounting", "batches", "choices", "errors", "metrics", "quantities", "redaction"),
        *("supervisor", "versions", "worker_process"),
    }


# --- late imports


# Function → the reason that it imports modules of this package when it is called.
LATE: dict[str, str] = {
    **dict.fromkeys(
        ("pipelines/cli/process.py:load", "pipelines/cli/advice.py:_advise_key"),
        "`beam-bpe --help` loads no configuration",
    ),
    **{
        f"pipelines/cli/{commands}_commands.py:{name}": "a wrong command line or configuration is "
        "reported at once"
        for commands, names in {
            "build": ("plan", "_run"),
            "dataset": ("export", "verify", "inspect", "rejects", "report", "compare"),
            "analysis": ("sizes", "evaluate", "explain", "why"),
            "counts": (
                *("merge", "subtract", "scale", "prune", "filter", "top", "diff", "show"),
                *("export", "_open", "_combine", "_alike", "_check_group"),
            ),
            "tokenizer": ("convert", "prune"),
            "text": ("tokenize", "count_tokens", "_count_texts", "_count_fields"),
            "config": ("init", "_encode_with", "schema"),
        }.items()
        for name in names
    },
    **dict.fromkeys(
        (
            "pipelines/config/tokenizer.py:TokenizerConfig.effective_pattern",
            "pipelines/config/tokenizer.py:TokenizerConfig.required_problems",
            "pipelines/config/tokenizer.py:TokenizerConfig._superwords_problems",
            "pipelines/config/values.py:check_pattern",
        ),
        "a configuration with a pattern by name is read without compiling any",
    ),
    "pipelines/dataset/tokenizers.py:_find_model_of_dataset": "a tokenizer is found without the "
    "models of manifests and of configurations",
    "pipelines/stages/context.py:BuildContext.pipelines": "plans and finished builds need no Beam",
    **dict.fromkeys(
        (
            "pipelines/exports/export.py:_check_pipeline_options",
            "pipelines/exports/row_export.py:_finish_tasks",
        ),
        "formats without pipelines need no Beam",
    ),
    "pipelines/stages/summary.py:BuildSummary._repr_html_": "only notebooks need templates",
    "pipelines/stages/report_page.py:write_report_page": "only a finished build needs pages",
    "pipelines/worker_process.py:main": "it filters the warnings of Beam's import first",
}


@pytest.mark.slow
def test_modules_import_the_package_late_only_for_a_reason() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{name}"
        for path in sorted((ROOT / "pipelines").rglob("*.py"))
        for name in late_imports(ast.parse(path.read_text("utf-8")))
    }
    assert found == LATE.keys()


def late_imports(node: ast.AST, names: tuple[str, ...] = (), late: bool = False) -> Iterator[str]:
    """The functions in a tree that import modules of this package."""
    for child in ast.iter_child_nodes(node):
        if late and isinstance(child, ast.Import | ast.ImportFrom):
            modules = [alias.name for alias in child.names]
            modules += [child.module or ""] if isinstance(child, ast.ImportFrom) else []
            if any(module.partition(".")[0] in ("pipelines", "bpe_core") for module in modules):
                yield ".".join(names)
        function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        inner = (*names, child.name) if function or isinstance(child, ast.ClassDef) else names
        yield from late_imports(child, inner, late or function)
