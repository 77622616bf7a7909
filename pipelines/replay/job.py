"""The dataset, the accounts of files and the tasks of a replay."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipelines.accounting import DocumentTotals
from pipelines.manifest.models import TokensManifest
from pipelines.manifest.names import task_name
from pipelines.manifest.run_record import RunRecord
from pipelines.readers.tasks import TaskWork
from pipelines.rejects.reasons import REASONS_OF_FILES
from pipelines.storage.directory import Directory
from pipelines.storage.parquet import read_table
from pipelines.tasks.listing import InputFile
from pipelines.writing.replayed import IntArray, Intervals, write_intervals

BYTE_KEYS = ("bytes", "rejected_bytes", "not_selected_bytes", "framing_bytes")


@dataclass(frozen=True, kw_only=True)
class ExistingDataset:
    """The dataset that the replay extends, as found on disk.

    Attributes:
        tokens, rejects: directories of token files and of rejects.
        manifest: manifest of the token files.
        run: its `run.json`, if there is one.
    """

    tokens: Directory
    rejects: Directory
    manifest: TokensManifest
    run: RunRecord | None


@dataclass(kw_only=True)
class Account:
    """The replayed part of an input file.

    Attributes:
        file: file to read.
        rejected, rejected_bytes: number and lengths of the rejected documents that are replayed.
        reasons: number of rejects by reason, unread ends of files included.
        whole: totals of the complete repaired file; None if the file is the same.
    """

    file: InputFile
    rejected: int = 0
    rejected_bytes: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    whole: DocumentTotals | None = None


@dataclass(kw_only=True)
class Job:
    """The tasks of a replay.

    Attributes:
        parts: for each task, the ranges that it reads.
        taken: for each task, the documents that it replays, by label.
        carried: rejects that stay, as file and rows; the first task writes them.
        superseded: files of rejects that those of the replay replace.
        accounts: accounts of input files, by label.
        left: for each file that is damaged or was repaired before, the number of rejects that
            cannot be replayed from it.
    """

    parts: list[tuple[tuple[InputFile, int, int], ...]] = field(default_factory=list)
    taken: list[dict[str, Intervals]] = field(default_factory=list)
    carried: list[tuple[str, NDArray[np.intp]]] = field(default_factory=list)
    superseded: list[str] = field(default_factory=list)
    accounts: dict[str, Account] = field(default_factory=dict)
    left: Counter[str] = field(default_factory=Counter)

    @property
    def works(self) -> list[TaskWork]:
        """The tasks in the form that workers receive."""
        of = len(self.parts)
        return [TaskWork(index=i, of=of, hash=0, parts=p) for i, p in enumerate(self.parts)]

    @property
    def warnings(self) -> tuple[str, ...]:
        """A warning for each file with rejects that cannot be replayed."""
        return tuple(
            f"{number:,} rejects of {label} remain: they need a repaired file, "
            f"--source {label}=PATH"
            for label, number in self.left.items()
        )

    def write(self, entries: Directory, rejects: Directory) -> None:
        """Write the documents to replay to where the tasks look for them."""
        of = len(self.parts)
        for i, taken in enumerate(self.taken):
            write_intervals(entries, task_name(i, of), taken, [] if i else self.carried, rejects)


@dataclass(frozen=True, kw_only=True)
class Rejects:
    """The rows of a file of rejects, as arrays."""

    name: str
    labels: list[str]
    codes: NDArray[np.int32]
    offsets: IntArray
    lengths: IntArray
    reasons: pa.Array
    is_rest: NDArray[np.bool_]

    @classmethod
    def read(cls, directory: Directory, name: str) -> Rejects:
        """Return the rejects of a file."""
        table = read_table(directory, name, ["source", "offset", "length", "reason"])
        sources = table["source"].combine_chunks().dictionary_encode()
        of_files = pa.array(sorted(REASONS_OF_FILES), pa.string())
        return cls(
            name=name,
            labels=sources.dictionary.to_pylist(),
            codes=sources.indices.to_numpy(),
            offsets=table["offset"].to_numpy(),
            lengths=table["length"].to_numpy(),
            reasons=table["reason"].combine_chunks(),
            is_rest=pc.is_in(table["reason"], of_files).combine_chunks().to_numpy(False),
        )

    def of(self, label: str) -> NDArray[np.bool_]:
        """Return a mask of the rows of an input file."""
        if label not in self.labels:
            return np.zeros(len(self.codes), bool)
        found: NDArray[np.bool_] = self.codes == self.labels.index(label)
        return found

    def note(self, rows: NDArray[np.bool_], account: Account) -> None:
        """Add these rows to the account of a file."""
        documents = rows & ~self.is_rest
        account.rejected += int(np.count_nonzero(documents))
        account.rejected_bytes += int(self.lengths[documents].sum())
        counts = self.reasons.filter(pa.array(rows)).value_counts().to_pylist()
        account.reasons += Counter({count["values"]: count["counts"] for count in counts})
