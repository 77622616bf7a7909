from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from build_support import PACKAGES
from progress_support import check_progress, command_with_hook, write_configuration

from pipelines.console import progress


def test_short_work_shows_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with progress.show("counting", 3):
        progress.advance()
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_long_work_is_told_line_by_line_where_there_is_no_terminal(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.02)
    with progress.show("counting tasks", 1200):
        progress.advance(1100)
        time.sleep(0.15)
    out, err = capfd.readouterr()
    assert out == ""
    assert len(err.splitlines()) > 1
    assert "counting tasks: 1,100 of 1,200 after 0 s" in err.splitlines()


@pytest.mark.slow
def test_a_terminal_shows_a_bar_that_goes_away(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_FIRST_SECONDS", 0.0)
    monkeypatch.setattr(progress, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with progress.show("learning merges", 10) as show:
        show(4, 10)
        time.sleep(0.3)
    assert "learning merges" in capfd.readouterr().err


def test_every_stage_begins_at_nothing(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.02)
    with progress.show("first", 5):
        progress.advance(5)
    with progress.show("second", 5):
        progress.advance()
        time.sleep(0.1)
    assert "second: 1 of 5" in capfd.readouterr().err


def test_work_done_twice_does_not_go_beyond_all(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.02)
    with progress.show("counting", 5):
        progress.advance(10)
        time.sleep(0.1)
    assert "counting: 5 of 5" in capfd.readouterr().err


def test_an_error_ends_the_display() -> None:
    with pytest.raises(KeyError), progress.show("counting", 5):
        raise KeyError


# --- the command


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    """A configuration with 8 tasks."""
    return write_configuration(tmp_path)


ONE, TWO, PORTABLE = ["beam.workers=1"], ["beam.workers=2"], ["beam.runner=PortableRunner"]
LOOPBACK = ["--job_endpoint=embed"]
NIGHTLY = pytest.mark.nightly


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize(
    "given",
    [
        pytest.param([*workers, "--", *options], id=name, marks=marks)
        for name, workers, options, marks in [
            ("in_memory", ONE, ["--direct_running_mode=in_memory"], NIGHTLY),
            ("multi_threading", TWO, ["--direct_running_mode=multi_threading"], ()),
            ("multi_processing", TWO, ["--direct_running_mode=multi_processing"], NIGHTLY),
            ("loopback", PORTABLE, [*LOOPBACK, "--environment_type=LOOPBACK"], NIGHTLY),
        ]
    ],
)
def test_progress_moves_with_workers_of_the_command(
    config_file: Path, tmp_path: Path, given: list[str]
) -> None:
    check_progress(tmp_path, config_file, *given)


@pytest.mark.process
@pytest.mark.slow
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
    with progress.show("encoding tasks", 1200):
        time.sleep(0.1)
    lines = capfd.readouterr().err.splitlines()
    assert set(lines) == {"encoding tasks: 1,200 in total, running for 0 s"}


@pytest.mark.process
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
    with progress.show("encoding tasks", 10):
        progress.advance()
        for _ in range(2):
            subprocess.run(
                [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(PACKAGES)}
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
    with progress.show("encoding tasks", 10):
        progress.advance(4)
        time.sleep(0.1)
    assert "encoding tasks: 4 of 10" in capfd.readouterr().err
    monkeypatch.setenv(progress._DIRECTORY_VARIABLE, str(tmp_path / "gone"))
    progress.note(documents=1)
