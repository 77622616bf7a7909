"""Exports of rows as Beam pipelines: tasks dealt to workers, plain functions underneath."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import apache_beam as beam
import numpy as np
import xxhash
from numpy.typing import NDArray
from pydantic import BaseModel

from pipelines import runners
from pipelines.beam.dofn import Work
from pipelines.dataset.reading import TokenDataset
from pipelines.exports.export import ExportFiles, Written
from pipelines.exports.row_export import (
    GatherTask,
    ReadTask,
    RowJob,
    Shape,
    Task,
    do_task,
    entry_name,
)
from pipelines.exports.shuffling import Run, bucket_bits
from pipelines.manifest.models import GatherEntry, ScatterEntry, WriteEntry
from pipelines.runners import FAILURE
from pipelines.storage.directory import Directory

_FORMAT_VERSION: Final = "1"

# Ids of an output file, unless a number of files was asked for, and of a task that writes a run.
_FILE_BYTES: Final = 256 << 20
_RUN_BYTES: Final = 256 << 20


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
    from pipelines.exports.row_pipeline import DoTasks

    places = (job.dataset.output.url, job.destination.url)
    with runners.pipeline(files.beam, files.beam_args, places) as pipeline:
        pipeline | f"Tasks of {step}" >> DoTasks(job=job, step=step, tasks=tasks)


_ENTRY_FORMS: Final[Mapping[str, type[BaseModel]]] = {
    "write": WriteEntry,
    "scatter": ScatterEntry,
    "gather": GatherEntry,
}


def _finished(job: RowJob, step: str, tasks: Sequence[Task]) -> dict[int, dict[str, Any]]:
    """The entries of the tasks that are done, by index."""
    noted = job.work.sizes()
    present = noted if step == "scatter" else job.destination.sizes()
    likely = [task for task in tasks if entry_name(job, step, task) in noted]
    names = [entry_name(job, step, task) for task in likely]
    entries = job.work.read_json_files(names, _ENTRY_FORMS[step])
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


@dataclass(kw_only=True)
class DoTasks(beam.PTransform):  # type: ignore[misc]
    """Tasks of an export, dealt to the workers; gives the names of the entries they wrote.

    Idempotent: names and bytes follow from the task alone, and a file gets its name when it is
    whole. At most as parallel as there are tasks; only descriptors of tasks are shuffled.

    Attributes:
        job: what is exported.
        step: as `do_task` takes it.
        tasks: that are to be done.
    """

    job: RowJob
    step: str
    tasks: Sequence[Task]

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[str]:
        """The pipeline of the step."""
        descriptors = runners.deal(begin, [task.to_bytes() for task in self.tasks])
        return descriptors | "Do" >> beam.ParDo(_DoTask(self.job, self.step)).with_output_types(str)


class _DoTask(Work):
    def __init__(self, job: RowJob, step: str) -> None:
        super().__init__()
        self._job = job
        self._step = step

    def process(self, descriptor: bytes) -> Iterator[str]:
        with FAILURE.task():
            yield do_task(self._job, self._step, descriptor)
