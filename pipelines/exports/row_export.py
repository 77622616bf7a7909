"""Rows for training, written by as many workers as there are.

Each output file is a task of its own: which ids or documents it holds follows from the manifest of
the token files. With a seed for a shuffle there are two pipelines: tasks write their rows to runs,
then each output file is gathered from its buckets (`shuffling.py`). A task that is finished has an
entry in `_work`, and is not done again; the entries and the runs go when the export is complete.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from pipelines.console import progress
from pipelines.dataset.names import token_file_name
from pipelines.dataset.reading import TokenDataset, TokenFile
from pipelines.exports.export import WORK, ExportFiles, Written
from pipelines.exports.row_files import RowFile, RowFormat
from pipelines.exports.sections import Section
from pipelines.exports.shuffling import Run, RunFile, bucket_bits, order_keys, read_buckets
from pipelines.storage.directory import Directory
from pipelines.supervisor import current_task

_FORMAT_VERSION: Final = "1"
# Ids of an output file, unless a number of files was asked for, and of a task that writes a run.
_FILE_BYTES: Final = 256 << 20
_RUN_BYTES: Final = 256 << 20


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


def write_rows(
    dataset: TokenDataset,
    split: str,
    files: ExportFiles,
    options: Mapping[str, Any],
    shape: Shape,
) -> Written:
    """Writes the files of a split.

    Args:
        dataset: what is exported.
        split: of it.
        files: where to, and what runs the pipelines.
        options: of the export, `files` and `shuffle_seed` among them.
        shape: of the rows.

    Raises:
        InputError: token files are missing, damaged, or not what their manifest says.
        OutputError: the destination can't be written, or a run is damaged.
    """
    job = RowJob(
        dataset=replace(dataset, manifest={}, files=()),
        destination=files.directory,
        split=split,
        shape=shape,
        metadata=_metadata(dataset, split, options),
        seed=options["shuffle_seed"],
    )
    number = _number_of_files(dataset, split, options["files"])
    if job.seed is None:
        tasks = _read_tasks(dataset, split, shape, number)
        entries = _done(files, job, "write", tasks)
        documents = sum(entry["documents"] for entry in entries)
    else:
        size = dataset.num_tokens(split) * dataset.dtype.itemsize
        job = replace(job, bits=bucket_bits(size))
        tasks = _read_tasks(dataset, split, shape, -(-size // _RUN_BYTES))
        scattered = _done(files, job, "scatter", tasks)
        documents = sum(entry["documents"] for entry in scattered)
        job = replace(job, runs=tuple(Run(**entry["run"]) for entry in scattered))
        buckets = np.array([entry["buckets"] for entry in scattered], np.int64).sum(axis=0)
        entries = _done(files, job, "gather", _gather_tasks(buckets, number))
    written = [entry["file"] for entry in entries]
    files.entries += written
    return Written(
        documents=documents,
        tokens=sum(file["tokens"] for file in written),
        facts={"rows": sum(file["rows"] for file in written), "files": len(written)},
    )


def _metadata(dataset: TokenDataset, split: str, options: Mapping[str, Any]) -> dict[str, str]:
    export = {"dataset": dataset.fingerprint, "split": split, "options": dict(options)}
    return {
        "bpe.format": _FORMAT_VERSION,
        "bpe.configuration": dataset.manifest["configuration_fingerprint"],
        "bpe.tokenizer": dataset.manifest["configuration"]["tokenizer"],
        "bpe.export": json.dumps(export, sort_keys=True),
    }


def _number_of_files(dataset: TokenDataset, split: str, asked: int | None) -> int:
    """As many for training as asked for; those for validation are about as large."""
    tokens, train = dataset.num_tokens(split), dataset.num_tokens("train")
    if asked is None:
        return max(1, -(-tokens * dataset.dtype.itemsize // _FILE_BYTES))
    return asked if split == "train" or not train else max(1, round(asked * tokens / train))


def _read_tasks(dataset: TokenDataset, split: str, shape: Shape, number: int) -> list[ReadTask]:
    units = shape.count(dataset, split)
    number = max(1, min(number, units))
    bounds = [units * i // number for i in range(number + 1)]
    return [
        ReadTask(
            index=i,
            of=number,
            first=bounds[i],
            section=shape.section(dataset, split, bounds[i], bounds[i + 1]),
        )
        for i in range(number)
    ]


def _gather_tasks(buckets: NDArray[np.int64], number: int) -> list[GatherTask]:
    """Files of equally many documents or packed rows, and the buckets that these are in."""
    ends = np.cumsum(buckets)
    units = int(ends[-1])
    number = max(1, min(number, units))
    bounds = [units * i // number for i in range(number + 1)]
    tasks = []
    for i in range(number):
        first, end = bounds[i], bounds[i + 1]
        first_bucket = int(np.searchsorted(ends, first, "right")) if units else 0
        tasks.append(
            GatherTask(
                index=i,
                of=number,
                first_bucket=first_bucket,
                end_bucket=int(np.searchsorted(ends, end, "left")) + 1,
                skip=first - int(ends[first_bucket] - buckets[first_bucket]),
                count=end - first,
            )
        )
    return tasks


# --- tasks on workers --------------------------------------------------------------------------


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


# --- pipelines ---------------------------------------------------------------------------------


def _done(
    files: ExportFiles, job: RowJob, step: str, tasks: Sequence[Task]
) -> list[dict[str, Any]]:
    """The entries of the tasks, in order; does those that are not done yet."""
    finished = {
        index: entry
        for index, entry in _finished(job, step, tasks).items()
        if step == "scatter" or _is_whole(job.destination, entry["file"])
    }
    left = [task for task in tasks if task.index not in finished]
    if left:
        job.work.create()
        _run_pipeline(files, job, step, left)
        finished = _finished(job, step, tasks)
    return [finished[task.index] for task in tasks]


def _run_pipeline(files: ExportFiles, job: RowJob, step: str, tasks: Sequence[Task]) -> None:
    from pipelines import runners
    from pipelines.exports.transforms import DoTasks

    places = (job.dataset.output.url, job.destination.url)
    with runners.pipeline(files.beam, files.beam_args, places) as pipeline:
        pipeline | f"Tasks of {step}" >> DoTasks(job=job, step=step, tasks=tasks)


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


def _finished(job: RowJob, step: str, tasks: Sequence[Task]) -> dict[int, dict[str, Any]]:
    """The entries of the tasks that are done, by index."""
    noted = job.work.sizes()
    present = noted if step == "scatter" else job.destination.sizes()
    likely = [task for task in tasks if entry_name(job, step, task) in noted]
    entries = job.work.read_json_files([entry_name(job, step, task) for task in likely])
    finished = {}
    for task, entry in zip(likely, entries, strict=True):
        if entry is not None:
            made = entry["run"] if step == "scatter" else entry["file"]
            if present.get(made["name"]) == made["bytes"]:
                finished[task.index] = entry
    return finished


def _is_whole(directory: Directory, file: Mapping[str, Any]) -> bool:
    """Whether a file that an interrupted export left has its checksum.

    Elsewhere than on a local disk that would take as long as making it: there its size must do.
    Runs have checksums that are compared as they are read.
    """
    if not directory.is_local:
        return True
    with directory.local_path(file["name"]).open("rb") as data:
        found: str = hashlib.file_digest(data, xxhash.xxh3_128).hexdigest()
    return found == str(file["xxh3_128"])
