"""One build at a time: locks of the system, leases, and what is written without one."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import FileIO
from pathlib import Path
from typing import Any

import pytest
from apache_beam.internal import pickler
from build_support import ROOT

from pipelines.errors import OutputError
from pipelines.storage import locks, uploads
from pipelines.storage.directory import Directory
from pipelines.storage.locks import FINISHED, LOCK, DetachedJob, Guard, OutputLock

HELD = "Another build is writing to this output"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(locks, "LEASE_SECONDS", 0.6)
    monkeypatch.setattr(locks, "_POLL_SECONDS", 0.02)
    monkeypatch.setattr(locks, "_DYING_SECONDS", 0.1)
    monkeypatch.setattr(uploads, "AWAY_SECONDS", 0.1)


def no_flock(*arguments: object) -> None:
    raise OSError(errno.ENOLCK, "No locks available")


@pytest.fixture(params=["local", "local without flock", "memory"])
def output(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Directory:
    """The same on a local disk, on one that knows no locks, and on a storage far away."""
    if request.param == "local without flock":
        monkeypatch.setattr(fcntl, "flock", no_flock)
    url = f"memory://{uuid.uuid4()}" if request.param == "memory" else str(tmp_path / "out")
    return Directory(url=url)


@pytest.fixture
def far(tmp_path: Path) -> Directory:
    return Directory(url=f"memory://{uuid.uuid4()}")


def of_another_build(output: Directory, **state: Any) -> None:
    """A lock that a build elsewhere left."""
    holder = {"owner": "0" * 32, "host": "elsewhere", "pid": 1, "process": None, "since": "then"}
    output.create()
    output.write_json(LOCK, {**holder, **state})


def test_a_held_output_is_refused_with_who_holds_it_and_given_back_at_the_end(
    output: Directory,
) -> None:
    with OutputLock(output) as lock:
        lock.acquire()
        lock.acquire()
        assert LOCK in output.sizes()
        with OutputLock(output) as other:
            with pytest.raises(OutputError, match=HELD) as error:
                other.acquire()
            assert not other.try_acquire()
        assert f"process {os.getpid()} on " in str(error.value)
        assert "since 20" in str(error.value)
        assert output.path(LOCK) in str(error.value)
        assert "Wait until it has finished" in str(error.value)
    assert output.sizes() == {}
    with OutputLock(output) as lock:
        assert lock.try_acquire()
    assert output.sizes() == {}


@pytest.mark.parametrize("interrupted", ["taken", "given back"])
def test_a_process_that_goes_on_after_an_interruption_does_not_hold_the_lock(
    interrupted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = Directory(url=str(tmp_path / "out"))
    flock = fcntl.flock

    def interrupt_when_locked(file: FileIO | int, operation: int) -> None:
        flock(file, operation)
        if not isinstance(file, int):  # a trial
            raise KeyboardInterrupt

    def interrupt(_: Directory) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if interrupted == "taken":
            patch.setattr(fcntl, "flock", interrupt_when_locked)
        else:
            patch.setattr(Directory, "remove_leftovers", interrupt)
        # The error, which a notebook keeps, keeps the frames that had the file.
        with pytest.raises(KeyboardInterrupt) as kept, OutputLock(output) as lock:
            lock.acquire()
    with OutputLock(output) as lock:
        assert lock.try_acquire(), kept
    assert output.sizes() == {}


def test_a_lock_that_is_not_taken_touches_nothing(output: Directory) -> None:
    with OutputLock(output):
        pass
    assert not output.exists()


JOB = DetachedJob(name="job-7", runner="Flink", url="http://flink/7", stages=("count", "train"))
LEFT = "A job that was submitted with --no-wait is still writing"


def left_to_a_job(output: Directory, *, finished_first: bool = False) -> Guard:
    """What a command leaves that has submitted a job; the guard of the job's workers."""
    with OutputLock(output) as lock:
        lock.acquire()
        if finished_first:
            lock.guard.note_finished()
        lock.transfer_to_job(JOB)
    return lock.guard


def test_a_lock_that_was_left_to_a_job_holds_and_names_it(output: Directory) -> None:
    workers = replace(output, guard=left_to_a_job(output))
    workers.write_bytes("made", b"")
    with OutputLock(output) as other:
        assert not other.try_acquire()
        with pytest.raises(OutputError, match=LEFT) as error:
            other.acquire()
    for part in ("Flink job job-7", "count, train", "http://flink/7", "since 20", "--take-over"):
        assert part in str(error.value)
    workers.write_bytes("made too", b"")
    assert {LOCK, "made", "made too"} == set(output.sizes())


