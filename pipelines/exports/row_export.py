"""Export of rows for training: plan the tasks of a split, and run the unfinished ones.

The work of a task follows from the manifest of the token files alone, so workers, buckets and
interruptions do not affect the bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TypeVar

import numpy as np
import xxhash
from numpy.typing import NDArray

from pipelines.dataset.reading import TokenDataset
from pipelines.exports.files import ExportFiles, FormatOptions, Written
from pipelines.exports.records import (
    ExportedFile,
    GatherNote,
    RowFileNote,
    RunNote,
    ScatterNote,
    TaskNote,
    WriteNote,
)
from pipelines.exports.row_tasks import (
    GatherTask,
    ReadTask,
    RowJob,
    Shape,
    Task,
    entry_name,
)
from pipelines.exports.shuffling import bucket_bits, is_readable
from pipelines.storage.directory import Directory

_Note = TypeVar("_Note", bound=TaskNote)

_FORMAT_VERSION: Final = "1"

# Ids of an output file, unless a number of files was requested, and of a task that writes a run.
_FILE_BYTES: Final = 256 << 20
_RUN_BYTES: Final = 256 << 20


def write_rows(
    dataset: TokenDataset,
    split: str,
    files: ExportFiles,
    options: FormatOptions,
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
        made = _finish_tasks(files, job, WriteNote, tasks)
        documents = sum(note.documents for note in made)
        written = [note.file for note in made]
    else:
        size = dataset.num_tokens(split) * dataset.dtype.itemsize
        job = replace(job, bits=bucket_bits(size))
        tasks = _plan_reading(dataset, split, shape, -(-size // _RUN_BYTES))
        scattered = _finish_tasks(files, job, ScatterNote, tasks)
        documents = sum(note.documents for note in scattered)
        job = replace(job, runs=tuple(note.run for note in scattered))
        buckets = np.array([note.buckets for note in scattered], np.int64).sum(axis=0)
        gathered = _finish_tasks(files, job, GatherNote, _plan_gathering(buckets, number))
        written = [note.file for note in gathered]
    files.entries += [ExportedFile(**file.fields()) for file in written]
    return Written(
        documents=documents,
        tokens=sum(file.tokens for file in written),
        facts={"rows": sum(file.rows for file in written), "files": len(written)},
    )


def _metadata(dataset: TokenDataset, split: str, options: FormatOptions) -> dict[str, str]:
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
    files: ExportFiles, job: RowJob, form: type[_Note], tasks: Sequence[Task]
) -> list[_Note]:
    """Do the unfinished tasks of the step with such notes. Return the notes of all, in order."""
    finished = {
        index: note
        for index, note in _finished(job, form, tasks).items()
        if not isinstance(note.made, RowFileNote) or _has_checksum(job.destination, note.made)
    }
    left = [task for task in tasks if task.index not in finished]
    if left:
        from pipelines.exports.row_pipeline import run_tasks  # Beam takes a second to import

        job.work.create()
        run_tasks(files, job, form.step, left)
        finished = _finished(job, form, tasks)
    return [finished[task.index] for task in tasks]


def _finished(job: RowJob, form: type[_Note], tasks: Sequence[Task]) -> dict[int, _Note]:
    """Return the notes of finished tasks by index: those whose files have the right size."""
    noted = job.work.sizes()
    present = noted if form is ScatterNote else job.destination.sizes()
    likely = [task for task in tasks if entry_name(job, form.step, task) in noted]
    names = [entry_name(job, form.step, task) for task in likely]
    finished = {}
    for task, note in zip(likely, form.load_files(job.work, names), strict=True):
        if note is None or (isinstance(note.made, RunNote) and not is_readable(note.made)):
            continue
        if present.get(note.made.name) == note.made.bytes:
            finished[task.index] = note
    return finished


def _has_checksum(directory: Directory, file: RowFileNote) -> bool:
    """Return True if a file that an interrupted export left has its checksum.

    On remote storage, reading the file would take as long as writing it again, so only the size is
    compared. The checksums of runs are compared when they are read.
    """
    if not directory.is_local:
        return True
    with directory.local_path(file.name).open("rb") as data:
        found: str = hashlib.file_digest(data, xxhash.xxh3_128).hexdigest()
    return found == file.xxh3_128
