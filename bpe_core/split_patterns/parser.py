"""Parser of split patterns for the dialects of the libraries that use them.

Three dialects: ``regex``, the Python package, for patterns of a configuration; ``fancy_regex`` of
Rust, for the patterns of tiktoken; ``oniguruma``, for tokenizer.json. The same text can mean
different things: ``{1,3}+`` gives nothing back, or repeats a repetition; ``&&`` in a class
intersects, or is two characters; ``$`` is the end of the text, of a line, or stands before a final
line break. What cannot be read exactly is refused by name.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from bpe_core.split_patterns.sets import (
    ANY,
    NEWLINE,
    CharacterSet,
    Complement,
    Folded,
    Intersection,
    Named,
    Span,
    Union,
    expanding,
    find_property,
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

__all__ = ["Dialect", "parse"]

Dialect: TypeAlias = Literal["regex", "fancy_regex", "oniguruma"]

_CONTROLS = {"t": 9, "n": 10, "r": 13, "f": 12, "v": 11, "a": 7}
_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ ")
_LINE_BREAKS = Union((Span(10, 13), Span(0x85, 0x85), Span(0x2028, 0x2029)))
_MOST_DEPTH = 100


@dataclass(frozen=True)
class _Flags:
    ignore_case: bool = False
    dot_all: bool = False
    multiline: bool = False
    sets: bool = False  # of `regex`: V1, in which classes nest


def parse(pattern: str, dialect: Dialect) -> Node:
    r"""Read a pattern.

    Raises:
        UnsupportedPatternError: it has a construct that is not read, or not in this dialect.

    Example:
        >>> parse("a?+", "regex") == parse("a?+", "oniguruma")
        True
        >>> parse("a{0,1}+", "regex") == parse("a{0,1}+", "oniguruma")
        False
    """
    return _Parser(pattern, dialect).parse()


def _unsupported(construct: str, text: str) -> UnsupportedPatternError:
    return UnsupportedPatternError(f"{construct}, {text if len(text) < 40 else text[:40] + '…'}")


def _operand(members: list[CharacterSet], is_subtracted: bool) -> CharacterSet:
    """Return the union of the members of a class, or what is not in it."""
    united = members[0] if len(members) == 1 else Union(tuple(members))
    return Complement(united) if is_subtracted else united


class _Parser:
    def __init__(self, text: str, dialect: Dialect) -> None:
        self.text = text
        self.dialect = dialect
        self.at = 0
        self.depth = 0
        self.flags = _Flags(sets=dialect != "regex")

    def parse(self) -> Node:
        node = self.alternation()
        if self.at < len(self.text):
            raise _unsupported("an unmatched parenthesis", self.text[self.at :])
        return node

    def peek(self, expected: str) -> bool:
        return self.text.startswith(expected, self.at)

    def take(self, expected: str) -> bool:
        if not self.peek(expected):
            return False
        self.at += len(expected)
        return True

    def until(self, end: str) -> str:
        stop = self.text.find(end, self.at)
        if stop < 0:
            raise _unsupported(f"no {end!r} after", self.text[self.at :])
        found = self.text[self.at : stop]
        self.at = stop + len(end)
        return found

    def alternation(self) -> Node:
        flags = self.flags
        branches = [self.sequence()]
        while self.take("|"):
            if self.flags != flags and self.dialect == "oniguruma":
                raise _unsupported("flags before an alternative", self.text)
            branches.append(self.sequence())
        return branches[0] if len(branches) == 1 else Alternation(tuple(branches))

    def sequence(self) -> Node:
        parts: list[Node] = []
        while self.at < len(self.text) and not self.peek("|") and not self.peek(")"):
            begin = self.at
            part = self.atom()
            if part is not None:
                parts.append(self.repeats(part, begin))
        if self.flags.ignore_case and self.dialect == "oniguruma":
            self.check_expansions(parts)
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def check_expansions(self, parts: list[Node]) -> None:
        """Refuse letters that Oniguruma takes for another one, or another one for them."""
        letters: list[tuple[int, ...]] = []
        for part in parts:
            body = part.body if isinstance(part, Repeat) else part
            found: tuple[int, ...] = ()
            if isinstance(body, Character) and isinstance(body.of, Folded):
                bounds = resolve(body.of)
                members = sum(bounds[1::2]) - sum(bounds[::2])
                if members < 100:
                    spans = zip(bounds[::2], bounds[1::2], strict=True)
                    found = tuple(c for a, b in spans for c in range(a, b))
            letters.append(found)
        for expansion in expanding().values():
            for i in range(len(letters) - len(expansion) + 1):
                window = letters[i : i + len(expansion)]
                if all(c in found for c, found in zip(expansion, window, strict=True)):
                    raise _unsupported(
                        "letters that ignoring case joins", "".join(map(chr, expansion))
                    )

    def atom(self) -> Node | None:
        """Return the node at this position, or None for a comment or flags."""
        if self.peek("("):
            return self.group()
        if self.peek("["):
            return Character(self.bracketed())
        character = self.text[self.at]
        self.at += 1
        if character == "\\":
            return self.escape()
        if character == ".":
            return Character(ANY if self.flags.dot_all else Complement(NEWLINE))
        if character == "^":
            return self.line_start()
        if character == "$":
            return self.line_end()
        if character in "*+?":
            raise _unsupported("nothing to repeat before", self.text[self.at - 1 :])
        if character == "{" and self.dialect == "fancy_regex":
            raise _unsupported("an unescaped brace", self.text[self.at - 1 :])
        return self.literal(ord(character))

    def literal(self, code_point: int) -> Character:
        return Character(self.fold(Span(code_point, code_point)))

    def fold(self, characters: CharacterSet) -> CharacterSet:
        if not self.flags.ignore_case:
            return characters
        if self.dialect == "regex" and self.flags.sets:
            raise _unsupported("ignoring case with the flag V1", self.text)
        folded = Folded(characters, dotted=self.dialect == "regex")
        bounds = resolve(folded)
        if self.dialect == "oniguruma" and any(bisect_right(bounds, c) % 2 for c in expanding()):
            raise _unsupported("a letter of several when ignoring case", self.text)
        return characters if bounds == resolve(characters) else folded

    def line_start(self) -> Node:
        if self.dialect == "oniguruma":
            line = Sequence((_after(NEWLINE), _before(ANY)))
            return Alternation((Edge("start"), line))
        if self.flags.multiline:
            return Alternation((Edge("start"), _after(NEWLINE)))
        return Edge("start")

    def line_end(self) -> Node:
        if self.dialect == "oniguruma" or self.flags.multiline:
            return Alternation((Edge("end"), _before(NEWLINE)))
        return Edge("end") if self.dialect == "fancy_regex" else FINAL_NEWLINE

    def group(self) -> Node | None:
        begin = self.at
        self.depth += 1
        if self.depth > _MOST_DEPTH:
            raise _unsupported("groups nested too deeply", self.text[begin:])
        self.at += 1
        flags = self.flags
        wrap: str = ""
        if self.take("?"):
            if self.take("#"):
                self.until(")")
                self.depth -= 1
                return None
            for prefix in (":", ">", "=", "!", "<=", "<!"):
                if self.take(prefix):
                    wrap = prefix
                    break
            else:
                if self.take("P<") or self.take("<"):
                    self.until(">")
                elif not self.scoped_flags(begin):
                    self.depth -= 1
                    return None
        elif self.peek("*"):
            raise _unsupported("a verb", self.text[begin:])
        node = self.alternation()
        if not self.take(")"):
            raise _unsupported("an open parenthesis", self.text[begin:])
        self.flags = flags
        self.depth -= 1
        if wrap == ">":
            return Atomic(node)
        if wrap in ("=", "!", "<=", "<!"):
            return Look(node, ahead="<" not in wrap, negative="!" in wrap)
        return node

    def scoped_flags(self, begin: int) -> bool:
        """Read flags; return True if they are those of a group, False if of what follows."""
        turned_on, changed = True, self.flags
        while self.at < len(self.text) and self.text[self.at] not in ":)":
            flag = self.text[self.at]
            self.at += 1
            names = {"i": "ignore_case"}
            if self.dialect == "oniguruma":
                names["m"] = "dot_all"
            else:
                names |= {"s": "dot_all", "m": "multiline"}
            if flag == "-":
                turned_on = False
            elif flag in names:
                changed = replace(changed, **{names[flag]: turned_on})
            elif flag == "u" and self.dialect != "oniguruma" and turned_on:
                pass
            elif flag == "V" and self.dialect == "regex" and turned_on:
                version = self.text[self.at : self.at + 1]
                if version not in ("0", "1") or begin != 0:
                    raise _unsupported("a version in the middle", self.text[begin:])
                self.at += 1
                changed = replace(changed, sets=version == "1")
            else:
                raise _unsupported("a flag", self.text[begin : self.at + 1])
        if self.at == len(self.text):
            raise _unsupported("an open parenthesis", self.text[begin:])
        is_group = self.text[self.at] == ":"
        self.at += 1
        # Elsewhere the dialects disagree about what follows.
        if not is_group and begin != 0:
            raise _unsupported("flags in the middle", self.text[begin : self.at])
        self.flags = changed
        return is_group

    def repeats(self, body: Node, begin: int) -> Node:
        node: Node = body
        while self.at < len(self.text):
            at = self.at
            interval = False
            if self.take("*"):
                least, most = 0, None
            elif self.take("+"):
                least, most = 1, None
            elif self.take("?"):
                least, most = 0, 1
            else:
                counts = self.counts()
                if counts is None:
                    return node
                least, most = counts
                interval = True
            written = self.text[begin : self.at + 1]
            if not _reads(body):
                raise _unsupported("a repeated place", written)
            if node is not body and self.dialect != "oniguruma":
                raise _unsupported("a repeated repetition", written)
            if self.take("?"):
                if interval and least == most and self.dialect == "oniguruma":
                    raise _unsupported("a fixed number that is lazy", written)
                node = Repeat(node, least, most, "lazy")
            elif (not interval or self.dialect != "oniguruma") and self.take("+"):
                node = Repeat(node, least, most, "possessive")
            else:
                node = Repeat(node, least, most)
            if self.at == at:
                break
        return node

    def counts(self) -> tuple[int, int | None] | None:
        """Read ``{3}``, ``{1,3}`` or ``{2,}``, or return None."""
        if not self.peek("{"):
            return None
        end = self.text.find("}", self.at)
        first, comma, second = self.text[self.at + 1 : end].partition(",")
        numbers = [number for number in (first, second) if number]
        if end < 0 or not all(n.isascii() and n.isdigit() and len(n) < 7 for n in numbers):
            raise _unsupported("a brace that is not a repetition", self.text[self.at :])
        if not first:
            raise _unsupported("a repetition without its smaller number", self.text[self.at :])
        self.at = end + 1
        least = int(first)
        most = int(second) if second else (None if comma else least)
        if most is not None and most < least:
            raise _unsupported("a repetition with a smaller second number", self.text[self.at :])
        return least, most

    def escape(self) -> Node:
        begin = self.at - 1
        if self.at == len(self.text):
            raise _unsupported("a backslash at the end", self.text)
        letter = self.text[self.at]
        of_text: dict[str, Node] = {"A": Edge("start")}
        if self.dialect == "regex":
            of_text["Z"] = Edge("end")
        else:
            of_text["z"] = Edge("end")
        if self.dialect == "oniguruma":
            of_text["Z"] = FINAL_NEWLINE
        if letter in of_text:
            self.at += 1
            return of_text[letter]
        if letter in "bB":
            self.at += 1
            if self.peek("{"):
                raise _unsupported("a boundary", self.text[begin:])
            word = self.word(in_class=False)
            return WordBoundary(word, negative=letter == "B")
        if letter == "R" and self.dialect == "oniguruma":
            self.at += 1
            pair = Sequence((Character(Span(13, 13)), Character(NEWLINE)))
            return Atomic(Alternation((pair, Character(_LINE_BREAKS))))
        if letter in "NO" and self.dialect == "oniguruma":
            self.at += 1
            return Character(Complement(NEWLINE) if letter == "N" else ANY)
        return Character(self.escaped_set(in_class=False))

    def word(self, *, in_class: bool) -> Named:
        if self.dialect != "oniguruma":
            return Named("word_and_joiners")
        return Named("word" if in_class else "word_or_fraction")

    def escaped_set(self, *, in_class: bool) -> CharacterSet:
        """Read what follows a backslash: a set, or one character."""
        begin = self.at - 1
        letter = self.text[self.at]
        self.at += 1
        classes: dict[str, CharacterSet] = {
            "d": Named("gc=Nd"),
            "s": Named("space"),
            "w": self.word(in_class=in_class),
            "h": Named("horizontal" if self.dialect == "regex" else "hexadecimal"),
        }
        if letter.lower() in classes and letter in "dDsSwWhH":
            found = classes[letter.lower()]
            return found if letter.islower() else Complement(found)
        if letter in "pP":
            return self.property(begin)
        if letter in _CONTROLS:
            return Span(_CONTROLS[letter], _CONTROLS[letter])
        if letter in "xuU":
            code_point = self.hexadecimal(letter, begin)
            return self.fold(Span(code_point, code_point))
        if letter in _PUNCTUATION or not letter.isascii():
            return self.fold(Span(ord(letter), ord(letter)))
        raise _unsupported("an escape", self.text[begin : self.at])

    def hexadecimal(self, letter: str, begin: int) -> int:
        digits = {"x": 2, "u": 4, "U": 8}[letter]
        if self.peek("{") and self.dialect != "regex" and letter in "xu":
            self.at += 1
            found = self.until("}")
        else:
            found = self.text[self.at : self.at + digits]
            self.at += digits
            if len(found) != digits:
                found = ""
        if not found or not all(c in "0123456789abcdefABCDEF" for c in found):
            raise _unsupported("an escape", self.text[begin : self.at])
        code_point = int(found, 16)
        # Oniguruma takes \xHH for a byte.
        if code_point > 0x10FFFF or 0xD800 <= code_point < 0xE000:
            raise _unsupported("a code point that is no character", self.text[begin : self.at])
        if self.dialect == "oniguruma" and letter == "x" and digits == len(found) > 0:
            braced = self.text[self.at - 1] == "}"
            if code_point >= 0x80 and not braced:
                raise _unsupported("a byte", self.text[begin : self.at])
        if self.dialect == "oniguruma" and letter == "U":
            raise _unsupported("an escape", self.text[begin : self.at])
        return code_point

    def property(self, begin: int) -> CharacterSet:
        negative = self.text[self.at - 1] == "P"
        if self.take("{"):
            name = self.until("}")
        elif self.dialect != "oniguruma" and self.at < len(self.text):
            name = self.text[self.at]
            self.at += 1
        else:
            name = ""
        written = self.text[begin : self.at]
        if name.startswith("^"):
            negative, name = not negative, name[1:]
        if self.dialect == "oniguruma" and "=" in name:
            raise _unsupported("a property", written)
        found = find_property(name, blocks=None if self.dialect == "fancy_regex" else "In")
        if found is None:
            raise _unsupported("a property", written)
        if self.flags.ignore_case and self.dialect != "oniguruma":
            folded = Folded(found, dotted=self.dialect == "regex")
            if resolve(folded) != resolve(found):
                raise _unsupported("letters of one case when ignoring case", written)
        return Complement(found) if negative else found

    def bracketed(self) -> CharacterSet:
        """Read a class, with its operations on sets."""
        begin = self.at
        self.depth += 1
        if self.depth > _MOST_DEPTH:
            raise _unsupported("classes nested too deeply", self.text[begin:])
        self.at += 1
        negative = self.take("^")
        operands: list[CharacterSet] = []
        members: list[CharacterSet] = []
        # Both operations, in any order, leave what is in all operands, the subtracted ones negated.
        is_subtracted = False
        first = True
        while first or not self.peek("]"):
            if self.at >= len(self.text):
                raise _unsupported("an open class", self.text[begin:])
            operation = self.text[self.at : self.at + 2]
            if operation in ("&&", "||", "--", "~~"):
                if operation not in self.set_operations() or first or not members:
                    # In V0, two of the character, for which later versions may warn.
                    raise _unsupported("an operation on sets", self.text[begin:])
                self.at += 2
                operands.append(_operand(members, is_subtracted))
                members = []
                is_subtracted = operation == "--"
                continue
            members.append(self.member(first, begin))
            first = False
        self.at += 1
        self.depth -= 1
        if operands and not members:
            raise _unsupported("an operation on sets", self.text[begin : self.at])
        if operands and self.flags.ignore_case:
            raise _unsupported("an operation on sets when ignoring case", self.text[begin:])
        last = _operand(members, is_subtracted)
        found: CharacterSet = Intersection((*operands, last)) if operands else last
        return Complement(found) if negative else found

    def set_operations(self) -> tuple[str, ...]:
        """Return the operations that classes have here."""
        if not self.flags.sets:
            return ()
        return ("&&",) if self.dialect == "oniguruma" else ("&&", "--")

    def member(self, first: bool, begin: int) -> CharacterSet:
        """Read a member of a class: a set, a range, or one character."""
        if self.peek("["):
            if self.peek("[:"):
                raise _unsupported("a class of POSIX", self.text[begin:])
            if self.flags.sets:
                return self.bracketed()
        low = self.class_character()
        if not isinstance(low, int):
            return low
        if not self.peek("-") or self.peek("-]"):
            return self.fold(Span(low, low))
        if self.text[self.at : self.at + 2] == "--":
            return self.fold(Span(low, low))  # the class reads the operation
        self.at += 1
        if self.peek("["):
            raise _unsupported("a range to a class", self.text[begin:])
        high = self.class_character()
        if not isinstance(high, int) or high < low:
            raise _unsupported("a range", self.text[begin : self.at])
        return self.fold(Span(low, high))

    def class_character(self) -> int | CharacterSet:
        """Read one character of a class, or the set of an escape."""
        if self.at >= len(self.text):
            raise _unsupported("an open class", self.text)
        character = self.text[self.at]
        self.at += 1
        if character != "\\":
            return ord(character)
        if self.at == len(self.text):
            raise _unsupported("a backslash at the end", self.text)
        if self.text[self.at] == "b":
            self.at += 1
            return 8
        flags, self.flags = self.flags, replace(self.flags, ignore_case=False)
        letter = self.text[self.at]
        if letter in "pP":
            self.flags = flags
        found = self.escaped_set(in_class=True)
        self.flags = flags
        is_character = isinstance(found, Span) and found.first == found.last
        return found.first if is_character and isinstance(found, Span) else found


def _reads(node: Node) -> bool:
    """Return True if a character may be read, False if the node only looks at a place."""
    match node:
        case Character():
            return True
        case Sequence(parts):
            return any(map(_reads, parts))
        case Alternation(branches):
            return any(map(_reads, branches))
        case Repeat(body) | Atomic(body):
            return _reads(body)
    return False


def _before(characters: CharacterSet) -> Look:
    return Look(Character(characters), ahead=True, negative=False)


def _after(characters: CharacterSet) -> Look:
    return Look(Character(characters), ahead=False, negative=False)


# `$` of `regex`, and \Z of Oniguruma.
