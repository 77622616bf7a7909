"""Text files: documents between separators, or a file as a document."""

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
    """The documents of a range of a text file.

    A long document is scanned to its end and then read again in pieces, by a second stream that
    follows the first.
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
            longest=options.longest_common,
        )
        self._streams = streams

    def _found(self, split: Split, consumed: int) -> Iterator[DocumentBatch]:
        texts = Texts(
            data=self._window.data,
            starts=split.starts,
            ends=split.ends,
            places=split.starts + self._window.offset,
        )
        yield self._maker.batch(texts, consumed=consumed, empty=split.empty)

    def _long(self, start: int) -> Iterator[DocumentBatch]:
        document = self._maker.long_document(start)

        def see(chunk: ByteArray, is_last: bool) -> None:
            document.add(chunk, is_last=is_last)
            if self._options.cut:  # else it is too long, whatever is in it
                self._maker.check(document)

        separator = self._scan(start, see)
        self._after_long = start + document.length + separator
        yield from self._maker.long_batches(
            document, lambda: self._text_again(start), document.length + separator
        )

    def _text_again(self, start: int) -> Stream:
        self._streams.behind.skip_to(start)
        return self._streams.behind
