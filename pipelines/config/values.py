"""Types of the values in a configuration, each with its check."""

from __future__ import annotations

import itertools
import re
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

from pydantic import BeforeValidator, ConfigDict, Field, Strict, ValidationInfo
from pydantic_core import PydanticCustomError

from bpe_core.errors import InvalidPatternError
from bpe_core.short_repr import format_fields
from pipelines.config.deferred_model import DeferredModel
from pipelines.config.validation import did_you_mean, refusal
from pipelines.config.yaml_document import Problem, describe_value
from pipelines.quantities import BYTES, NUMBER, Quantity

PATTERN_NAMES: Final = ("gpt2", "cl100k", "cl100k_tiktoken", "o200k", "llama3", "qwen2", "none")
BYTE_TOKENS: Final = 256
UINT16_IDS: Final = 1 << 16
LARGEST_VOCABULARY: Final = (1 << 31) - 1
SMALLEST_MEMORY: Final = 1 << 16
LARGEST_SIZE: Final = (1 << 63) - 1
LONGEST_WHOLE_DOCUMENT: Final = 2_000_000_000
# Text of a file, as a multiple of its stored size.
MAX_EXPANSION: Final = 1000

# Columns of all token files, which kept columns may not have the names of.
TOKEN_COLUMNS: Final = (
    *("input_ids", "num_tokens", "num_bytes", "source", "offset", "part", "id"),
)

# Keys of `tokenizer` that apply to one unit only.
BYTE_KEYS: Final = ("pattern", "normalizer", "normalize_quotes", "rules")
CHARACTER_KEYS: Final = (
    "metaspace",
    "byte_fallback",
    "character_coverage",
    "unk_token",
    "end_of_word",
    "end_of_word_as",
    "limit_alphabet",
)
# Those of characters that apply only with `metaspace`, and only without it.
METASPACE_KEYS: Final = ("byte_fallback", "character_coverage")
WORD_KEYS: Final = ("end_of_word", "end_of_word_as", "limit_alphabet")

TieBreak: TypeAlias = Literal["lexicographic", "first_id", "huggingface"]
_TIE_BREAK_HINTS: Final = {
    "first_seen": "first_seen depends on the order of the text, which counts do not keep.",
    # Refused for characters only.
    "huggingface": "It orders single bytes by their stand-in characters. Choose first_id: the "
    "ids of characters are in the order of their code points.",
}
_PERCENT: Final = r"^\d+(\.\d+)? ?%$"
_LONGEST_SHARE: Final = 100
# A wildcard, or a character escaped by brackets around it.
_WILDCARD: Final = re.compile(r"\[([*?\[:/])\]|[*?\[]")
_PROTOCOL: Final = re.compile(r"(?!(?:file|local)::)([A-Za-z][A-Za-z0-9+_-]*)(?:://|::)")


def parse_size(value: object) -> int:
    """Return a number of bytes, given as an int or as text such as `64MiB`.

    >>> parse_size("1.5KiB"), parse_size(10)
    (1536, 10)
    """
    return _parse(BYTES, value)


def parse_number(value: object) -> int:
    """Return a number of ids or documents, given as an int or as text such as `32k`."""
    return _parse(NUMBER, value)


def parse_fraction(value: object) -> object:
    """Return a share, given as a number or as text such as `0.1%`.

    >>> parse_fraction("0.1%"), parse_fraction(0.5)
    (0.001, 0.5)
    """
    if not isinstance(value, str):
        return value
    if len(value) > _LONGEST_SHARE or not re.fullmatch(_PERCENT, value, re.ASCII):
        raise refusal(Problem((), expected="a number such as 0.001, or a share such as 0.1%"))
    return float(Decimal(value.rstrip("% ")) / 100)


