"""Texts found in a file → batches: looked at once each, rejected or repaired, long ones cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bpe_core import _native
from bpe_core.normalization import native_normalizer
from pipelines.batches import FIRST_BYTES, DocumentBatch, Reject
from pipelines.errors import BadFileError, DamagedFileError, InputError
from pipelines.readers.long_documents import (
    LONGEST_CHARACTER,
    LongDocument,
    MemoryText,
    Readable,
    Specials,
)
from pipelines.readers.options import InvalidDocumentError, LongDocumentError, ReadOptions
from pipelines.readers.streams import ByteArray
from pipelines.redaction import scrub
from pipelines.rejects.reasons import INVALID_UTF8, TOO_LONG
from pipelines.tasks.listing import InputFile

IntArray = NDArray[np.int64]

_NO_PLACES: Final = np.empty(0, np.int64)


@dataclass(frozen=True, kw_only=True, slots=True)
class Texts:
    """Texts in a buffer, in the order of the file.

    Attributes:
        data: uint8.
        starts, ends: int64[n], places in `data`, ascending.
        places: int64[n], where the file has each: `DocumentBatch.offsets`.
        ids: the records' own ids, strings or null; None where records have none.
    """

    data: ByteArray
    starts: IntArray
    ends: IntArray
    places: IntArray
    ids: pa.StringArray | None = None

    def __len__(self) -> int:
        """Number of texts."""
        return len(self.starts)

    def select(self, kept: NDArray[np.bool_]) -> Texts:
        """Some of them; the buffer stays."""
        return Texts(
            data=self.data,
            starts=self.starts[kept],
            ends=self.ends[kept],
            places=self.places[kept],
            ids=None if self.ids is None else self.ids.filter(pa.array(kept)),
        )

    def slice(self, begin: int, end: int) -> Texts:
        """Those from `begin` to before `end`, with no more of the buffer than they span."""
        if begin == 0 and end == len(self):
            return self
        first, last = (self.starts[begin], self.ends[end - 1]) if begin < end else (0, 0)
        return Texts(
            data=self.data[first:last],
            starts=self.starts[begin:end] - first,
            ends=self.ends[begin:end] - first,
            places=self.places[begin:end],
            ids=None if self.ids is None else self.ids[begin:end],
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftOut:
    """Documents that were not selected: their number and their source text."""

    documents: int = 0
    bytes: int = 0

    def more(self, num_bytes: IntArray) -> LeftOut:
        """With others, of which each has so many bytes."""
        return LeftOut(
            documents=self.documents + len(num_bytes), bytes=self.bytes + int(num_bytes.sum())
        )


_NONE_LEFT_OUT: Final = LeftOut()

# The same for all files of a source, of which there may be a million.
_specials = lru_cache(maxsize=16)(Specials)
_normalizer = lru_cache(maxsize=16)(native_normalizer)


class BatchMaker:
    """Makes the batches of one file.

    Args:
        file: where the texts come from.
        options: how it is read.
    """

    def __init__(self, file: InputFile, options: ReadOptions):
        self._file = file
        self._options = options
        self._specials = _specials(options.special_tokens)
        self._normalizer = _normalizer(options.normalizer, options.normalize_quotes)

    def where(self, place: int, byte: int = 0) -> str:
        """A place in the file and, in text, a byte of the document there, for a person."""
        if self._options.format in ("parquet", "arrow"):
            return f"{self._file.url}, row {place:,}"
        of_text = " of the decompressed text" if self._file.compression else ""
        if self._options.format == "jsonl":
            return f"{self._file.url}, line at byte {place:,}{of_text}"
        return f"{self._file.url}, byte {place + byte:,}{of_text}"

    def reject(
        self,
        place: int,
        length: int,
        reason: str,
        message: str,
        head: bytes = b"",
        record_id: str | None = None,
    ) -> Reject:
        """A document of this file that is left out."""
        return Reject(
            source=self._file.label,
            offset=place,
            length=length,
            reason=reason,
            message=message,
            first_bytes=head[:FIRST_BYTES],
            id=record_id,
        )

    def rest_of_file(self, place: int, length: int, error: BadFileError) -> DocumentBatch:
        """The batch that rejects what can't be read of the file.

        Args:
            place: where reading stopped.
            length: what is known to be left: bytes, or rows; 0 if nothing is known.
            error: why it stopped. Of its text only what is the same on every machine is kept.
        """
        found = f" Found: {error.found}" if isinstance(error, DamagedFileError) else ""
        reject = self.reject(place, length, error.reason, scrub(f"{error.message}{found}"))
        return self.nothing(0, [reject])

    # --- whole documents

    def batch(
        self,
        texts: Texts,
        *,
        consumed: int | None = None,
        empty: int = 0,
        rejects: Sequence[Reject] = (),
        other_bytes: int = 0,
        left_out: LeftOut = _NONE_LEFT_OUT,
    ) -> DocumentBatch:
        """The batch of these texts, which are not empty.

        Args:
            texts: what to look at: selected, then rejected or repaired if it is not UTF-8.
            consumed: bytes of the file that they stand for, with `rejects` and with `other_bytes`
                that other batches hold; None where a file's bytes are no sum of such.
            empty: number of empty documents among them.
            rejects: documents left out already.
            other_bytes: see `consumed`.
            left_out: documents that were not selected already; not among `texts`.
        """
        data, starts, ends = texts.data, texts.starts, texts.ends
        num_bytes = ends - starts
        framing = 0
        if consumed is not None:
            framing = consumed - other_bytes - int(num_bytes.sum())
            framing -= sum(reject.length for reject in rejects) + left_out.bytes
        valid, hashes = _native.scan_documents(data, starts, ends)
        if not self._options.selection.is_all:
            taken = self._taken(texts, valid, hashes)
            left_out = left_out.more(num_bytes[~taken])
            texts = texts.select(taken)
            starts, ends = texts.starts, texts.ends
            num_bytes, valid, hashes = num_bytes[taken], valid[taken], hashes[taken]
        invalid = np.flatnonzero(valid < num_bytes)
        if len(invalid) and self._options.invalid_utf8 == "replace":
            broken = [data[starts[i] : ends[i]].tobytes() for i in invalid]
            repaired = [text.decode("utf-8", "replace").encode() for text in broken]
            data, starts, ends = with_texts(data, starts, ends, invalid, repaired)
        elif len(invalid):
            found = [self._invalid_text(texts, int(i), int(valid[i])) for i in invalid]
            rejects = sorted([*rejects, *found], key=lambda reject: reject.offset)
            kept = valid == num_bytes
            texts = texts.select(kept)
            starts, ends, num_bytes, hashes = (
                texts.starts,
                texts.ends,
                num_bytes[kept],
                hashes[kept],
            )
        return DocumentBatch(
            data=data,
            starts=starts,
            ends=ends,
            offsets=texts.places,
            num_bytes=num_bytes,
            hashes=hashes,
            source=self._file.label,
            ids=texts.ids,
            empty=empty,
            framing_bytes=framing,
            not_selected=left_out.documents,
            not_selected_bytes=left_out.bytes,
            rejects=tuple(rejects),
        )

    def _taken(
        self, texts: Texts, valid: IntArray, hashes: NDArray[np.uint64]
    ) -> NDArray[np.bool_]:
        """Which texts are selected; `valid` says where the valid UTF-8 of each ends."""
        selection = self._options.selection
        characters = _NO_PLACES
        if selection.counts_characters:
            characters = _native.count_characters(texts.data, texts.starts, texts.ends)
            for i in np.flatnonzero(valid < texts.ends - texts.starts):
                text = texts.data[texts.starts[i] : texts.ends[i]].tobytes()
                characters[i] = len(text.decode("utf-8", "replace"))
        return selection.of(hashes, characters)

    def record_batches(
        self, texts: Texts, *, consumed: int | None = None, rejects: Sequence[Reject] = ()
    ) -> Iterator[DocumentBatch]:
        """The batches of texts of any length, empty ones among them, that are in memory.

        The first one says what there is besides documents.
        """
        lengths = texts.ends - texts.starts
        too_long = np.flatnonzero(lengths > self._options.max_document_bytes)
        kept = lengths > 0
        left_out = _NONE_LEFT_OUT
        if len(too_long):
            kept[too_long] = False
            if not self._options.selection.is_all:
                scanned = texts.select(lengths > self._options.max_document_bytes)
                taken = self._taken(
                    scanned, *_native.scan_documents(scanned.data, scanned.starts, scanned.ends)
                )
                left_out = left_out.more(lengths[too_long[~taken]])
                too_long = too_long[taken]
            found = [self._too_long_text(texts, int(i)) for i in too_long]
            rejects = sorted([*rejects, *found], key=lambda reject: reject.offset)
        empty = int(np.count_nonzero(lengths == 0))
        texts, lengths = (texts, lengths) if kept.all() else (texts.select(kept), lengths[kept])
        long = np.flatnonzero(lengths > self._options.longest_common).tolist()
        first = long[0] if long else len(texts)
        yield self.batch(
            texts.slice(0, first),
            consumed=consumed,
            empty=empty,
            rejects=rejects,
            other_bytes=int(lengths[first:].sum()),
            left_out=left_out,
        )
        for i, following in pairwise([*long, len(texts)]):
            yield from self._long_text(texts, i)
            if following > i + 1:
                yield self.batch(texts.slice(i + 1, following))

    def _invalid_text(self, texts: Texts, i: int, valid: int) -> Reject:
        text = texts.data[texts.starts[i] : texts.ends[i]]
        found = text[valid : valid + LONGEST_CHARACTER].tobytes()
        head = text[:FIRST_BYTES].tobytes()
        return self._invalid(int(texts.places[i]), len(text), valid, found, head, _id(texts, i))

    def _invalid(
        self,
        place: int,
        length: int,
        valid: int,
        found: bytes,
        head: bytes,
        record_id: str | None,
    ) -> Reject:
        """The reject for a document with `found` at byte `valid`; an error if that is asked for."""
        shown = " ".join(f"0x{byte:02x}" for byte in found)
        if self._options.invalid_utf8 == "error":
            raise InvalidDocumentError(
                "A document is not valid UTF-8.",
                found=f"the bytes {shown} at byte {valid:,} of the document",
                where=self.where(place, valid),
                hint="Repair the text, or set invalid_utf8 (in a build input.invalid_utf8) to "
                "reject or replace.",
            )
        message = f"not valid UTF-8: the bytes {shown} at byte {valid} of the document"
        return self.reject(place, length, INVALID_UTF8, message, head, record_id)

    def _too_long_text(self, texts: Texts, i: int) -> Reject:
        text = texts.data[texts.starts[i] : texts.ends[i]]
        head = text[:FIRST_BYTES].tobytes()
        return self.too_long_reject(
            int(texts.places[i]), len(text), head, "a text", record_id=_id(texts, i)
        )

    def too_long_reject(
        self, place: int, length: int, head: bytes, what: str, record_id: str | None = None
    ) -> Reject:
        """The reject for what would have to be held in memory and is too long for that."""
        message = (
            f"{what} of {length:,} bytes; at most {self._options.max_document_bytes:,} are "
            "allowed (input.max_document_bytes)"
        )
        return self.reject(place, length, TOO_LONG, message, head, record_id)

    # --- long documents

    def long_document(self, place: int, ids: pa.StringArray | None = None) -> LongDocument:
        """A document that is looked at chunk by chunk."""
        counts = self._options.selection.counts_characters
        return LongDocument(place, self._specials, ids, count_characters=counts)

    def check(self, document: LongDocument) -> None:
        """Raises the error for what was seen of a document so far, if it is to be one."""
        is_error = self._options.invalid_utf8 == "error" and self._options.selection.is_all
        if document.invalid_at is not None and is_error:
            self._invalid_long(document)

    def long_batches(
        self,
        document: LongDocument,
        text_again: Callable[[], Readable],
        consumed: int | None = None,
    ) -> Iterator[DocumentBatch]:
        """The pieces of a document that was looked at to its end.

        Args:
            document: what was found out.
            text_again: gives the same text once more.
            consumed: bytes of the file that it stands for.
        """
        framing = 0 if consumed is None else consumed - document.length
        selection = self._options.selection
        if not selection.of(document.hashes, np.array([document.characters])).all():
            yield self.nothing(framing, left_out=LeftOut(documents=1, bytes=document.length))
        elif self._must_fit(document) and document.length > self._options.max_document_bytes:
            reject = self.too_long_reject(
                document.place, document.length, document.head, "a document", document.record_id
            )
            yield self.nothing(framing, [reject])
        elif document.invalid_at is None or self._options.invalid_utf8 == "replace":
            yield from self._pieces(document, text_again(), framing)
        else:
            yield self.nothing(framing, [self._invalid_long(document)])

    def nothing(
        self,
        framing: int,
        rejects: Sequence[Reject] = (),
        *,
        left_out: LeftOut = _NONE_LEFT_OUT,
        rows: int = 0,
    ) -> DocumentBatch:
        """A batch without documents."""
        return DocumentBatch(
            data=np.empty(0, np.uint8),
            starts=_NO_PLACES,
            ends=_NO_PLACES,
            offsets=_NO_PLACES,
            num_bytes=_NO_PLACES,
            hashes=np.empty((0, 2), np.uint64),
            source=self._file.label,
            framing_bytes=framing,
            not_selected=left_out.documents,
            not_selected_bytes=left_out.bytes,
            rows=rows,
            rejects=tuple(rejects),
        )

    def _long_text(self, texts: Texts, i: int) -> Iterator[DocumentBatch]:
        text = texts.data[texts.starts[i] : texts.ends[i]]
        ids = None if texts.ids is None else texts.ids[i : i + 1]
        document = self.long_document(int(texts.places[i]), ids)
        step = self._options.read_bytes
        for begin in range(0, len(text), step):
            document.add(text[begin : begin + step], is_last=begin + step >= len(text))
        yield from self.long_batches(document, lambda: MemoryText(text))

    def _invalid_long(self, document: LongDocument) -> Reject:
        valid = document.invalid_at or 0
        found, head = document.invalid_bytes, document.head
        return self._invalid(
            document.place, document.length, valid, found, head, document.record_id
        )

    def _must_fit(self, document: LongDocument) -> bool:
        """Whether it would have to be held in memory."""
        return not self._options.cut or self._is_whole(document)

    def _is_whole(self, document: LongDocument) -> bool:
        """Whether its source text, which is to be repaired, does not show where not to cut."""
        is_repaired = document.invalid_at is not None and self._options.invalid_utf8 == "replace"
        return is_repaired and self._specials.replacing_makes_one

    def _pieces(
        self, document: LongDocument, source: Readable, framing: int
    ) -> Iterator[DocumentBatch]:
        is_invalid = document.invalid_at is not None
        limit = document.length if self._is_whole(document) else self._options.piece_bytes
        text: ByteArray = np.empty(0, np.uint8)
        left = document.length
        part = 0
        while len(text) or left:
            text, left, cut = self._next_cut(document, source, text, left, limit)
            piece = text[:cut]
            text = text[cut:]
            if is_invalid:
                piece = np.frombuffer(piece.tobytes().decode("utf-8", "replace").encode(), np.uint8)
            yield DocumentBatch(
                data=piece,
                starts=np.zeros(1, np.int64),
                ends=np.array([len(piece)], np.int64),
                offsets=np.array([document.place], np.int64),
                num_bytes=np.array([cut], np.int64),
                hashes=document.hashes,
                source=self._file.label,
                ids=document.ids,
                part=part,
                last=not len(text) and not left,
                whole_bytes=document.length,
                special_at=document.special_at,
                cutting=self._options.cutting,
                framing_bytes=framing if part == 0 else 0,
            )
            part += 1

    def _next_cut(
        self, document: LongDocument, source: Readable, text: ByteArray, left: int, limit: int
    ) -> tuple[ByteArray, int, int]:
        """Where the piece ends that `text` begins with; `text` with what had to be read for that.

        `left` is how much of the document is not read yet.
        """
        most = self._options.max_document_bytes
        wanted = limit + _native.cut_lookahead(self._specials.matcher)
        while True:
            if len(text) < wanted and left:
                text, left = self._more_text(source, text, left, wanted - len(text))
            seen = text[:wanted]
            is_all = not left and len(seen) == len(text)
            if is_all and len(seen) <= limit:
                return text, left, len(seen)
            cut = _native.safe_cut(
                seen,
                is_all,
                limit,
                self._specials.matcher,
                self._normalizer,
                self._options.cut_before_white_space,
            )
            if cut is not None:
                return text, left, cut
            if is_all:
                return text, left, len(seen)
            if wanted >= most:
                raise self.too_long(document.place, document.length - left - len(text))
            wanted = min(2 * wanted, most)

    def _more_text(
        self, source: Readable, text: ByteArray, left: int, amount: int
    ) -> tuple[ByteArray, int]:
        amount = min(amount, left)
        longer = np.empty(len(text) + amount, np.uint8)
        longer[: len(text)] = text
        done = len(text)
        while done < len(longer):
            try:
                got = source.read_into(longer[done:])
            except BadFileError as error:
                if not self._options.keep_readable:
                    raise
                # Its first pieces are given already, so it can't be a reject any more.
                raise self._interrupted(str(error.found)) from error
            if not got:
                raise self._interrupted("an earlier end")
            done += got
        return longer, left - amount

    def _interrupted(self, found: str) -> InputError:
        return InputError(
            "A long document could be read once, but not a second time.",
            expected="the same bytes, from which its pieces are made",
            found=found,
            where=self._file.url,
            hint="Check the file and its storage, then run the command again.",
        )

    def too_long(self, place: int, byte: int = 0) -> LongDocumentError:
        """The error for a long document of which some pieces are given, and no other can be."""
        most = f"{self._options.max_document_bytes:,} bytes (input.max_document_bytes)"
        before_white_space = self._options.cut_before_white_space
        return LongDocumentError(
            "A long document has no place where it can be cut.",
            expected=f"within {most} a letter followed by "
            + ("white space" if before_white_space else "something else than a letter"),
            found="none",
            where=self.where(place, byte),
            hint="Check that the file is text and that input.separator is right, or raise "
            "input.max_document_bytes if memory allows.",
        )


def _id(texts: Texts, i: int) -> str | None:
    value: str | None = None if texts.ids is None else texts.ids[i].as_py()
    return value


def with_texts(
    data: ByteArray,
    starts: IntArray,
    ends: IntArray,
    which: NDArray[np.intp],
    texts: Sequence[bytes],
) -> tuple[ByteArray, IntArray, IntArray]:
    """Put other texts in the place of those with these indices; the new data, starts and ends."""
    parts: list[ByteArray] = []
    growth = np.zeros(len(starts), np.int64)
    position = 0
    for i, text in zip(which, texts, strict=True):
        parts += (data[position : starts[i]], np.frombuffer(text, np.uint8))
        position = ends[i]
        growth[i] = len(text) - (ends[i] - starts[i])
    shift = np.cumsum(growth)
    return np.concatenate([*parts, data[position:]]), starts + shift - growth, ends + shift
