"""Instructions for workers that encode tasks, and the names of a task's temporary files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from bpe_core.short_repr import short_repr
from pipelines.manifest.names import BASE, ENTRIES
from pipelines.readers.tasks import SourceReading
from pipelines.storage.directory import Directory

FORMAT_VERSION: Final = "1"


@short_repr
@dataclass(frozen=True, kw_only=True)
class EncodeJob:
    """Rules of encoding the tasks of a build. Small, since every worker receives them.

    Attributes:
        tokens: Directory of the token files.
        rejects: Directory of rejected documents.
        tokenizer: Directory of the tokenizer.
        tokenizer_fingerprint: Required fingerprint of the tokenizer.
        configuration: Fingerprint of everything but the inputs that determines the token files.
        plan_id: Id of files, ranges and configuration. Entries of another plan are never used.
        prepend, append: Special tokens put around each document, or None.
        special_tokens_in_text: "split", "text", "reject" or "error".
        id_type: "uint16" or "uint32".
        validation_fraction: Share of the documents in the validation files.
        readings: How to read each source.
        generation: Generation of the files, part of their names.
        is_replay: True to encode only the documents listed beside the entries (`replayed`).
    """

    tokens: Directory
    rejects: Directory
    tokenizer: Directory
    tokenizer_fingerprint: str
    configuration: str
    plan_id: str
    prepend: str | None
    append: str | None
    special_tokens_in_text: str
    id_type: str
    validation_fraction: float
    readings: tuple[SourceReading, ...]
    generation: str = BASE
    is_replay: bool = False

    @property
    def kept(self) -> pa.Schema | None:
        """Return the columns of records that token files keep, if there are any."""
        return next((r.options.kept for r in self.readings if r.options.kept is not None), None)

    @property
    def record_ids(self) -> bool:
        """Return True if records of any source have ids of their own."""
        return any(reading.options.id_field is not None for reading in self.readings)

    @property
    def entries(self) -> Directory:
        """Return the directory of the entries of finished tasks, until the manifest is written."""
        return self.tokens / ENTRIES / self.plan_id


def entry_name(index: int, of: int) -> str:
    """Return the file name of a task's entry."""
    return f"{index:05d}-of-{of:05d}.json"


def task_statistics_name(index: int, of: int) -> str:
    """Return the file name of a task's statistics, beside its entry."""
    return f"{index:05d}-of-{of:05d}.statistics.parquet"
