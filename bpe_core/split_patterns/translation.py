"""The same pattern in another dialect, and what tokenizer.json does with matches, as patterns."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from bpe_core.split_patterns.compiler import compile_node
from bpe_core.split_patterns.parser import Dialect, parse
from bpe_core.split_patterns.program import assemble, may_be_empty
from bpe_core.split_patterns.sets import (
    ANY,
    CharacterSet,
    Complement,
    Folded,
    Intersection,
    Named,
    Span,
    Union,
    resolve,
)
from bpe_core.split_patterns.syntax import (
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

__all__ = ["Behavior", "isolate", "translate", "write"]

_MOST_SPANS = 100
_OF_CLASSES = r"\[]^-&|~"
_WORD = r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}"
_COMPOSED = {
    "any": r"\s\S",
    "ascii": r"\x00-\x7f",
    "assigned": r"\P{Cn}",
    "horizontal": r"\t\p{Zs}",
    "hexadecimal": "0-9A-Fa-f",
    "word": _WORD,
    "word_and_joiners": f"{_WORD}\u200c\u200d",
    "word_or_fraction": f"{_WORD}²³¹¼-¾",
}
_CONTROLS = {9: r"\t", 10: r"\n", 13: r"\r", 12: r"\f", 11: r"\v", 7: r"\a"}


def translate(pattern: str, source: Dialect, target: Dialect) -> str:
    r"""Return the pattern of the target dialect that means what this one means in its own.

    Raises:
        UnsupportedPatternError: no such pattern is known; the message names the
            construct.

    Example:
        >>> translate(r"\s+(?!\S)", "oniguruma", "regex")
        '\\s+(?!\\S)'
        >>> translate(r"\s+$", "oniguruma", "regex")
        '\\s+(?:\\Z|(?=\\n))'
    """
    node = parse(pattern, source)
    try:
        # Comments have a meaning of their own in this package: (?#then) joins patterns.
        if (
            "(?#" not in pattern
            and not _looks_like_a_name(pattern)
            and _means(pattern, target, node)
        ):
            return pattern
    except UnsupportedPatternError:
        pass  # of the target dialect, in which it need not be a pattern
    return write(node, target)


def _looks_like_a_name(pattern: str) -> bool:
    # `resolve_pattern` takes a plain word for the name of a pattern.
    return re.fullmatch(r"[A-Za-z][\w-]+", pattern, re.ASCII) is not None


def _means(pattern: str, dialect: Dialect, node: Node) -> bool:
    found = parse(pattern, dialect)
    return found == node or assemble(found) == assemble(node)


Behavior: TypeAlias = Literal[
    "Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext"
]


def isolate(node: Node, behavior: Behavior, *, invert: bool) -> Node:
    """Return the pattern whose matches, isolated, are what a Split of tokenizer.json makes.

    Raises:
        UnsupportedPatternError: the Split removes text.
    """
    if behavior == "Removed":
        if not invert:
            raise UnsupportedPatternError('the behavior "Removed", which drops text')
        if not compile_node(node).step.matches_everything:
            raise UnsupportedPatternError(
                'the behavior "Removed" of a pattern that does not match all text'
            )
        return node
    if behavior != "Isolated" and may_be_empty(node):
        raise UnsupportedPatternError(f'the behavior "{behavior}" of matches of nothing')
    if behavior == "Contiguous":
        return Repeat(node, 1, None)
    if behavior == "Isolated":
        return node
    if (behavior == "MergedWithPrevious") != invert:
        before = Repeat(Character(ANY), 0, None, "lazy")
        return Alternation((Sequence((before, node)), Repeat(Character(ANY), 1, None)))
    gap = Sequence((Look(node, ahead=True, negative=True), Character(ANY)))
    return Sequence((node, Repeat(gap, 0, None)))


def write(node: Node, dialect: Dialect) -> str:
    """Write a pattern in a dialect.

    Raises:
        UnsupportedPatternError: the dialect cannot express it.
    """
    writer = _Writer(dialect)
    written = writer.alternation(node)
    if _looks_like_a_name(written):
        written = f"(?:{written})"
    if writer.nests and dialect == "regex":
        written = f"(?V1){written}"
    if not _means(written, dialect, node):
        raise UnsupportedPatternError(f"a construct that {dialect} does not have, {written}")
    return written


class _Writer:
    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.nests = False  # classes within classes, which need a flag in `regex`

    def alternation(self, node: Node) -> str:
        if isinstance(node, Alternation):
            return "|".join(map(self.sequence, node.branches))
        return self.sequence(node)

    def sequence(self, node: Node) -> str:
        if isinstance(node, Sequence):
            return "".join(map(self.part, node.parts))
        return self.part(node)

    def part(self, node: Node) -> str:
        match node:
            case Character(of):
                return self.characters(of)
            case Repeat():
                return self.repeat(node)
            case Atomic(body):
                return f"(?>{self.alternation(body)})"
            case Look(body, ahead, negative):
                direction = "" if ahead else "<"
                return f"(?{direction}{'!' if negative else '='}{self.alternation(body)})"
            case Edge(at):
                if at == "start":
                    return r"\A"
                return r"\Z" if self.dialect == "regex" else r"\z"
            case WordBoundary():
                return self.word_boundary(node)
        return f"(?:{self.alternation(node)})"

    def repeat(self, repeat: Repeat) -> str:
        body = self.part(repeat.body)
        if not isinstance(repeat.body, Character | Alternation | Sequence | Atomic):
            body = f"(?:{body})"
        least, most, kind = repeat.least, repeat.most, repeat.kind
        short = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((least, most))
        if short is None:
            upper = "" if most is None else str(most)
            short = f"{{{least}}}" if least == most else f"{{{least},{upper}}}"
        if kind == "possessive" and short[0] == "{" and self.dialect == "oniguruma":
            return f"(?>{body}{short})"
        if kind == "lazy" and least == most:
            kind = "greedy"
        return body + short + {"greedy": "", "lazy": "?", "possessive": "+"}[kind]

    def word_boundary(self, boundary: WordBoundary) -> str:
        own = Named("word_or_fraction" if self.dialect == "oniguruma" else "word_and_joiners")
        if boundary.of == own:
            return r"\B" if boundary.negative else r"\b"
        word = self.characters(boundary.of)
        inside, outside = ("=", "!") if boundary.negative else ("!", "=")
        return f"(?:(?<={word})(?{inside}{word})|(?<!{word})(?{outside}{word}))"

    def characters(self, characters: CharacterSet) -> str:
        """Write a set outside of a class."""
        match characters:
            case Span(first, last):
                if (first, last) == (ANY.first, ANY.last):
                    return r"[\s\S]"
                return (
                    _literal(first, r"\.^$|()[]{}*+?")
                    if first == last
                    else self.bracketed(characters)
                )
            case Named("word_or_fraction") if self.dialect == "oniguruma":
                return r"\w"
            case Named() | Complement(Named()):
                short = self.named(characters)
                return self.bracketed(characters) if short is None else short
        return self.bracketed(characters)

    def bracketed(self, characters: CharacterSet) -> str:
        if isinstance(characters, Complement):
            return f"[^{self.members(characters.of)}]"
        return f"[{self.members(characters)}]"

    def members(self, characters: CharacterSet) -> str:
        """Write a set inside of a class."""
        match characters:
            case Span(first, last):
                begin, end = _literal(first, _OF_CLASSES), _literal(last, _OF_CLASSES)
                return begin if first == last else f"{begin}-{end}"
            case Union(members):
                return "".join(map(self.members, members))
            case Intersection(members):
                self.nests = True
                return "&&".join(map(self.bracketed, members))
            case Folded():
                bounds = resolve(characters)
                if len(bounds) > 2 * _MOST_SPANS:
                    raise UnsupportedPatternError("a large set of letters when ignoring case")
                spans = zip(bounds[::2], bounds[1::2], strict=True)
                return "".join(self.members(Span(a, b - 1)) for a, b in spans)
        short = self.named(characters)
        if short is not None:
            return short
        if isinstance(characters, Named):
            return _COMPOSED[characters.key]
        if isinstance(characters, Complement):
            self.nests = True
            return self.bracketed(characters)
        raise UnsupportedPatternError(f"the set {characters}")

    def named(self, characters: CharacterSet) -> str | None:
        """Write a property or its complement; None if that takes a class."""
        negative = isinstance(characters, Complement)
        inner = characters.of if isinstance(characters, Complement) else characters
        if not isinstance(inner, Named):
            return None
        kind, _, value = inner.key.partition("=")
        escapes = {"space": "s", "gc=Nd": "d"}
        if self.dialect == "oniguruma":
            escapes |= {"hexadecimal": "h"}
        else:
            escapes |= {"word_and_joiners": "w"}
            escapes |= {"horizontal": "h"} if self.dialect == "regex" else {"hexadecimal": "h"}
        if inner.key in escapes:
            letter = escapes[inner.key]
            return "\\" + (letter.upper() if negative else letter)
        if value or inner.key == "alphabetic":
            name = value or "Alphabetic"
            if kind == "blk":
                if self.dialect == "fancy_regex":
                    raise UnsupportedPatternError(f"the block {value}")
                name = f"In{value}" if self.dialect == "regex" else f"In_{value}"
            return rf"\{'P' if negative else 'p'}{{{name}}}"
        return None


def _literal(code_point: int, special: str) -> str:
    if code_point in _CONTROLS:
        return _CONTROLS[code_point]
    character = chr(code_point)
    if character in special:
        return "\\" + character
    return f"\\x{code_point:02x}" if code_point < 0x20 or code_point == 0x7F else character
