"""Writing of a task's files: token files, rejects, statistics, and the entry that lists them.

A task may be repeated, on another machine and at the same time: the files have the same names and
bytes, and each appears atomically. The train file is written last, so a task is finished when it
exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Any

import numpy as np

from pipelines.accounting import DocumentTotals
from pipelines.batches import DocumentBatch
from pipelines.console import progress
from pipelines.manifest.entries import TaskEntry
from pipelines.manifest.names import task_name, token_file_name
from pipelines.manifest.token_schema import schema
from pipelines.metrics import Meter
from pipelines.readers.selection import select_share
from pipelines.readers.tasks import TaskWork, read_task
from pipelines.rejects.table import RejectFile
from pipelines.supervisor import current_task
from pipelines.tokenizers.vocabulary import Vocabulary
from pipelines.versions import software_metadata
from pipelines.writing.encoder import DocumentEncoder
from pipelines.writing.jobs import FORMAT_VERSION, EncodeJob, entry_name, task_statistics_name
from pipelines.writing.replayed import ReplayFilter
from pipelines.writing.rows import TokenRows
from pipelines.writing.statistics import Statistics, write_statistics
from pipelines.writing.token_file import TokenFile


def write_task(job: EncodeJob, work: TaskWork, meter: Meter | None = None) -> dict[str, Any]:
    """Encode a task and write its files. Return the task's entry of the manifest.

    Raises:
        InputError: The input cannot be read, or a policy refuses a document.
        OutputError: The output cannot be written.
    """
    meter = meter or Meter()
    encoder = DocumentEncoder.of_job(job)
    record = _TaskRecord(work, encoder.vocabulary)
    with (
        current_task(work.describe("encode")),
        meter.time("write"),  # the time that is neither reading nor encoding
        _token_file(job, work, "train") as train,
    ):
        with ExitStack() as others:
            rejects = others.enter_context(
                RejectFile(
                    job.rejects,
                    task_name(work.index, work.of, job.generation),
                    _metadata(job, work),
                )
            )
            files = {"train": train}
            if job.validation_fraction > 0:
                files["validation"] = others.enter_context(_token_file(job, work, "validation"))
            name = task_name(work.index, work.of)
            replayed = ReplayFilter(job.entries, name) if job.is_replay else None
            for batch in meter.time_items("read", read_task(work, job.readings)):
                selected = batch if replayed is None else replayed.filter(batch)
                with meter.time("encode"):
                    kept = encoder.refuse(selected)
                record.add_batch(selected, kept)
                rejects.add(kept.rejects)
                if job.reject_limit is not None:
                    job.reject_limit.judge(work.index, record.rejected, kept)
                meter.add_batch(kept)
                for split, part in _split(kept, job.validation_fraction):
                    with meter.time("encode"):
                        rows = encoder.encode(part)
                    meter.add(tokens=len(rows.ids))
                    files[split].add(rows)
                    record.add_rows(split, part.source, rows)
            if replayed is not None:
                for carried in replayed.carried():
                    rejects.add(carried)
                for label, left_out in replayed.finish(work, job.readings):
                    record.totals[label].add(left_out)
            if "validation" in files:
                files["validation"].finish()
        train.finish()
        record.statistics.finish()
        entry = {
            "index": work.index,
            "source": work.source,
            **record.to_json(),
            "train": train.entry,
            "validation": files["validation"].entry if "validation" in files else None,
            "rejects": rejects.entry,
            "statistics": write_statistics(
                job.entries, task_statistics_name(work.index, work.of), record.statistics.tables()
            ),
        }
        job.entries.write_json(entry_name(work.index, work.of), entry)
    meter.finish_task(work.planned_bytes)
    progress.note(kept=1)
    return entry


def write_tasks(job: EncodeJob, tasks: Iterable[bytes], meter: Meter) -> None:
    """Encode the tasks of descriptors, one after another, without a pipeline."""
    for task in tasks:
        write_task(job, TaskWork.from_bytes(task), meter)


def finished_entries(job: EncodeJob, of: int) -> dict[int, TaskEntry]:
    """Return the entries of finished tasks by index: those whose files all exist.

    Args:
        job: The job.
        of: Number of tasks.
    """
    present = {**job.rejects.sizes(), **job.tokens.sizes()}
    written = job.entries.sizes()
    likely = [
        index
        for index in range(of)
        if {entry_name(index, of), task_statistics_name(index, of)} <= written.keys()
        and token_file_name("train", index, of, job.generation) in present
    ]
    found = TaskEntry.load_files(job.entries, [entry_name(index, of) for index in likely])
    return {
        index: entry
        for index, entry in zip(likely, found, strict=True)
        if entry is not None and _is_present(entry, present)
    }


class _TaskRecord:
    """Content of an entry about a task's documents, collected batch by batch.

    Attributes:
        totals: Totals of the documents by file.
        statistics: Statistics of the rows.
        rejected: Number of rejected documents.
    """

    def __init__(self, work: TaskWork, vocabulary: Vocabulary) -> None:
        self.totals = {file.label: DocumentTotals() for file, _, _ in work.parts}
        self.statistics = Statistics(vocabulary)
        self.rejected = 0
        self._refused: dict[str, DocumentTotals] = {}
        self._source_names = {file.label: file.source_name for file, _, _ in work.parts}

    def add_batch(self, selected: DocumentBatch, kept: DocumentBatch) -> None:
        """Count a batch before and after a policy refused documents."""
        totals = self.totals[kept.source]
        before = totals.rejected
        totals.add_batch(kept)
        self.rejected += totals.rejected - before
        if len(kept) < len(selected):
            refused = self._refused.setdefault(kept.source, DocumentTotals())
            refused.add(DocumentTotals.removed(selected, kept))

    def add_rows(self, split: str, file: str, rows: TokenRows) -> None:
        """Count the rows of a batch."""
        self.statistics.add_rows(
            split,
            self._source_names[file],
            file,
            ids=rows.ids,
            lengths=np.diff(rows.offsets),
            num_bytes=rows.num_bytes,
            offsets=rows.positions,
            begins=rows.parts == 0,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the entry's totals."""
        return {
            "totals": DocumentTotals.sum_of(self.totals.values()).to_json(),
            "inputs": {label: totals.numbers() for label, totals in self.totals.items()},
            # Counting keeps these documents: the policy on special tokens applies to encoding only.
            "refused": {
                label: totals.corpus_fingerprint for label, totals in self._refused.items()
            },
        }


def _split(batch: DocumentBatch, fraction: float) -> list[tuple[str, DocumentBatch]]:
    """Divide a batch into splits, by the hashes of its documents alone."""
    if not len(batch):
        return []
    if not fraction:
        return [("train", batch)]
    chosen = select_share(batch.hashes[:, 1], fraction)
    parts = [("train", batch.select(~chosen)), ("validation", batch.select(chosen))]
    return [(split, part) for split, part in parts if len(part)]


def _token_file(job: EncodeJob, work: TaskWork, split: str) -> TokenFile:
    return TokenFile(
        job.tokens,
        token_file_name(split, work.index, work.of, job.generation),
        schema(job.id_type, record_ids=job.record_ids, kept=job.kept),
        _metadata(job, work),
    )


def _metadata(job: EncodeJob, work: TaskWork) -> dict[str, str]:
    return {
        "bpe.format": FORMAT_VERSION,
        "bpe.configuration": job.configuration,
        "bpe.tokenizer": job.tokenizer_fingerprint,
        "bpe.task": work.summary,
        **software_metadata(),
    }


def _is_present(entry: TaskEntry, present: Mapping[str, int]) -> bool:
    return all(present.get(file.name) == file.bytes for file in entry.dataset_files)
