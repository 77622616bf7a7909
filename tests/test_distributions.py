"""The distributions that the tree is divided into: what each contains and requires."""

from __future__ import annotations

import ast
import importlib.metadata
import runpy
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
VERSION: str = PROJECT["project"]["version"]
# Modules whose distributions have other names, or that are extras.
EXTRAS = {"huggingface_hub", "tiktoken"}

# Modules of bpe_core imported where those of the pipelines can't be.
ALONE = """
import importlib, pkgutil, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in REFUSED:
            raise ImportError(f"{name} is not a requirement of bpe-core")
sys.meta_path.insert(0, Refuse())
import bpe_core
for module in pkgutil.walk_packages(bpe_core.__path__, "bpe_core."):
    if "generate_" not in module.name:
        importlib.import_module(module.name)
exec(EXAMPLE)
"""


def load_script() -> dict[str, Any]:
    pytest.importorskip("tomli_w")
    return runpy.run_path(str(ROOT / "deploy/distributions.py"))


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    write: Callable[[Path], tuple[Path, Path]] = load_script()["write_trees"]
    return write(tmp_path_factory.mktemp("trees"))


def project_of(tree: Path) -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((tree / "pyproject.toml").read_text("utf-8"))["project"]
    return project


def imported_by_core() -> set[str]:
    found = set()
    for path in (ROOT / "bpe_core").rglob("*.py"):
        if path.name.startswith("generate_"):
            continue
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return found - sys.stdlib_module_names - {"bpe_core"}


@pytest.mark.slow
def test_core_requires_what_it_imports_and_no_more() -> None:
    assert imported_by_core() - EXTRAS == set(PROJECT["tool"]["bpe-core"]["dependencies"])


@pytest.mark.slow
def test_the_pipelines_require_core_of_their_version_and_share_no_file_with_it(
    trees: tuple[Path, Path],
) -> None:
    core, beam = map(project_of, trees)
    assert (core["name"], beam["name"]) == ("bpe-core", "bpe-beam")
    assert core["version"] == beam["version"] == VERSION
    assert f"bpe-core=={VERSION}" in beam["dependencies"]
    assert {*PROJECT["project"]["dependencies"]} < {*beam["dependencies"]}
    assert "scripts" in beam and "scripts" not in core
    packages = [{path.name for path in tree.iterdir() if path.is_dir()} for tree in trees]
    assert packages == [{"bpe_core"}, {"pipelines"}]


@pytest.mark.process
@pytest.mark.slow
def test_the_wheel_of_the_pipelines_is_for_every_platform(
    trees: tuple[Path, Path], tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path]
    done = subprocess.run([*command, trees[1]], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    wheel = tmp_path / f"bpe_beam-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    inside = {name for name in names if not name.startswith(f"bpe_beam-{VERSION}.dist-info/")}
    code = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "pipelines").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert inside == code


@pytest.mark.process
@pytest.mark.slow
def test_core_works_without_what_the_pipelines_require() -> None:
    declared = {*PROJECT["tool"]["bpe-core"]["dependencies"]}
    refused = {
        "apache_beam",
        "jinja2",
        "pipelines",
        "pydantic",
        "tenacity",
        "typer",
        "yaml",
    }
    assert not refused & declared
    readme = (ROOT / "bpe_core/README.md").read_text("utf-8")
    example = readme.partition("```python\n")[2].partition("```")[0]
    code = f"REFUSED = {refused!r}\nEXAMPLE = {example!r}\n{ALONE}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_installation_from_a_clone_declares_core_and_keeps_installers_from_replacing_it() -> (
    None
):
    try:
        core = importlib.metadata.distribution("bpe-core")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("an editable installation does not declare bpe-core")
    if importlib.metadata.distribution("bpe-beam").read_text("RECORD") is None:
        pytest.skip("bpe-beam was not installed from a wheel")
    assert core.version == VERSION
    assert (core.read_text("INSTALLER"), core.read_text("RECORD")) == ("bpe-beam\n", None)
    owned = {path.parts[0] for path in importlib.metadata.files("bpe-beam") or ()}
    assert {"bpe_core", "pipelines"} <= owned
