"""Programs of split patterns, from which native code makes automata.

A program is a list of instructions, in the order in which a backtracking engine would try them
(Thompson's construction with priorities). A look at one character before or after a position is an
instruction; a longer look is a separate program, `Scout`, whose results the main program reads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from bpe_core.split_patterns.sets import (
    ANY,
    NEWLINE,
    Bounds,
    CharacterSet,
    Complement,
    Union,
    resolve,
)
from bpe_core.split_patterns.syntax import (
    FINAL_NEWLINE,
    Alternation,
    Atomic,
    Character,
    Edge,
    Look,
    Node,
    Repeat,
    Sequence,
    UnsupportedPatternError,
    WordBoundary,
)

__all__ = ["Instruction", "Op", "Program", "Scout", "assemble", "may_be_empty"]

_MOST_INSTRUCTIONS = 20_000
_MOST_SCOUTS = 3
_NOTHING: Bounds = ()


class Op(IntEnum):
    """Operations; the numbers are those of pattern_automaton.hpp."""

    CHARACTER = 0  # reads a character of set `first`
    SPLIT = 1  # goes on at `first`, or else at `second`
    JUMP = 2  # goes on at `first`
    MATCH = 3
    NEXT = 4  # the next character, or the end, is in set `first`
    PREVIOUS = 5  # the character before, or the start, is in set `first`
    SCOUT = 6  # scout `first` matches here if `second`, else does not


@dataclass
class Instruction:
    """An operation and its two operands."""

    op: Op
    first: int = 0
    second: int = 0


@dataclass(frozen=True)
class Place:
    """Condition on one neighbour: a character of the set, or (`or_edge`) no character."""

    bounds: Bounds
    or_edge: bool


@dataclass
class Scout:
    """Long look-ahead, read backwards from the end of the text, or look-behind, read forwards."""

    ahead: bool
    code: list[Instruction]


@dataclass
class Program:
    """The instructions of a pattern, the sets that they name, and its scouts."""

    code: list[Instruction] = field(default_factory=list)
    sets: list[Place] = field(default_factory=list)
    scouts: list[Scout] = field(default_factory=list)


def assemble(node: Node) -> Program:
    """Return the program of a pattern.

    Raises:
        UnsupportedPatternError: the pattern has a construct that needs backtracking, or is too
            large.
    """
    program = Program()
    _Assembler(program, program.code, {}).assemble(node)
    return program


class _Assembler:
    def __init__(
        self, program: Program, code: list[Instruction], numbers: dict[Place, int]
    ) -> None:
        self.program = program
        self.code = code
        self.numbers = numbers
        self.is_scout = code is not program.code
        self.open_ends: list[tuple[int, str]] = []  # where atomic groups end

    def assemble(self, node: Node) -> None:
        self.add(node)
        self.emit(Op.MATCH)
        for at, construct in self.open_ends:
            if not self.always_matches(at):
                raise UnsupportedPatternError(construct)

    def emit(self, op: Op, first: int = 0, second: int = 0) -> int:
        if len(self.code) >= _MOST_INSTRUCTIONS:
            raise UnsupportedPatternError(f"more than {_MOST_INSTRUCTIONS:,} steps")
        self.code.append(Instruction(op, first, second))
        return len(self.code) - 1

    def number(self, place: Place) -> int:
        if place not in self.numbers:
            self.numbers[place] = len(self.program.sets)
            self.program.sets.append(place)
        return self.numbers[place]

    def read(self, characters: CharacterSet) -> None:
        self.emit(Op.CHARACTER, self.number(Place(resolve(characters), False)))

    def require(self, op: Op, bounds: Bounds, or_edge: bool) -> None:
        self.emit(op, self.number(Place(bounds, or_edge)))

    def add(self, node: Node) -> None:
        match node:
            case Character(of):
                self.read(of)
            case Sequence(parts):
                for before, part in zip((None, *parts), parts, strict=False):
                    # No line break follows a loop that takes all.
                    is_end = part == FINAL_NEWLINE and _takes_line_breaks(before)
                    self.add(Edge("end") if is_end else part)
            case Alternation(branches):
                self.add_branches(branches)
            case Repeat():
                self.add_repeat(node)
            case Atomic(body):
                self.add_atomic(body)
            case Look():
                self.add_look(node)
            case Edge(at):
                self.require(Op.PREVIOUS if at == "start" else Op.NEXT, _NOTHING, True)
            case WordBoundary():
                self.add(_expand(node))

    def add_branches(self, branches: tuple[Node, ...]) -> None:
        joined = _as_character(Alternation(branches))
        if joined is not None:
            return self.read(joined)
        ends = []
        for branch in branches[:-1]:
            split = self.emit(Op.SPLIT)
            self.code[split].first = len(self.code)
            self.add(branch)
            ends.append(self.emit(Op.JUMP))
            self.code[split].second = len(self.code)
        self.add(branches[-1])
        for end in ends:
            self.code[end].first = len(self.code)
        return None

    def add_repeat(self, repeat: Repeat) -> None:
        if repeat.kind == "possessive":
            return self.add_possessive(repeat)
        lazy = repeat.kind == "lazy"
        most = repeat.most
        if may_be_empty(repeat.body) and (most is None or most > 1):
            raise UnsupportedPatternError("a repetition of what may be nothing")
        for _ in range(repeat.least):
            self.add(repeat.body)
        if most is None:
            split = self.emit(Op.SPLIT)
            self.add(repeat.body)
            self.emit(Op.JUMP, split)
            self.link(split, split + 1, len(self.code), lazy)
            return None
        splits = []
        for _ in range(most - repeat.least):
            splits.append(self.emit(Op.SPLIT))
            self.add(repeat.body)
        for split in splits:
            self.link(split, split + 1, len(self.code), lazy)
        return None

    def link(self, split: int, body: int, end: int, lazy: bool) -> None:
        self.code[split].first, self.code[split].second = (end, body) if lazy else (body, end)

    def add_possessive(self, repeat: Repeat) -> None:
        """Give nothing back: the loop ends early only where it could not go on."""
        characters = _as_character(repeat.body)
        if characters is None:
            return self.add_atomic(Repeat(repeat.body, repeat.least, repeat.most))
        for _ in range(repeat.least):
            self.read(characters)
        outside = resolve(Complement(characters))
        if repeat.most is None:
            split = self.emit(Op.SPLIT)
            self.read(characters)
            self.emit(Op.JUMP, split)
            self.link(split, split + 1, len(self.code), False)
            self.require(Op.NEXT, outside, True)
            return None
        leave = []
        for _ in range(repeat.most - repeat.least):
            split = self.emit(Op.SPLIT)
            self.code[split].second = len(self.code)
            self.require(Op.NEXT, outside, True)
            leave.append(self.emit(Op.JUMP))
            self.code[split].first = len(self.code)
            self.read(characters)
        for jump in leave:
            self.code[jump].first = len(self.code)
        return None

    def add_atomic(self, body: Node) -> None:
        if isinstance(body, Repeat) and body.kind == "greedy":
            characters = _as_character(body.body)
            if characters is not None:
                return self.add_possessive(Repeat(body.body, body.least, body.most, "possessive"))
        self.add(body)
        if _as_character(body) is None:
            self.open_ends.append((len(self.code), "an atomic group or possessive repetition"))
        return None

    def always_matches(self, at: int) -> bool:
        """Return whether a match follows from here whatever the text is."""
        seen = set()
        todo = [at]
        while todo:
            at = todo.pop()
            if at in seen:
                continue
            seen.add(at)
            instruction = self.code[at]
            if instruction.op == Op.MATCH:
                return True
            if instruction.op in (Op.JUMP, Op.SPLIT):
                todo.append(instruction.first)
            if instruction.op == Op.SPLIT:
                todo.append(instruction.second)
        return False

    def add_look(self, look: Look) -> None:
        place = _as_place(look.body, "end" if look.ahead else "start")
        if place is None:
            return self.add_scout(look)
        if look.negative:
            place = Place(_outside(place.bounds), not place.or_edge)
        self.emit(Op.NEXT if look.ahead else Op.PREVIOUS, self.number(place))
        return None

    def add_scout(self, look: Look) -> None:
        if self.is_scout:
            raise UnsupportedPatternError("look-around within look-around")
        if len(self.program.scouts) == _MOST_SCOUTS:
            raise UnsupportedPatternError(f"more than {_MOST_SCOUTS} long look-arounds")
        body = _reverse(look.body) if look.ahead else look.body
        code: list[Instruction] = []
        # It may have begun anywhere.
        anywhere = Repeat(Character(ANY), 0, None)
        _Assembler(self.program, code, self.numbers).assemble(Sequence((anywhere, body)))
        self.program.scouts.append(Scout(look.ahead, code))
        self.emit(Op.SCOUT, len(self.program.scouts) - 1, int(not look.negative))


def _expand(boundary: WordBoundary) -> Node:
    """Return the conditions on both neighbours that a boundary is."""
    word = Character(boundary.of)
    inside = Look(word, ahead=False, negative=False)
    outside = Look(word, ahead=False, negative=True)
    to_inside = Look(word, ahead=True, negative=False)
    to_outside = Look(word, ahead=True, negative=True)
    if boundary.negative:
        return Alternation((Sequence((inside, to_inside)), Sequence((outside, to_outside))))
    return Alternation((Sequence((inside, to_outside)), Sequence((outside, to_inside))))


def _outside(bounds: Bounds) -> Bounds:
    everything = resolve(ANY)
    if not bounds:
        return everything
    start = bounds[1:] if bounds[0] == 0 else (0, *bounds)
    return start[:-1] if start[-1] == everything[1] else (*start, everything[1])


def _as_character(node: Node) -> CharacterSet | None:
    """Return the set if the node is always exactly one character of it."""
    match node:
        case Character(of):
            return of
        case Sequence((only,)):
            return _as_character(only)
        case Alternation(branches):
            sets = [_as_character(branch) for branch in branches]
            found = [characters for characters in sets if characters is not None]
            return Union(tuple(found)) if len(found) == len(sets) else None
    return None


def _as_place(node: Node, edge: str) -> Place | None:
    """Return the condition on one neighbour that the node is, or None if it is more."""
    match node:
        case Character(of):
            return Place(resolve(of), False)
        case Edge(at) if at == edge:
            return Place(_NOTHING, True)
        case Sequence((only,)):
            return _as_place(only, edge)
        case Alternation(branches):
            places = [_as_place(branch, edge) for branch in branches]
            found = [place for place in places if place is not None]
            if len(found) < len(places):
                return None
            bounds = [place.bounds for place in found]
            return Place(_join(bounds), any(place.or_edge for place in found))
    return None


def _join(sets: list[Bounds]) -> Bounds:
    result: list[int] = []
    spans = sorted(span for bounds in sets for span in zip(bounds[::2], bounds[1::2], strict=True))
    for begin, end in spans:
        if result and begin <= result[-1]:
            result[-1] = max(result[-1], end)
        else:
            result += (begin, end)
    return tuple(result)


def may_be_empty(node: Node) -> bool:
    """Return True if the node may match without a character."""
    match node:
        case Character():
            return False
        case Sequence(parts):
            return all(map(may_be_empty, parts))
        case Alternation(branches):
            return any(map(may_be_empty, branches))
        case Repeat(body, least, _, _):
            return least == 0 or may_be_empty(body)
        case Atomic(body):
            return may_be_empty(body)
    return True


def _takes_line_breaks(node: Node | None) -> bool:
    if not isinstance(node, Repeat) or node.kind != "possessive" or node.most is not None:
        return False
    characters = _as_character(node.body)
    return characters is not None and resolve(characters) == resolve(Union((characters, NEWLINE)))


def _reverse(node: Node) -> Node:
    """Return what matches the reversed text where the node matches the text."""
    match node:
        case Sequence(parts):
            return Sequence(tuple(_reverse(part) for part in reversed(parts)))
        case Alternation(branches):
            return Alternation(tuple(map(_reverse, branches)))
        case Repeat(body, least, most, kind):
            if kind == "possessive":
                raise UnsupportedPatternError("a possessive repetition within look-ahead")
            return Repeat(_reverse(body), least, most)
        case Atomic():
            raise UnsupportedPatternError("an atomic group within look-ahead")
        case Look(body, ahead, negative):
            return Look(body, not ahead, negative)
        case Edge(at):
            return Edge("end" if at == "start" else "start")
        case WordBoundary():
            return _reverse(_expand(node))
    return node
