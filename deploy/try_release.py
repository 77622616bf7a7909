"""Install the wheels of a release in a clean environment, and use them.

    python deploy/try_release.py dist/release

Run it with each Python that the release supports. bpe-core is installed and used first, alone;
then bpe-beam is added, and the quick start is built. Both come from the folder, what they require
from the index.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Try the release with this Python; a failing command ends it."""
    release = Path(sys.argv[1]).resolve()
    version = ".".join(map(str, sys.version_info[:2]))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        venv.create(folder / "venv", with_pip=True)
        python = folder / "venv/bin/python"
        install = [python, "-m", "pip", "install", "--quiet", "--find-links", release]
        # A source distribution would hide that a wheel is missing.
        ours = ["--only-binary", "bpe-core,bpe-beam"]
        for package, command in (
            ("bpe-core", [python, "-c", example()]),
            ("bpe-beam", [folder / "venv/bin/beam-bpe", "build", *quick_start(folder)]),
        ):
            began = time.monotonic()
            run([*install, *ours, package], folder)
            installed = time.monotonic()
            run(command, folder)
            print(
                f"Python {version}: {package} installed in {installed - began:.1f} s, "
                f"used in {time.monotonic() - installed:.1f} s",
                flush=True,
            )
        run([python, "-m", "pip", "check"], folder)


def example() -> str:
    """Return the example of the README of bpe-core."""
    readme = (ROOT / "bpe_core/README.md").read_text("utf-8")
    return readme.partition("```python\n")[2].partition("```")[0]


def quick_start(folder: Path) -> list[str | Path]:
    """Return the arguments of the build of the quick start."""
    return [ROOT / "configs/quickstart.yaml", "--set", f"output={folder / 'out'}"]


def run(command: list[str | Path], folder: Path) -> None:
    """Run a command away from the checkout; if it fails, print its output and exit."""
    done = subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\n{' '.join(map(str, command[:6]))} … failed")


if __name__ == "__main__":
    main()
