"""Proposal of a configuration for files, from their names and their first records."""

from __future__ import annotations

import glob
import json
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.config.values import MAX_EXPANSION, PATTERN_NAMES, escape, is_url
from pipelines.console.units import format_bytes
from pipelines.errors import InputError, to_one_line
from pipelines.manifest.names import MANIFEST
from pipelines.probing.contents import (
    HEAD_BYTES,
    NOT_TEXT,
    Content,
    looks_like_json_lines,
    recognize,
)
from pipelines.readers.arrow_footer import (
    ARROW_FILE_MAGIC,
    expanded_bytes,
    expanded_bytes_of_next,
)
from pipelines.readers.page_guard import PageGuard
from pipelines.readers.plain_files import list_named, read_start
from pipelines.readers.streams import InputHandle, open_handle
from pipelines.storage.expansion import check_expansion
from pipelines.tasks.listing import (
    COMPRESSION_OF_EXTENSION,
    InputFile,
    compression_of,
)

_SAMPLED_FILES: Final = 3
_SAMPLE_BYTES: Final = 256 << 10
_RECORDS: Final = 64
_MOST_CHARS: Final = 16 << 20
_DOCUMENTS: Final = 3
_DEPTH: Final = 3
_LONGEST_LINE: Final = 100
_LISTED_FILES: Final = 20
# Value of `exclude` in a source of files without an extension.
_WITH_EXTENSION: Final = "**/*.*"
# Names of fields, the most usual first.
_TEXT_NAMES: Final = ("text", "content", "body", "raw_content", "document", "code", "article")
_ID_NAMES: Final = ("id", "_id", "uuid", "doc_id", "document_id", "url")
_SEPARATORS: Final = ("<|endoftext|>", "<|end_of_text|>", "</s>", "\x1e", "\x0c")
# Those of them that other text contains too: HTML, source code.
_UNCERTAIN: Final = frozenset({"</s>", "\x1e", "\x0c"})
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
        exclude: Value of `exclude`.
        notes: What a user should know about the files.
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
    exclude: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def settings(self) -> tuple[object, ...]:
        """Return the values that files of one source share."""
        values = self.form, self.compression, self.text_field, self.id_field, self.separator
        return *values, _WITH_EXTENSION in self.exclude

    def merged_with(self, other: Proposal) -> Proposal:
        """Return the proposal for the files of both."""
        return replace(
            self,
            patterns=(*self.patterns, *other.patterns),
            files=self.files + other.files,
            bytes=self.bytes + other.bytes,
            documents=(*self.documents, *other.documents)[:_DOCUMENTS],
            scripts=Counter(self.scripts) + Counter(other.scripts),
            exclude=tuple(dict.fromkeys((*self.exclude, *other.exclude))),
            notes=(*self.notes, *other.notes),
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


def propose(
    arguments: Sequence[str], config: Path = Path("build.yaml")
) -> tuple[list[Proposal], list[str]]:
    """Return a proposal for each source, and a line for each file or pattern left out.

    Args:
        arguments: Files, folders, globs and URLs.
        config: The configuration to write, which is no input.

    Raises:
        InputError: Nothing can be read.
    """
    by_settings: dict[tuple[object, ...], Proposal] = {}
    skipped: list[str] = []
    for found in _find_files(arguments, config):
        skipped += found.left_out
        files = [file for file in list_named(found.pattern, found.exclude) if file.size]
        try:
            proposal = _propose(found, files)
        except InputError as error:
            skipped.append(f"{found.pattern}: {to_one_line(error)}")
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


def write_yaml(
    proposals: Sequence[Proposal], config: str, output: str, tokenizer: Sequence[str]
) -> str:
    """Return a commented configuration.

    Args:
        proposals: A proposal for each source.
        config: Name of the file that will contain it.
        output: Value of `output`.
        tokenizer: Lines of the sections `tokenizer` and `encode`: those of `training_yaml` or of
            `encoding_yaml`.
    """
    sources = [_source_yaml(*one) for one in zip(proposals, _names(proposals), strict=True)]
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
        *tokenizer,
        "  validation_fraction: 0.0 # share of the documents for validation-*.parquet",
        "  max_reject_fraction: 0.0 # share of the documents that may be rejected",
        "",
    ]
    return "\n".join(lines)


