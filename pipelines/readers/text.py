"""Reader for text files: documents between separators, or one document per file."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.batches import DocumentBatch
from pipelines.readers.documents import Texts
from pipelines.readers.options import ReadOptions
from pipelines.readers.separators import SeparatedReader, Split
from pipelines.readers.streams import ByteArray, Stream, StreamPair
from pipelines.tasks.listing import InputFile
from pipelines.tasks.plan import Range


class TextReader(SeparatedReader):
    """Reader for the documents in a range of a text file.

    A long document is scanned to its end, then read again in chunks by a second stream that follows
    the first.
    """

    def __init__(
        self, file: InputFile, byte_range: Range, options: ReadOptions, streams: StreamPair
    ):
        one = options.separator
        super().__init__(
            file,
            byte_range,
            options,
            streams,
            separators=() if one is None else (one,) if isinstance(one, bytes) else one,
            strip_bom=options.strip_bom,
            longest=options.longest_batched,
        )
        self._streams = streams

    def _convert(self, split: Split, consumed: int) -> Iterator[DocumentBatch]:
        texts = Texts(
            data=self._window.data,
            starts=split.starts,
            ends=split.ends,
            offsets=split.starts + self._window.offset,
        )
        yield self._maker.make_batch(texts, consumed=consumed, empty=split.empty)

    def _handle_long(self, start: int) -> Iterator[DocumentBatch]:
        document = self._maker.start_long_document(start)

        def see(block: ByteArray, is_last: bool) -> None:
            document.add(block, is_last=is_last)
            if self._options.cut:  # otherwise it is too long, whatever it contains
                self._maker.check_document(document)

        separator = self._scan(start, see)
        self._after_long = start + document.length + separator
        yield from self._maker.cut_document(
            document, lambda: self._read_again(start), document.length + separator
        )

    def _read_again(self, start: int) -> Stream:
        self._streams.second.skip_to(start)
        return self._streams.second
