"""Records that an export leaves on disk, and the notes of workers while it is made."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field

from pipelines.manifest.entries import TableEntry
from pipelines.manifest.records import Digest, FileName, Number, Record


class ExportedFile(Record):
    """File of an export, possibly in the directory of a split. Some formats count its rows."""

    name: Annotated[str, Field(pattern=r"^((train|validation)/)?[A-Za-z0-9][A-Za-z0-9._-]{0,199}$")]
    bytes: Number
    xxh3_128: Digest
    rows: Number | None = None
    tokens: Number | None = None


class ExportIdentity(Record):
    """Everything that determines the bytes of an export; `_export.json` while it is being made."""

    model_config = ConfigDict(extra="allow")

    format: int
    to: str
    split: str
    options: dict[str, Any]
    dataset: dict[str, str]


class ExportManifest(ExportIdentity):
    """Content of `export.json`."""

    splits: dict[str, dict[str, int]]
    files: Annotated[list[ExportedFile], Field(min_length=1)]


class RowFileNote(TableEntry):
    """Note of a written file of rows."""

    tokens: Number


class WriteNote(Record):
    """Note of a task that wrote a file in the order of the corpus."""

    documents: Number
    file: RowFileNote


class GatherNote(Record):
    """Note of a task that gathered a file from runs."""

    file: RowFileNote


class RunNote(Record):
    """Note of a run. Earlier versions did not record its format."""

    model_config = ConfigDict(extra="allow")

    name: FileName
    bytes: Number
    index: Number
    flushes: Number
    format: int | None = None


class ScatterNote(Record):
    """Note of a task that wrote a run."""

    documents: Number
    run: RunNote
    buckets: list[Number]


NOTES: Final[dict[str, type[Record]]] = {
    "write": WriteNote,
    "gather": GatherNote,
    "scatter": ScatterNote,
}
