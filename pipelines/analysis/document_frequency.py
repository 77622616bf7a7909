"""The number of documents that contain each id, by one pass over the token files.

The result stays beside the token files as `_documents.parquet`, with the fingerprint of the dataset
that it belongs to. It is a cache: no manifest lists it, and a dataset that grew is read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bpe_core._native import add_document_frequency
from bpe_core.buffers import to_arrow
from pipelines.console import progress
from pipelines.dataset.reading import SPLITS, TokenDataset
from pipelines.errors import InputError, OutputError
from pipelines.manifest.names import DOCUMENT_FREQUENCY
from pipelines.tokenizers.vocabulary import Vocabulary

__all__ = ["DocumentFrequency", "find_document_frequency"]

_FINGERPRINT: Final = b"bpe.dataset"
_SCHEMA: Final = pa.schema(
    [
        pa.field("split", pa.string(), nullable=False),
        pa.field("token_id", pa.int64(), nullable=False),
        pa.field("documents", pa.int64(), nullable=False),
        pa.field("first_row", pa.int64(), nullable=False),
    ]
)


@dataclass(frozen=True, kw_only=True)
class DocumentFrequency:
    """Documents of a split that contain each id of a vocabulary.

    Attributes:
        documents: int64[n], number of documents with each id, in the order of `Vocabulary.ids`.
        first_row: int64[n], the first row of the split with it; -1 if no document has it.
    """

    documents: NDArray[np.int64]
    first_row: NDArray[np.int64]


def find_document_frequency(
    dataset: TokenDataset, vocabulary: Vocabulary
) -> Mapping[str, DocumentFrequency]:
    """Return the documents with each id, by split; read the token files unless this was done.

    Args:
        dataset: the token files.
        vocabulary: ids of the tokenizer that encoded them.

    Raises:
        InputError: a token file is missing or damaged, or has other ids.
    """
    found = _read_cache(dataset, vocabulary)
    if found is None:
        found = _count_documents(dataset, vocabulary)
        _write_cache(dataset, vocabulary, found)
    return found


def _count_documents(dataset: TokenDataset, vocabulary: Vocabulary) -> dict[str, DocumentFrequency]:
    tokens = sum(map(dataset.num_tokens, SPLITS))
    with progress.show("reading token files", tokens, local=True):
        return {
            split: _count_documents_of_split(dataset, vocabulary, split)
            for split in SPLITS
            if dataset.of_split(split)
        }


def _count_documents_of_split(
    dataset: TokenDataset, vocabulary: Vocabulary, split: str
) -> DocumentFrequency:
    size = int(vocabulary.ids[-1]) + 1 if vocabulary.is_dense else len(vocabulary)
    documents = np.zeros(size, np.int64)
    first_row, last_document = np.full(size, -1, np.int64), np.full(size, -1, np.int64)
    row = document = 0
    for chunk in dataset.chunks(split, ["part"]):
        ids = chunk.ids if vocabulary.is_dense else vocabulary.rows_of(chunk.ids).astype(np.uint32)
        numbers = document + np.cumsum(chunk.starts, dtype=np.int64)
        try:
            add_document_frequency(
                np.ascontiguousarray(ids),
                np.ascontiguousarray(chunk.offsets),
                numbers,
                row,
                documents,
                first_row,
                last_document,
            )
        except ValueError as error:
            raise InputError(
                "A token file has ids that the tokenizer does not have.",
                found=str(error),
                where=dataset.tokens.path(chunk.file.name),
                hint="Check the output: `beam-bpe verify OUTPUT`.",
            ) from None
        progress.advance(len(ids))
        row += len(chunk)
        document = int(numbers[-1]) if len(numbers) else document
    rows = vocabulary.ids if vocabulary.is_dense else np.arange(size)
    return DocumentFrequency(documents=documents[rows], first_row=first_row[rows])


def _read_cache(
    dataset: TokenDataset, vocabulary: Vocabulary
) -> dict[str, DocumentFrequency] | None:
    """Return the cached result; None if it is missing, unreadable or of another dataset."""
    data = dataset.tokens.find_bytes(DOCUMENT_FREQUENCY)
    if data is None:
        return None
    try:
        table = pq.read_table(pa.BufferReader(data))
        metadata = table.schema.metadata or {}
        if metadata.get(_FINGERPRINT) != dataset.fingerprint.encode():
            return None
        table = table.cast(_SCHEMA)
    except (pa.ArrowException, OSError, ValueError):
        return None
    found: dict[str, DocumentFrequency] = {}
    for split in SPLITS:
        if not dataset.of_split(split):
            continue
        of_split = table.filter(pc.equal(table["split"], split))
        rows = vocabulary.rows_of(of_split["token_id"].to_numpy())
        if len(rows) and rows.min() < 0:
            return None
        documents = np.zeros(len(vocabulary), np.int64)
        first_row = np.full(len(vocabulary), -1, np.int64)
        documents[rows] = of_split["documents"].to_numpy()
        first_row[rows] = of_split["first_row"].to_numpy()
        found[split] = DocumentFrequency(documents=documents, first_row=first_row)
    return found


def _write_cache(
    dataset: TokenDataset, vocabulary: Vocabulary, found: Mapping[str, DocumentFrequency]
) -> None:
    """Keep the result beside the token files, if they can be written to."""
    parts: Sequence[pa.Table] = [
        pa.table(
            [
                pa.repeat(split, len(rows := np.flatnonzero(of_split.documents))),
                to_arrow(vocabulary.ids[rows]),
                to_arrow(of_split.documents[rows]),
                to_arrow(of_split.first_row[rows]),
            ],
            schema=_SCHEMA,
        )
        for split, of_split in found.items()
    ]
    table = pa.concat_tables([_SCHEMA.empty_table(), *parts])
    table = table.replace_schema_metadata({_FINGERPRINT: dataset.fingerprint.encode()})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    try:
        with dataset.tokens.write(DOCUMENT_FREQUENCY) as file:
            file.write(sink.getvalue())
    except OutputError:
        pass  # an output that may only be read; the next call reads the token files again
