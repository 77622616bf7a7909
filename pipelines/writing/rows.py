"""Rows of token files in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bpe_core.short_repr import short_repr
from pipelines.batches import DocumentBatch


@short_repr
@dataclass(frozen=True, kw_only=True, eq=False)
class TokenRows:
    """Encoded documents, or chunks of long ones: row i is ids[offsets[i]:offsets[i + 1]].

    Attributes:
        ids: uint16 or uint32, the ids of all rows.
        offsets: int64[n + 1].
        num_bytes: int64[n], bytes of the source text.
        positions: int64[n], position of the document in its file (the column `offset`).
        hashes: uint64[n, 2], upper and lower half of the xxh3-128 of the document's source text.
        parts: int32[n], number of the chunk of a long document; 0 for complete documents.
        sources: dictionary<string>[n], name of source and file.
        record_ids: string[n], the records' own ids; None if no row has one.
        kept: the columns of records that are kept; None if the source keeps none.
    """

    ids: NDArray[Any]
    offsets: NDArray[np.int64]
    num_bytes: NDArray[np.int64]
    positions: NDArray[np.int64]
    hashes: NDArray[np.uint64]
    parts: NDArray[np.int32]
    sources: pa.DictionaryArray
    record_ids: pa.StringArray | None = None
    kept: pa.RecordBatch | None = None

    @classmethod
    def of_batch(
        cls, batch: DocumentBatch, ids: NDArray[Any], offsets: NDArray[np.int64]
    ) -> TokenRows:
        """Return the rows of a batch's documents, given their ids."""
        return cls(
            ids=ids,
            offsets=offsets,
            num_bytes=batch.num_bytes,
            positions=batch.offsets,
            hashes=batch.hashes,
            parts=np.full(len(batch), batch.part, np.int32),
            sources=pa.DictionaryArray.from_arrays(
                np.zeros(len(batch), np.int32), pa.array([batch.source], pa.string())
            ),
            record_ids=batch.ids,
            kept=batch.kept,
        )

    @classmethod
    def join(cls, parts: Sequence[TokenRows]) -> TokenRows:
        """Return the rows of several parts, of which all or none keep columns."""
        ends = np.cumsum([part.offsets[-1] for part in parts])
        starts = [0, *ends[:-1].tolist()]
        kept = [part.kept for part in parts if part.kept is not None]
        record_ids = None
        if any(part.record_ids is not None for part in parts):
            record_ids = pa.concat_arrays([part.filled_record_ids for part in parts])
        return cls(
            ids=np.concatenate([part.ids for part in parts]),
            offsets=np.concatenate(
                [
                    *(part.offsets[:-1] + start for part, start in zip(parts, starts, strict=True)),
                    ends[-1:],
                ]
            ),
            num_bytes=np.concatenate([part.num_bytes for part in parts]),
            positions=np.concatenate([part.positions for part in parts]),
            hashes=np.concatenate([part.hashes for part in parts]),
            parts=np.concatenate([part.parts for part in parts]),
            sources=encode_sources([part.sources for part in parts]),
            record_ids=record_ids,
            kept=pa.Table.from_batches(kept).combine_chunks().to_batches()[0] if kept else None,
        )

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.num_bytes)

    @property
    def documents(self) -> int:
        """Return the number of documents that start in these rows."""
        return int(np.count_nonzero(self.parts == 0))

    @property
    def kept_bytes(self) -> NDArray[np.int64]:
        """Return the bytes of the texts in kept columns: int64[n]."""
        total = np.zeros(len(self), np.int64)
        for column in () if self.kept is None else self.kept.columns:
            if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
                total += pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
        return total

    @property
    def filled_record_ids(self) -> pa.StringArray:
        """Return the records' own ids, null for rows without one."""
        return pa.nulls(len(self), pa.string()) if self.record_ids is None else self.record_ids

    def slice(self, first: int, end: int) -> TokenRows:
        """Return the rows [first, end), as views."""
        start, stop = self.offsets[first], self.offsets[end]
        return replace(
            self,
            ids=self.ids[start:stop],
            offsets=self.offsets[first : end + 1] - start,
            num_bytes=self.num_bytes[first:end],
            positions=self.positions[first:end],
            hashes=self.hashes[first:end],
            parts=self.parts[first:end],
            sources=self.sources[first:end],
            record_ids=None if self.record_ids is None else self.record_ids[first:end],
            kept=None if self.kept is None else self.kept[first:end],
        )


def encode_sources(chunks: list[pa.DictionaryArray]) -> pa.DictionaryArray:
    """Join columns of sources. The dictionary contains the used names, in order of appearance.

    >>> names = pa.array(["a", "b", "c"])
    >>> chunks = [pa.DictionaryArray.from_arrays(pa.array([i], pa.int32()), names) for i in (2, 0)]
    >>> encode_sources(chunks).dictionary.to_pylist()
    ['c', 'a']
    """
    column = pa.chunked_array(chunks).unify_dictionaries()
    codes = pa.concat_arrays([chunk.indices for chunk in column.chunks]).dictionary_encode()
    names = column.chunk(0).dictionary.take(codes.dictionary)
    return pa.DictionaryArray.from_arrays(codes.indices, names)
