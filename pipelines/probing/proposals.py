"""Proposal of a configuration for files, from their names and their first records."""

from __future__ import annotations

import glob
import json
import os
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.config import SourceConfig
from pipelines.config.values import escape, is_url
from pipelines.console.units import format_bytes
from pipelines.errors import InputError, to_one_line
from pipelines.manifest.names import MANIFEST
from pipelines.probing.contents import HEAD_BYTES, looks_like_json_lines, recognize
from pipelines.readers.streams import open_handle, open_stream
from pipelines.tasks.listing import (
    COMPRESSION_OF_EXTENSION,
    InputFile,
    compression_of,
    list_files,
)

_SAMPLED_FILES: Final = 3
_SAMPLE_BYTES: Final = 256 << 10
_RECORDS: Final = 64
_DOCUMENTS: Final = 3
_DEPTH: Final = 3
_LISTED_FILES: Final = 20
# Names of fields, the most usual first.
_TEXT_NAMES: Final = ("text", "content", "body", "raw_content", "document", "code", "article")
_ID_NAMES: Final = ("id", "_id", "uuid", "doc_id", "document_id", "url")
_SEPARATORS: Final = ("<|endoftext|>", "<|end_of_text|>", "</s>", "\x1e", "\x0c")
# A file of text with at least so many lines, as long on average, has a document in each line.
_FEWEST_LINES: Final = 200
_LONG_LINE: Final = 200
# Number of ids, by the size of the files.
_VOCABULARIES: Final = ((2 << 20, "2k"), (20 << 20, "8k"), (500 << 20, "16k"))
_LARGEST_VOCABULARY: Final = "32k"
_OF_MANY_SCRIPTS: Final = "64k"
_OTHER_SCRIPTS: Final = 0.1


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """Proposal for the files of one source.

    Attributes:
        patterns: Paths, globs or URLs.
        files, bytes: Number and size of the files.
        form: Value of `format`.
        compression: Value of `compression`, or None if the extensions tell it.
        text_field: Field of the text; None for text files.
        text_fields: All fields that contain text, the longest first.
        id_field: Field of the ids, or None.
        separator: Separator of documents in text files; None: one document per file.
        documents: Some of the first documents.
        scripts: Number of letters of each script in a sample.
    """

    patterns: tuple[str, ...]
    files: int
    bytes: int
    form: str = "text"
    compression: str | None = None
    text_field: str | None = None
    text_fields: tuple[str, ...] = ()
    id_field: str | None = None
    separator: str | None = None
    documents: tuple[str, ...] = ()
    scripts: Mapping[str, int] = field(default_factory=dict)

    @property
    def settings(self) -> tuple[object, ...]:
        """Return the values that files of one source share."""
        return self.form, self.compression, self.text_field, self.id_field, self.separator

    def merged_with(self, other: Proposal) -> Proposal:
        """Return the proposal for the files of both."""
        return replace(
            self,
            patterns=(*self.patterns, *other.patterns),
            files=self.files + other.files,
            bytes=self.bytes + other.bytes,
            documents=(*self.documents, *other.documents)[:_DOCUMENTS],
            scripts=Counter(self.scripts) + Counter(other.scripts),
        )

    def relative_to(self, folder: Path) -> Proposal:
        """Return the proposal with paths relative to the folder of the configuration."""
        patterns = (
            pattern if is_url(pattern) else os.path.relpath(pattern, folder)
            for pattern in self.patterns
        )
        return replace(self, patterns=tuple(patterns))

    def describe(self) -> str:
        """Return the number, size and form of the files in a line."""
        form = {"jsonl": "JSON lines", "text": "text"}.get(self.form, self.form.capitalize())
        number = f"{self.files:,} file" + ("" if self.files == 1 else "s")
        parts = [f"{number} of {form}", format_bytes(self.bytes)]
        if self.text_field is not None:
            parts.append(f"text in {self.text_field!r}")
        elif self.form == "text":
            parts.append(_describe_separator(self.separator))
        return ", ".join(parts)


def propose(arguments: Sequence[str]) -> tuple[list[Proposal], list[str]]:
    """Return a proposal for each source, and a line for each file or pattern left out.

    Args:
        arguments: Files, folders, globs and URLs.

    Raises:
        InputError: Nothing can be read.
    """
    by_settings: dict[tuple[object, ...], Proposal] = {}
    skipped = []
    for pattern in _patterns(arguments):
        files = list_files(SourceConfig(files=(pattern,)), resolve=_make_absolute)
        files = [file for file in files if file.size]
        try:
            proposal = _propose(pattern, files)
        except (InputError, pa.ArrowException) as error:
            skipped.append(f"{pattern}: {to_one_line(error)}")
            continue
        before = by_settings.get(proposal.settings)
        by_settings[proposal.settings] = before.merged_with(proposal) if before else proposal
    if not by_settings:
        raise InputError(
            "None of the files can be read.",
            expected="text, JSON lines, Parquet or Arrow, perhaps compressed",
            found="; ".join(skipped) or "no files",
            hint="Name files, folders or globs of them.",
        )
    return list(by_settings.values()), skipped


