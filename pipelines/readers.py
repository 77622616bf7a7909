"""Range of a file → DocumentBatch, for text files, compressed or not, on any storage.

The documents of a range are those whose first byte lies in it; to finish the last one, reading goes
on past the range's end. A document longer than `ReadOptions.piece_bytes` is scanned to its end
first and then read again in pieces, by a second stream that follows the first.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import xxhash
from numpy.typing import NDArray

from bpe_core import _native
from bpe_core.normalization import native_normalizer
from pipelines.batches import FIRST_BYTES, DocumentBatch, Reject
from pipelines.errors import InputError
from pipelines.streams import ByteArray, Stream, StreamPair, changed_file
from pipelines.tasks import InputFile, Range

IntArray = NDArray[np.int64]

INVALID_UTF8: Final = "invalid_utf8"

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_REPLACEMENT: Final = "\ufffd".encode()
_LONGEST_CHARACTER: Final = 4

# Documents of one batch at most, empty ones included: bounds the arrays when documents are tiny.
_BATCH_DOCUMENTS: Final = 1 << 18

# Past the end of its range a reader wants the end of one document: it reads little first, then
# twice as much each time.
_FIRST_OVERRUN: Final = 64 << 10


class InvalidDocumentError(InputError):
    """A document is not valid UTF-8, and `invalid_utf8` is "error"."""


class LongDocumentError(InputError):
    """A document would have to be held in memory as a whole and is too long for that."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadOptions:
    """How documents are read.

    Attributes:
        separator: what separates documents; not empty, and unable to overlap itself unless it is
            one byte repeated. None: a file is one document.
        strip_bom: whether a byte-order mark at a file's start is left out.
        invalid_utf8: "reject" (into `DocumentBatch.rejects`), "replace" (by U+FFFD, as Python's
            `errors="replace"` does) or "error".
        special_tokens: no piece of a document begins or ends inside one.
        cut: whether long documents may be cut into pieces. False for the pattern `none` and for
            custom patterns, which have no known safe place: documents are read whole.
        cut_before_white_space: whether they are cut nowhere else, as white-space words need it.
        normalizer, normalize_quotes: what text will go through; documents are cut only where the
            normalized text can be cut too.
        max_document_bytes: limit of what is held as a whole because it can't be cut.
        read_bytes: how much is read at once.
        piece_bytes: documents longer than this are cut into pieces of about this length.
    """

    separator: bytes | None
    strip_bom: bool = False
    invalid_utf8: Literal["reject", "replace", "error"] = "reject"
    special_tokens: tuple[bytes, ...] = ()
    cut: bool = True
    cut_before_white_space: bool = False
    normalizer: str | None = None
    normalize_quotes: bool = False
    max_document_bytes: int = 1 << 30
    read_bytes: int = 2 << 20
    piece_bytes: int = 4 << 20


def read_range(
    file: InputFile,
    byte_range: Range,
    options: ReadOptions,
    storage_options: Mapping[str, Any] | None = None,
) -> Iterator[DocumentBatch]:
    """Yield the documents whose first byte lies in the range, in order.

    Batches hold whole documents, or a single piece of a long one; with them go the number of empty
    documents and the documents that were left out. Which documents there are, and where they are
    cut, depends on the file, the separator, the special tokens and `piece_bytes`, not on ranges or
    `read_bytes`.

    Args:
        file: as planned; its size must still be the same.
        byte_range: part of it; the whole file if it is compressed or there is no separator.
        options: how documents are read.
        storage_options: of the file's fsspec file system.

    Raises:
        InputError: the file is gone, has another size, is corrupt or cut short.
        LongDocumentError: a document has to be read whole and is too long.
        InvalidDocumentError: see `ReadOptions.invalid_utf8`.

    Example: of a file with the text `one|two|three`, separator `|`, the range [2, 6) holds the
    document `two` alone.
    """
    with StreamPair(file, storage_options or {}, options.read_bytes, byte_range.end) as streams:
        yield from _RangeReader(file, byte_range, options, streams).batches()


