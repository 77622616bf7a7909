"""Parts of the records on disk: files, numbers of documents, and what workers report of tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from bpe_core.count_groups import Group
from pipelines.accounting import DocumentTotals
from pipelines.manifest.records import Corpus, Digest, FileName, Number, Record

Split: TypeAlias = Literal["train", "validation"]


class FileEntry(Record):
    """A file of the output: name, size in bytes, xxh3-128 of the bytes."""

    name: FileName
    bytes: Number
    xxh3_128: Digest


class TableEntry(FileEntry):
    """A Parquet file of the output."""

    rows: Number


class ShardEntry(TableEntry):
    """A shard of the counts; `pretokens` is the sum of the counts."""

    pretokens: Number


class TokenFileEntry(TableEntry):
    """A token file; `documents` counts rows with part 0, `text_bytes` the source text."""

    documents: Number
    tokens: Number
    text_bytes: Number


class DatasetFiles(Record):
    """The files in `tokens/` and `rejects/`."""

    train: list[TokenFileEntry]
    validation: list[TokenFileEntry]
    rejects: list[TableEntry]
    statistics: list[TableEntry]

    @property
    def token_files(self) -> list[TokenFileEntry]:
        """The token files of both splits."""
        return [*self.train, *self.validation]

    def of_split(self, split: Split) -> list[TokenFileEntry]:
        """Return the token files of a split."""
        return self.train if split == "train" else self.validation


class DocumentNumbers(Record):
    """Numbers of documents and of bytes of source text, by outcome.

    A document of the input is kept (`documents`), empty, rejected or not selected. For text and
    JSON lines the four numbers of bytes add up to the size of the decompressed files.
    """

    documents: Number
    empty: Number
    rejected: Number
    not_selected: Number
    bytes: Annotated[int, Field(ge=0, description="Source text of the kept documents.")]
    rejected_bytes: Number
    not_selected_bytes: Number
    framing_bytes: Annotated[int, Field(description="Separators and markup around documents.")]
    rows: Annotated[
        int, Field(ge=0, description="Rows of Parquet and Arrow files by their footers; else 0.")
    ]


PlannedBytes = Annotated[
    int | None,
    Field(
        description="Expected sum of the bytes; null if it is unknown in advance, or if the format "
        "has no such sum."
    ),
]


class RepairedInput(Record):
    """A repaired input file; `generation` contains its replayed documents."""

    size: Number
    generation: str


class InputEntry(DocumentNumbers):
    """An input file; `name` is its label in the column `source`."""

    name: str
    size: Annotated[int, Field(ge=0, description="Bytes as stored, compressed or not.")]
    generation: str
    planned_bytes: PlannedBytes
    unread: Annotated[bool, Field(description="Not read, because a selection ends before it.")]
    bad: Annotated[bool, Field(description="Damaged; its readable part was used.")]
    repaired: Annotated[
        RepairedInput | None, Field(description="The file that replaced it in a replay.")
    ] = None
    refused: Annotated[
        Corpus | None,
        Field(description="Its documents rejected for special tokens; present if there are any."),
    ] = None

    @property
    def possible_sizes(self) -> tuple[int, ...]:
        """The size of the file as it was read first and, if it was repaired, as it was then."""
        return (self.size,) if self.repaired is None else (self.size, self.repaired.size)


class CorpusTotals(DocumentNumbers):
    """Numbers of several files; `hash_sum` is the sum of the kept documents' xxh3-128 mod 2^128."""

    hash_sum: Digest
    bad_files: list[str]
    reasons: Annotated[
        dict[str, Number], Field(description="Number of rejects by reason (docs/bad-data.md).")
    ]

    def document_totals(self) -> DocumentTotals:
        """Return the totals as numbers to add up."""
        return DocumentTotals.from_json(self.to_json())


class SourceEntry(CorpusTotals):
    """Numbers of one configured source."""

    name: str | None
    planned_bytes: PlannedBytes


class CountsTotals(CorpusTotals):
    """Numbers of all inputs and of the shards."""

    distinct_pretokens: Number
    pretokens: Number
    long_pretokens: Annotated[int, Field(ge=0, description="Too long, not counted.")]


class TokensTotals(CorpusTotals):
    """Numbers of all inputs and of the token files."""

    train_rows: Number
    validation_rows: Number
    tokens: Number
    text_bytes: Number


class GroupName(Record):
    """A group of documents; `value` is absent if counts are kept apart by source alone."""

    source: str
    value: str | None = None

    @property
    def group(self) -> Group:
        """The group."""
        return Group(self.source, self.value)

    @staticmethod
    def name(group: Group) -> dict[str, Any]:
        """Return the JSON values that name a group."""
        return {key: text for key, text in group._asdict().items() if text is not None}


class GroupDocuments(GroupName):
    """Documents of a group."""

    documents: Number

    @classmethod
    def list(cls, documents: Mapping[Group, int]) -> list[dict[str, Any]]:
        """Return the JSON values of several groups, in order."""
        return [{**cls.name(group), "documents": n} for group, n in sorted(documents.items())]


class GroupNumbers(GroupName):
    """Counts of a group."""

    distinct_pretokens: Number
    pretokens: Number
    bytes: Annotated[int, Field(ge=0, description="Bytes of all its pre-tokens.")]


class GroupEntry(GroupNumbers, GroupDocuments):
    """A group of documents whose counts are kept apart."""


class ShardRecord(ShardEntry):
    """The entry of a shard as a worker writes it; that of the first has totals of all."""

    sources: list[CorpusTotals] = []
    long_pretokens: Number = 0
    groups: list[GroupNumbers] = []
    group_documents: list[GroupDocuments] = []

    @property
    def entry(self) -> ShardEntry:
        """The entry in the manifest."""
        return ShardEntry.model_validate(self.to_json(*ShardEntry.model_fields))


class TaskEntry(Record):
    """The files and totals of an encoded task, as a worker writes them.

    `source` is the index of its source, `refused` the corpus of the documents that were rejected
    for special tokens, by input file.
    """

    index: Number
    source: Number
    totals: CorpusTotals
    inputs: dict[str, DocumentNumbers]
    refused: dict[str, Corpus]
    train: TokenFileEntry
    validation: TokenFileEntry | None
    rejects: TableEntry | None
    statistics: TableEntry

    @property
    def dataset_files(self) -> list[TableEntry]:
        """The files of the dataset that the task has written."""
        return [file for file in (self.train, self.validation, self.rejects) if file is not None]


class MixedGroup(Record):
    """A group of a mixture: its bytes, and its integer weight."""

    bytes: Number
    weight: Number


class MixtureEntry(Record):
    """Weights of the groups from which a tokenizer was trained (docs/mixtures.md).

    A weight of 2^scale_bits counts each occurrence once.
    """

    scale_bits: Number
    groups: dict[str, MixedGroup]