def write_yaml(proposals: Sequence[Proposal], config: str, output: str, vocabulary: str) -> str:
    """Return a commented configuration.

    Args:
        proposals: A proposal for each source.
        config: Name of the file that will contain it.
        output: Value of `output`.
        vocabulary: Value of `tokenizer.vocab_size`.
    """
    special = "<|endoftext|>"
    scripts = sum((Counter(one.scripts) for one in proposals), Counter[str]())
    sources = [_source_yaml(one, _name(one, i, proposals)) for i, one in enumerate(proposals)]
    lines = [
        "# Written by `beam-bpe init`. All keys: docs/configuration.md, or `beam-bpe schema`.",
        _comment(f"Check it: beam-bpe plan {config}. Build it: beam-bpe build {config}."),
        "",
        "# Everything is written here. Paths are relative to this file.",
        f"output: {_quote(output)}",
        "",
        "input:",
        *(line for source in sources for line in source),
        "",
        "tokenizer:",
        f"  vocab_size: {vocabulary} # ids, special tokens included",
        f"  # Scripts: {_describe_scripts(scripts)}.",
        f"  pattern: {choose_pattern(scripts)} # or gpt2, cl100k, o200k, llama3, qwen2, none",
        f"  special_tokens: [{_quote(special)}]",
        "",
        "encode:",
        f"  append: {_quote(special)} # ends each document; null: nothing",
        "  validation_fraction: 0.0 # share of the documents for validation-*.parquet",
        "  max_reject_fraction: 0.0 # share of the documents that may be rejected",
        "",
    ]
    return "\n".join(lines)


def choose_vocabulary(proposals: Sequence[Proposal]) -> str:
    """Return a number of ids that fits the size and the scripts of the files."""
    size = sum(proposal.bytes for proposal in proposals)
    for limit, number in _VOCABULARIES:
        if size < limit:
            return number
    scripts = sum((Counter(one.scripts) for one in proposals), Counter[str]())
    return _OF_MANY_SCRIPTS if _share_of_others(scripts) > _OTHER_SCRIPTS else _LARGEST_VOCABULARY


def choose_pattern(scripts: Mapping[str, int]) -> str:
    """Return a pattern that fits the scripts."""
    return "o200k" if _share_of_others(scripts) > _OTHER_SCRIPTS else "gpt2"


# --- files


def _patterns(arguments: Sequence[str]) -> Iterator[str]:
    """Yield patterns for the arguments; for files of a folder with one extension, a glob of them.

    A shell may have replaced a glob by thousands of names.
    """
    named: dict[tuple[str, str], list[str]] = {}
    for argument in arguments:
        if is_url(argument):
            yield argument
        elif Path(argument).is_dir():
            yield from _patterns_of_folder(argument)
        elif Path(argument).is_file():
            folder, name = os.path.split(argument)
            named.setdefault((folder, _extension(name)), []).append(argument)
        else:
            yield argument
    for (folder, extension), files in named.items():
        alike = set(Path(folder).glob(f"*{glob.escape(extension)}"))
        if len(files) > 1 and extension and alike == set(map(Path, files)):
            yield str(Path(escape(folder)) / f"*{extension}")
        else:
            yield from map(escape, files)


def _patterns_of_folder(folder: str) -> Iterator[str]:
    found: dict[str, list[str]] = {}
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if not (name.startswith(".") or Path(root, name, "tokens", MANIFEST).exists())
        )
        for name in sorted(names):
            if not name.startswith("."):
                found.setdefault(_extension(name), []).append(str(Path(root) / name))
    for extension, files in sorted(found.items()):
        if extension:
            yield str(Path(escape(folder)) / "**" / f"*{extension}")
        else:
            yield from map(escape, files[:_LISTED_FILES])


def _extension(name: str) -> str:
    parts = name.split(".")
    length = 2 if len(parts) > 2 and parts[-1].lower() in COMPRESSION_OF_EXTENSION else 1
    return "".join(f".{part}" for part in parts[1:][-length:])


def _make_absolute(pattern: str) -> str:
    return pattern if is_url(pattern) else str(Path.cwd() / pattern)


