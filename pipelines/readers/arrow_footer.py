"""How many rows of an Arrow IPC file lie before a record batch.

pyarrow tells the rows of a record batch only by reading it. The few bytes of metadata that hold the
number are read here: see "IPC File Format" and Message.fbs, File.fbs in Arrow's format
specification (https://arrow.apache.org/docs/format/Columnar.html), and for the layout of tables
FlatBuffers' "Internals".
"""

from __future__ import annotations

import io
import itertools
import struct
from collections.abc import Iterator
from typing import Final

ARROW_FILE_MAGIC: Final = b"ARROW1"

# Numbers of fields in their tables, in the order of the schemas.
_FOOTER_RECORD_BATCHES: Final = 3
_MESSAGE_HEADER: Final = 2
_RECORD_BATCH_LENGTH: Final = 0

_BLOCK: Final = struct.Struct("<qi4xq")  # of a Footer: offset, length of the metadata and the body
_CONTINUATION: Final = 0xFFFFFFFF
_LONGEST_METADATA: Final = 1 << 28


def rows_before(file: io.RawIOBase, size: int, batch: int) -> int:
    """The number of rows in the record batches before this one.

    Args:
        file: an Arrow IPC file that pyarrow could open.
        size: its bytes.
        batch: index of a record batch.

    Raises:
        ValueError, struct.error: the metadata makes no sense.
    """
    blocks = _blocks(file, size)
    return sum(_block_rows(file, block) for block in itertools.islice(blocks, batch))


def rows_of(file: io.RawIOBase, size: int, batch: int) -> int:
    """The number of rows of a record batch; see `rows_before`."""
    return _block_rows(file, next(itertools.islice(_blocks(file, size), batch, None)))


def _blocks(file: io.RawIOBase, size: int) -> Iterator[tuple[int, int, int]]:
    """Of each record batch its offset, the length of its metadata and of its body."""
    tail = len(ARROW_FILE_MAGIC) + 4
    (footer_bytes,) = struct.unpack_from("<i", _read(file, size - tail, 4))
    footer = _read(file, size - tail - footer_bytes, footer_bytes)
    blocks = _field(footer, _table(footer), _FOOTER_RECORD_BATCHES)
    blocks += _unsigned(footer, blocks)
    for number in range(_unsigned(footer, blocks)):
        yield _BLOCK.unpack_from(footer, blocks + 4 + number * _BLOCK.size)


def _block_rows(file: io.RawIOBase, block: tuple[int, int, int]) -> int:
    offset, metadata_bytes, _ = block
    return _rows_of(_read(file, offset, metadata_bytes))


def _rows_of(message: bytes) -> int:
    # Files of before Arrow 0.15 lack the mark in front of the length.
    message = message[8 if _unsigned(message, 0) == _CONTINUATION else 4 :]
    header = _field(message, _table(message), _MESSAGE_HEADER)
    header += _unsigned(message, header)
    length = _field(message, header, _RECORD_BATCH_LENGTH, default=0)
    rows: int = struct.unpack_from("<q", message, length)[0] if length else 0
    if rows < 0:
        raise ValueError(f"a record batch of {rows} rows")
    return rows


def _read(file: io.RawIOBase, offset: int, amount: int) -> bytes:
    if offset < 0 or not 0 <= amount <= _LONGEST_METADATA:
        raise ValueError(f"metadata of {amount} bytes at byte {offset}")
    file.seek(offset)
    data = file.read(amount) or b""
    if len(data) < amount:
        raise ValueError(f"metadata that ends at byte {offset + len(data)}")
    return data


def _unsigned(data: bytes, place: int) -> int:
    value: int = struct.unpack_from("<I", data, place)[0]
    return value


def _table(data: bytes) -> int:
    """Where the root table begins."""
    return _unsigned(data, 0)


def _field(data: bytes, table: int, number: int, default: int | None = None) -> int:
    """Where a field of a table is; `default` if the table leaves it out."""
    (back,) = struct.unpack_from("<i", data, table)
    vtable = table - back
    (vtable_bytes,) = struct.unpack_from("<H", data, vtable)
    place = 4 + 2 * number
    offset = struct.unpack_from("<H", data, vtable + place)[0] if place < vtable_bytes else 0
    if offset:
        return table + int(offset)
    if default is None:
        raise ValueError(f"metadata without field {number}")
    return default