@pytest.mark.parametrize("finished_first", [False, True])
def test_when_the_job_has_noted_its_end_the_next_build_takes_the_lock(
    output: Directory, finished_first: bool
) -> None:
    guard = left_to_a_job(output, finished_first=finished_first)
    if not finished_first:
        guard.note_finished()
    with OutputLock(output) as lock:
        lock.acquire()
        assert FINISHED not in output.sizes()
        with pytest.raises(OutputError, match="no longer holds the lock of the output"):
            guard.check()
    assert output.sizes() == {}


def test_a_job_can_be_taken_over_and_then_neither_writes_nor_finishes(output: Directory) -> None:
    guard = left_to_a_job(output)
    with OutputLock(output, take_over=True) as lock:
        lock.acquire()
        for write in (
            guard.note_finished,
            lambda: replace(output, guard=guard).write_bytes("late", b""),
        ):
            with pytest.raises(OutputError, match="no longer holds the lock of the output"):
                write()
        replace(output, guard=lock.guard).write_bytes("made", b"")
    assert set(output.sizes()) == {"made"}


def test_the_note_of_another_job_finishes_none(output: Directory) -> None:
    left_to_a_job(output)
    output.write_json(FINISHED, {"owner": "0" * 32})
    with OutputLock(output) as lock, pytest.raises(OutputError, match=LEFT):
        lock.acquire()


def test_a_lock_that_was_lost_is_left_to_nobody(output: Directory) -> None:
    with pytest.raises(OutputError, match="no longer holds"), OutputLock(output) as lock:
        lock.acquire()
        of_another_build(output)
        lock.transfer_to_job(JOB)
    assert json.loads(output.read_bytes(LOCK))["host"] == "elsewhere"


@pytest.mark.parametrize("job", ["x", {}, {"stages": 7}, {"name": ["\x1b"], "stages": [{}]}])
def test_a_lock_with_a_job_that_makes_no_sense_is_refused_all_the_same(
    output: Directory, job: object
) -> None:
    of_another_build(output, job=job)
    with OutputLock(output) as lock, pytest.raises(OutputError, match=LEFT):
        lock.acquire()


def test_of_many_at_once_one_gets_the_lock(output: Directory) -> None:
    got: list[OutputLock] = []
    together = threading.Barrier(8)

    def contend() -> None:
        lock = OutputLock(output)
        together.wait()
        if lock.try_acquire():
            got.append(lock)

    threads = [threading.Thread(target=contend) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if output.is_local:
        assert len(got) == 1
    # Where creating is no condition, the lock names one of them, and only that may write.
    able = []
    for lock in got:
        try:
            replace(output, guard=lock.guard).write_bytes("x", b"")
            able.append(lock)
        except OutputError:
            continue
    assert len(able) == 1
    with able[0]:
        pass
    assert LOCK not in output.sizes()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [KeyError, KeyboardInterrupt, OutputError])
def test_after_an_error_the_lock_is_gone_and_the_old_build_writes_no_more(
    kind: type[BaseException], output: Directory
) -> None:
    with pytest.raises(kind), OutputLock(output) as lock:
        lock.acquire()
        guarded = replace(output, guard=lock.guard)
        guarded.write_bytes("x", b"what was finished")
        raise kind("x")
    assert set(output.sizes()) == {"x"}
    with pytest.raises(OutputError, match="no longer holds the lock of the output"):
        guarded.write_bytes("x", b"what a thread was at")
    with OutputLock(output) as following:
        following.acquire()
        for write in (
            lambda: guarded.write_bytes("x", b"late"),
            lambda: (guarded / "below").write_json("manifest.json", {}),
            lambda: guarded.remove("x"),
            lambda: guarded.remove_below(".*"),
        ):
            with pytest.raises(
                OutputError, match="no longer holds the lock of the output"
            ) as error:
                write()
            assert output.path(LOCK) in str(error.value)
        assert output.read_bytes("x") == b"what was finished"
    with pytest.raises(OutputError, match="no longer holds the lock"):
        guarded.write_bytes("x", b"later")
    assert set(output.sizes()) == {"x"}


def test_a_build_that_failed_because_it_lost_the_lock_leaves_that_of_the_other(
    output: Directory,
) -> None:
    with pytest.raises(OutputError), OutputLock(output) as lock:
        lock.acquire()
        of_another_build(output)
        replace(output, guard=lock.guard).write_bytes("x", b"")
    assert set(output.sizes()) == {LOCK}


def test_the_condition_travels_to_workers(output: Directory) -> None:
    with OutputLock(output) as lock:
        lock.acquire()
        travelled = pickler.loads(pickler.dumps(replace(output, guard=lock.guard)))
        (travelled / "tokens").write_bytes("x", b"1")