# --- contents


def _propose(pattern: str, files: Sequence[InputFile]) -> Proposal:
    """Return the proposal for the files of a pattern.

    Raises:
        InputError: They cannot be read.
    """
    if not files:
        raise InputError("The files are empty.", where=pattern)
    step = max(1, len(files) // _SAMPLED_FILES)
    sampled = files[::step][:_SAMPLED_FILES]
    read = [_read(file) for file in sampled]
    first = read[0]
    proposal = Proposal(
        patterns=(pattern,),
        files=len(files),
        bytes=sum(file.size for file in files),
        form=first.form,
        compression=first.compression,
    )
    if first.form == "text":
        texts = [one.text for one in read]
        separator = _choose_separator(texts, len(files))
        documents = [text for one in texts for text in _split(one, separator)]
        return replace(
            proposal,
            separator=separator,
            documents=tuple(documents[:_DOCUMENTS]),
            scripts=_count_scripts(texts),
        )
    records = [record for one in read for record in one.records]
    lengths = _text_lengths(records)
    if not lengths:
        raise InputError("No record has a field with text.", where=files[0].url)
    fields = tuple(sorted(lengths, key=lambda name: (-lengths[name], name)))
    usual: Iterator[str] = (name for name in _TEXT_NAMES if name in lengths)
    text_field = next(usual, fields[0])
    texts = [value for record in records for name, value in _leaves(record) if name == text_field]
    return replace(
        proposal,
        text_field=text_field,
        text_fields=fields,
        id_field=_choose_id(records, text_field),
        documents=tuple(texts[:_DOCUMENTS]),
        scripts=_count_scripts(texts),
    )


@dataclass(frozen=True, kw_only=True)
class _Read:
    """Beginning of a file: its form, compression (None: by extension), and text or records."""

    form: str
    compression: str | None = None
    text: str = ""
    records: tuple[Mapping[str, Any], ...] = ()


def _read(file: InputFile) -> _Read:
    stored = replace(file, compression=None)
    head = _read_start(stored, HEAD_BYTES)
    content = recognize(head)
    if content is not None and content.format is not None:
        return _Read(form=content.format, records=tuple(_read_columns(stored, content.format)))
    if content is not None and content.compression is None:
        raise InputError(f"It is {content.name}. {content.hint}", where=file.url)
    compression = None if content is None else content.compression
    text = _read_start(replace(file, compression=compression), _SAMPLE_BYTES)
    inner = recognize(text[:HEAD_BYTES])
    if inner is not None:
        raise InputError(f"It contains {inner.name}. {inner.hint}", where=file.url)
    decoded = _decode(text, file.url)
    stated = None if compression == compression_of(file.name) else compression or "none"
    if looks_like_json_lines(text) or (text.startswith(b"{") and text.count(b"\n") == 1):
        return _Read(form="jsonl", compression=stated, records=tuple(_parse(text)))
    return _Read(form="text", compression=stated, text=decoded)


def _read_start(file: InputFile, size: int) -> bytes:
    stream = open_stream(file, {}, size)
    block = np.empty(size, np.uint8)
    done = 0
    try:
        while done < size and (got := stream.read_into(block[done:])):
            done += got
    finally:
        stream.close()
    return block[:done].tobytes()


def _decode(text: bytes, where: str) -> str:
    """Decode a text that may end in the middle of a character."""
    for end in range(len(text), max(len(text) - 4, -1), -1):
        try:
            return text[:end].decode()
        except UnicodeDecodeError as error:
            if error.start < end - 4:
                break
    raise InputError("It is not text in UTF-8.", where=where)


def _parse(text: bytes) -> Iterator[Mapping[str, Any]]:
    for line in islice(text.splitlines(), _RECORDS):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):  # the last line is cut
            continue
        if isinstance(record, dict):
            yield record


def _read_columns(file: InputFile, form: str) -> list[dict[str, Any]]:
    with open_handle(file, {}) as handle:
        if form == "parquet":
            batches = pq.ParquetFile(handle).iter_batches(batch_size=_RECORDS)
            return [record for batch in islice(batches, 1) for record in batch.to_pylist()]
        try:
            reader = pa.ipc.open_file(handle)
            batches = map(reader.get_batch, range(reader.num_record_batches))
        except pa.ArrowInvalid:
            handle.seek(0)
            batches = iter(pa.ipc.open_stream(handle))
        first = next((batch for batch in batches if batch.num_rows), None)
        return [] if first is None else first.slice(0, _RECORDS).to_pylist()


# --- texts and fields


