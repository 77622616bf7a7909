"""Check of the pages of a Parquet file, while pyarrow reads it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa

from pipelines.storage.expansion import check_expansion
from pipelines.tasks.listing import InputFile

# Memory for the rows that are read at a time from a file whose rows share a long value.
_MOST_SHARED_BYTES: Final = 256 << 20

_DICTIONARY_PAGE: Final = 2
_LONGEST_PAGE_START: Final = 18  # three fields, each a byte and a number of at most 5 bytes
_INT32_FIELD_AFTER_THE_LAST: Final = 0x15  # in Thrift's compact protocol


class _LongSharedValueError(Exception):
    """The rows that were requested may need too much memory, because they share a long value.

    Attributes:
        most_rows: Number of rows that can be read at a time.
    """

    def __init__(self, most_rows: int) -> None:
        super().__init__(most_rows)
        self.most_rows = most_rows


class PageGuard(io.RawIOBase):
    """Parquet file that is read by pyarrow, with a check of the first page of each column.

    pyarrow allocates what the header of a page claims. Rows that refer to a dictionary, which is
    the first page, become copies of its values, so a long value times the number of rows that are
    read at a time must fit into memory. The sizes in the footer can be wrong; those in the headers
    of pages are the ones that pyarrow uses.
    """

    def __init__(self, handle: io.RawIOBase, file: InputFile, max_expansion: int) -> None:
        self._handle = handle
        self._file = file
        self._max_expansion = max_expansion
        self._rows = 0
        self._next: set[int] = set()  # where columns continue that were begun

    def read_rows(
        self, read: Callable[[int], Iterator[pa.RecordBatch]], num_rows: int
    ) -> Iterator[pa.RecordBatch]:
        """Read rows of a row group from its beginning.

        Args:
            read: Function that reads them from this file, at most so many at a time.
            num_rows: Number of rows to read at a time; fewer if they share a long value.

        Raises:
            ExpansionError: A page expands too much.
        """
        while True:
            self._rows = num_rows
            self._next.clear()
            try:
                yield from read(num_rows)
                return
            except _LongSharedValueError as error:  # raised before the first rows
                num_rows = error.most_rows

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._handle.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go to a byte."""
        return self._handle.seek(offset, whence)

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes.

        Raises:
            ExpansionError, _LongSharedValueError: By the header of the page that begins here.
        """
        start = self._handle.tell()
        data = self._handle.read(size) or b""
        if self._rows:
            if start not in self._next:
                self._check_page(data[:_LONGEST_PAGE_START])
            self._next.discard(start)
            self._next.add(start + len(data))
        return data

    def _check_page(self, header: bytes) -> None:
        fields = _read_int32_fields(header)
        if len(fields) < 2:
            return
        kind, size = fields[:2]
        check_expansion(
            self._file.url, self._file.size, size, self._max_expansion, "a Parquet page"
        )
        if kind == _DICTIONARY_PAGE:
            most_rows = max(1, _MOST_SHARED_BYTES // max(1, size))
            if self._rows > most_rows:
                raise _LongSharedValueError(most_rows)


def _read_int32_fields(data: bytes) -> list[int]:
    """Return the leading 32-bit fields of a struct in Thrift's compact protocol."""
    fields: list[int] = []
    at = 0
    while at < len(data) and data[at] == _INT32_FIELD_AFTER_THE_LAST:
        value = shift = 0
        while True:
            at += 1
            if at == len(data):
                return fields
            value |= (data[at] & 0x7F) << shift
            shift += 7
            if data[at] < 0x80:
                break
        at += 1
        fields.append((value >> 1) ^ -(value & 1))
    return fields
