"""What workers need to know to encode, and the names of a task's scratch files."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.manifest.names import BASE
from pipelines.readers.tasks import SourceReading
from pipelines.storage.directory import Directory

ENTRIES = "_tasks"
FORMAT_VERSION = "1"


@dataclass(frozen=True, kw_only=True)
class EncodeJob:
    """All that workers need to know to encode; small, and the same for all of them.

    Attributes:
        tokens: the directory of the token files.
        rejects: the directory of rejected documents.
        tokenizer: the directory of the tokenizer.
        tokenizer_fingerprint: of the tokenizer that must be found there.
        configuration: fingerprint of all that decides the token files.
        plan_id: of files, ranges and configuration: entries of other plans are never mixed in.
        prepend, append: special tokens, or None.
        special_tokens_in_text: "split", "text", "reject" or "error".
        id_type: "uint16" or "uint32".
        validation_fraction: share of the documents in the validation files.
        readings: how each source is read.
        generation: that the files are of; part of their names.
        is_replay: only documents are taken that stand beside the entries (`taking`).
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
    def record_ids(self) -> bool:
        """Whether records of any source have ids of their own."""
        return any(reading.options.id_field is not None for reading in self.readings)

    @property
    def entries(self) -> Directory:
        """Where the entries of finished tasks are until the manifest is written."""
        return self.tokens / ENTRIES / self.plan_id


def entry_name(index: int, of: int) -> str:
    """The file of a task's entry."""
    return f"{index:05d}-of-{of:05d}.json"


def task_statistics_name(index: int, of: int) -> str:
    """The file of a task's statistics, beside its entry."""
    return f"{index:05d}-of-{of:05d}.statistics.parquet"
