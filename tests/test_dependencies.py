"""The packages import only what the project declares."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("bpe_core", "pipelines")
# Used where they are: in a notebook, and to compare ids.
OPTIONAL = {"ipython", "tiktoken", "tokenizers"}
# Requirements of Beam, jinja2 and pydantic.
INDIRECT = {"grpcio", "markupsafe", "protobuf", "pydantic_core", "requests", "zstandard"}


def imported() -> set[str]:
    """Return the modules that the packages import, but for Python's and their own."""
    files = (path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
    # Generators of tables run in the checkout alone.
    trees = (
        ast.parse(path.read_bytes()) for path in files if not path.name.startswith("generate_")
    )
    found = set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found - sys.stdlib_module_names - {*PACKAGES}


def declared() -> set[str]:
    """Return the distributions that the project needs, and those of its extras for users."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = {
        name: lines for name, lines in project["optional-dependencies"].items() if name != "test"
    }
    lines = [*project["dependencies"], *(line for lines in extras.values() for line in lines)]
    return {re.match(r"[\w-]+", line)[0].lower() for line in lines}  # type: ignore[index]


@pytest.mark.slow
def test_the_packages_import_what_is_declared() -> None:
    distributions = packages_distributions()
    allowed = declared() | OPTIONAL | INDIRECT
    for module in imported():
        names = {name.lower() for name in distributions.get(module, [module])}
        assert names & allowed, f"{module}, of {names}, is not declared"
