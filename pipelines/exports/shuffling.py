"""A seeded shuffle of more rows than fit into memory.

Each document, or packed row, gets a key that follows from the seed and its number in the split. Map
tasks write *runs*: sections of rows, one a bucket, where a bucket is the keys that have the same
first bits. Then each output file takes the buckets that its rows lie in, one at a time, and sorts
each in memory. So the order is that of the keys, whatever the number of buckets, tasks or workers,
and no row goes through a shuffle of Beam.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from pipelines.errors import OutputError
from pipelines.sorting.arrow_lists import _with_ids, gathered, list_values, take_rows
from pipelines.storage.directory import Directory

# Ids of a bucket that are aimed at, and the largest number of buckets: with it sections of runs
# are still large enough to be read one by one.
BUCKET_BYTES: Final = 16 << 20
_MOST_BUCKET_BITS: Final = 12

# Ids that are gathered before sections are written.
_FLUSH_BYTES: Final = 16 << 20

# Rows with more ids stay in the runs until it is their turn: a bucket has to fit into memory,
# however long the documents in it are.
_LARGE_ROW_IDS: Final = 1 << 16
_KEY: Final = "_key"
_BEGINS: Final = "_begins"
_PLACE: Final = "_place"
_LENGTH: Final = "_length"
_DIGEST: Final = "_digest"


def bucket_bits(ids_bytes: int) -> int:
    """The number of bits of a key that name its bucket."""
    return min(_MOST_BUCKET_BITS, (max(0, ids_bytes - 1) // BUCKET_BYTES).bit_length())


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run that a map task wrote.

    Attributes:
        name: of its file.
        bytes: of the file.
        index: where in it the index begins: int64[buckets, flushes, 4], of each section its place,
            its length, how many documents or packed rows begin in it, and the xxh3-64 of its bytes.
        flushes: number of sections of a bucket.
    """

    name: str
    bytes: int
    index: int
    flushes: int


class RunFile:
    """A run that gets its name when it is whole.

    Args:
        directory: of the runs.
        name: of the file.
        bits: of a key that name its bucket.
    """

    def __init__(self, directory: Directory, name: str, bits: int) -> None:
        self._name = name
        self._bits = bits
        self._stack = ExitStack()
        self._file = self._stack.enter_context(directory.write(name))
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0
        self._index: list[NDArray[np.int64]] = []
        self._flush_bytes = max(_FLUSH_BYTES, 1 << (bits + 14))

    def add(self, table: pa.Table, keys: NDArray[np.uint64], begins: NDArray[np.bool_]) -> None:
        """Takes rows.

        Args:
            table: of rows with `input_ids`.
            keys: of the rows; those of a document have one key, and come in their order.
            begins: whether a document, or a packed row, begins with the row.
        """
        for column, values in ((_KEY, keys), (_BEGINS, begins)):
            table = table.append_column(column, pa.array(values))
        self._pending.append(table)
        self._pending_bytes += table["input_ids"].nbytes
        if self._pending_bytes >= self._flush_bytes:
            self._flush()

    def _flush(self) -> None:
        table = pa.concat_tables(self._pending).combine_chunks()
        self._pending, self._pending_bytes = [], 0
        keys = table[_KEY].to_numpy()
        table = take_rows(self._large_rows_apart(table), np.argsort(keys, kind="stable"))
        begins = np.cumsum(table[_BEGINS].to_numpy(), dtype=np.int64)
        bounds = np.searchsorted(
            _buckets(table[_KEY].to_numpy(), self._bits), np.arange((1 << self._bits) + 1)
        )
        sections = np.zeros((1 << self._bits, 4), np.int64)
        for bucket in np.flatnonzero(np.diff(bounds)).tolist():
            first, end = bounds[bucket], bounds[bucket + 1]
            [batch] = table.slice(first, end - first).to_batches()
            section = batch.serialize()
            number = begins[end - 1] - (begins[first - 1] if first else 0)
            digest = np.uint64(xxhash.xxh3_64_intdigest(section)).view(np.int64)
            sections[bucket] = self._file.size, section.size, number, digest
            self._file.write(section)
        self._index.append(sections)

    def _large_rows_apart(self, table: pa.Table) -> pa.Table:
        """The table with the places of large rows instead of their ids."""
        ids, offsets = list_values(table["input_ids"])
        lengths = np.diff(offsets)
        places = np.full(len(table), -1, np.int64)
        digests = np.zeros(len(table), np.uint64)
        for row in np.flatnonzero(lengths > _LARGE_ROW_IDS).tolist():
            places[row] = self._file.size
            row_ids = ids[offsets[row] : offsets[row + 1]].data
            digests[row] = xxhash.xxh3_64_intdigest(row_ids)
            self._file.write(row_ids)
        if (places >= 0).any():
            kept = np.where(places < 0, lengths, 0)
            table = _with_ids(table, *gathered(ids, offsets[:-1], kept))
        for column, values in ((_PLACE, places), (_LENGTH, lengths), (_DIGEST, digests)):
            table = table.append_column(column, pa.array(values))
        return table

    def finish(self) -> dict[str, Any]:
        """Completes the bytes; gives what `Run` says, and the documents or rows of each bucket."""
        if self._pending:
            self._flush()
        index = np.stack(self._index, axis=1) if self._index else np.zeros((0, 0, 4), np.int64)
        place = self._file.size
        if index.size:
            self._file.write(np.ascontiguousarray(index))
        return {
            "run": {
                "name": self._name,
                "bytes": self._file.size,
                "index": place,
                "flushes": len(self._index),
            },
            "buckets": index[:, :, 2].sum(axis=1).tolist() or [0] * (1 << self._bits),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, traceback)


