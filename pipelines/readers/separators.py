"""What text and JSON lines have in common: a stream of bytes, cut into documents at separators."""

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

# Documents of one batch at most, empty ones included: bounds the arrays when documents are tiny.
_BATCH_DOCUMENTS: Final = 1 << 18

# Past the end of its range a reader wants the end of one document: it reads little first, then
# twice as much each time.
_FIRST_OVERRUN: Final = 64 << 10


class Window:
    """The bytes of a stream that are in memory: `data`, of which the first is byte `offset`.

    Every advance takes a new array, because batches keep views of the old one.
    """

    def __init__(self, stream: Stream):
        self._stream = stream
        self.data: ByteArray = np.empty(0, np.uint8)
        self.offset = 0

    @property
    def end(self) -> int:
        """The byte after the last one in memory."""
        return self.offset + len(self.data)

    @property
    def at_end(self) -> bool:
        """Whether it is known that nothing follows."""
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
class Split:
    """Documents found in a window; starts and ends are places in its data, the rest offsets."""

    starts: IntArray
    ends: IntArray
    empty: int
    next_start: int  # of the document after these
    search_from: int  # for its separator
    stopped: bool  # because there are enough for a batch


class SeparatedReader(ABC):
    """Finds the documents of a range, in a window that moves over the file.

    Subclasses say what becomes of documents that were found, and of those that are too long to be
    found in a window.

    Args:
        file: what is read.
        byte_range: part of it.
        options: how it is read.
        streams: of the file.
        separators: what stands between documents; none: the file is one.
        strip_bom: whether a byte-order mark at the file's start is left out.
        longest: documents longer than this are not held in the window.
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
        # Where the document after a long one begins.
        self._after_long = 0

    @abstractmethod
    def _found(self, split: Split, consumed: int) -> Iterator[DocumentBatch]:
        """The batches of documents in the window; `consumed`: bytes with their separators."""

    @abstractmethod
    def _long(self, start: int) -> Iterator[DocumentBatch]:
        """The batches of a long document; it has to be scanned before the first one is given."""

    def batches(self) -> Iterator[DocumentBatch]:
        """The batches of the range."""
        for batch in self._batches():
            self._documents_left -= batch.all_documents
            yield batch

    def _batches(self) -> Iterator[DocumentBatch]:
        window = self._window
        start = search_from = self._reached = self._first_start()
        taken = start if self._begin else 0  # a byte-order mark belongs to the first range
        while start < self._end and self._documents_left > 0:
            split = self._split(start, search_from)
            start, search_from = split.next_start, split.search_from
            if split.empty or len(split.starts):
                yield from self._found(split, start - taken)
                taken = start
            self._reached = start
            unfinished = window.end - start
            if split.stopped or start >= self._end:
                continue
            if self._is_long(unfinished):
                if start > taken:
                    yield self._maker.nothing(start - taken)
                yield from self._long(start)
                start = search_from = taken = self._reached = self._after_long
            elif window.at_end:
                break
            else:
                window.advance(start, self._amount(unfinished))
        if start > taken:
            yield self._maker.nothing(start - taken)

    @property
    def rest(self) -> tuple[int, int]:
        """Where the first document begins that was not given, and the bytes known to be left."""
        return self._reached, max(0, self._known_end - self._reached)

    def _is_long(self, unfinished: int) -> bool:
        """Whether so much of a document, not knowing its end, is too much for a batch."""
        # The last bytes may be the beginning of a separator, unless nothing follows.
        undecided = 0 if self._window.at_end else max(self._separator_bytes - 1, 0)
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
        origin = 0
        length = self._separator_bytes
        if self._strip_bom and self._begin < len(_BYTE_ORDER_MARK) + 2 * length:
            window.advance(0, len(_BYTE_ORDER_MARK))
            if window.data.tobytes() == _BYTE_ORDER_MARK:
                origin = len(_BYTE_ORDER_MARK)
        if self._begin <= origin:
            return origin
        position = max(origin, self._begin - 2 * length)
        position, is_sure = self._search_start(origin, position)
        # What begins earlier may lie inside a longer separator that begins before the search.
        sure_from = position if is_sure else position + length - 1
        window.move_to(position)
        while position < self._end and not window.at_end:
            window.advance(position, self._amount(0))
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

    def _search_start(self, origin: int, position: int) -> tuple[int, bool]:
        """From where to search; whether no separator can reach over that place.

        One byte repeated is matched from the start of its run, which may lie far before the range.
        """
        if position == origin:
            return origin, True
        repeated = {one[0] for one in self._separators if len(one) > 1 and len(set(one)) == 1}
        if repeated:
            self._window.move_to(position - 1)
            self._window.advance(position - 1, 1)
            byte = int(self._window.data[0])
            if byte in repeated:
                return self._run_start(byte, origin, position - 1), True
        return position, False

    def _run_start(self, byte: int, origin: int, position: int) -> int:
        """Where the run of a byte that ends before `position` begins."""
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

    def _split(self, start: int, search_from: int) -> Split:
        """The finished documents of the window from `start` on, with the file's last one."""
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

    def _too_long(self, start: int, what: str) -> Iterator[DocumentBatch]:
        """The batch that rejects a document which is not held; it is read to its end."""
        head = b""
        length = 0

        def see(chunk: ByteArray, is_last: bool) -> None:
            nonlocal head, length
            head += chunk[: FIRST_BYTES - len(head)].tobytes()
            length += len(chunk)

        separator = self._scan(start, see)
        self._after_long = start + length + separator
        yield self._maker.nothing(
            separator, [self._maker.too_long_reject(start, length, head, what)]
        )

    def _scan(self, start: int, see: Callable[[ByteArray, bool], None]) -> int:
        """Show a document to its end, chunk by chunk; the length of the separator after it.

        The window then stands at its end.
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
            window.advance(position, self._amount(0))
