"""Base class of text and JSON lines: a stream of bytes, split into documents at separators.

A document belongs to the range that contains its first byte. A reader starts at the first document
of its range and continues past the end of the range to finish the last one. For this, the position
of a separator must not depend on where the search starts. So separators that can overlap
themselves (`abab`) are refused, and one repeated byte (`\\n\\n`) is matched from the start of its
run, which may lie before the range.

Of several separators the leftmost counts, at one offset the longest. None may start with the end of
another, so two matches are either disjoint or one contains the other. A match that starts at least
the length of the longest separator after the start of the search is therefore not part of a longer
one; the first document of a range is found this way.

Text after the last separator is a document unless it is empty.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from bpe_core import _native
from pipelines.batches import FIRST_BYTES, DocumentBatch
from pipelines.readers.documents import BatchMaker, IntArray
from pipelines.readers.options import ReadOptions
from pipelines.readers.streams import ByteArray, Stream, StreamPair
from pipelines.tasks.listing import InputFile
from pipelines.tasks.plan import Range

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"

# Maximum documents of a batch, including empty ones: bounds the arrays if documents are tiny.
_BATCH_DOCUMENTS: Final = 1 << 18

# After its range, a reader only needs the end of one document: it starts with a short read and
# doubles the length each time.
_FIRST_OVERRUN: Final = 64 << 10


class Window:
    """Part of a stream in memory: `data`, starting at byte `offset` of the stream.

    Every advance allocates a new array, because batches keep views of the old one.
    """

    def __init__(self, stream: Stream):
        self._stream = stream
        self.data: ByteArray = np.empty(0, np.uint8)
        self.offset = 0

    @property
    def end(self) -> int:
        """Offset after the last byte in memory."""
        return self.offset + len(self.data)

    @property
    def at_end(self) -> bool:
        """True if the stream is known to have no more bytes."""
        return self._stream.at_end

    def advance(self, keep_from: int, amount: int) -> None:
        """Drop everything before byte `keep_from` and read up to `amount` more bytes."""
        rest = self.data[keep_from - self.offset :]
        buffer = np.empty(len(rest) + self._stream.available(amount), np.uint8)
        buffer[: len(rest)] = rest
        got = self._stream.read_into(buffer[len(rest) :])
        self.data = buffer[: len(rest) + got]
        self.offset = keep_from

    def move_to(self, offset: int) -> None:
        """Drop everything and continue at byte `offset`."""
        self._stream.skip_to(offset)
        self.data = self.data[:0]
        self.offset = offset


@dataclass(slots=True)
class Split:
    """Documents found in a window; starts and ends are positions in its data, the rest offsets."""

    starts: IntArray
    ends: IntArray
    empty: int
    next_start: int  # offset of the next document
    search_from: int  # where to search for its separator
    stopped: bool  # the batch is full


class SeparatedReader(ABC):
    """Base class that finds the documents of a range in a window that moves over the file.

    Subclasses convert the documents found in a window and handle those too long for a window.

    Args:
        file: the file to read.
        byte_range: part of the file.
        options: rules for reading it.
        streams: streams of the file.
        separators: separators between documents; if empty, the file is one document.
        strip_bom: remove a byte-order mark at the start of the file.
        longest: maximum length of a document in the window.
    """

    def __init__(
        self,
        file: InputFile,
        byte_range: Range,
        options: ReadOptions,
        streams: StreamPair,
        *,
        separators: tuple[bytes, ...],
        strip_bom: bool,
        longest: int,
    ):
        is_whole = file.compression is not None or not separators
        self._known_end = 0 if file.compression is not None else byte_range.end
        self._reached = byte_range.start
        self._begin = byte_range.start
        self._end = sys.maxsize if is_whole else byte_range.end
        if file.stop is not None:
            self._end = min(self._end, file.stop)
        self._documents_left = (
            sys.maxsize if options.max_documents is None else options.max_documents
        )
        self._options = options
        self._window = Window(streams.first)
        self._maker = BatchMaker(file, options)
        self._separators = list(separators)
        self._separator_bytes = max(map(len, separators), default=0)
        self._strip_bom = strip_bom
        self._longest = longest
        self._overrun = min(_FIRST_OVERRUN, options.read_bytes)
        # Offset of the document after a long one.
        self._after_long = 0

    @abstractmethod
    def _convert(self, split: Split, consumed: int) -> Iterator[DocumentBatch]:
        """Yield batches of the documents in a window; `consumed`: their bytes with separators."""

    @abstractmethod
    def _handle_long(self, start: int) -> Iterator[DocumentBatch]:
        """Yield the batches of a long document, after scanning it to its end."""

    def batches(self) -> Iterator[DocumentBatch]:
        """Yield the batches of the range."""
        for batch in self._iterate():
            self._documents_left -= batch.all_documents
            yield batch

    def _iterate(self) -> Iterator[DocumentBatch]:
        window = self._window
        start = search_from = self._reached = self._find_first()
        reported = start if self._begin else 0  # a byte-order mark belongs to the first range
        while start < self._end and self._documents_left > 0:
            split = self._find_documents(start, search_from)
            start, search_from = split.next_start, split.search_from
            if split.empty or len(split.starts):
                yield from self._convert(split, start - reported)
                reported = start
            self._reached = start
            unfinished = window.end - start
            if split.stopped or start >= self._end:
                continue
            if self._is_long(unfinished):
                if start > reported:
                    yield self._maker.make_empty(start - reported)
                yield from self._handle_long(start)
                start = search_from = reported = self._reached = self._after_long
            elif window.at_end:
                break
            else:
                window.advance(start, self._choose_amount(unfinished))
        if start > reported:
            yield self._maker.make_empty(start - reported)

    @property
    def rest(self) -> tuple[int, int]:
        """Offset of the first document not yet yielded, and the bytes known to remain."""
        return self._reached, max(0, self._known_end - self._reached)

    def _is_long(self, unfinished: int) -> bool:
        """Return True if an unfinished document of this length is too long for a batch."""
        # The last bytes may be the start of a separator, unless the stream ends here.
        undecided = 0 if self._window.at_end else max(self._separator_bytes - 1, 0)
        return unfinished - undecided > self._longest

    def _choose_amount(self, unfinished: int) -> int:
        """Return the number of bytes to read next."""
        left = self._end - self._window.end
        if left > 0:
            amount = min(left, self._options.read_bytes)
        else:
            amount = self._overrun
            self._overrun = min(2 * amount, self._options.read_bytes)
        # At least as many as are copied, so that copying a growing document stays linear.
        return max(amount, unfinished)

    # --- start of the first document

    def _find_first(self) -> int:
        """Return the offset of the first document, or the end of the range if it has none."""
        window = self._window
        origin = 0
        length = self._separator_bytes
        if self._strip_bom and self._begin < len(_BYTE_ORDER_MARK) + 2 * length:
            window.advance(0, len(_BYTE_ORDER_MARK))
            if window.data.tobytes() == _BYTE_ORDER_MARK:
                origin = len(_BYTE_ORDER_MARK)
        if self._begin <= origin:
            return origin
        position = max(origin, self._begin - 2 * length)
        position, is_sure = self._choose_search_start(origin, position)
        # An earlier match may lie inside a longer separator that starts before the search.
        sure_from = position if is_sure else position + length - 1
        window.move_to(position)
        while position < self._end and not window.at_end:
            window.advance(position, self._choose_amount(0))
            while True:
                begins, ends = _native.find_separators(
                    window.data, self._separators, position - window.offset, 1, window.at_end
                )
                if not len(ends):
                    break
                position = window.offset + int(ends[0])
                if position >= self._begin and window.offset + int(begins[0]) >= sure_from:
                    return position
            position = max(position, window.end - length + 1)
        return self._end

    def _choose_search_start(self, origin: int, position: int) -> tuple[int, bool]:
        """Return the start of the search, and True if no separator can contain it.

        One repeated byte is matched from the start of its run, which may lie far before the range.
        """
        if position == origin:
            return origin, True
        repeated = {one[0] for one in self._separators if len(one) > 1 and len(set(one)) == 1}
        if repeated:
            self._window.move_to(position - 1)
            self._window.advance(position - 1, 1)
            byte = int(self._window.data[0])
            if byte in repeated:
                return self._find_run_start(byte, origin, position - 1), True
        return position, False

    def _find_run_start(self, byte: int, origin: int, position: int) -> int:
        """Return the start of the run of a byte that ends before `position`."""
        block = self._separator_bytes
        while position > origin:
            begin = max(origin, position - block)
            self._window.move_to(begin)
            self._window.advance(begin, position - begin)
            others = np.flatnonzero(self._window.data != byte)
            if len(others):
                return begin + int(others[-1]) + 1
            position = begin
            block = min(2 * block, self._options.read_bytes)
        return origin

    # --- documents

    def _find_documents(self, start: int, search_from: int) -> Split:
        """Find the complete documents of the window from `start`, and the last of the file."""
        window = self._window
        offset = window.offset
        if self._separators:
            starts, ends, empty, rest, resume, stopped = _native.split_documents(
                window.data,
                self._separators,
                start - offset,
                search_from - offset,
                self._end - offset,
                self._longest,
                min(_BATCH_DOCUMENTS, self._documents_left),
                window.at_end,
            )
            split = Split(starts, ends, empty, offset + rest, offset + resume, stopped)
        else:
            nothing = np.empty(0, np.int64)
            split = Split(nothing, nothing, 0, start, search_from, False)
        begins_here = split.next_start < min(self._end, window.end)
        is_last = begins_here and window.at_end and not split.stopped
        if is_last and not self._is_long(window.end - split.next_start):
            last = np.array([split.next_start - offset, len(window.data)], np.int64)
            split.starts = np.concatenate([split.starts, last[:1]])
            split.ends = np.concatenate([split.ends, last[1:]])
            split.next_start = split.search_from = window.end
        return split

    def _skip_too_long(self, start: int, what: str) -> Iterator[DocumentBatch]:
        """Yield the reject of a document that is too long for memory, after reading to its end."""
        head = b""
        length = 0

        def see(block: ByteArray, is_last: bool) -> None:
            nonlocal head, length
            head += block[: FIRST_BYTES - len(head)].tobytes()
            length += len(block)

        separator = self._scan(start, see)
        self._after_long = start + length + separator
        yield self._maker.make_empty(
            separator, [self._maker.reject_too_long(start, length, head, what)]
        )

    def _scan(self, start: int, see: Callable[[ByteArray, bool], None]) -> int:
        """Pass a document to `see` block by block; return the length of the separator after it.

        Afterwards the window is at the end of the document.
        """
        window = self._window
        position = start
        while True:
            data = window.data[position - window.offset :]
            ended = window.at_end
            size, separator = len(data), 0
            if self._separators:
                begins, ends = _native.find_separators(data, self._separators, 0, 1, ended)
                if len(begins):
                    ended = True
                    size, separator = int(begins[0]), int(ends[0] - begins[0])
                elif not ended:
                    size = max(0, size - self._separator_bytes + 1)
            see(data[:size], ended)
            position += size
            if ended:
                return separator
            window.advance(position, self._choose_amount(0))
