"""What a replay knows of its dataset: accounts of files, and the job of its tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipelines.accounting import DocumentTotals
from pipelines.manifest.names import task_name
from pipelines.readers.tasks import TaskWork
from pipelines.rejects.reasons import REASONS_OF_FILES
from pipelines.storage.directory import Directory
from pipelines.storage.parquet import read_table
from pipelines.tasks.listing import InputFile
from pipelines.writing.replayed import IntArray, Taken, write_taken

BYTE_KEYS = ("bytes", "rejected_bytes", "not_selected_bytes", "framing_bytes")


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """What is there.

    Attributes:
        tokens, rejects: its directories.
        manifest: of the token files.
        run: its `run.json`; empty if it is not there.
    """

    tokens: Directory
    rejects: Directory
    manifest: Mapping[str, Any]
    run: Mapping[str, Any]

    @property
    def inputs(self) -> dict[str, Mapping[str, Any]]:
        """The input files of the manifest, by label."""
        return {file["name"]: file for file in self.manifest["inputs"]}


@dataclass(kw_only=True)
class Account:
    """What of a file is replayed.

    Attributes:
        file: that is read.
        rejected, rejected_bytes: documents that were rejected and are taken, and their lengths.
        reasons: why they were, with the rests of files.
        whole: what all of a repaired file holds; None if the file is the same.
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
        parts: of each task, what it reads.
        taken: of each task, what it takes, by label.
        carried: rejects that stay, as file and rows; the first task writes them.
        superseded: files of rejects that others take the place of.
        accounts: by label.
        left: of each file that was repaired before, or is damaged, what can't be taken from it.
    """

    parts: list[tuple[tuple[InputFile, int, int], ...]] = field(default_factory=list)
    taken: list[dict[str, Taken]] = field(default_factory=list)
    carried: list[tuple[str, NDArray[np.intp]]] = field(default_factory=list)
    superseded: list[str] = field(default_factory=list)
    accounts: dict[str, Account] = field(default_factory=dict)
    left: Counter[str] = field(default_factory=Counter)

    @property
    def works(self) -> list[TaskWork]:
        """The tasks as they are given to workers."""
        of = len(self.parts)
        return [TaskWork(index=i, of=of, hash=0, parts=p) for i, p in enumerate(self.parts)]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What could not be taken."""
        return tuple(
            f"{number:,} rejects of {label} stay: they need a repaired file, --source {label}=PATH"
            for label, number in self.left.items()
        )

    def write(self, entries: Directory, rejects: Directory) -> None:
        """Writes what the tasks take, where they look for it."""
        of = len(self.parts)
        for i, taken in enumerate(self.taken):
            write_taken(entries, task_name(i, of), taken, [] if i else self.carried, rejects)


@dataclass(frozen=True, kw_only=True)
class Rejects:
    """The rows of a file of rejects: arrays as long as it."""

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
        """Return which rows are rejects of an input file."""
        if label not in self.labels:
            return np.zeros(len(self.codes), bool)
        found: NDArray[np.bool_] = self.codes == self.labels.index(label)
        return found

    def note(self, rows: NDArray[np.bool_], account: Account) -> None:
        """Adds these rows to what is taken of a file."""
        documents = rows & ~self.is_rest
        account.rejected += int(np.count_nonzero(documents))
        account.rejected_bytes += int(self.lengths[documents].sum())
        counts = self.reasons.filter(pa.array(rows)).value_counts().to_pylist()
        account.reasons += Counter({count["values"]: count["counts"] for count in counts})
