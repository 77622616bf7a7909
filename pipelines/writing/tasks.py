"""A task to its token files, its rejects and an entry: idempotent, atomic."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import numpy as np

from pipelines.accounting import DocumentTotals
from pipelines.batches import DocumentBatch
from pipelines.manifest.models import TaskEntry
from pipelines.manifest.names import task_name, token_file_name
from pipelines.manifest.token_schema import schema
from pipelines.metrics import Meter
from pipelines.readers.selection import in_share
from pipelines.readers.tasks import TaskWork, read_task
from pipelines.rejects.table import RejectFile
from pipelines.supervisor import current_task
from pipelines.versions import software_metadata
from pipelines.writing.encoder import DocumentEncoder
from pipelines.writing.jobs import FORMAT_VERSION, EncodeJob, entry_name, task_statistics_name
from pipelines.writing.replayed import Taking
from pipelines.writing.statistics import Statistics, write_statistics
from pipelines.writing.token_file import TokenFile


def write_task(job: EncodeJob, work: TaskWork, meter: Meter | None = None) -> dict[str, Any]:
    """Encodes a task and writes its files; gives the task's entry of the manifest.

    Raises:
        InputError: as reading and the policies do.
        OutputError: the output can't be written.
    """
    meter = meter or Meter()
    encoder = DocumentEncoder.of_job(job)
    totals = {file.label: DocumentTotals() for file, _, _ in work.parts}
    refused: dict[str, DocumentTotals] = {}
    metadata = _metadata(job, work)
    columns = schema(job.id_type, record_ids=job.record_ids)
    statistics = Statistics(encoder.vocabulary)
    source_names = {file.label: file.source_name for file, _, _ in work.parts}
    names = {
        split: token_file_name(split, work.index, work.of, job.generation)
        for split in ("train", "validation")
    }
    entry: dict[str, Any] = {"index": work.index, "source": work.source}
    with (
        current_task(work.describe("encode")),
        meter.time("write"),  # what is neither reading nor encoding
        TokenFile(job.tokens, names["train"], columns, metadata) as train,
    ):
        with ExitStack() as others:
            rejects = others.enter_context(
                RejectFile(job.rejects, task_name(work.index, work.of, job.generation), metadata)
            )
            validation = None
            if job.validation_fraction > 0:
                validation = others.enter_context(
                    TokenFile(job.tokens, names["validation"], columns, metadata)
                )
            taking = Taking(job.entries, task_name(work.index, work.of)) if job.is_replay else None
            for batch in meter.timed("read", read_task(work, job.readings)):
                taken = batch if taking is None else taking.of(batch)
                with meter.time("encode"):
                    kept = encoder.refuse(taken)
                if len(kept) < len(taken):
                    of_file = refused.setdefault(kept.source, DocumentTotals())
                    of_file.add(DocumentTotals.removed(taken, kept))
                totals[kept.source].add_batch(kept)
                rejects.add(kept.rejects)
                meter.add_batch(kept)
                for file, part in _split(kept, train, validation, job.validation_fraction):
                    with meter.time("encode"):
                        rows = encoder.encode(part)
                    meter.add(tokens=len(rows.ids))
                    file.add(rows)
                    statistics.add_rows(
                        "train" if file is train else "validation",
                        source_names[rows.source],
                        rows.source,
                        ids=rows.ids,
                        lengths=np.diff(rows.offsets),
                        num_bytes=rows.num_bytes,
                        offsets=rows.places,
                        begins=np.full(len(rows), rows.part == 0),
                    )
            if taking is not None:
                for carried in taking.carried():
                    rejects.add(carried)
                for label, left_out in taking.finish(work, job.readings):
                    totals[label].add(left_out)
            if validation is not None:
                validation.finish()
        train.finish()
        entry["totals"] = DocumentTotals.sum_of(totals.values()).to_json()
        entry["inputs"] = {label: of_file.numbers() for label, of_file in totals.items()}
        # Counting has them: the policy on special tokens is that of encoding.
        entry["refused"] = {label: found.corpus_fingerprint for label, found in refused.items()}
        entry["train"] = train.entry
        entry["validation"] = None if validation is None else validation.entry
        entry["rejects"] = rejects.entry
        statistics.finish()
        entry["statistics"] = write_statistics(
            job.entries, task_statistics_name(work.index, work.of), statistics.tables()
        )
        job.entries.write_json(entry_name(work.index, work.of), entry)
    meter.finish_task()
    return entry


def _split(
    batch: DocumentBatch, train: TokenFile, validation: TokenFile | None, fraction: float
) -> list[tuple[TokenFile, DocumentBatch]]:
    """The batch by the file that its documents belong to, chosen by their hashes alone."""
    if not len(batch):
        return []
    if validation is None:
        return [(train, batch)]
    chosen = in_share(batch.hashes[:, 1], fraction)
    parts = [(train, batch.select(~chosen)), (validation, batch.select(chosen))]
    return [(file, part) for file, part in parts if len(part)]


def _metadata(job: EncodeJob, work: TaskWork) -> dict[str, str]:
    return {
        "bpe.format": FORMAT_VERSION,
        "bpe.configuration": job.configuration,
        "bpe.tokenizer": job.tokenizer_fingerprint,
        "bpe.task": work.summary,
        **software_metadata(),
    }


def finished_entries(job: EncodeJob, of: int) -> dict[int, dict[str, Any]]:
    """The entries of finished tasks by index: those whose train file is there."""
    present = {**job.rejects.sizes(), **job.tokens.sizes()}
    written = job.entries.sizes()
    likely = [
        index
        for index in range(of)
        if {entry_name(index, of), task_statistics_name(index, of)} <= written.keys()
        and token_file_name("train", index, of, job.generation) in present
    ]
    names = [entry_name(index, of) for index in likely]
    found = job.entries.read_json_files(names, TaskEntry)
    return {
        index: entry
        for index, entry in zip(likely, found, strict=True)
        if entry is not None and _is_present(entry, present)
    }


def _is_present(entry: Mapping[str, Any], present: Mapping[str, int]) -> bool:
    files = [entry[kind] for kind in ("train", "validation", "rejects") if entry[kind]]
    return all(present.get(file["name"]) == file["bytes"] for file in files)
