"""Write the source trees of the two distributions that are published: bpe-core and bpe-beam.

    python deploy/distributions.py out/distributions

bpe-core contains the tokenizers and their compiled code. bpe-beam contains the pipelines, has no
compiled code, and requires bpe-core of the same version. Each tree is complete:
`python -m build out/distributions/bpe-core`. The names, versions and requirements are derived from
pyproject.toml.

An installation from a clone has both packages in one distribution instead, because it must work
where neither is published.
"""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import tomli_w

ROOT = Path(__file__).parents[1]
CORE, BEAM = "bpe-core", "bpe-beam"
# Extras of bpe-beam that bpe-core has, too.
CORE_EXTRAS = ("hub",)
SHARED_FILES = ("LICENSE", "CHANGELOG.md")


def write_trees(folder: Path) -> tuple[Path, Path]:
    """Replace the two trees in a folder, and return their paths."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    trees = folder / CORE, folder / BEAM
    for tree in trees:
        shutil.rmtree(tree, ignore_errors=True)
        tree.mkdir(parents=True)
        for name in SHARED_FILES:
            shutil.copy2(ROOT / name, tree)
    core, beam = trees
    write_project(core, core_project(project))
    copy_package("bpe_core", core)
    shutil.copy2(ROOT / "bpe_core/README.md", core)
    shutil.copy2(ROOT / "setup.py", core)
    write_project(beam, beam_project(project))
    copy_package("pipelines", beam)
    shutil.copy2(ROOT / "README.md", beam)
    for tree in trees:
        shutil.copy2(ROOT / "MANIFEST.in", tree)
    return trees


def core_project(project: dict[str, Any]) -> dict[str, Any]:
    """Return the pyproject.toml of bpe-core."""
    whole, core = project["project"], project["tool"]["bpe-core"]
    left_out = {"dependencies", "optional-dependencies", "scripts"}
    return {
        "build-system": project["build-system"],
        "project": {
            **{key: value for key, value in whole.items() if key not in left_out},
            "name": CORE,
            "description": core["description"],
            "dependencies": [
                requirement
                for requirement in whole["dependencies"]
                if name_of(requirement) in core["dependencies"]
            ],
            "optional-dependencies": {
                extra: whole["optional-dependencies"][extra] for extra in CORE_EXTRAS
            },
        },
        "tool": {"setuptools": setuptools_of(project, "bpe_core")},
    }


def beam_project(project: dict[str, Any]) -> dict[str, Any]:
    """Return the pyproject.toml of bpe-beam, which has no compiled code."""
    whole = project["project"]
    extras = whole["optional-dependencies"]
    return {
        "build-system": {
            "requires": [
                requirement
                for requirement in project["build-system"]["requires"]
                if name_of(requirement) == "setuptools"
            ],
            "build-backend": project["build-system"]["build-backend"],
        },
        "project": {
            **whole,
            "dependencies": [f"{CORE}=={whole['version']}", *whole["dependencies"]],
            "optional-dependencies": {
                extra: requirements for extra, requirements in extras.items() if extra != "test"
            },
        },
        "tool": {"setuptools": setuptools_of(project, "pipelines")},
    }


def setuptools_of(project: dict[str, Any], package: str) -> dict[str, Any]:
    """Return the settings of setuptools for one of the packages."""
    settings = project["tool"]["setuptools"]
    return {
        **settings,
        "packages": {"find": {"include": [f"{package}*"], "namespaces": False}},
        "package-data": {
            name: patterns
            for name, patterns in settings["package-data"].items()
            if name.partition(".")[0] == package
        },
    }


def name_of(requirement: str) -> str:
    """Return the name of the package that is required."""
    return re.split(r"[^\w.-]", requirement)[0]


def copy_package(name: str, tree: Path) -> None:
    """Copy a package without what was compiled."""
    unwanted = shutil.ignore_patterns("__pycache__", "*.so")
    # With the times of the files, by which setup.py finds what to compile again.
    shutil.copytree(ROOT / name, tree / name, ignore=unwanted)


def write_project(tree: Path, project: dict[str, Any]) -> None:
    """Write pyproject.toml."""
    (tree / "pyproject.toml").write_text(tomli_w.dumps(project), "utf-8")


if __name__ == "__main__":
    for written in write_trees(Path(sys.argv[1])):
        print(written)
