"""Files of rejected documents: one per task with rejects."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.batches import Reject
from pipelines.errors import RejectLimitError
from pipelines.storage.directory import Directory, HashingFile

_SCHEMA = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("length", pa.int64(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("message", pa.string(), nullable=False),
        pa.field("first_bytes", pa.binary(), nullable=False),
        pa.field("id", pa.string()),
    ]
)
_ROW_GROUP_ROWS = 1 << 14


class RejectFile:
    """Writer for the rejects of a task to `NAME.parquet`; without rejects it writes no file.

    An error leaves no file, except that there are too many rejects: those until then are kept.

    Args:
        directory: directory of reject files.
        name: name of the file, without `.parquet`.
        metadata: description of build and task for the footer.
    """

    def __init__(
        self, directory: Directory, name: str, metadata: Mapping[str, str] | None = None
    ) -> None:
        self._directory = directory
        self._schema = _SCHEMA.with_metadata(metadata)
        self._name = f"{name}.parquet"
        self._stack = ExitStack()
        self._file: HashingFile | None = None
        self._writer: pq.ParquetWriter | None = None
        self._pending: list[Reject] = []
        self._rows = 0

    def add(self, rejects: Sequence[Reject]) -> None:
        """Add rejects, in order."""
        self._pending += rejects
        while len(self._pending) >= _ROW_GROUP_ROWS:
            self._write(self._pending[:_ROW_GROUP_ROWS])
            del self._pending[:_ROW_GROUP_ROWS]

    @property
    def entry(self) -> dict[str, Any] | None:
        """Entry of the file in the manifest, after it was written; None if there is no file."""
        if self._file is None:
            return None
        return {
            "name": self._name,
            "rows": self._rows,
            "bytes": self._file.size,
            "xxh3_128": self._file.hexdigest,
        }

    def _write(self, rejects: Sequence[Reject]) -> None:
        if self._writer is None:
            self._file = self._stack.enter_context(self._directory.write(self._name))
            self._writer = self._stack.enter_context(
                pq.ParquetWriter(pa.PythonFile(self._file, "w"), self._schema, compression="zstd")
            )
        table = pa.Table.from_pylist([asdict(reject) for reject in rejects], schema=_SCHEMA)
        self._writer.write_table(table)
        self._rows += len(rejects)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None and not isinstance(error, RejectLimitError):
            self._stack.__exit__(kind, error, traceback)
            return
        with self._stack:  # converts errors of writing the last rows to errors of the output
            if self._pending:
                self._write(self._pending)
            if self._writer is not None:
                totals = json.dumps({"rows": self._rows})
                self._writer.add_key_value_metadata({"bpe.totals": totals})
