"""Number of rows before a record batch of an Arrow IPC file.

pyarrow has to read a record batch completely to report its number of rows. This module reads only
the few bytes of metadata that contain the number: see "IPC File Format", Message.fbs and File.fbs
in Arrow's format specification (https://arrow.apache.org/docs/format/Columnar.html), and
FlatBuffers' "Internals" for the layout of tables.
"""

from __future__ import annotations

import io
import itertools
import struct
from collections.abc import Iterator
from typing import Final

ARROW_FILE_MAGIC: Final = b"ARROW1"

# Indices of fields in their tables, in the order of the schemas.
_FOOTER_RECORD_BATCHES: Final = 3
_MESSAGE_HEADER: Final = 2
_RECORD_BATCH_LENGTH: Final = 0

_BLOCK: Final = struct.Struct("<qi4xq")  # in a Footer: offset, metadata length, body length
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


def _read_blocks(file: io.RawIOBase, size: int) -> Iterator[tuple[int, int, int]]:
    """Yield the offset, metadata length and body length of each record batch."""
    tail = len(ARROW_FILE_MAGIC) + 4
    (footer_bytes,) = struct.unpack_from("<i", _read(file, size - tail, 4))
    footer = _read(file, size - tail - footer_bytes, footer_bytes)
    blocks = _find_field(footer, _find_table(footer), _FOOTER_RECORD_BATCHES)
    blocks += _read_unsigned(footer, blocks)
    for number in range(_read_unsigned(footer, blocks)):
        yield _BLOCK.unpack_from(footer, blocks + 4 + number * _BLOCK.size)


def _read_block_rows(file: io.RawIOBase, block: tuple[int, int, int]) -> int:
    offset, metadata_bytes, _ = block
    return _parse_rows(_read(file, offset, metadata_bytes))


def _parse_rows(message: bytes) -> int:
    # Files written before Arrow 0.15 have no continuation marker before the length.
    message = message[8 if _read_unsigned(message, 0) == _CONTINUATION else 4 :]
    header = _find_field(message, _find_table(message), _MESSAGE_HEADER)
    header += _read_unsigned(message, header)
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
