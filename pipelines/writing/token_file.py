"""A token file while it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipelines.storage.directory import Directory
from pipelines.storage.parquet import ParquetOutput
from pipelines.writing.rows import Rows

_ROW_GROUP_ROWS = 1 << 16
_ROW_GROUP_TOKENS = 1 << 20


class TokenFile(ParquetOutput):
    """A token file that gets its final name when it is whole.

    Row groups are cut by rows and tokens, wherever batches were cut.

    Args:
        directory: that it is in.
        name: of the file.
        columns: as `token_schema.schema` gives them.
        metadata: what its footer says of build and task.
    """

    def __init__(
        self, directory: Directory, name: str, columns: pa.Schema, metadata: Mapping[str, str]
    ) -> None:
        super().__init__(directory, name, columns, metadata, use_dictionary=["source"])
        self._schema = columns
        self._pending: list[Rows] = []
        self._pending_rows = 0
        self._pending_tokens = 0
        self.rows = 0
        self.documents = 0
        self.tokens = 0
        self.text_bytes = 0

    def add(self, rows: Rows) -> None:
        """Takes the rows of a batch."""
        self.documents += int(np.count_nonzero(rows.part_numbers == 0))
        first = 0
        while first < len(rows):
            end = row_group_end(rows.offsets, first, self._pending_rows, self._pending_tokens)
            self._pending.append(rows.slice(first, end))
            self._pending_rows += end - first
            self._pending_tokens += int(rows.offsets[end] - rows.offsets[first])
            first = end
            if fills_row_group(self._pending_rows, self._pending_tokens):
                self._write_row_group()

    def _write_row_group(self) -> None:
        parts = self._pending
        lengths = np.concatenate([np.diff(part.offsets) for part in parts])
        columns = {
            # A chunk for each batch: the ids stay where they were written.
            "input_ids": pa.chunked_array([_lists(part, self._schema) for part in parts]),
            "num_tokens": pa.array(lengths.astype(np.int32)),
            "num_bytes": pa.array(np.concatenate([part.num_bytes for part in parts])),
            "source": _sources(parts),
            "offset": pa.array(np.concatenate([part.places for part in parts])),
            "part": pa.array(np.concatenate([part.part_numbers for part in parts])),
        }
        if "id" in self._schema.names:
            columns["id"] = pa.chunked_array([_record_ids(part) for part in parts])
        self._writer.write_table(pa.table(columns, schema=self._schema))
        self.rows += len(lengths)
        self.tokens += self._pending_tokens
        self.text_bytes += int(sum(part.num_bytes.sum() for part in parts))
        self._pending, self._pending_rows, self._pending_tokens = [], 0, 0

    def finish(self) -> None:
        """Completes the bytes; the file still has its temporary name."""
        if self._pending:
            self._write_row_group()
        self._close({"rows": self.rows, "tokens": self.tokens, "bytes": self.text_bytes})

    @property
    def entry(self) -> dict[str, Any]:
        """The file's entry of the manifest, once it is closed."""
        return {
            "name": self._name,
            "rows": self.rows,
            "documents": self.documents,
            "tokens": self.tokens,
            "text_bytes": self.text_bytes,
            "bytes": self._file.size,
            "xxh3_128": self._file.hexdigest,
        }


def row_group_end(offsets: NDArray[np.int64], first: int, rows: int, tokens: int) -> int:
    """The row after the one that fills a row group that holds so much, or the last row."""
    room = _ROW_GROUP_TOKENS - tokens
    filling = int(np.searchsorted(offsets, offsets[first] + room, side="left"))
    return min(len(offsets) - 1, filling, first + _ROW_GROUP_ROWS - rows)


def fills_row_group(rows: int, tokens: int) -> bool:
    """Whether a row group with so much is written."""
    return rows >= _ROW_GROUP_ROWS or tokens >= _ROW_GROUP_TOKENS


def _record_ids(rows: Rows) -> pa.StringArray:
    return pa.nulls(len(rows), pa.string()) if rows.record_ids is None else rows.record_ids


def _lists(rows: Rows, schema: pa.Schema) -> pa.ListArray:
    return pa.ListArray.from_arrays(
        pa.array(rows.offsets.astype(np.int32)),
        pa.array(rows.ids),
        type=schema.field("input_ids").type,
    )


def _sources(parts: Sequence[Rows]) -> pa.DictionaryArray:
    """The column `source`: its dictionary has the sources in order of appearance."""
    known: dict[str, int] = {}
    indices = []
    for part in parts:
        names, which = part.sources
        of_all = [known.setdefault(name, len(known)) for name in names]
        indices.append(np.array(of_all, np.int32)[which])
    return pa.DictionaryArray.from_arrays(
        pa.array(np.concatenate(indices)), pa.array(list(known), pa.string())
    )
