"""External sort of token rows: each bundle writes sorted runs, and a shard merges sections of all.

A section has the rows of one shard, in the order of `token_order`. Merging reads sections block by
block, so memory grows with neither the number of rows nor their length.
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

# A bundle holds so many bytes of rows before it writes a run, or more if they have many shards: a
# shard's section of a run should be worth a read.
_RUN_BYTES: Final = 16 << 20
_SECTION_BYTES: Final = 16 << 10
# A merge holds a block of each section, so a block is small, and so is the largest row in one.
_BLOCK_BYTES: Final = 64 << 10
_LARGE_ROW_IDS: Final = 1 << 14
# Buffers of all sections of a merge together, and what is read of one at once at most.
_BUFFER_BYTES: Final = 32 << 20
_CHUNK_BYTES: Final = 1 << 20


class RowRuns:
    """Writes token rows to sorted runs.

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
        """Add rows, in any order, and write a run when they are many."""
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
        sections: The sections. If they are many, groups of them are merged into runs first.
        scratch: Gets the names of these runs, which the caller must remove in the end.

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
    # The sections follow each other without gaps, so together they are one.
    return Section(run=run, offset=0, length=sum(part.length for part in parts))


def _merge(directory: Directory, sections: Sequence[Section]) -> Iterator[pa.Table]:
    """Yield in rounds every row that sorts before the earliest of the sections' last held rows."""
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
        # Sections are sorted, so the rows left of each are its last ones.
        yielded = np.zeros(len(order), np.int64)
        yielded[order[:known]] = 1
        numbers = np.add.reduceat(yielded, bounds[:-1]).tolist()
        for cursor, part, number in zip(cursors, tables, numbers, strict=True):
            cursor.put_back(part.slice(number))
        cursors = [cursor for cursor in cursors if not cursor.is_done]


class _Cursor:
    """Holds the next rows of a section in a merge."""

    def __init__(self, directory: Directory, section: Section, share: int) -> None:
        # At most two chunks are held: what was put back, and what is filled up.
        self._chunk_bytes = min(max(share // 2, _SECTION_BYTES), _CHUNK_BYTES)
        # Ids of sections differ in width; a block has the type that its header names.
        schema = table_schema(np.dtype(np.uint32).itemsize)
        self._reader = SectionReader(directory, section, schema, self._chunk_bytes)
        self._tables: list[pa.Table] = []
        self._held = 0

    @property
    def has_more(self) -> bool:
        """Whether there are rows that are not held yet."""
        return self._reader.has_more

    @property
    def is_done(self) -> bool:
        """Whether there are no more rows, held or not."""
        return not self._tables and not self.has_more

    def fill(self) -> None:
        """Read until a chunk of rows is held, or all rows are."""
        while self.has_more and self._held < self._chunk_bytes:
            table = self._reader.read_block()
            self._tables.append(table)
            self._held += table.nbytes

    def take(self) -> pa.Table:
        """Return the held rows, and hold none."""
        table = concat_tables(self._tables)
        self._tables, self._held = [], 0
        return table

    def put_back(self, table: pa.Table) -> None:
        """Hold rows for the next round."""
        if len(table):
            self._tables, self._held = [table], table.nbytes
