"""Locks on outputs: only one build at a time writes into an output.

`_lock.json` in the output names the build that holds the lock. If the system supports locks
(`flock`, on local disks), the build locks this file; the system releases the lock when the process
ends, for whatever reason. Elsewhere the file is created on the condition that it does not exist,
and changed every few seconds; if it stays unchanged for `LEASE_SECONDS`, its build no longer
exists, and another build takes the lock over.

A lease can expire although its build is only slow. So every file of the output is written on the
condition that the lock still names the writing build (`Guard`): a build that lost the lock, or a
worker of a build that has ended, writes nothing more, and no manifest. This also detects the second
owner where a storage does not support conditional creation.

A build may transfer its lock to a job that it has submitted (`OutputLock.transfer_to_job`). The
lock then names the job, and remains until the job has recorded that it is finished
(`Guard.note_finished`), or until a build with `--take-over`. The record is a separate file, so
that a job that finishes before its id is known cannot be resurrected by the transfer.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypedDict, cast

from pipelines.errors import OutputError
from pipelines.storage import uploads

if TYPE_CHECKING:
    from pipelines.storage.directory import Directory

LOCK: Final = "_lock.json"
FINISHED: Final = "_finished.json"
LEASE_SECONDS = 60.0
BEAT_SECONDS = 10.0
_POLL_SECONDS = 1.0
# Killed processes disappear with a short delay.
_DYING_SECONDS = 2.0
_JOIN_SECONDS = 5.0
# Starts of all locks, up to the value of the first key.
_BEGINNINGS: Final = (b'{\n  "beats": ', b'{\n  "host": ')
_NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})


class Holder(TypedDict, total=False):
    """Content of the lock: the build that holds it. Only `owner` and `pid` are checked when read.

    Attributes:
        owner: Random id of the build.
        host, pid, since: Where and since when it runs, for people.
        process: Values that identify its process (`_process`).
        beats: Number of changes of a lease.
        job: The job that the lock was transferred to.
        cut_short: Bytes of a truncated lock, which names no owner.
    """

    owner: str
    host: str
    pid: int
    process: list[object] | None
    since: str
    beats: int
    job: object
    cut_short: str


@dataclass(frozen=True, kw_only=True)
class DetachedJob:
    """Job that continues without the launcher that submitted it.

    Attributes:
        name: The runner's id of the job.
        runner: Name of the Beam runner.
        url: Page where the job can be watched, if the runner has one.
        stages: Stages of the build that it does, in order.
    """

    name: str
    runner: str
    url: str | None
    stages: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Guard:
    """Condition for writing files of an output, which is sent to workers.

    Attributes:
        output: Directory of the output.
        owner: Build that must hold the lock.
    """

    output: Directory
    owner: str

    def check(self) -> None:
        """Check that the build still holds the lock.

        Raises:
            OutputError: It does not, so nothing may be written for it.
        """
        holder = _read(self.output)
        begun = time.monotonic()
        # The lease may be in the middle of a renewal.
        while not holder and time.monotonic() - begun < uploads.AWAY_SECONDS:
            time.sleep(uploads.AWAY_SECONDS / 10)
            holder = _read(self.output)
        if holder.get("owner") == self.owner:
            return
        raise OutputError(
            "This build no longer holds the lock of the output; nothing was written.",
            expected=f"{LOCK} of this build ({self.owner})",
            found=_described(holder) if holder else "none",
            where=self.output.path(LOCK),
            hint="Let the other build finish, or stop it, and run the same command again. If there "
            "is none, this one was suspended or offline for more than a minute: run it again.",
        )

    def note_finished(self) -> None:
        """Record that the job that holds the lock has finished its work.

        Raises:
            OutputError: The build no longer holds the lock.
        """
        self.check()
        self.output.write_json(FINISHED, {"owner": self.owner})


class OutputLock:
    """Lock of an output, for one invocation of a command.

    As a context manager it is released at the end, even if the block fails: threads that are still
    running then write nothing more.

    Args:
        output: Directory of the output.
        take_over: Take the lock even from a job that has not reported its end.
    """

    def __init__(self, output: Directory, *, take_over: bool = False) -> None:
        self._output = output
        self._take_over = take_over
        self._holder = _this_build()
        self._held: _Flock | _Lease | None = None

    @property
    def guard(self) -> Guard:
        """Return the condition for writing files."""
        return Guard(output=self._output, owner=self._holder["owner"])

    def acquire(self) -> None:
        """Take the lock unless it is held already.

        Raises:
            OutputError: Another build holds it, or the output cannot be written.
        """
        self._take(patient=True)

    def try_acquire(self) -> bool:
        """Take the lock if no other build holds it, without waiting. Return True if it is held."""
        try:
            self._take(patient=False)
        except OutputError:
            return False
        return True

    def transfer_to_job(self, job: DetachedJob) -> None:
        """Transfer the lock to a job whose workers write for this build.

        Raises:
            OutputError: It is no longer held.
        """
        assert self._held is not None, "only a running build submits jobs"
        self.guard.check()
        self._held.leave({**self._holder, "job": asdict(job)})
        self._held = None

    def _take(self, *, patient: bool) -> None:
        if self._held is not None:
            return
        self._output.create()
        with self._output.output_errors(LOCK):
            kind = _Flock if self._output.is_local and _knows_locks(self._output) else _Lease
            self._held = kind(
                self._output, self._holder, patient=patient, take_over=self._take_over
            )
            if self._held.after_job:
                self._output.remove(FINISHED)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            if self._held is None and LOCK in self._output.sizes():
                self.try_acquire()  # left by a build that was killed at its end
            if self._held is not None:
                try:
                    self._output.remove_leftovers()
                finally:  # also if this is interrupted: the process may go on
                    with self._output.output_errors(LOCK):
                        self._held.release()
        elif self._held is not None:
            # Report the error of the block rather than this one.
            with suppress(OutputError, OSError):
                self._held.release()
        self._held = None


def _knows_locks(output: Directory) -> bool:
    """Return True if files here can be locked, tested with a temporary file."""
    probe = output.local_path(f".probe-{secrets.token_hex(8)}")
    file = os.open(probe, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return False
    finally:
        os.close(file)
        probe.unlink(missing_ok=True)
    return True


def _open_or_create(path: str, _flags: int) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)


class _Flock:
    """Lock of the system on the open file."""

    def __init__(
        self, output: Directory, holder: Holder, *, patient: bool, take_over: bool
    ) -> None:
        self.after_job = False
        self._output = output
        self._owner = holder["owner"]
        self._path = output.local_path(LOCK)
        self._file = self._open(output, _DYING_SECONDS if patient else 0.0)
        try:
            self._state(output, holder, take_over)
        except BaseException:
            self._file.close()
            raise

    def _open(self, output: Directory, patience: float) -> FileIO:
        begun = time.monotonic()
        while True:
            # An object that closes itself: an interruption may come before it is returned.
            file = FileIO(self._path, "r+", opener=_open_or_create)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # The previous owner may have removed the file after it was opened here.
                with suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(file.fileno()), self._path.stat()):
                        return file
            except BlockingIOError:
                if time.monotonic() - begun >= patience:
                    file.close()
                    raise _held_by(output, _read(output)) from None
                time.sleep(_POLL_SECONDS / 10)
            except BaseException:
                file.close()
                raise
            file.close()

    def _state(self, output: Directory, holder: Holder, take_over: bool) -> None:
        file = self._file.fileno()
        if os.fstat(file).st_size:
            earlier = _read(output)  # do not overwrite a file that is not a lock
            self.after_job = _has_job(output, earlier, take_over=take_over)
        content = memoryview(_content(holder))
        os.ftruncate(file, 0)
        try:
            while content:  # a nearly full disk may write only a part, without an error
                content = content[os.pwrite(file, content, os.fstat(file).st_size) :]
        except OSError:
            self._path.unlink(missing_ok=True)
            raise

    def release(self) -> None:
        try:
            if _read(self._output).get("owner") == self._owner:
                self._path.unlink(missing_ok=True)
        finally:
            self._file.close()

    def leave(self, holder: Holder) -> None:
        # Atomically, since workers may be reading it.
        self._output.write_bytes(LOCK, _content(holder))
        self._file.close()


class _Lease:
    """File that is changed repeatedly while its build is alive."""

    def __init__(
        self, output: Directory, holder: Holder, *, patient: bool, take_over: bool
    ) -> None:
        self.after_job = False
        self._output = output
        self._holder = holder
        self._beats = 0
        self._ended = threading.Event()
        self._create(patient=patient, take_over=take_over)
        # If a storage does not support the condition, two builds may have created the file.
        if not self._is_ours():
            raise _held_by(output, _read(output))
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()

    def _create(self, *, patient: bool, take_over: bool) -> None:
        first: Holder | None = None
        begun = time.monotonic()
        while not self._output.create_file(LOCK, _content(self._holder)):
            holder = _read(self._output)
            if holder == self._holder:
                return  # the response to an earlier request was lost
            if _has_job(self._output, holder, take_over=take_over):
                self.after_job = True
                self._output.remove(LOCK)
                continue
            if first is None:
                first = holder
            alive = _is_alive(holder)
            seconds = time.monotonic() - begun
            over = seconds > (_DYING_SECONDS if alive else LEASE_SECONDS)
            if alive is False or (alive is None and over and holder == first):
                self._output.remove(LOCK)
                continue
            if over or holder != first or not patient:
                raise _held_by(self._output, holder)
            if holder is first and alive is None:
                print(
                    f"waiting up to {LEASE_SECONDS:.0f} s to find out if the build that holds the "
                    f"output is still running: {_described(holder)}",
                    file=sys.stderr,
                )
            time.sleep(_POLL_SECONDS)

    def _is_ours(self) -> bool:
        return bool(_read(self._output).get("owner") == self._holder["owner"])

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            # The same problem stops the next file of the output, and is reported there.
            with suppress(OutputError):
                if not self._is_ours():
                    return
                self._beats += 1
                state: Holder = {**self._holder, "beats": self._beats}
                self._output.write_bytes(LOCK, _content(state))

    def _end(self) -> bool:
        """Stop the heartbeat. Return True if the lock is still ours, as far as is known."""
        self._ended.set()
        self._thread.join(_JOIN_SECONDS)
        if self._thread.is_alive():  # the storage does not answer
            return False
        with suppress(OutputError):
            return self._is_ours()
        return False

    def release(self) -> None:
        if self._end():
            self._output.remove(LOCK)

    def leave(self, holder: Holder) -> None:
        self._end()
        self._output.write_bytes(LOCK, _content(holder))


def _this_build() -> Holder:
    """Return the description of this build in the lock."""
    return {
        "owner": secrets.token_hex(16),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "process": _process(os.getpid()),
        "since": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
    }


def _content(holder: Holder) -> bytes:
    return json.dumps(holder, indent=2, sort_keys=True).encode() + b"\n"


def _read(output: Directory) -> Holder:
    """Return the content of the lock, empty if it is missing or being written.

    A full disk or a loss of power may leave only the start of a lock. This names no owner, so only
    `flock`, or a change of the file, shows that a build holds it.

    Raises:
        OutputError: It cannot be read, or it is not a lock.
    """
    data = output.find_bytes(LOCK) or b"{}"
    try:
        holder = json.loads(data)
    except (ValueError, RecursionError):
        kept = data.rstrip(b"\0")
        if any(kept[: len(begin)] == begin[: len(kept)] for begin in _BEGINNINGS):
            return {"cut_short": data.hex()}
        holder = None
    if not isinstance(holder, dict) or (holder and not _is_lock(holder)):
        raise OutputError(
            "A file of the output is not a lock.",
            expected="the content that a build writes",
            found="something else",
            where=output.path(LOCK),
            hint="Move the file elsewhere, or choose another output.",
        )
    return cast(Holder, holder)


def _is_lock(holder: Mapping[str, object]) -> bool:
    return isinstance(holder.get("owner"), str) and isinstance(holder.get("pid"), int)


def _process(pid: int) -> list[object] | None:
    """Return values that identify a process: machine, namespace, number, start time.

    Return None if the system does not provide them.
    """
    with suppress(OSError, IndexError):
        machine = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = str(Path("/proc/self/ns/pid").readlink())
        state, *others = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if state not in "XZ":  # dead, but its parent has not noticed yet
            return [machine, namespace, pid, others[18]]
    return None


def _is_alive(holder: Holder) -> bool | None:
    """Return True if the holder of a lease is running, False if not, None if only time can show."""
    here, there = _process(os.getpid()), holder.get("process")
    if here is None or not isinstance(there, list) or there[:2] != here[:2]:
        return None
    return _process(holder["pid"]) == there


def _described(holder: Holder) -> str:
    if "pid" not in holder:
        return "a truncated lock"
    return f"process {holder.get('pid')} on {holder.get('host')}, since {holder.get('since')}"


def _has_job(output: Directory, holder: Holder, *, take_over: bool) -> bool:
    """Return True if a lock was transferred to a job, and may be taken from it.

    Raises:
        OutputError: It may not be taken: the job has not reported its end.
    """
    job = holder.get("job")
    if job is None:
        return False
    if take_over or (output.read_json(FINISHED) or {}).get("owner") == holder.get("owner"):
        return True
    known = job if isinstance(job, Mapping) else {}
    url, stages = known.get("url"), known.get("stages")
    raise OutputError(
        "A job that was submitted with --no-wait is still writing to this output.",
        found=f"{known.get('runner')} job {known.get('name')}, "
        f"for {', '.join(map(str, stages if isinstance(stages, list) else []))}, "
        f"since {holder.get('since')}" + ("" if url is None else f"; see {url}"),
        where=output.path(LOCK),
        hint="Wait until it has finished, and run the same command again. If it has failed or was "
        "cancelled, add --take-over: its finished work is kept, and it writes nothing more.",
    )


def _held_by(output: Directory, holder: Holder) -> OutputError:
    return OutputError(
        "Another build is writing to this output.",
        found=_described(holder) if holder else "a build that has just started",
        where=output.path(LOCK),
        hint="Wait until it has finished, or stop it (finished work is kept), or choose another "
        "output.",
    )
