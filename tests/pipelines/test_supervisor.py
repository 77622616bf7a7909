from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from build_support import PACKAGES

from pipelines import supervisor
from pipelines.errors import OutputError, WorkerDiedError

pytestmark = pytest.mark.process

PATIENCE_SECONDS = 20.0


@pytest.fixture(autouse=True)
def _package_importable_in_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(PACKAGES))
    monkeypatch.delenv(supervisor.STATUS_VARIABLE, raising=False)


def child(body: str) -> list[str]:
    """A command that behaves like the child of `beam-bpe` and does what `body` says."""
    preamble = """
        import os, signal, sys, threading, time
        from pipelines.supervisor import current_task, enter_child, leave, note_orderly_end
        enter_child()
    """
    return [sys.executable, "-c", textwrap.dedent(preamble) + textwrap.dedent(body)]


def death(body: str) -> WorkerDiedError:
    with pytest.raises(WorkerDiedError) as error:
        supervisor.supervise(child(body))
    assert error.value.exit_code == 8
    return error.value


def test_an_orderly_end_gives_the_exit_code_of_the_child() -> None:
    assert supervisor.supervise(child("note_orderly_end()")) == 0
    assert supervisor.supervise(child("note_orderly_end(); sys.exit(5)")) == 5


def test_leaving_does_not_wait_for_busy_threads() -> None:
    body = "threading.Thread(target=time.sleep, args=(60,)).start(); leave(130)"
    started = time.monotonic()
    assert supervisor.supervise(child(body)) == 130
    assert time.monotonic() - started < PATIENCE_SECONDS


def test_the_child_keeps_the_memory_that_it_has_unless_the_environment_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "1000000")
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    body = """
        names = "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"
        open(os.environ["SEEN"], "w").write(" ".join(os.environ[name] for name in names))
        note_orderly_end()
    """
    assert supervisor.supervise(child(body)) == 0
    trim, mmap = map(int, (tmp_path / "seen").read_text().split())
    assert trim > 100_000_000
    assert mmap == 1_000_000


def test_a_segmentation_fault_is_reported_with_its_signal_and_task() -> None:
    report = str(death("""
        with current_task("count a.txt bytes 0 to 9"):
            pass
        with current_task("count b.txt bytes 9 to 17"):
            os.kill(os.getpid(), signal.SIGSEGV)
    """))  # fmt: skip
    assert "SIGSEGV (Segmentation fault)" in report
    assert "count b.txt bytes 9 to 17" in report
    assert "a.txt" not in report


def test_the_tasks_of_all_threads_are_reported() -> None:
    report = str(death("""
        barrier = threading.Barrier(13)
        def work(number):
            with current_task(f"task {number:02}"):
                barrier.wait()
                time.sleep(60)
        for number in range(12):
            threading.Thread(target=work, args=(number,), daemon=True).start()
        barrier.wait()
        os.abort()
    """))  # fmt: skip
    assert "SIGABRT" in report
    assert "; ".join(f"task {number:02}" for number in range(8)) + "; and 4 more" in report


def test_a_kill_is_explained_with_memory_and_what_to_change() -> None:
    report = str(death("os.kill(os.getpid(), signal.SIGKILL)"))
    assert "SIGKILL" in report
    assert "out of memory" in report
    assert "counts.memory" in report
    assert "between tasks" in report


def test_leaving_without_an_orderly_end_is_reported_even_with_code_0() -> None:
    assert "exited with code 0 and reported no reason" in str(death("os._exit(0)"))
    assert "exited with code 3" in str(death("os._exit(3)"))


def test_noting_a_task_outside_a_child_does_nothing() -> None:
    with supervisor.current_task("anything"):
        pass


def test_a_task_is_forgotten_when_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(supervisor.STATUS_VARIABLE, str(tmp_path))
    with pytest.raises(RuntimeError), supervisor.current_task("failing \udcff"):
        assert len(list(tmp_path.iterdir())) == 1
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_a_missing_status_directory_does_not_stop_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(supervisor.STATUS_VARIABLE, str(tmp_path / "gone"))
    with supervisor.current_task("anything"):
        pass


@pytest.mark.parametrize("end", ["leave(0)", "os.kill(os.getppid(), signal.SIGTERM)"])
def test_temporary_files_of_the_child_are_removed_however_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    body = f"""
        import tempfile
        open(os.environ["SEEN"], "w").write(tempfile.mkdtemp())
        {end}
        time.sleep(60)
    """
    assert supervisor.supervise(child(body)) == (0 if "leave" in end else 143)
    made = Path((tmp_path / "seen").read_text())
    assert tmp_path in made.parents
    assert list(tmp_path.iterdir()) == [tmp_path / "seen"]


def test_a_child_that_is_interrupted_before_it_handles_signals_was_interrupted() -> None:
    body = """
        import os, signal, sys, time
        signal.signal(signal.SIGINT, lambda *_: sys.exit(1))  # as Python does while it starts
        os.kill(os.getppid(), signal.SIGINT)
        time.sleep(60)
    """
    assert supervisor.supervise([sys.executable, "-c", textwrap.dedent(body)]) == 130