def _leaves(record: Mapping[str, Any], prefix: str = "", depth: int = 1) -> Iterator[Any]:
    """Yield path and value of the texts in a record."""
    for key, value in record.items():
        path = prefix + str(key).replace("\\", "\\\\").replace(".", "\\.")
        if isinstance(value, str):
            yield path, value
        elif isinstance(value, Mapping) and depth < _DEPTH:
            yield from _leaves(value, f"{path}.", depth + 1)


def _text_lengths(records: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    lengths: Counter[str] = Counter()
    for record in records:
        for name, value in _leaves(record):
            lengths[name] += len(value)
    return dict(lengths)


def _choose_id(records: Sequence[Mapping[str, Any]], text_field: str) -> str | None:
    """Return a field with a usual name that has a different value in each record."""
    for name in _ID_NAMES:
        values = [record.get(name) for record in records]
        if name != text_field and all(
            isinstance(value, str | int) and not isinstance(value, bool) for value in values
        ):
            return name if len(set(values)) == len(values) else None
    return None


def _choose_separator(texts: Sequence[str], files: int) -> str | None:
    for separator in _SEPARATORS:
        if any(separator in text for text in texts):
            return separator
    lines = texts[0].splitlines()
    length = sum(map(len, lines)) / max(len(lines), 1)
    if files <= _SAMPLED_FILES and len(lines) >= _FEWEST_LINES and length >= _LONG_LINE:
        return "\n"
    return None


def _split(text: str, separator: str | None) -> list[str]:
    parts = [text] if separator is None else text.split(separator)
    return [part for part in parts if part.strip()]


def _count_scripts(texts: Sequence[str]) -> Counter[str]:
    counted: Counter[str] = Counter()
    letters: Counter[str] = Counter()
    for text in texts:
        letters.update(filter(str.isalpha, text[: _SAMPLE_BYTES // 4]))
    for letter, number in letters.items():
        name = unicodedata.name(letter, "OTHER").partition(" ")[0]
        counted["Han" if name == "CJK" else name.capitalize()] += number
    return counted


def _share_of_others(scripts: Mapping[str, int]) -> float:
    total = sum(scripts.values())
    return 1 - scripts.get("Latin", 0) / total if total else 0.0


# --- the configuration


def _name(proposal: Proposal, number: int, proposals: Sequence[Proposal]) -> str | None:
    if len(proposals) == 1:
        return None
    alike = [one.form for one in proposals[:number]].count(proposal.form)
    return proposal.form + (str(alike + 1) if alike else "")


def _source_yaml(proposal: Proposal, name: str | None) -> Iterator[str]:
    values: list[tuple[str, object, str]] = []
    if name is not None:
        values.append(("name", name, ""))
    values.append(("files", list(proposal.patterns), proposal.describe()))
    values.append(("format", proposal.form, ""))
    if proposal.compression is not None:
        values.append(("compression", proposal.compression, "whatever the extension says"))
    if proposal.text_field is not None:
        others = [field for field in proposal.text_fields if field != proposal.text_field]
        comment = f"or {', '.join(others[:5])}" if others else ""
        values.append(("text_field", proposal.text_field, comment))
        if proposal.id_field is not None:
            values.append(("id_field", proposal.id_field, "the column `id` of the token files"))
    else:
        values.append(("separator", proposal.separator, _describe_separator(proposal.separator)))
    for i, (key, value, comment) in enumerate(values):
        dash = "- " if name is not None and i == 0 else "  "
        indent = "  " if name is not None else ""
        line = f"{indent}{dash}{key}: {_quote(value)}"
        yield line + (f" {_comment(comment)}" if comment else "")


def _describe_separator(separator: str | None) -> str:
    if separator is None:
        return "one document per file"
    return "one document per line" if separator == "\n" else f"documents end with {separator!r}"


def _describe_scripts(scripts: Mapping[str, int]) -> str:
    total = sum(scripts.values())
    shares = [
        f"{name} {number / total:.0%}"
        for name, number in sorted(scripts.items(), key=lambda item: -item[1])
        if number * 100 >= total
    ]
    return ", ".join(shares) or "none"


def _quote(value: object) -> str:
    """Return a value as YAML; plain names need no quotes."""
    if isinstance(value, list):
        return f"[{', '.join(map(_quote, value))}]"
    if isinstance(value, str) and value.isidentifier() and value.lower() not in _NOT_PLAIN:
        return value
    return json.dumps(value, ensure_ascii=True)


_NOT_PLAIN: Final = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})


def _comment(text: str) -> str:
    return "# " + "".join(c if c.isprintable() else " " for c in text)
