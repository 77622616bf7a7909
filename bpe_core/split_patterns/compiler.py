"""Compilation of split patterns to native automata."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from bpe_core._native import PatternSplitter, PatternStep
from bpe_core.split_patterns.equivalence import fingerprint
from bpe_core.split_patterns.parser import Dialect, parse
from bpe_core.split_patterns.program import Instruction, Place, assemble
from bpe_core.split_patterns.syntax import Node, UnsupportedPatternError
from bpe_core.stand_ins import to_stand_ins

__all__ = ["Compiled", "compile_node", "compile_steps"]

_MOST_CLASSES = 255
_MOST_COMPARED_STATES = 128  # more than patterns with a scanner of their own have
_END = 0x110000


@dataclass(frozen=True)
class Compiled:
    """Compiled chain of patterns.

    Attributes:
        splitter: The native splitter.
        looks_far: True if a pattern looks at more than one neighbour, which needs a second pass.
        fingerprints: Those of the steps, by which others that split alike are known (see
            `equivalence`), or None for a step that has none.
        steps: The patterns.
    """

    splitter: PatternSplitter
    looks_far: bool
    fingerprints: tuple[str | None, ...]
    steps: tuple[CompiledStep, ...]


@lru_cache(maxsize=64)
def compile_steps(steps: tuple[tuple[str, bool], ...], dialect: Dialect = "regex") -> Compiled:
    """Compile a chain of patterns: each a regular expression, and True if it is for bytes.

    Raises:
        UnsupportedPatternError: one cannot be compiled; the message names the construct.
    """
    compiled = [
        compile_node(parse(expression, dialect), of_bytes=of_bytes)
        for expression, of_bytes in steps
    ]
    looks_far = any(step.looks_far for step in compiled)
    return Compiled(
        PatternSplitter([step.step for step in compiled]),
        looks_far,
        tuple(step.fingerprint for step in compiled),
        tuple(compiled),
    )


@dataclass(frozen=True)
class CompiledStep:
    """One pattern of a chain."""

    step: PatternStep
    looks_far: bool
    of_bytes: bool
    bounds: list[int]
    classes: list[int]

    @property
    def fingerprint(self) -> str | None:
        """Fingerprint of the automaton; None if it is not compared."""
        if self.looks_far or self.of_bytes or self.step.states > _MOST_COMPARED_STATES:
            return None
        return fingerprint(self.step.table, self.step.starts, self.bounds, self.classes)


def compile_node(node: Node, *, of_bytes: bool = False) -> CompiledStep:
    """Compile one pattern; with `of_bytes` one that reads bytes by their stand-ins.

    Raises:
        UnsupportedPatternError: it cannot be compiled; the message names the construct.
    """
    program = assemble(node)
    starts, classes, sets = _classify(program.sets)
    if of_bytes:
        starts, classes = _classify_bytes(starts, classes)
    try:
        step = PatternStep(
            _to_array(program.code),
            [(scout.ahead, _to_array(scout.code)) for scout in program.scouts],
            sets,
            starts,
            classes,
            of_bytes,
        )
    except ValueError as error:  # too many states
        raise UnsupportedPatternError(f"an automaton of {error}") from None
    return CompiledStep(step, bool(program.scouts), of_bytes, starts, classes)


def _to_array(code: Sequence[Instruction]) -> NDArray[np.int32]:
    rows = [(instruction.op, instruction.first, instruction.second) for instruction in code]
    return np.array(rows, np.int32)


def _classify_bytes(starts: list[int], classes: list[int]) -> tuple[list[int], list[int]]:
    """Return the starts of ranges of bytes, and the class of the stand-in of each.

    Ranges beyond the bytes are of the classes that no byte has, so that all are there.
    """
    stand_ins = (to_stand_ins(bytes([byte])) for byte in range(256))
    found = [classes[bisect_right(starts, ord(character)) - 1] for character in stand_ins]
    found += range(max(classes) + 1)
    return list(range(len(found))), found


def _classify(places: list[Place]) -> tuple[list[int], list[int], NDArray[np.uint8]]:
    """Divide all characters into classes that no set distinguishes.

    Returns:
        The ascending starts of ranges, the class of each, and for each set whether it contains each
        class; the last column is for the edge of the text.
    """
    changes: dict[int, int] = {0: 0}
    for number, place in enumerate(places):
        for bound in place.bounds:
            changes[bound] = changes.get(bound, 0) ^ (1 << number)
    changes.pop(_END, None)
    starts = sorted(changes)
    numbers: dict[int, int] = {}
    classes = []
    members = 0
    for start in starts:
        members ^= changes[start]
        classes.append(numbers.setdefault(members, len(numbers)))
    if len(numbers) > _MOST_CLASSES:
        raise UnsupportedPatternError(f"{len(numbers)} classes of characters")
    sets = np.zeros((len(places), len(numbers) + 1), np.uint8)
    for members, column in numbers.items():
        for number, place in enumerate(places):
            sets[number, column] = members >> number & 1
            sets[number, -1] = place.or_edge
    return starts, classes, sets
