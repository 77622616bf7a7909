"""Parquet files of rows for training, with row groups that are bounded in rows and ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from pipelines.exports.records import RowFileNote
from pipelines.storage.directory import Directory
from pipelines.storage.parquet import ParquetOutput

# Ids of a row group, unless a number of rows was requested; the same as in token files.
GROUP_IDS: Final = 1 << 20
# Ids that Arrow encodes at once: as many as a page contains. Its default of 1,024 is slower.
_BATCH_IDS: Final = 1 << 18
_MOST_GROUP_IDS: Final = 1 << 24


@dataclass(frozen=True, kw_only=True)
class RowFormat:
    """Format of the rows of a file.

    Attributes:
        schema: Columns of the file.
        group_rows: Maximum number of rows of a row group.
        group_ids: Number of ids that fill a row group.
        delta: Columns to encode as differences, such as positions.
        dictionary: Columns to encode with a dictionary, as they have few different values.
    """

    schema: pa.Schema
    group_rows: int
    group_ids: int = GROUP_IDS
    delta: tuple[str, ...] = ()
    dictionary: tuple[str, ...] = ()

    def with_group_rows(self, rows: int | None) -> RowFormat:
        """Return the format with this number of rows per row group, or unchanged for None."""
        if rows is None:
            return self
        return RowFormat(**{**vars(self), "group_rows": rows, "group_ids": _MOST_GROUP_IDS})


class RowFile(ParquetOutput):
    """File of rows that gets its name when it is complete.

    Its bytes depend on the rows alone, not on their division into tables.

    Args:
        directory: Directory of the file.
        name: Name of the file.
        row_format: Format of the rows.
        metadata: Metadata for the footer.
        complete: Function that adds the remaining columns to the rows of a row group.
    """

    def __init__(
        self,
        directory: Directory,
        name: str,
        row_format: RowFormat,
        metadata: Mapping[str, str],
        complete: Callable[[pa.Table], pa.Table],
    ) -> None:
        super().__init__(
            directory,
            name,
            row_format.schema,
            metadata,
            use_dictionary=list(row_format.dictionary),
            column_encoding=dict.fromkeys(row_format.delta, "DELTA_BINARY_PACKED") or None,
            write_batch_size=_BATCH_IDS,
        )
        self._format = row_format
        self._complete = complete
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self._pending_ids = 0
        self.rows = 0
        self.tokens = 0

    def add(self, table: pa.Table) -> None:
        """Add rows, and write each row group that they fill."""
        ids = np.cumsum(table["num_tokens"].to_numpy(), dtype=np.int64)
        first = 0
        while first < len(table):
            before = int(ids[first - 1]) if first else 0
            room = self._format.group_ids - self._pending_ids
            filling = int(np.searchsorted(ids, before + room, "left")) + 1
            end = min(len(table), filling, first + self._format.group_rows - self._pending_rows)
            self._pending.append(table.slice(first, end - first))
            self._pending_rows += end - first
            self._pending_ids += int(ids[end - 1]) - before
            first = end
            if (
                self._pending_rows >= self._format.group_rows
                or self._pending_ids >= self._format.group_ids
            ):
                self._write_row_group()

    def finish(self) -> None:
        """Write the last row group and the footer. The file keeps its temporary name."""
        if self._pending:
            self._write_row_group()
        self._close({"rows": self.rows, "tokens": self.tokens})

    @property
    def entry(self) -> RowFileNote:
        """Return the file's entry of the manifest, once the file is closed."""
        return RowFileNote(
            name=self._name,
            rows=self.rows,
            tokens=self.tokens,
            bytes=self._file.size,
            xxh3_128=self._file.hexdigest,
        )

    def _write_row_group(self) -> None:
        # One chunk for each column: Arrow ends a page at the end of a chunk.
        table = self._complete(pa.concat_tables(self._pending).combine_chunks())
        self._writer.write_table(table.cast(self._format.schema), row_group_size=len(table))
        self.rows += self._pending_rows
        self.tokens += self._pending_ids
        self._pending, self._pending_rows, self._pending_ids = [], 0, 0
