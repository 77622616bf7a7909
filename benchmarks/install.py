"""Install the requirements of the benchmarks into the environment of the running Python.

A peer that cannot be installed is reported as missing, and the benchmarks run without it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# This module runs before anything is installed: it imports the standard library alone.
HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE / "requirements.txt"
PEERS = (
    "bpe-openai",
    "bpeasy",
    "datatrove",
    "gigatoken",
    "quicktok-v1",
    "rustbpe",
    "tiktoken",
    "tokenizers",
)
# Only one module of it is used, which needs none of its gigabytes of dependencies.
WITHOUT_DEPENDENCIES = "llm-foundry==0.22.0"

# Installed beside the release, which it cannot replace: it has no training.
CANDIDATE = "tokenizers==1.0.0rc3"
CANDIDATE_PATH = HERE.parent / "out" / "bench-tokenizers-1.0"


def main() -> None:
    """Install all requirements at once, or one by one if that fails; then compile the project."""
    if not install("--requirement", str(REQUIREMENTS), quiet=True):
        for line in REQUIREMENTS.read_text().splitlines():
            if line.startswith("#") or install(line):
                continue
            name = line.partition("==")[0]
            if name not in PEERS:
                sys.exit(f"{line}: needed, but can't be installed here; see pip's message above")
            print(f"{line}: can't be installed here; its figures will be missing")
    if not install("--no-deps", WITHOUT_DEPENDENCIES):
        print(f"{WITHOUT_DEPENDENCIES}: can't be installed here; its figures will be missing")
    if not install("--upgrade", "--target", str(CANDIDATE_PATH), CANDIDATE):
        print(f"{CANDIDATE}: can't be installed here; its figures will be missing")
    if not install("--force-reinstall", "--no-deps", str(HERE.parent)) or not install(
        str(HERE.parent)
    ):
        sys.exit("the project can't be installed; see pip's message above")


def install(*what: str, quiet: bool = False) -> bool:
    """Install with pip; return whether it succeeded."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", *what]
    errors = subprocess.DEVNULL if quiet else None
    return subprocess.run(command, stderr=errors, check=False).returncode == 0


if __name__ == "__main__":
    main()
