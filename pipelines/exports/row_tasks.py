"""Tasks of an export of rows, as workers execute them, without Beam.

Each output file is a separate task. A shuffle has two rounds: tasks write their rows to runs, then
each output file is gathered from its buckets (`shuffling`). A finished task has an entry in
`_work`, so it is not repeated; entries and runs are removed when the export is complete.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipelines.console import progress
from pipelines.dataset.reading import TokenDataset, TokenFile
from pipelines.exports.files import WORK
from pipelines.exports.records import GatherNote, RunNote, ScatterNote, Step, TaskNote, WriteNote
from pipelines.exports.row_files import RowFile, RowFormat
from pipelines.exports.sections import Section
from pipelines.exports.shuffling import RunFile, read_buckets
from pipelines.manifest.names import token_file_name
from pipelines.sorting.keys import order_keys
from pipelines.storage.directory import Directory
from pipelines.supervisor import current_task


@dataclass(frozen=True, kw_only=True)
class NumberedRows:
    """Rows with the numbers that determine their order in a shuffle.

    Attributes:
        table: The rows, with the shape's columns and `num_tokens`.
        numbers: uint64, one per row. Rows that stay together have the same number.
        begins: True for the first of such rows.
        documents: Number of documents of the split that begin in these rows.
    """

    table: pa.Table
    numbers: NDArray[np.uint64]
    begins: NDArray[np.bool_]
    documents: int


class Shape(Protocol):
    """Conversion of documents to rows. Small, since every worker receives it."""

    @property
    def row_format(self) -> RowFormat:
        """Return the row format."""

    @property
    def schema(self) -> pa.Schema:
        """Return the columns of the rows that `read` yields."""

    def count(self, dataset: TokenDataset, split: str) -> int:
        """Return the number of units of a split; tasks consist of whole units."""

    def section(self, dataset: TokenDataset, split: str, first: int, end: int) -> Section:
        """Return the section of the units [first, end)."""

    def read(self, dataset: TokenDataset, section: Section, first: int) -> Iterator[NumberedRows]:
        """Yield the rows of a section, which begins with unit `first`."""

    def complete(self, table: pa.Table) -> pa.Table:
        """Return rows with all columns of the output."""


@dataclass(frozen=True, kw_only=True)
class RowJob:
    """Description of an export for workers. Small, since every worker receives it.

    Attributes:
        dataset: The dataset, without its files. Tasks contain theirs.
        destination: Destination of the export.
        split: The split to export.
        shape: How documents become rows.
        metadata: Metadata for the footer of each file.
        seed: Seed of the shuffle, or None.
        bits: Number of leading bits of a key that identify its bucket.
        runs: The runs of the rows, once they are written.
    """

    dataset: TokenDataset
    destination: Directory
    split: str
    shape: Shape
    metadata: Mapping[str, str]
    seed: int | None = None
    bits: int = 0
    runs: tuple[RunNote, ...] = ()

    @property
    def work(self) -> Directory:
        """Return the directory of runs and of the entries of finished tasks."""
        return self.destination / WORK


@dataclass(frozen=True, kw_only=True)
class ReadTask:
    """Units of a split that become an output file or a run.

    Attributes:
        index, of: Number of the task, and of tasks.
        first: Number of the first unit.
        section: Position of the units.
    """

    index: int
    of: int
    first: int
    section: Section

    def to_bytes(self) -> bytes:
        """Return the descriptor that goes to a worker."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> ReadTask:
        """Return the task of a descriptor."""
        value = json.loads(data)
        section = value["section"]
        files = tuple(TokenFile(**file) for file in section["files"])
        return cls(**{**value, "section": Section(**{**section, "files": files})})


@dataclass(frozen=True, kw_only=True)
class GatherTask:
    """Consecutive documents or packed rows of the shuffled order that become an output file.

    Attributes:
        index, of: Number of the file, and of files.
        first_bucket, end_bucket: Buckets that contain them.
        skip: Number of documents or packed rows of the first bucket that precede them.
        count: Number of documents or packed rows of the file.
    """

    index: int
    of: int
    first_bucket: int
    end_bucket: int
    skip: int
    count: int

    def to_bytes(self) -> bytes:
        """Return the descriptor that goes to a worker."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> GatherTask:
        """Return the task of a descriptor."""
        return cls(**json.loads(data))


Task: TypeAlias = ReadTask | GatherTask


def do_task(job: RowJob, step: Step, descriptor: bytes) -> str:
    """Do a task of a step and write its entry last. Return the entry's name."""
    task: Task
    entry: TaskNote
    if step == "gather":
        task = GatherTask.from_bytes(descriptor)
        entry = gather_task(job, task)
    else:
        task = ReadTask.from_bytes(descriptor)
        entry = write_task(job, task) if step == "write" else scatter_task(job, task)
    name = entry_name(job, step, task)
    job.work.write_json(name, entry.to_json())
    return name


def entry_name(job: RowJob, step: Step, task: Task) -> str:
    """Return the file name of a task's entry, in `_work`."""
    return f"{job.split}-{step}-{task.index:05d}-of-{task.of:05d}.json"


def write_task(job: RowJob, task: ReadTask) -> WriteNote:
    """Write the rows of a task to its output file. Return the task's entry."""
    documents = 0
    with _output_file(job, task) as file:
        for rows in _read_rows(job, task):
            file.add(rows.table)
            documents += rows.documents
        file.finish()
    progress.advance(file.tokens)
    return WriteNote(documents=documents, file=file.entry)


def scatter_task(job: RowJob, task: ReadTask) -> ScatterNote:
    """Write the rows of a task to a run. Return the task's entry."""
    assert job.seed is not None
    documents = tokens = 0
    name = f"{job.split}-{task.index:05d}-of-{task.of:05d}.run"
    with job.work.write(name) as file:
        run = RunFile(file, name, job.bits)
        for rows in _read_rows(job, task):
            run.add(rows.table, order_keys(job.seed, job.split, rows.numbers), rows.begins)
            documents += rows.documents
            tokens += int(rows.table["num_tokens"].to_numpy().sum(dtype=np.int64))
        note, buckets = run.finish()
    progress.advance(tokens // 2)  # gathering reports the other half
    return ScatterNote(documents=documents, run=note, buckets=buckets)


def gather_task(job: RowJob, task: GatherTask) -> GatherNote:
    """Write the rows of an output file in the order of their keys. Return the task's entry."""
    skip, left = task.skip, task.count
    buckets = range(task.first_bucket, task.end_bucket)
    with _output_file(job, task) as file:
        for bucket in read_buckets(job.work, job.runs, job.shape.schema, buckets):
            begins = np.append(np.flatnonzero(bucket.begins), len(bucket.begins))
            end = min(skip + left, len(begins) - 1)
            for table in bucket.rows(int(begins[skip]), int(begins[end])):
                file.add(table)
            left -= end - skip
            skip = 0
        file.finish()
    progress.advance(file.tokens - file.tokens // 2)
    return GatherNote(file=file.entry)


def _read_rows(job: RowJob, task: ReadTask) -> Iterator[NumberedRows]:
    dataset = replace(job.dataset, files=task.section.files)
    with current_task(f"export of {job.split}, task {task.index} of {task.of}"):
        yield from job.shape.read(dataset, task.section, task.first)


def _output_file(job: RowJob, task: Task) -> RowFile:
    return RowFile(
        job.destination,
        token_file_name(job.split, task.index, task.of),
        job.shape.row_format,
        {**job.metadata, "bpe.file": json.dumps({"index": task.index, "of": task.of})},
        job.shape.complete,
    )
