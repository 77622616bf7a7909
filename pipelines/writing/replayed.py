"""Some documents of a task alone: those that a replay takes, by their places.

Which ones stands in a small file beside the entries of tasks, written before the work begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace

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

_ROWS_AT_ONCE = 1 << 14


@dataclass(frozen=True, kw_only=True, eq=False)
class Taken:
    """Which documents of a file are taken: those that begin in an interval [first, end).

    Attributes:
        firsts, ends: int64[n], the intervals, ascending and apart.
        shifts: int64[n], what is added to places to have those of the file as it was first.
        documents: int64[n], how many are found there; 0 or 1 for a reject.
    """

    firsts: IntArray
    ends: IntArray
    shifts: IntArray
    documents: IntArray

    @classmethod
    def at(cls, places: IntArray) -> Taken:
        """The documents that begin at these places, of a file that has not changed."""
        return cls(
            firsts=places,
            ends=places + 1,
            shifts=np.zeros(len(places), np.int64),
            documents=np.ones(len(places), np.int64),
        )

    def __len__(self) -> int:
        """Number of intervals."""
        return len(self.firsts)

    def intervals(self, places: IntArray) -> IntArray:
        """For each place the index of its interval, -1 where it is in none.

        >>> taken = Taken.at(np.array([3, 7]))
        >>> taken.intervals(np.array([2, 3, 4, 7])).tolist()
        [-1, 0, -1, 1]
        """
        if not len(self):
            return np.full(len(places), -1, np.int64)
        index = np.searchsorted(self.firsts, places, side="right") - 1
        return np.where((index >= 0) & (places < self.ends[index]), index, -1)


_NAMES = tuple(column.name for column in fields(Taken))
_NOTHING = Taken.at(np.empty(0, np.int64))


def joined(*parts: Taken) -> Taken:
    """The intervals of several, in order."""
    order = np.argsort(np.concatenate([part.firsts for part in parts]), kind="stable")
    return Taken(**{n: np.concatenate([getattr(part, n) for part in parts])[order] for n in _NAMES})


def write_taken(
    directory: Directory,
    name: str,
    taken: Mapping[str, Taken],
    carried: Sequence[tuple[str, NDArray[np.intp]]],
    rejects: Directory,
) -> None:
    """Writes what a task takes, by the files' labels, and the rejects that it keeps as they are.

    Args:
        directory: of the entries of tasks.
        name: of the task.
        taken: of each file.
        carried: files of rejects with the numbers of their rows.
        rejects: their directory.
    """
    codes = np.repeat(np.arange(len(taken), dtype=np.int32), [len(t) for t in taken.values()])
    labels = pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(list(taken), pa.string()))
    columns = {n: np.concatenate([getattr(t, n) for t in taken.values()]) for n in _NAMES}
    table = pa.table({"source": labels, **columns})
    with directory.write(f"{name}.taken.parquet") as file:
        pq.write_table(table, pa.PythonFile(file, "w"))
    if carried:
        tables = [read_table(rejects, file).take(pa.array(rows)) for file, rows in carried]
        plain = [table.replace_schema_metadata(None) for table in tables]
        with directory.write(f"{name}.carried.parquet") as file:
            pq.write_table(pa.concat_tables(plain), pa.PythonFile(file, "w"))


class Taking:
    """Takes the documents of a task that a replay is to encode.

    Args:
        directory: of the entries of tasks.
        name: of the task.
    """

    def __init__(self, directory: Directory, name: str) -> None:
        self._directory = directory
        self._name = name
        table = read_table(directory, f"{name}.taken.parquet")
        sources = table["source"].cast(pa.string()).combine_chunks().dictionary_encode()
        codes = sources.indices.to_numpy(zero_copy_only=False)
        self._taken = {
            label: Taken(**{n: table[n].to_numpy()[codes == code] for n in _NAMES})
            for code, label in enumerate(sources.dictionary.to_pylist())
        }
        self._seen = {label: np.zeros(len(t), np.int64) for label, t in self._taken.items()}

    def of(self, batch: DocumentBatch) -> DocumentBatch:
        """The batch with the documents and rejects that are taken, at their first places."""
        taken = self._taken.get(batch.source, _NOTHING)
        seen = self._seen.get(batch.source, _NOTHING.documents)
        index = taken.intervals(batch.offsets)
        found = index >= 0
        kept = batch.select(found)
        rejects = [reject for reject in batch.rejects if reject.reason not in REASONS_OF_FILES]
        of_rejects = taken.intervals(np.array([reject.offset for reject in rejects], np.int64))
        if batch.part == 0:
            np.add.at(seen, index[found], 1)
        np.add.at(seen, of_rejects[of_rejects >= 0], 1)
        return replace(
            kept,
            offsets=kept.offsets + taken.shifts[index[found]],
            empty=0,
            framing_bytes=0,
            not_selected=0,
            not_selected_bytes=0,
            rows=0,
            rejects=tuple(
                replace(reject, offset=reject.offset + int(taken.shifts[i]))
                for reject, i in zip(rejects, of_rejects.tolist(), strict=True)
                if i >= 0
            ),
        )

    def carried(self) -> Iterator[list[Reject]]:
        """The rejects that stay as they are, some at a time."""
        name = f"{self._name}.carried.parquet"
        if name in self._directory.sizes():
            for batch in read_table(self._directory, name).to_batches(_ROWS_AT_ONCE):
                yield [Reject(**row) for row in batch.to_pylist()]

    def finish(
        self, work: TaskWork, readings: Sequence[SourceReading]
    ) -> Iterator[tuple[str, DocumentTotals]]:
        """Checks that all were met, and says what became of those that were not, by file.

        What was too long to be looked at may have an empty text, or one that the selection leaves
        out: those files are read once more, without a selection.

        Raises:
            InputError: documents that were to be taken are not there.
        """
        unmet = {
            label: taken.firsts[self._seen[label] != taken.documents]
            for label, taken in self._taken.items()
        }
        unmet = {label: places for label, places in unmet.items() if len(places)}
        found = _left_out(work, readings, unmet) if unmet else {}
        for label, places in unmet.items():
            taken, totals = self._taken[label], found[label]
            empty = len(places) - totals.not_selected
            alone = np.isin(taken.firsts, places)
            is_one = (taken.documents == 1) & (self._seen[label] == 0)
            if empty > totals.empty or not is_one[alone].all():
                raise InputError(
                    "Not all rejected documents were found again.",
                    expected=f"{int(taken.documents.sum()):,} that begin where the rejects say",
                    found=f"{int(self._seen[label].sum()):,}",
                    where=label,
                    hint="The file, or how it is read, has changed. Run the command again.",
                )
            totals.empty = empty
            yield label, totals


def _left_out(
    work: TaskWork, readings: Sequence[SourceReading], places: Mapping[str, IntArray]
) -> dict[str, DocumentTotals]:
    """By file the documents at these places that were not selected, and all that are empty."""
    parts = tuple(part for part in work.parts if part[0].label in places)
    whole = [replace(reading, options=reading.options.of_all) for reading in readings]
    found = {label: DocumentTotals() for label in places}
    for batch in read_task(replace(work, parts=parts), whole):
        totals, wanted = found[batch.source], places[batch.source]
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
