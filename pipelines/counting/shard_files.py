"""Files of counts: their columns, row groups and metadata, however their rows are made."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bpe_core import PretokenCounts
from bpe_core.count_files import (
    FORMAT_VERSION,
    GROUPED_FORMAT_VERSION,
    columns_to_file,
    file_schema,
)
from bpe_core.count_groups import Group, groups_to_text
from pipelines.manifest.entries import GroupName
from pipelines.storage.directory import Directory

# A row group ends with the row that reaches one of these limits.
ROW_GROUP_ROWS: Final = 1 << 17
ROW_GROUP_BYTES: Final = 8 << 20
ROW_GROUP_ENTRIES: Final = 1 << 20
_DICTIONARIES: Final = ["groups.list.element.source", "groups.list.element.value"]
_HIGH: Final = 32
_LOW: Final = (1 << _HIGH) - 1


@dataclass(frozen=True, kw_only=True)
class CountColumns:
    """Columns that a file of counts has.

    Attributes:
        grouped: Counts are kept apart by group.
        groups: The groups of all files, sorted.
        by_value: Groups have a value besides the source.
        documents: Documents are counted.
    """

    grouped: bool = False
    groups: tuple[Group, ...] = ()
    by_value: bool = False
    documents: bool = False


def shard_name(shard: int, shards: int) -> str:
    """Return the name of a shard's file."""
    return f"shard-{shard:05d}-of-{shards:05d}.parquet"


class CountsFile:
    """File of counts that gets its name when it is complete.

    Args:
        directory: Directory of the file.
        name: Name of the file.
        metadata: How text was counted, and which text.
        columns: Columns of the file.
    """

    def __init__(
        self, directory: Directory, name: str, metadata: Mapping[str, str], columns: CountColumns
    ) -> None:
        self._name = name
        self._groups = columns.groups
        grouped, documents = columns.grouped, columns.documents
        self._schema = file_schema(grouped=grouped, by_value=columns.by_value, documents=documents)
        self._rows = self._count = 0
        described = {
            "bpe.format": GROUPED_FORMAT_VERSION if grouped or documents else FORMAT_VERSION,
            **{f"bpe.{key}": value for key, value in metadata.items()},
        }
        if grouped:
            described["bpe.groups"] = groups_to_text(columns.groups)
        numbers = ["count", "documents"] if documents else ["count"]
        of_groups = [f"groups.list.element.{name}" for name in numbers] if grouped else []
        with ExitStack() as stack:
            self._file = stack.enter_context(directory.write(name))
            self._writer = stack.enter_context(
                pq.ParquetWriter(
                    pa.PythonFile(self._file, "w"),
                    self._schema.with_metadata(described),
                    compression="zstd",
                    compression_level=1,
                    use_dictionary=_DICTIONARIES if grouped else False,
                    write_statistics=False,
                    column_encoding={
                        "pretoken": "DELTA_BYTE_ARRAY",
                        **dict.fromkeys([*numbers, *of_groups], "DELTA_BINARY_PACKED"),
                    },
                )
            )
            self._stack = stack.pop_all()

    def write(self, columns: Sequence[NDArray[Any]]) -> None:
        """Write a row group; see `columns_to_file`."""
        table = columns_to_file(columns, self._groups, self._schema)
        self._writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
        self._rows += len(columns[2])
        self._count += sum_exactly(columns[2])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            totals = {"rows": self._rows, "pretokens": self._count}
            self._writer.add_key_value_metadata({"bpe.totals": json.dumps(totals)})
        self._stack.__exit__(kind, error, traceback)

    def entry(self) -> dict[str, Any]:
        """Return the entry of the complete file."""
        return {
            "name": self._name,
            "rows": self._rows,
            "pretokens": self._count,
            "bytes": self._file.size,
            "xxh3_128": self._file.hexdigest,
        }


