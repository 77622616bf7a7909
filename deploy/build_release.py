"""Build what a release consists of, try it in clean environments, and list what to upload.

    python deploy/build_release.py --pythons python3.11 python3.12 --targets linux-x86_64

`make release` runs it for every Python that it finds and for every platform. The wheels of this
platform are installed and used by each Python; those of other platforms are only checked.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from distributions import ROOT, write_trees

DEST = ROOT / "dist" / "release"
SCRATCH = ROOT / "out" / "wheels"


def main() -> None:
    """Build, try and list the release."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pythons", nargs="+", required=True)
    parser.add_argument("--targets", nargs="+", required=True)
    given = parser.parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    check_version(project, os.environ.get("RELEASE_TAG"))
    check_repository(project, os.environ.get("GITHUB_REPOSITORY"))
    shutil.rmtree(DEST, ignore_errors=True)
    DEST.mkdir(parents=True)
    for python in given.pythons:
        builder = prepare_builder(python)
        for target in given.targets:
            run([builder, "deploy/build_wheel.py", "--target", target, "--dest", DEST])
    for tree in write_trees(SCRATCH):
        run([sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", DEST, tree])
    for python in given.pythons:
        run([python, "deploy/try_release.py", DEST])
    print(f"\nto upload, from {DEST.relative_to(ROOT)}:")
    for path in sorted(DEST.iterdir()):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        print(f"{path.stat().st_size:>10,}  {digest}  {path.name}")


def check_version(project: dict[str, Any], tag: str | None) -> None:
    """Exit with an error if the tag of the release is not that of the version."""
    expected = f"v{project['version']}"
    if tag is not None and tag != expected:
        sys.exit(f"expected the tag {expected}, as in pyproject.toml, found {tag}")


def check_repository(project: dict[str, Any], name: str | None) -> None:
    """Exit with an error if the package names another repository than the one that releases it."""
    address = project["urls"]["Repository"]
    if name is not None and not address.endswith(f"/{name}"):
        sys.exit(f"expected the address of {name} in pyproject.toml, found {address}")


def prepare_builder(python: str) -> Path:
    """Return the Python that builds wheels for a version, with what it needs."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    version = subprocess.check_output([python, "-c", code], text=True).strip()
    environment = Path("out/wheel-venv") / version
    run(["make", "--no-print-directory", environment / "installed", f"PYTHON={python}"])
    return environment / "bin/python"


def run(command: list[str | Path]) -> None:
    """Run a command in the checkout; if it fails, exit."""
    if subprocess.run(command, cwd=ROOT).returncode != 0:
        sys.exit(f"failed: {' '.join(map(str, command))}")


if __name__ == "__main__":
    main()