class _Window:
    """The bytes of a stream that are in memory: `data`, of which the first is byte `offset`.

    Every advance takes a new array, because batches keep views of the old one.
    """

    def __init__(self, stream: Stream):
        self._stream = stream
        self.data: ByteArray = np.empty(0, np.uint8)
        self.offset = 0

    @property
    def end(self) -> int:
        return self.offset + len(self.data)

    @property
    def at_end(self) -> bool:
        return self._stream.at_end

    def advance(self, keep_from: int, amount: int) -> None:
        """Forget what is before byte `keep_from` and read up to `amount` more bytes."""
        rest = self.data[keep_from - self.offset :]
        buffer = np.empty(len(rest) + self._stream.available(amount), np.uint8)
        buffer[: len(rest)] = rest
        got = self._stream.read_into(buffer[len(rest) :])
        self.data = buffer[: len(rest) + got]
        self.offset = keep_from

    def move_to(self, offset: int) -> None:
        """Forget everything and go on at byte `offset`."""
        self._stream.skip_to(offset)
        self.data = self.data[:0]
        self.offset = offset


@dataclass(slots=True)
class _Split:
    """Documents found in a window; starts and ends are places in its data, the rest offsets."""

    starts: IntArray
    ends: IntArray
    empty: int
    next_start: int  # of the document after these
    search_from: int  # for its separator
    stopped: bool  # because there are enough for a batch


