"""Seeded shuffle of more rows than fit into memory.

Each document, or packed row, gets a key that follows from the seed and its number in the split. Map
tasks write *runs* with one section of rows per bucket; a bucket is the keys with the same first
bits. Then each output file reads the buckets of its rows, one at a time, and sorts each in memory.
So the order is that of the keys, whatever the number of buckets, tasks or workers, and Beam
shuffles no rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipelines.exports.records import RunNote
from pipelines.sorting.arrow_lists import take_rows
from pipelines.sorting.spill import (
    FORMAT_VERSION,
    Section,
    SpillWriter,
    damaged_run,
    read_section,
    restore_rows,
)
from pipelines.storage.directory import Directory, HashingFile

# Target size of a bucket's ids, and maximum number of buckets: with more, sections would be too
# small to be read efficiently.
BUCKET_BYTES: Final = 16 << 20
_MOST_BUCKET_BITS: Final = 12

# Minimum size of the ids to gather before sections are written.
_FLUSH_BYTES: Final = 16 << 20

# Sections are read at once, so blocks may be large. A bucket must fit in memory whatever the length
# of its rows, but a large row needs a separate read, so the limit exceeds most packed rows.
_BLOCK_BYTES: Final = 1 << 20
_LARGE_ROW_IDS: Final = 1 << 16
_KEY: Final = "_key"
_BEGINS: Final = "_begins"
_OWN_COLUMNS: Final = (pa.field(_KEY, pa.uint64()), pa.field(_BEGINS, pa.bool_()))
# For each section: its offset and length in the run, and the documents or packed rows that begin in
# it.
_INDEX_COLUMNS: Final = 3


def bucket_bits(ids_bytes: int) -> int:
    """Return how many leading bits of a key identify its bucket, for a size of all ids."""
    return min(_MOST_BUCKET_BITS, (max(0, ids_bytes - 1) // BUCKET_BYTES).bit_length())


def is_readable(run: RunNote) -> bool:
    """Return True if this version can read a run, which another version may have written."""
    return run.format == FORMAT_VERSION


class RunFile:
    """Run that is being written.

    Args:
        file: The file.
        name: Name of the file.
        bits: Number of leading bits of a key that identify its bucket.
    """

    def __init__(self, file: HashingFile, name: str, bits: int) -> None:
        self._file = file
        self._name = name
        self._bits = bits
        self._spill = SpillWriter(file, name, _LARGE_ROW_IDS, _BLOCK_BYTES)
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0
        self._index: list[NDArray[np.int64]] = []
        self._flush_bytes = max(_FLUSH_BYTES, 1 << (bits + 14))

    def add(self, table: pa.Table, keys: NDArray[np.uint64], begins: NDArray[np.bool_]) -> None:
        """Add rows.

        Args:
            table: Rows with `input_ids`.
            keys: Keys of the rows. Rows of one document have the same key, and come in their order.
            begins: True for the first row of a document or packed row.
        """
        for field, values in zip(_OWN_COLUMNS, (keys, begins), strict=True):
            table = table.append_column(field, pa.array(values))
        self._pending.append(table)
        self._pending_bytes += table["input_ids"].nbytes
        if self._pending_bytes >= self._flush_bytes:
            self._flush()

    def finish(self) -> tuple[RunNote, list[int]]:
        """Write the index. Return the note of the run, and the documents or rows of each bucket."""
        if self._pending:
            self._flush()
        empty = np.zeros((0, 0, _INDEX_COLUMNS), np.int64)
        index = np.stack(self._index, axis=1) if self._index else empty
        begin = self._file.size
        if index.size:
            self._file.write(np.ascontiguousarray(index))
        run = RunNote(
            name=self._name,
            bytes=self._file.size,
            index=begin,
            flushes=len(self._index),
            format=FORMAT_VERSION,
        )
        return run, index[:, :, 2].sum(axis=1).tolist() or [0] * (1 << self._bits)

    def _flush(self) -> None:
        table = pa.concat_tables(self._pending).combine_chunks()
        self._pending, self._pending_bytes = [], 0
        keys = table[_KEY].to_numpy()
        # Rows with the same key stay in their order, since sorting is stable.
        order = np.argsort(keys, kind="stable")
        table = take_rows(self._spill.set_large_rows_apart(table), order)
        begins = np.cumsum(table[_BEGINS].to_numpy(), dtype=np.int64)
        bounds = np.searchsorted(
            _buckets_of(keys[order], self._bits), np.arange((1 << self._bits) + 1)
        )
        sections = np.zeros((1 << self._bits, _INDEX_COLUMNS), np.int64)
        for bucket in np.flatnonzero(np.diff(bounds)).tolist():
            first, end = bounds[bucket], bounds[bucket + 1]
            section = self._spill.write_section(table.slice(first, end - first))
            number = begins[end - 1] - (begins[first - 1] if first else 0)
            sections[bucket] = section.offset, section.length, number
        self._index.append(sections)


class SortedBucket:
    """Rows of a bucket in the order of their keys.

    Args:
        directory: Directory of the runs.
        blocks: The rows, in the order of tasks and of flushes.

    Attributes:
        begins: True for the first row of a document or packed row.
    """

    def __init__(self, directory: Directory, blocks: Sequence[pa.Table]) -> None:
        self._directory = directory
        table = pa.concat_tables(blocks).combine_chunks()
        table = take_rows(table, np.argsort(table[_KEY].to_numpy(), kind="stable"))
        self.begins: NDArray[np.bool_] = table[_BEGINS].to_numpy()
        self._table = table.drop_columns([field.name for field in _OWN_COLUMNS])

    def rows(self, first: int, end: int) -> Iterator[pa.Table]:
        """Yield the rows [first, end), large ones one at a time."""
        return restore_rows(self._directory, self._table.slice(first, end - first))


def read_buckets(
    directory: Directory, runs: Sequence[RunNote], schema: pa.Schema, buckets: range
) -> Iterator[SortedBucket]:
    """Yield the buckets that have rows.

    Args:
        directory: Directory of the runs.
        runs: All runs, in the order of their tasks.
        schema: Columns of the tables that were added to the runs.
        buckets: Numbers of the buckets.

    Raises:
        OutputError: A run is missing or damaged.
    """
    schema = pa.schema([*schema, *_OWN_COLUMNS])
    indices = [_read_index(directory, run, buckets) for run in runs]
    for number in range(len(buckets)):
        blocks = []
        for run, index in zip(runs, indices, strict=True):
            for offset, length, _ in index[number].tolist():
                section = Section(run=run.name, offset=offset, length=length)
                blocks += read_section(directory, section, schema)
        if blocks:
            yield SortedBucket(directory, blocks)


def _read_index(directory: Directory, run: RunNote, buckets: range) -> NDArray[np.int64]:
    """Return the sections of the buckets: int64[buckets, flushes, 3]."""
    size = run.flushes * _INDEX_COLUMNS * np.dtype(np.int64).itemsize
    start = run.index + buckets.start * size
    data = directory.read_bytes(run.name, start, start + len(buckets) * size)
    if len(data) != len(buckets) * size:
        raise damaged_run(directory, run.name)
    return np.frombuffer(data, np.int64).reshape(len(buckets), run.flushes, _INDEX_COLUMNS)


def _buckets_of(keys: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    return keys >> np.uint64(64 - bits) if bits else np.zeros_like(keys)
