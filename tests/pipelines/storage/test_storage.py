"""Files that appear whole or not at all, on local disk and on other storage."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
import xxhash
from apache_beam.internal import pickler

from pipelines.errors import ConfigError, OutputError
from pipelines.storage.directory import Directory


@pytest.fixture(params=["local", "file", "memory"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Directory:
    """The same on a path, a file URL and a storage without directories."""
    urls = {
        "local": str(tmp_path / "a"),
        "file": f"file://{tmp_path}/a",
        "memory": f"memory://{uuid.uuid4()}/a",
    }
    return Directory(url=urls[request.param])


@pytest.fixture
def local(tmp_path: Path) -> Directory:
    return Directory(url=str(tmp_path / "a"))


def test_what_is_written_can_be_read(directory: Directory) -> None:
    directory.create()
    directory.write_bytes("x", b"0123456789")
    assert directory.read_bytes("x") == b"0123456789"
    assert directory.read_bytes("x", 3, 5) == b"34"
    assert directory.read_bytes("x", 8, 50) == b"89"
    assert directory.sizes() == {"x": 10}
    directory.write_json("j", {"b": [1, "é"], "a": None})
    assert directory.read_json("j") == {"b": [1, "é"], "a": None}
    assert directory.read_bytes("j") == '{\n  "a": null,\n  "b": [1, "é"]\n}\n'.encode()


def test_what_is_not_there_is_nothing(directory: Directory) -> None:
    assert directory.sizes() == {}
    assert directory.read_json("x") is None
    directory.remove("x")
    directory.remove_below(".*")
    directory.remove_if_empty()
    directory.remove_leftovers()
    with pytest.raises(OutputError, match="cannot be read"):
        directory.read_bytes("x")


def test_a_file_below_needs_no_directory_made_before(directory: Directory) -> None:
    below = directory / "b" / "c"
    below.write_bytes("x", b"1")
    assert below.sizes() == {"x": 1}
    assert directory.sizes() == {}
    assert below.path("x") == f"{directory.url}/b/c/x"


def test_a_file_shows_its_size_and_hash_while_it_is_written(directory: Directory) -> None:
    with directory.write("x") as file:
        assert file.write(b"abc") == 3
        assert file.write(memoryview(b"de")) == 2
        assert (file.size, file.tell()) == (5, 5)
    assert file.hexdigest == xxhash.xxh3_128_hexdigest(b"abcde")


def test_a_file_is_invisible_until_it_is_whole(local: Directory) -> None:
    local.create()
    with local.write("x") as file:
        file.write(b"abc")
        assert "x" not in local.sizes()
        assert all(name.startswith(".") for name in local.sizes())
    assert local.sizes() == {"x": 3}


def test_an_error_leaves_no_file_and_keeps_the_old_one(local: Directory) -> None:
    local.write_bytes("x", b"old")
    with pytest.raises(KeyError), local.write("x") as file:
        file.write(b"new and longer")
        raise KeyError
    assert local.read_bytes("x") == b"old"
    assert local.sizes() == {"x": 3}


def test_a_file_is_on_the_disk_before_it_has_its_name(
    local: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    forced: list[int] = []

    def fsync(number: int) -> None:
        assert local.sizes().keys().isdisjoint({"x"})
        forced.append(os.fstat(number).st_size)

    monkeypatch.setattr(os, "fsync", fsync)
    local.write_bytes("x", b"all of it")
    assert forced == [9]


def test_two_writers_of_a_file_do_not_disturb_each_other(local: Directory) -> None:
    with local.write("x") as first, local.write("x") as second:
        first.write(b"same")
        second.write(b"same")
    assert local.sizes() == {"x": 4}


def test_what_killed_writers_left_is_removed_and_nothing_else(local: Directory) -> None:
    local.write_bytes("x", b"1")
    root = Path(local.url)
    for name in (".x.0123456789abcdef.tmp", ".probe-0123456789abcdef"):
        (root / name).touch()
    for name in (".hidden", ".x.tmp", "x.0123456789abcdef.tmp"):
        (root / name).touch()
    local.remove_leftovers()
    assert set(local.sizes()) == {"x", ".hidden", ".x.tmp", "x.0123456789abcdef.tmp"}


def test_only_an_empty_directory_is_removed_as_empty(local: Directory) -> None:
    local.write_bytes("x", b"1")
    local.remove_if_empty()
    assert local.sizes() == {"x": 1}
    local.remove("x")
    local.remove_if_empty()
    assert not Path(local.url).exists()


@pytest.mark.parametrize(
    ("text", "found"), [("{", "Expecting"), ("[1]", "list"), ("", "Expecting")]
)
def test_damaged_json_is_an_error_that_names_the_file(
    text: str, found: str, directory: Directory
) -> None:
    directory.write_bytes("j", text.encode())
    with pytest.raises(OutputError) as error:
        directory.read_json("j")
    assert found in str(error.value)
    assert directory.path("j") in str(error.value)


def test_a_full_disk_is_told_with_what_to_do(
    local: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OutputError) as error, local.write("x"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert "No space left on device" in str(error.value)
    assert local.path("x") in str(error.value)
    assert "Free some space and run the same command again" in str(error.value)
    assert local.sizes() == {}


ACTIONS: dict[str, Callable[[Directory], object]] = {
    "create": Directory.create,
    "sizes": lambda directory: (directory / "a").sizes(),
    "read_json": lambda directory: directory.read_json("x"),
    "read_bytes": lambda directory: directory.read_bytes("x"),
    "write_bytes": lambda directory: directory.write_bytes("x", b""),
}


@pytest.mark.parametrize("below", ["", "/b"])
@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS)
def test_an_output_that_is_a_file_is_an_error(
    action: Callable[[Directory], object], below: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError) as error:
        action(Directory(url=f"{tmp_path}/file{below}"))
    assert str(tmp_path / "file") in str(error.value)


def test_storage_options_are_never_shown_and_travel_to_workers() -> None:
    directory = Directory(url="memory://x", storage_options={"secret": "s3cr3t"})
    assert "s3cr3t" not in repr(directory)
    assert pickler.loads(pickler.dumps(directory / "a")) == directory / "a"


def test_options_that_a_local_disk_does_not_have_are_refused(tmp_path: Path) -> None:
    Directory(url=str(tmp_path), storage_options={"auto_mkdir": True}).write_bytes("x", b"")
    options = {"auto_mkdir": True, "endpoint_url": "GEHEIM", "3": 1}
    for url in (str(tmp_path), f"file://{tmp_path}"):
        with pytest.raises(ConfigError) as error:
            Directory(url=url, storage_options=options).write_bytes("x", b"")
        text = str(error.value)
        assert "storage_options.3, storage_options.endpoint_url" in text
        assert str(tmp_path) in text
        assert "GEHEIM" not in text


def test_a_directory_in_use_travels_to_workers(directory: Directory) -> None:
    directory.write_bytes("x", b"1")
    copy = pickler.loads(pickler.dumps(directory))
    assert copy.sizes() == {"x": 1}