class RowGroups:
    """Rows in ascending order, cut into the row groups of a file as counting cuts them.

    Args:
        file: File that gets the row groups.
        columns: Columns of the file.
    """

    def __init__(self, file: CountsFile, columns: CountColumns) -> None:
        self._file = file
        self._columns = columns
        self._number_of = {group: number for number, group in enumerate(columns.groups)}
        self._buffered: list[tuple[NDArray[Any], ...]] = []
        self._limits = (ROW_GROUP_ROWS, ROW_GROUP_BYTES, ROW_GROUP_ENTRIES)
        self._size = [0, 0, 0]  # rows, bytes and entries that are buffered
        groups = len(columns.groups)
        self._totals = [[0, 0, 0] for _ in range(groups)]

    def add(self, rows: PretokenCounts) -> None:
        """Add rows, and write the row groups that are complete."""
        if not len(rows):
            return
        arrays = self._arrays_of(rows)
        self._buffered.append(arrays)
        for i, size in enumerate((len(arrays[0]), len(arrays[1]), len(arrays[5]))):
            self._size[i] += size
        while any(size >= limit for size, limit in zip(self._size, self._limits, strict=True)):
            self._write()

    def finish(self) -> dict[str, Any]:
        """Write the last row group. Return the sums of each group for the entry of the file."""
        if self._size[0]:
            self._write()
        if not self._columns.grouped:
            return {}
        names = ("distinct_pretokens", "pretokens", "bytes")
        return {
            "groups": [
                {**GroupName.name(group), **dict(zip(names, totals, strict=True))}
                for group, totals in zip(self._columns.groups, self._totals, strict=True)
            ]
        }

    def _arrays_of(self, rows: PretokenCounts) -> tuple[NDArray[Any], ...]:
        """Return lengths, keys, counts, documents; of groups: lengths, groups, counts, documents"""
        keys, offsets, counts = rows.columns()
        lengths = np.diff(offsets)
        keys = keys[offsets[0] : offsets[-1]]
        nothing = np.zeros(0, np.int64)
        documents = rows.documents() if self._columns.documents else nothing
        entries = rows.group_columns() if self._columns.grouped else None
        assert documents is not None, "all rows have the columns of the file"
        if entries is None:
            of_rows = np.zeros(len(counts), np.int64)
            return (
                lengths,
                keys,
                counts,
                documents,
                of_rows,
                nothing.astype(np.int32),
                nothing,
                nothing,
            )
        numbers = np.array([self._number_of[group] for group in rows.groups], np.int32)
        of_groups = entries.documents if self._columns.documents else nothing
        assert of_groups is not None, "all rows have the columns of the file"
        groups = numbers[entries.groups]
        self._add_totals(groups, entries.counts, lengths[entries.rows()])
        of_rows = np.diff(entries.offsets)
        return lengths, keys, counts, documents, of_rows, groups, entries.counts, of_groups

    def _add_totals(
        self, groups: NDArray[np.int32], counts: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> None:
        for group in np.unique(groups).tolist():
            of_group = groups == group
            totals = self._totals[group]
            totals[0] += int(of_group.sum())
            totals[1] += sum_exactly(counts[of_group])
            totals[2] += sum(
                length * sum_exactly(counts[of_group & (lengths == length)])
                for length in np.unique(lengths[of_group]).tolist()
            )

    def _write(self) -> None:
        """Write the first row group of the buffered rows."""
        lengths, keys, counts, documents, of_rows, groups, group_counts, of_groups = (
            np.concatenate(parts) for parts in zip(*self._buffered, strict=True)
        )
        key_ends, entry_ends = np.cumsum(lengths), np.cumsum(of_rows)
        cut = min(
            len(lengths),
            ROW_GROUP_ROWS,
            int(np.searchsorted(key_ends, ROW_GROUP_BYTES)) + 1,
            int(np.searchsorted(entry_ends, ROW_GROUP_ENTRIES)) + 1,
        )
        at, entry = int(key_ends[cut - 1]), int(entry_ends[cut - 1])
        self._file.write(
            (
                keys[:at],
                np.append(0, key_ends[:cut]).astype(np.int64),
                counts[:cut],
                documents[:cut],
                np.append(0, entry_ends[:cut]).astype(np.int64),
                groups[:entry],
                group_counts[:entry],
                of_groups[:entry],
            )
        )
        left = (
            lengths[cut:],
            keys[at:],
            counts[cut:],
            documents[cut:],
            of_rows[cut:],
            groups[entry:],
            group_counts[entry:],
            of_groups[entry:],
        )
        self._buffered = [left]
        self._size = [len(left[0]), len(left[1]), len(left[5])]


def sum_exactly(counts: NDArray[np.int64]) -> int:
    """Return the sum of counts above 0, which may need more than 64 bits."""
    high, low = int((counts >> _HIGH).sum()), int((counts & _LOW).sum())
    return (high << _HIGH) + low