def open_descriptors() -> list[str]:
    return sorted(path.name for path in Path("/dev/fd").iterdir())


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    descriptors = open_descriptors()
    death("os.kill(os.getpid(), signal.SIGSEGV)")
    assert list(tmp_path.iterdir()) == []
    assert handlers == {number: signal.getsignal(number) for number in handlers}
    with pytest.raises(FileNotFoundError):
        supervisor.supervise([str(tmp_path / "absent")])
    assert list(tmp_path.iterdir()) == []
    assert open_descriptors() == descriptors


def test_a_temporary_directory_that_cannot_be_made_is_an_output_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    with pytest.raises(OutputError, match="TMPDIR"):
        supervisor.supervise(child("note_orderly_end()"))


class Supervised:
    """A parent process that supervises a child which tells its process id and then works."""

    def __init__(self, body: str, directory: Path) -> None:
        self.pid_file = directory / "pid"
        announce = f"open({str(self.pid_file) + '~'!r}, 'w').write(str(os.getpid()))\n"
        announce += f"os.rename({str(self.pid_file) + '~'!r}, {str(self.pid_file)!r})\n"
        code = "import sys; from pipelines.supervisor import supervise; "
        code += "on_kill = lambda: print('killed', file=sys.stderr); "
        code += f"sys.exit(supervise({child(announce + textwrap.dedent(body))!r}, on_kill))"
        self.process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
        self.child = int(self._text())

    def _text(self) -> str:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.pid_file.exists():
            assert time.monotonic() < deadline, "the child did not start"
            time.sleep(0.01)
        return self.pid_file.read_text()

    def child_is_gone(self) -> bool:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            try:
                os.kill(self.child, 0)
            except ProcessLookupError:
                return True
            if _is_zombie(self.child):
                return True
            time.sleep(0.01)
        return False

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def _is_zombie(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return False


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[object]:
    started: list[Supervised] = []

    def start(body: str) -> Supervised:
        started.append(Supervised(body, tmp_path))
        return started[-1]

    yield start
    for process in started:
        process.end()


INTERRUPTIBLE = """
try:
    time.sleep(60)
except KeyboardInterrupt:
    time.sleep(0.3)  # a second KeyboardInterrupt would end this clean-up
    leave(130)
"""


def test_an_interruption_reaches_the_child(supervised) -> None:
    run = supervised(INTERRUPTIBLE)
    run.process.send_signal(signal.SIGINT)
    assert run.process.wait(PATIENCE_SECONDS) == 130
    assert run.child_is_gone()


def test_one_ctrl_c_of_the_terminal_interrupts_the_child_once(supervised) -> None:
    run = supervised(INTERRUPTIBLE)
    os.killpg(run.process.pid, signal.SIGINT)  # as a terminal does: to parent and child
    assert run.process.wait(PATIENCE_SECONDS) == 130
    assert run.child_is_gone()


def test_termination_reaches_the_child_and_is_no_crash(supervised) -> None:
    run = supervised("time.sleep(60)")
    run.process.send_signal(signal.SIGTERM)
    assert run.process.wait(PATIENCE_SECONDS) == 128 + signal.SIGTERM
    assert run.child_is_gone()


def test_a_second_signal_kills_a_child_that_does_not_listen(supervised) -> None:
    run = supervised("""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(60)
    """)
    time.sleep(0.3)
    run.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    run.process.send_signal(signal.SIGTERM)
    assert run.process.wait(PATIENCE_SECONDS) == 128 + signal.SIGTERM
    assert run.child_is_gone()


def test_a_second_ctrl_c_ends_a_busy_child_at_once_and_says_so(
    supervised, capfd: pytest.CaptureFixture[str]
) -> None:
    run = supervised("""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        time.sleep(60)
    """)
    for _ in range(2):
        time.sleep(0.3)
        os.killpg(run.process.pid, signal.SIGINT)
    assert run.process.wait(PATIENCE_SECONDS) == 130
    assert run.child_is_gone()
    assert capfd.readouterr().err == "killed\n"


def test_the_child_ends_when_the_parent_is_killed(supervised) -> None:
    run = supervised("time.sleep(60)")
    run.process.kill()
    run.process.wait()
    assert run.child_is_gone()


# What the child has started: here a shell with a child of its own, whose id is in the file.
STARTS_OTHERS = """
import subprocess
subprocess.Popen(["sh", "-c", "sleep 60 & echo $! > others; wait"])
while not (os.path.exists("others") and open("others").read().endswith("\\n")):
    time.sleep(0.01)
"""


def is_gone(process: int) -> bool:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if not Path(f"/proc/{process}").exists() or _is_zombie(process):
            return True
        time.sleep(0.01)
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
@pytest.mark.parametrize("end", ["leave(0)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_nothing_that_the_child_started_outlives_it(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = subprocess.Popen(["sleep", "60"])
    command = child(STARTS_OTHERS + end)
    if end == "leave(0)":
        assert supervisor.supervise(command) == 0
    else:
        with pytest.raises(WorkerDiedError):
            supervisor.supervise(command)
    assert is_gone(int((tmp_path / "others").read_text()))
    assert own.poll() is None  # a process that the parent itself had started
    own.kill()
    own.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
def test_nothing_that_the_child_started_outlives_a_parent_that_is_killed(
    supervised, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = supervised(STARTS_OTHERS + "time.sleep(60)")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (tmp_path / "others").exists() or not (tmp_path / "others").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    run.process.kill()
    assert run.child_is_gone()
    assert is_gone(int((tmp_path / "others").read_text()))