class _RangeReader:
    def __init__(
        self, file: InputFile, byte_range: Range, options: ReadOptions, streams: StreamPair
    ):
        is_whole = file.compression is not None or options.separator is None
        if is_whole and byte_range.start != 0:
            raise ValueError("a compressed file, or one without separator, is read as a whole")
        self._file = file
        self._begin = byte_range.start
        self._end = sys.maxsize if is_whole else byte_range.end
        self._options = options
        self._streams = streams
        self._window = _Window(streams.first)
        self._separator = options.separator or b""
        self._specials = _Specials(options.special_tokens)
        self._normalizer = native_normalizer(options.normalizer, options.normalize_quotes)
        # A longer document is no part of a common batch.
        self._longest = options.piece_bytes if options.cut else options.max_document_bytes
        self._overrun = min(_FIRST_OVERRUN, options.read_bytes)

    def batches(self) -> Iterator[DocumentBatch]:
        window = self._window
        start = search_from = self._first_start()
        while start < self._end:
            split = self._split(start, search_from)
            if split.empty or len(split.starts):
                yield self._batch(split)
            start, search_from = split.next_start, split.search_from
            unfinished = window.end - start
            if split.stopped or start >= self._end:
                continue
            if self._is_long(unfinished):
                document = self._scan_long(start)
                yield from self._long_batches(document)
                start = search_from = start + document.length + len(self._separator)
                if start > window.end:  # the document has no separator: it is the last
                    return
            elif window.at_end:
                return
            else:
                window.advance(start, self._amount(unfinished))

    def _is_long(self, unfinished: int) -> bool:
        """Whether so much of a document, not knowing its end, is too much for a batch."""
        # The last bytes may be the beginning of a separator, unless nothing follows.
        undecided = 0 if self._window.at_end else max(len(self._separator) - 1, 0)
        return unfinished - undecided > self._longest

    def _amount(self, unfinished: int) -> int:
        """How much to read next."""
        left = self._end - self._window.end
        if left > 0:
            amount = min(left, self._options.read_bytes)
        else:
            amount = self._overrun
            self._overrun = min(2 * amount, self._options.read_bytes)
        # At least as much as is copied, so that a document's bytes are not copied again and again.
        return max(amount, unfinished)

    # --- where the first document begins

    def _first_start(self) -> int:
        """Where the first document of the range begins; the range's end if there is none."""
        window = self._window
        length = len(self._separator)
        origin = 0
        if self._options.strip_bom and self._begin < len(_BYTE_ORDER_MARK) + length:
            window.advance(0, len(_BYTE_ORDER_MARK))
            if window.data.tobytes() == _BYTE_ORDER_MARK:
                origin = len(_BYTE_ORDER_MARK)
        if self._begin <= origin:
            return origin
        search_from = self._first_search(origin)
        window.move_to(search_from)
        while search_from + length < self._end and not window.at_end:
            window.advance(search_from, self._amount(0))
            found = _native.find_separators(window.data, self._separator, 0, 1)
            if len(found):
                return window.offset + int(found[0]) + length
            search_from = max(search_from, window.end - length + 1)
        return self._end

    def _first_search(self, origin: int) -> int:
        """From where to search the separator that ends at the range's start or later.

        A separator that can't overlap itself stands where it is found. One byte repeated is matched
        from the start of its run, which may lie far before the range.
        """
        length = len(self._separator)
        if length == 1 or len(set(self._separator)) > 1:
            return max(origin, self._begin - length)
        run = self._run_start(origin)
        whole_separators = max(0, self._begin - run - 1) // length
        return run + whole_separators * length

    def _run_start(self, origin: int) -> int:
        """Where the run of the separator's byte that ends before the range's start begins."""
        position = self._begin
        block = len(self._separator)
        while position > origin:
            begin = max(origin, position - block)
            self._window.move_to(begin)
            self._window.advance(begin, position - begin)
            others = np.flatnonzero(self._window.data != self._separator[0])
            if len(others):
                return begin + int(others[-1]) + 1
            position = begin
            block = min(2 * block, self._options.read_bytes)
        return origin

    # --- common documents

    def _split(self, start: int, search_from: int) -> _Split:
        """The finished documents of the window from `start` on, with the file's last one."""
        window = self._window
        offset = window.offset
        if self._separator:
            starts, ends, empty, rest, resume, stopped = _native.split_documents(
                window.data,
                self._separator,
                start - offset,
                search_from - offset,
                self._end - offset,
                self._longest,
                _BATCH_DOCUMENTS,
            )
            split = _Split(starts, ends, empty, offset + rest, offset + resume, stopped)
        else:
            nothing = np.empty(0, np.int64)
            split = _Split(nothing, nothing, 0, start, search_from, False)
        begins_here = split.next_start < min(self._end, window.end)
        is_last = begins_here and window.at_end and not split.stopped
        if is_last and not self._is_long(window.end - split.next_start):
            split.starts = np.append(split.starts, split.next_start - offset)
            split.ends = np.append(split.ends, len(window.data))
            split.next_start = split.search_from = window.end
        return split

    def _batch(self, split: _Split) -> DocumentBatch:
        data, starts, ends = self._window.data, split.starts, split.ends
        offsets = starts + self._window.offset
        num_bytes = ends - starts
        valid, hashes = _native.scan_documents(data, starts, ends)
        rejects: list[Reject] = []
        invalid = np.flatnonzero(valid < num_bytes)
        if len(invalid) and self._options.invalid_utf8 == "replace":
            data, starts, ends = _replace_invalid(data, starts, ends, invalid)
        elif len(invalid):
            for i in invalid:
                text = data[starts[i] : ends[i]]
                place = int(valid[i])
                found = text[place : place + _LONGEST_CHARACTER].tobytes()
                head = text[:FIRST_BYTES].tobytes()
                rejects.append(self._reject(int(offsets[i]), len(text), place, found, head))
            kept = valid == num_bytes
            starts, ends, offsets = starts[kept], ends[kept], offsets[kept]
            num_bytes, hashes = num_bytes[kept], hashes[kept]
        return DocumentBatch(
            data=data,
            starts=starts,
            ends=ends,
            offsets=offsets,
            num_bytes=num_bytes,
            hashes=hashes,
            source=self._file.label,
            empty=split.empty,
            rejects=tuple(rejects),
        )

    def _reject(self, offset: int, length: int, place: int, found: bytes, head: bytes) -> Reject:
        """The reject for a document with `found` at `place`; an error if the options say so."""
        shown = " ".join(f"0x{byte:02x}" for byte in found)
        if self._options.invalid_utf8 == "error":
            raise InvalidDocumentError(
                "A document is not valid UTF-8.",
                found=f"the bytes {shown} at byte {place:,} of the document",
                where=self._where(offset + place),
                hint="Repair the file, or set input.invalid_utf8 to reject or replace.",
            )
        return Reject(
            source=self._file.label,
            offset=offset,
            length=length,
            reason=INVALID_UTF8,
            message=f"not valid UTF-8: the bytes {shown} at byte {place} of the document",
            first_bytes=head,
        )

    def _where(self, offset: int) -> str:
        of_text = " of the decompressed text" if self._file.compression else ""
        return f"{self._file.url}, byte {offset:,}{of_text}"

    # --- long documents

    def _scan_long(self, start: int) -> _LongDocument:
        """Read a long document to its end; the window then stands there."""
        if not self._options.cut:
            raise self._too_long(start)
        window = self._window
        document = _LongDocument(start, self._specials)
        position = start
        while True:
            data = window.data[position - window.offset :]
            ended = window.at_end
            size = len(data)
            if self._separator:
                found = _native.find_separators(data, self._separator, 0, 1)
                if len(found):
                    ended = True
                    size = int(found[0])
                elif not ended:
                    size = max(0, size - len(self._separator) + 1)
            document.add(data[:size], is_last=ended)
            position += size
            if document.invalid_at is not None and self._options.invalid_utf8 == "error":
                self._reject_long(document)
            if ended:
                return document
            window.advance(position, self._amount(0))

    def _long_batches(self, document: _LongDocument) -> Iterator[DocumentBatch]:
        if document.invalid_at is None or self._options.invalid_utf8 == "replace":
            yield from self._pieces(document)
        else:
            nothing = np.empty(0, np.int64)
            yield DocumentBatch(
                data=np.empty(0, np.uint8),
                starts=nothing,
                ends=nothing,
                offsets=nothing,
                num_bytes=nothing,
                hashes=np.empty((0, 2), np.uint64),
                source=self._file.label,
                rejects=(self._reject_long(document),),
            )

    def _reject_long(self, document: _LongDocument) -> Reject:
        place = document.invalid_at or 0
        found = document.invalid_bytes
        return self._reject(document.start, document.length, place, found, document.head)

    def _pieces(self, document: _LongDocument) -> Iterator[DocumentBatch]:
        """Read a long document again, cut into pieces."""
        is_invalid = document.invalid_at is not None
        limit = self._options.piece_bytes
        if is_invalid and self._specials.replacing_makes_one:
            # The source text does not show where not to cut.
            if document.length > self._options.max_document_bytes:
                raise self._too_long(document.start)
            limit = document.length
        text: ByteArray = np.empty(0, np.uint8)
        left = document.length
        self._streams.behind.skip_to(document.start)
        part = 0
        while len(text) or left:
            text, left, cut = self._next_cut(document, text, left, limit)
            piece = text[:cut]
            text = text[cut:]
            if is_invalid:
                piece = np.frombuffer(piece.tobytes().decode("utf-8", "replace").encode(), np.uint8)
            yield DocumentBatch(
                data=piece,
                starts=np.zeros(1, np.int64),
                ends=np.array([len(piece)], np.int64),
                offsets=np.array([document.start], np.int64),
                num_bytes=np.array([cut], np.int64),
                hashes=document.hashes,
                source=self._file.label,
                part=part,
                last=not len(text) and not left,
                whole_bytes=document.length,
                special_at=document.special_at,
            )
            part += 1

    def _next_cut(
        self, document: _LongDocument, text: ByteArray, left: int, limit: int
    ) -> tuple[ByteArray, int, int]:
        """Where the piece ends that `text` begins with; `text` with what had to be read for that.

        `left` is how much of the document is not read yet.
        """
        most = self._options.max_document_bytes
        wanted = limit + _native.cut_lookahead(self._specials.matcher)
        while True:
            if len(text) < wanted and left:
                text, left = self._more_text(text, left, wanted - len(text))
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
                raise self._too_long(document.start + document.length - left - len(text))
            wanted = min(2 * wanted, most)

    def _more_text(self, text: ByteArray, left: int, amount: int) -> tuple[ByteArray, int]:
        amount = min(amount, left)
        longer = np.empty(len(text) + amount, np.uint8)
        longer[: len(text)] = text
        if self._streams.behind.read_into(longer[len(text) :]) < amount:
            raise changed_file(self._file, "an earlier end when a long document was read again")
        return longer, left - amount

    def _too_long(self, offset: int) -> LongDocumentError:
        most = f"{self._options.max_document_bytes:,} bytes (input.max_document_bytes)"
        if self._options.cut:
            return LongDocumentError(
                "A long document has no place where it can be cut.",
                expected=f"within {most} a letter followed by "
                + (
                    "white space"
                    if self._options.cut_before_white_space
                    else "something else than a letter"
                ),
                found="none",
                where=self._where(offset),
                hint="Check that the file is text and that input.separator is right, or raise "
                "input.max_document_bytes if memory allows.",
            )
        return LongDocumentError(
            "A document is too long to be held in memory as a whole, as this pattern needs.",
            expected=f"at most {most}",
            found="a longer document",
            where=self._where(offset),
            hint="Check input.separator, raise input.max_document_bytes if memory allows, or use "
            "the pattern gpt2, cl100k, o200k, llama3 or qwen2, which read long documents in "
            "pieces.",
        )


