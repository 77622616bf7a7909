"""Packed rows for training programs: ids of several documents, with the documents' lengths."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from pipelines.dataset.reading import TokenDataset
from pipelines.exports.files import ExportFiles, FormatOptions, Written
from pipelines.exports.packing import (
    PackedRows,
    Stretch,
    best_fit_packed,
    concatenated_rows,
    position_ids,
)
from pipelines.exports.row_export import write_rows
from pipelines.exports.row_files import GROUP_IDS, RowFormat
from pipelines.exports.row_tasks import NumberedRows
from pipelines.exports.sections import Section, document_stretches, token_stretches
from pipelines.manifest.token_schema import ID_TYPES
from pipelines.sorting.arrow_lists import build_lists, flatten_lists

# The number of a row in a shuffle is its window's number shifted left, plus its number in the
# window.
_WINDOW_SHIFT: Final = 40


def write_split(
    dataset: TokenDataset, split: str, files: ExportFiles, options: FormatOptions
) -> Written:
    """Write the packed rows of a split."""
    length = options["sequence_length"]
    assert length is not None, "the default is a number"
    shape = PackedShape(
        id_type=dataset.dtype.name,
        sequence_length=length,
        window=options["packing_window"],
        pad_id=options["pad_id"],
        position_ids=options["position_ids"],
        group_rows=options["row_group_rows"],
    )
    return write_rows(dataset, split, files, options, shape)


@dataclass(frozen=True, kw_only=True)
class PackedShape:
    """Rows of at most `sequence_length` ids.

    Attributes:
        id_type: "uint16" or "uint32".
        sequence_length: Ids of a full row.
        window: Number of documents to pack together, or None to concatenate the ids and cut them.
        pad_id: Id that fills rows, or None if rows may be shorter.
        position_ids: True to add a column with the position of each id in its document.
        group_rows: Maximum number of rows of a row group, or None for the default.
    """

    id_type: str
    sequence_length: int
    window: int | None
    pad_id: int | None
    position_ids: bool
    group_rows: int | None

    @property
    def row_format(self) -> RowFormat:
        """Return the row format."""
        schema = self.schema
        if self.position_ids:
            schema = schema.append(_list_field("position_ids", pa.int32()))
        return RowFormat(
            schema=schema,
            group_rows=max(1, GROUP_IDS // self.sequence_length),
            delta=("position_ids.list.element",) if self.position_ids else (),
        ).with_group_rows(self.group_rows)

    @property
    def schema(self) -> pa.Schema:
        """Return the columns, without positions, which are computed from the lengths."""
        return pa.schema(
            [
                _list_field("input_ids", ID_TYPES[self.id_type]),
                pa.field("num_tokens", pa.int32(), nullable=False),
                _list_field("document_lengths", pa.int32()),
            ]
        )

    def count(self, dataset: TokenDataset, split: str) -> int:
        """Return the number of rows, or of windows if documents are packed."""
        if self.window is None:
            return -(-dataset.num_tokens(split) // self.sequence_length)
        return -(-dataset.num_documents(split) // self.window)

    def section(self, dataset: TokenDataset, split: str, first: int, end: int) -> Section:
        """Return the section of the rows or windows [first, end)."""
        files = dataset.of_split(split)
        if self.window is None:
            tokens, length = dataset.num_tokens(split), self.sequence_length
            return Section.of_tokens(files, first * length, min(end * length, tokens))
        documents = dataset.num_documents(split)
        return Section.of_documents(files, first * self.window, min(end * self.window, documents))

    def read(self, dataset: TokenDataset, section: Section, first: int) -> Iterator[NumberedRows]:
        """Yield the packed rows."""
        seen = _Documents()
        if self.window is None:
            stretches = seen.counted(token_stretches(dataset, section))
            for rows in concatenated_rows(stretches, self.sequence_length, pad_id=self.pad_id):
                yield self._number(rows, first, seen.take())
                first += len(rows)
        else:
            stretches = seen.counted(document_stretches(dataset, section))
            window = row = 0
            for number, rows in best_fit_packed(
                stretches,
                self.sequence_length,
                self.window,
                dtype=dataset.dtype,
                pad_id=self.pad_id,
            ):
                row = row if number == window else 0
                window = number
                begin = ((first + number) << _WINDOW_SHIFT) + row
                yield self._number(rows, begin, seen.take())
                row += len(rows)
        if documents := seen.take():  # documents without ids after the last row
            none = np.empty(0, np.int64)
            rows = PackedRows.of_pieces(np.empty(0, dataset.dtype), none, none)
            yield self._number(rows, 0, documents)

    def _number(self, rows: PackedRows, first: int, documents: int) -> NumberedRows:
        schema = self.schema
        columns = [
            build_lists(rows.ids, rows.offsets, schema.field("input_ids").type),
            pa.array(rows.num_tokens),
            build_lists(
                rows.document_lengths,
                rows.document_offsets,
                schema.field("document_lengths").type,
            ),
        ]
        return NumberedRows(
            table=pa.table(columns, schema=schema),
            numbers=np.arange(first, first + len(rows), dtype=np.uint64),
            begins=np.ones(len(rows), np.bool_),
            documents=documents,
        )

    def complete(self, table: pa.Table) -> pa.Table:
        """Return the rows with positions, if requested."""
        if not self.position_ids:
            return table
        lengths, _ = flatten_lists(table["document_lengths"])
        _, offsets = flatten_lists(table["input_ids"])
        positions = position_ids(lengths, table["num_tokens"].to_numpy(), offsets)
        field = _list_field("position_ids", pa.int32())
        return table.append_column(field, build_lists(positions, offsets, field.type))


class _Documents:
    """Counter of the documents that begin in stretches."""

    def __init__(self) -> None:
        self._seen = 0

    def counted(self, stretches: Iterable[Stretch]) -> Iterator[Stretch]:
        """Yield stretches, and count their documents."""
        for stretch in stretches:
            self._seen += len(stretch.starts)
            yield stretch

    def take(self) -> int:
        """Return the number since the last call."""
        seen, self._seen = self._seen, 0
        return seen


def _list_field(name: str, kind: pa.DataType) -> pa.Field:
    element = pa.field("element", kind, nullable=False)
    return pa.field(name, pa.list_(element), nullable=False)
