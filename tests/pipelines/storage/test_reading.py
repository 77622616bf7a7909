"""Input from object stores, web servers and archives: right bytes, few requests, one version."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import numpy as np
import pytest
from s3fs import S3FileSystem
from storage_support import (
    FAULTS,
    KEY,
    S3,
    SECRET,
    Server,
    Web,
    documents_of,
    file_at,
    listed,
    serve,
    some_lines,
    text_of,
)
from werkzeug.wrappers import Request, Response

from pipelines.errors import (
    ChangedFileError,
    ConfigError,
    DamagedFileError,
    InputError,
    UnreadableFileError,
)
from pipelines.readers import ReadOptions, read_range
from pipelines.readers.streams import open_handle, open_stream
from pipelines.storage import filesystems, retries
from pipelines.storage.remote_files import REQUEST_BYTES, StoredHandle, open_stored
from pipelines.tasks.listing import InputFile
from pipelines.tasks.plan import Range

TEXT = some_lines(2000)
LINES = TEXT.splitlines()
MiB = 1 << 20


# --- the same documents from everywhere


@pytest.fixture(params=["local", "file", "memory", "s3", "http"])
def stored(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Callable[[str, bytes], tuple[str, dict[str, object]]]:
    """stored(name, data): the URL of a new file with its storage options."""
    kind = request.param

    def put(name: str, data: bytes) -> tuple[str, dict[str, object]]:
        if kind in ("local", "file"):
            (tmp_path / name).write_bytes(data)
            return f"{'file://' if kind == 'file' else ''}{tmp_path}/{name}", {}
        if kind == "s3":
            s3: S3 = request.getfixturevalue("s3")
            s3.put(f"folder/{name}", data)
            return f"{s3.url}/folder/{name}", s3.options
        if kind == "http":
            web: Web = request.getfixturevalue("web")
            web.files[f"/folder/{name}"] = data
            return f"{web.url}/folder/{name}", {}
        url = f"{request.getfixturevalue('memory')}/{name}"
        fsspec.filesystem("memory").pipe(url, data)
        return url, {}

    return put


Stored = Callable[[str, bytes], tuple[str, dict[str, object]]]


@pytest.mark.slow
@pytest.mark.parametrize("compress", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_documents_are_the_same_from_every_storage(
    stored: Stored, compress: Callable[[bytes], bytes]
) -> None:
    ends = {bytes: "", gzip.compress: ".gz", bz2.compress: ".bz2", lzma.compress: ".xz"}
    url, options = stored(f"a.txt{ends[compress]}", compress(TEXT))
    file = file_at(url, options)
    assert text_of(file, options) == TEXT
    assert documents_of(file, options) == LINES


def zipped(compression: int) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", compression) as archive:
        archive.writestr("b/", b"")
        archive.writestr("b/a.txt", TEXT)
        archive.writestr("b/c.txt.gz", gzip.compress(TEXT))
        archive.writestr("d.txt", b"")
    return data.getvalue()


def tarred(mode: str) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode=mode) as archive:  # type: ignore[call-overload]
        directory = tarfile.TarInfo("b")
        directory.type = tarfile.DIRTYPE
        archive.addfile(directory)
        for name, content in {
            "b/a.txt": TEXT,
            "b/c.txt.gz": gzip.compress(TEXT),
            "d.txt": b"",
        }.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return data.getvalue()


def zstd(data: bytes) -> bytes:
    import zstandard

    return zstandard.compress(data)


ARCHIVES: dict[str, Callable[[], bytes]] = {
    "stored.zip": lambda: zipped(zipfile.ZIP_STORED),
    "deflated.zip": lambda: zipped(zipfile.ZIP_DEFLATED),
    "lzma.zip": lambda: zipped(zipfile.ZIP_LZMA),
    "plain.tar": lambda: tarred("w"),
    "x.tar.gz": lambda: tarred("w:gz"),
    "x.tar.xz": lambda: tarred("w:xz"),
    "x.tbz2": lambda: tarred("w:bz2"),
    "x.tar.zst": lambda: zstd(tarred("w")),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHIVES)
def test_documents_are_the_same_from_archives_on_every_storage(stored: Stored, name: str) -> None:
    url, options = stored(name, ARCHIVES[name]())
    protocol = "zip" if name.endswith("zip") else "tar"
    files = listed(f"{protocol}://b/*.txt*::{url}", options)
    assert [file.name for file in files] == ["a.txt", "c.txt.gz"]
    for file in files:
        assert file.url == f"{protocol}://b/{file.name}::{url}"
        assert documents_of(file, options, 20_000) == LINES
    assert [file.name for file in listed(f"{protocol}://**::{url}", options)] == [
        "b/a.txt",
        "b/c.txt.gz",
        "d.txt",
    ]


def test_a_damaged_archive_or_a_file_in_one_is_told(tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    archive.write_bytes(zipped(zipfile.ZIP_DEFLATED))
    files = listed(f"zip://b/*::{archive}")
    data = bytearray(archive.read_bytes())
    data[data.index(b"b/a.txt") + 500] ^= 255
    archive.write_bytes(data)
    with pytest.raises(ChangedFileError, match=r"has changed"):
        text_of(files[0])
    with pytest.raises(DamagedFileError, match=r"archive is corrupt(.|\n)*b/a.txt"):
        text_of(file_at(f"zip://b/a.txt::{archive}"))
    archive.write_bytes(data[:-10])
    with pytest.raises(InputError, match=r"cannot be listed(.|\n)*zip"):
        listed(f"zip://b/*::{archive}")


def test_a_pattern_that_matches_nothing_in_an_archive_shows_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zipped(zipfile.ZIP_STORED))
    with pytest.raises(InputError, match=r"it contains b/a.txt, b/c.txt.gz, d.txt"):
        listed(f"zip://*.md::{tmp_path}/a.zip")


# --- requests


class Virtual:
    """An S3 server with one object of any size, made of numbered lines of 16 bytes."""

    def __init__(self, size: int) -> None:
        self.size = size

    @Request.application
    def __call__(self, request: Request) -> Response:
        assert request.range is not None
        assert request.headers["If-Match"] == '"1"'
        begin, end = request.range.ranges[0]
        assert end is not None
        first, last = begin // 16, -(-end // 16)
        numbers = np.arange(first, last)
        digits = np.full((len(numbers), 16), ord("\n"), np.uint8)
        for place in range(15):
            digits[:, place] = ord("0") + numbers // 10 ** (14 - place) % 10
        data = digits.tobytes()[begin - 16 * first :][: end - begin]
        headers = {"ETag": '"1"', "Content-Range": f"bytes {begin}-{end - 1}/{self.size}"}
        return Response(data, 206, headers)


@pytest.fixture
def gigabyte() -> Iterator[tuple[Server, InputFile, dict[str, object]]]:
    server = Server(Virtual(1 << 30).__call__)
    running = serve(server)
    options = {"key": KEY, "secret": SECRET, "endpoint_url": next(running)}
    file = InputFile(
        source=0,
        source_name=None,
        url="s3://bucket/a.txt",
        name="a.txt",
        size=1 << 30,
        version_tag='ETag="1"',
        compression=None,
    )
    yield server, file, options
    for _ in running:
        pass


@pytest.mark.slow
def test_a_range_of_a_large_object_reads_its_bytes_in_few_requests(
    gigabyte: tuple[Server, InputFile, dict[str, object]],
) -> None:
    server, file, options = gigabyte
    part = Range(file=0, start=512 * MiB, end=576 * MiB)
    total = 0
    for batch in read_range(file, part, ReadOptions(separator=b"\n"), options):
        if not total:
            assert batch.document(0) == b"%015d" % (512 * MiB // 16)
        total += len(batch)
    assert total == 64 * MiB // 16
    assert server.numbers().keys() == {"GET"}
    assert len(server.requests) <= 12
    assert 64 * MiB <= sum(seen.sent for seen in server.requests) <= 64 * MiB + 256 * 1024
    assert max(seen.sent for seen in server.requests) <= REQUEST_BYTES


def test_an_option_that_older_versions_of_s3fs_lack_is_not_needed(
    gigabyte: tuple[Server, InputFile, dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, file, options = gigabyte
    init = S3FileSystem.__init__

    def without_option(filesystem: S3FileSystem, **given: object) -> None:
        init(filesystem, **given)
        del filesystem.local_expiry_check

    monkeypatch.setattr(S3FileSystem, "__init__", without_option)
    with open_handle(file, {**options, "skip_instance_cache": True}) as handle:
        assert handle.read(32) == b"%015d\n%015d\n" % (0, 1)


@pytest.mark.slow
def test_opening_and_reading_a_small_object_is_one_request(s3: S3) -> None:
    s3.put("a", TEXT)
    file = file_at(f"{s3.url}/*", s3.options)
    s3.server.forget()
    assert text_of(file, s3.options) == TEXT
    assert s3.server.numbers() == {"GET": 1}


def test_opening_and_reading_a_small_file_of_a_web_server_is_one_request(web: Web) -> None:
    web.files["/a"] = TEXT
    file = file_at(f"{web.url}/a")
    assert web.server.numbers() == {"HEAD": 1}
    web.server.forget()
    assert text_of(file) == TEXT
    assert web.server.numbers() == {"GET": 1}


@pytest.mark.slow
def test_listing_takes_a_request_for_a_thousand_objects(s3: S3) -> None:
    for number in range(2500):
        s3.put(f"data/x-{number:05d}.txt", b"%d" % number)
    for number in range(50):
        s3.put(f"elsewhere/{number}.txt", b"")
    for number in range(1500):
        s3.put(f"more/x-{number:05d}.txt", b"")
    for pattern, number in (("data/*.txt", 2500), ("more/x-*.txt", 1500), ("more/**", 1500)):
        s3.server.forget()
        files = listed(f"{s3.url}/{pattern}", s3.options)
        assert len(files) == number
        assert all(file.version_tag.startswith("ETag=") for file in files)
        assert len(s3.server.requests) <= 1 + -(-number // 1000)


@pytest.mark.slow
def test_listing_many_folders_takes_a_request_for_a_thousand_objects(s3: S3) -> None:
    for number in range(1500):
        s3.put(f"data/part-{number}/a.txt", b"x")
        s3.put(f"data/other-{number}/a.txt", b"x")
    s3.put("data/part-x.txt", b"x")
    files = listed(f"{s3.url}/data/part-*/*.txt", s3.options)
    assert len(files) == 1500
    assert len(s3.server.requests) <= 3


def test_files_of_an_archive_cost_no_look_at_its_contents_each(s3: S3) -> None:
    s3.put("a.zip", zipped(zipfile.ZIP_STORED))
    files = listed(f"zip://b/*::{s3.url}/a.zip", s3.options)
    assert len(s3.server.requests) <= 3
    s3.server.forget()
    assert text_of(files[0], s3.options) == TEXT
    assert s3.server.numbers() == {"GET": 2}  # the file's header, the file


def test_what_is_listed_is_never_an_old_listing(s3: S3) -> None:
    s3.put("a", b"1")
    assert len(listed(f"{s3.url}/*", s3.options)) == 1
    s3.put("b", b"1")
    assert len(listed(f"{s3.url}/*", s3.options)) == 2


def test_a_handle_reads_anywhere_with_requests_that_grow(s3: S3) -> None:
    data = np.random.default_rng(1).bytes(3_000_000)
    s3.put("a", data)
    file = file_at(f"{s3.url}/a", s3.options)
    s3.server.forget()
    with open_handle(file, s3.options) as handle:
        handle.seek(-8, io.SEEK_END)
        assert handle.read(100) == data[-8:]
        handle.seek(0)
        assert b"".join(iter(lambda: handle.read(1000), b"")) == data
        assert handle.seek(500) == handle.tell() == 500
        assert handle.read(2_000_000) == data[500:2_000_500]
    assert len(s3.server.requests) <= 9


def test_an_interval_of_a_stored_file_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(TEXT)
    stored = open_stored(str(tmp_path / "a"), {})
    handle = StoredHandle(stored, 100, 50)
    assert handle.read() == TEXT[100:150]
    assert handle.seek(-10, io.SEEK_END) == 40
    assert io.BufferedReader(handle).read() == TEXT[140:150]
    stored.close()


# --- a file that is not what it was


def test_another_version_of_an_object_is_told(s3: S3) -> None:
    s3.put("a", TEXT)
    file = file_at(f"{s3.url}/a", s3.options)
    s3.put("a", TEXT.replace(b"words", b"wordz"))
    with pytest.raises(ChangedFileError, match=rf"has changed(.|\n)*{s3.url}/a"):
        text_of(file, s3.options)


def test_an_object_that_changes_between_two_reads_is_told(s3: S3) -> None:
    data = bytes(3 * MiB)
    s3.put("a", data)
    file = file_at(f"{s3.url}/a", s3.options)
    stream = open_stream(file, s3.options, 1 * MiB)
    target = np.empty(MiB, np.uint8)
    stream.read_into(target)
    s3.put("a", data[:-1] + b"1")
    with pytest.raises(ChangedFileError, match="has changed"):
        stream.read_into(target)
    stream.close()


def test_a_local_file_that_changes_between_two_reads_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(3000))
    file = file_at(str(path))
    stream = open_stream(file, {}, 1000)
    target = np.empty(1000, np.uint8)
    stream.read_into(target)
    path.write_bytes(bytes(2999) + b"1")
    with pytest.raises(ChangedFileError, match=r"as many bytes, but changed since \(mtime_ns="):
        stream.read_into(target)
    stream.close()


@pytest.mark.parametrize("etags", [True, False])
@pytest.mark.parametrize("change", [b"x" + TEXT[1:], TEXT[:-5], TEXT + b"more"])
def test_a_changed_file_of_a_web_server_is_told(web: Web, change: bytes, etags: bool) -> None:
    if not etags and len(change) == len(TEXT):
        pytest.skip("nothing tells")
    web.etags = etags
    web.files["/a"] = TEXT
    file = file_at(f"{web.url}/a")
    web.files["/a"] = change
    with pytest.raises(ChangedFileError, match=r"has changed"):
        text_of(file)


def test_a_changed_file_in_memory_is_told(memory: str) -> None:
    filesystem = fsspec.filesystem("memory")
    filesystem.pipe(f"{memory}/a", TEXT)
    file = file_at(f"{memory}/a")
    filesystem.pipe(f"{memory}/a", TEXT[::-1])
    with pytest.raises(ChangedFileError, match="has changed"):
        text_of(file)


def test_a_file_that_is_gone_is_told(stored: Stored, request: pytest.FixtureRequest) -> None:
    url, options = stored("a.txt", TEXT)
    file = file_at(url, options)
    filesystem, path = filesystems.locate(url, options)
    if "http" in filesystem.protocol:
        request.getfixturevalue("web").files.clear()
    else:
        filesystem.rm(path)
    with pytest.raises(ChangedFileError, match=rf"no longer exists(.|\n)*{re.escape(file.url)}"):
        text_of(file, options)


def test_a_local_file_without_permission_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.write_bytes(TEXT)
    file = file_at(str(path))

    def refusing(path: str, flags: int) -> int:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(
        "pipelines.storage.remote_files.os.open", refusing
    )  # root may read everything
    with pytest.raises(
        UnreadableFileError, match=r"Permission denied(.|\n)*Grant read permission"
    ) as it:
        text_of(file)
    assert f"where: {path}" in str(it.value)


def test_a_server_without_ranges_is_told_unless_it_is_asked_for_all(web: Web) -> None:
    web.ranges = False
    web.files["/a"] = TEXT
    file = file_at(f"{web.url}/a")
    assert text_of(file) == TEXT
    with pytest.raises(
        UnreadableFileError, match=r"does not support requests of byte ranges(.|\n)*Copy the file"
    ):
        documents_of(file, range_bytes=1000)


# --- requests that fail


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_passes_changes_nothing(
    fault: str, s3: S3, web: Web, no_pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filesystems, "SILENT_SECONDS", 0.3)
    s3.put("a", TEXT)
    web.files["/a"] = TEXT
    for url, options, server in [
        (f"{s3.url}/a", s3.options, s3.server),
        (f"{web.url}/a", {}, web.server),
    ]:
        server.silence = 0.6
        times = 1 if fault == "silent" else 4
        server.fail(*[fault] * times)
        file = file_at(url, options)
        server.fail(*[fault] * times)
        assert text_of(file, options) == TEXT
    assert no_pauses


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_faults_at_random_change_nothing(seed: int, s3: S3, no_pauses: list[float]) -> None:
    data = np.random.default_rng(seed).integers(0, 4, 100_000).astype("S1").tobytes() + TEXT
    s3.put("a.txt", data)
    s3.put("b.txt.gz", gzip.compress(data))
    s3.server.fail_at_random(seed, 0.4)
    for name in ("a.txt", "b.txt.gz"):
        file = file_at(f"{s3.url}/{name}", s3.options)
        assert documents_of(file, s3.options, 5000) == data.splitlines()
    assert no_pauses


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS[:-1])
@pytest.mark.parametrize("where", ["s3", "web"])
def test_a_fault_that_stays_is_told_with_the_name_after_bounded_time(
    fault: str, where: str, s3: S3, web: Web, no_pauses: list[float]
) -> None:
    s3.put("a", TEXT)
    web.files["/a"] = TEXT
    url, options, server = {
        "s3": (f"{s3.url}/a", s3.options, s3.server),
        "web": (f"{web.url}/a", {}, web.server),
    }[where]
    file = file_at(url, options)
    server.forget()
    server.fail_always(fault)
    with pytest.raises(UnreadableFileError, match="An input file cannot be read") as error:
        text_of(file, options)
    assert f"where: {url}" in str(error.value)
    assert f"the same {retries.ATTEMPTS} times" in str(error.value)
    # aiohttp itself repeats a request on a connection that was in use before and broke.
    assert len(server.requests) <= retries.ATTEMPTS * (2 if fault == "reset" else 1)
    assert len(no_pauses) == retries.ATTEMPTS - 1
    assert sum(no_pauses) < 60
    if fault == "truncated":
        return
    with pytest.raises(InputError, match=rf"cannot be listed(.|\n)*{re.escape(url)}"):
        listed(url, options)


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (403, "AccessDenied", r"AccessDenied(.|\n)*Grant read permission"),
        (404, "NoSuchBucket", "no longer exists"),
    ],
)
def test_what_repeating_can_not_mend_is_not_repeated(
    s3: S3, status: int, code: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.put("a", TEXT)
    file = file_at(f"{s3.url}/a", s3.options)
    s3.server.forget()
    monkeypatch.setattr(s3.server, "_refuse", lambda seen, *_: refusal(status, code))
    s3.server.fail_always("slow_down")
    with pytest.raises(InputError, match=message):
        text_of(file, s3.options)
    assert len(s3.server.requests) == 1


def refusal(status: int, code: str) -> Response:
    return Response(f"<Error><Code>{code}</Code><Message>no</Message></Error>", status)


def test_a_server_that_is_not_there_is_told(no_pauses: list[float]) -> None:
    options = {"key": KEY, "secret": SECRET, "endpoint_url": "http://127.0.0.1:9"}
    with pytest.raises(InputError, match=r"cannot be listed(.|\n)*127.0.0.1:9") as error:
        listed("s3://bucket/a*", options)
    assert SECRET not in str(error.value)
    assert len(no_pauses) == retries.ATTEMPTS - 1


def test_a_missing_package_is_told_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*arguments: object, **options: object) -> object:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec.core, "url_to_fs", missing)
    for url, extra in [("s3://b/a", "s3"), ("gs://b/a", "gcs"), ("abfs://b/a", "azure")]:
        with pytest.raises(ConfigError, match=rf"pip install \w+ \(the extra `{extra}`"):
            listed(url)
