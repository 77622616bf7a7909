"""The output directory on S3: whole files or none, few requests, faults survived or told."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import xxhash
from apache_beam.internal import pickler
from storage_support import FAULTS, S3, SECRET
from werkzeug.wrappers import Request

from bpe_core import BPETokenizer, CharBPETokenizer, train_bpe
from pipelines.errors import OutputError
from pipelines.storage import filesystems, locks, retries, uploads
from pipelines.storage.directory import Directory
from pipelines.storage.locks import OutputLock
from pipelines.tokenizers.files import load_model, save_tokenizer


@pytest.fixture
def directory(s3: S3) -> Directory:
    return Directory(url=f"{s3.url}/out", storage_options=s3.options)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> int:
    """Uploads go in parts, as small as S3 allows: 5 MiB."""
    monkeypatch.setattr(uploads, "REQUEST_SECONDS", 5.0)
    monkeypatch.setattr(uploads, "PART_BYTES", 5 << 20)
    return uploads.PART_BYTES


BIG = bytes(range(256)) * (12 << 12)  # 12 MiB


def writes(request: Request) -> bool:
    return request.method in ("PUT", "POST")


@pytest.mark.slow
def test_what_is_written_can_be_read(directory: Directory, s3: S3) -> None:
    directory.create()
    assert directory.sizes() == {}
    directory.write_bytes("x", b"0123456789")
    directory.write_bytes("empty", b"")
    directory.write_json("j", {"a": [1]})
    assert directory.read_bytes("x") == b"0123456789"
    assert directory.read_bytes("x", 3, 5) == b"34"
    assert directory.read_bytes("x", 8, 50) == b"89"
    assert directory.read_bytes("x", 50, 60) == b""
    assert directory.read_bytes("empty") == b""
    assert directory.read_json("j") == {"a": [1]}
    assert directory.read_json("none") is None
    assert directory.sizes() == {"x": 10, "empty": 0, "j": len(s3.get("out/j"))}
    (directory / "below").write_bytes("y", b"1")
    assert "y" not in directory.sizes()
    with pytest.raises(OutputError, match=rf"cannot be read(.|\n)*{s3.url}/out/none"):
        directory.read_bytes("none")


@pytest.mark.slow
def test_each_thing_takes_few_requests(directory: Directory, s3: S3) -> None:
    def requests_of(action: Callable[[], object]) -> dict[str, int]:
        s3.server.forget()
        action()
        return s3.server.numbers()

    for number in range(1200):
        s3.put(f"out/x-{number}", b"{}")
    assert requests_of(directory.create) == {}
    assert requests_of(lambda: directory.write_bytes("w", b"1")) == {"PUT": 1}
    assert requests_of(lambda: directory.read_json("x-1")) == {"GET": 1}
    assert requests_of(lambda: directory.read_json("none")) == {"GET": 1}
    assert requests_of(lambda: directory.read_bytes("x-1", 0, 1)) == {"GET": 1}
    assert requests_of(directory.sizes) == {"GET": 2}
    assert requests_of(directory.remove_leftovers) == {}
    names = [f"x-{number}" for number in range(1100)]
    assert requests_of(lambda: list(directory.read_json_files(names[:50]))) == {"GET": 50}
    assert requests_of(lambda: directory.remove("w")) == {"POST": 1}
    assert requests_of(lambda: directory.remove_files(names)) == {"POST": 2}
    assert len(directory.sizes()) == 100
    assert sum(requests_of(lambda: directory.remove_below(".*")).values()) <= 5
    assert directory.sizes() == {}
    directory.remove_below(".*")


@pytest.mark.slow
def test_files_that_another_process_wrote_are_seen(directory: Directory, s3: S3) -> None:
    directory.write_bytes("a", b"1")
    assert directory.sizes() == {"a": 1}
    s3.put("out/b", b"12")
    assert directory.sizes() == {"a": 1, "b": 2}
    s3.put("out/below/c", b"123")
    directory.remove_below(".*")
    assert s3.names == set()


@pytest.mark.slow
def test_a_file_is_invisible_until_it_is_whole(
    directory: Directory, s3: S3, small_parts: int
) -> None:
    with directory.write("x") as file:
        file.write(BIG)
        assert s3.names == set()
    assert s3.get("out/x") == BIG
    assert file.hexdigest == xxhash.xxh3_128_hexdigest(BIG)
    assert s3.unfinished_uploads == 0


def test_an_error_leaves_no_file_and_keeps_the_old_one(directory: Directory, s3: S3) -> None:
    directory.write_bytes("x", b"old")
    s3.server.forget()
    with pytest.raises(KeyError), directory.write("x") as file:
        file.write(b"new and longer")
        raise KeyError
    assert s3.server.requests == []
    assert s3.get("out/x") == b"old"


@pytest.mark.slow
def test_a_large_file_is_never_in_memory_as_a_whole(
    directory: Directory, s3: S3, small_parts: int
) -> None:
    with directory.write("x") as file:
        file.write(BIG)
    sizes = [seen.query for seen in s3.server.requests if seen.method == "PUT"]
    assert len(sizes) == 3
    assert s3.server.numbers() == {"POST": 2, "PUT": 3}


def test_an_interrupted_upload_leaves_nothing(
    directory: Directory, s3: S3, small_parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(uploads, "_complete", interrupted)
    with pytest.raises(KeyboardInterrupt), directory.write("x") as file:
        file.write(BIG)
    assert s3.names == set()
    assert s3.unfinished_uploads == 0


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_that_pass_change_nothing(
    fault: str,
    directory: Directory,
    s3: S3,
    small_parts: int,
    no_pauses: list[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(filesystems, "SILENT_SECONDS", 0.3)
    s3.server.silence = 0.6
    times = 1 if fault == "silent" else 3
    for name, data in (("small", b"0123456789"), ("big", BIG)):
        s3.server.fail(*[fault] * times, None, *[fault] * times, None, fault, when=writes)
        with directory.write(name) as file:
            file.write(data)
        assert s3.get(f"out/{name}") == data
        assert file.hexdigest == xxhash.xxh3_128_hexdigest(data)
    assert no_pauses


@pytest.mark.slow
def test_an_upload_whose_last_answer_is_lost_is_there(
    directory: Directory, s3: S3, small_parts: int, no_pauses: list[float]
) -> None:
    s3.server.fail("truncated", when=lambda request: "uploadId" in request.args and writes(request)
                   and request.method == "POST")  # fmt: skip
    with directory.write("x") as file:
        file.write(BIG)
    assert s3.get("out/x") == BIG
    assert no_pauses


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_faults_at_random_change_nothing(
    seed: int, directory: Directory, s3: S3, small_parts: int, no_pauses: list[float]
) -> None:
    s3.server.fail_at_random(seed, 0.4)
    directory.write_bytes("big", BIG)
    for number in range(10):
        directory.write_json(f"j-{number}", {"number": number})
    names = [f"j-{number}" for number in range(10)]
    assert list(directory.read_json_files(names)) == [{"number": number} for number in range(10)]
    assert directory.sizes()["big"] == len(BIG)
    assert directory.read_bytes("big") == BIG
    directory.remove_below(".*")
    assert s3.names == set()


ACTIONS: dict[str, Callable[[Directory], object]] = {
    "sizes": Directory.sizes,
    "read_json": lambda directory: directory.read_json("x"),
    "read_bytes": lambda directory: directory.read_bytes("x", 0, 10),
    "write_bytes": lambda directory: directory.write_bytes("x", b"1"),
    "write_big": lambda directory: directory.write_bytes("x", BIG),
    "remove": lambda directory: directory.remove("x"),
    "remove_below": lambda directory: directory.remove_below(".*"),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["slow_down", "internal_error", "reset"])
@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS)
def test_faults_that_stay_are_told_with_the_name_after_bounded_time(
    fault: str,
    action: Callable[[Directory], object],
    directory: Directory,
    s3: S3,
    small_parts: int,
    no_pauses: list[float],
) -> None:
    directory.write_bytes("x", b"old")
    s3.server.forget()
    s3.server.fail_always(fault)
    with pytest.raises(OutputError, match=r"The output cannot be (read|written)") as error:
        action(directory)
    assert directory.url in str(error.value)
    assert f"the same {retries.ATTEMPTS} times" in str(error.value)
    assert SECRET not in str(error.value)
    assert sum(no_pauses) < 60
    s3.server.fail()
    assert s3.get("out/x") == b"old"
    assert s3.unfinished_uploads == 0


# --- locks


def test_of_many_that_create_a_file_at_once_one_succeeds(directory: Directory, s3: S3) -> None:
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda i: directory.create_file("x", b"%d" % i), range(8)))
    assert made.count(True) == 1
    assert s3.get("out/x") == b"%d" % made.index(True)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["slow_down", "internal_error", "reset", "truncated"])
def test_a_lock_is_taken_though_the_answer_is_lost(
    fault: str, directory: Directory, s3: S3, no_pauses: list[float]
) -> None:
    s3.server.fail(fault, when=writes)
    with OutputLock(directory) as lock:
        lock.acquire()
        with pytest.raises(OutputError, match="Another build is writing"):
            OutputLock(directory).acquire()
        replace(directory, guard=lock.guard).write_bytes("x", b"1")
    assert s3.names == {"out/x"}


@pytest.mark.slow
def test_a_lock_that_a_store_can_not_create_on_a_condition_is_still_one(
    directory: Directory, s3: S3
) -> None:
    s3.server.fail("not_implemented", when=lambda request: "If-None-Match" in request.headers)
    with OutputLock(directory) as lock:
        lock.acquire()
        assert not OutputLock(directory).try_acquire()
    assert s3.names == set()


@pytest.mark.slow
def test_a_lock_left_by_another_machine_is_taken_over_when_its_time_is_over(
    directory: Directory, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "LEASE_SECONDS", 0.3)
    monkeypatch.setattr(locks, "_POLL_SECONDS", 0.05)
    holder = {"owner": "0", "host": "elsewhere", "pid": 1, "process": None, "since": "then"}
    directory.write_json(locks.LOCK, holder)
    with OutputLock(directory) as lock:
        lock.acquire()
    assert s3.names == set()


def test_a_bucket_that_is_not_there_is_told_and_not_made(s3: S3) -> None:
    directory = Directory(url="s3://no-such-bucket/out", storage_options=s3.options)
    directory.create()
    with pytest.raises(OutputError, match=r"cannot be written(.|\n)*s3://no-such-bucket/out/x"):
        directory.write_bytes("x", b"1")
    assert "no-such-bucket" not in s3.backend.buckets


def test_an_unknown_protocol_is_told() -> None:
    with pytest.raises(OutputError, match=r"cannot be reached(.|\n)*nosuch"):
        Directory(url="nosuch://a").sizes()


def test_a_full_temporary_folder_is_told(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object, **options: object) -> object:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", full)
    with pytest.raises(OutputError, match=r"No space left(.|\n)*TMPDIR"):
        directory.write_bytes("x", b"1")


def test_a_directory_that_travels_has_no_value_of_the_environment(
    s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_S3_SECRET", SECRET)
    options = {**s3.options, "secret": "${TEST_S3_SECRET}"}
    directory = Directory(url=f"{s3.url}/out", storage_options=options)
    directory.write_bytes("x", b"1")
    assert directory.sizes() == {"x": 1}
    pickled = pickler.dumps(directory, enable_trace=False)
    assert pickler.loads(pickled).sizes() == {"x": 1}
    for codec in (bytes, __import__("bz2").decompress):
        try:
            text = codec(__import__("base64").b64decode(pickled))
        except (OSError, ValueError):
            continue
        assert SECRET.encode() not in text


@pytest.mark.slow
def test_a_tokenizer_is_saved_and_loaded(
    directory: Directory, s3: S3, tmp_path: Path, kjv_path: Path
) -> None:
    text = kjv_path.read_bytes()[:20000]
    (tmp_path / "t").write_bytes(text)
    vocab, merges = train_bpe(tmp_path / "t", 300, [])
    model = BPETokenizer(vocab, merges).model
    s3.put("out/vocab.json", b"of an earlier one")
    _, not_written = save_tokenizer(model, directory, {"training": 1})
    assert load_model(directory).fingerprint == model.fingerprint
    puts = [seen.path.rpartition("/")[2] for seen in s3.server.requests if seen.method == "PUT"]
    assert puts[-1] == "tokenizer.arrow"
    assert not {name for names in not_written for name in names.split(" + ")} & set(
        directory.sizes()
    )
    with pytest.raises(FileNotFoundError):
        load_model(directory / "absent")


def test_a_tokenizer_of_characters_is_saved_and_loaded(directory: Directory) -> None:
    tokenizer = CharBPETokenizer()
    tokenizer.train(["the cat sat on the mat"], 30)
    save_tokenizer(tokenizer, directory, {"training": 1})
    loaded = load_model(directory)
    assert isinstance(loaded, CharBPETokenizer)
    assert loaded.fingerprint == tokenizer.fingerprint


@pytest.mark.slow
def test_a_tokenizer_takes_the_place_of_one_of_the_other_unit(directory: Directory) -> None:
    of_characters = CharBPETokenizer()
    of_characters.train(["the cat sat on the mat"], 30)
    of_bytes = BPETokenizer({i: bytes([i]) for i in range(256)}, []).model
    for model in (of_bytes, of_characters, of_bytes):
        save_tokenizer(model, directory, {"training": 1})
        assert load_model(directory).fingerprint == model.fingerprint
    assert "char_bpe.json" not in directory.sizes()
