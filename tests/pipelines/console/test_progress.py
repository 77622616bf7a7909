from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from build_support import ROOT, some_text, write_corpus

from pipelines.console import progress


def test_short_work_shows_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with progress.shown("counting", 3):
        progress.advance()
    assert capfd.readouterr() == ("", "")


def test_long_work_is_told_line_by_line_where_there_is_no_terminal(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.02)
    with progress.shown("counting tasks", 1200):
        progress.advance(1100)
        time.sleep(0.15)
    out, err = capfd.readouterr()
    assert out == ""
    assert len(err.splitlines()) > 1
    assert "counting tasks: 1,100 of 1,200 after 0 s" in err.splitlines()


def test_a_terminal_shows_a_bar_that_goes_away(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_FIRST_SECONDS", 0.0)
    monkeypatch.setattr(progress, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with progress.shown("learning merges", 10) as show:
        show(4, 10)
        time.sleep(0.3)
    assert "learning merges" in capfd.readouterr().err


def test_every_stage_begins_at_nothing(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.02)
    with progress.shown("first", 5):
        progress.advance(5)
    with progress.shown("second", 5):
        progress.advance()
        time.sleep(0.1)
    assert "second: 1 of 5" in capfd.readouterr().err


def test_work_done_twice_does_not_go_beyond_all(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.02)
    with progress.shown("counting", 5):
        progress.advance(10)
        time.sleep(0.1)
    assert "counting: 5 of 5" in capfd.readouterr().err


def test_an_error_ends_the_display() -> None:
    with pytest.raises(KeyError), progress.shown("counting", 5):
        raise KeyError


# --- the command

# Workers take a while for each task. It runs in the command's child and in its workers.
_SLOW_TASKS = """
import logging, time
logging.getLogger().addFilter(lambda record: "apitools not found" not in record.getMessage())
from pipelines import counting
from pipelines.console import progress
progress._FIRST_SECONDS = 0.0
progress._POLL_SECONDS = progress._LINE_SECONDS = 0.05
read = counting.read_task
counting.read_task = lambda *given: (time.sleep(0.15), read(*given))[1]
"""


def on_a_terminal(directory: Path, *arguments: object) -> str:
    """What `beam-bpe` shows on a terminal of 120 columns, each state of the bar in a line."""
    hooked = command_with_hook(directory)
    main, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 40, 120, 0, 0))
    shown = bytearray()

    def read() -> None:
        with suppress(OSError):  # the other end is closed
            while data := os.read(main, 1 << 16):
                shown.extend(data)

    reader = threading.Thread(target=read)
    try:
        reader.start()
        with os.fdopen(terminal, "wb") as stderr:
            subprocess.run(
                [sys.executable, "-P", "-m", "pipelines", *map(str, arguments)],
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env=hooked,
                timeout=280,
                check=True,
            )
    finally:
        reader.join(10)
        os.close(main)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode("utf-8")).replace("\r", "\n")


def command_with_hook(directory: Path) -> dict[str, str]:
    """The environment of a command whose tasks are slow."""
    indented = "".join(f"    {line}\n" for line in _SLOW_TASKS.strip().splitlines())
    (directory / "sitecustomize.py").write_text(
        f"import os\nif 'BEAM_BPE_STATUS_DIR' in os.environ:\n{indented}"
    )
    path = f"{directory}{os.pathsep}{ROOT}"
    environment = {**os.environ, "PYTHONPATH": path, "TERM": "xterm-256color"}
    environment.pop("COLUMNS", None)
    return environment


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    """A configuration with 8 tasks."""
    write_corpus(tmp_path / "data", {f"{i}.txt": some_text(12, start=12 * i) for i in range(8)})
    path = tmp_path / "config.yaml"
    path.write_text(
        "output: out\n"
        "input: {files: [data/*.txt], range_bytes: 2000}\n"
        "tokenizer: {vocab_size: 300}\n"
        "counts: {shards: 2}\n"
    )
    return path


@pytest.mark.parametrize(
    ("mode", "workers"), [("in_memory", 1), ("multi_threading", 2), ("multi_processing", 2)]
)
def test_progress_moves_in_every_mode_of_the_direct_runner(
    config_file: Path, tmp_path: Path, mode: str, workers: int
) -> None:
    shown = on_a_terminal(
        *(tmp_path, "count", config_file, "--set", f"beam.workers={workers}"),
        *("--", f"--direct_running_mode={mode}"),
    )
    states = re.findall(
        r"counting tasks \S+ (\d+)/(\d+) 0:\d\d:\d\d (\S+) kB, \S+ MB/s, (\d+) documents", shown
    )
    total = json.loads((tmp_path / "out" / "counts" / "run.json").read_text())["metrics"]["tasks"]
    done = [int(state[0]) for state in states]
    documents = [int(state[3]) for state in states]
    assert {int(state[1]) for state in states} == {total}
    assert len({*done} - {0, total}) >= 2
    assert done == sorted(done)
    assert documents == sorted(documents)
    assert documents[-1] <= 96
    # Nothing else is shown: neither by Beam nor by its workers.
    assert set(re.findall(r"^\w+", shown, re.MULTILINE)) <= {"counting"}


def test_a_log_gets_lines_with_what_is_done(config_file: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pipelines", "count", str(config_file)],
        capture_output=True,
        text=True,
        timeout=280,
        env=command_with_hook(tmp_path),
        check=True,
    )
    lines = re.findall(
        r"^counting tasks: (\d+) of \d+ after \d+ s; \S+ kB, \S+ MB/s, \d+ documents$",
        done.stderr,
        re.MULTILINE,
    )
    assert len({*lines}) >= 2
    assert "━" not in done.stderr
    assert "\x1b" not in done.stderr


def test_of_workers_elsewhere_only_the_time_is_told(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.02)
    with progress.shown("encoding tasks", 1200):
        time.sleep(0.1)
    lines = capfd.readouterr().err.splitlines()
    assert set(lines) == {"encoding tasks: 1,200 in all, at work for 0 s"}


def test_a_process_that_dies_leaves_what_it_did_and_nothing_else(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.02)
    code = (
        "import os; from pipelines.console import progress\n"
        "progress.note(documents=5, bytes=7000, tokens=9)\n"
        "progress.advance(3); os._exit(9)"
    )
    with progress.shown("encoding tasks", 10):
        progress.advance()
        for _ in range(2):
            subprocess.run(
                [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}
            )
        time.sleep(0.1)
    lines = capfd.readouterr().err.splitlines()
    assert lines[-1].startswith("encoding tasks: 7 of 10 after ")
    assert lines[-1].endswith(", 10 documents, 18 tokens")
    assert list(tmp_path.iterdir()) == []
    assert progress._DIRECTORY_VARIABLE not in os.environ


def test_work_goes_on_where_no_directory_can_be_made(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BEAM_BPE_STATUS_DIR", str(tmp_path / "none"))
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.02)
    with progress.shown("encoding tasks", 10):
        progress.advance(4)
        time.sleep(0.1)
    assert "encoding tasks: 4 of 10" in capfd.readouterr().err
    monkeypatch.setenv(progress._DIRECTORY_VARIABLE, str(tmp_path / "gone"))
    progress.note(documents=1)
