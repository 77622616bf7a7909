"""Numbers of tokens in the records of files, without a configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, Literal, TypeAlias

from pydantic import ValidationError

from bpe_core import BPETokenizer
from pipelines.batches import DocumentBatch, Reject
from pipelines.config import SourceConfig
from pipelines.errors import ConfigError, InputError
from pipelines.probing.contents import HEAD_BYTES, looks_like_json_lines, recognize
from pipelines.readers import read_range
from pipelines.readers.json_lines import no_field_of_text, parse_records
from pipelines.readers.plain_files import read_start
from pipelines.readers.tasks import source_readings
from pipelines.rejects.reasons import MISSING_FIELD
from pipelines.rejects.thresholds import describe_reject
from pipelines.tasks.listing import InputFile
from pipelines.tasks.plan import COLUMN_FORMATS, Range
from pipelines.tokenizers.files import Tokenizer, cutting_rules, model_of

# Enough for two lines of JSON.
_START_BYTES: Final = 1 << 20
_RECORDS: Final = 100
FormatName: TypeAlias = Literal["jsonl", "parquet", "arrow"]


@dataclass(kw_only=True)
class RecordCount:
    """Sums of a file: tokens, bytes of text, documents, and records without readable text."""

    tokens: int = 0
    bytes: int = 0
    documents: int = 0
    rejects: int = 0
    reason: str | None = None  # reason of the first of them
    example: str | None = None  # describes it

    def add_rejects(self, rejects: tuple[Reject, ...]) -> None:
        """Add rejected records."""
        if rejects and self.example is None:
            self.reason, self.example = rejects[0].reason, describe_reject(rejects[0])
        self.rejects += len(rejects)


def count_records(
    tokenizer: Tokenizer, file: InputFile, text_field: str, *, ordinary: bool
) -> RecordCount:
    """Return the sums of a file of JSON lines, Parquet or Arrow, by its bytes.

    Long texts are cut as in a build, so that the memory is bounded.

    Args:
        tokenizer: The tokenizer.
        file: The file.
        text_field: Field of the text, as `input.text_field`.
        ordinary: True to encode special tokens in the text as ordinary text.

    Raises:
        ConfigError: The field is not a path of names.
        InputError: The file cannot be read, or lacks the field.
    """
    counted = RecordCount()
    for batch in read_records(file, text_field, cutting_rules(model_of(tokenizer)), counted):
        later: dict[str, Any] = {}
        if isinstance(tokenizer, BPETokenizer):
            later["continues"] = batch.part > 0
        ids, _ = tokenizer.encode_documents(
            batch.data,
            batch.starts,
            batch.ends,
            allowed_special="none" if ordinary else "all",
            num_threads=0,
            **later,
        )
        counted.tokens += len(ids)
    return counted


def read_records(
    file: InputFile, text_field: str, rules: Mapping[str, Any], counted: RecordCount
) -> Iterator[DocumentBatch]:
    """Yield the texts of a file of JSON lines, Parquet or Arrow, by its bytes.

    Args:
        file: The file.
        text_field: Field of the text, as `input.text_field`.
        rules: Rules for cutting long texts, as `cutting_rules` returns them.
        counted: Gets the documents, bytes and rejects.

    Raises:
        ConfigError: The field is not a path of names.
        InputError: The file cannot be read, or lacks the field.
    """
    form = _find_format(file)
    if form in COLUMN_FORMATS:
        file = replace(file, compression=None)
    source = _make_source(form, text_field)
    [reading] = source_readings((source,), **rules, expect_fields=True)
    for batch in read_range(file, Range(file=0, start=0, end=file.size), reading.options):
        counted.add_rejects(batch.rejects)
        if not len(batch):
            continue
        counted.bytes += int(batch.num_bytes.sum())
        counted.documents += len(batch) if batch.part == 0 else 0
        yield batch
    if counted.rejects and not counted.documents:
        raise _no_texts(file, counted, source)


def _no_texts(file: InputFile, counted: RecordCount, source: SourceConfig) -> InputError:
    """Return the error for a file without any text in the field."""
    if source.format == "jsonl" and counted.reason == MISSING_FIELD:
        return no_field_of_text(
            list(islice(parse_records(read_start(file, _START_BYTES)), _RECORDS)),
            source.text_fields,
            of=file.name,
            where=file.url,
            key="--text-field",
        )
    return InputError(
        "No record has a text.",
        expected="JSON lines, Parquet or Arrow with texts in --text-field",
        found=counted.example,
        where=file.url,
        hint="Name the field with the text; count plain text without --text-field.",
    )


def advise_field(file: InputFile) -> str | None:
    """Return what a user should know of a file of records that is read as text, or None."""
    form = _find_format(file)
    if form in COLUMN_FORMATS or looks_like_json_lines(read_start(file, _START_BYTES)):
        return "count the tokens of a field of its records with --text-field FIELD"
    return None


def _make_source(form: FormatName, text_field: str) -> SourceConfig:
    try:
        return SourceConfig(files=("-",), format=form, text_field=text_field)
    except ValidationError:
        raise ConfigError(
            "This is not the name of a field.",
            expected="names of fields, joined by dots",
            found=repr(text_field),
            where="--text-field",
        ) from None


def _find_format(file: InputFile) -> FormatName:
    content = recognize(read_start(replace(file, compression=None), HEAD_BYTES))
    found = None if content is None else content.format
    return "parquet" if found == "parquet" else "arrow" if found == "arrow" else "jsonl"