def _replace_invalid(
    data: ByteArray, starts: IntArray, ends: IntArray, invalid: NDArray[np.intp]
) -> tuple[ByteArray, IntArray, IntArray]:
    """Repair the documents with these indices; the repaired data, starts and ends."""
    parts: list[ByteArray] = []
    growth = np.zeros(len(starts), np.int64)
    position = 0
    for i in invalid:
        text = data[starts[i] : ends[i]].tobytes().decode("utf-8", "replace").encode()
        parts += (data[position : starts[i]], np.frombuffer(text, np.uint8))
        position = ends[i]
        growth[i] = len(text) - (ends[i] - starts[i])
    shift = np.cumsum(growth)
    return np.concatenate([*parts, data[position:]]), starts + shift - growth, ends + shift


class _Specials:
    """The special tokens, as the search for cuts needs them."""

    def __init__(self, tokens: tuple[bytes, ...]):
        self.matcher = _native.SpecialSet(list(tokens), list(range(len(tokens))))
        self.longest = max(map(len, tokens), default=0)
        # Whether one may arise only when invalid bytes are replaced by U+FFFD.
        self.replacing_makes_one = any(_REPLACEMENT in token for token in tokens)


class _LongDocument:
    """What a pass over the text of a long document finds out, chunk by chunk.

    Attributes:
        start: offset of its first byte.
        length: bytes seen so far, in the end of all of it.
        invalid_at: where its valid UTF-8 ends; None if all of it is valid.
        invalid_bytes: up to four bytes that stand there.
        special_at: where the first special token occurs; None if none does.
        head: its first bytes.
    """

    def __init__(self, start: int, specials: _Specials):
        self.start = start
        self.length = 0
        self.invalid_at: int | None = None
        self.invalid_bytes = b""
        self.special_at: int | None = None
        self.head = b""
        self._specials = specials
        self._hasher = xxhash.xxh3_128()
        # What the next chunk is needed to judge: an unfinished character, an unfinished token.
        self._character: ByteArray = np.empty(0, np.uint8)
        self._token: ByteArray = np.empty(0, np.uint8)

    @property
    def hashes(self) -> NDArray[np.uint64]:
        """The xxh3-128 of what was seen, uint64[1, 2]: high, low."""
        high, low = divmod(self._hasher.intdigest(), 1 << 64)
        return np.array([[high, low]], np.uint64)

    def add(self, chunk: ByteArray, *, is_last: bool) -> None:
        """Look at the next bytes of the document."""
        self._hasher.update(chunk.data)
        self.head += chunk[: FIRST_BYTES - len(self.head)].tobytes()
        if self.invalid_at is None:
            self._check_utf8(chunk, is_last)
        if self.special_at is None and self._specials.longest:
            self._find_special(chunk, is_last)
        self.length += len(chunk)

    def _check_utf8(self, chunk: ByteArray, is_last: bool) -> None:
        text = np.concatenate([self._character, chunk])
        valid = _native.utf8_valid_prefix(text)
        rest = text[valid:]
        if len(rest) >= _LONGEST_CHARACTER or (is_last and len(rest)):
            self.invalid_at = self.length - len(self._character) + valid
            self.invalid_bytes = rest[:_LONGEST_CHARACTER].tobytes()
        self._character = rest

    def _find_special(self, chunk: ByteArray, is_last: bool) -> None:
        text = np.concatenate([self._token, chunk])
        bounds = np.array([0, len(text)])
        place = int(self._specials.matcher.find_first(text, bounds[:1], bounds[1:])[0])
        # One that begins earlier may still be unfinished, unless this one is far from the end.
        if place >= 0 and (is_last or place + self._specials.longest <= len(text)):
            self.special_at = self.length - len(self._token) + place
        self._token = text[max(0, len(text) - self._specials.longest + 1) :]
