"""Section `input`: one source of documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import AfterValidator, Field, PlainValidator, Strict, model_validator

from pipelines.config.validation import refusal
from pipelines.config.values import (
    LONGEST_WHOLE_DOCUMENT,
    MAX_EXPANSION,
    Fraction,
    Number,
    Options,
    Patterns,
    Section,
    Size,
    Text,
    Texts,
    check_field,
    check_id_field,
    check_kept_columns,
    check_separator,
    check_source_name,
    is_inside,
    options_key,
    parse_field_path,
    several,
    size_key,
)
from pipelines.config.yaml_document import Problem, describe_value

# Formats whose documents are records; only some keys of a source apply to them.
_RECORDS: Final = ("jsonl", "parquet", "arrow")
FORMATS_OF_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "separator": ("text",),
    "strip_bom": ("text",),
    "text_field": _RECORDS,
    "join": _RECORDS,
    "id_field": _RECORDS,
    "keep_columns": _RECORDS,
}


# Keys of a source that select files, then the first documents, then individual documents.
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
    """Return the keys of a source that do not apply to this format."""
    return {key for key, formats in FORMATS_OF_KEYS.items() if name not in formats}


FollowLinks: TypeAlias = Literal["inside", "anywhere"]


class SourceConfig(Section):
    """One source of documents: files of one format, read with the same settings."""

    name: Annotated[Text, AfterValidator(check_source_name)] | None = Field(
        default=None,
        description="Name of the source in the output column `source`, without /. Required, and "
        "unique, if there are several sources.",
    )
    files: Annotated[tuple[Text, ...], Strict(False), Field(min_length=1)] = Field(
        description="Paths, globs or fsspec URLs of the files. Relative ones are relative to the "
        "configuration file.",
    )
    format: Literal["text", "jsonl", "parquet", "arrow"] = Field(
        default="text",
        description="Format of the files: text, JSON lines, Parquet, or Arrow IPC (file or "
        "stream).",
    )
    separator: Annotated[
        Any, PlainValidator(check_separator, json_schema_input_type=Texts | None)
    ] = Field(
        default="<|endoftext|>",
        description="For text: the separator between documents; null: one document per file; "
        '"\\n": one per line. In a list, the leftmost match wins, and the longest of those that '
        "start at the same byte.",
    )
    text_field: Annotated[Any, PlainValidator(check_field, json_schema_input_type=Texts)] = Field(
        default="text",
        description="For jsonl, parquet and arrow: the field or column that contains the text; "
        "`doc.text` is the field `text` inside the field `doc`. The fields of a list are joined.",
    )
    join: str = Field(
        default="\n", description="Text to put between the fields if `text_field` is a list."
    )
    id_field: Annotated[Any, PlainValidator(check_id_field, json_schema_input_type=Text | None)] = (
        Field(
            default=None,
            description="For jsonl, parquet and arrow: the field that contains the record's own id "
            "(text or an integer), for the output column `id`; null: none.",
        )
    )
    keep_columns: Annotated[Patterns, AfterValidator(check_kept_columns)] = Field(
        default=(),
        description="For jsonl, parquet and arrow: fields to keep as columns of the token files, "
        "such as `lang` or `meta.url`. Values of jsonl are kept as text, columns of parquet and "
        "arrow with their type.",
    )
    compression: Literal["infer", "none", "gzip", "zstd", "bz2", "xz"] = Field(
        default="infer",
        description="Compression of text and jsonl files; infer: by extension (.gz, .zst, .bz2, "
        ".xz).",
    )
    invalid_utf8: Literal["reject", "replace", "error"] = Field(
        default="reject",
        description="Action for documents that are not valid UTF-8: reject them (reject), replace "
        "invalid bytes with U+FFFD (replace), or stop with an error (error).",
    )
    strip_bom: bool = Field(
        default=False,
        description="For text: remove a byte-order mark at the start of a file.",
    )
    range_bytes: Size = size_key(
        "64MiB",
        "Maximum bytes of text per task, estimated for compressed files. A task is the unit of "
        "work, of resuming and of output: each task writes one token file. A corpus has at least "
        "64 tasks, unless they would have less than 4 MiB of text.",
    )
    max_document_bytes: Annotated[Size, Field(le=LONGEST_WHOLE_DOCUMENT)] = size_key(
        "1GiB",
        "Maximum size, in bytes, of a document that must be held in memory whole: a line of "
        "jsonl, a text of parquet or arrow, any document with a pattern without safe cuts, "
        "such as `none` in counting. Longer ones are rejected. At most 2,000,000,000, because a "
        "row holds fewer than 2^31 ids.",
    )
    max_bad_files: Annotated[int, Field(ge=0)] = Field(
        default=0,
        description="Number of bad files (corrupt, truncated, changed, missing or unreadable) "
        "that the source may have. 0: any bad file is an error. Otherwise the build keeps the "
        "readable documents of bad files, records the rest of each as a reject, and fails if "
        "there are more bad files than this.",
    )
    max_expansion: Annotated[int, Field(ge=1)] = Field(
        default=MAX_EXPANSION,
        description="Maximum text of a compressed file, Parquet or Arrow file or archive, as a "
        "multiple of its stored size; 64 MiB are always allowed. A file that contains more is an "
        "error, also with `max_bad_files`: text compresses to a tenth, a compression bomb to less "
        "than a thousandth.",
    )
    follow_links: FollowLinks = Field(
        default="inside",
        description="Symbolic links to follow where a pattern with wildcards finds them: inside "
        "the folder before its first wildcard, or anywhere. Other links are errors. "
        "Paths without wildcards are always followed.",
    )
    include: Patterns = Field(
        default=(),
        description="Globs. A file is read if its name, relative to the fixed part of its pattern "
        "in `files`, matches one of them. Empty list: all files.",
    )
    exclude: Patterns = Field(
        default=(),
        description="Globs. A file is not read if its name, relative to the fixed part of its "
        "pattern in `files`, matches one of them.",
    )
    limit_documents: Number | None = Field(
        default=None,
        description="Read only the first N documents of the source, including empty and rejected "
        "ones; null: all. Applied before `sample_fraction`, `min_chars` and `max_chars`.",
    )
    limit_bytes: Size | None = Field(
        default=None,
        description="Read only the first documents of the source, as long as their text adds up "
        "to at most this many bytes; null: all. Applied before `sample_fraction`, `min_chars` and "
        "`max_chars`.",
    )
    sample_fraction: Annotated[Fraction, Field(gt=0.0)] = Field(
        default=1.0,
        description="Share of the documents to select (above 0, to 1), by the upper 64 bits of "
        "each document's hash, independent of files and order.",
    )
    min_chars: Annotated[int, Field(ge=0)] = Field(
        default=0, description="Select documents of at least this many Unicode characters."
    )
    max_chars: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="Select documents of at most this many Unicode characters; null: no limit.",
    )
    storage_options: Options = options_key(
        "Options of the fsspec file system of `files`; `${NAME}` in a value stands for that "
        "environment variable."
    )

    @property
    def separators(self) -> tuple[bytes, ...] | None:
        """Return `separator` as bytes, or None if a file is one document."""
        if self.separator is None:
            return None
        return tuple(text.encode() for text in several(self.separator))

    @property
    def selection(self) -> dict[str, Any]:
        """Return the keys that select documents or files and are set."""
        return self.model_dump(mode="json", include=set(SELECTION_KEYS), exclude_defaults=True)

    @property
    def text_fields(self) -> tuple[tuple[str, ...], ...]:
        """Return the paths in `text_field`."""
        return tuple(parse_field_path(path) for path in several(self.text_field))

    @property
    def id_path(self) -> tuple[str, ...] | None:
        """Return the path in `id_field`."""
        return None if self.id_field is None else parse_field_path(self.id_field)

    @property
    def keep_paths(self) -> tuple[tuple[str, ...], ...]:
        """Return the paths in `keep_columns`."""
        return tuple(parse_field_path(path) for path in self.keep_columns)

    @model_validator(mode="after")
    def _check(self) -> Self:
        problems = [*self._foreign_key_problems(), *self._kept_column_problems()]
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
                    hint="No document could be selected.",
                )
            )
        if problems:
            raise refusal(*problems)
        return self

    def _kept_column_problems(self) -> Iterator[Problem]:
        others = [*self.text_fields, *([] if self.id_path is None else [self.id_path])]
        for index, path in enumerate(self.keep_paths):
            for other in others:
                if path != other and is_inside(path, other):
                    yield Problem(
                        ("keep_columns", index),
                        expected="a field that is not inside text_field or id_field, nor around it",
                        found=describe_value(self.keep_columns[index]),
                    )

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
                expected=f"infer or none: a {self.format} file compresses its columns internally",
                hint="Decompress the files, and remove compression.",
            )
