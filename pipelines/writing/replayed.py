"""Selection of the documents of a task that a replay encodes, by their positions in their files.

Before the work starts, the launcher writes the intervals of each task to a small file beside the
entries of tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipelines.accounting import DocumentTotals
from pipelines.batches import DocumentBatch, Reject
from pipelines.errors import InputError
from pipelines.readers.tasks import SourceReading, TaskWork, read_task
from pipelines.rejects.reasons import REASONS_OF_FILES
from pipelines.storage.directory import Directory
from pipelines.storage.parquet import read_table

IntArray = NDArray[np.int64]

_ROWS_AT_ONCE: Final = 1 << 14


@dataclass(frozen=True, kw_only=True, eq=False)
class Intervals:
    """Documents of a file to replay: those that start in one of these intervals [first, end).

    Attributes:
        firsts, ends: int64[n], the intervals, ascending and disjoint.
        shifts: int64[n], difference between a position in the original file and in this one.
        documents: int64[n], number of documents to find in the interval; 0 or 1 for a reject.
    """

    firsts: IntArray
    ends: IntArray
    shifts: IntArray
    documents: IntArray

    @classmethod
    def at(cls, positions: IntArray) -> Intervals:
        """Return the intervals of documents at these positions in an unchanged file."""
        return cls(
            firsts=positions,
            ends=positions + 1,
            shifts=np.zeros(len(positions), np.int64),
            documents=np.ones(len(positions), np.int64),
        )

    @classmethod
    def merged(cls, *parts: Intervals) -> Intervals:
        """Return the intervals of all parts, in order."""
        order = np.argsort(np.concatenate([part.firsts for part in parts]), kind="stable")
        columns = {n: np.concatenate([getattr(part, n) for part in parts]) for n in _COLUMNS}
        return cls(**{name: column[order] for name, column in columns.items()})

    def __len__(self) -> int:
        """Return the number of intervals."""
        return len(self.firsts)

    def find(self, positions: IntArray) -> IntArray:
        """Return the index of the interval of each position, -1 for a position outside all of them.

        >>> Intervals.at(np.array([3, 7])).find(np.array([2, 3, 4, 7])).tolist()
        [-1, 0, -1, 1]
        """
        if not len(self):
            return np.full(len(positions), -1, np.int64)
        index = np.searchsorted(self.firsts, positions, side="right") - 1
        return np.where((index >= 0) & (positions < self.ends[index]), index, -1)


_COLUMNS: Final = tuple(column.name for column in fields(Intervals))
_NOTHING: Final = Intervals.at(np.empty(0, np.int64))


class ReplayFilter:
    """Filter for the documents of a task that a replay encodes.

    Args:
        directory: Directory of the entries of tasks.
        name: Name of the task.
    """

    def __init__(self, directory: Directory, name: str) -> None:
        self._directory = directory
        self._name = name
        table = read_table(directory, _intervals_name(name))
        sources = table["source"].cast(pa.string()).combine_chunks().dictionary_encode()
        codes = sources.indices.to_numpy(zero_copy_only=False)
        self._intervals = {
            label: Intervals(**{n: table[n].to_numpy()[codes == code] for n in _COLUMNS})
            for code, label in enumerate(sources.dictionary.to_pylist())
        }
        self._seen = {label: np.zeros(len(t), np.int64) for label, t in self._intervals.items()}

    def filter(self, batch: DocumentBatch) -> DocumentBatch:
        """Return the batch with the selected documents and rejects, at their original positions."""
        intervals = self._intervals.get(batch.source, _NOTHING)
        seen = self._seen.get(batch.source, _NOTHING.documents)
        index = intervals.find(batch.offsets)
        found = index >= 0
        kept = batch.select(found)
        rejects = [reject for reject in batch.rejects if reject.reason not in REASONS_OF_FILES]
        of_rejects = intervals.find(np.array([reject.offset for reject in rejects], np.int64))
        if batch.part == 0:
            np.add.at(seen, index[found], 1)
        np.add.at(seen, of_rejects[of_rejects >= 0], 1)
        return replace(
            kept,
            offsets=kept.offsets + intervals.shifts[index[found]],
            empty=0,
            framing_bytes=0,
            not_selected=0,
            not_selected_bytes=0,
            rows=0,
            rejects=tuple(
                replace(reject, offset=reject.offset + int(intervals.shifts[i]))
                for reject, i in zip(rejects, of_rejects.tolist(), strict=True)
                if i >= 0
            ),
        )

    def carried(self) -> Iterator[list[Reject]]:
        """Yield the rejects that are kept unchanged, in blocks."""
        name = _carried_name(self._name)
        if name in self._directory.sizes():
            for batch in read_table(self._directory, name).to_batches(_ROWS_AT_ONCE):
                yield [Reject(**row) for row in batch.to_pylist()]

    def finish(
        self, work: TaskWork, readings: Sequence[SourceReading]
    ) -> Iterator[tuple[str, DocumentTotals]]:
        """Check that all documents were found. Yield by file the totals of those not read.

        A document that was too long to read may turn out to be empty, or not selected. Files with
        such documents are read once more, without a selection, to find out.

        Raises:
            InputError: Documents to replay are missing.
        """
        unmet = {
            label: intervals.firsts[self._seen[label] != intervals.documents]
            for label, intervals in self._intervals.items()
        }
        unmet = {label: positions for label, positions in unmet.items() if len(positions)}
        found = _count_left_out(work, readings, unmet) if unmet else {}
        for label, positions in unmet.items():
            intervals, totals = self._intervals[label], found[label]
            empty = len(positions) - totals.not_selected
            alone = np.isin(intervals.firsts, positions)
            is_one = (intervals.documents == 1) & (self._seen[label] == 0)
            if empty > totals.empty or not is_one[alone].all():
                raise InputError(
                    "Not all rejected documents were found again.",
                    expected=f"{int(intervals.documents.sum()):,} at the positions of the rejects",
                    found=f"{int(self._seen[label].sum()):,}",
                    where=label,
                    hint="The file, or its configuration, has changed. Run the command again.",
                )
            totals.empty = empty
            yield label, totals


def write_intervals(
    directory: Directory,
    name: str,
    intervals: Mapping[str, Intervals],
    carried: Sequence[tuple[str, NDArray[np.intp]]],
    rejects: Directory,
) -> None:
    """Write the intervals that a task replays, and the rejects that it keeps unchanged.

    Args:
        directory: Directory of the entries of tasks.
        name: Name of the task.
        intervals: Intervals of each file, by its label.
        carried: Files of rejects, with the numbers of the rows to keep.
        rejects: Directory of these files.
    """
    lengths = [len(of_file) for of_file in intervals.values()]
    codes = np.repeat(np.arange(len(intervals), dtype=np.int32), lengths)
    labels = pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(list(intervals), pa.string()))
    columns = {
        n: np.concatenate([getattr(of_file, n) for of_file in intervals.values()]) for n in _COLUMNS
    }
    with directory.write(_intervals_name(name)) as file:
        pq.write_table(pa.table({"source": labels, **columns}), pa.PythonFile(file, "w"))
    if carried:
        tables = [read_table(rejects, file).take(pa.array(rows)) for file, rows in carried]
        plain = [table.replace_schema_metadata(None) for table in tables]
        with directory.write(_carried_name(name)) as file:
            pq.write_table(pa.concat_tables(plain), pa.PythonFile(file, "w"))


def _intervals_name(task: str) -> str:
    return f"{task}.taken.parquet"


def _carried_name(task: str) -> str:
    return f"{task}.carried.parquet"


def _count_left_out(
    work: TaskWork, readings: Sequence[SourceReading], positions: Mapping[str, IntArray]
) -> dict[str, DocumentTotals]:
    """Count by file the documents at these positions that are not selected, and all empty ones."""
    parts = tuple(part for part in work.parts if part[0].label in positions)
    whole = [replace(reading, options=reading.options.without_selection) for reading in readings]
    found = {label: DocumentTotals() for label in positions}
    for batch in read_task(replace(work, parts=parts), whole):
        totals, wanted = found[batch.source], positions[batch.source]
        totals.empty += batch.empty
        at = np.array([reject.offset for reject in batch.rejects], np.int64)
        lengths = [batch.rejects[i].length for i in np.flatnonzero(np.isin(at, wanted))]
        if batch.part == 0:
            here = np.isin(batch.offsets, wanted)
            whole_bytes = batch.whole_bytes
            kept = batch.num_bytes[here].tolist()
            lengths += kept if whole_bytes is None else [whole_bytes] * len(kept)
        totals.not_selected += len(lengths)
        totals.not_selected_bytes += sum(lengths)
    return found
