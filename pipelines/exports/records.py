"""Records that an export leaves on disk, and the notes of workers while it is made."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import ConfigDict, Field

from pipelines.manifest.entries import TableEntry
from pipelines.manifest.records import Digest, FileName, Number, Record

# A plain name, possibly in the directory of a split.
ExportedName = Annotated[
    str, Field(pattern=r"^((train|validation)/)?[A-Za-z0-9][A-Za-z0-9._-]{0,199}$")
]


class ExportedFile(Record):
    """File of an export. Some formats count its rows."""

    name: ExportedName
    bytes: Number
    xxh3_128: Digest
    rows: Number | None = None
    tokens: Number | None = None


class ExportIdentity(Record):
    """Everything that determines the bytes of an export; `_export.json` while it is being made."""

    model_config = ConfigDict(extra="allow")

    format: Annotated[int, Field(description="Version of the format of export.json.")]
    to: str
    split: str
    options: dict[str, Any]
    dataset: dict[str, str]


class ExportManifest(ExportIdentity):
    """Content of `export.json`."""

    splits: dict[str, dict[str, int]]
    files: Annotated[list[ExportedFile], Field(min_length=1)]

    @property
    def names(self) -> list[str]:
        """Names of the files."""
        return [file.name for file in self.files]


# "write": rows to an output file; "scatter": rows to a run; "gather": runs to an output file.
Step: TypeAlias = Literal["write", "scatter", "gather"]


class RowFileNote(TableEntry):
    """Note of a written file of rows, its entry in the manifest."""

    tokens: Number


class RunNote(Record):
    """Note of a run.

    Attributes:
        name: Name of the file.
        bytes: Size of the file.
        index: Offset of the index in the file: int64[buckets, flushes, 3], for each section its
            offset, its length, and how many documents or packed rows begin in it.
        flushes: Number of sections of a bucket.
        format: Version of the format of runs, which earlier versions did not record.
    """

    model_config = ConfigDict(extra="allow")

    name: FileName
    bytes: Number
    index: Number
    flushes: Number
    format: int | None = None


class TaskNote(Record):
    """Note of a finished task."""

    step: ClassVar[Step]

    @property
    def made(self) -> RowFileNote | RunNote:
        """The file that the task wrote."""
        raise NotImplementedError


class _FileNote(TaskNote):
    """Note of a task that wrote an output file."""

    file: RowFileNote

    @property
    def made(self) -> RowFileNote:
        """The output file."""
        return self.file


class WriteNote(_FileNote):
    """Note of a task that wrote a file in the order of the corpus."""

    step: ClassVar[Step] = "write"

    documents: Number


class GatherNote(_FileNote):
    """Note of a task that gathered a file from runs."""

    step: ClassVar[Step] = "gather"


class ScatterNote(TaskNote):
    """Note of a task that wrote a run."""

    step: ClassVar[Step] = "scatter"

    documents: Number
    run: RunNote
    buckets: list[Number]

    @property
    def made(self) -> RunNote:
        """The run."""
        return self.run
