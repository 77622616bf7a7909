"""Rows and bytes of record batches of Arrow IPC, from their metadata.

pyarrow has to read a record batch completely to report its number of rows, and allocates whatever
size its compressed buffers claim. This module reads only the few bytes that contain the numbers:
see "IPC File Format", Message.fbs and File.fbs in Arrow's format specification
(https://arrow.apache.org/docs/format/Columnar.html), and FlatBuffers' "Internals" for the layout of
tables.
"""

from __future__ import annotations

import io
import itertools
import struct
from collections.abc import Iterator
from typing import Final

ARROW_FILE_MAGIC: Final = b"ARROW1"

# Indices of fields in their tables, in the order of the schemas.
_FOOTER_DICTIONARIES: Final = 2
_FOOTER_RECORD_BATCHES: Final = 3
_MESSAGE_HEADER_TYPE: Final = 1
_MESSAGE_HEADER: Final = 2
_MESSAGE_BODY_LENGTH: Final = 3
_RECORD_BATCH_LENGTH: Final = 0
_RECORD_BATCH_BUFFERS: Final = 2
_RECORD_BATCH_COMPRESSION: Final = 3
_DICTIONARY_BATCH_DATA: Final = 1

_DICTIONARY_BATCH: Final = 2  # values of the header's type
_RECORD_BATCH: Final = 3

_BLOCK: Final = struct.Struct("<qi4xq")  # in a Footer: offset, metadata length, body length
_BUFFER: Final = struct.Struct("<qq")  # offset in the body, length
_LENGTH: Final = struct.Struct("<q")  # of the bytes in a compressed buffer; -1: not compressed
_CONTINUATION: Final = 0xFFFFFFFF
_LONGEST_METADATA: Final = 1 << 28


def rows_before(file: io.RawIOBase, size: int, batch: int) -> int:
    """Return the number of rows in all record batches before this one.

    Args:
        file: an Arrow IPC file that pyarrow could open.
        size: size of the file in bytes.
        batch: index of a record batch.

    Raises:
        ValueError, struct.error: the metadata is invalid.
    """
    blocks = _read_blocks(file, size)
    return sum(_read_block_rows(file, block) for block in itertools.islice(blocks, batch))


def rows_of(file: io.RawIOBase, size: int, batch: int) -> int:
    """Return the number of rows of a record batch; see `rows_before`."""
    return _read_block_rows(file, next(itertools.islice(_read_blocks(file, size), batch, None)))


def expanded_bytes(file: io.RawIOBase, size: int, first: int) -> Iterator[int]:
    """Yield the bytes that compressed buffers claim, of each record batch and all dictionaries.

    Args:
        file, size: see `rows_before`, also for errors.
        first: index of the record batch to begin with.
    """

    def claimed(block: tuple[int, int, int]) -> int:
        offset, metadata_bytes, _ = block
        return _sum_buffers(file, _read(file, offset, metadata_bytes), offset + metadata_bytes)

    dictionaries = sum(map(claimed, _read_blocks(file, size, _FOOTER_DICTIONARIES)))
    for block in itertools.islice(_read_blocks(file, size), first, None):
        yield dictionaries + claimed(block)


def expanded_bytes_of_next(file: io.RawIOBase) -> int:
    """Return the bytes that compressed buffers claim, of the next record batch of a stream.

    Its dictionaries are included. The position in the file does not change.

    Raises:
        ValueError, struct.error: the metadata is invalid.
    """
    begin = position = file.tell()
    claimed = 0
    kind = 0
    while kind != _RECORD_BATCH:
        prefix = _read(file, position, 4)
        position += 4
        if prefix == _CONTINUATION.to_bytes(4, "little"):
            prefix = _read(file, position, 4)
            position += 4
        metadata_bytes = _read_unsigned(prefix, 0)
        if not metadata_bytes:
            break
        message = prefix + _read(file, position, metadata_bytes)
        position += metadata_bytes
        claimed += _sum_buffers(file, message, position)
        kind, body = _parse_message(message[4:])
        if body < 0:
            raise ValueError(f"a message has {body} bytes")
        position += body
    file.seek(begin)
    return claimed


