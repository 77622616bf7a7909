"""Runs a local pipeline in a child process, so that a crash of native code is reported.

The command starts itself again as a child with the same terminal and waits. It passes signals on,
ends the child when it is asked to end, and the child ends when the parent is gone (it reads from a
pipe that the parent alone holds open). Whichever of them ends, nothing that the child has started,
such as the job server of a runner, outlives it. Both share a directory, in which worker threads
note the task they are at (`current_task`) and the child notes that it ended in an orderly way. In
it is also the child's place for temporary files, which are removed with it however the child ends.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

from pipelines.errors import OutputError, WorkerDiedError, shortened

STATUS_VARIABLE = "BEAM_BPE_STATUS_DIR"
_PARENT_PIPE_VARIABLE = "BEAM_BPE_PARENT_PIPE"
_ORDERLY_END = "ended"
_TEMPORARY = "tmp"
_TASK_PREFIX = "task-"
_TASKS_SHOWN = 8
# Seconds between a signal passed on to the child and its being killed.
_GRACE_SECONDS = 15.0
# The terminal sends Ctrl-C to parent and child, and the parent passes it on: one interruption.
_SAME_INTERRUPTION_SECONDS = 1.0
_PR_SET_CHILD_SUBREAPER = 36  # of Linux
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Workers take and give back the same few buffers again and again, and memory that the system has to
# clear first costs more than filling it: so the allocator (glibc's) keeps what it has, in two
# arenas, and Arrow takes its memory there too. The threads of BLAS that numpy starts are of no use.
MEMORY_SETTINGS = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "MALLOC_ARENA_MAX": "2",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "OPENBLAS_NUM_THREADS": "1",
}


def in_child() -> bool:
    """Whether this process is the child of a supervising command."""
    return STATUS_VARIABLE in os.environ


@contextmanager
def current_task(description: str) -> Iterator[None]:
    """Note what this thread is at, for the report if the process dies. Does nothing elsewhere.

    Costs a small file written and removed: meant for whole tasks, not for documents.

    >>> with current_task("count train.txt bytes 0 to 67108864"):
    ...     pass
    """
    directory = os.environ.get(STATUS_VARIABLE)
    if directory is None:
        yield
        return
    note = Path(directory) / f"{_TASK_PREFIX}{os.getpid()}-{threading.get_ident()}"
    with suppress(OSError):  # a full disk must not stop the work
        note.write_text(description, "utf-8", "backslashreplace")
    try:
        yield
    finally:
        with suppress(OSError):
            note.unlink()


def run_in_child(arguments: Sequence[str]) -> int:
    """Run `python -m pipelines ARGUMENTS` as a supervised child; its exit code.

    Raises WorkerDiedError if the child is killed by a signal or leaves without an orderly end,
    unless this process was asked to end; then the exit code is 128 plus the signal's number.
    """
    # Without -P the current directory comes first on the path, and may hold other `pipelines`.
    safe_path = [] if sys.path[0] in ("", str(Path.cwd())) else ["-P"]
    return supervise([sys.executable, *safe_path, "-m", "pipelines", *arguments])


def supervise(command: Sequence[str]) -> int:
    """Run a command that calls `enter_child` and `note_orderly_end`; see `run_in_child`."""
    status = _make_status_directory()
    _adopt_orphans()
    before = set(_children_of(os.getpid()))
    read_end, write_end = os.pipe()
    environment = {
        **MEMORY_SETTINGS,
        **os.environ,
        STATUS_VARIABLE: str(status),
        "TMPDIR": str(status / _TEMPORARY),
        _PARENT_PIPE_VARIABLE: str(read_end),
    }
    try:
        with _passing_signals_on() as signals:
            try:
                child = subprocess.Popen(command, env=environment, pass_fds=[read_end])
            finally:
                os.close(read_end)
            signals.start(child)
            code = child.wait()
        if signals.received is not None and code < 0:
            return 128 + signals.received
        if code < 0 or not (status / _ORDERLY_END).exists():
            raise _death_report(code, status)
        return code
    finally:
        os.close(write_end)
        _kill([process for process in _children_of(os.getpid()) if process not in before])
        shutil.rmtree(status, ignore_errors=True)


def _make_status_directory() -> Path:
    try:
        made = Path(tempfile.mkdtemp(prefix="beam-bpe-"))
        (made / _TEMPORARY).mkdir()
        return made
    except OSError as error:
        raise OutputError(
            "No temporary directory can be made.",
            found=str(error),
            hint="Free space there, or set TMPDIR to a directory that can be written.",
        ) from None


def enter_child() -> None:
    """Make this process a good child: end with its parent, take one Ctrl-C once."""
    pipe = os.environ.pop(_PARENT_PIPE_VARIABLE, None)
    if pipe is not None:
        os.set_inheritable(int(pipe), False)
        threading.Thread(target=_end_with_parent, args=(int(pipe),), daemon=True).start()
    signal.signal(signal.SIGINT, _Interruption())


def note_orderly_end() -> None:
    """Tell the parent that whatever the exit code is, this process chose it."""
    if directory := os.environ.get(STATUS_VARIABLE):
        with suppress(OSError):
            (Path(directory) / _ORDERLY_END).touch()


def leave(code: int) -> NoReturn:
    """End this process at once.

    Neither worker threads that are still busy nor taking everything apart is waited for.
    """
    note_orderly_end()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def end_as_worker_did(code: int) -> None:
    """Ends this process because one that worked for it died.

    Under a supervising command it ends as that one did, so that the report says how. Elsewhere the
    main thread is interrupted.

    Args:
        code: of its end: minus the number of a signal, or 128 plus it, as shells have it.
    """
    number = -code if code < 0 else code - 128
    if not in_child():
        os.kill(os.getpid(), signal.SIGINT)
    elif number in set(signal.Signals):
        os.kill(os.getpid(), number)
    else:
        os._exit(code)


class _SignalsPassedOn:
    """Passes signals on to the child; kills it at the second, or when it does not end."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._child: subprocess.Popen[bytes] | None = None

    def start(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child
        if self.received is not None:
            self._send(self.received)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        repeated = self.received is not None
        self.received = number
        if self._child is not None:
            self._send(signal.SIGKILL if repeated else number)

    def _send(self, number: int) -> None:
        assert self._child is not None
        self._child.send_signal(number)
        killer = threading.Timer(_GRACE_SECONDS, self._child.kill)
        killer.daemon = True
        killer.start()


@contextmanager
def _passing_signals_on() -> Iterator[_SignalsPassedOn]:
    signals = _SignalsPassedOn()
    before = {
        number: signal.signal(number, signals)
        for number in _PASSED_ON
        if signal.getsignal(number) != signal.SIG_IGN  # as nohup sets it
    }
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Interruption:
    """A handler of SIGINT that raises KeyboardInterrupt, once for signals close together."""

    def __init__(self) -> None:
        self._last = float("-inf")

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        same, self._last = now - self._last < _SAME_INTERRUPTION_SECONDS, now
        if not same:
            raise KeyboardInterrupt


def _end_with_parent(pipe: int) -> None:
    os.read(pipe, 1)  # returns only when the parent is gone: it never writes
    if directory := os.environ.get(STATUS_VARIABLE):
        shutil.rmtree(directory, ignore_errors=True)
    _kill(_children_of(os.getpid()))
    os.kill(os.getpid(), signal.SIGKILL)


def _adopt_orphans() -> None:
    """Has processes whose parent ends become children of this one, where the system is Linux."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _children_of(process: int) -> list[int]:
    """The ids of the children of a process, where the system is Linux; else none."""
    found: list[int] = []
    for thread in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):  # it has ended
            found += map(int, thread.read_text().split())
    return found


def _kill(processes: Sequence[int]) -> None:
    """Kills processes with all that they have started."""
    for process in processes:
        below = _children_of(process)
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        _kill(below)
        with suppress(ChildProcessError):  # not this one's own child
            os.waitpid(process, 0)


def _death_report(code: int, status: Path) -> WorkerDiedError:
    tasks = sorted(note.read_text("utf-8", "replace") for note in status.glob(f"{_TASK_PREFIX}*"))
    shown = shortened(tasks, _TASKS_SHOWN, separator="; ")
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        explanation = signal.strsignal(-code)
        found = f"killed by {name}" + (f" ({explanation})" if explanation else "")
    else:
        found = f"it left with code {code} without saying why"
    return WorkerDiedError(
        "The process that does the work died.",
        found=found,
        where=f"at work on: {shown}" if shown else "between tasks",
        hint=_death_hint(code),
    )


def _death_hint(code: int) -> str:
    if -code == signal.SIGKILL:
        return (
            "Most likely the system ran out of memory and killed it. Lower counts.memory, "
            "beam.workers or input.range_bytes, and run the same command again: what is finished "
            "is kept."
        )
    return (
        "Run the same command again: what is finished is kept. If it dies at the same task, "
        "please report it, with the output of --debug."
    )
