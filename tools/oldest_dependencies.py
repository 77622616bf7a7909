"""Create an environment with the oldest versions of the dependencies that pyproject.toml allows.

    python3 tools/oldest_dependencies.py out/oldest-venv

The package is installed there, not in place: the oldest pybind11 compiles its native code.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from environment import ROOT, read_project, report

# Not in pyproject.toml; the oldest versions do not work.
_TOOLS = ("wheel>=0.45",)


def main() -> None:
    """Create the environment that the argument names, or bring it up to date."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", type=Path)
    directory = ROOT / parser.parse_args().directory
    python = directory / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", directory], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "uv"], check=True)
    install = [directory / "bin" / "uv", "pip", "install", "--quiet", "--python", python]
    subprocess.run([*install, "--resolution", "lowest-direct", *requirements()], check=True)
    subprocess.run([*install, "--no-deps", "--no-build-isolation", ROOT], check=True)


def requirements() -> list[str]:
    """Return what the package, its extras, its compilation and its tests require."""
    project = read_project()
    extras = project["project"]["optional-dependencies"]
    chosen = ("azure", "gcs", "http", "hub", "s3", "test")
    found = [
        *project["build-system"]["requires"],
        *_TOOLS,
        *project["project"]["dependencies"],
        *(requirement for extra in chosen for requirement in extras[extra]),
    ]
    report(f"the oldest versions of {len(found)} packages")
    return found


if __name__ == "__main__":
    main()
