"""Writes scanner_fingerprints.txt, by which patterns are known that have a native scanner.

Each line has the name of a scanner and the fingerprints of the steps of its pattern.
"""

from __future__ import annotations

from pathlib import Path

from bpe_core.patterns import scanned_patterns, steps_of
from bpe_core.split_patterns.compiler import compile_steps
from bpe_core.split_patterns.generate_unicode_sets import write

DEFAULT_OUTPUT = Path(__file__).with_name("scanner_fingerprints.txt")


def generate() -> str:
    """Return the contents of the file."""
    names: dict[str, str] = {}
    for name, expression in scanned_patterns().items():
        found = [found for found in compile_steps(steps_of(expression)).fingerprints if found]
        names.setdefault(" ".join(found), name)
    return "".join(f"{name} {fingerprints}\n" for fingerprints, name in names.items())


def main(arguments: list[str] | None = None) -> None:
    """Write the fingerprints."""
    write(generate, DEFAULT_OUTPUT, arguments)


if __name__ == "__main__":
    main()
