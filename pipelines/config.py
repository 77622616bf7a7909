"""The configuration of a build: its keys, defaults, checks, errors and JSON schema.

`load_config` reads a YAML file into a frozen `BuildConfig`. Everything wrong with the file is shown
at once, each problem with its key, file, line and column.

`python -m pipelines.config` writes the JSON schema that configs/build.schema.json holds.
"""

from __future__ import annotations

import glob
import itertools
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeAlias, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    PrivateAttr,
    Strict,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic.json_schema import GenerateJsonSchema

from bpe_core.errors import InvalidPatternError
from pipelines.config_problems import did_you_mean, problems_of, refusal
from pipelines.config_source import (
    ConfigSource,
    Problem,
    describe_value,
    raise_problems,
)

PATTERN_NAMES: Final = ("gpt2", "cl100k", "cl100k_tiktoken", "o200k", "llama3", "qwen2", "none")
BYTE_TOKENS: Final = 256
UINT16_IDS: Final = 1 << 16
LARGEST_VOCABULARY: Final = (1 << 31) - 1
SMALLEST_MEMORY: Final = 1 << 16
LONGEST_WHOLE_DOCUMENT: Final = 2_000_000_000

# Keys of `tokenizer` that mean something for one unit alone.
_BYTE_KEYS: Final = ("pattern", "normalizer", "normalize_quotes", "rules")
_CHARACTER_KEYS: Final = ("unk_token", "end_of_word", "end_of_word_as", "limit_alphabet")

_UNITS: Final = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}
_SIZE_PATTERN: Final = r"^\d+(\.\d+)? ?(" + "|".join(_UNITS) + r")$"
_SIZE_EXPECTED: Final = "a size in bytes: a whole number, or a number and a unit such as 64MiB, 1MB"
_TieBreak: TypeAlias = Literal["lexicographic", "first_id", "huggingface"]
_TIE_BREAK_HINTS: Final = {
    "first_seen": "first_seen depends on the order of the text, which counts don't keep.",
    # Refused for characters alone.
    "huggingface": "It orders single bytes by their stand-ins. Choose first_id: the smallest ids, "
    "and characters have theirs by code point.",
}
# A wildcard, or a character that is escaped by standing alone in brackets.
_WILDCARD: Final = re.compile(r"\[([*?\[])\]|[*?\[]")