def training_yaml(proposals: Sequence[Proposal], vocabulary: str) -> list[str]:
    """Return the lines of a configuration that train a tokenizer.

    Args:
        proposals: A proposal for each source.
        vocabulary: Value of `tokenizer.vocab_size`.
    """
    special = "<|endoftext|>"
    scripts = sum((Counter(one.scripts) for one in proposals), Counter[str]())
    patterns = [name for name in PATTERN_NAMES if name != choose_pattern(scripts)]
    return [
        "tokenizer:",
        f"  vocab_size: {vocabulary} # ids, special tokens included; more for a larger corpus",
        f"  # Scripts: {_describe_scripts(scripts)}.",
        f"  pattern: {choose_pattern(scripts)} # or {', '.join(patterns)}, or a regex",
        f"  special_tokens: [{_quote(special)}]",
        "",
        "encode:",
        f"  append: {_quote(special)} # ends each document; null: nothing",
    ]


def encoding_yaml(path: str, affixes: Mapping[str, str | None]) -> list[str]:
    """Return the lines of a configuration that encode with a finished tokenizer.

    Args:
        path: Value of `tokenizer.path`.
        affixes: Values of `encode.prepend` and `encode.append`.
    """
    return [
        "tokenizer:",
        f"  path: {_quote(path)} # encodes the text: nothing is counted or trained",
        "",
        "encode:",
        f"  prepend: {_quote(affixes['prepend'])} # begins each document; null: nothing",
        f"  append: {_quote(affixes['append'])} # ends each document; null: nothing",
    ]


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


@dataclass(frozen=True, kw_only=True)
class _Found:
    """Files to propose a source for.

    Attributes:
        pattern: Path, glob or URL.
        exclude: Globs of files below the pattern that do not belong to the input.
        left_out: A line for each of them that a user should know of.
    """

    pattern: str
    exclude: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def _find_files(arguments: Sequence[str], config: Path) -> Iterator[_Found]:
    """Yield patterns for the arguments; for files of a folder with one extension, a glob of them.

    A shell may have replaced a glob by thousands of names.
    """
    named: dict[tuple[str, str], list[str]] = {}
    for argument in arguments:
        if is_url(argument):
            yield _Found(pattern=argument)
        elif Path(argument).is_dir():
            yield from _find_in_folder(argument, config)
        elif Path(argument).is_file():
            folder, name = os.path.split(argument)
            named.setdefault((folder, _extension(name)), []).append(argument)
        else:
            yield _Found(pattern=argument)
    for (folder, extension), files in named.items():
        alike = set(Path(folder).glob(f"*{glob.escape(extension)}"))
        if len(files) > 1 and extension and alike == set(map(Path, files)):
            yield _Found(pattern=str(Path(escape(folder)) / f"*{extension}"))
        else:
            yield from (_Found(pattern=escape(file)) for file in files)


