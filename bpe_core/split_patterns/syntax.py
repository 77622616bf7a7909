"""What a split pattern consists of, whichever dialect it was written in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from bpe_core.split_patterns.sets import CharacterSet

__all__ = [
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
    """Its parts one after the other; nothing if there are none."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Alternation:
    """The first of the branches that lets the whole match."""

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
    """The body as it matches first, whatever follows."""

    body: Node


@dataclass(frozen=True)
class Look:
    """A place before (`ahead`) or after which the body matches, or does not (`negative`)."""

    body: Node
    ahead: bool
    negative: bool


@dataclass(frozen=True)
class Edge:
    """The start or the end of the text."""

    at: Literal["start", "end"]


@dataclass(frozen=True)
class WordBoundary:
    """A place between a character of the set and one that is not, or an edge; or any other."""

    of: CharacterSet
    negative: bool


Node: TypeAlias = Character | Sequence | Alternation | Repeat | Atomic | Look | Edge | WordBoundary
