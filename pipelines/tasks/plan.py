"""Cut files into ranges, and group ranges into tasks, by sizes and configuration alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias

import xxhash

from bpe_core.short_repr import short_repr
from pipelines.config import SourceConfig
from pipelines.errors import ConfigError, InputError
from pipelines.tasks.listing import InputFile

# Formats whose footer contains the positions of columns.
COLUMN_FORMATS: Final = ("parquet", "arrow")

# Estimated bytes of text in a stored byte, by compression and for formats that compress inside.
_TEXT_OF_A_BYTE: Final = {"gzip": 3, "zstd": 4, "bz2": 4, "xz": 4, "parquet": 2}

# A corpus has at least this many tasks, unless they would have less text than the minimum.
_LEAST_TASKS: Final = 64
_LEAST_TEXT: Final = 4 << 20

# The rules by which files are cut. An unfinished stage keeps the rule that it was begun with.
TaskRule: TypeAlias = Literal[1, 2]
BY_STORED_BYTES: Final = 1
BY_TEXT: Final = 2

# A file that cannot be split and has the text of more tasks than this keeps one worker busy alone.
LARGE_FILE_TASKS: Final = 4

_TEXT_OF_A_SHARD: Final = 64 << 20
_MOST_SHARDS: Final = 64

# With the pattern `none` every document is one pre-token, which stays in memory during counting.
LARGEST_WITHOUT_PATTERN: Final = 1 << 30


class FileFormat(Protocol):
    """Properties that determine, with the compression, if a file can be cut into ranges."""

    @property
    def format(self) -> str:
        """Return "text", "jsonl", "parquet" or "arrow"."""

    @property
    def separator(self) -> object:
        """Return the separator of text documents, or None if each file is one document."""


@short_repr
@dataclass(frozen=True, kw_only=True, slots=True)
class Range:
    """Documents that start in the bytes [start, end) of the file with index `file`."""

    file: int
    start: int
    end: int


@short_repr
@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """Consecutive ranges of one source, with the sum of their bytes as `size`."""

    index: int
    ranges: tuple[Range, ...]
    size: int


@short_repr
@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """All files and all tasks. An index of a file or a task is its position in these tuples."""

    files: tuple[InputFile, ...]
    tasks: tuple[Task, ...]

    def plan_id(self, rules_fingerprint: str) -> str:
        """Return 32 hexadecimal digits that identify files, ranges and the rules of a stage."""
        return plan_id(self.digest, rules_fingerprint)

    @property
    def digest(self) -> str:
        """Return 32 hexadecimal digits that identify files and ranges.

        They are the xxh3-128 of one line of JSON for each file (source, name, size, version tag)
        and for each task (its ranges). Files are named without their directory, so a corpus that is
        moved keeps its digest as long as its version tags do not change.
        """
        hasher = xxhash.xxh3_128()
        for file in self.files:
            hasher.update(_json_line(["file", *_file_identity(file)]))
        for task in self.tasks:
            ranges = [[part.file, part.start, part.end] for part in task.ranges]
            hasher.update(_json_line(["task", *ranges]))
        return str(hasher.hexdigest())

    def task_hash(self, task: Task) -> int:
        """Return a number below 2^128 that identifies the files and ranges of a task.

        Sums of these numbers modulo 2^128 show whether every task was done exactly once.
        """
        ranges = [
            [*_file_identity(self.files[part.file]), part.start, part.end] for part in task.ranges
        ]
        return int(xxhash.xxh3_128_intdigest(_json_line(ranges)))


def plan_id(digest: str, rules_fingerprint: str) -> str:
    """Return the id of a plan (`Plan.plan_id`) by its digest."""
    line = _json_line(["plan", rules_fingerprint, digest])
    return str(xxhash.xxh3_128_hexdigest(line))


def _file_identity(file: InputFile) -> list[str | int | None]:
    limit = [] if file.stop is None else [file.stop]
    return [file.source_name, file.name, file.size, file.version_tag, *limit]


def _json_line(values: list[Any]) -> bytes:
    return json.dumps(values, separators=(",", ":")).encode() + b"\n"


def is_splittable(compression: str | None, file_format: FileFormat) -> bool:
    """Return True if a file can be cut into ranges that are read independently.

    Parquet and Arrow files can: their footer shows which rows belong to a range.
    """
    if file_format.format in COLUMN_FORMATS:
        return True
    is_cut = file_format.format == "jsonl" or file_format.separator is not None
    return compression is None and is_cut


def text_per_byte(file: InputFile, file_format: FileFormat) -> int:
    """Return how many bytes of text a stored byte of a file is estimated to have."""
    return _TEXT_OF_A_BYTE.get(file.compression or file_format.format, 1)


def estimate_text(files: Sequence[InputFile], sources: Sequence[SourceConfig]) -> int:
    """Return the estimated bytes of text that are read of files, from their sizes alone."""
    return sum(planned_size(file) * text_per_byte(file, sources[file.source]) for file in files)


def text_of_a_task(source: SourceConfig, text: int) -> int:
    """Return the bytes of text of a task, for an estimated number of bytes of the whole corpus.

    It is a 64th of the corpus, but at least 4 MiB, and at most `range_bytes` of the source.
    """
    return min(source.range_bytes, max(_LEAST_TEXT, text // _LEAST_TASKS))


def find_unsplittable(plan: Plan, sources: Sequence[SourceConfig]) -> list[InputFile]:
    """Return the files that cannot be split and have the text of more than a few tasks."""
    text = estimate_text(plan.files, sources)
    return [
        file
        for file in plan.files
        if not is_splittable(file.compression, sources[file.source])
        and estimate_text([file], sources)
        > LARGE_FILE_TASKS * text_of_a_task(sources[file.source], text)
    ]


def choose_shards(text: int) -> int:
    """Return the number of shards of counts: one for each 64 MiB of text, from 1 to 64."""
    return min(max(-(-text // _TEXT_OF_A_SHARD), 1), _MOST_SHARDS)


def plan_tasks(
    files: Sequence[InputFile],
    sources: Sequence[SourceConfig],
    rule: TaskRule = BY_TEXT,
    *,
    by_file: bool = False,
) -> Plan:
    """Cut the files into ranges, and group these into tasks.

    Ranges begin at multiples of `text_of_a_task`, divided by the bytes of text that a stored byte
    has. A compressed file, or one that is a single document (no separator), is one range; an empty
    file has none. Consecutive ranges of one source are a task as long as they have together at most
    `text_of_a_task`.

    Args:
        files: The files in the order of the sources, those of a source sorted.
        sources: The configured sources. `InputFile.source` is an index into them.
        rule: `BY_TEXT`, or `BY_STORED_BYTES` for the tasks of earlier versions: of `range_bytes`
            stored bytes.
        by_file: No task has ranges of several files.

    Example: with `range_bytes` 100, files of 250, 30 and 20 bytes make the ranges
    [0, 100), [100, 200), [200, 250), [0, 30), [0, 20) and three tasks of 100 bytes.
    """
    text = estimate_text(files, sources)
    tasks: list[Task] = []
    pending: list[Range] = []
    pending_text = 0

    def finish_task() -> None:
        nonlocal pending_text
        if pending:
            size = sum(part.end - part.start for part in pending)
            tasks.append(Task(index=len(tasks), ranges=tuple(pending), size=size))
        pending.clear()
        pending_text = 0

    previous_source = None
    for number, file in enumerate(files):
        source = sources[file.source]
        _check_columns(file, source)
        if rule == BY_STORED_BYTES:
            most, each = source.range_bytes, 1
        else:
            most, each = text_of_a_task(source, text), text_per_byte(file, source)
        splittable = is_splittable(file.compression, source)
        step = max(most // each if splittable else file.size, 1)
        size = planned_size(file)
        if by_file or file.source != previous_source:
            finish_task()
            previous_source = file.source
        # An empty file has nothing to read, but the reader of a column format must reject it.
        least = 1 if source.format in COLUMN_FORMATS else 0
        for start in range(0, max(size, least), step):
            end = min(start + step, size)
            if pending_text + (end - start) * each > most:
                finish_task()
            pending.append(Range(file=number, start=start, end=end))
            pending_text += (end - start) * each
    finish_task()
    return Plan(files=tuple(files), tasks=tuple(tasks))


def planned_size(file: InputFile) -> int:
    """Return the stored bytes of a file in which the documents to read start."""
    return file.size if file.end is None else file.end


def check_size_without_pattern(size: int) -> None:
    """Check that a corpus is small enough to be counted with the pattern `none`.

    Args:
        size: Bytes of input.

    Raises:
        ConfigError: It is larger than `LARGEST_WITHOUT_PATTERN`.
    """
    if size <= LARGEST_WITHOUT_PATTERN:
        return
    raise ConfigError(
        "The corpus is too large for the pattern none, with which every document is one pre-token.",
        expected=f"at most {LARGEST_WITHOUT_PATTERN:,} bytes of input files",
        found=f"{size:,} bytes",
        where="tokenizer.pattern",
        hint="Choose a pattern that splits text, such as gpt2, or train on some of the files "
        "and encode all with tokenizer.path.",
    )


def _check_columns(file: InputFile, source: SourceConfig) -> None:
    """Check that a Parquet or Arrow file is neither empty nor compressed as a whole.

    If bad files are allowed, an empty one is left to its reader.
    """
    if source.format not in COLUMN_FORMATS:
        return
    if not file.size and not source.max_bad_files:
        raise InputError(
            f"An input file is empty, which is not valid for {source.format}.",
            expected=f"a {source.format} file",
            found="0 bytes",
            where=file.url,
            hint="Get the file again, or remove it from input.files.",
        )
    if file.compression is not None:
        raise InputError(
            f"A {source.format} file must not be compressed as a whole.",
            expected=f"a {source.format} file, which compresses its columns internally, so that "
            "rows "
            "can be read anywhere in it",
            found=f"{file.compression}, by its extension",
            where=file.url,
            hint="Decompress the file. If it is not compressed in spite of its name, set "
            "input.compression: none.",
        )
