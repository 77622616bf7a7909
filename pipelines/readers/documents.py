"""Texts found in a file → batches: each is validated, rejected or repaired, and cut if it is long.

A document is selected before it is validated, so the policies for bad data do not change which
documents are selected. Every document that leaves this module is valid UTF-8 and not empty; empty
documents are counted only.

A long document is scanned to its end first (validity, special tokens, length, hash), so that it is
accepted or rejected as a whole; a second pass reads it again in chunks. A chunk ends after a letter
and before a character that is not a letter, mark or apostrophe, where no special token spans the
cut. Every named pattern except `none` has a boundary there, so pre-tokens and ids are those of the
complete document (`bpe_core.reference.cut_places`). Whitespace-delimited words are cut only before
white space. With a normalizer, both characters must be ones that it never changes: documents are
cut in the source, so that chunks can be normalized separately. Compiled patterns, and vocabularies
that are used without a pattern, say themselves where text may be cut. Where no safe cut is known,
documents are read completely, up to `input.max_document_bytes`.
"""

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
from bpe_core.patterns import WHITESPACE_WORDS, resolve_pattern
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
from pipelines.redaction import redact
from pipelines.rejects.reasons import INVALID_UTF8, TOO_LONG
from pipelines.tasks.listing import InputFile

IntArray = NDArray[np.int64]

_NO_PLACES: Final = np.empty(0, np.int64)


