"""DocumentBatch: the documents that readers yield and everything downstream accepts.

Batches pass between fused steps unchanged. `pipelines.beam.coders` registers a Beam coder for
pipelines that shuffle them: one row in the Arrow IPC streaming format.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bpe_core.short_repr import short_repr

FIRST_BYTES: Final = 64


@short_repr
@dataclass(frozen=True, kw_only=True, slots=True)
class Reject:
    """Rejected document, or the unreadable rest of a bad file.

    Attributes:
        source: see `DocumentBatch.source`.
        offset: see `DocumentBatch.offsets`.
        length: number of bytes of the text, or of the line if the line is malformed.
        reason: short name such as "invalid_utf8".
        message: description of the problem, with the byte at which it occurs.
        first_bytes: up to 64 bytes from the start.
        id: the record's own id, if it has a readable one.
    """

    source: str
    offset: int
    length: int
    reason: str
    message: str
    first_bytes: bytes
    id: str | None = None


@short_repr
@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class DocumentBatch:
    """Documents of one file, in order: complete ones, or one chunk of a long one.

    Document `i` is `data[starts[i]:ends[i]]`; between documents are separators and excluded
    documents. Documents are valid UTF-8 and not empty.

    Attributes:
        data: uint8, a few MB.
        starts, ends: int64[n], positions in `data`, ascending.
        offsets: int64[n], position of each document in the file: the offset of the first byte of
            the text, or of its JSON line, in the decompressed file; the row number in Parquet and
            Arrow.
        num_bytes: int64[n], bytes of the source text, before invalid UTF-8 was replaced.
        hashes: uint64[n, 2], upper and lower half of the xxh3-128 of each document's source text.
        source: name of the source, if it has one, "/", name of the file.
        ids: string[n], the records' own ids, null for a record without one; None if the source has
            no `id_field`.
        kept: values of the columns that token files keep; None if the source keeps none.
        part: number of the chunk of a long document; 0 for complete documents.
        last: True for the last chunk of a document, and for complete documents.
        whole_bytes: for a chunk, the bytes of its complete document; None for complete documents.
        special_at: for a chunk, the position of the first special token in the source text of the
            complete document, or None.
        cutting: for a chunk, the rules by which its document was cut (`ReadOptions.cutting`); ""
            for complete documents.
        empty: number of empty documents that were skipped.
        framing_bytes: for text and JSON lines, the bytes of the decompressed file that are not text
            of documents: separators, a byte-order mark, the markup of lines. Together with
            `num_bytes`, the lengths of rejects and `not_selected_bytes` they add up to the file.
            (Negative if the join between fields is longer than the markup around them.) 0 for
            Parquet and Arrow.
        not_selected, not_selected_bytes: number of documents that were not selected, and the bytes
            of their source text.
        rows: for Parquet and Arrow, in the last batch of a file, the number of rows to read of the
            file according to its footer; else 0.
        rejects: documents that were rejected.

    A chunk is alone in its batch. It has the offset and the hash of the complete document, and its
    own `num_bytes`.
    """

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    offsets: NDArray[np.int64]
    num_bytes: NDArray[np.int64]
    hashes: NDArray[np.uint64]
    source: str
    ids: pa.StringArray | None = None
    kept: pa.RecordBatch | None = None
    part: int = 0
    last: bool = True
    whole_bytes: int | None = None
    special_at: int | None = None
    cutting: str = ""
    empty: int = 0
    framing_bytes: int = 0
    not_selected: int = 0
    not_selected_bytes: int = 0
    rows: int = 0
    rejects: tuple[Reject, ...] = field(default=())

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self.starts)

    @property
    def all_documents(self) -> int:
        """Number of documents read, excluded ones too; a long one counts at its first chunk."""
        kept = len(self) if self.part == 0 else 0
        return kept + self.empty + self.not_selected + len(self.rejects)

    @property
    def is_piece(self) -> bool:
        """True if this is a chunk of a long document, not complete documents."""
        return self.whole_bytes is not None

    def document(self, index: int) -> bytes:
        """Return the text of a document, for tests and messages; fast code uses the arrays."""
        return self.data[self.starts[index] : self.ends[index]].tobytes()

    def documents(self) -> Iterator[bytes]:
        """Yield the text of each document; for a long document, only this chunk."""
        return map(self.document, range(len(self)))

    def where(self, index: int) -> str:
        """Describe a document for messages; elements of a pipeline have no file."""
        record_id = None if self.ids is None else self.ids[index].as_py()
        if self.source:
            own = "" if record_id is None else f", id {record_id!r}"
            return f"{self.source}, document at offset {self.offsets[index]:,}{own}"
        if record_id is not None:
            return f"the element with the id {record_id!r}"
        what = f"part {self.part} of an element, which" if self.part else "an element that"
        return f"{what} starts with {self.document(index)[: FIRST_BYTES // 2]!r}"

    def select(self, kept: NDArray[np.bool_]) -> DocumentBatch:
        """Return the batch with only some of its documents; `empty` and `rejects` stay.

        All chunks of a long document must be kept or none: choose by properties that they share,
        such as `offsets`, `hashes` or `whole_bytes`.

        Args:
            kept: bool[n], mask of the documents to keep.

        Example:
            >>> batch = DocumentBatch(data=np.frombuffer(b"good bad", np.uint8), source="a",
            ...     starts=np.array([0, 5]), ends=np.array([4, 8]), offsets=np.array([0, 5]),
            ...     num_bytes=np.array([4, 3]), hashes=np.zeros((2, 2), np.uint64))
            >>> mask = np.array([text != b"bad" for text in batch.documents()])
            >>> list(batch.select(mask).documents())
            [b'good']
        """
        return replace(
            self,
            starts=self.starts[kept],
            ends=self.ends[kept],
            offsets=self.offsets[kept],
            num_bytes=self.num_bytes[kept],
            hashes=self.hashes[kept],
            ids=None if self.ids is None else self.ids.filter(pa.array(kept)),
            kept=None if self.kept is None else self.kept.filter(pa.array(kept)),
        )
