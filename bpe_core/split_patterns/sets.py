"""Sets of characters in split patterns, over Unicode 16.0.

A set is described by a small tree (`CharacterSet`), from which its code points follow: the
ascending bounds of its ranges, so that ``(65, 91)`` contains A to Z.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TypeAlias

__all__ = [
    "ANY",
    "NEWLINE",
    "Bounds",
    "CharacterSet",
    "Complement",
    "Folded",
    "Intersection",
    "Named",
    "Span",
    "Union",
    "expanding",
    "find_property",
    "resolve",
    "script_names",
]

Bounds: TypeAlias = tuple[int, ...]

_END = 0x110000


@dataclass(frozen=True)
class Span:
    """Characters from `first` to `last`."""

    first: int
    last: int


@dataclass(frozen=True)
class Named:
    """Property of characters, by its key in the tables: ``gc=Lu``, ``sc=Han``, ``word``, …."""

    key: str


@dataclass(frozen=True)
class Union:
    """Characters in any of the sets."""

    members: tuple[CharacterSet, ...]


@dataclass(frozen=True)
class Intersection:
    """Characters in all of the sets."""

    members: tuple[CharacterSet, ...]


@dataclass(frozen=True)
class Complement:
    """Characters outside of the set."""

    of: CharacterSet


@dataclass(frozen=True)
class Folded:
    """Characters in the set and their other cases.

    With `dotted`, i has the other case U+0130 too, as in the package ``regex``.
    """

    of: CharacterSet
    dotted: bool = False


CharacterSet: TypeAlias = Span | Named | Union | Intersection | Complement | Folded

ANY = Span(0, _END - 1)
NEWLINE = Span(10, 10)


@lru_cache(maxsize=4096)
def resolve(described: CharacterSet) -> Bounds:
    """Return the code points of a set."""
    match described:
        case Span(first, last):
            return (first, last + 1)
        case Named(key):
            return _named(key)
        case Union(members):
            return _combine([resolve(member) for member in members], 1)
        case Intersection(members):
            return _combine([resolve(member) for member in members], len(members))
        case Complement(of):
            return _complement(resolve(of))
        case Folded(of, dotted):
            return _fold(resolve(of), dotted)


def _combine(sets: list[Bounds], least: int) -> Bounds:
    """Return the code points that are in at least this number of the sets."""
    changes = [(bound, 1 - 2 * (i & 1)) for bounds in sets for i, bound in enumerate(bounds)]
    changes.sort()
    result: list[int] = []
    depth = 0
    inside = False
    for i, (bound, change) in enumerate(changes):
        depth += change
        if i + 1 < len(changes) and changes[i + 1][0] == bound:
            continue
        if (depth >= least) != inside:
            inside = not inside
            result.append(bound)
    return tuple(result)


def _complement(bounds: Bounds) -> Bounds:
    start = bounds[1:] if bounds[:1] == (0,) else (0, *bounds)
    return start[:-1] if start[-1:] == (_END,) else (*start, _END)


def _fold(bounds: Bounds, dotted: bool) -> Bounds:
    def contains(code_point: int) -> bool:
        return bisect_right(bounds, code_point) % 2 == 1

    orbits = [*_tables().cases, (0x49, 0x69, 0x130)] if dotted else _tables().cases
    others = {c for orbit in orbits if any(map(contains, orbit)) for c in orbit}
    spans = [(c, c + 1) for c in others]
    return _combine([bounds, *spans], 1) if spans else bounds


def expanding() -> Mapping[int, tuple[int, ...]]:
    """Return the characters that full case folding turns into several, and the results."""
    return _tables().expansions


def script_names() -> list[str]:
    """Return the names of the scripts, each of which is the set ``sc=NAME``."""
    return [key.removeprefix("sc=") for key in _tables().ranges if key.startswith("sc=")]


# Sets that consist of others.
_COMPOSED = {
    "word": Union(tuple(map(Named, ("alphabetic", "gc=M", "gc=Nd", "gc=Pc")))),
    # The word characters of Oniguruma outside of a class: it reads Latin-1 from a table of its own.
    "word_or_fraction": Union(
        (Named("word"), Span(0xB2, 0xB3), Span(0xB9, 0xB9), Span(0xBC, 0xBE))
    ),
    "word_and_joiners": Union((Named("word"), Span(0x200C, 0x200D))),
    "space": Union(
        tuple(
            Span(*span)
            for span in (
                *((9, 13), (0x20, 0x20), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680)),
                *((0x2000, 0x200A), (0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F)),
                (0x3000, 0x3000),
            )
        )
    ),
    "horizontal": Union((Span(9, 9), Named("gc=Zs"))),
    "hexadecimal": Union((Span(0x30, 0x39), Span(0x41, 0x46), Span(0x61, 0x66))),
    "ascii": Span(0, 127),
    "any": ANY,
    "assigned": Complement(Named("gc=Cn")),
    "gc=LC": Union((Named("gc=Lu"), Named("gc=Ll"), Named("gc=Lt"))),
}
_GROUPS = {
    "L": "Letter",
    "M": "Mark",
    "N": "Number",
    "P": "Punctuation",
    "S": "Symbol",
    "Z": "Separator",
    "C": "Other",
}


@cache
def _named(key: str) -> Bounds:
    if key in _COMPOSED:
        return resolve(_COMPOSED[key])
    tables = _tables()
    if key not in tables.ranges and key.startswith("gc="):
        parts = [k for k in tables.ranges if k.startswith(key)]
        return _combine([_named(part) for part in parts], 1)
    bounds: list[int] = []
    for span in tables.ranges[key].split(" "):
        first, _, last = span.partition("-")
        bounds += (int(first, 16), int(last or first, 16) + 1)
    return tuple(bounds)


@dataclass(frozen=True)
class _Tables:
    ranges: dict[str, str]
    keys: dict[str, str]  # by kind and name in loose form
    cases: list[tuple[int, ...]]
    expansions: dict[int, tuple[int, ...]]


@cache
def _tables() -> _Tables:
    tables = _Tables({}, {}, [], {})
    text = Path(__file__).with_name("unicode_sets.txt").read_text(encoding="ascii")
    for line in text.splitlines()[1:]:
        head, _, rest = line.partition(" ")
        if head == "cases":
            tables.cases.append(tuple(int(c, 16) for c in rest.split("-")))
        elif head == "expands":
            code_point, _, expansion = rest.partition(" ")
            characters = tuple(int(c, 16) for c in expansion.split("-"))
            tables.expansions[int(code_point, 16)] = characters
        else:
            kind, _, names = head.partition("=")
            key = f"{kind}={names.split(',')[0]}" if names else kind
            tables.ranges[key] = rest
            for name in names.split(","):
                tables.keys.setdefault(f"{kind}={_loose(name)}", key)
    for group, name in _GROUPS.items():
        tables.keys[f"gc={group.lower()}"] = tables.keys[f"gc={_loose(name)}"] = f"gc={group}"
    for name in ("lc", "casedletter", "l&"):
        tables.keys[f"gc={name}"] = "gc=LC"
    return tables


def _loose(name: str) -> str:
    return re.sub(r"[ _-]", "", name).lower()


_KINDS = {
    "gc": "gc",
    "generalcategory": "gc",
    "sc": "sc",
    "script": "sc",
    "blk": "blk",
    "block": "blk",
}
_BINARY = {
    "any": "any",
    "ascii": "ascii",
    "assigned": "assigned",
    "alphabetic": "alphabetic",
    "alpha": "alphabetic",
    "whitespace": "space",
}
# In some dialects these are of POSIX, with more characters.
_POSIX = {"cntrl", "digit", "punct"}


def find_property(name: str, *, blocks: str | None = None) -> Named | None:
    r"""Return the set of ``\p{name}``, or None for an unknown name.

    Args:
        name: ``Lu``, ``Letter``, ``Han``, ``Script=Han``, …; case, spaces, hyphens and underscores
            do not matter.
        blocks: The prefix by which the dialect names a block, ``In``; None if it has none.
    """
    keys = _tables().keys
    if "=" in name:
        kind, value = map(_loose, name.split("=", 1))
        if kind not in _KINDS or (_KINDS[kind] == "blk" and blocks is None):
            return None
        key = keys.get(f"{_KINDS[kind]}={value}")
        return None if key is None or value in _POSIX else Named(key)
    loose = _loose(name)
    if loose in _BINARY:
        return Named(_BINARY[loose])
    if loose in _POSIX:
        return None
    for kind in ("gc", "sc"):
        if f"{kind}={loose}" in keys:
            return Named(keys[f"{kind}={loose}"])
    if blocks is not None and loose.startswith(blocks.lower()):
        key = keys.get(f"blk={loose[len(blocks) :]}")
        return None if key is None else Named(key)
    return None
