"""Files that are made to do harm: they lie about sizes, expand, nest, or point elsewhere.

Each function writes files into a folder and returns the path to give to a command.
"""

from __future__ import annotations

import bz2
import io
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

MIB: Final = 1 << 20
ROWS: Final = 12_345  # a number that nothing else in a footer has
DEPTH: Final = 1_000_000


def zeros(size: int) -> Iterator[bytes]:
    """Yield bytes that compress well, `size` in total."""
    block = b"0 " * (MIB // 2)
    for _ in range(size // MIB):
        yield block


# --- compressed -----------------------------------------------------------------------------------


def zstd_bomb(path: Path, size: int) -> Path:
    with path.open("wb") as raw, zstandard.ZstdCompressor(3).stream_writer(raw) as file:
        for block in zeros(size):
            file.write(block)
    return path


def bz2_bomb(path: Path, size: int) -> Path:
    with bz2.open(path, "wb") as file:
        for block in zeros(size):
            file.write(block)
    return path


def xz_bomb(path: Path, size: int) -> Path:
    with lzma.open(path, "wb", preset=1) as file:
        for block in zeros(size):
            file.write(block)
    return path


def wide_zstd(path: Path) -> Path:
    """Write a frame of zstd that claims a window of 2 GiB and 2^60 bytes."""
    # Magic, descriptor (8 bytes of content size), window, size, then one raw block of a byte.
    header = b"\x28\xb5\x2f\xfd" + bytes([0b11000000, (31 - 10) << 3]) + struct.pack("<Q", 1 << 60)
    path.write_bytes(header + struct.pack("<I", 1 | (1 << 3))[:3] + b"x")
    return path


def wide_xz(path: Path) -> Path:
    """Write an xz file whose dictionary has 1.5 GiB."""
    filters = [
        {
            "id": lzma.FILTER_LZMA2,
            "dict_size": 1536 * MIB,
            "mode": lzma.MODE_FAST,
            "mf": lzma.MF_HC3,
            "nice_len": 16,
            "depth": 1,
        }
    ]
    small = [{**filters[0], "dict_size": 4096}]
    data = bytearray(lzma.compress(b"text " * 100, filters=small))
    # The block header: size, flags, filter id, size of properties, dictionary size.
    at = data.index(b"\x21\x01", 12)
    data[at + 2] = 37  # 1.5 GiB
    begin = 12
    length = (data[begin] + 1) * 4
    data[begin + length - 4 : begin + length] = struct.pack(
        "<I", zlib.crc32(bytes(data[begin : begin + length - 4]))
    )
    path.write_bytes(bytes(data))
    return path


def zip_bomb(path: Path, size: int) -> Path:
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("a.txt", "w", force_zip64=True) as file,
    ):
        for block in zeros(size):
            file.write(block)
    return path


def overlapping_zip(path: Path, members: int, size: int) -> Path:
    """Write a zip whose entries all mean the same stored bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("0000000.txt", b"0 " * (size // 2))
    data = buffer.getvalue()
    start = data.index(b"PK\1\2")
    end = data.index(b"PK\5\6")
    entry = data[start:end]
    entries = b"".join(entry.replace(b"0000000.txt", b"%07d.txt" % i) for i in range(members))
    tail = bytearray(data[end:])
    count = min(members, 0xFFFF)
    struct.pack_into("<HHII", tail, 8, count, count, len(entries), start)
    path.write_bytes(data[:start] + entries + bytes(tail))
    return path


def tar_bomb(path: Path, size: int, mode: str = "w:gz") -> Path:
    class Zeros(io.RawIOBase):
        def read(self, amount: int = -1, /) -> bytes:
            return b"0" * amount

    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        info = tarfile.TarInfo("a.txt")
        info.size = size
        archive.addfile(info, Zeros())
    return path


def lying_tar(path: Path, size: int) -> Path:
    """Write a tar whose only file claims a size."""
    info = tarfile.TarInfo("a.txt")
    info.size = size
    path.write_bytes(info.tobuf(tarfile.GNU_FORMAT) + b"text\0" * 200)
    return path


# --- Parquet and Arrow ----------------------------------------------------------------------------


def varint(value: int) -> bytes:
    """Return a signed number as Thrift's compact protocol writes it."""
    value = (value << 1) ^ (value >> 63)
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def parquet_bytes(texts: list[str] | pa.Array[Any] | None = None, **settings: Any) -> bytes:
    sink = io.BytesIO()
    values = texts if texts is not None else ["x"] * ROWS
    settings = {"use_dictionary": False, "compression": "none", **settings}
    pq.write_table(pa.table({"text": values}), sink, **settings)
    return sink.getvalue()


def with_footer(data: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """Return a Parquet file with a changed footer, whose length is right."""
    (length,) = struct.unpack("<I", data[-8:-4])
    footer = change(data[-8 - length : -8])
    return data[: -8 - length] + footer + struct.pack("<I", len(footer)) + b"PAR1"


def claimed_rows(rows: int) -> bytes:
    """Return a Parquet file that claims so many rows, and values of its column."""
    return with_footer(parquet_bytes(), lambda footer: footer.replace(varint(ROWS), varint(rows)))


def claimed_pages(claimed: int) -> bytes:
    """Return a Parquet file with a page whose header claims so many bytes."""
    data = parquet_bytes()
    chunk = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0).column(0)
    begin, page = chunk.data_page_offset, 40
    sizes = map(varint, range(ROWS * 5 + 100, 0, -1))
    size = next(size for size in sizes if len(size) == 3 and data[begin + 3 :].startswith(size))
    header = data[begin : begin + page].replace(size, varint(claimed))
    chunk_bytes = chunk.total_compressed_size
    return with_footer(
        data[:begin] + header + data[begin + page :],
        lambda footer: footer.replace(
            varint(chunk_bytes), varint(chunk_bytes + len(header) - page)
        ),
    )


def claimed_list(count: int) -> bytes:
    """Return a Parquet file whose footer claims a list of so many elements in its schema."""

    def change(footer: bytes) -> bytes:
        # Field 1 is the version (i32), field 2 a list of structs.
        at = footer.index(b"\x19", 1)
        kind = footer[at + 1] & 0x0F
        out = bytearray()
        value = count
        while value > 0x7F:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        out.append(value)
        return footer[: at + 1] + bytes([0xF0 | kind]) + bytes(out) + footer[at + 2 :]

    return with_footer(parquet_bytes(), change)


def parquet_dictionary_bomb(value_bytes: int, rows: int, **settings: Any) -> bytes:
    """Return a Parquet file whose rows all have the same long value, which is stored once."""
    values = pa.DictionaryArray.from_arrays(
        pa.array([0] * rows, pa.int32()), pa.array(["0 " * (value_bytes // 2)])
    )
    return parquet_bytes(values, use_dictionary=True, compression="zstd", **settings)


def parquet_page_bomb(size: int) -> bytes:
    """Return a Parquet file with one value that is large, in a page that is small."""
    return parquet_bytes(["0 " * (size // 2)], compression="zstd")


def arrow_bytes(texts: Any = None, stream: bool = False, **options: Any) -> bytes:
    sink = io.BytesIO()
    table = pa.table({"text": texts if texts is not None else ["x"] * ROWS})
    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    with make(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return sink.getvalue()


def patched(data: bytes, old: int, new: int) -> bytes:
    """Return the bytes with a number of 64 bits replaced."""
    before = struct.pack("<q", old)
    assert before in data
    return data.replace(before, struct.pack("<q", new))


def arrow_dictionary_bomb(value_bytes: int, rows: int) -> bytes:
    values = pa.DictionaryArray.from_arrays(
        pa.array([0] * rows, pa.int32()), pa.array(["0 " * (value_bytes // 2)])
    )
    return arrow_bytes(values, compression="zstd")


def arrow_view_bomb(value_bytes: int, rows: int) -> bytes:
    """Return an Arrow file whose rows are views of the same bytes."""
    text = pa.array(["0 " * (value_bytes // 2)], pa.string_view())
    views = text.buffers()[1].to_pybytes()[:16] * rows
    array = pa.Array.from_buffers(
        pa.string_view(), rows, [None, pa.py_buffer(views), text.buffers()[2]]
    )
    return arrow_bytes(array)


def arrow_claimed_buffer(size: int) -> bytes:
    """Return an Arrow file with a compressed buffer that claims this size."""
    data = arrow_bytes(["some words that repeat " * 1000] * 20, compression="zstd")
    length = struct.pack("<q", len("some words that repeat " * 1000) * 20)
    assert length in data
    return data.replace(length, struct.pack("<q", size))


# --- JSON -----------------------------------------------------------------------------------------


def nested(open_: str, inner: str = "1", depth: int = DEPTH) -> str:
    close = {"[": "]", '{"a":': "}"}[open_]
    return open_ * depth + inner + close * depth