def _find_in_folder(folder: str, config: Path) -> Iterator[_Found]:
    """Yield patterns for the files of a folder by their extensions.

    Hidden files, outputs of builds, broken links and the configuration are excluded.
    """
    files: dict[str, list[str]] = {}
    excluded: dict[str, set[str]] = {}
    broken: dict[str, list[str]] = {}
    own = os.path.relpath(config.absolute(), Path(folder).absolute())
    if not own.startswith(".."):
        excluded[_extension(config.name)] = {escape(own)}
    inner: list[str] = []  # folders that are left out
    for root, folders, names in os.walk(folder):
        below = os.path.relpath(root, folder)
        top = next((one for one in inner if f"{below}/".startswith(f"{one}/")), None)
        if top is None:
            inner += (
                os.path.normpath(f"{below}/{name}")
                for name in folders
                if name.startswith(".") or Path(root, name, "tokens", MANIFEST).exists()
            )
        for name in names:
            path, extension = os.path.normpath(f"{below}/{name}"), _extension(name)
            if top is not None:
                excluded.setdefault(extension, set()).add(f"{escape(top)}/**")
            elif name.startswith(".") or not Path(root, name).exists():
                excluded.setdefault(extension, set()).add(escape(path))
                if not name.startswith("."):
                    broken.setdefault(extension, []).append(f"{Path(root, name)}: a broken link")
            elif path != own:
                files.setdefault(extension, []).append(path)
    for extension, names in sorted(files.items()):
        if not extension and len(names) <= _LISTED_FILES:
            yield from (_Found(pattern=escape(str(Path(folder) / name))) for name in sorted(names))
            continue
        exclude = sorted(excluded.get(extension, ()))
        unreadable: list[str] = []
        if not extension:
            unreadable = list(_find_unreadable(folder, sorted(names)))
            exclude = [_WITH_EXTENSION, *exclude, *map(escape, unreadable)]
        yield _Found(
            pattern=str(Path(escape(folder)) / "**" / f"*{extension}"),
            exclude=tuple(exclude),
            left_out=(
                *sorted(broken.get(extension, ())),
                *(f"{Path(folder) / name}: It is not text" for name in unreadable),
            ),
        )


def _find_unreadable(folder: str, names: Sequence[str]) -> Iterator[str]:
    """Yield the files that do not begin with text, or cannot be read."""
    for name in names:
        try:
            with Path(folder, name).open("rb") as file:
                head = file.read(HEAD_BYTES)
            if recognize(head) is None:
                _decode(head, name)
                continue
        except (OSError, InputError):
            pass
        yield name


def _extension(name: str) -> str:
    parts = name.split(".")
    length = 2 if len(parts) > 2 and parts[-1].lower() in COMPRESSION_OF_EXTENSION else 1
    return "".join(f".{part}" for part in parts[1:][-length:])


# --- contents