def parse_size(value: object) -> int:
    """A size in bytes from an int or from text such as `64MiB`, `1.5GiB`, `1MB`.

    kB, MB, GB and TB are powers of 1000, KiB, MiB, GiB and TiB of 1024.

    >>> parse_size("1.5KiB"), parse_size(10)
    (1536, 10)
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and re.fullmatch(_SIZE_PATTERN, value):
        number, unit = re.split(r" ?(?=[A-Za-z])", value, maxsplit=1)
        whole, _, fraction = number.partition(".")
        divisor: int = 10 ** len(fraction)
        scaled, remainder = divmod(int(whole + fraction) * _UNITS[unit], divisor)
        if not remainder:
            return scaled
    raise refusal(Problem((), expected=_SIZE_EXPECTED))


def _check_tie_break(value: object, info: ValidationInfo) -> object:
    """The value; another than the unit has is refused with the names that the unit has."""
    of_characters = info.data.get("unit") == "character"
    choices = ("lexicographic", "first_id") if of_characters else get_args(_TieBreak)
    if value in choices:
        return value
    *others, last = map(repr, choices)
    unit = " with unit: character" if of_characters else ""
    hint = None
    if isinstance(value, str):
        hint = _TIE_BREAK_HINTS.get(value) or did_you_mean(value, choices)
    raise refusal(Problem((), expected=f"{', '.join(others)} or {last}{unit}", hint=hint))


def _check_pattern(value: object) -> object:
    if not isinstance(value, str) or value in PATTERN_NAMES:
        return value
    from bpe_core.patterns import resolve_pattern  # slow to import; the names don't need it

    try:
        resolve_pattern(value)
    except InvalidPatternError as error:
        names = ", ".join(PATTERN_NAMES)
        raise refusal(
            Problem((), expected=f"one of {names}, or a regex", hint=f"{error}.")
        ) from None
    return value


def _check_source_name(name: str) -> str:
    if "/" in name:
        raise refusal(
            Problem(
                (),
                expected="a name without /, which stands between source and file in the output",
            )
        )
    return name


def _one_or_several(value: object) -> str | tuple[str, ...]:
    """Text, or a list of different texts, none of them empty."""
    several = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not several or not all(isinstance(text, str) and text for text in several):
        raise refusal(
            Problem((), expected="text that is not empty, or a list of at least 1 such text")
        )
    _check_no_repetition(several)
    return value if isinstance(value, str) else several


def _check_separator(value: object) -> str | tuple[str, ...] | None:
    if value is None:
        return None
    given = _one_or_several(value)
    separators = [text.encode() for text in _several(given)]
    for left, right in itertools.product(separators, repeat=2):
        if not _can_overlap(left, right):
            continue
        names = f"{left.decode()!r} and {right.decode()!r}"
        if left == right:
            names = describe_value(left.decode())
            expected = (
                "a separator that can't overlap itself (no beginning of it is also its end), or "
                "one byte repeated"
            )
        else:
            expected = (
                "separators that can't overlap each other (no end of one is also the beginning of "
                "another)"
            )
        hint = (
            "Overlapping occurrences could be split in two ways. Take a longer separator or "
            "another one."
        )
        raise refusal(Problem((), expected=expected, found=names, hint=hint))
    return given


def _can_overlap(left: bytes, right: bytes) -> bool:
    """Whether the two can overlap in a text in a way that makes their places ambiguous.

    One byte repeated is matched from its run's start, so nothing else may hold that byte.
    """
    is_run = len(set(left)) == 1
    if is_run and set(left) == set(right):
        return False
    if is_run and len(left) > 1 and left[:1] in right:
        return True
    return any(right.startswith(left[-n:]) for n in range(1, min(len(left), len(right))))


def _several(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value


def parse_field_path(path: str) -> tuple[str, ...]:
    r"""The names in the path of a field, which dots join; a dot in a name is written `\.`.

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


def _check_field(value: object) -> object:
    """One path or several of fields, none of which holds another."""
    given = _one_or_several(value)
    paths = [parse_field_path(text) for text in _several(given)]
    for path in paths:
        if not all(path):
            raise refusal(
                Problem(
                    (),
                    expected="names of fields, joined by dots",
                    hint="A dot that belongs to a name is written `\\.`.",
                )
            )
    for outer, inner in itertools.permutations(paths, 2):
        if inner[: len(outer)] == outer:
            raise refusal(
                Problem((), expected="fields of which none lies in another or is there twice")
            )
    return given


def _check_id_field(value: object) -> object:
    if not (value is None or isinstance(value, str)):
        raise refusal(Problem((), expected="text that is not empty, or null"))
    return None if value is None else _check_field(value)


def _check_no_white_space(token: str) -> str:
    if re.search(r"\s", token):
        raise refusal(Problem((), expected="a text without white space, at which words end"))
    return token


def _check_no_repetition(tokens: tuple[str, ...]) -> tuple[str, ...]:
    repeated = [
        Problem(
            (index,),
            expected="every special token once",
            found=f"{describe_value(token)}, also special_tokens[{tokens.index(token)}]",
            hint="Remove one of the two.",
        )
        for index, token in enumerate(tokens)
        if token in tokens[:index]
    ]
    if repeated:
        raise refusal(*repeated)
    return tokens


Text = Annotated[str, Field(min_length=1)]
Texts = Text | Annotated[list[Text], Field(min_length=1)]
_Bytes = BeforeValidator(
    parse_size,
    json_schema_input_type=Annotated[int, Field(ge=1)]
    | Annotated[str, Field(pattern=_SIZE_PATTERN)],
)
Size = Annotated[int, Field(ge=1), _Bytes]
Patterns = Annotated[tuple[Text, ...], Strict(False)]
MemorySize = Annotated[int, Field(ge=SMALLEST_MEMORY), _Bytes]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
# Not in any repr: options of file systems and of Beam may hold credentials.
Options = Annotated[dict[str, Any], Field(repr=False)]


