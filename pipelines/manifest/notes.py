"""Notes of workers on finished work, with which an interrupted stage is resumed.

A note that does not fit its model is damaged: unlike a manifest, it may simply be removed.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pipelines.manifest.entries import CorpusTotals, GroupDocuments
from pipelines.manifest.records import Digest, FileName, Number, Record


class SectionNote(Record):
    """A section of a sorted run."""

    run: FileName
    offset: Number
    length: Number
    hash: str


class KeptFile(Record):
    """A file whose counts are kept: its size, version tag and tasks."""

    size: Number
    mark: str
    tasks: list[Number]


class KeptFiles(Record):
    """The files whose counts are in the runs beside this note, by label."""

    shards: Number
    files: dict[str, KeptFile]


class CommitNote(Record):
    """A commit: the hashes of counted tasks by their index, and the runs with their counts."""

    plan_id: str
    tasks: dict[Annotated[str, Field(pattern=r"^[0-9]{1,12}$")], Digest]
    runs: list[list[SectionNote]]
    sources: list[CorpusTotals]
    long_pretokens: Number
    groups: list[GroupDocuments] = []
    fingerprint: Digest
