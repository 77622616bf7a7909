"""Documents in Parquet files with the columns of the token files, optionally shuffled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from pipelines.dataset.reading import TokenDataset
from pipelines.exports.files import ExportFiles, FormatOptions, Written
from pipelines.exports.row_export import write_rows
from pipelines.exports.row_files import RowFormat
from pipelines.exports.row_tasks import NumberedRows
from pipelines.exports.sections import Section, document_chunks
from pipelines.manifest.token_schema import schema
from pipelines.sorting.arrow_lists import build_lists

_GROUP_ROWS: Final = 1 << 16


def write_split(
    dataset: TokenDataset, split: str, files: ExportFiles, options: FormatOptions
) -> Written:
    """Write the documents of a split."""
    shape = DocumentRows(
        id_type=dataset.dtype.name,
        record_ids="id" in dataset.columns(split),
        kept=dataset.kept_columns,
        group_rows=options["row_group_rows"],
    )
    return write_rows(dataset, split, files, options, shape)


@dataclass(frozen=True, kw_only=True)
class DocumentRows:
    """Rows with the columns of the token files. The parts of a long document stay together.

    Attributes:
        id_type: "uint16" or "uint32".
        record_ids: True if there is a column `id`.
        kept: Columns of records that the token files keep.
        group_rows: Maximum number of rows of a row group, or None for the default.
    """

    id_type: str
    record_ids: bool
    kept: pa.Schema
    group_rows: int | None

    @property
    def row_format(self) -> RowFormat:
        """Return the row format, which is that of a build's token files."""
        return RowFormat(
            schema=schema(self.id_type, record_ids=self.record_ids, kept=self.kept),
            group_rows=_GROUP_ROWS,
            dictionary=("source",),
        ).with_group_rows(self.group_rows)

    @property
    def schema(self) -> pa.Schema:
        """Return the columns. Sources are text, since dictionaries differ between row groups."""
        written = self.row_format.schema
        at = written.get_field_index("source")
        return written.set(at, pa.field("source", pa.string(), nullable=False))

    def count(self, dataset: TokenDataset, split: str) -> int:
        """Return the number of documents."""
        return dataset.num_documents(split)

    def section(self, dataset: TokenDataset, split: str, first: int, end: int) -> Section:
        """Return the section of the documents [first, end)."""
        return Section.of_documents(dataset.of_split(split), first, end)

    def read(self, dataset: TokenDataset, section: Section, first: int) -> Iterator[NumberedRows]:
        """Yield the rows. All parts of a document have its number."""
        schema = self.schema
        names = [name for name in schema.names if name not in ("input_ids", "num_tokens")]
        for chunk in document_chunks(dataset, section, names):
            columns = {name: chunk.columns[name] for name in names}
            columns["source"] = columns["source"].cast(pa.string())
            columns["num_tokens"] = pa.array(np.diff(chunk.offsets).astype(np.int32))
            columns["input_ids"] = build_lists(
                chunk.ids, chunk.offsets, schema.field("input_ids").type
            )
            numbers = first - 1 + np.cumsum(chunk.starts, dtype=np.int64)
            documents = int(np.count_nonzero(chunk.starts))
            yield NumberedRows(
                table=pa.table(columns).select(schema.names).cast(schema),
                numbers=numbers.astype(np.uint64),
                begins=chunk.starts,
                documents=documents,
            )
            first += documents

    def complete(self, table: pa.Table) -> pa.Table:
        """Return the rows with a dictionary of sources in order of appearance."""
        at = table.schema.get_field_index("source")
        return table.set_column(at, "source", table["source"].dictionary_encode())
