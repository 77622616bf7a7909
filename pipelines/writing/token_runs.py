"""Sorted run files of token rows, and merging them without holding more than a block of each.

A bundle writes *runs*: files with a section for each shard that has rows in it, in the order of
`token_table`. A section is blocks of rows, each with its length and hash before it. Rows with many
ids stay in the run that they were first written to until it is their turn in a token file, so that
blocks are small however long documents are.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from numpy.typing import NDArray

from pipelines.errors import OutputError
from pipelines.sorting.arrow_lists import gathered, list_array, list_values, offsets_of, take_rows
from pipelines.storage.directory import Directory
from pipelines.writing.rows import TokenRows
from pipelines.writing.token_order import (
    TokenTable,
    id_hashes,
    joined,
    order_of,
    ordered,
    shard_bounds,
    table_of,
    table_schema,
)

# Rows that a bundle holds before it writes a run, and of which a shard's share is worth a read.
_RUN_BYTES: Final = 16 << 20
_SECTION_BYTES: Final = 16 << 10
# What a row takes beside its ids, about.
_ROW_BYTES: Final = 128
_BLOCK_BYTES: Final = 64 << 10
_BLOCK_ROWS: Final = 1 << 10
# Rows with more ids stay out of the blocks.
_LARGE_ROW_IDS: Final = 1 << 14
_LARGE_ROW_DTYPE: Final = "<u4"
MERGED_AT_ONCE: Final = 128
# Of a merge's sections together; read of one at a time at most.
_BUFFER_BYTES: Final = 32 << 20
_CHUNK_BYTES: Final = 1 << 20
_RUN: Final = "_run"
_PLACE: Final = "_place"
_LENGTH: Final = "_length"
_APART: Final = (
    pa.field(_RUN, pa.string()),
    pa.field(_PLACE, pa.int64()),
    pa.field(_LENGTH, pa.int64()),
)
# Before each block: its bytes, their xxh3-64, bytes of an id.
_HEADER: Final = np.dtype([("length", "<u8"), ("digest", "<u8"), ("itemsize", "<u8")])


@dataclass(frozen=True, kw_only=True)
class RowSection:
    """The rows of a shard in a run: which bytes of which file."""

    run: str
    offset: int
    length: int


class RowRuns:
    """Writes token rows to runs.

    Args:
        directory: of the runs.
        shards: number of shards that rows are dealt to.
    """

    def __init__(self, directory: Directory, shards: int) -> None:
        self._directory = directory
        self._shards = shards
        self._run_bytes = max(_RUN_BYTES, shards * _SECTION_BYTES)
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0
        self._sections: dict[int, list[RowSection]] = {}

    def add(self, rows: TokenRows | TokenTable) -> None:
        """Takes rows, in any order."""
        self._pending.append(table_of(rows))
        self._pending_bytes += rows.ids.nbytes + _ROW_BYTES * len(rows)
        if self._pending_bytes >= self._run_bytes:
            self._flush()

    def finish(self) -> dict[int, list[RowSection]]:
        """Writes what is left; gives the sections of each shard that has rows."""
        if self._pending:
            self._flush()
        return self._sections

    def _flush(self) -> None:
        table = joined(self._pending)
        self._pending, self._pending_bytes = [], 0
        if not len(table):
            return
        run = f"run-{secrets.token_hex(16)}.bin"
        with self._directory.write(run) as file:
            table = ordered(_large_rows_apart(table, run, file))
            bounds = shard_bounds(table, self._shards).tolist()
            for shard in np.flatnonzero(np.diff(bounds)).tolist():
                offset = file.size
                write_blocks(file, table.slice(bounds[shard], bounds[shard + 1] - bounds[shard]))
                section = RowSection(run=run, offset=offset, length=file.size - offset)
                self._sections.setdefault(shard, []).append(section)


def _large_rows_apart(table: pa.Table, run: str, file: Any) -> pa.Table:
    """The table with the places of large rows, whose ids go to the file, instead of the ids."""
    ids, offsets = list_values(table["input_ids"])
    lengths = np.diff(offsets)
    places = np.zeros(len(table), np.int64)
    large = lengths > _LARGE_ROW_IDS
    for row in np.flatnonzero(large).tolist():
        places[row] = file.size
        file.write(np.ascontiguousarray(ids[offsets[row] : offsets[row + 1]], _LARGE_ROW_DTYPE))
    if large.any():
        at = table.schema.get_field_index("input_ids")
        field = table.schema.field(at)
        kept = gathered(ids, offsets[:-1], np.where(large, 0, lengths))
        table = table.set_column(at, field, list_array(*kept, field.type))
    runs = pc.if_else(pa.array(large), pa.scalar(run), pa.scalar(None, pa.string()))
    for field, values in zip(_APART, (runs, places, lengths), strict=True):
        column = pa.array(values) if isinstance(values, np.ndarray) else values
        table = table.add_column(table.num_columns - 1, field, column)
    return table


def write_blocks(file: Any, table: pa.Table) -> None:
    """Writes rows, which have the columns of a run, in blocks."""
    ids, offsets = list_values(table["input_ids"])
    first = 0
    while first < len(table):
        room = offsets[first] + _BLOCK_BYTES // ids.itemsize
        end = int(np.searchsorted(offsets, room, side="left"))
        end = min(max(end, first + 1), first + _BLOCK_ROWS, len(table))
        [batch] = table.slice(first, end - first).combine_chunks().to_batches()
        block = batch.serialize()
        digest = xxhash.xxh3_64_intdigest(block)
        file.write(np.array([(block.size, digest, ids.itemsize)], _HEADER))
        file.write(block)
        first = end


def merge_sections(
    directory: Directory, sections: Sequence[RowSection], scratch: list[str]
) -> Iterator[pa.Table]:
    """The rows of sections in order, as tables of a few MB with the columns of a run.

    Args:
        directory: of the runs.
        sections: of one shard; of more than a merge takes, groups are merged into runs first.
        scratch: gets the names of these runs, which are to be removed in the end.

    Raises:
        OutputError: a run is missing or damaged.
    """
    sections = list(sections)
    while len(sections) > MERGED_AT_ONCE:
        groups = [
            sections[first : first + MERGED_AT_ONCE]
            for first in range(0, len(sections), MERGED_AT_ONCE)
        ]
        sections = [_merged_run(directory, group, scratch) for group in groups]
    yield from _merged(directory, sections)


def _merged_run(
    directory: Directory, sections: Sequence[RowSection], scratch: list[str]
) -> RowSection:
    run = f"run-{secrets.token_hex(16)}.bin"
    scratch.append(run)
    with directory.write(run) as file:
        for table in _merged(directory, sections):
            write_blocks(file, table)
    return RowSection(run=run, offset=0, length=file.size)


def _merged(directory: Directory, sections: Sequence[RowSection]) -> Iterator[pa.Table]:
    """What stands before the last row that is known of any section can be given."""
    share = _BUFFER_BYTES // max(len(sections), 1)
    readers = [_SectionReader(directory, section, share) for section in sections]
    while readers:
        for reader in readers:
            reader.fill()
        tables = [reader.take() for reader in readers]
        table = joined(tables)
        order = order_of(table)
        bounds = offsets_of(np.array([len(part) for part in tables]))
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        last = [
            place[end - 1]
            for end, reader in zip(bounds[1:], readers, strict=True)
            if reader.has_more
        ]
        known = 1 + int(min(last)) if last else len(order)
        yield take_rows(table, order[:known])
        # Sections are in order, so what is left of each is its end.
        given = np.zeros(len(order), np.int64)
        given[order[:known]] = 1
        numbers = np.add.reduceat(given, bounds[:-1]).tolist()
        for reader, part, number in zip(readers, tables, numbers, strict=True):
            reader.keep(part.slice(number))
        readers = [reader for reader in readers if not reader.is_done]


class _SectionReader:
    """Reads a section block by block; no file stays open, since there may be many."""

    def __init__(self, directory: Directory, section: RowSection, share: int) -> None:
        self._directory = directory
        self._section = section
        self._at = section.offset
        self._end = section.offset + section.length
        self._bytes = memoryview(b"")
        # Two fills are at hand at most.
        self._chunk_bytes = min(max(share // 2, _SECTION_BYTES), _CHUNK_BYTES)
        self._tables: list[pa.Table] = []
        self._held = 0

    @property
    def has_more(self) -> bool:
        """Whether there are rows that are not at hand."""
        return bool(self._bytes) or self._at < self._end

    @property
    def is_done(self) -> bool:
        """Whether there are no rows any more."""
        return not self._tables and not self.has_more

    def fill(self) -> None:
        """Reads until so many bytes of rows are at hand, or all."""
        while self.has_more and self._held < self._chunk_bytes:
            table = self._next_block()
            self._tables.append(table)
            self._held += table.nbytes

    def take(self) -> pa.Table:
        """The rows at hand."""
        table = joined(self._tables)
        self._tables, self._held = [], 0
        return table

    def keep(self, table: pa.Table) -> None:
        """Takes back rows for the next time."""
        if len(table):
            self._tables, self._held = [table], table.nbytes

    def _next_block(self) -> pa.Table:
        header = np.frombuffer(self._read(_HEADER.itemsize), _HEADER)[0]
        length, itemsize = int(header["length"]), int(header["itemsize"])
        if length > len(self._bytes) + self._end - self._at:
            raise damaged(self._directory, self._section.run)
        data = self._read(length)
        if xxhash.xxh3_64_intdigest(data) != int(header["digest"]):
            raise damaged(self._directory, self._section.run)
        schema = table_schema(itemsize, *_APART)
        return pa.Table.from_batches([pa.ipc.read_record_batch(pa.py_buffer(data), schema)])

    def _read(self, size: int) -> memoryview:
        if len(self._bytes) < size:
            want = max(size - len(self._bytes), self._chunk_bytes)
            stop = min(self._at + want, self._end)
            found = self._directory.read_bytes(self._section.run, self._at, stop)
            self._bytes = memoryview(bytes(self._bytes) + found)
            self._at = stop
        data, self._bytes = self._bytes[:size], self._bytes[size:]
        if len(data) < size:
            raise damaged(self._directory, self._section.run)
        return data


def large_row(directory: Directory, table: pa.Table) -> pa.Table:
    """A table of one row that stands apart, with its ids.

    Raises:
        OutputError: its run is missing or damaged.
    """
    run, place, length = (table[name][0].as_py() for name in (_RUN, _PLACE, _LENGTH))
    at = table.schema.get_field_index("input_ids")
    field = table.schema.field(at)
    size = length * np.dtype(_LARGE_ROW_DTYPE).itemsize
    data = directory.read_bytes(run, place, place + size)
    if len(data) != size:
        raise damaged(directory, run)
    ids, offsets = np.frombuffer(data, _LARGE_ROW_DTYPE), np.array([0, length], np.int64)
    if int(id_hashes(ids, offsets)[0, 1]) != table["_digest"][0].as_py():
        raise damaged(directory, run)
    ids = ids.astype(field.type.value_type.to_pandas_dtype(), copy=False)
    return table.set_column(at, field, list_array(ids, offsets, field.type))


def rows_apart(table: pa.Table) -> NDArray[np.int64]:
    """Which rows of a table stand apart."""
    return np.flatnonzero(table[_RUN].is_valid().to_numpy())


def lengths_of(table: pa.Table) -> NDArray[np.int64]:
    """The number of ids of each row, also of those that stand apart."""
    lengths: NDArray[np.int64] = table[_LENGTH].to_numpy()
    return lengths


def damaged(directory: Directory, run: str) -> OutputError:
    """The error for a run that is not as it was written."""
    return OutputError(
        "A run of token rows is damaged.",
        expected="bytes as they were written",
        where=directory.path(run),
        hint="Run the pipeline again.",
    )
