"""Run files of rows with token ids, for sorting more rows than fit in memory.

A run consists of *sections*: rows that are read together, such as those of one shard or one bucket.
A section is a sequence of blocks, each an Arrow record batch preceded by its length and hash, and
can be read at once or block by block.

The ids of large rows are not in the blocks. They are written to the run separately; the row only
contains their position, and they are read when the row is written to an output file. So blocks, and
everything that is sorted or merged at once, stay small however long documents are.

Runs are temporary files. References to runs that outlive a pipeline must store `FORMAT_VERSION`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from numpy.typing import NDArray

from pipelines.errors import OutputError
from pipelines.manifest.token_schema import ID_TYPES
from pipelines.sorting.arrow_lists import flatten_lists, gather_slices, replace_lists
from pipelines.storage.directory import Directory, HashingFile

FORMAT_VERSION: Final = 2

# Approximate memory of a row, besides its ids.
ROW_BYTES: Final = 128

_IDS: Final = "input_ids"
_RUN: Final = "_spill_run"
_OFFSET: Final = "_spill_offset"
_LENGTH: Final = "_spill_length"
_ITEMSIZE: Final = "_spill_itemsize"
_DIGEST: Final = "_spill_digest"
# `run` is null for a row whose ids are in its block.
_FIELDS: Final = (
    pa.field(_RUN, pa.string()),
    pa.field(_OFFSET, pa.int64()),
    pa.field(_LENGTH, pa.int64()),
    pa.field(_ITEMSIZE, pa.uint8()),
    pa.field(_DIGEST, pa.uint64()),
)
# Header of a block: its length, the bytes per id, and its xxh3-64, seeded with these two.
_HEADER: Final = np.dtype([("length", "<u8"), ("itemsize", "<u8"), ("digest", "<u8")])


@dataclass(frozen=True, kw_only=True)
class Section:
    """Rows of a run that are read together: a range of bytes in a file."""

    run: str
    offset: int
    length: int


class SpillWriter:
    """Writer of rows to a run.

    Args:
        file: The run's file.
        run: Name of the file.
        large_row_ids: Rows with more ids are large.
        block_bytes: Approximate size of a block.
    """

    def __init__(self, file: HashingFile, run: str, large_row_ids: int, block_bytes: int) -> None:
        self._file = file
        self._run = run
        self._large_row_ids = large_row_ids
        self._block_bytes = block_bytes

    def set_large_rows_apart(self, table: pa.Table) -> pa.Table:
        """Write the ids of large rows. Return the table with their positions instead."""
        ids, offsets = flatten_lists(table[_IDS])
        lengths = np.diff(offsets)
        large = lengths > self._large_row_ids
        begins = np.zeros(len(table), np.int64)
        digests = np.zeros(len(table), np.uint64)
        for row in np.flatnonzero(large).tolist():
            row_ids = np.ascontiguousarray(ids[offsets[row] : offsets[row + 1]])
            begins[row] = self._file.size
            digests[row] = xxhash.xxh3_64_intdigest(row_ids.data)
            self._file.write(row_ids)
        if large.any():
            kept = gather_slices(ids, offsets[:-1], np.where(large, 0, lengths))
            table = replace_lists(table, _IDS, *kept)
        columns = (
            pc.if_else(pa.array(large), pa.scalar(self._run), pa.scalar(None, pa.string())),
            pa.array(begins),
            pa.array(lengths),
            pa.array(np.where(large, ids.itemsize, 0).astype(np.uint8)),
            pa.array(digests),
        )
        for field, column in zip(_FIELDS, columns, strict=True):
            table = table.append_column(field, column)
        return table

    def write_section(self, table: pa.Table) -> Section:
        """Write rows as a section, after `set_large_rows_apart`."""
        begin = self._file.size
        ids, offsets = flatten_lists(table[_IDS])
        sizes = offsets * ids.itemsize + ROW_BYTES * np.arange(len(offsets))
        first = 0
        while first < len(table):
            end = int(np.searchsorted(sizes, sizes[first] + self._block_bytes, side="left"))
            end = min(max(end, first + 1), len(table))
            self._write_block(table.slice(first, end - first), ids.itemsize)
            first = end
        return Section(run=self._run, offset=begin, length=self._file.size - begin)

    def _write_block(self, table: pa.Table, itemsize: int) -> None:
        [batch] = table.combine_chunks().to_batches()
        block = batch.serialize()
        digest = xxhash.xxh3_64_intdigest(block, seed=itemsize)
        self._file.write(np.array([(block.size, itemsize, digest)], _HEADER))
        self._file.write(block)


class SectionReader:
    """Reader of a section, block by block.

    It keeps no file open, since a merge may have more sections than a process may open files.

    Args:
        directory: Directory of the runs.
        section: The section.
        schema: Columns of the rows before large ones were set apart.
        chunk_bytes: Minimum number of bytes to read from the file at once.
    """

    def __init__(
        self, directory: Directory, section: Section, schema: pa.Schema, chunk_bytes: int
    ) -> None:
        self._directory = directory
        self._run = section.run
        self._schema = pa.schema([*schema, *_FIELDS])
        self._chunk_bytes = chunk_bytes
        self._at = section.offset
        self._end = section.offset + section.length
        self._buffer = memoryview(b"")

    @property
    def has_more(self) -> bool:
        """Return True if there is another block."""
        return bool(self._buffer) or self._at < self._end

    def read_block(self) -> pa.Table:
        """Read the next block.

        Raises:
            OutputError: The run is missing or damaged.
        """
        header = np.frombuffer(self._read(_HEADER.itemsize), _HEADER)[0]
        length, itemsize = int(header["length"]), int(header["itemsize"])
        if length > len(self._buffer) + self._end - self._at:
            raise damaged_run(self._directory, self._run)
        data = self._read(length)
        if xxhash.xxh3_64_intdigest(data, seed=itemsize) != int(header["digest"]):
            raise damaged_run(self._directory, self._run)
        schema = _with_itemsize(self._schema, itemsize)
        return pa.Table.from_batches([pa.ipc.read_record_batch(pa.py_buffer(data), schema)])

    def _read(self, size: int) -> memoryview:
        if len(self._buffer) < size:
            stop = min(self._at + max(size - len(self._buffer), self._chunk_bytes), self._end)
            found = self._directory.read_bytes(self._run, self._at, stop)
            self._buffer = memoryview(bytes(self._buffer) + found)
            self._at = stop
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        if len(data) < size:
            raise damaged_run(self._directory, self._run)
        return data


def read_section(directory: Directory, section: Section, schema: pa.Schema) -> list[pa.Table]:
    """Read all blocks of a section at once.

    Raises:
        OutputError: The run is missing or damaged.
    """
    reader = SectionReader(directory, section, schema, chunk_bytes=section.length)
    blocks = []
    while reader.has_more:
        blocks.append(reader.read_block())
    return blocks


def row_lengths(table: pa.Table) -> NDArray[np.int64]:
    """Return the number of ids of each row, including rows that are set apart."""
    lengths: NDArray[np.int64] = table[_LENGTH].to_numpy()
    return lengths


def restore_rows(directory: Directory, table: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows with the ids of large rows restored, each large row separately.

    Raises:
        OutputError: The run of a large row is missing or damaged.
    """
    first = 0
    for row in np.flatnonzero(table[_RUN].is_valid().to_numpy()).tolist():
        if first < row:
            yield _drop_fields(table.slice(first, row - first))
        yield _drop_fields(_read_large_row(directory, table.slice(row, 1)))
        first = row + 1
    if first < len(table):
        yield _drop_fields(table.slice(first))


