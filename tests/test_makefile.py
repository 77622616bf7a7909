"""What `make` promises beside its commands: what it makes anew, and what it leaves alone."""

from __future__ import annotations

import os
import runpy
import shlex
import shutil
import subprocess
import sys
import sysconfig
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
        # The tests may run below a make with variables of its own.
        env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")},
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
        "out/fuzz",
        "out/benchmarks",
        "out/bench-venv",
        "out/wheel-venv",
        "out/wheels",
        "out/site",
        "out/site-scripts",
        "out/long-run",
        "out/oldest-venv",
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


def test_quickstart_installs_nothing_for_tests_or_lint() -> None:
    commands = planned("quickstart")
    assert "tools/environment.py .venv\n" in commands
    assert "--extra" not in commands
    assert "--group" not in commands


def test_tests_add_their_packages_to_the_environment_of_quickstart() -> None:
    commands = planned("test")
    assert "tools/environment.py .venv\n" in commands
    assert "tools/environment.py .venv --extra test\n" in commands


def missing_prerequisites() -> str | None:
    script = runpy.run_path(str(ROOT / "tools" / "environment.py"))
    found = script["missing_prerequisites"]()
    assert found is None or isinstance(found, str)
    return found


def test_missing_compiler_and_headers_name_debian_packages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler -O2")
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    problem = missing_prerequisites()
    assert problem is not None
    assert "no-such-compiler" in problem
    assert str(tmp_path / "Python.h") in problem
    assert problem.endswith("sudo apt install python3-dev g++")


def test_an_old_python_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 4))
    problem = missing_prerequisites()
    assert problem is not None
    assert "Python 3.11 or newer is needed" in problem
    assert "3.10.4" in problem


def test_a_failing_command_ends_the_others() -> None:
    run = runpy.run_path(str(ROOT / "tools" / "environment.py"))["run"]
    with pytest.raises(subprocess.CalledProcessError) as failed:
        run(["sleep", "60"], ["false"])
    assert failed.value.cmd == ["false"]
