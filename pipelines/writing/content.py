"""Manifest content for the token files, composed of the entries of the tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import pyarrow as pa

from pipelines.accounting import DocumentTotals, planned_bytes, planned_bytes_of_sources
from pipelines.config import SourceConfig
from pipelines.manifest.entries import (
    DatasetFiles,
    InputEntry,
    SourceEntry,
    TableEntry,
    TaskEntry,
    TokensTotals,
)
from pipelines.manifest.models import GenerationContent
from pipelines.manifest.names import BASE, statistics_file_name
from pipelines.manifest.records import present
from pipelines.tasks.listing import InputFile
from pipelines.tokenizers.files import Model, counts_fingerprint
from pipelines.tokenizers.vocabulary import Vocabulary
from pipelines.versions import software_metadata
from pipelines.writing.jobs import FORMAT_VERSION, EncodeJob
from pipelines.writing.statistics import Statistics, read_statistics, write_statistics

# Threads that read statistics of tasks: adding them up takes a quarter of the time of reading.
_READERS: Final = 4


def tokens_content(
    entries: Mapping[int, TaskEntry],
    files: Sequence[InputFile],
    sources: Sequence[SourceConfig],
    statistics: TableEntry,
    generation: str = BASE,
) -> GenerationContent:
    """Return the manifest content of one generation of token files.

    Args:
        entries: Entries of all tasks, by index.
        files: Files of the plan.
        sources: Sources of the configuration.
        statistics: Entry of the merged statistics.
        generation: The generation.
    """
    ordered = [entries[index] for index in sorted(entries)]
    of_sources = [DocumentTotals() for _ in sources]
    of_inputs = {file.label: DocumentTotals() for file in files}
    refused: dict[str, list[str]] = {}
    for entry in ordered:
        of_sources[entry.source].add(entry.totals.document_totals())
        for label, numbers in entry.inputs.items():
            of_inputs[label].add(DocumentTotals(**numbers.to_json()))
        for label, corpus in entry.refused.items():
            refused.setdefault(label, []).append(corpus)
    totals = DocumentTotals.sum_of(of_sources)
    planned = planned_bytes_of_sources(files, sources)
    written = DatasetFiles(
        train=[entry.train for entry in ordered],
        validation=[entry.validation for entry in ordered if entry.validation],
        rejects=[entry.rejects for entry in ordered if entry.rejects],
        statistics=[statistics],
    )
    return GenerationContent(
        corpus=totals.corpus_fingerprint,
        inputs=[
            _input_entry(
                file,
                of_inputs[file.label],
                generation=generation,
                planned_bytes=planned_bytes(file, sources[file.source].format),
                bad=file.label in totals.bad_files,
                **present(refused=_sum_corpora(refused.get(file.label))),
            )
            for file in files
        ],
        sources=[
            SourceEntry(name=source.name, planned_bytes=bytes_, **of_source.to_json())
            for source, bytes_, of_source in zip(sources, planned, of_sources, strict=True)
        ],
        files=written,
        totals=TokensTotals(
            **totals.to_json(),
            train_rows=sum(file.rows for file in written.train),
            validation_rows=sum(file.rows for file in written.validation),
            tokens=sum(file.tokens for file in written.token_files),
            text_bytes=sum(file.text_bytes for file in written.token_files),
        ),
    )


def _input_entry(file: InputFile, totals: DocumentTotals, **fields: Any) -> InputEntry:
    numbers: dict[str, Any] = totals.numbers()
    return InputEntry(name=file.label, size=file.size, unread=file.unread, **numbers, **fields)


def _sum_corpora(corpora: Sequence[str] | None) -> str | None:
    return None if corpora is None else DocumentTotals.of_corpora(corpora).corpus_fingerprint


def write_merged_statistics(
    job: EncodeJob, entries: Mapping[int, TaskEntry], model: Model
) -> TableEntry:
    """Add up the statistics of all tasks and write them. Return the file's entry of the manifest.

    Raises:
        OutputError: The statistics of a task are missing or damaged.
    """
    statistics = Statistics(Vocabulary(model))
    for table in _read_ahead(job, [entry.statistics for entry in entries.values()]):
        statistics.add_table(table)
    splits = ["train", *(["validation"] if job.validation_fraction > 0 else [])]
    metadata = {
        "bpe.format": FORMAT_VERSION,
        "bpe.configuration": job.configuration,
        "bpe.tokenizer": job.tokenizer_fingerprint,
        "bpe.counts": counts_fingerprint(job.tokenizer) or "",
        **software_metadata(),
    }
    written = write_statistics(
        job.tokens,
        statistics_file_name(job.generation),
        statistics.tables(job.generation, splits=splits),
        metadata,
    )
    return TableEntry.model_validate(written)


def _read_ahead(job: EncodeJob, tables: Sequence[TableEntry]) -> Iterator[pa.Table]:
    """Yield the statistics of tasks in order. Threads read some of them ahead."""
    ahead = 2 * _READERS
    with ThreadPoolExecutor(_READERS) as pool:
        for first in range(0, len(tables), ahead):
            yield from pool.map(
                partial(read_statistics, job.entries), tables[first : first + ahead]
            )
