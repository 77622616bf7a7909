"""Create or complete the environment that make works in.

    python3 tools/environment.py .venv                  the package, in place, with what it needs
    python3 tools/environment.py .venv --extra test     packages of an extra of pyproject.toml
    python3 tools/environment.py .venv --group lint     packages of a dependency group

Packages are installed when pyproject.toml is newer than they are. The native code is compiled at
the same time, and it alone when nothing else has changed.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROJECT = ROOT / "pyproject.toml"
OLDEST_PYTHON = (3, 11)


def main() -> None:
    """Install what the arguments name; end with a message and no traceback if that fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--extra")
    parser.add_argument("--group")
    given = parser.parse_args()
    if problem := missing_prerequisites():
        sys.exit(problem)
    directory = ROOT / given.directory
    directory.mkdir(exist_ok=True)
    try:
        with (directory / "lock").open("w") as lock:
            # Two targets of one make may install at the same time.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if given.extra or given.group:
                add_packages(directory, given.extra, given.group)
            else:
                install(directory)
    except subprocess.CalledProcessError as failed:
        sys.exit(f"failed, see the lines above: {shlex.join(map(str, failed.cmd))}")
    except KeyboardInterrupt:
        sys.exit(130)


def missing_prerequisites() -> str | None:
    """Return what this machine lacks and how to install it, or None."""
    if sys.version_info < OLDEST_PYTHON:
        found = ".".join(map(str, sys.version_info[:3]))
        return (
            f"Python 3.11 or newer is needed; {sys.executable} is {found}. "
            "Name a newer one: make PYTHON=python3.11"
        )
    include = Path(sysconfig.get_paths()["include"])
    compiler = shlex.split(os.environ.get("CXX") or sysconfig.get_config_var("CXX") or "g++")
    found = {
        ("the module venv", "python3-venv"): importlib.util.find_spec("venv")
        and importlib.util.find_spec("ensurepip"),
        (f"Python's headers ({include / 'Python.h'})", "python3-dev"): (
            include / "Python.h"
        ).is_file(),
        (f"a C++20 compiler ({compiler[0]})", "g++"): shutil.which(compiler[0]),
    }
    missing = [names for names, is_there in found.items() if not is_there]
    if not missing:
        return None
    return (
        f"Not found: {', '.join(name for name, _ in missing)}.\n"
        f"On Debian and Ubuntu: sudo apt install {' '.join(package for _, package in missing)}"
    )


def install(directory: Path) -> None:
    """Bring the environment, its packages and the compiled code up to date."""
    python = directory / "bin" / "python"
    compilation = [python, "setup.py", "--quiet", "build_ext", "--inplace"]
    packages = directory / "packages"
    if packages.exists() and packages.stat().st_mtime >= PROJECT.stat().st_mtime:
        run(compilation)
        return
    began = time.monotonic()
    project = read_project()
    report(f"setting up {directory.name}: a minute or so on two processors, 500 MB on disk")
    if not python.exists():
        report(f"environment: Python {sys.version.split()[0]}")
        run([sys.executable, "-m", "venv", directory])
    # New versions of pip install several times faster than those that come with Python.
    run(pip(directory, "--upgrade", "pip", *project["build-system"]["requires"]))
    report("packages: apache-beam, pyarrow and what they need, while the code is compiled")
    run(compilation, pip(directory, *project["project"]["dependencies"]))
    report("bpe-beam: in place, so that an edited file counts at once")
    # Quieter by one step more, because setuptools warns of every editable installation.
    run(pip(directory, "--quiet", "--no-deps", "--no-build-isolation", "--editable", ROOT))
    packages.touch()
    report(f"set up in {time.monotonic() - began:.0f} s")


def add_packages(directory: Path, extra: str | None, group: str | None) -> None:
    """Install the packages of an extra or of a dependency group, without the package itself."""
    project = read_project()
    requirements = (
        project["project"]["optional-dependencies"][extra]
        if extra
        else project["dependency-groups"][group]
    )
    report(f"packages for {extra or group}: {len(requirements)}, with what they need")
    run(pip(directory, *requirements))


def read_project() -> dict[str, Any]:
    """Return the contents of pyproject.toml."""
    import tomllib  # not in versions of Python that are refused with a message

    return tomllib.loads(PROJECT.read_text())


def pip(directory: Path, *arguments: str | Path) -> list[str | Path]:
    """Return a command that installs into the environment."""
    return [directory / "bin" / "python", "-m", "pip", "install", "--quiet", *arguments]


def run(*commands: list[str | Path]) -> None:
    """Run commands at the same time; if one fails, end the others and raise CalledProcessError."""
    processes = [subprocess.Popen(command, cwd=ROOT) for command in commands]
    try:
        codes: list[int | None] = [None]
        while None in codes and not any(codes):
            time.sleep(0.05)
            codes = [process.poll() for process in processes]
    finally:
        for process in processes:
            process.terminate()
            process.wait()
    for command, code in zip(commands, codes, strict=True):
        if code:
            raise subprocess.CalledProcessError(code, command)


def report(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


if __name__ == "__main__":
    main()
