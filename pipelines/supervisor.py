"""Child process that runs local pipelines, so that a crash of native code is reported.

The launcher starts itself again as a child with the same terminal, and waits. It forwards signals
and ends the child when it is asked to end. The child ends when its parent has ended: it reads from
a pipe that only the parent holds open. Whichever of them ends, no process that the child started,
such as the job server of a runner, outlives it. Both share a directory, in which worker threads
record their tasks (`current_task`) and the child records that it ended in an orderly way. It also
contains the child's temporary files, and is removed however the child ends.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.abc import MetaPathFinder
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
# Seconds after a forwarded signal until the child is killed.
_GRACE_SECONDS = 15.0
# The terminal sends Ctrl-C to parent and child, and the parent forwards it: one interruption.
_SAME_INTERRUPTION_SECONDS = 1.0
_PR_SET_CHILD_SUBREAPER = 36  # from <linux/prctl.h>
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Workers allocate and free the same few buffers again and again, and the kernel takes longer to
# clear fresh pages than workers take to fill them. So glibc's allocator keeps freed memory, in two
# arenas, and Arrow allocates there too. The BLAS threads that numpy starts are useless here.
MEMORY_SETTINGS = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "MALLOC_ARENA_MAX": "2",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "OPENBLAS_NUM_THREADS": "1",
}


def in_child() -> bool:
    """Return True if this process is the child of a supervising launcher."""
    return STATUS_VARIABLE in os.environ


@contextmanager
def pandas_absent() -> Iterator[None]:
    """Import what the block imports as if pandas were not installed."""
    absent = _AbsentPandas()
    sys.meta_path.insert(0, absent)
    try:
        yield
    finally:
        sys.meta_path.remove(absent)


class _AbsentPandas(MetaPathFinder):
    """Finder of modules for which pandas is not installed."""

    def find_spec(self, fullname: str, *_: object) -> None:
        """Refuse to find pandas."""
        if fullname == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name=fullname)


@contextmanager
def current_task(description: str) -> Iterator[None]:
    """Record the task of this thread for the report if the process dies; only in a child.

    This writes and removes a small file: use it for tasks, not for documents.

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


def run_in_child(arguments: Sequence[str], on_kill: Callable[[], None]) -> int:
    """Run `python -m pipelines ARGUMENTS` as a supervised child, and return its exit code.

    If a signal asked this process to end, the exit code is 128 plus the number of the signal.

    Args:
        arguments: Arguments of the command.
        on_kill: Called when a second SIGINT kills the child.

    Raises:
        WorkerDiedError: the child was killed by a signal, or exited without an orderly end.
    """
    # Without -P the current directory comes first on the path and may contain other `pipelines`.
    safe_path = [] if sys.path[0] in ("", str(Path.cwd())) else ["-P"]
    return supervise([sys.executable, *safe_path, "-m", "pipelines", *arguments], on_kill)


def supervise(command: Sequence[str], on_kill: Callable[[], None] = lambda: None) -> int:
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
        with _forward_signals(on_kill) as signals:
            try:
                child = subprocess.Popen(command, env=environment, pass_fds=[read_end])
            finally:
                os.close(read_end)
            signals.start(child)
            code = child.wait()
        died = code < 0 or not (status / _ORDERLY_END).exists()
        if signals.received is not None and died:  # perhaps before it could handle signals
            return 128 + signals.received
        if died:
            raise _death_error(code, status)
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
            "A temporary directory cannot be created.",
            found=str(error),
            hint="Free space there, or set TMPDIR to a writable directory.",
        ) from None


def enter_child() -> None:
    """Make this process end with its parent, and treat repeated SIGINTs of one Ctrl-C as one."""
    pipe = os.environ.pop(_PARENT_PIPE_VARIABLE, None)
    if pipe is not None:
        os.set_inheritable(int(pipe), False)
        threading.Thread(target=_end_with_parent, args=(int(pipe),), daemon=True).start()
    signal.signal(signal.SIGINT, _Interruption())