def _size(default: str, description: str) -> Any:
    """A size key whose default the schema shows with its unit."""
    return Field(
        default=parse_size(default),
        description=description,
        json_schema_extra={"default": default},
    )


def _options(description: str) -> Any:
    return Field(default_factory=dict, description=description, json_schema_extra={"default": {}})


class _Section(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        hide_input_in_errors=True,
    )


# Keys of a source that only some formats have.
_RECORDS: Final = ("jsonl", "parquet", "arrow")
FORMATS_OF_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "separator": ("text",),
    "strip_bom": ("text",),
    "text_field": _RECORDS,
    "join": _RECORDS,
    "id_field": _RECORDS,
}


# Keys of a source that select: files, then the first documents, then documents by themselves.
SELECTION_KEYS: Final = (
    "include",
    "exclude",
    "limit_documents",
    "limit_bytes",
    "sample_fraction",
    "min_chars",
    "max_chars",
)


def keys_of_other_formats(name: str) -> set[str]:
    """The keys of a source that mean nothing with this format."""
    return {key for key, formats in FORMATS_OF_KEYS.items() if name not in formats}


class SourceConfig(_Section):
    """One source of documents: files of one kind that are read in one way."""

    name: Annotated[Text, AfterValidator(_check_source_name)] | None = Field(
        default=None,
        description="Name of the source in the output's column `source`, without /. Needed, and "
        "different for each, when there is more than one source.",
    )
    files: Annotated[tuple[Text, ...], Strict(False), Field(min_length=1)] = Field(
        description="Paths, globs or fsspec URLs of the files. Relative ones are relative to the "
        "configuration file.",
    )
    format: Literal["text", "jsonl", "parquet", "arrow"] = Field(
        default="text",
        description="Form of the files: text, JSON lines, Parquet, or Arrow IPC (file or stream).",
    )
    separator: Annotated[
        Any, PlainValidator(_check_separator, json_schema_input_type=Texts | None)
    ] = Field(
        default="<|endoftext|>",
        description='Of text, what stands between two documents; null: one document a file; "\\n": '
        "one a line. Of several, in a list, the leftmost counts, at one place the longest.",
    )
    text_field: Annotated[Any, PlainValidator(_check_field, json_schema_input_type=Texts)] = Field(
        default="text",
        description="Of jsonl, parquet and arrow, the field or column that is the text; "
        "`doc.text`: the field `text` in the field `doc`. Several, in a list, are joined.",
    )
    join: str = Field(
        default="\n", description="What stands between the fields of a list `text_field`."
    )
    id_field: Annotated[
        Any, PlainValidator(_check_id_field, json_schema_input_type=Text | None)
    ] = Field(
        default=None,
        description="Of jsonl, parquet and arrow, the field that is the record's own id, text "
        "or a whole number, for the column `id` of the output; null: none.",
    )
    compression: Literal["infer", "none", "gzip", "zstd", "bz2", "xz"] = Field(
        default="infer",
        description="Compression of the files, of text and jsonl; infer: by extension (.gz, .zst, "
        ".bz2, .xz).",
    )
    invalid_utf8: Literal["reject", "replace", "error"] = Field(
        default="reject",
        description="Documents that are not UTF-8: reject them, replace what is invalid by "
        "U+FFFD, or stop with an error.",
    )
    strip_bom: bool = Field(
        default=False,
        description="Of text, whether a byte-order mark at a file's start is removed.",
    )
    range_bytes: Size = _size(
        "64MiB",
        "Bytes of input in one task, the unit of work, of resuming and of output: one token file "
        "each.",
    )
    max_document_bytes: Annotated[Size, Field(le=LONGEST_WHOLE_DOCUMENT)] = _size(
        "1GiB",
        "Longest document, in bytes, that is read whole: lines of jsonl, texts of parquet and "
        "arrow, and any document with the pattern `none` or a custom one; longer ones are "
        "rejected. At most 2,000,000,000, since a row holds fewer than 2^31 ids.",
    )
    max_bad_files: Annotated[int, Field(ge=0)] = Field(
        default=0,
        description="Files of the source that may be bad: corrupt, cut short, changed, gone, or "
        "not to be read. 0: any is an error. Otherwise their readable documents are kept and the "
        "rest of each is a reject, and more bad files than that make the build fail.",
    )
    include: Patterns = Field(
        default=(),
        description="Globs of which a file's name below the fixed part of its pattern in `files` "
        "must match one; none: all files.",
    )
    exclude: Patterns = Field(
        default=(), description="Globs; files whose name there matches one are no input."
    )
    limit_documents: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="Read the first so many documents of the source alone, empty and rejected ones "
        "counted; null: all. Before every other selection.",
    )
    limit_bytes: Size | None = Field(
        default=None,
        description="Read the first documents of the source alone, as many as are together at most "
        "so many bytes of text; null: all. Before every other selection.",
    )
    sample_fraction: Annotated[Fraction, Field(gt=0.0)] = Field(
        default=1.0,
        description="Share of the documents (above 0, to 1) that is taken, by the upper 64 bits of "
        "each document's hash: the same ones in whatever files and order they stand.",
    )
    min_chars: Annotated[int, Field(ge=0)] = Field(
        default=0, description="Take documents of at least so many Unicode characters."
    )
    max_chars: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="Take documents of at most so many Unicode characters; null: of any length.",
    )
    storage_options: Options = _options(
        "Options of the fsspec file system of `files`; `${NAME}` in a value is that environment "
        "variable."
    )

    @property
    def separators(self) -> tuple[bytes, ...] | None:
        """`separator` as bytes; None: a file is one document."""
        if self.separator is None:
            return None
        return tuple(text.encode() for text in _several(self.separator))

    @property
    def selection(self) -> dict[str, Any]:
        """The keys that select documents or files, where they are set."""
        return self.model_dump(mode="json", include=set(SELECTION_KEYS), exclude_defaults=True)

    @property
    def text_fields(self) -> tuple[tuple[str, ...], ...]:
        """The paths in `text_field`."""
        return tuple(parse_field_path(path) for path in _several(self.text_field))

    @property
    def id_path(self) -> tuple[str, ...] | None:
        """The path in `id_field`."""
        return None if self.id_field is None else parse_field_path(self.id_field)

    @model_validator(mode="after")
    def _check(self) -> Self:
        problems = [*self._foreign_key_problems()]
        if "join" in self.model_fields_set and isinstance(self.text_field, str):
            problems.append(
                Problem(
                    ("join",),
                    expected="a list of fields in text_field, to join",
                    found=f"one field, {describe_value(self.text_field)}",
                    hint="Remove join, or list the fields.",
                )
            )
        if self.max_chars is not None and self.max_chars < self.min_chars:
            problems.append(
                Problem(
                    ("max_chars",),
                    expected=f"at least min_chars, {self.min_chars}",
                    found=str(self.max_chars),
                    hint="No document could be taken.",
                )
            )
        if problems:
            raise refusal(*problems)
        return self

    def _foreign_key_problems(self) -> Iterator[Problem]:
        for key in keys_of_other_formats(self.format) & self.model_fields_set:
            yield Problem(
                (key,),
                expected=f"no such key with format {self.format}: it belongs to "
                + ", ".join(FORMATS_OF_KEYS[key]),
                found=describe_value(getattr(self, key)),
                hint=f"Remove {key}, or set format.",
            )
        if self.format in ("parquet", "arrow") and self.compression not in ("infer", "none"):
            yield Problem(
                ("compression",),
                expected=f"infer or none: a {self.format} file compresses its columns by itself",
                hint="Decompress the files, and remove compression.",
            )


