"""What `make` promises beside its commands: what it makes anew, and what it leaves alone."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(shutil.which("make") is None, reason="needs make"),
]


def planned(*arguments: str) -> str:
    """The commands that make would run."""
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_clean_leaves_builds_of_users_alone() -> None:
    names = [word for line in planned("clean").splitlines() for word in shlex.split(line)[2:]]
    below_out = {name for name in names if Path(name).parts[0] == "out"}
    assert below_out == {
        "out/quickstart",
        "out/benchmarks",
        "out/bench-venv",
        "out/wheel-venv",
    }


def test_after_clean_the_package_is_compiled_again() -> None:
    assert ".venv/installed" in planned("clean")


def test_wheels_for_two_versions_of_python_have_environments_of_their_own(tmp_path: Path) -> None:
    for version in ("3.12", "3.13"):
        python = tmp_path / f"python{version}"
        python.write_text(f"#!/bin/sh\necho {version}\n")
        python.chmod(0o755)
        commands = planned("wheel", f"PYTHON={python}")
        assert f"out/wheel-venv/{version}/bin/python deploy/build_wheel.py" in commands