@contextmanager
def deferred_interruption() -> Iterator[None]:
    """Treat a SIGINT that arrives during the block as one that arrives at its end.

    For imports: a library that was imported in part fails when a program imports it again.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    received: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: received.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if received:
        handler(*received[0])


def note_orderly_end() -> None:
    """Record for the parent that this process chose its exit code, whatever it is."""
    if directory := os.environ.get(STATUS_VARIABLE):
        with suppress(OSError):
            (Path(directory) / _ORDERLY_END).touch()


def leave(code: int) -> NoReturn:
    """End this process immediately, without waiting for busy worker threads or cleanup."""
    note_orderly_end()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def end_like_worker(code: int) -> None:
    """End this process because one of its worker processes died.

    In a supervised child, end in the same way, so that the launcher reports it. Elsewhere,
    interrupt the main thread.

    Args:
        code: exit status of the worker: minus the number of a signal, or 128 plus it as in shells.
    """
    number = -code if code < 0 else code - 128
    if not in_child():
        os.kill(os.getpid(), signal.SIGINT)
    elif number in set(signal.Signals):
        os.kill(os.getpid(), number)
    else:
        os._exit(code)


class _SignalForwarder:
    """Signal handler that forwards signals; kills the child at the second, or after a delay.

    Args:
        on_kill: Called when a second SIGINT kills the child.
    """

    def __init__(self, on_kill: Callable[[], None]) -> None:
        self.received: int | None = None
        self._on_kill = on_kill
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
            if repeated and number == signal.SIGINT:
                self._on_kill()

    def _send(self, number: int) -> None:
        assert self._child is not None
        self._child.send_signal(number)
        killer = threading.Timer(_GRACE_SECONDS, self._child.kill)
        killer.daemon = True
        killer.start()


@contextmanager
def _forward_signals(on_kill: Callable[[], None]) -> Iterator[_SignalForwarder]:
    signals = _SignalForwarder(on_kill)
    before = {
        number: signal.signal(number, signals)
        for number in _FORWARDED
        if signal.getsignal(number) != signal.SIG_IGN  # nohup ignores SIGHUP
    }
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Interruption:
    """Handler of SIGINT that raises KeyboardInterrupt once for signals in quick succession."""

    def __init__(self) -> None:
        self._last = float("-inf")

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        same, self._last = now - self._last < _SAME_INTERRUPTION_SECONDS, now
        if not same:
            raise KeyboardInterrupt


def _end_with_parent(pipe: int) -> None:
    os.read(pipe, 1)  # returns only when the parent has ended, because it never writes
    if directory := os.environ.get(STATUS_VARIABLE):
        shutil.rmtree(directory, ignore_errors=True)
    _kill(_children_of(os.getpid()))
    os.kill(os.getpid(), signal.SIGKILL)


def _adopt_orphans() -> None:
    """On Linux, make this process the parent of orphaned descendants."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _children_of(process: int) -> list[int]:
    """Return the ids of the children of a process on Linux; elsewhere none."""
    found: list[int] = []
    for thread in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):  # the process has ended
            found += map(int, thread.read_text().split())
    return found


def _kill(processes: Sequence[int]) -> None:
    """Kill processes and all their descendants."""
    for process in processes:
        below = _children_of(process)
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        _kill(below)
        with suppress(ChildProcessError):  # not a child of this process
            os.waitpid(process, 0)


def _death_error(code: int, status: Path) -> WorkerDiedError:
    tasks = sorted(note.read_text("utf-8", "replace") for note in status.glob(f"{_TASK_PREFIX}*"))
    shown = shortened(tasks, _TASKS_SHOWN, separator="; ")
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        explanation = signal.strsignal(-code)
        found = f"killed by {name}" + (f" ({explanation})" if explanation else "")
    else:
        found = f"it exited with code {code} and reported no reason"
    return WorkerDiedError(
        "The working process died.",
        found=found,
        where=f"tasks in progress: {shown}" if shown else "between tasks",
        hint=_death_hint(code),
    )


def _death_hint(code: int) -> str:
    if -code == signal.SIGKILL:
        return (
            "Most likely the system ran out of memory and killed it. Lower counts.memory, "
            "beam.workers or input.range_bytes, and run the same command again; finished work is "
            "kept."
        )
    return (
        "Run the same command again; finished work is kept. If it dies at the same task, please "
        "report it, with the output of --debug."
    )