@dataclass(frozen=True, kw_only=True, slots=True)
class Texts:
    """Texts in a buffer, in the order of the file.

    Attributes:
        data: uint8.
        starts, ends: int64[n], positions in `data`, ascending.
        offsets: int64[n], offset of each in the file; see `DocumentBatch.offsets`.
        ids: the records' own ids, strings or null; None where records have none.
        kept: see `DocumentBatch.kept`.
    """

    data: ByteArray
    starts: IntArray
    ends: IntArray
    offsets: IntArray
    ids: pa.StringArray | None = None
    kept: pa.RecordBatch | None = None

    def __len__(self) -> int:
        """Return the number of texts."""
        return len(self.starts)

    def select(self, kept: NDArray[np.bool_]) -> Texts:
        """Return some of the texts, with the same buffer."""
        return Texts(
            data=self.data,
            starts=self.starts[kept],
            ends=self.ends[kept],
            offsets=self.offsets[kept],
            ids=None if self.ids is None else self.ids.filter(pa.array(kept)),
            kept=None if self.kept is None else self.kept.filter(pa.array(kept)),
        )

    def slice(self, begin: int, end: int) -> Texts:
        """Return the texts from `begin` to before `end`, and only the buffer that they span."""
        if begin == 0 and end == len(self):
            return self
        first, last = (self.starts[begin], self.ends[end - 1]) if begin < end else (0, 0)
        return Texts(
            data=self.data[first:last],
            starts=self.starts[begin:end] - first,
            ends=self.ends[begin:end] - first,
            offsets=self.offsets[begin:end],
            ids=None if self.ids is None else self.ids[begin:end],
            kept=None if self.kept is None else self.kept[begin:end],
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class NotSelected:
    """Number of documents that were not selected, and the bytes of their source text."""

    documents: int = 0
    bytes: int = 0

    def plus(self, num_bytes: IntArray) -> NotSelected:
        """Return the sum with more documents, given the bytes of each."""
        return NotSelected(
            documents=self.documents + len(num_bytes), bytes=self.bytes + int(num_bytes.sum())
        )


_ALL_SELECTED: Final = NotSelected()

# Shared by all files of a source, of which there may be a million.
_specials = lru_cache(maxsize=16)(Specials)
_normalizer = lru_cache(maxsize=16)(native_normalizer)


class BatchMaker:
    """Maker of the batches of one file.

    Args:
        file: the file that contains the texts.
        options: rules for reading it.
    """

    def __init__(self, file: InputFile, options: ReadOptions):
        self._file = file
        self._options = options
        self._scanner = options.splitter or resolve_pattern(options.pattern).scanner or "none"
        self._normalizer = _normalizer(options.normalizer, options.normalize_quotes)
        self._specials = _specials(options.special_tokens, options.token_flags, self._normalizer)

    def where(self, offset: int, byte: int = 0) -> str:
        """Describe a position in the file; `byte` is relative to the document, for text only."""
        if self._options.format in ("parquet", "arrow"):
            return f"{self._file.url}, row {offset:,}"
        of_text = " of the decompressed text" if self._file.compression else ""
        if self._options.format == "jsonl":
            return f"{self._file.url}, line at byte {offset:,}{of_text}"
        return f"{self._file.url}, byte {offset + byte:,}{of_text}"

    def where_document(self, offset: int, byte: int, head: bytes, record_id: str | None) -> str:
        """Describe the position of a document, which begins with `head` and has this id."""
        return self.where(offset, byte)

    def reject(
        self,
        offset: int,
        length: int,
        reason: str,
        message: str,
        head: bytes = b"",
        record_id: str | None = None,
    ) -> Reject:
        """Return the reject of a document of this file."""
        return Reject(
            source=self._file.label,
            offset=offset,
            length=length,
            reason=reason,
            message=message,
            first_bytes=head[:FIRST_BYTES],
            id=record_id,
        )

    def reject_rest(self, offset: int, length: int, error: BadFileError) -> DocumentBatch:
        """Return a batch that rejects the unreadable rest of the file.

        Args:
            offset: the position at which reading stopped.
            length: number of bytes or rows known to remain; 0 if unknown.
            error: the reason. Only the parts of its text that are the same on every machine are
                kept, because rejects must not depend on the machine.
        """
        found = f" Found: {error.found}" if isinstance(error, DamagedFileError) else ""
        reject = self.reject(offset, length, error.reason, redact(f"{error.message}{found}"))
        return self.make_empty(0, [reject])

    # --- whole documents

    def make_batch(
        self,
        texts: Texts,
        *,
        consumed: int | None = None,
        empty: int = 0,
        rejects: Sequence[Reject] = (),
        other_bytes: int = 0,
        not_selected: NotSelected = _ALL_SELECTED,
    ) -> DocumentBatch:
        """Return the batch of these texts, none of which is empty.

        Args:
            texts: the candidates; those selected are rejected or repaired if they are not UTF-8.
            consumed: bytes of the file that these texts, `rejects`, `not_selected` and
                `other_bytes` account for, including separators and markup; None for formats
                whose bytes do not add up to the file.
            empty: number of empty documents to report.
            rejects: documents that were already rejected.
            other_bytes: bytes of text within `consumed` that other batches report.
            not_selected: documents that were already excluded; not in `texts`.
        """
        data, starts, ends = texts.data, texts.starts, texts.ends
        num_bytes = ends - starts
        framing = 0
        if consumed is not None:
            framing = consumed - other_bytes - int(num_bytes.sum())
            framing -= sum(reject.length for reject in rejects) + not_selected.bytes
        valid, hashes = _native.scan_documents(data, starts, ends)
        if not self._options.selection.is_all:
            selected = self._select(texts, valid, hashes)
            not_selected = not_selected.plus(num_bytes[~selected])
            texts = texts.select(selected)
            starts, ends = texts.starts, texts.ends
            num_bytes, valid, hashes = num_bytes[selected], valid[selected], hashes[selected]
        invalid = np.flatnonzero(valid < num_bytes)
        if len(invalid) and self._options.invalid_utf8 == "replace":
            broken = [data[starts[i] : ends[i]].tobytes() for i in invalid]
            repaired = [text.decode("utf-8", "replace").encode() for text in broken]
            data, starts, ends = replace_texts(data, starts, ends, invalid, repaired)
        elif len(invalid):
            found = [self._reject_invalid_text(texts, int(i), int(valid[i])) for i in invalid]
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
            offsets=texts.offsets,
            num_bytes=num_bytes,
            hashes=hashes,
            source=self._file.label,
            ids=texts.ids,
            kept=texts.kept,
            empty=empty,
            framing_bytes=framing,
            not_selected=not_selected.documents,
            not_selected_bytes=not_selected.bytes,
            rejects=tuple(rejects),
        )

    def _select(
        self, texts: Texts, valid: IntArray, hashes: NDArray[np.uint64]
    ) -> NDArray[np.bool_]:
        """Return a mask of the selected texts; `valid` has the lengths of valid prefixes."""
        selection = self._options.selection
        characters = _NO_PLACES
        if selection.counts_characters:
            characters = _native.count_characters(texts.data, texts.starts, texts.ends)
            for i in np.flatnonzero(valid < texts.ends - texts.starts):
                text = texts.data[texts.starts[i] : texts.ends[i]].tobytes()
                characters[i] = len(text.decode("utf-8", "replace"))
        return selection.select(hashes, characters)

    def make_batches(
        self, texts: Texts, *, consumed: int | None = None, rejects: Sequence[Reject] = ()
    ) -> Iterator[DocumentBatch]:
        """Yield the batches of texts in memory, which may be empty or of any length.

        The first batch reports everything that is not a document.
        """
        lengths = texts.ends - texts.starts
        too_long = np.flatnonzero(lengths > self._options.max_document_bytes)
        kept = lengths > 0
        not_selected = _ALL_SELECTED
        if len(too_long):
            kept[too_long] = False
            if not self._options.selection.is_all:
                scanned = texts.select(lengths > self._options.max_document_bytes)
                selected = self._select(
                    scanned, *_native.scan_documents(scanned.data, scanned.starts, scanned.ends)
                )
                not_selected = not_selected.plus(lengths[too_long[~selected]])
                too_long = too_long[selected]
            found = [self._reject_long_text(texts, int(i)) for i in too_long]
            rejects = sorted([*rejects, *found], key=lambda reject: reject.offset)
        empty = int(np.count_nonzero(lengths == 0))
        texts, lengths = (texts, lengths) if kept.all() else (texts.select(kept), lengths[kept])
        long = np.flatnonzero(lengths > self._options.longest_batched).tolist()
        first = long[0] if long else len(texts)
        yield self.make_batch(
            texts.slice(0, first),
            consumed=consumed,
            empty=empty,
            rejects=rejects,
            other_bytes=int(lengths[first:].sum()),
            not_selected=not_selected,
        )
        for i, following in pairwise([*long, len(texts)]):
            yield from self._cut_text(texts, i)
            if following > i + 1:
                yield self.make_batch(texts.slice(i + 1, following))

    def _reject_invalid_text(self, texts: Texts, i: int, valid: int) -> Reject:
        text = texts.data[texts.starts[i] : texts.ends[i]]
        found = text[valid : valid + LONGEST_CHARACTER].tobytes()
        head = text[:FIRST_BYTES].tobytes()
        return self._reject_invalid(
            int(texts.offsets[i]), len(text), valid, found, head, _get_id(texts, i)
        )

    def _reject_invalid(
        self,
        offset: int,
        length: int,
        valid: int,
        found: bytes,
        head: bytes,
        record_id: str | None,
    ) -> Reject:
        """Return the reject for a document with `found` at byte `valid`, or raise the error."""
        shown = " ".join(f"0x{byte:02x}" for byte in found)
        if self._options.invalid_utf8 == "error":
            raise InvalidDocumentError(
                "A document is not valid UTF-8.",
                found=f"the bytes {shown} at byte {valid:,} of the document",
                where=self.where_document(offset, valid, head, record_id),
                hint="Repair the text, or set invalid_utf8 (input.invalid_utf8 in a build) to "
                "reject or replace.",
            )
        message = f"not valid UTF-8: the bytes {shown} at byte {valid} of the document"
        return self.reject(offset, length, INVALID_UTF8, message, head, record_id)

    def _reject_long_text(self, texts: Texts, i: int) -> Reject:
        text = texts.data[texts.starts[i] : texts.ends[i]]
        head = text[:FIRST_BYTES].tobytes()
        return self.reject_too_long(
            int(texts.offsets[i]), len(text), head, "a text", record_id=_get_id(texts, i)
        )

    def reject_too_long(
        self, offset: int, length: int, head: bytes, what: str, record_id: str | None = None
    ) -> Reject:
        """Return the reject of a text, line or document that is too long to be held in memory."""
        message = (
            f"{what} of {length:,} bytes; at most {self._options.max_document_bytes:,} are "
            "allowed (input.max_document_bytes)"
        )
        return self.reject(offset, length, TOO_LONG, message, head, record_id)

    # --- long documents

    def start_long_document(
        self,
        offset: int,
        ids: pa.StringArray | None = None,
        kept: pa.RecordBatch | None = None,
    ) -> LongDocument:
        """Return a document to be scanned block by block."""
        counts = self._options.selection.counts_characters
        return LongDocument(offset, self._specials, ids, kept, count_characters=counts)

    def check_document(self, document: LongDocument) -> None:
        """Raise InvalidDocumentError early if the text is invalid and the policy is `error`."""
        is_error = self._options.invalid_utf8 == "error" and self._options.selection.is_all
        if document.invalid_at is not None and is_error:
            self._reject_invalid_document(document)

    def cut_document(
        self,
        document: LongDocument,
        text_again: Callable[[], Readable],
        consumed: int | None = None,
    ) -> Iterator[DocumentBatch]:
        """Yield the chunks of a document that was scanned to its end, or its reject.

        Args:
            document: the result of the scan.
            text_again: opens the same text for a second pass.
            consumed: bytes of the file that the document and its separator account for.
        """
        framing = 0 if consumed is None else consumed - document.length
        selection = self._options.selection
        if not selection.select(document.hashes, np.array([document.characters])).all():
            yield self.make_empty(
                framing, not_selected=NotSelected(documents=1, bytes=document.length)
            )
        elif self._must_fit(document) and document.length > self._options.max_document_bytes:
            reject = self.reject_too_long(
                document.offset, document.length, document.head, "a document", document.record_id
            )
            yield self.make_empty(framing, [reject])
        elif document.invalid_at is None or self._options.invalid_utf8 == "replace":
            yield from self._cut_chunks(document, text_again(), framing)
        else:
            yield self.make_empty(framing, [self._reject_invalid_document(document)])

    def make_empty(
        self,
        framing: int,
        rejects: Sequence[Reject] = (),
        *,
        not_selected: NotSelected = _ALL_SELECTED,
        rows: int = 0,
    ) -> DocumentBatch:
        """Return a batch without documents."""
        return DocumentBatch(
            data=np.empty(0, np.uint8),
            starts=_NO_PLACES,
            ends=_NO_PLACES,
            offsets=_NO_PLACES,
            num_bytes=_NO_PLACES,
            hashes=np.empty((0, 2), np.uint64),
            source=self._file.label,
            framing_bytes=framing,
            not_selected=not_selected.documents,
            not_selected_bytes=not_selected.bytes,
            rows=rows,
            rejects=tuple(rejects),
        )

    def _cut_text(self, texts: Texts, i: int) -> Iterator[DocumentBatch]:
        text = texts.data[texts.starts[i] : texts.ends[i]]
        ids = None if texts.ids is None else texts.ids[i : i + 1]
        kept = None if texts.kept is None else texts.kept[i : i + 1]
        document = self.start_long_document(int(texts.offsets[i]), ids, kept)
        step = self._options.read_bytes
        for begin in range(0, len(text), step):
            document.add(text[begin : begin + step], is_last=begin + step >= len(text))
        yield from self.cut_document(document, lambda: MemoryText(text))

    def _reject_invalid_document(self, document: LongDocument) -> Reject:
        valid = document.invalid_at or 0
        found, head = document.invalid_bytes, document.head
        return self._reject_invalid(
            document.offset, document.length, valid, found, head, document.record_id
        )

    def _must_fit(self, document: LongDocument) -> bool:
        """Return True if the document must be held in memory completely."""
        return not self._options.cut or self._is_whole(document)

    def _is_whole(self, document: LongDocument) -> bool:
        """Return True if repairing may create special tokens, so that no cut is safe."""
        is_repaired = document.invalid_at is not None and self._options.invalid_utf8 == "replace"
        return is_repaired and self._specials.replacing_makes_one

    def _cut_chunks(
        self, document: LongDocument, source: Readable, framing: int
    ) -> Iterator[DocumentBatch]:
        is_invalid = document.invalid_at is not None
        limit = document.length if self._is_whole(document) else self._options.piece_bytes
        text: ByteArray = np.empty(0, np.uint8)
        left = document.length
        part = 0
        while len(text) or left:
            text, left, cut = self._find_next_cut(document, source, text, left, limit)
            chunk = text[:cut]
            text = text[cut:]
            if is_invalid:
                chunk = np.frombuffer(chunk.tobytes().decode("utf-8", "replace").encode(), np.uint8)
            yield DocumentBatch(
                data=chunk,
                starts=np.zeros(1, np.int64),
                ends=np.array([len(chunk)], np.int64),
                offsets=np.array([document.offset], np.int64),
                num_bytes=np.array([cut], np.int64),
                hashes=document.hashes,
                source=self._file.label,
                ids=document.ids,
                kept=document.kept,
                part=part,
                last=not len(text) and not left,
                whole_bytes=document.length,
                special_at=document.special_at,
                cutting=self._options.cutting,
                framing_bytes=framing if part == 0 else 0,
            )
            part += 1

    def _find_next_cut(
        self, document: LongDocument, source: Readable, text: ByteArray, left: int, limit: int
    ) -> tuple[ByteArray, int, int]:
        """Find the end of the chunk at the start of `text`, reading more of the document if needed.

        Args:
            document: the document, for errors.
            source: the stream of its second pass.
            text: bytes that were read and not yet yielded.
            left: number of bytes not yet read.
            limit: maximum length of a chunk.

        Returns:
            `text` with the bytes that were read, the new `left`, and the length of the chunk.
        """
        most = self._options.max_document_bytes
        wanted = limit + _native.cut_lookahead(self._specials.uncut)
        while True:
            if len(text) < wanted and left:
                text, left = self._read_more(source, text, left, wanted - len(text))
            seen = text[:wanted]
            is_all = not left and len(seen) == len(text)
            if is_all and len(seen) <= limit:
                return text, left, len(seen)
            cut = _native.safe_cut(
                seen,
                is_all,
                limit,
                self._specials.uncut,
                self._normalizer,
                self._scanner,
                self._options.after_special,
            )
            if cut is not None:
                return text, left, cut
            if is_all:
                return text, left, len(seen)
            if wanted >= most:
                raise self.no_cut_error(document.offset, document.length - left - len(text))
            wanted = min(2 * wanted, most)

    def _read_more(
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
                # Its first chunks may be downstream already, so it is too late for a reject.
                raise self._interruption_error(str(error.found)) from error
            if not got:
                raise self._interruption_error("the end of the file, too early")
            done += got
        return longer, left - amount

    def _interruption_error(self, found: str) -> InputError:
        return InputError(
            "The second pass over a long document failed.",
            expected="the same bytes as in the first pass",
            found=found,
            where=self._file.url,
            hint="Check the file and its storage, then run the command again.",
        )

    def no_cut_error(self, offset: int, byte: int = 0) -> LongDocumentError:
        """Return the error for a long document that has no safe cut within the limit."""
        most = f"{self._options.max_document_bytes:,} bytes (input.max_document_bytes)"
        of_letters = isinstance(self._scanner, str) and self._scanner != WHITESPACE_WORDS
        return LongDocumentError(
            "A long document cannot be cut.",
            expected=(
                "a letter followed by a character that is not a letter"
                if of_letters
                else "a place where the pattern always splits"
            )
            + f" within {most}",
            found="none",
            where=self.where(offset, byte),
            hint="Check that the file is text and that input.separator is right, or raise "
            "input.max_document_bytes if memory allows.",
        )


def _get_id(texts: Texts, i: int) -> str | None:
    value: str | None = None if texts.ids is None else texts.ids[i].as_py()
    return value


def replace_texts(
    data: ByteArray,
    starts: IntArray,
    ends: IntArray,
    which: NDArray[np.intp],
    texts: Sequence[bytes],
) -> tuple[ByteArray, IntArray, IntArray]:
    """Replace the texts with these indices; return the new data, starts and ends."""
    parts: list[ByteArray] = []
    growth = np.zeros(len(starts), np.int64)
    position = 0
    for i, text in zip(which, texts, strict=True):
        parts += (data[position : starts[i]], np.frombuffer(text, np.uint8))
        position = ends[i]
        growth[i] = len(text) - (ends[i] - starts[i])
    shift = np.cumsum(growth)
    return np.concatenate([*parts, data[position:]]), starts + shift - growth, ends + shift
