"""Generate unicode_sets.txt, the sets of characters that split patterns name, for Unicode 16.0.

General categories, scripts and blocks come from the package ``unicodedataplus`` at version 16.0.0.
``regex`` adds the property Alphabetic and simple case folding, of characters that Unicode 16.0 has:
neither changes for a character that exists. Run it from the repository's root::

    python bpe_core/split_patterns/generate_unicode_sets.py

``--output`` writes to another file.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

UNICODE_VERSION = "16.0.0"
DEFAULT_OUTPUT = Path(__file__).with_name("unicode_sets.txt")
NUM_CODE_POINTS = 0x110000


def format_ranges(code_points: Iterable[int]) -> str:
    """Return ascending code points as ranges in hexadecimal, ``41-5a aa b5``."""
    ranges: list[list[int]] = []
    for code_point in code_points:
        if ranges and ranges[-1][1] == code_point - 1:
            ranges[-1][1] = code_point
        else:
            ranges.append([code_point, code_point])
    return " ".join(f"{a:x}" if a == b else f"{a:x}-{b:x}" for a, b in ranges)


def format_property(
    kind: str, value_of: Callable[[str], str], aliases: dict[str, list[str]]
) -> list[str]:
    """Return a line for each value of a property of characters: its names, and its characters."""
    members: dict[str, list[int]] = {}
    for code_point in range(NUM_CODE_POINTS):
        members.setdefault(value_of(chr(code_point)), []).append(code_point)
    names: dict[str, list[str]] = {}
    for name, others in aliases.items():
        group = [name, *others]
        for value in group:
            names.setdefault(value.replace("_", " "), group)
    lines = []
    for value, code_points in sorted(members.items()):
        group = names.get(value.replace("_", " "), [])
        all_names = dict.fromkeys([value.replace(" ", "_"), *group])
        lines.append(f"{kind}={','.join(all_names)} {format_ranges(code_points)}")
    return lines


def format_blocks(lines: list[str]) -> list[str]:
    """Return the lines of blocks with the unassigned characters that they contain."""
    blocks = []
    for line in lines:
        names, *ranges = line.split(" ")
        first, last = ranges[0].split("-")[0], ranges[-1].split("-")[-1]
        # A block begins and ends with a column of the charts.
        if not names.startswith("blk=No_Block"):
            blocks.append(f"{names} {int(first, 16) & ~15:x}-{int(last, 16) | 15:x}")
    return blocks


def generate() -> str:
    """Return the text of unicode_sets.txt."""
    import regex
    import unicodedataplus  # type: ignore[import-not-found]

    if unicodedataplus.unidata_version != UNICODE_VERSION:
        raise SystemExit(
            f"expected unicodedataplus of Unicode {UNICODE_VERSION}, found "
            f"{unicodedataplus.unidata_version}: pip install unicodedataplus=={UNICODE_VERSION}"
        )
    aliases = unicodedataplus.property_value_aliases
    lines = [f"# Unicode {UNICODE_VERSION}, written by generate_unicode_sets.py; do not edit."]
    lines += format_property("gc", unicodedataplus.category, aliases["category"])
    lines += format_property("sc", unicodedataplus.script, aliases["script"])
    lines += format_blocks(format_property("blk", unicodedataplus.block, aliases["block"]))
    assigned = {c for c in range(NUM_CODE_POINTS) if unicodedataplus.category(chr(c)) != "Cn"}
    alphabetic = regex.compile(r"\p{Alphabetic}")
    characters = (c for c in sorted(assigned) if alphabetic.match(chr(c)))
    lines.append(f"alphabetic {format_ranges(characters)}")
    orbits = set()
    for code_point in sorted(assigned):
        cases = regex._regex.get_all_cases(  # type: ignore[attr-defined]
            regex.UNICODE | regex.IGNORECASE, code_point
        )
        orbit = tuple(sorted(assigned.intersection(cases)))
        if len(orbit) > 1:
            orbits.add(orbit)
    # Turkish alone folds the i with and without a dot to I.
    orbits = {tuple(c for c in orbit if c not in (0x130, 0x131)) for orbit in orbits}
    orbits = {orbit for orbit in orbits if len(orbit) > 1}
    lines += ["cases " + "-".join(f"{c:x}" for c in orbit) for orbit in sorted(orbits)]
    for code_point in range(NUM_CODE_POINTS):
        folded = chr(code_point).casefold()
        if len(folded) > 1:
            lines.append(f"expands {code_point:x} " + "-".join(f"{ord(c):x}" for c in folded))
    return "\n".join(lines) + "\n"


def write(
    generate: Callable[[], str], default_output: Path, arguments: list[str] | None = None
) -> None:
    """Write the generated text to the file that the command line names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, default=default_output)
    options = parser.parse_args(arguments)
    options.output.write_text(generate(), encoding="ascii", newline="\n")
    print(f"wrote {options.output}", file=sys.stderr)


def main(arguments: list[str] | None = None) -> None:
    """Write the sets of characters."""
    write(generate, DEFAULT_OUTPUT, arguments)


if __name__ == "__main__":
    main()