HOLD = """
import sys, time
from pipelines.storage.locks import OutputLock
from pipelines.storage.directory import Directory
with OutputLock(Directory(url=sys.argv[1])) as lock:
    lock.acquire()
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a process that holds the lock of an output."""
    started: list[subprocess.Popen[str]] = []

    def start(output: Directory, hook: str = "") -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", hook + HOLD, output.url],
            cwd=ROOT, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


NO_FLOCK = """
import errno, fcntl
def flock(*arguments): raise OSError(errno.ENOLCK, "none")
fcntl.flock = flock
"""


@pytest.mark.parametrize("hook", ["", NO_FLOCK], ids=["flock", "lease"])
@pytest.mark.process
def test_a_killed_holder_blocks_nobody(
    hook: str,
    tmp_path: Path,
    holder: Callable[..., subprocess.Popen[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if hook:
        monkeypatch.setattr(fcntl, "flock", no_flock)
    monkeypatch.setattr(locks, "LEASE_SECONDS", 30.0)
    monkeypatch.setattr(locks, "_DYING_SECONDS", 1.0)
    output = Directory(url=str(tmp_path))
    process = holder(output, hook)
    with pytest.raises(OutputError, match=f"process {process.pid} on"):
        OutputLock(output).acquire()
    process.send_signal(signal.SIGKILL)  # and nobody waits for it
    assert LOCK in output.sizes()
    with OutputLock(output) as lock:  # a process of this machine that is gone is waited for by none
        begun = time.monotonic()
        lock.acquire()
        assert time.monotonic() - begun < 5
    assert output.sizes() == {}


@pytest.mark.process
def test_a_lock_left_beside_a_finished_output_is_removed(
    tmp_path: Path, holder: Callable[..., subprocess.Popen[str]]
) -> None:
    output = Directory(url=str(tmp_path))
    process = holder(output)
    leftover = f".{LOCK}.0123456789abcdef.tmp"
    (tmp_path / leftover).touch()
    with OutputLock(output):
        pass
    assert set(output.sizes()) == {LOCK, leftover}
    process.kill()
    process.wait()
    with OutputLock(output):
        pass
    assert output.sizes() == {}


# --- leases


@pytest.mark.slow
def test_a_lease_of_a_machine_that_is_gone_is_taken_over_when_it_has_run_out(
    far: Directory, capfd: pytest.CaptureFixture[str]
) -> None:
    of_another_build(far)
    begun = time.monotonic()
    with OutputLock(far) as lock:
        assert not lock.try_acquire()
        lock.acquire()
        assert locks.LEASE_SECONDS <= time.monotonic() - begun < 20 * locks.LEASE_SECONDS
    assert far.sizes() == {}
    said = capfd.readouterr().err
    assert said.count("waiting up to") == 1
    assert "process 1 on elsewhere, since then" in said


def test_a_lease_that_is_renewed_is_not_waited_for(far: Directory) -> None:
    of_another_build(far)
    ended = threading.Event()

    def renew() -> None:
        beats = 0
        while not ended.wait(0.1):
            beats += 1
            of_another_build(far, beats=beats)

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        with pytest.raises(OutputError, match=HELD):
            OutputLock(far).acquire()
    finally:
        ended.set()
        thread.join()


@pytest.mark.slow
def test_a_lease_outlasts_its_time_while_its_build_lives(far: Directory) -> None:
    with OutputLock(far) as lock:
        lock.acquire()
        first = far.read_json(LOCK)
        time.sleep(2 * locks.LEASE_SECONDS)
        assert far.read_json(LOCK) != first
        lock.guard.check()


@pytest.mark.slow
def test_a_build_whose_lease_was_taken_over_writes_nothing_and_gives_nothing_back(
    far: Directory,
) -> None:
    with pytest.raises(OutputError, match="process 1 on elsewhere"), OutputLock(far) as lock:
        lock.acquire()
        of_another_build(far)
        time.sleep(4 * locks.BEAT_SECONDS)
        assert far.read_json(LOCK)["owner"] == "0" * 32
        replace(far, guard=lock.guard).write_bytes("manifest.json", b"{}")
    assert set(far.sizes()) == {LOCK}
    assert far.read_json(LOCK)["owner"] == "0" * 32


def test_where_two_could_create_it_the_one_it_does_not_name_finds_out(
    far: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plainly(filesystem: Any, path: str, data: bytes) -> bool:
        filesystem.pipe_file(path, data)
        return True

    monkeypatch.setattr("pipelines.storage.directory.create", plainly)
    first, second = OutputLock(far), OutputLock(far)
    first.acquire()
    second.acquire()
    with pytest.raises(OutputError, match="no longer holds the lock"):
        replace(far, guard=first.guard).write_bytes("manifest.json", b"{}")
    replace(far, guard=second.guard).write_bytes("manifest.json", b"{}")
    with first, second:
        pass
    assert set(far.sizes()) == {"manifest.json"}


@pytest.mark.slow
def test_a_storage_that_does_not_answer_does_not_hold_up_the_end(
    far: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "_JOIN_SECONDS", 0.1)
    going_on = threading.Event()
    lock = OutputLock(far)
    with pytest.raises(KeyError), lock:
        lock.acquire()
        monkeypatch.setattr(locks._Lease, "_is_ours", lambda self: going_on.wait(30))
        time.sleep(3 * locks.BEAT_SECONDS)
        raise KeyError
    monkeypatch.undo()
    going_on.set()


# --- locks that were cut short


WHOLE_LOCK = json.dumps(
    {"host": "elsewhere", "owner": "0" * 32, "pid": 1, "process": None, "since": "then"}, indent=2
).encode()


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    [b"", *(WHOLE_LOCK[:end] for end in (1, 5, 30, -1)), WHOLE_LOCK[:40] + bytes(9), bytes(7)],
)
def test_lock_cut_short_blocks_nobody(content: bytes, output: Directory) -> None:
    output.create()
    output.write_bytes(LOCK, content)
    with OutputLock(output) as lock:
        lock.acquire()
        assert output.read_json(LOCK)["owner"] == lock.guard.owner
        replace(output, guard=lock.guard).write_bytes("made", b"")
    assert set(output.sizes()) == {"made"}


def test_full_disk_leaves_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = [7, 3]

    def write(file: int, data: bytes, offset: int) -> int:
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.write(file, data[: room.pop()])

    output = Directory(url=str(tmp_path / "out"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", write)
        with pytest.raises(OutputError, match="Free some space"), OutputLock(output) as lock:
            lock.acquire()
    assert output.sizes() == {}
    with OutputLock(output) as lock:
        lock.acquire()


def test_lock_written_in_parts_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: pwrite(file, data[:7], at))
    output = Directory(url=str(tmp_path / "out"))
    with OutputLock(output) as lock:
        lock.acquire()
        assert output.read_json(LOCK)["owner"] == lock.guard.owner


def test_lock_cut_short_is_refused_while_its_build_holds_it(tmp_path: Path) -> None:
    output = Directory(url=str(tmp_path / "out"))
    with OutputLock(output) as lock:
        lock.acquire()
        os.truncate(output.local_path(LOCK), 9)
        with pytest.raises(OutputError, match=HELD) as error:
            OutputLock(output).acquire()
        assert "a truncated lock" in str(error.value)
        with pytest.raises(OutputError, match="no longer holds the lock of the output"):
            replace(output, guard=lock.guard).write_bytes("made", b"")


# --- what is no lock of ours


@pytest.mark.parametrize("content", ["mine", "[1]", '{"owner": 1, "pid": "../../x"}', '{"a": 1}'])
def test_a_file_of_that_name_that_no_build_wrote_is_refused_and_stays(
    content: str, output: Directory
) -> None:
    output.create()
    output.write_bytes(LOCK, content.encode())
    with pytest.raises(OutputError, match="not a lock"), OutputLock(output) as lock:
        lock.acquire()
    assert output.read_bytes(LOCK) == content.encode()


def test_a_link_of_that_name_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text(json.dumps({"owner": "0", "pid": 1}))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / LOCK).symlink_to(tmp_path / "precious")
    with pytest.raises(OutputError, match="cannot be written"):
        OutputLock(Directory(url=str(tmp_path / "out"))).acquire()
    assert (tmp_path / "precious").read_text() == json.dumps({"owner": "0", "pid": 1})


def test_a_read_only_output_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(OutputError, match="Read-only file system"):
        OutputLock(Directory(url=str(tmp_path))).acquire()


def test_where_creating_on_a_condition_is_unknown_one_looks_first(
    far: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NotImplementedThere(OSError):
        status = 501

    def refuse(*arguments: object) -> None:
        raise NotImplementedThere("A header you provided implies functionality")

    monkeypatch.setattr(uploads, "_create", refuse)
    assert far.create_file("x", b"1")
    assert not far.create_file("x", b"2")
    assert far.read_bytes("x") == b"1"


def test_a_lock_that_cannot_be_removed_is_an_error_of_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(path: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    lock = OutputLock(Directory(url=str(tmp_path)))
    with pytest.raises(OutputError, match=LOCK), lock:
        lock.acquire()
        monkeypatch.setattr(Path, "unlink", failing)
