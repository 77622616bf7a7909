"""Token rows → token files by the hash of the text: runs, a merge for each file, the totals."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from pipelines.errors import InputError
from pipelines.manifest.names import token_file_name
from pipelines.manifest.token_schema import schema
from pipelines.sorting.arrow_lists import offsets_of
from pipelines.storage.directory import Directory
from pipelines.supervisor import current_task
from pipelines.writing.jobs import FORMAT_VERSION
from pipelines.writing.rows import Rows
from pipelines.writing.token_file import TokenFile, fills_row_group, row_group_end
from pipelines.writing.token_order import TokenTable, joined, whole_documents
from pipelines.writing.token_runs import (
    RowSection,
    large_row,
    lengths_of,
    merge_sections,
    rows_apart,
)

_UINT16_BYTES: Final = 2


@dataclass(frozen=True, kw_only=True)
class ShardJob:
    """All that workers need to know to write token shards; small, and the same for all of them.

    Attributes:
        output: directory of the files.
        runs: where the runs are.
        shards: number of files.
        split: first part of their names.
        id_type: "uint16", "uint32", or "auto": what the rows have.
    """

    output: Directory
    runs: Directory
    shards: int
    split: str
    id_type: str

    @property
    def names(self) -> str:
        """The pattern of the names of the files, whatever their number."""
        return rf"{re.escape(self.split)}-\d+-of-\d+\.parquet"

    @property
    def listing(self) -> str:
        """The file that lists them."""
        return f"{self.split}-shards.json"

    def merge(self, shard: int, found: Iterable[bytes], totals: bytes) -> dict[str, Any]:
        """What `merge_token_shard` does."""
        return merge_token_shard(self, shard, found, RowTotals.from_bytes(totals))

    def measured(self, entry: Mapping[str, Any]) -> dict[str, int]:
        """What metrics say of a file."""
        names = {"documents": "documents", "bytes": "text_bytes", "tokens": "tokens"}
        return {metric: entry[name] for metric, name in names.items()}

    def listed(self, totals: bytes) -> dict[str, Any]:
        """What the listing says of the totals."""
        return RowTotals.from_bytes(totals).to_json()


@dataclass(frozen=True, kw_only=True)
class RowTotals:
    """What rows add up to, and what their files need to know of all of them.

    Attributes:
        rows, documents, tokens: numbers.
        text_bytes: of the documents' source text.
        itemsize: bytes of an id, the most that any row has.
        record_ids: whether any row has an id of its own.
    """

    rows: int = 0
    documents: int = 0
    tokens: int = 0
    text_bytes: int = 0
    itemsize: int = _UINT16_BYTES
    record_ids: bool = False

    @classmethod
    def of(cls, rows: Rows) -> RowTotals:
        """Of these rows."""
        return cls(
            rows=len(rows),
            documents=int(np.count_nonzero(rows.part_numbers == 0)),
            tokens=int(rows.offsets[-1] - rows.offsets[0]),
            text_bytes=int(rows.num_bytes.sum()),
            itemsize=rows.ids.itemsize,
            record_ids=rows.record_ids is not None and rows.record_ids.null_count < len(rows),
        )

    @classmethod
    def sum_of(cls, parts: Iterable[RowTotals]) -> RowTotals:
        """Of all parts together."""
        whole = cls()
        for part in parts:
            whole = cls(
                rows=whole.rows + part.rows,
                documents=whole.documents + part.documents,
                tokens=whole.tokens + part.tokens,
                text_bytes=whole.text_bytes + part.text_bytes,
                itemsize=max(whole.itemsize, part.itemsize),
                record_ids=whole.record_ids or part.record_ids,
            )
        return whole

    def to_json(self) -> dict[str, int]:
        """The numbers that files must add up to."""
        numbers = asdict(self)
        return {key: numbers[key] for key in ("rows", "documents", "tokens", "text_bytes")}

    def to_bytes(self) -> bytes:
        """All of it, as it is shuffled."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> RowTotals:
        """What `to_bytes` gave."""
        return cls(**json.loads(data))


def descriptors(sections: dict[int, list[RowSection]]) -> Iterator[tuple[int, bytes]]:
    """What each shard that has rows in the runs of a bundle has to know of them."""
    for shard, found in sections.items():
        yield shard, json.dumps([[s.run, s.offset, s.length] for s in found]).encode()


def total_of_rows(parts: Iterable[bytes]) -> bytes:
    """What totals, as they are shuffled, add up to."""
    return RowTotals.sum_of(map(RowTotals.from_bytes, parts)).to_bytes()


def merge_token_shard(
    job: ShardJob, shard: int, found: Iterable[bytes], totals: RowTotals
) -> dict[str, Any]:
    """Merges the sections of a shard into its token file; gives the file's entry.

    Args:
        job: what is written.
        shard: its number.
        found: descriptors of its sections; empty ones say nothing.
        totals: of all rows that went in.

    Raises:
        InputError: an id does not fit the type asked for, or a document lacks a piece.
        OutputError: a run is missing or damaged, or the file can't be written.
    """
    sections = [
        RowSection(run=run, offset=offset, length=length)
        for text in found
        if text
        for run, offset, length in json.loads(text)
    ]
    uint16 = job.id_type == "uint16" or (job.id_type == "auto" and totals.itemsize == _UINT16_BYTES)
    columns = schema("uint16" if uint16 else "uint32", record_ids=totals.record_ids)
    name = token_file_name(job.split, shard, job.shards)
    metadata = {
        "bpe.format": FORMAT_VERSION,
        "bpe.shard": json.dumps({"index": shard, "of": job.shards}),
    }
    scratch: list[str] = []
    try:
        with (
            current_task(f"merging token shard {shard} of {job.shards}"),
            TokenFile(job.output, name, columns, metadata) as file,
        ):
            merged = whole_documents(merge_sections(job.runs, sections, scratch))
            for rows in _row_groups(job.runs, merged, np.uint16 if uint16 else np.uint32):
                file.add(rows)
            file.finish()
    except OverflowError as error:
        raise InputError(
            "An id does not fit the type asked for.",
            expected=f"ids of id_type {job.id_type!r}",
            found=str(error),
            where=job.output.path(name),
            hint="Set id_type to 'uint32' or 'auto'.",
        ) from None
    finally:
        job.runs.remove_files(scratch)
    return file.entry


def _row_groups(
    runs: Directory, merged: Iterable[pa.Table], dtype: type[Any]
) -> Iterator[TokenTable]:
    """Rows by row groups, so that no file shows how its sections were cut."""
    pending: list[pa.Table] = []
    rows = tokens = 0
    for table in merged:
        offsets = offsets_of(lengths_of(table))
        first = 0
        while first < len(table):
            end = row_group_end(offsets, first, rows, tokens)
            pending.append(table.slice(first, end - first))
            rows += end - first
            tokens += int(offsets[end] - offsets[first])
            first = end
            if fills_row_group(rows, tokens):
                yield _whole(runs, pending, dtype)
                pending, rows, tokens = [], 0, 0
    if pending:
        yield _whole(runs, pending, dtype)


def _whole(runs: Directory, tables: Sequence[pa.Table], dtype: type[Any]) -> TokenTable:
    """The rows of a row group with all their ids."""
    parts: list[pa.Table] = []
    for table in tables:
        first = 0
        for row in rows_apart(table).tolist():
            parts += [table.slice(first, row - first), large_row(runs, table.slice(row, 1))]
            first = row + 1
        parts.append(table.slice(first))
    return TokenTable.of(joined(parts), dtype)
