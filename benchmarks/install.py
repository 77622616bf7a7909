"""Installs what the benchmarks need into the environment of the Python that runs this.

A peer that can't be installed here is said to be missing, and the benchmarks go on without it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
# Of it one module is used, and nothing of the gigabytes that it asks for.
WITHOUT_DEPENDENCIES = "llm-foundry==0.22.0"


def main() -> None:
    """Everything at once; one by one if that fails. Then the project, compiled anew."""
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
    if not install("--force-reinstall", "--no-deps", str(HERE.parent)) or not install(
        str(HERE.parent)
    ):
        sys.exit("the project can't be installed; see pip's message above")


def install(*what: str, quiet: bool = False) -> bool:
    """Whether pip could."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", *what]
    errors = subprocess.DEVNULL if quiet else None
    return subprocess.run(command, stderr=errors, check=False).returncode == 0


if __name__ == "__main__":
    main()