def _sum_buffers(file: io.RawIOBase, message: bytes, body: int) -> int:
    """Return the bytes that the compressed buffers of a message claim, whose body starts there."""
    message = _without_prefix(message)
    kind, _ = _parse_message(message)
    if kind not in (_DICTIONARY_BATCH, _RECORD_BATCH):
        return 0
    batch = _follow(message, _find_field(message, _find_table(message), _MESSAGE_HEADER))
    if kind == _DICTIONARY_BATCH:
        batch = _follow(message, _find_field(message, batch, _DICTIONARY_BATCH_DATA))
    if not _find_field(message, batch, _RECORD_BATCH_COMPRESSION, default=0):
        return 0
    buffers = _follow(message, _find_field(message, batch, _RECORD_BATCH_BUFFERS))
    claimed = 0
    for number in range(_read_unsigned(message, buffers)):
        offset, length = _BUFFER.unpack_from(message, buffers + 4 + number * _BUFFER.size)
        if length >= _LENGTH.size:
            (claim,) = _LENGTH.unpack(_read(file, body + offset, _LENGTH.size))
            claimed += max(claim, 0)
    return claimed


def _parse_message(message: bytes) -> tuple[int, int]:
    """Return the type of a message, without its prefix, and the length of its body."""
    table = _find_table(message)
    kind = _find_field(message, table, _MESSAGE_HEADER_TYPE, default=0)
    length = _find_field(message, table, _MESSAGE_BODY_LENGTH, default=0)
    return (
        message[kind] if kind else 0,
        int(_LENGTH.unpack_from(message, length)[0]) if length else 0,
    )


def _read_blocks(
    file: io.RawIOBase, size: int, field: int = _FOOTER_RECORD_BATCHES
) -> Iterator[tuple[int, int, int]]:
    """Yield the offset, metadata length and body length of each record batch or dictionary."""
    tail = len(ARROW_FILE_MAGIC) + 4
    (footer_bytes,) = struct.unpack_from("<i", _read(file, size - tail, 4))
    footer = _read(file, size - tail - footer_bytes, footer_bytes)
    blocks = _find_field(footer, _find_table(footer), field, default=0)
    if not blocks:
        return
    blocks = _follow(footer, blocks)
    for number in range(_read_unsigned(footer, blocks)):
        yield _BLOCK.unpack_from(footer, blocks + 4 + number * _BLOCK.size)


def _read_block_rows(file: io.RawIOBase, block: tuple[int, int, int]) -> int:
    offset, metadata_bytes, _ = block
    return _parse_rows(_read(file, offset, metadata_bytes))


def _without_prefix(message: bytes) -> bytes:
    # Files written before Arrow 0.15 have no continuation marker before the length.
    return message[8 if _read_unsigned(message, 0) == _CONTINUATION else 4 :]


def _parse_rows(message: bytes) -> int:
    message = _without_prefix(message)
    header = _follow(message, _find_field(message, _find_table(message), _MESSAGE_HEADER))
    length = _find_field(message, header, _RECORD_BATCH_LENGTH, default=0)
    rows: int = struct.unpack_from("<q", message, length)[0] if length else 0
    if rows < 0:
        raise ValueError(f"a record batch has {rows} rows")
    return rows


def _read(file: io.RawIOBase, offset: int, amount: int) -> bytes:
    if offset < 0 or not 0 <= amount <= _LONGEST_METADATA:
        raise ValueError(f"the metadata at byte {offset} has {amount} bytes")
    file.seek(offset)
    data = file.read(amount) or b""
    if len(data) < amount:
        raise ValueError(f"the metadata is truncated at byte {offset + len(data)}")
    return data


def _read_unsigned(data: bytes, position: int) -> int:
    value: int = struct.unpack_from("<I", data, position)[0]
    return value


def _follow(data: bytes, position: int) -> int:
    """Return the position of the table or vector that a field refers to."""
    return position + _read_unsigned(data, position)


def _find_table(data: bytes) -> int:
    """Return the position of the root table."""
    return _read_unsigned(data, 0)


def _find_field(data: bytes, table: int, number: int, default: int | None = None) -> int:
    """Return the position of a field of a table; `default` if the table omits it."""
    (back,) = struct.unpack_from("<i", data, table)
    vtable = table - back
    (vtable_bytes,) = struct.unpack_from("<H", data, vtable)
    entry = 4 + 2 * number
    offset = struct.unpack_from("<H", data, vtable + entry)[0] if entry < vtable_bytes else 0
    if offset:
        return table + int(offset)
    if default is None:
        raise ValueError(f"the metadata has no field {number}")
    return default
