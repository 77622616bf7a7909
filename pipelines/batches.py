"""DocumentBatch: documents as readers yield them and as everything downstream takes them.

Within a fused stage a batch is passed as it is. For pipelines that shuffle batches, importing this
module registers a Beam coder: one row in the Arrow IPC streaming format.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

FIRST_BYTES: Final = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Reject:
    """A document that was left out, and why.

    Attributes:
        source: as `DocumentBatch.source`.
        offset: as `DocumentBatch.offsets`.
        length: bytes; of a line that can't be read, those of the line.
        reason: a short name, such as "invalid_utf8".
        message: what is wrong and at which byte, for people.
        first_bytes: up to 64 bytes that it begins with.
        id: the record's own id, where it has one that could be read.
    """

    source: str
    offset: int
    length: int
    reason: str
    message: str
    first_bytes: bytes
    id: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class DocumentBatch:
    """Documents of one file, in order: whole ones, or one piece of a long one.

    Document `i` is `data[starts[i]:ends[i]]`; between documents lie separators and what was left
    out. Documents are valid UTF-8 and not empty.

    Attributes:
        data: uint8, a few MB.
        starts, ends: int64[n], places in `data`, ascending.
        offsets: int64[n], where the file has each document: the first byte of text, or of a line of
            JSON, in the decompressed file; the number of the row in Parquet and Arrow.
        num_bytes: int64[n], bytes of the source text: before invalid UTF-8 was replaced.
        hashes: uint64[n, 2], upper and lower half of the xxh3-128 of each document's source text.
        source: name of the source, if it has one, "/", name of the file.
        ids: string[n], the records' own ids, null where one has none; None where the source has no
            `id_field`.
        part: number of the piece of a long document; 0 for whole documents.
        last: whether the document ends with this piece; True for whole documents.
        whole_bytes: for a piece, the bytes of its whole document; None for whole documents.
        special_at: for a piece, where in the source text of the whole document the first special
            token occurs; None if none does, and for whole documents.
        cutting: for a piece, what its document was cut by: `ReadOptions.cutting`; "" for whole
            documents.
        empty: number of empty documents met.
        framing_bytes: of text and JSON lines, the bytes of the decompressed file that are neither
            `num_bytes` nor the text of a document left out: separators, a byte-order mark, what is
            around the text in a line. With those they add up to the file. (Below 0 where fields are
            joined by more than stood around them.) 0 for Parquet and Arrow.
        not_selected, not_selected_bytes: number of documents that a selection left out, and their
            source text.
        rows: of Parquet and Arrow, with the last batch of a file: how many rows had to be read of
            the file, as its footer says; else 0.
        rejects: documents left out because something is wrong with them.

    A piece is alone in its batch. Its offset and its hash are those of the whole document, its
    num_bytes are its own.
    """

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    offsets: NDArray[np.int64]
    num_bytes: NDArray[np.int64]
    hashes: NDArray[np.uint64]
    source: str
    ids: pa.StringArray | None = None
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
        """Number of documents."""
        return len(self.starts)

    @property
    def all_documents(self) -> int:
        """Number of documents that were met, with those left out; a long one at its first piece."""
        kept = len(self) if self.part == 0 else 0
        return kept + self.empty + self.not_selected + len(self.rejects)

    @property
    def is_piece(self) -> bool:
        """Whether this is a piece of a long document, not whole documents."""
        return self.whole_bytes is not None

    def document(self, index: int) -> bytes:
        """The text of a document, for tests and messages; fast code works on the arrays."""
        return self.data[self.starts[index] : self.ends[index]].tobytes()

    def documents(self) -> Iterator[bytes]:
        """The text of each document. Of a long one, which comes in pieces, only this piece."""
        return map(self.document, range(len(self)))

    def where(self, index: int) -> str:
        """Which document it is, for messages: elements of a pipeline come from no file."""
        record_id = None if self.ids is None else self.ids[index].as_py()
        if self.source:
            own = "" if record_id is None else f", id {record_id!r}"
            return f"{self.source}, document at offset {self.offsets[index]:,}{own}"
        if record_id is not None:
            return f"the element with the id {record_id!r}"
        what = f"part {self.part} of an element, which" if self.part else "an element that"
        return f"{what} begins {self.document(index)[: FIRST_BYTES // 2]!r}"

    def select(self, kept: NDArray[np.bool_]) -> DocumentBatch:
        """The batch with only some of its documents; `empty` and `rejects` stay.

        Pieces of a long document must all be kept or all be left out: choose by what they share,
        such as `offsets`, `hashes` or `whole_bytes`.

        Args:
            kept: bool[n], which ones.

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
        )
