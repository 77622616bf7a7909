"""Rows for training, written by as many workers as there are.

Each output file is a task of its own: which ids or documents it holds follows from the manifest of
the token files. With a seed for a shuffle there are two pipelines: tasks write their rows to runs,
then each output file is gathered from its buckets (`shuffling.py`). A task that is finished has an
entry in `_work`, and is not done again; the entries and the runs go when the export is complete.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipelines.console import progress
from pipelines.dataset.reading import TokenDataset, TokenFile
from pipelines.exports.export import WORK
from pipelines.exports.row_files import RowFile, RowFormat
from pipelines.exports.sections import Section
from pipelines.exports.shuffling import Run, RunFile, read_buckets
from pipelines.manifest.names import token_file_name
from pipelines.sorting.keys import order_keys
from pipelines.storage.directory import Directory
from pipelines.supervisor import current_task


@dataclass(frozen=True, kw_only=True)
class NumberedRows:
    """Rows with what their order in a shuffle follows from.

    Attributes:
        table: of the shape's columns, and `num_tokens`.
        numbers: uint64, one a row; rows that stay together have one number.
        begins: whether such rows begin with the row.
        documents: number of documents of the split that begin in these rows.
    """

    table: pa.Table
    numbers: NDArray[np.uint64]
    begins: NDArray[np.bool_]
    documents: int


class Shape(Protocol):
    """What rows are made of documents. It goes to workers, so it is small."""

    @property
    def row_format(self) -> RowFormat:
        """How the rows are written."""

    @property
    def schema(self) -> pa.Schema:
        """Of the tables that `read` gives."""

    def count(self, dataset: TokenDataset, split: str) -> int:
        """The number of units: what tasks are cut into."""

    def section(self, dataset: TokenDataset, split: str, first: int, end: int) -> Section:
        """Where the units [first, end) are."""

    def read(self, dataset: TokenDataset, section: Section, first: int) -> Iterator[NumberedRows]:
        """The rows of a section, which begins with unit `first`."""

    def complete(self, table: pa.Table) -> pa.Table:
        """Rows with the columns that are written."""


@dataclass(frozen=True, kw_only=True)
class RowJob:
    """All that workers need to know; small, and the same for all of them.

    Attributes:
        dataset: with the files of a task put in.
        destination: of the export.
        split: that is exported.
        shape: of the rows.
        metadata: for the footer of each file.
        seed: of the shuffle; None: there is none.
        bits: of a key that name its bucket.
        runs: that the rows are in, once they are written.
    """

    dataset: TokenDataset
    destination: Directory
    split: str
    shape: Shape
    metadata: Mapping[str, str]
    seed: int | None = None
    bits: int = 0
    runs: tuple[Run, ...] = ()

    @property
    def work(self) -> Directory:
        """Where runs are, and the entries of finished tasks."""
        return self.destination / WORK


@dataclass(frozen=True, kw_only=True)
class ReadTask:
    """Units of a split that become an output file, or a run.

    Attributes:
        index, of: number of the task, and of tasks.
        first: number of the first unit.
        section: where the units are.
    """

    index: int
    of: int
    first: int
    section: Section

    def to_bytes(self) -> bytes:
        """The descriptor that goes to a worker."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> ReadTask:
        """The task of a descriptor."""
        value = json.loads(data)
        section = value["section"]
        files = tuple(TokenFile(**file) for file in section["files"])
        return cls(**{**value, "section": Section(**{**section, "files": files})})


@dataclass(frozen=True, kw_only=True)
class GatherTask:
    """Documents or packed rows that follow each other in the shuffled order: an output file.

    Attributes:
        index, of: number of the file, and of files.
        first_bucket, end_bucket: the buckets that hold them.
        skip: of them in the first bucket, that come before.
        count: of them in all.
    """

    index: int
    of: int
    first_bucket: int
    end_bucket: int
    skip: int
    count: int

    def to_bytes(self) -> bytes:
        """The descriptor that goes to a worker."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> GatherTask:
        """The task of a descriptor."""
        return cls(**json.loads(data))


Task = ReadTask | GatherTask


def write_task(job: RowJob, task: ReadTask) -> dict[str, Any]:
    """Writes the rows of a task to its output file; gives the task's entry."""
    documents = 0
    with _output_file(job, task) as file:
        for rows in _read(job, task):
            file.add(rows.table)
            documents += rows.documents
        file.finish()
    progress.advance(file.tokens)
    return {"documents": documents, "file": file.entry}


def scatter_task(job: RowJob, task: ReadTask) -> dict[str, Any]:
    """Writes the rows of a task to a run; gives the task's entry."""
    assert job.seed is not None
    documents = tokens = 0
    name = f"{job.split}-{task.index:05d}-of-{task.of:05d}.run"
    with RunFile(job.work, name, job.bits) as run:
        for rows in _read(job, task):
            run.add(rows.table, order_keys(job.seed, job.split, rows.numbers), rows.begins)
            documents += rows.documents
            tokens += int(rows.table["num_tokens"].to_numpy().sum(dtype=np.int64))
        content = run.finish()
    progress.advance(tokens // 2)  # the other half when they are gathered
    return {"documents": documents, **content}


def gather_task(job: RowJob, task: GatherTask) -> dict[str, Any]:
    """Writes the rows of an output file in the order of their keys; gives the task's entry."""
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
    return {"file": file.entry}


def _read(job: RowJob, task: ReadTask) -> Iterator[NumberedRows]:
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


def do_task(job: RowJob, step: str, descriptor: bytes) -> str:
    """Does a task and writes its entry, last; gives the entry's name.

    Args:
        job: what is exported.
        step: "write": rows to an output file; "scatter": rows to a run; "gather": runs to an
            output file.
        descriptor: of the task.
    """
    task: Task
    if step == "gather":
        task = GatherTask.from_bytes(descriptor)
        entry = gather_task(job, task)
    else:
        task = ReadTask.from_bytes(descriptor)
        entry = write_task(job, task) if step == "write" else scatter_task(job, task)
    name = entry_name(job, step, task)
    job.work.write_json(name, entry)
    return name


def entry_name(job: RowJob, step: str, task: Task) -> str:
    """The file of a task's entry, in `_work`."""
    return f"{job.split}-{step}-{task.index:05d}-of-{task.of:05d}.json"
