"""Writing of one token file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipelines.config.values import TOKEN_COLUMNS
from pipelines.storage.directory import Writable
from pipelines.storage.parquet import ParquetOutput
from pipelines.writing.rows import TokenRows, encode_sources

_ROW_GROUP_ROWS: Final = 1 << 16
_ROW_GROUP_TOKENS: Final = 1 << 20
_ROW_GROUP_KEPT: Final = 16 << 20  # bytes of texts in kept columns

# Small files make batches of few rows, with more memory for their arrays than for ids: so many
# batches are joined if they have no more rows on average.
_JOINED_BATCHES: Final = 64
_FEW_ROWS: Final = 8


class TokenFile(ParquetOutput):
    """Token file that gets its final name when it is complete.

    Row groups are cut by rows, tokens and bytes of kept columns alone, so a file does not depend on
    its batches.

    Args:
        directory: Directory of the file.
        name: Name of the file.
        columns: The columns (`token_schema.schema`).
        metadata: Metadata of build and task for the footer.
    """

    def __init__(
        self, directory: Writable, name: str, columns: pa.Schema, metadata: Mapping[str, str]
    ) -> None:
        kept = [column for column in columns.names if column not in TOKEN_COLUMNS]
        super().__init__(directory, name, columns, metadata, use_dictionary=["source", *kept])
        self._schema = columns
        self._kept = kept
        self._pending_kept = 0
        self._pending: list[TokenRows] = []
        self._not_joined = 0  # the last batches of them
        self._pending_rows = 0
        self._pending_tokens = 0
        self.rows = 0
        self.documents = 0
        self.tokens = 0
        self.text_bytes = 0

    def add(self, rows: TokenRows) -> None:
        """Add rows, and write each row group that they fill."""
        self.documents += rows.documents
        first = 0
        while first < len(rows):
            end = row_group_end(rows.offsets, first, self._pending_rows, self._pending_tokens)
            if rows.kept is not None:
                filled = self._pending_kept + np.cumsum(rows.kept_bytes[first:end])
                room = int(np.searchsorted(filled, _ROW_GROUP_KEPT, side="left"))
                end = min(end, first + room + 1)
                self._pending_kept = int(filled[end - first - 1])
            self._append(rows.slice(first, end))
            self._pending_rows += end - first
            self._pending_tokens += int(rows.offsets[end] - rows.offsets[first])
            first = end
            if self._pending_kept >= _ROW_GROUP_KEPT or fills_row_group(
                self._pending_rows, self._pending_tokens
            ):
                self._write_row_group()

    def finish(self) -> None:
        """Write the last row group and the footer. The file keeps its temporary name."""
        if self._pending:
            self._write_row_group()
        self._close({"rows": self.rows, "tokens": self.tokens, "bytes": self.text_bytes})

    @property
    def entry(self) -> dict[str, Any]:
        """The file's entry of the manifest, once the file is closed."""
        return {
            "name": self._name,
            "rows": self.rows,
            "documents": self.documents,
            "tokens": self.tokens,
            "text_bytes": self.text_bytes,
            "bytes": self._file.size,
            "xxh3_128": self._file.hexdigest,
        }

    def _append(self, rows: TokenRows) -> None:
        self._pending.append(rows)
        self._not_joined += 1
        if self._not_joined < _JOINED_BATCHES:
            return
        last = self._pending[-_JOINED_BATCHES:]
        if sum(map(len, last)) <= _FEW_ROWS * _JOINED_BATCHES and (
            len({part.kept is None for part in last}) == 1
        ):
            self._pending[-_JOINED_BATCHES:] = [TokenRows.join(last)]
        self._not_joined = 0

    def _write_row_group(self) -> None:
        parts = self._pending
        lengths = np.concatenate([np.diff(part.offsets) for part in parts])
        columns = {
            # One chunk per batch, over the memory that the encoder wrote: ids are not copied.
            "input_ids": pa.chunked_array([_id_lists(part, self._schema) for part in parts]),
            "num_tokens": pa.array(lengths.astype(np.int32)),
            "num_bytes": pa.array(np.concatenate([part.num_bytes for part in parts])),
            "source": encode_sources([part.sources for part in parts]),
            "offset": pa.array(np.concatenate([part.positions for part in parts])),
            "part": pa.array(np.concatenate([part.parts for part in parts])),
        }
        if "id" in self._schema.names:
            columns["id"] = pa.chunked_array([part.filled_record_ids for part in parts])
        for name in self._kept:
            columns[name] = pa.chunked_array(
                [_kept_column(part, self._schema.field(name)) for part in parts]
            )
        self._writer.write_table(pa.table(columns, schema=self._schema))
        self.rows += len(lengths)
        self.tokens += self._pending_tokens
        self.text_bytes += int(sum(part.num_bytes.sum() for part in parts))
        self._pending, self._pending_rows, self._pending_tokens = [], 0, 0
        self._pending_kept = self._not_joined = 0


def row_group_end(offsets: NDArray[np.int64], first: int, rows: int, tokens: int) -> int:
    """Return where to cut rows from `first` on: where the row group is full, or at the end.

    Args:
        offsets: Start of the ids of each row, and end of the last.
        first: The first row.
        rows, tokens: Rows and tokens that the row group already contains.
    """
    room = _ROW_GROUP_TOKENS - tokens
    filling = int(np.searchsorted(offsets, offsets[first] + room, side="left"))
    return min(len(offsets) - 1, filling, first + _ROW_GROUP_ROWS - rows)


def fills_row_group(rows: int, tokens: int) -> bool:
    """Return True if this many rows or tokens fill a row group."""
    return rows >= _ROW_GROUP_ROWS or tokens >= _ROW_GROUP_TOKENS


def _id_lists(rows: TokenRows, schema: pa.Schema) -> pa.ListArray:
    return pa.ListArray.from_arrays(
        pa.array(rows.offsets.astype(np.int32)),
        pa.array(rows.ids),
        type=schema.field("input_ids").type,
    )


def _kept_column(rows: TokenRows, field: pa.Field) -> pa.Array[Any]:
    return pa.nulls(len(rows), field.type) if rows.kept is None else rows.kept[field.name]
