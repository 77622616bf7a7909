"""Syntax trees of split patterns, independent of the dialect in which they are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from bpe_core.split_patterns.sets import NEWLINE, CharacterSet

__all__ = [
    "FINAL_NEWLINE",
    "Alternation",
    "Atomic",
    "Character",
    "Edge",
    "Look",
    "Node",
    "Repeat",
    "Sequence",
    "UnsupportedPatternError",
    "WordBoundary",
]


class UnsupportedPatternError(Exception):
    """A construct that is not compiled. The message names it: "a backreference, \\\\1"."""


@dataclass(frozen=True)
class Character:
    """One character of a set."""

    of: CharacterSet


@dataclass(frozen=True)
class Sequence:
    """Consecutive nodes; the empty text if there are none."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Alternation:
    """Branches; the first is used that lets the whole pattern match."""

    branches: tuple[Node, ...]


@dataclass(frozen=True)
class Repeat:
    """The body `least` to `most` times (None: without limit)."""

    body: Node
    least: int
    most: int | None
    kind: Literal["greedy", "lazy", "possessive"] = "greedy"


@dataclass(frozen=True)
class Atomic:
    """The first match of the body, without backtracking into it."""

    body: Node


@dataclass(frozen=True)
class Look:
    """Position before (`ahead`) or after which the body matches, or does not (`negative`)."""

    body: Node
    ahead: bool
    negative: bool


@dataclass(frozen=True)
class Edge:
    """Start or end of the text."""

    at: Literal["start", "end"]


@dataclass(frozen=True)
class WordBoundary:
    """Position between a character of the set and one outside of it, or an edge; or any other."""

    of: CharacterSet
    negative: bool


Node: TypeAlias = Character | Sequence | Alternation | Repeat | Atomic | Look | Edge | WordBoundary

FINAL_NEWLINE = Alternation(
    (
        Edge("end"),
        Look(Sequence((Character(NEWLINE), Edge("end"))), ahead=True, negative=False),
    )
)
"""The end of the text, or the place before a line break that ends it."""
