"""All that can be decompressed before damage is given, whatever the sizes of reads."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zstandard
from build_support import input_file

from pipelines.errors import DamagedFileError
from pipelines.readers.streams import open_stream
from pipelines.tasks.listing import InputFile, compression_of

TEXT = b"".join(random.Random(number).randbytes(9).hex().encode() + b"\n" for number in range(5000))

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "zst": zstandard.ZstdCompressor(write_checksum=True).compress,
    "bz2": lambda data: bz2.compress(data, 1),
    "xz": lzma.compress,
}


def file_of(path: Path, data: bytes) -> InputFile:
    return input_file(path, data, compression_of(path.name))


def readable(file: InputFile, read_bytes: int, *, salvage: bool = True) -> bytes:
    """What a stream gives until it fails; it must fail, and do so again."""
    stream = open_stream(file, {}, read_bytes, salvage=salvage)
    found = bytearray()
    try:
        while True:
            target = np.empty(read_bytes, np.uint8)
            got = stream.read_into(target)
            assert got
            assert not stream.at_end
            found += target[:got].tobytes()
    except DamagedFileError as error:
        assert file.url in str(error)
    with pytest.raises(DamagedFileError):
        stream.read_into(np.empty(1, np.uint8))
    stream.close()
    return bytes(found)


def oracle(name: str, data: bytes) -> bytes:
    """What a decompressor gives that is fed byte by byte."""
    found = bytearray()
    new: Callable[[], zlib._Decompress | bz2.BZ2Decompressor | lzma.LZMADecompressor] = {
        "gz": lambda: zlib.decompressobj(31),
        "bz2": bz2.BZ2Decompressor,
        "xz": lzma.LZMADecompressor,
        "zst": lambda: zstandard.ZstdDecompressor().decompressobj(),
    }[name]
    member = new()
    for i in range(len(data)):
        try:
            if member.eof:
                member = new()
            found += member.decompress(data[i : i + 1])
        except (OSError, zlib.error, lzma.LZMAError, zstandard.ZstdError):
            break
    return bytes(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPRESS)
def test_all_before_the_damage_is_given_whatever_the_sizes_of_reads(
    tmp_path: Path, name: str
) -> None:
    generator = random.Random(4)
    half = len(TEXT) // 2
    whole = COMPRESS[name](TEXT[:half]) + COMPRESS[name](TEXT[half:])
    for number in range(4):
        data = bytearray(whole)
        place = generator.randrange(20, len(data))
        if number % 2:
            del data[place:]
        else:
            data[place] ^= 0xFF
        file = file_of(tmp_path / f"f.{name}", bytes(data))
        found = [readable(file, read_bytes) for read_bytes in (4000, 1 << 20)]
        assert found[0] == found[1]
        expected = oracle(name, bytes(data))
        if name == "bz2":  # the oracle gives a block only when its checksum was right
            assert found[0].startswith(expected)
        else:  # the bits of the last byte before the damage may hold a little more
            assert expected.startswith(found[0])
            assert len(expected) - len(found[0]) < 600
        if number % 2:
            assert TEXT.startswith(found[0])
            assert found[0] == expected


def test_without_salvage_damage_is_an_error_at_once(tmp_path: Path) -> None:
    data = gzip.compress(TEXT)
    file = file_of(tmp_path / "f.gz", data[: len(data) // 2])
    assert len(readable(file, 1 << 20, salvage=False)) < len(readable(file, 1 << 20))


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, zipfile.ZIP_STORED]
)
def test_a_damaged_file_in_a_zip_archive_gives_all_before_the_damage(
    tmp_path: Path, method: int
) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        archive.writestr("folder/f.gz", gzip.compress(TEXT))
        archive.writestr("f.txt", TEXT)
    data = bytearray(packed.getvalue())
    with zipfile.ZipFile(packed) as archive:
        sizes = {info.filename: info for info in archive.infolist()}
    for name, info in sizes.items():
        data[info.header_offset + 60 + info.compress_size * 3 // 4] ^= 0xFF
        (tmp_path / "a.zip").write_bytes(data)
        file = InputFile(
            source=0,
            source_name=None,
            url=f"zip://{name}::{tmp_path}/a.zip",
            name=name,
            size=info.file_size,
            version_tag="",
            compression=compression_of(name),
        )
        if method == zipfile.ZIP_STORED and name == "f.txt":
            continue  # nothing tells that its bytes are other ones
        found = [readable(file, read_bytes) for read_bytes in (4000, 1 << 20)]
        assert found[0] == found[1]
        same = next(
            (i for i, pair in enumerate(zip(found[0], TEXT, strict=False)) if pair[0] != pair[1]),
            len(found[0]),
        )
        assert same > len(TEXT) // 3 or method == zipfile.ZIP_BZIP2  # all in one block