class RulesConfig(_Section):
    """What must not come together in one token."""

    split_categories: bool = Field(
        default=False,
        description="Letters, numbers and other characters are never in one token; a space in "
        "front stays. Not for the pattern `none` and custom ones.",
    )
    max_digits: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="Most digits of a number in one token, in groups from the left; null: as many "
        "as the pattern has. Not for the pattern `none` and custom ones.",
    )
    forbid_whitespace_tokens: bool = Field(
        default=False,
        description="Merges must not make tokens of white space and control characters alone.",
    )


class TokenizerConfig(_Section):
    """The tokenizer: how to train it, or where to find a finished one (`path`)."""

    path: Text | None = Field(
        default=None,
        description="Directory or URL of a finished tokenizer to encode with. Nothing is trained "
        "then, and no other key of this section may be given.",
    )
    unit: Literal["byte", "character"] = Field(
        default="byte",
        description="The smallest tokens: the 256 bytes, or the characters of the corpus, whose "
        "words stand between white space (white space itself is not encoded).",
    )
    pattern: Annotated[Text, BeforeValidator(_check_pattern, json_schema_input_type=Text)] = Field(
        default="gpt2",
        description="How text is split into pre-tokens: "
        + ", ".join(PATTERN_NAMES)
        + ", or a regex.",
    )
    special_tokens: Annotated[
        tuple[Text, ...], Strict(False), AfterValidator(_check_no_repetition)
    ] = Field(
        default=("<|endoftext|>",),
        description="Special tokens. They get the first ids, in this order, and are cut out of "
        "the training text.",
    )
    normalizer: Literal["none", "nfc", "nfkc"] = Field(
        default="none",
        description="Unicode normalization form (of Unicode 16.0) of the text between special "
        "tokens, in counting and in encoding.",
    )
    normalize_quotes: bool = Field(
        default=False, description="Whether typographic quotes become ' and \" after that."
    )
    rules: RulesConfig = Field(
        default_factory=RulesConfig, description="What must not come together in one token."
    )
    unk_token: Annotated[Text, AfterValidator(_check_no_white_space)] | None = Field(
        default="<unk>",
        description="With unit: character, the token of characters that have none; null: such a "
        "character is an error.",
    )
    end_of_word: Annotated[Text, AfterValidator(_check_no_white_space)] | None = Field(
        default="</w>",
        description="With unit: character, what marks the end of each word in tokens; null: "
        "nothing does, and decoding puts words together without a space.",
    )
    end_of_word_as: Literal["symbol", "suffix"] = Field(
        default="symbol",
        description="With unit: character, whether the end of a word is a token of its own, or "
        "belongs to the word's last character.",
    )
    limit_alphabet: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="With unit: character, the number of characters that have tokens, the most "
        "frequent ones; null: all.",
    )
    vocab_size: Annotated[int, Field(ge=1, le=LARGEST_VOCABULARY)] = Field(
        default=32000,
        description="Number of ids: special tokens, 256 bytes (or the token for the unknown, the "
        "alphabet and the end of a word), and merges.",
    )
    tie_break: Annotated[
        _TieBreak,
        BeforeValidator(_check_tie_break, json_schema_input_type=_TieBreak),
    ] = Field(
        default="lexicographic",
        description="Which of equally frequent pairs is merged first: the greatest bytes, the "
        "smallest ids, or as Hugging Face tokenizers does.",
    )
    min_frequency: Annotated[int, Field(ge=1)] = Field(
        default=1, description="Occurrences of a pair: training stops below it."
    )
    min_count: Annotated[int, Field(ge=1)] = Field(
        default=1,
        description="Occurrences of a pre-token: rarer ones are dropped before training.",
    )
    max_token_bytes: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Length of the longest token that merges may make, in bytes."
    )
    forbidden_tokens: Annotated[tuple[Text, ...], Strict(False)] = Field(
        default=(), description="Tokens that merges must not make."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.path is not None:
            return self._check_nothing_is_trained()
        problems = [*self._unit_problems(), *self._vocab_size_problems(), *self._rules_problems()]
        if problems:
            raise refusal(*problems)
        return self

    @property
    def effective_pattern(self) -> str:
        """The pattern by which text is counted: `pattern` with its rules, or white-space words."""
        from bpe_core.patterns import WHITESPACE_WORDS, pattern_with_rules  # slow to import

        if self.unit == "character":
            return WHITESPACE_WORDS
        return pattern_with_rules(
            self.pattern,
            split_categories=self.rules.split_categories,
            max_digits=self.rules.max_digits,
        )

    @property
    def normalization_form(self) -> str | None:
        """The normalizer as `bpe_core` has it."""
        return None if self.normalizer == "none" else self.normalizer

    def _vocab_size_problems(self) -> Iterator[Problem]:
        specials = len(self.special_tokens)
        if self.unit == "byte":
            smallest, what = BYTE_TOKENS + specials, f"256 bytes and {specials} special tokens"
        else:
            others = {self.unk_token, self.end_of_word} - {None, *self.special_tokens}
            smallest = specials + len(others) + 1
            what = f"{specials} special tokens, {len(others)} for the unknown and for ends of "
            what += "words, and an alphabet"
        if self.vocab_size < smallest:
            yield Problem(
                ("vocab_size",),
                expected=f"at least {smallest}: {what}",
                found=str(self.vocab_size),
            )

    def _unit_problems(self) -> Iterator[Problem]:
        other, keys = (
            ("character", _CHARACTER_KEYS) if self.unit == "byte" else ("byte", _BYTE_KEYS)
        )
        for key in keys:
            if key in self.model_fields_set:
                yield Problem(
                    (key,),
                    expected=f"tokenizer.unit: {other} for this key",
                    found=f"unit: {self.unit}" + ("" if self.unit == "character" else ", or none"),
                    hint=f"Remove {key}, or set tokenizer.unit: {other}.",
                )
        if self.unit == "byte":
            return
        if self.end_of_word is None and "end_of_word_as" in self.model_fields_set:
            yield Problem(
                ("end_of_word_as",),
                expected="an end_of_word that it says something of",
                found="end_of_word: null",
                hint="Remove end_of_word_as, or set end_of_word.",
            )
        if self.end_of_word in {self.unk_token, *self.special_tokens} - {None}:
            yield Problem(
                ("end_of_word",),
                expected="another text than unk_token and the special tokens",
                found=describe_value(self.end_of_word),
            )

    def _rules_problems(self) -> Iterator[Problem]:
        for key in ("split_categories", "max_digits"):
            if self.unit == "character" or not getattr(self.rules, key):
                continue
            try:
                _ = self.effective_pattern
            except InvalidPatternError as error:
                yield Problem(
                    ("rules", key),
                    expected="one of the named patterns that split",
                    found=f"pattern: {describe_value(self.pattern)}",
                    hint=f"{error}.",
                )

    def _check_nothing_is_trained(self) -> Self:
        problems = [
            Problem(
                (key,),
                expected="tokenizer.path alone: the finished tokenizer decides everything else",
                found=f"both path and {key}",
                hint=f"Remove {key}, or remove path to train a tokenizer.",
            )
            for key in type(self).model_fields
            if key in self.model_fields_set - {"path"}
        ]
        if problems:
            raise refusal(*problems)
        return self


class CountsConfig(_Section):
    """Counting of pre-tokens."""

    shards: Annotated[int, Field(ge=1, le=65536)] = Field(
        default=64, description="Number of Parquet files that hold the counts."
    )
    memory: MemorySize = _size(
        "512MiB",
        "Memory for the tables of counts, in bytes, of one process; its workers share it.",
    )
    checkpoint_bytes: Size = _size(
        "8GiB", "Bytes of text after which finished tasks are committed and need no repeating."
    )
    max_pretoken_bytes: Size = _size("1MiB", "Longest pre-token, in bytes.")
    on_long_pretoken: Literal["error", "skip"] = Field(
        default="error",
        description="Longer pre-tokens: stop with an error, or leave them out of the counts.",
    )


class EncodeConfig(_Section):
    """Encoding into token files."""

    prepend: Text | None = Field(
        default=None, description="Special token put before every document, or null."
    )
    append: Text | None = Field(
        default="<|endoftext|>", description="Special token put after every document, or null."
    )
    special_tokens_in_text: Literal["split", "text", "reject", "error"] = Field(
        default="split",
        description="Special tokens found in a document: make them their ids (split), encode "
        "them as ordinary text (text), reject the document, or stop with an error. Counting "
        "always cuts text at them.",
    )
    id_type: Literal["auto", "uint16", "uint32"] = Field(
        default="auto", description="Type of token ids; auto: the smallest that holds the largest."
    )
    validation_fraction: Annotated[Fraction, Field(lt=1.0)] = Field(
        default=0.0, description="Share of the documents (0 to below 1) in the validation files."
    )
    max_reject_fraction: Fraction = Field(
        default=0.0,
        description="Largest share (0 to 1) of rejected documents among the kept and rejected "
        "ones; above it, fail.",
    )


class BeamConfig(_Section):
    """Where and how widely the pipelines run. Has no influence on any output."""

    runner: Literal[
        "DirectRunner", "FlinkRunner", "PrismRunner", "PortableRunner", "DataflowRunner"
    ] = Field(default="DirectRunner", description="Beam runner.")
    workers: Annotated[int, Field(ge=0)] = Field(
        default=0,
        description="Number of workers; 0: all cores with DirectRunner, else what the runner has.",
    )
    options: Options = _options("Any options of Beam pipelines, by name.")


def _as_list(value: object) -> object:
    return [value] if isinstance(value, Mapping | SourceConfig) else value


class BuildConfig(_Section):
    """A build: a tokenizer trained on a corpus, and the corpus encoded with it.

    >>> config = BuildConfig(output="out", input={"files": ["data/*.txt"]})
    >>> config.tokenizer.vocab_size, config.input[0].range_bytes
    (32000, 67108864)
    """

    output: Text = Field(
        description="Directory or fsspec URL for everything that is made. A relative one is "
        "relative to the configuration file."
    )
    output_storage_options: Options = _options(
        "Options of the fsspec file system of `output`; `${NAME}` in a value is that environment "
        "variable."
    )
    input: Annotated[
        tuple[SourceConfig, ...],
        Strict(False),
        Field(min_length=1),
        BeforeValidator(
            _as_list,
            json_schema_input_type=SourceConfig
            | Annotated[list[SourceConfig], Field(min_length=1)],
        ),
    ] = Field(description="One source of documents, or a list of them, each with a name.")
    tokenizer: TokenizerConfig = Field(
        default_factory=TokenizerConfig, description="The tokenizer to train or to use."
    )
    counts: CountsConfig = Field(
        default_factory=CountsConfig, description="Counting of pre-tokens."
    )
    encode: EncodeConfig = Field(
        default_factory=EncodeConfig, description="Encoding into token files."
    )
    beam: BeamConfig = Field(default_factory=BeamConfig, description="Where the pipelines run.")

    _base_dir: Path = PrivateAttr(default_factory=Path.cwd)

    @property
    def base_dir(self) -> Path:
        """The directory that relative paths are relative to: that of the configuration file."""
        return self._base_dir

    @property
    def output_path(self) -> str:
        """`output` as an absolute path or as the URL it is."""
        return self.resolve(self.output)

    def resolve(self, path: str) -> str:
        """A path of the configuration as an absolute path; URLs are left as they are."""
        if is_url(path):
            return path
        return os.path.normpath(self.base_dir / Path(path).expanduser())

    def resolve_glob(self, pattern: str) -> str:
        """Like `resolve`, for globs: special characters of the base directory are escaped."""
        if is_url(pattern):
            return pattern
        base = glob.escape(str(self.base_dir))
        return os.path.normpath(os.path.join(base, os.path.expanduser(pattern)))  # noqa: PTH111, PTH118

    @model_validator(mode="after")
    def _check(self) -> Self:
        problems = [*self._source_name_problems(), *self._special_token_problems()]
        trained = self.tokenizer.path is None
        if trained and self.encode.id_type == "uint16" and self.tokenizer.vocab_size > UINT16_IDS:
            problems.append(
                Problem(
                    ("encode", "id_type"),
                    expected=f"uint32 or auto: ids up to {self.tokenizer.vocab_size - 1} don't "
                    "fit uint16",
                    found="'uint16'",
                    hint=f"Change id_type, or tokenizer.vocab_size to at most {UINT16_IDS}.",
                )
            )
        if problems:
            raise refusal(*problems)
        return self

    def _source_name_problems(self) -> Iterator[Problem]:
        if len(self.input) == 1:
            return
        first: dict[str, int] = {}
        for index, source in enumerate(self.input):
            if source.name is None:
                yield Problem(
                    ("input", index, "name"),
                    expected="a name for each of several sources",
                    found="no name",
                    hint="Add `name:`; it stands in the column `source` of the output.",
                )
            elif source.name in first:
                yield Problem(
                    ("input", index, "name"),
                    expected="a different name for each source",
                    found=f"{source.name!r}, the name of input[{first[source.name]}]",
                )
            else:
                first[source.name] = index

    def _special_token_problems(self) -> Iterator[Problem]:
        if self.tokenizer.path is not None:
            return
        for key in ("prepend", "append"):
            token = getattr(self.encode, key)
            if token is not None and token not in self.tokenizer.special_tokens:
                given = key in self.encode.model_fields_set
                yield Problem(
                    ("encode", key),
                    expected="one of tokenizer.special_tokens "
                    f"({json.dumps(self.tokenizer.special_tokens, ensure_ascii=False)}), or null",
                    found=describe_value(token) + ("" if given else ", the default"),
                    hint=did_you_mean(token, self.tokenizer.special_tokens)
                    or f"Add it to tokenizer.special_tokens, or set encode.{key}.",
                )


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> BuildConfig:
    """Read a configuration file and apply overrides, each a text `key=value`.

    An override of `tokenizer.path` takes the place of all that the file says of the tokenizer.
    Relative paths, also those in overrides, are relative to the configuration file. Raises
    ConfigError with everything that is wrong, each with its key and place.
    """
    source = ConfigSource.from_file(Path(path))
    for override in overrides:
        source.override(override)
    given = {override.partition("=")[0].strip() for override in overrides}
    if "tokenizer.path" in given and source.values["tokenizer"]["path"] is not None:
        source.leave_out_of_file("tokenizer")
    problems = [*source.problems, *source.environment_problems()]
    config = None
    try:
        config = BuildConfig.model_validate(source.values)
    except ValidationError as error:
        problems += problems_of(error, source, tuple(_known_keys(BuildConfig, ())))
    raise_problems(problems, source.file)
    assert config is not None
    config._base_dir = Path(path).absolute().parent
    return config


def _known_keys(model: type[BaseModel], path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The paths of all keys; those of a source stand below `input` without an index."""
    for name, info in model.model_fields.items():
        yield (*path, name)
        section = SourceConfig if name == "input" else info.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            yield from _known_keys(section, (*path, name))


def is_url(path: str) -> bool:
    """Whether a path is an fsspec URL, also a chained one, and no path of the local disk."""
    return "://" in path or "::" in path


def split_glob(pattern: str) -> tuple[str, str]:
    """A pattern as the directory before its first wildcard, and the rest.

    >>> split_glob("../corpus/part-*/a.txt"), split_glob("../corpus/a.txt")
    (('../corpus', 'part-*/a.txt'), ('../corpus', 'a.txt'))
    """
    wildcard = next((found for found in _WILDCARD.finditer(pattern) if not found[1]), None)
    end = len(pattern) if wildcard is None else wildcard.start()
    directory, _, _ = pattern[:end].rpartition("/")
    return directory, pattern[len(directory) :].lstrip("/")


# --- schema ----------------------------------------------------------------------------------


class _SchemaWithoutFieldTitles(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def json_schema() -> dict[str, Any]:
    """The JSON schema of a configuration file, for editors that complete and check YAML."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of beam-bpe",
        **{
            key: value
            for key, value in BuildConfig.model_json_schema(
                schema_generator=_SchemaWithoutFieldTitles
            ).items()
            if key not in ("title", "description")
        },
    }


def main() -> None:
    """Write the JSON schema to standard output."""
    json.dump(json_schema(), sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
