"""External sort of token rows: bundles write sorted runs, and shards merge sections of all runs.

A section contains the rows of one shard, in the order of `token_order`. Merging reads sections
block by block, so memory grows with neither the number of rows nor their length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from pipelines.manifest.names import new_run_name
from pipelines.sorting.arrow_lists import take_rows, to_offsets
from pipelines.sorting.spill import ROW_BYTES, Section, SectionReader, SpillWriter
from pipelines.storage.directory import Directory
from pipelines.writing.rows import TokenRows
from pipelines.writing.token_order import (
    concat_tables,
    find_order,
    find_shards,
    sort_rows,
    table_schema,
    to_table,
)

MERGED_AT_ONCE: Final = 128

# Bytes of rows that a bundle gathers before it writes a run. With many shards it is more, since a
# shard's section of a run should be large enough for an efficient read.
_RUN_BYTES: Final = 16 << 20
_SECTION_BYTES: Final = 16 << 10
# A merge holds a block of each section, so blocks and the rows in them are small.
_BLOCK_BYTES: Final = 64 << 10
_LARGE_ROW_IDS: Final = 1 << 14
# Buffers of all sections of a merge together, and maximum size of one read.
_BUFFER_BYTES: Final = 32 << 20
_CHUNK_BYTES: Final = 1 << 20


class RowRuns:
    """Writer of token rows to sorted runs.

    Args:
        directory: Directory of the runs.
        shards: Number of shards.
    """

    def __init__(self, directory: Directory, shards: int) -> None:
        self._directory = directory
        self._shards = shards
        self._run_bytes = max(_RUN_BYTES, shards * _SECTION_BYTES)
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0
        self._sections: dict[int, list[Section]] = {}

    def add(self, rows: TokenRows) -> None:
        """Add rows, in any order, and write a run when there are enough."""
        self._pending.append(to_table(rows))
        self._pending_bytes += rows.ids.nbytes + ROW_BYTES * len(rows)
        if self._pending_bytes >= self._run_bytes:
            self._flush()

    def finish(self) -> dict[int, list[Section]]:
        """Write the last run. Return the sections of each shard that has rows."""
        if self._pending:
            self._flush()
        return self._sections

    def _flush(self) -> None:
        table = concat_tables(self._pending)
        self._pending, self._pending_bytes = [], 0
        if not len(table):
            return
        run = new_run_name()
        with self._directory.write(run) as file:
            spill = SpillWriter(file, run, _LARGE_ROW_IDS, _BLOCK_BYTES)
            table = sort_rows(spill.set_large_rows_apart(table))
            bounds = find_shards(table, self._shards).tolist()
            for shard in np.flatnonzero(np.diff(bounds)).tolist():
                rows = table.slice(bounds[shard], bounds[shard + 1] - bounds[shard])
                self._sections.setdefault(shard, []).append(spill.write_section(rows))


def merge_sections(
    directory: Directory, sections: Sequence[Section], scratch: list[str]
) -> Iterator[pa.Table]:
    """Yield the rows of a shard's sections in order, as tables of a few MB with large rows apart.

    Args:
        directory: Directory of the runs.
        sections: The sections. If there are many, groups of them are first merged into runs.
        scratch: List to which the names of these runs are added; the caller must remove them.

    Raises:
        OutputError: A run is missing or damaged.
    """
    sections = list(sections)
    while len(sections) > MERGED_AT_ONCE:
        groups = [
            sections[first : first + MERGED_AT_ONCE]
            for first in range(0, len(sections), MERGED_AT_ONCE)
        ]
        sections = [_merge_to_run(directory, group, scratch) for group in groups]
    yield from _merge(directory, sections)


def _merge_to_run(directory: Directory, sections: Sequence[Section], scratch: list[str]) -> Section:
    run = new_run_name()
    scratch.append(run)
    with directory.write(run) as file:
        spill = SpillWriter(file, run, _LARGE_ROW_IDS, _BLOCK_BYTES)
        parts = [spill.write_section(table) for table in _merge(directory, sections)]
    # The sections are adjacent, so together they are one.
    return Section(run=run, offset=0, length=sum(part.length for part in parts))


def _merge(directory: Directory, sections: Sequence[Section]) -> Iterator[pa.Table]:
    """Yield, in rounds, the rows that precede the earliest of the sections' last buffered rows."""
    share = _BUFFER_BYTES // max(len(sections), 1)
    cursors = [_Cursor(directory, section, share) for section in sections]
    while cursors:
        for cursor in cursors:
            cursor.fill()
        tables = [cursor.take() for cursor in cursors]
        table = concat_tables(tables)
        order = find_order(table)
        bounds = to_offsets(np.array([len(part) for part in tables]))
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        last = [
            rank[end - 1]
            for end, cursor in zip(bounds[1:], cursors, strict=True)
            if cursor.has_more
        ]
        known = 1 + int(min(last)) if last else len(order)
        yield take_rows(table, order[:known])
        # Sections are sorted, so the remaining rows of each are its last ones.
        yielded = np.zeros(len(order), np.int64)
        yielded[order[:known]] = 1
        numbers = np.add.reduceat(yielded, bounds[:-1]).tolist()
        for cursor, part, number in zip(cursors, tables, numbers, strict=True):
            cursor.put_back(part.slice(number))
        cursors = [cursor for cursor in cursors if not cursor.is_done]


class _Cursor:
    """Buffer for the next rows of a section in a merge."""

    def __init__(self, directory: Directory, section: Section, share: int) -> None:
        # At most two chunks are buffered: returned rows and newly read ones.
        self._chunk_bytes = min(max(share // 2, _SECTION_BYTES), _CHUNK_BYTES)
        # Ids of sections differ in width; the header of a block contains the type.
        schema = table_schema(np.dtype(np.uint32).itemsize)
        self._reader = SectionReader(directory, section, schema, self._chunk_bytes)
        self._tables: list[pa.Table] = []
        self._held = 0

    @property
    def has_more(self) -> bool:
        """Return True if there are rows that are not buffered yet."""
        return self._reader.has_more

    @property
    def is_done(self) -> bool:
        """Return True if there are no more rows, buffered or not."""
        return not self._tables and not self.has_more

    def fill(self) -> None:
        """Read until a chunk of rows is buffered, or all rows are."""
        while self.has_more and self._held < self._chunk_bytes:
            table = self._reader.read_block()
            self._tables.append(table)
            self._held += table.nbytes

    def take(self) -> pa.Table:
        """Return the buffered rows, and empty the buffer."""
        table = concat_tables(self._tables)
        self._tables, self._held = [], 0
        return table

    def put_back(self, table: pa.Table) -> None:
        """Return rows to the buffer for the next round."""
        if len(table):
            self._tables, self._held = [table], table.nbytes