def _propose(found: _Found, files: Sequence[InputFile]) -> Proposal:
    """Return the proposal for some files.

    Raises:
        InputError: They cannot be read.
    """
    if not files:
        raise InputError("The files are empty.", where=found.pattern)
    step = max(1, len(files) // _SAMPLED_FILES)
    sampled = files[::step][:_SAMPLED_FILES]
    read = [_read(file) for file in sampled]
    first = read[0]
    proposal = Proposal(
        patterns=(found.pattern,),
        exclude=found.exclude,
        notes=tuple(filter(None, (_note_on_text(found.pattern, first),))),
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
    head = read_start(stored, HEAD_BYTES)
    content = recognize(head)
    if content is not None and content.format is not None:
        return _Read(form=content.format, records=tuple(_read_columns(stored, content.format)))
    if content is not None and content.compression is None:
        raise InputError(f"It is {content.name}.{_hint(content)}", where=file.url)
    compression = None if content is None else content.compression
    text = read_start(replace(file, compression=compression), _SAMPLE_BYTES)
    inner = recognize(text[:HEAD_BYTES])
    if inner is not None:
        raise InputError(f"It contains {inner.name}.{_hint(inner)}", where=file.url)
    decoded = _decode(text, file.url)
    stated = None if compression == compression_of(file.name) else compression or "none"
    if looks_like_json_lines(text) or (text.startswith(b"{") and text.count(b"\n") == 1):
        return _Read(form="jsonl", compression=stated, records=tuple(_parse(text)))
    return _Read(form="text", compression=stated, text=decoded)


def _hint(content: Content) -> str:
    return "" if content.hint == NOT_TEXT else f" {content.hint}"


def _note_on_text(pattern: str, read: _Read) -> str | None:
    """Return what a user should know of text with a structure that is not read."""
    if read.form != "text":
        return None
    if _extension(pattern).startswith((".csv", ".tsv")):
        return (
            f"{pattern}: CSV is read as plain text. For the text of a column, write JSON lines or "
            "Parquet first."
        )
    if re.match(r"\s*\[\s*\{", read.text):
        return (
            f"{pattern}: An array of JSON is read as plain text. For a field of its records, write "
            "one per line: jq -c '.[]' OLD > NEW."
        )
    return None


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
    """Return the first records.

    Raises:
        InputError: The file is damaged, or expands too much.
    """
    try:
        with open_handle(file, {}) as handle:
            rows = _first_rows(file, form, handle)
            return [] if rows is None else _records_of(rows)
    except InputError:
        raise
    except Exception as error:  # errors of any type, for meaningless bytes
        raise InputError(f"It is damaged: {to_one_line(error)}", where=file.url) from error


def _first_rows(file: InputFile, form: str, handle: InputHandle) -> pa.RecordBatch | None:
    if form == "parquet":
        guard = PageGuard(handle, file, MAX_EXPANSION)
        parquet = pq.ParquetFile(guard, arrow_extensions_enabled=False)
        return next(guard.read_rows(parquet.iter_batches, _RECORDS), None)
    is_file = handle.read(len(ARROW_FILE_MAGIC)) == ARROW_FILE_MAGIC
    handle.seek(0)
    batches: Iterator[pa.RecordBatch]
    claims: Iterator[int]
    if is_file:
        reader = pa.ipc.open_file(handle)
        batches = map(reader.get_batch, range(reader.num_record_batches))
        claims = expanded_bytes(handle, file.size, 0)
    else:
        batches = iter(pa.ipc.open_stream(handle))
        claims = iter(lambda: expanded_bytes_of_next(handle), None)
    for claimed in claims:
        check_expansion(file.url, file.size, claimed, MAX_EXPANSION, "buffers")
        batch = next(batches, None)
        if batch is None or batch.num_rows:
            return batch
    return None


def _records_of(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the first rows as records, fewer if they are long."""
    rows.validate(full=True)
    records: list[dict[str, Any]] = []
    num_chars = 0
    for number in range(min(_RECORDS, rows.num_rows)):
        records += rows.slice(number, 1).to_pylist()
        num_chars += sum(len(text) for _, text in _leaves(records[-1]))
        if num_chars > _MOST_CHARS:
            break
    return records


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
        found = [separator in text for text in texts]
        if all(found) if separator in _UNCERTAIN else any(found):
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


def _names(proposals: Sequence[Proposal]) -> list[str | None]:
    """Return a name for each source: its only extension, or the form of its files."""
    if len(proposals) == 1:
        return [None]
    names: list[str | None] = []
    for proposal in proposals:
        extensions = {_extension(pattern).lstrip(".") for pattern in proposal.patterns}
        name = extensions.pop() if len(extensions) == 1 else ""
        if proposal.form != "text" or not name.isidentifier():
            name = "without_extension" if _WITH_EXTENSION in proposal.exclude else proposal.form
        alike = sum(1 for other in names if re.fullmatch(rf"{re.escape(name)}\d*", other or ""))
        names.append(name + (str(alike + 1) if alike else ""))
    return names


def _source_yaml(proposal: Proposal, name: str | None) -> Iterator[str]:
    values: list[tuple[str, object, str]] = []
    if name is not None:
        values.append(("name", name, ""))
    values.append(("files", list(proposal.patterns), proposal.describe()))
    if proposal.exclude:
        values.append(("exclude", list(proposal.exclude), "globs of names below the patterns"))
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
        remark = f" {_comment(comment)}" if comment else ""
        line = f"{indent}{dash}{key}: {_quote(value)}"
        if isinstance(value, list) and len(line) > _LONGEST_LINE:
            yield f"{indent}{dash}{key}:{remark}"
            yield from (f"{indent}    - {_quote(one)}" for one in value)
        else:
            yield line + remark


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
