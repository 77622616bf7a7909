"""The token files' part of the manifest, put together from the entries of the tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.accounting import DocumentTotals, planned_bytes, planned_bytes_of_sources
from pipelines.config import SourceConfig
from pipelines.manifest.names import BASE, statistics_file_name
from pipelines.tasks.listing import InputFile
from pipelines.tokenizers.files import Model, counts_fingerprint
from pipelines.tokenizers.vocabulary import Vocabulary
from pipelines.versions import software_metadata
from pipelines.writing.jobs import FORMAT_VERSION, EncodeJob
from pipelines.writing.statistics import Statistics, read_statistics, write_statistics


def tokens_content(
    entries: Mapping[int, Mapping[str, Any]],
    files: Sequence[InputFile],
    sources: Sequence[SourceConfig],
    generation: str = BASE,
) -> dict[str, Any]:
    """Return the token files' part of the manifest of one generation.

    Args:
        entries: Entries of all tasks, by index.
        files: Files of the plan.
        sources: Sources of the configuration.
        generation: The generation.
    """
    ordered = [entries[index] for index in sorted(entries)]
    of_sources = [DocumentTotals() for _ in sources]
    of_inputs = {file.label: DocumentTotals() for file in files}
    refused: dict[str, list[str]] = {}
    for entry in ordered:
        of_sources[entry["source"]].add(DocumentTotals.from_json(entry["totals"]))
        for label, numbers in entry["inputs"].items():
            of_inputs[label].add(DocumentTotals(**numbers))
        for label, corpus in entry["refused"].items():
            refused.setdefault(label, []).append(corpus)
    totals = DocumentTotals.sum_of(of_sources)
    train = [entry["train"] for entry in ordered]
    validation = [entry["validation"] for entry in ordered if entry["validation"]]
    written = train + validation
    planned = planned_bytes_of_sources(files, sources)
    return {
        "corpus": totals.corpus_fingerprint,
        "inputs": [
            {
                "name": file.label,
                "size": file.size,
                "generation": generation,
                "unread": file.unread,
                "planned_bytes": planned_bytes(file, sources[file.source].format),
                **of_inputs[file.label].numbers(),
                "bad": file.label in totals.bad_files,
                **(
                    {"refused": DocumentTotals.of_corpora(refused[file.label]).corpus_fingerprint}
                    if file.label in refused
                    else {}
                ),
            }
            for file in files
        ],
        "sources": [
            {"name": source.name, "planned_bytes": bytes_, **of_source.to_json()}
            for source, bytes_, of_source in zip(sources, planned, of_sources, strict=True)
        ],
        "files": {
            "train": train,
            "validation": validation,
            "rejects": [entry["rejects"] for entry in ordered if entry["rejects"]],
        },
        "totals": {
            **totals.to_json(),
            "train_rows": sum(file["rows"] for file in train),
            "validation_rows": sum(file["rows"] for file in validation),
            "tokens": sum(file["tokens"] for file in written),
            "text_bytes": sum(file["text_bytes"] for file in written),
        },
    }


def write_merged_statistics(
    job: EncodeJob, entries: Mapping[int, Mapping[str, Any]], model: Model
) -> dict[str, Any]:
    """Add up the statistics of all tasks and write them. Return the file's entry of the manifest.

    Raises:
        OutputError: The statistics of a task are missing or damaged.
    """
    statistics = Statistics(Vocabulary(model))
    for entry in entries.values():
        statistics.add_table(read_statistics(job.entries, entry["statistics"]))
    splits = ["train", *(["validation"] if job.validation_fraction > 0 else [])]
    metadata = {
        "bpe.format": FORMAT_VERSION,
        "bpe.configuration": job.configuration,
        "bpe.tokenizer": job.tokenizer_fingerprint,
        "bpe.counts": counts_fingerprint(job.tokenizer) or "",
        **software_metadata(),
    }
    return write_statistics(
        job.tokens,
        statistics_file_name(job.generation),
        statistics.tables(job.generation, splits=splits),
        metadata,
    )