def parse_vocabulary_sizes(value: object) -> int | tuple[int, ...]:
    """Return a size of the vocabulary, or several, ascending, if they are given as a list.

    >>> parse_vocabulary_sizes("32k"), parse_vocabulary_sizes(["16k", "8k"])
    (32000, (8000, 16000))
    """
    if not isinstance(value, list | tuple):
        return _parse_vocabulary_size(value)
    if not value:
        raise refusal(Problem((), expected="a size or a list of at least one"))
    sizes = []
    for index, size in enumerate(value):
        try:
            sizes.append(_parse_vocabulary_size(size))
        except PydanticCustomError as error:
            problems = (error.context or {})["problems"]
            found = describe_value(size)
            raise refusal(
                *(replace(problem, path=(index,), found=found) for problem in problems)
            ) from None
    return tuple(sorted(set(sizes))) if len(set(sizes)) > 1 else sizes[0]


def _parse_vocabulary_size(value: object) -> int:
    size = parse_number(value)
    if not 1 <= size <= LARGEST_VOCABULARY:
        limit = "at least 1" if size < 1 else f"at most {LARGEST_VOCABULARY}"
        raise refusal(Problem((), expected=limit))
    return size


def _parse(kind: Quantity, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        with suppress(ValueError):
            return kind.parse(value)
    raise refusal(Problem((), expected=kind.expected))


def check_tie_break(value: object, info: ValidationInfo) -> object:
    """Return the tie-break. If the unit does not have it, list those that it has."""
    of_characters = info.data.get("unit") == "character"
    choices = ("lexicographic", "first_id") if of_characters else get_args(TieBreak)
    if value in choices:
        return value
    *others, last = map(repr, choices)
    unit = " with unit: character" if of_characters else ""
    hint = None
    if isinstance(value, str):
        hint = _TIE_BREAK_HINTS.get(value) or did_you_mean(value, choices)
    raise refusal(Problem((), expected=f"{', '.join(others)} or {last}{unit}", hint=hint))


def check_pattern(value: object) -> object:
    """Check that a pattern is a known name or a regex that compiles."""
    if not isinstance(value, str) or value in PATTERN_NAMES:
        return value
    from bpe_core.patterns import (
        resolve_pattern,
    )  # slow to import, and not needed for named patterns

    try:
        resolve_pattern(value)
    except InvalidPatternError as error:
        names = ", ".join(PATTERN_NAMES)
        raise refusal(
            Problem((), expected=f"one of {names}, or a regex", hint=f"{error}.")
        ) from None
    return value


def check_source_name(name: str) -> str:
    """Check that a source name can precede a slash in the column `source`."""
    if "/" in name:
        raise refusal(
            Problem(
                (),
                expected="a name without /, the separator of source and file in the output",
            )
        )
    return name


def _one_or_several(value: object, key: str, what: str) -> str | tuple[str, ...]:
    """Check for a non-empty text, or a list of different non-empty texts.

    `key` and `what` name them in the error.
    """
    several = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not several or not all(isinstance(text, str) and text for text in several):
        raise refusal(
            Problem((), expected="non-empty text, or a list of at least one non-empty text")
        )
    _check_no_repetition(several, key, what)
    return value if isinstance(value, str) else several


def check_separator(value: object) -> str | tuple[str, ...] | None:
    """Check one separator or several, whose matches in a text must be unambiguous."""
    if value is None:
        return None
    given = _one_or_several(value, "separator", "separator")
    separators = [text.encode() for text in several(given)]
    for left, right in itertools.product(separators, repeat=2):
        if not _can_overlap(left, right):
            continue
        names = f"{left.decode()!r} and {right.decode()!r}"
        if left == right:
            names = describe_value(left.decode())
            expected = (
                "a separator that cannot overlap itself (no prefix of it is also a suffix), or "
                "one byte repeated"
            )
        else:
            expected = (
                "separators that cannot overlap each other (no suffix of one is a prefix of "
                "another)"
            )
        hint = (
            "Overlapping occurrences could be split in two ways. Use a longer or a different "
            "separator."
        )
        raise refusal(Problem((), expected=expected, found=names, hint=hint))
    return given


def _can_overlap(left: bytes, right: bytes) -> bool:
    """Return True if the two can overlap in a text so that their positions are ambiguous.

    One repeated byte is matched from the start of its run, so no other separator may contain that
    byte.
    """
    is_run = len(set(left)) == 1
    if is_run and set(left) == set(right):
        return False
    if is_run and len(left) > 1 and left[:1] in right:
        return True
    return any(right.startswith(left[-n:]) for n in range(1, min(len(left), len(right))))


def several(value: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return a list of values for one value or several."""
    return (value,) if isinstance(value, str) else value


def parse_field_path(path: str) -> tuple[str, ...]:
    r"""Return the names in a dotted field path; `\.` stands for a dot in a name.

    >>> parse_field_path("doc.text"), parse_field_path(r"doc\.text")
    (('doc', 'text'), ('doc.text',))
    """
    names = [""]
    for token in re.findall(r"\\.|.", path, re.DOTALL):
        if token == ".":
            names.append("")
        else:
            names[-1] += token[-1]
    return tuple(names)


def check_field(value: object) -> object:
    """Check one or several field paths, none of which may contain another."""
    given = _one_or_several(value, "text_field", "field")
    paths = [parse_field_path(text) for text in several(given)]
    for path in paths:
        if not all(path):
            raise refusal(
                Problem(
                    (),
                    expected="names of fields, joined by dots",
                    hint="Write a dot that belongs to a name as `\\.`.",
                )
            )
    for outer, inner in itertools.permutations(paths, 2):
        if inner[: len(outer)] == outer:
            raise refusal(Problem((), expected="different fields, none of them inside another"))
    return given


def check_id_field(value: object) -> object:
    """Check that an id field is a path of names."""
    if not (value is None or isinstance(value, str)):
        raise refusal(Problem((), expected="non-empty text, or null"))
    return None if value is None else check_field(value)


def is_inside(path: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Return True if one of two fields is inside the other, or both are the same.

    >>> is_inside(("meta",), ("meta", "url")), is_inside(("meta",), ("url",))
    (True, False)
    """
    shorter = min(len(path), len(other))
    return path[:shorter] == other[:shorter]


def column_name(path: str) -> str:
    r"""Return the name of the column that keeps a field: its path, without escapes.

    >>> column_name("meta.url"), column_name(r"meta\.url")
    ('meta.url', 'meta.url')
    """
    return ".".join(parse_field_path(path))


def check_kept_columns(paths: tuple[str, ...]) -> tuple[str, ...]:
    """Check fields to keep: different paths, none inside another, and names that are free."""
    if paths:
        check_field(paths)
    _check_no_repetition(tuple(map(column_name, paths)), "keep_columns", "column")
    for index, path in enumerate(paths):
        if column_name(path) in TOKEN_COLUMNS:
            raise refusal(
                Problem(
                    (index,),
                    expected="a field with another name than the columns that token files have: "
                    + ", ".join(TOKEN_COLUMNS),
                    found=describe_value(path),
                    hint="The column id keeps input.id_field."
                    if path == "id"
                    else "Rename the field in the records.",
                )
            )
    return paths


def check_no_white_space(token: str) -> str:
    """Check that a token can mark the end of a word."""
    if re.search(r"\s", token):
        raise refusal(Problem((), expected="text without whitespace (words end at whitespace)"))
    return token


def check_special_tokens(tokens: tuple[str, ...]) -> tuple[str, ...]:
    """Check that all special tokens are different."""
    _check_no_repetition(tokens, "special_tokens", "special token")
    return tokens


def _check_no_repetition(texts: tuple[str, ...], key: str, what: str) -> None:
    first: dict[str, int] = {}
    repeated = [
        Problem(
            (index,),
            expected=f"every {what} once",
            found=f"{describe_value(text)}, also {key}[{first[text]}]",
            hint="Remove one of the two.",
        )
        for index, text in enumerate(texts)
        if first.setdefault(text, index) != index
    ]
    if repeated:
        raise refusal(*repeated)


Text = Annotated[str, Field(min_length=1)]
Texts = Text | Annotated[list[Text], Field(min_length=1)]
_LeastOne = Annotated[int, Field(ge=1)]
_Bytes = BeforeValidator(
    parse_size, json_schema_input_type=_LeastOne | Annotated[str, Field(pattern=BYTES.pattern)]
)
_Number = BeforeValidator(
    parse_number, json_schema_input_type=_LeastOne | Annotated[str, Field(pattern=NUMBER.pattern)]
)
Size = Annotated[int, Field(ge=1, le=LARGEST_SIZE), _Bytes]
MemorySize = Annotated[int, Field(ge=SMALLEST_MEMORY, le=LARGEST_SIZE), _Bytes]
Number = Annotated[int, Field(ge=1, le=LARGEST_SIZE), _Number]
_VocabularySize = (
    Annotated[int, Field(ge=1, le=LARGEST_VOCABULARY)]
    | Annotated[str, Field(pattern=NUMBER.pattern)]
)
VocabularySizes = Annotated[
    int | tuple[int, ...],
    BeforeValidator(
        parse_vocabulary_sizes,
        json_schema_input_type=_VocabularySize
        | Annotated[list[_VocabularySize], Field(min_length=1)],
    ),
]
Shards = Annotated[int, Field(ge=1, le=65536)]
Patterns = Annotated[tuple[Text, ...], Strict(False)]
_Share = Annotated[float, Field(ge=0.0, le=1.0)]
Fraction = Annotated[
    float,
    Field(ge=0.0, le=1.0),
    BeforeValidator(
        parse_fraction, json_schema_input_type=_Share | Annotated[str, Field(pattern=_PERCENT)]
    ),
]
# Excluded from every repr: options of file systems and of Beam may contain credentials.
Options = Annotated[dict[str, Any], Field(repr=False)]


def size_key(default: str, description: str) -> Any:
    """Return a field for a size, whose default the schema shows with its unit."""
    return Field(
        default=parse_size(default),
        description=description,
        json_schema_extra={"default": default},
    )


def options_key(description: str) -> Any:
    """Return a field for options of a file system or of Beam, empty by default."""
    return Field(default_factory=dict, description=description, json_schema_extra={"default": {}})


class Section(DeferredModel):
    """Base class of all sections: frozen, strict, without unknown keys."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        hide_input_in_errors=True,
    )

    def __repr__(self) -> str:
        shown = (name for name, info in type(self).model_fields.items() if info.repr)
        given = {name: getattr(self, name) for name in shown if name in self.model_fields_set}
        return format_fields(type(self).__name__, given)


def protocol_of(path: str) -> str:
    """Return the protocol of a URL, the first one of a chained URL, or "file" for a path.

    Only text that starts with a protocol is a URL. Everything else is a path of the local disk,
    whatever characters it contains.

    >>> protocol_of("s3://bucket/a"), protocol_of("/data/a::b"), protocol_of("simplecache::s3://b")
    ('s3', 'file', 'simplecache')
    """
    found = _PROTOCOL.match(path)
    return found[1] if found else "file"


def is_url(path: str) -> bool:
    """Return True if a path is an fsspec URL, also a chained one, and not a path of this disk.

    >>> is_url("s3://bucket/a"), is_url("./s3://bucket/a")
    (True, False)
    """
    return _PROTOCOL.match(path) is not None


def split_glob(pattern: str) -> tuple[str, str]:
    """Split a pattern into the directory before its first wildcard, and the rest.

    >>> split_glob("../corpus/part-*/a.txt"), split_glob("../corpus/a.txt")
    (('../corpus', 'part-*/a.txt'), ('../corpus', 'a.txt'))
    """
    end = wildcard_in(pattern)
    directory, _, _ = pattern[:end].rpartition("/")
    return directory, pattern[len(directory) :].lstrip("/")


def wildcard_in(pattern: str) -> int | None:
    """Return the position of the first wildcard, or None.

    >>> wildcard_in("a[*]b*"), wildcard_in("a[?]")
    (5, None)
    """
    return next((found.start() for found in _WILDCARD.finditer(pattern) if not found[1]), None)


def escape(name: str) -> str:
    """Return a pattern that matches only this name.

    >>> escape("a[1]::b*"), unescape(escape("a[1]::b*"))
    ('a[[]1][:][:]b[*]', 'a[1]::b*')
    """
    return "".join(f"[{char}]" if char in "*?[:" else char for char in name)


def unescape(pattern: str) -> str:
    """Return the name that a pattern without wildcards matches."""
    return _WILDCARD.sub(lambda found: found[1] or found[0], pattern)
