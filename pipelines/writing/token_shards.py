"""Token rows → token files ordered by the hash of the text, one merge per file, and totals."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from pipelines.errors import InputError
from pipelines.manifest.names import token_file_name
from pipelines.manifest.shards import ShardFiles
from pipelines.manifest.token_schema import schema
from pipelines.sorting.arrow_lists import to_offsets
from pipelines.sorting.spill import Section, restore_rows, row_lengths
from pipelines.storage.directory import Directory
from pipelines.supervisor import current_task
from pipelines.writing.jobs import FORMAT_VERSION
from pipelines.writing.rows import TokenRows
from pipelines.writing.token_file import TokenFile, fills_row_group, row_group_end
from pipelines.writing.token_order import concat_tables, join_pieces, to_rows
from pipelines.writing.token_runs import merge_sections

_SMALLEST_ITEMSIZE: Final = np.dtype(np.uint16).itemsize


@dataclass(frozen=True, kw_only=True)
class TokenShards:
    """Token files without tasks, made from sorted runs. Small, since every worker receives it.

    Attributes:
        files: Destination of the files. Their prefix is the name of the split.
        id_type: "uint16", "uint32", or "auto" for the widest type of any row.
    """

    files: ShardFiles
    id_type: str

    @staticmethod
    def files_of(output: Directory, number: int, split: str) -> ShardFiles:
        """Return the token files of a split."""
        return ShardFiles.below(output, number=number, prefix=split, listing=f"{split}-shards.json")

    def merge(self, shard: int, descriptors: Iterable[bytes], totals: bytes) -> dict[str, Any]:
        """Write the file of a shard. See `merge_token_shard`."""
        return merge_token_shard(self, shard, descriptors, RowTotals.from_bytes(totals))

    def measure(self, entry: Mapping[str, Any]) -> dict[str, int]:
        """Return the metrics of a file."""
        names = {"documents": "documents", "bytes": "text_bytes", "tokens": "tokens"}
        return {metric: entry[name] for metric, name in names.items()}

    def add_totals(self, parts: Iterable[bytes]) -> bytes:
        """Add up the totals of bundles."""
        return RowTotals.sum_of(map(RowTotals.from_bytes, parts)).to_bytes()

    def list_totals(self, totals: bytes) -> dict[str, Any]:
        """Return the totals in the form of the listing."""
        return RowTotals.from_bytes(totals).to_json()


@dataclass(frozen=True, kw_only=True)
class RowTotals:
    """Sums over rows, and properties of all rows that the files need.

    Attributes:
        rows, documents, tokens: Numbers of them.
        text_bytes: Bytes of the documents' source text.
        itemsize: Bytes of an id in the widest rows.
        record_ids: True if any row has an id of its own.
    """

    rows: int = 0
    documents: int = 0
    tokens: int = 0
    text_bytes: int = 0
    itemsize: int = _SMALLEST_ITEMSIZE
    record_ids: bool = False

    @classmethod
    def of(cls, rows: TokenRows) -> RowTotals:
        """Return the totals of rows."""
        return cls(
            rows=len(rows),
            documents=rows.documents,
            tokens=int(rows.offsets[-1] - rows.offsets[0]),
            text_bytes=int(rows.num_bytes.sum()),
            itemsize=rows.ids.itemsize,
            record_ids=rows.record_ids is not None and rows.record_ids.null_count < len(rows),
        )

    @classmethod
    def sum_of(cls, parts: Iterable[RowTotals]) -> RowTotals:
        """Add up totals."""
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
        """Return the numbers that the files must add up to."""
        numbers = asdict(self)
        return {key: numbers[key] for key in ("rows", "documents", "tokens", "text_bytes")}

    def to_bytes(self) -> bytes:
        """Return the totals in the form in which they are shuffled."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> RowTotals:
        """Return the totals that `to_bytes` wrote."""
        return cls(**json.loads(data))


def describe_sections(sections: Mapping[int, Sequence[Section]]) -> Iterator[tuple[int, bytes]]:
    """Yield each shard's number with a descriptor of its sections in the runs of a bundle."""
    for shard, found in sections.items():
        yield shard, json.dumps([[s.run, s.offset, s.length] for s in found]).encode()


def merge_token_shard(
    job: TokenShards, shard: int, descriptors: Iterable[bytes], totals: RowTotals
) -> dict[str, Any]:
    """Merge the sections of a shard into its token file. Return the file's entry.

    Args:
        job: Description of the token files.
        shard: Number of the shard.
        descriptors: Descriptors of its sections. Empty ones have none.
        totals: Totals of all rows of the input.

    Raises:
        InputError: An id does not fit the requested type, or a document lacks a chunk.
        OutputError: A run is missing or damaged, or the file cannot be written.
    """
    files = job.files
    id_type = f"uint{8 * totals.itemsize}" if job.id_type == "auto" else job.id_type
    name = token_file_name(files.prefix, shard, files.number)
    metadata = {
        "bpe.format": FORMAT_VERSION,
        "bpe.shard": json.dumps({"index": shard, "of": files.number}),
    }
    columns = schema(id_type, record_ids=totals.record_ids)
    scratch: list[str] = []
    try:
        with (
            current_task(f"merging token shard {shard} of {files.number}"),
            TokenFile(files.output, name, columns, metadata) as file,
        ):
            sections = list(_read_descriptors(descriptors))
            merged = join_pieces(merge_sections(files.runs, sections, scratch))
            for rows in _row_groups(files.runs, merged, np.dtype(id_type).type):
                file.add(rows)
            file.finish()
    except OverflowError as error:
        raise InputError(
            "An id does not fit the requested type.",
            expected=f"ids of id_type {job.id_type!r}",
            found=str(error),
            where=files.output.path(name),
            hint="Set id_type to 'uint32' or 'auto'.",
        ) from None
    finally:
        files.runs.remove_files(scratch)
    return file.entry


def _read_descriptors(texts: Iterable[bytes]) -> Iterator[Section]:
    for text in filter(None, texts):
        for run, offset, length in json.loads(text):
            yield Section(run=run, offset=offset, length=length)


def _row_groups(
    runs: Directory, merged: Iterable[pa.Table], dtype: type[Any]
) -> Iterator[TokenRows]:
    """Yield merged rows by row groups, which do not depend on the division into sections."""
    pending: list[pa.Table] = []
    rows = tokens = 0
    for table in merged:
        offsets = to_offsets(row_lengths(table))
        first = 0
        while first < len(table):
            end = row_group_end(offsets, first, rows, tokens)
            pending.append(table.slice(first, end - first))
            rows += end - first
            tokens += int(offsets[end] - offsets[first])
            first = end
            if fills_row_group(rows, tokens):
                yield _restore(runs, pending, dtype)
                pending, rows, tokens = [], 0, 0
    if pending:
        yield _restore(runs, pending, dtype)


def _restore(runs: Directory, tables: Sequence[pa.Table], dtype: type[Any]) -> TokenRows:
    """Return the rows of a row group with the ids of large ones."""
    parts = [part for table in tables for part in restore_rows(runs, table)]
    return to_rows(concat_tables(parts), dtype)