def damaged_run(directory: Directory, run: str) -> OutputError:
    """Return the error for a run whose bytes have changed."""
    return OutputError(
        "A run of sorted rows is damaged.",
        expected="the bytes that were written",
        found="different or fewer bytes",
        where=directory.path(run),
        hint="Run the pipeline again; restart an export with --restart.",
    )


def _read_large_row(directory: Directory, row: pa.Table) -> pa.Table:
    run, begin, length, itemsize, digest = (row[field.name][0].as_py() for field in _FIELDS)
    data = directory.read_bytes(run, begin, begin + length * itemsize)
    if xxhash.xxh3_64_intdigest(data) != digest:
        raise damaged_run(directory, run)
    # Merged rows have the widest id type of their sections.
    dtype = row.schema.field(_IDS).type.value_type.to_pandas_dtype()
    ids = np.frombuffer(data, f"<u{itemsize}").astype(dtype, copy=False)
    return replace_lists(row, _IDS, ids, np.array([0, length], np.int64))


def _drop_fields(table: pa.Table) -> pa.Table:
    return table.drop_columns([field.name for field in _FIELDS])


def _with_itemsize(schema: pa.Schema, itemsize: int) -> pa.Schema:
    at = schema.get_field_index(_IDS)
    field = schema.field(at)
    element = field.type.value_field.with_type(ID_TYPES[f"uint{8 * itemsize}"])
    return schema.set(at, field.with_type(pa.list_(element)))
