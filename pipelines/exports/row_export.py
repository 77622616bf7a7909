"""Export of rows for training: plan the tasks of a split, and run the unfinished ones.

The work of a task follows from the manifest of the token files alone, so workers, buckets and
interruptions do not affect the bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import xxhash
from numpy.typing import NDArray

from pipelines.dataset.reading import TokenDataset
from pipelines.exports.files import ExportFiles, Written
from pipelines.exports.records import NOTES
from pipelines.exports.row_tasks import (
    GatherTask,
    ReadTask,
    RowJob,
    Shape,
    Step,
    Task,
    entry_name,
)
from pipelines.exports.shuffling import Run, bucket_bits
from pipelines.storage.directory import Directory

_FORMAT_VERSION: Final = "1"

# Ids of an output file, unless a number of files was requested, and of a task that writes a run.
_FILE_BYTES: Final = 256 << 20
_RUN_BYTES: Final = 256 << 20


def write_rows(
    dataset: TokenDataset,
    split: str,
    files: ExportFiles,
    options: Mapping[str, Any],
    shape: Shape,
) -> Written:
    """Write the files of a split.

    Args:
        dataset: The dataset.
        split: The split.
        files: The destination, and how to run the pipelines.
        options: Options of the export, including `files` and `shuffle_seed`.
        shape: How documents become rows.

    Raises:
        InputError: Token files are missing, damaged, or do not match their manifest.
        OutputError: The destination cannot be written, or a run is damaged.
    """
    job = RowJob(
        dataset=dataset.without_listing(),
        destination=files.directory,
        split=split,
        shape=shape,
        metadata=_metadata(dataset, split, options),
        seed=options["shuffle_seed"],
    )
    number = _number_of_files(dataset, split, options["files"])
    if job.seed is None:
        tasks = _plan_reading(dataset, split, shape, number)
        entries = _finish_tasks(files, job, "write", tasks)
        documents = sum(entry["documents"] for entry in entries)
    else:
        size = dataset.num_tokens(split) * dataset.dtype.itemsize
        job = replace(job, bits=bucket_bits(size))
        tasks = _plan_reading(dataset, split, shape, -(-size // _RUN_BYTES))
        scattered = _finish_tasks(files, job, "scatter", tasks)
        documents = sum(entry["documents"] for entry in scattered)
        job = replace(job, runs=tuple(Run(**entry["run"]) for entry in scattered))
        buckets = np.array([entry["buckets"] for entry in scattered], np.int64).sum(axis=0)
        entries = _finish_tasks(files, job, "gather", _plan_gathering(buckets, number))
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
        "bpe.configuration": dataset.configuration_fingerprint,
        "bpe.tokenizer": dataset.configuration["tokenizer"],
        "bpe.export": json.dumps(export, sort_keys=True),
    }


def _number_of_files(dataset: TokenDataset, split: str, asked: int | None) -> int:
    """Return the requested number of files for training, or a proportional one for validation."""
    tokens, train = dataset.num_tokens(split), dataset.num_tokens("train")
    if asked is None:
        return max(1, -(-tokens * dataset.dtype.itemsize // _FILE_BYTES))
    return asked if split == "train" or not train else max(1, round(asked * tokens / train))


def _plan_reading(dataset: TokenDataset, split: str, shape: Shape, number: int) -> list[ReadTask]:
    """Return tasks with about the same number of units each."""
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


def _plan_gathering(buckets: NDArray[np.int64], number: int) -> list[GatherTask]:
    """Return tasks of about equally many documents or packed rows, with the buckets of each."""
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


def _finish_tasks(
    files: ExportFiles, job: RowJob, step: Step, tasks: Sequence[Task]
) -> list[dict[str, Any]]:
    """Do the unfinished tasks of a step. Return the entries of all tasks, in order."""
    finished = {
        index: entry
        for index, entry in _finished(job, step, tasks).items()
        if step == "scatter" or _has_checksum(job.destination, entry["file"])
    }
    left = [task for task in tasks if task.index not in finished]
    if left:
        from pipelines.exports.row_pipeline import run_tasks  # Beam takes a second to import

        job.work.create()
        run_tasks(files, job, step, left)
        finished = _finished(job, step, tasks)
    return [finished[task.index] for task in tasks]


def _finished(job: RowJob, step: Step, tasks: Sequence[Task]) -> dict[int, dict[str, Any]]:
    """Return the entries of finished tasks by index: those whose files have the right size."""
    noted = job.work.sizes()
    present = noted if step == "scatter" else job.destination.sizes()
    likely = [task for task in tasks if entry_name(job, step, task) in noted]
    names = [entry_name(job, step, task) for task in likely]
    entries = job.work.read_json_files(names, NOTES[step])
    finished = {}
    for task, entry in zip(likely, entries, strict=True):
        if entry is not None and (step != "scatter" or Run.is_current(entry["run"])):
            made = entry["run"] if step == "scatter" else entry["file"]
            if present.get(made["name"]) == made["bytes"]:
                finished[task.index] = entry
    return finished


def _has_checksum(directory: Directory, file: Mapping[str, Any]) -> bool:
    """Return True if a file that an interrupted export left has its checksum.

    On remote storage, reading the file would take as long as writing it again, so only the size is
    compared. The checksums of runs are compared when they are read.
    """
    if not directory.is_local:
        return True
    with directory.local_path(file["name"]).open("rb") as data:
        found: str = hashlib.file_digest(data, xxhash.xxh3_128).hexdigest()
    return found == str(file["xxh3_128"])
