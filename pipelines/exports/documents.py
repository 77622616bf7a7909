"""Documents as they are in the token files, in other files, and shuffled if asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.dataset.reading import TokenDataset
from pipelines.exports.export import ExportFiles, Written
from pipelines.exports.row_export import NumberedRows
from pipelines.exports.row_files import RowFormat
from pipelines.exports.row_pipeline import write_rows
from pipelines.exports.sections import Section, document_chunks
from pipelines.manifest.token_schema import schema
from pipelines.sorting.arrow_lists import list_array

_GROUP_ROWS = 1 << 16


def write_split(
    dataset: TokenDataset, split: str, files: ExportFiles, options: Mapping[str, Any]
) -> Written:
    """Writes the documents of a split."""
    shape = DocumentRows(
        id_type=dataset.dtype.name,
        record_ids="id" in dataset.columns(split),
        group_rows=options["row_group_rows"],
    )
    return write_rows(dataset, split, files, options, shape)


@dataclass(frozen=True, kw_only=True)
class DocumentRows:
    """Rows with the columns of the token files. The parts of a long document stay together.

    Attributes:
        id_type: "uint16" or "uint32".
        record_ids: whether there is the column `id`.
        group_rows: most rows of a row group, if asked for.
    """

    id_type: str
    record_ids: bool
    group_rows: int | None

    @property
    def row_format(self) -> RowFormat:
        """As `beam-bpe encode` writes token files."""
        return RowFormat(
            schema=schema(self.id_type, record_ids=self.record_ids),
            group_rows=_GROUP_ROWS,
            dictionary=("source",),
        ).with_group_rows(self.group_rows)

    @property
    def schema(self) -> pa.Schema:
        """The sources as they are: dictionaries differ between row groups."""
        written = self.row_format.schema
        at = written.get_field_index("source")
        return written.set(at, pa.field("source", pa.string(), nullable=False))

    def count(self, dataset: TokenDataset, split: str) -> int:
        """Documents."""
        return dataset.num_documents(split)

    def section(self, dataset: TokenDataset, split: str, first: int, end: int) -> Section:
        """Where the documents [first, end) are."""
        return Section.of_documents(dataset.of_split(split), first, end)

    def read(self, dataset: TokenDataset, section: Section, first: int) -> Iterator[NumberedRows]:
        """The rows; the parts of a document have its number."""
        schema = self.schema
        names = [name for name in schema.names if name not in ("input_ids", "num_tokens")]
        for chunk in document_chunks(dataset, section, names):
            columns = {name: chunk.columns[name] for name in names}
            columns["source"] = columns["source"].cast(pa.string())
            columns["num_tokens"] = pa.array(np.diff(chunk.offsets).astype(np.int32))
            columns["input_ids"] = list_array(
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
        """The sources in order of appearance as the dictionary."""
        at = table.schema.get_field_index("source")
        return table.set_column(at, "source", table["source"].dictionary_encode())
