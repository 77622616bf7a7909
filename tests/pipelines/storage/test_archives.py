"""Tables of contents of damaged archives: nothing is left out in silence, nothing believed."""

from __future__ import annotations

import contextlib
import gzip
import io
import random
import tarfile
import zipfile
from pathlib import Path

import pytest
from build_support import config_for

from pipelines import build
from pipelines.config import SourceConfig
from pipelines.errors import DamagedFileError, InputError
from pipelines.storage import archives
from pipelines.storage.archives import DamagedArchiveError
from pipelines.tasks.listing import list_files

NAMES = ["f0", "f1", "f2"]
BLOCK = 512


def tar() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in NAMES:
            info = tarfile.TarInfo(name)
            info.size = 1000
            archive.addfile(info, io.BytesIO(b"x" * 1000))
    return packed.getvalue()


def members(path: Path, data: bytes) -> list[str]:
    path.write_bytes(data)
    protocol = "zip" if path.suffix == ".zip" else "tar"
    return list(archives.contents(protocol, str(path), {}).members)


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize("end", ["tar", "tar.gz"])
def test_a_tar_archive_is_listed_to_its_end_or_is_an_error(tmp_path: Path, end: str) -> None:
    whole = tar()
    second = 3 * BLOCK  # where the header of the second file is
    after_the_third = 9 * BLOCK
    path = tmp_path / f"a.{end}"

    def listed(data: bytes) -> list[str]:
        return members(path, gzip.compress(data) if end == "tar.gz" else data)

    assert listed(whole) == listed(whole[: after_the_third + BLOCK]) == NAMES
    wrong = {
        "neither a header nor zeros": [flipped(whole, second + 5), whole + whole],
        "no end-of-archive marker": [whole[:after_the_third], whole[:second]],
        "unexpected end of data": [whole[: second + 700]],
    }
    for message, archives_ in wrong.items():
        for data in archives_:
            with pytest.raises(DamagedArchiveError, match=message):
                listed(data)
    if end == "tar.gz":
        packed = gzip.compress(whole)
        for data in (packed[:-5], flipped(packed, len(packed) - 6)):
            with pytest.raises(OSError, match=r"ended before|CRC"):
                members(path, data)


def test_sizes_in_a_zip_archive_that_can_not_be_are_not_believed(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros.txt", bytes(5_000_000))
        archive.writestr("text.txt", b"some words " * 100)
    data = packed.getvalue()
    path = tmp_path / "a.zip"
    assert members(path, data) == ["zeros.txt", "text.txt"]
    entry = data.index(b"PK\1\2")
    for offset, value in ((24, 4_000_000_000), (20, 1 << 30), (42, 1 << 30)):
        place = entry + offset
        wrong = data[:place] + value.to_bytes(4, "little") + data[place + 4 :]
        with pytest.raises(DamagedArchiveError, match="impossible"):
            members(path, wrong)
        config = config_for(tmp_path, input={"files": [f"zip://*::{path}"], "range_bytes": 300})
        with pytest.raises(InputError, match=r"cannot be listed(.|\n)*a\.zip"):
            build.plan(config)


def test_a_file_that_would_end_behind_its_archive_is_damaged(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("text.txt", b"some words")
    data = bytearray(packed.getvalue())
    data[26:30] = b"\x08\x00\xff\xff"  # of its own header: the lengths of what is before the text
    path = tmp_path / "a.zip"
    assert members(path, bytes(data)) == ["text.txt"]
    config = config_for(tmp_path, input={"files": [f"zip://*::{path}"]}, beam={"workers": 1})
    with pytest.raises(DamagedFileError, match=r"beyond the end of the archive(.|\n)*text\.txt"):
        build.build(config)


def test_damaged_tables_give_names_or_an_error(tmp_path: Path) -> None:
    generator = random.Random(3)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in NAMES:
            archive.writestr(name, b"text")
    for suffix, data in ((".zip", packed.getvalue()), (".tar", tar())):
        for _ in range(300):
            wrong = bytearray(data)
            for _ in range(generator.choice([1, 3])):
                wrong[generator.randrange(len(wrong))] = generator.randrange(256)
            with contextlib.suppress(OSError):
                members(tmp_path / f"a{suffix}", bytes(wrong))


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_names_in_archives_are_names_wherever_they_point(kind: str, tmp_path: Path) -> None:
    names = ["../../a.txt", "/etc/a.txt", "a\nb\x1b[31m.txt", "c.txt", "etc/a.txt"]
    path = tmp_path / f"a.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name in names:
                archive.writestr(name, name)
    else:
        with tarfile.open(path, "w") as tar_archive:
            for name in names:
                info = tarfile.TarInfo(name)
                info.size = len(name)
                tar_archive.addfile(info, io.BytesIO(name.encode()))
            for link in (tarfile.SYMTYPE, tarfile.LNKTYPE):
                info = tarfile.TarInfo("link.txt")
                info.type, info.linkname = link, "/etc/passwd"
                tar_archive.addfile(info)
    files = list_files(SourceConfig(files=(f"{kind}://**/*.txt::{path}",)))
    assert sorted(file.name for file in files) == sorted(names)
    for file in files:
        content = bytearray(file.size)
        archives.open_member(file.url, {}).read_into(memoryview(content), 0)
        assert content == file.name.encode()
