"""The rules of CONTRIBUTING.md ("House style") that a program can check."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]
_CHECKED = ("bpe_core", "pipelines", "examples", "benchmarks", "deploy")
_EXCLUDED_PHRASES = re.compile(r"None if there is none|as `[^`]+` has (it|them)")
_EXCLUDED_STARTS = frozenset({"What", "Whether", "Of", "Where", "Which", "That"})


def list_docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each docstring of a module."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, documented) and (text := ast.get_docstring(node)):
            yield node.body[0].lineno, text


@pytest.mark.slow
@pytest.mark.parametrize("folder", _CHECKED)
def test_docstrings_start_with_a_verb_or_a_noun(folder: str) -> None:
    """No definition starts with What, Whether, Of, Where, Which or That."""
    paths = sorted((_ROOT / folder).rglob("*.py"))
    assert paths
    found = [
        f"{path.relative_to(_ROOT)}:{line}: {text.splitlines()[0]}"
        for path in paths
        for line, text in list_docstrings(path)
        if text.split(maxsplit=1)[0].rstrip(",:;") in _EXCLUDED_STARTS
    ]
    assert found == []


@pytest.mark.slow
@pytest.mark.parametrize("folder", _CHECKED)
def test_docstrings_are_plain(folder: str) -> None:
    """No docstring contains a phrase of the old style, such as "None if there is none"."""
    found = [
        f"{path.relative_to(_ROOT)}:{line}: {phrase[0]}"
        for path in sorted((_ROOT / folder).rglob("*.py"))
        for line, text in list_docstrings(path)
        if (phrase := _EXCLUDED_PHRASES.search(text))
    ]
    assert found == []
