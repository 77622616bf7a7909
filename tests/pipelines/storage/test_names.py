"""Names are opaque: no character of a local path means anything but itself."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from storage_support import S3

from pipelines.config.values import unescape
from pipelines.storage.archives import member_url, split_url
from pipelines.storage.directory import Directory
from pipelines.storage.filesystems import locate, split_chain
from pipelines.storage.remote_files import current_version, open_stored

NAMES = [
    "a::b.txt", "zip::c", "zip://a::b", "simplecache::a", "s3://a", "file:a", "file::a", "memory:a",
    "*", "?", "[a]", "[*]", "a[:]b", "#", "a#b", "%", "%41", "a\nb", "a\\b", "~", "~root", "a b",
    " ", "${HOME}", "a?versionId=b", "é", "\u2028", "-", "--set", "a=b", "a:", ":", "\x1b[31m",
]  # fmt: skip


@pytest.mark.parametrize("name", [*NAMES, os.fsdecode(b"a\xff")])
def test_local_name_is_opaque(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "in" / "x::y[1]"
    folder.mkdir(parents=True)
    (folder / "a").write_bytes(b"another")
    path = f"{folder}/{name.replace('/', '|')}"
    Path(path).write_bytes(b"text of it")
    for url in (path, f"file://{path}"):
        assert locate(url, {})[1] == path
        assert current_version(url, {})[0] == 10
        stored = open_stored(url, {})
        text = bytearray(stored.size)
        stored.read_into(memoryview(text), 0)
        stored.close()
        assert text == b"text of it"


@pytest.mark.parametrize("name", [*NAMES, os.fsdecode(b"a\xff")])
def test_local_directory_may_have_any_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = name.replace("/", "|")
    for url in (f"{tmp_path}/{name}", f"./{name}"):
        directory = Directory(url=url) / name
        assert directory.is_local
        directory.create()
        directory.write_json("a.json", {"a": 1})
        assert directory.create_file("b", b"b")
        assert directory.read_json("a.json") == {"a": 1}
        assert directory.sizes().keys() == {"a.json", "b"}
        assert (directory / "..").other_names() == [name]
        assert list((tmp_path / name).iterdir()) == [tmp_path / name / name]
        assert directory.remove_below(r"a\.json|b") == []
        assert not (tmp_path / name / name).exists()


@pytest.mark.parametrize("name", [*NAMES, "a::", "[[]", "x[*]::"])
def test_member_of_an_archive_may_have_any_name(name: str) -> None:
    for archive in ("/data/a::b.zip", "s3://bucket/a::b.zip", "simplecache::memory://a.zip"):
        parts = split_url(member_url("zip", name, archive))
        assert parts is not None
        assert (parts[0], unescape(parts[1]), parts[2]) == ("zip", name, archive)


@pytest.mark.slow
def test_only_protocols_that_wrap_others_begin_a_chain() -> None:
    assert split_chain("simplecache::zip://a::s3://b/c::d") == [
        "simplecache",
        "zip://a",
        "s3://b/c::d",
    ]
    assert split_chain("/data/zip://a::b") == ["/data/zip://a::b"]
    assert split_chain("nope::s3://b") == ["nope::s3://b"]


@pytest.mark.slow
def test_name_in_a_bucket_may_hold_two_colons(s3: S3) -> None:
    bucket = Directory(url=f"s3://{s3.bucket}/in", storage_options=s3.options)
    for name in ("a", "a::b.txt"):
        bucket.write_bytes(name, name.encode())
    for url in (bucket.path("a::b.txt"), f"simplecache::{bucket.path('a::b.txt')}"):
        options = s3.options if url.startswith("s3") else {"s3": s3.options}
        stored = open_stored(url, options)
        text = bytearray(stored.size)
        stored.read_into(memoryview(text), 0)
        assert text == b"a::b.txt"


@pytest.mark.slow
def test_files_are_removed_by_name_and_not_by_pattern(s3: S3) -> None:
    output = Directory(url=f"s3://{s3.bucket}/o[u]t", storage_options=s3.options)
    other = replace(output, url=f"s3://{s3.bucket}/out")
    for directory in (output, other):
        directory.write_bytes("a", b"")
        directory.write_bytes("b", b"")
    output.remove_files(["a", "b"])
    assert not output.sizes()
    assert other.sizes().keys() == {"a", "b"}