def read_buckets(
    directory: Directory, runs: Sequence[Run], schema: pa.Schema, buckets: range
) -> Iterator[SortedBucket]:
    """The buckets, each in the order of its keys.

    Args:
        directory: of the runs.
        runs: all of them, in the order of their tasks.
        schema: of the tables that were added to the runs.
        buckets: which ones.

    Raises:
        OutputError: a run is missing or damaged.
    """
    schema = pa.schema([*schema, *_OWN_COLUMNS])
    indices = [_read_index(directory, run, buckets) for run in runs]
    for number in range(len(buckets)):
        sections: list[pa.RecordBatch] = []
        from_run: list[int] = []
        for at, (run, index) in enumerate(zip(runs, indices, strict=True)):
            for place, length, _, digest in index[number].tolist():
                if length:
                    data = _read(directory, run, place, length, digest)
                    sections.append(pa.ipc.read_record_batch(data, schema))
                    from_run.append(at)
        if sections:
            yield SortedBucket(directory, runs, sections, from_run)


class SortedBucket:
    """The rows of a bucket in the order of their keys.

    Attributes:
        table: the rows.
        begins: whether a document, or a packed row, begins with the row.
    """

    def __init__(
        self,
        directory: Directory,
        runs: Sequence[Run],
        sections: Sequence[pa.RecordBatch],
        from_run: Sequence[int],
    ) -> None:
        self._directory = directory
        self._runs = runs
        table = pa.Table.from_batches(sections).combine_chunks()
        order = np.argsort(table[_KEY].to_numpy(), kind="stable")
        self._run_of = np.repeat(from_run, [len(section) for section in sections])[order]
        table = take_rows(table, order)
        self.begins: NDArray[np.bool_] = table[_BEGINS].to_numpy()
        self._places = table[_PLACE].to_numpy()
        self._lengths = table[_LENGTH].to_numpy()
        self._digests = table[_DIGEST].to_numpy()
        self.table = table.drop_columns([field.name for field in _OWN_COLUMNS])

    def rows(self, first: int, end: int) -> Iterator[pa.Table]:
        """The rows [first, end), large ones one at a time."""
        large = np.flatnonzero(self._places[first:end] >= 0) + first
        for row in large.tolist():
            if first < row:
                yield self.table.slice(first, row - first)
            yield self._large_row(row)
            first = row + 1
        if first < end:
            yield self.table.slice(first, end - first)

    def _large_row(self, row: int) -> pa.Table:
        table = self.table.slice(row, 1)
        dtype = list_values(table["input_ids"])[0].dtype
        place, length = int(self._places[row]), int(self._lengths[row])
        data = _read(
            self._directory,
            self._runs[self._run_of[row]],
            place,
            length * dtype.itemsize,
            int(self._digests[row]),
        )
        return _with_ids(table, np.frombuffer(data, dtype), np.array([0, length], np.int64))


_OWN_COLUMNS: Final = (
    pa.field(_KEY, pa.uint64()),
    pa.field(_BEGINS, pa.bool_()),
    pa.field(_PLACE, pa.int64()),
    pa.field(_LENGTH, pa.int64()),
    pa.field(_DIGEST, pa.uint64()),
)


def _read_index(directory: Directory, run: Run, buckets: range) -> NDArray[np.int64]:
    """int64[buckets, flushes, 4]."""
    size = run.flushes * 4 * 8
    start = run.index + buckets.start * size
    data = directory.read_bytes(run.name, start, start + len(buckets) * size)
    if len(data) != len(buckets) * size:
        raise _damaged(directory, run)
    return np.frombuffer(data, np.int64).reshape(len(buckets), run.flushes, 4)


def _read(directory: Directory, run: Run, place: int, length: int, digest: int) -> bytes:
    data = directory.read_bytes(run.name, place, place + length)
    if xxhash.xxh3_64_intdigest(data) != digest % (1 << 64):
        raise _damaged(directory, run)
    return data


def _damaged(directory: Directory, run: Run) -> OutputError:
    return OutputError(
        "A run of the shuffle is damaged.",
        expected=f"{run.bytes:,} bytes, as they were written",
        where=directory.path(run.name),
        hint="Begin anew: the same command with --restart.",
    )


def _buckets(keys: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    return keys >> np.uint64(64 - bits) if bits else np.zeros_like(keys)
