"""Storage that fails at any operation: a clear error, no torn file, and the build goes on."""

from __future__ import annotations

import errno
import itertools
import os
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from build_support import checksums, config_for, some_text, write_corpus

from pipelines import build
from pipelines.config import BuildConfig
from pipelines.errors import OutputError
from pipelines.storage import directory as storage
from pipelines.storage import locks, retries, uploads
from pipelines.storage.directory import Directory
from pipelines.storage.locks import LOCK, OutputLock

CORPUS = {"a.txt": some_text(12), "b.txt": [*some_text(6, start=12), b"\xff"]}


class Faults:
    """Counts operations of a kind and fails at one of them, or at all from one on."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.fails_at: int | None = None
        self.error = errno.ENOSPC
        self.once = True

    def meet(self, operation: str) -> None:
        self.done.append(operation)
        if self.fails_at is None or len(self.done) < self.fails_at:
            return
        if len(self.done) == self.fails_at or not self.once:
            raise OSError(self.error, os.strerror(self.error), operation)


FAULTS = Faults()


class _File:
    """A file of which any write or the closing may fail, after half of the bytes are there."""

    def __init__(self, path: str, mode: str) -> None:
        self._file = Path(path).open(mode)  # noqa: SIM115

    def write(self, data: bytes) -> int:
        view = memoryview(data).cast("B")
        self._file.write(view[: len(view) // 2])
        self._file.flush()
        FAULTS.meet("write")
        self._file.write(view[len(view) // 2 :])
        return len(view)

    def close(self) -> None:
        if not self._file.closed:
            self._file.close()
            FAULTS.meet("close")

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class FailingFileSystem(fsspec.AbstractFileSystem):
    """Files of a local directory as those of a server: renamed there, listed, and failing."""

    protocol = "failing"
    cachable = False

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.removeprefix("failing://").rstrip("/")

    def ls(self, path: str, detail: bool = True, **_: Any) -> Any:
        place = Path(path)
        if not place.exists():
            raise FileNotFoundError(path)
        found = [self.info(str(p)) for p in sorted(place.iterdir())] if place.is_dir() else [
            self.info(path)
        ]  # fmt: skip
        return found if detail else [entry["name"] for entry in found]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        place = Path(self._strip_protocol(path))
        if not place.exists():
            raise FileNotFoundError(path)
        kind = "directory" if place.is_dir() else "file"
        return {"name": str(place), "size": place.stat().st_size, "type": kind}

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        return _File(path, mode) if "w" in mode else Path(path).open(mode)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        Path(path).mkdir(parents=True, exist_ok=exist_ok)

    def mv(self, path1: str, path2: str, **_: Any) -> None:
        FAULTS.meet("rename")
        Path(path1).replace(path2)

    def rm_file(self, path: str) -> None:
        Path(path).unlink()

    def rm(self, path: Any, recursive: bool = False, **_: Any) -> None:
        if not Path(path).exists():
            raise FileNotFoundError(path)
        shutil.rmtree(path)


fsspec.register_implementation("failing", FailingFileSystem, clobber=True)


@pytest.fixture(autouse=True)
def faults(monkeypatch: pytest.MonkeyPatch) -> Iterator[Faults]:
    FAULTS.__init__()  # type: ignore[misc]
    monkeypatch.setattr(retries, "_sleep", lambda seconds: None)
    monkeypatch.setattr(uploads, "AWAY_SECONDS", 0.0)
    monkeypatch.setattr(locks, "BEAT_SECONDS", 1000.0)  # or the number of operations would vary
    yield FAULTS
    FAULTS.__init__()  # type: ignore[misc]


def config_of(directory: Path, url: str = "") -> BuildConfig:
    return config_for(
        directory,
        output=f"{url}{directory}/out",
        input={"range_bytes": 1 << 14},
        counts={"shards": 1},
        tokenizer={"vocab_size": 262},
        encode={"validation_fraction": 0.3, "max_reject_fraction": 0.5},
        beam={"workers": 1},
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("undisturbed")
    write_corpus(directory / "data", CORPUS)
    build.build(config_of(directory))
    return directory


@pytest.fixture
def expected(undisturbed: Path) -> dict[str, str]:
    return checksums(undisturbed / "out")


def on_server(directory: Path, patch: pytest.MonkeyPatch) -> BuildConfig:
    return config_of(directory, "failing://")


def on_disk(directory: Path, patch: pytest.MonkeyPatch) -> BuildConfig:
    """The same on a local disk, whose operations fail too."""
    write, replace_, sync = storage.HashingFile.write, Path.replace, os.fsync

    def failing_write(self: storage.HashingFile, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._file.write(view[: len(view) // 2])
        FAULTS.meet("write")
        self._file.seek(-(len(view) // 2), os.SEEK_CUR)
        return write(self, data)

    def failing_replace(self: Path, target: Path) -> Path:
        FAULTS.meet("rename")
        return replace_(self, target)

    def failing_sync(number: int) -> None:
        FAULTS.meet("sync")
        sync(number)

    patch.setattr(storage.HashingFile, "write", failing_write)
    patch.setattr(Path, "replace", failing_replace)
    patch.setattr(os, "fsync", failing_sync)
    return config_of(directory)


Place = Callable[[Path, pytest.MonkeyPatch], BuildConfig]
PLACES: dict[str, Place] = {"server": on_server, "disk": on_disk}


def check_nothing_is_torn(out: Path, expected: dict[str, str]) -> None:
    for name, checksum in checksums(out).items():
        if any(part.startswith(("_", ".")) for part in name.split("/")) or "count-" in name:
            continue
        assert checksum == expected[name], name


def fail_and_go_on(config: BuildConfig, directory: Path, at: int, expected: dict[str, str]) -> str:
    """A build that fails at an operation, then again without; the operation."""
    FAULTS.__init__()  # type: ignore[misc]
    FAULTS.fails_at = at
    failed = ""
    try:
        build.build(config)
    except OutputError as error:
        failed = FAULTS.done[at - 1]
        assert "No space left on device" in str(error)
        assert "Free some space" in str(error)
        assert str(directory / "out") in str(error)
    FAULTS.fails_at = None
    check_nothing_is_torn(directory / "out", expected)
    build.build(config)
    assert checksums(directory / "out") == expected
    return failed


def operations(place: Place, undisturbed: Path, directory: Path) -> int:
    """How many there are in a build."""
    with pytest.MonkeyPatch.context() as patch:
        directory.mkdir()
        shutil.copytree(undisturbed / "data", directory / "data")
        build.build(place(directory, patch))
    return len(FAULTS.done)


def fail_at(
    share: Callable[[int], Iterator[int]],
    place: Place,
    undisturbed: Path,
    tmp_path: Path,
    expected: dict[str, str],
) -> None:
    number = operations(place, undisturbed, tmp_path / "dry")
    assert checksums(tmp_path / "dry" / "out") == expected
    kinds = set(FAULTS.done)
    assert {"write", "rename"} < kinds
    failed = []
    for at in share(number):
        directory = tmp_path / f"at-{at}"
        directory.mkdir()
        shutil.copytree(undisturbed / "data", directory / "data")
        with pytest.MonkeyPatch.context() as patch:
            failed.append(fail_and_go_on(place(directory, patch), directory, at, expected))
    print(f"\n{number} operations ({', '.join(sorted(kinds))}), {len(failed)} of them failed")
    assert all(failed)


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_a_failing_operation_is_told_and_the_build_goes_on_to_the_same_bytes(
    place: Place, undisturbed: Path, tmp_path: Path, expected: dict[str, str]
) -> None:
    def some(number: int) -> Iterator[int]:
        step = number / 4
        numbers = random.Random(5)
        return iter([1, *(int(step * i + numbers.uniform(1, step)) for i in range(4))])

    fail_at(some, place, undisturbed, tmp_path, expected)


@pytest.mark.soak
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_every_operation_may_fail(
    place: Place, undisturbed: Path, tmp_path: Path, expected: dict[str, str]
) -> None:
    def every(number: int) -> Iterator[int]:
        return iter(range(1, number + 1))

    fail_at(every, place, undisturbed, tmp_path, expected)


@pytest.mark.slow
def test_a_server_that_fails_now_and_then_is_asked_again(
    undisturbed: Path, tmp_path: Path, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(undisturbed / "data", tmp_path / "data")
    meet = FAULTS.meet
    numbers = itertools.count()

    def seldom(operation: str) -> None:
        meet(operation)
        if operation != "rename" and next(numbers) % 7 == 3:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(FAULTS, "meet", seldom)
    build.build(on_server(tmp_path, monkeypatch))
    assert checksums(tmp_path / "out") == expected


@pytest.mark.slow
def test_a_server_that_does_not_rename_over_files_will_do(
    undisturbed: Path, tmp_path: Path, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(undisturbed / "data", tmp_path / "data")
    move = FailingFileSystem.mv

    def careful(self: FailingFileSystem, path1: str, path2: str, **_: Any) -> None:
        if Path(path2).exists():
            raise FileExistsError(path2)
        move(self, path1, path2)

    monkeypatch.setattr(FailingFileSystem, "mv", careful)
    config = on_server(tmp_path, monkeypatch)
    build.build(config)
    build.encode(config, restart=True)
    assert checksums(tmp_path / "out") == expected


def test_a_lock_that_is_away_while_it_is_renewed_still_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where files are not renamed over others, renewing it removes it for a moment."""
    move = FailingFileSystem.mv
    away, looked_again, back = threading.Event(), threading.Event(), threading.Event()
    looked_again.set()

    def careful(self: FailingFileSystem, path1: str, path2: str, **_: Any) -> None:
        if Path(path2).exists():
            raise FileExistsError(path2)
        if not looked_again.is_set():
            away.set()
            looked_again.wait(30)
        move(self, path1, path2)
        back.set()

    def wait_until_back(seconds: float) -> None:
        looked_again.set()
        assert back.wait(30)

    monkeypatch.setattr(FailingFileSystem, "mv", careful)
    monkeypatch.setattr(locks, "BEAT_SECONDS", 0.05)
    output = Directory(url=f"failing://{tmp_path}/out")
    with OutputLock(output) as lock:
        lock.acquire()
        monkeypatch.setattr(uploads, "AWAY_SECONDS", 30.0)
        monkeypatch.setattr(time, "sleep", wait_until_back)
        for check in (lock.guard.check, lambda: OutputLock(output).try_acquire()):
            back.clear()
            away.clear()
            looked_again.clear()
            assert away.wait(30)
            assert not output.sizes().keys() & {LOCK}
            assert not check()
        lock.guard.check()


# --- a disk that fills up


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 20 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        pytest.skip("only root can mount")
    arguments = [mount, "-t", "tmpfs", "-o", "size=20m", "tmpfs", str(place)]
    if subprocess.run(arguments, capture_output=True).returncode:
        pytest.skip("no mounts here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("room", [0, 12 << 10, 28 << 10, 44 << 10])
@pytest.mark.process
def test_a_disk_of_20_mb_that_fills_up_is_told_and_the_build_goes_on_with_room(
    room: int, small_disk: Path, undisturbed: Path, expected: dict[str, str]
) -> None:
    shutil.copytree(undisturbed / "data", small_disk / "data")
    config = config_of(small_disk)
    other = small_disk / "somebody's"
    free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
    other.write_bytes(bytes(free - room))
    with pytest.raises(
        OutputError, match=r"No space left on device(.|\n)*Free some space"
    ) as error:
        build.build(config)
    assert str(small_disk / "out") in str(error.value)
    check_nothing_is_torn(small_disk / "out", expected)
    other.unlink()
    build.build(config)
    assert checksums(small_disk / "out") == expected
    assert not (small_disk / "out" / LOCK).exists()
