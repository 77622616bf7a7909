from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from build_support import PACKAGES, some_text, write_corpus
from build_support import command as beam_bpe
from progress_support import check_progress, command_with_hook, write_configuration

from pipelines.choices import ProgressMode
from pipelines.console import displays, progress, tally

Lines = Callable[[], list[str]]


@pytest.fixture
def lines(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Lines:
    """Waits for a few lines of progress and returns those since the last call."""
    for interval in ("BAR_SECONDS", "LINE_SECONDS", "JSON_SECONDS"):
        monkeypatch.setattr(displays, interval, 0.01)

    def read() -> list[str]:
        time.sleep(0.05)
        out, err = capfd.readouterr()
        assert out == ""
        return err.splitlines()

    return read


@pytest.fixture
def plain(lines: Lines) -> Iterator[Lines]:
    """The lines of a command that counts, trains and encodes, without a terminal."""
    with progress.shown("plain", "reading build.yaml"):
        progress.expect(["count", "train", "encode"])
        progress.start_stage("count")
        lines()
        yield lines


# --- lines


def test_the_first_line_is_there_at_once_and_only_once(lines: Lines) -> None:
    with progress.shown("plain", "reading build.yaml"):
        progress.describe("listing the input files")
        assert lines() == ["reading build.yaml"]
    assert lines() == []


def test_a_first_line_of_the_launcher_is_not_repeated(lines: Lines) -> None:
    modes: tuple[ProgressMode, ...] = ("plain", "json")
    for mode in modes:
        progress.announce(mode, "reading build.yaml")
        with progress.shown(mode, "reading build.yaml", announced=True):
            pass
        assert len(lines()) == 1


def test_a_line_has_percent_rate_documents_and_rejects(plain: Lines) -> None:
    with progress.show("counting", 4, planned=8000):
        progress.note(documents=3, bytes=2000, rejects=1)
        progress.note(tasks=1, planned=2000, finished_bytes=2000)
        line = plain()[-1]
    pattern = (
        r"\[1/3\] counting: 25%, 2\.0 kB, \S+ \w+/s, 3 documents, 1 rejects(, \S+ [MG]B memory)?"
    )
    assert re.fullmatch(pattern, line)


def test_percent_follows_the_files_where_text_is_larger(plain: Lines) -> None:
    """Text of compressed files: a finished task shows how much of it a planned byte makes."""
    with progress.show("counting", 4, planned=4000):
        progress.note(documents=3, bytes=6000)
        progress.note(tasks=1, planned=1000, finished_bytes=4000)
        assert "counting: 38%, 6.0 kB" in plain()[-1]  # 1,000, and 2,000 of text as 500


def test_merging_of_counts_follows_the_last_task(plain: Lines) -> None:
    with progress.show("counting", 1, planned=10, shards=64):
        progress.note(tasks=1, documents=1, bytes=10, planned=10, finished_bytes=10)
        progress.note(shards=16)
        assert "[1/3] merging counts: 25%, 16 of 64" in plain()[-1]


def test_training_shows_merges_and_the_newest_token(plain: Lines) -> None:
    progress.start_stage("train")
    with progress.show("training", 1000):
        progress.show_merges(256, 1000, b" the\x1b")
        line = plain()[-1]
    assert line.startswith(r"[2/3] training: 26%, 256 of 1,000, newest token ' the\x1b'")


def test_each_stage_leaves_one_line(plain: Lines) -> None:
    with progress.show("counting", 1, planned=10):
        progress.note(tasks=1, documents=1200, rejects=2, bytes=4_000_000)
    progress.end_stage("count", "done", 2.0, 4_000_000)
    progress.end_stage("train", "already finished")
    progress.start_stage("encode")
    with progress.show("encoding", 1, planned=10):
        progress.note(tasks=1, documents=1200, bytes=4_000_000, tokens=900)
    progress.end_stage("encode", "resumed", 75.0, 4_000_000)
    assert [line for line in plain() if not re.match(r".*ing: \d", line)] == [
        "[1/3] counted: 4.0 MB in 2.0 s (2.0 MB/s), 1,200 documents, 2 rejects",
        "[2/3] training: already finished",
        "[3/3] encoded: 4.0 MB in 1 min 15 s (53.3 kB/s), 1,200 documents, 0 rejects, 900 tokens, "
        "resumed",
    ]


def test_work_without_bytes_shows_its_steps(lines: Lines) -> None:
    with progress.shown("plain", "reading out"), progress.show("comparing rows", 1200):
        progress.advance(1100)
        assert re.match(r"comparing rows: 92%, 1,100 of 1,200", lines()[-1])


@pytest.mark.slow
def test_all_work_begins_at_nothing_and_ends_at_all(plain: Lines) -> None:
    with progress.show("first", 5):
        progress.advance(5)
    with progress.show("second", 5):
        progress.advance()
        assert "second: 20%, 1 of 5" in plain()[-1]
        progress.advance(10)  # a repeated bundle counts again
        assert "second: 100%, 5 of 5" in plain()[-1]


def test_of_workers_elsewhere_only_the_time_is_known(plain: Lines) -> None:
    with progress.show("encoding", 1200, planned=10):
        assert set(plain()) == {"[1/3] encoding: 1,200 in total, running for 0 s"}


@pytest.mark.process
def test_a_process_that_dies_leaves_its_sums_and_nothing_else(
    plain: Lines, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    code = (
        "import os; from pipelines.console import progress\n"
        "progress.note(documents=5, bytes=7000, tokens=9)\n"
        "progress.advance(3); os._exit(9)"
    )
    with progress.show("encoding", 10):
        progress.advance()
        for _ in range(2):
            subprocess.run(
                [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(PACKAGES)}
            )
        line = plain()[-1]
    assert line.startswith("[1/3] encoding: 70%, 14.0 kB")
    assert "10 documents, 0 rejects, 18 tokens" in line
    assert list(tmp_path.iterdir()) == []
    assert tally._DIRECTORY_VARIABLE not in os.environ


def test_work_goes_on_where_no_directory_can_be_made(
    plain: Lines, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BEAM_BPE_STATUS_DIR", str(tmp_path / "none"))
    with progress.show("encoding", 10):
        progress.advance(4)
        assert "encoding: 40%, 4 of 10" in plain()[-1]
    monkeypatch.setenv(tally._DIRECTORY_VARIABLE, str(tmp_path / "gone"))
    progress.note(documents=1)


def test_a_closed_standard_error_does_not_stop_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path(os.devnull).open("w") as closed:
        monkeypatch.setattr("sys.stderr", closed)
        closed.close()
        with progress.shown("plain", "reading"), progress.show("counting", 5):
            progress.advance()


# --- other displays


def test_json_has_one_object_a_line(lines: Lines) -> None:
    with progress.shown("json", "reading build.yaml"):
        progress.expect(["count"])
        progress.start_stage("count")
        with progress.show("counting", 4, planned=8000):
            progress.note(tasks=1, documents=3, bytes=2000, planned=2000, finished_bytes=2000)
            found: list[Any] = [json.loads(line) for line in lines()]
        progress.end_stage("count", "done", 2.0, 8000)
        end = json.loads(lines()[-1])
    assert found[0] == {"event": "status", "text": "reading build.yaml"}
    last = found[-1]
    assert last.pop("memory") is None or sys.platform == "linux"
    for measured in ("seconds", "seconds_left", "bytes_per_second"):
        del last[measured]
    assert last == {
        "event": "progress", "stage": "count", "number": 1, "of": 1, "work": "counting",
        "fraction": 0.25, "done": 1, "total": 4, "bytes": 2000, "documents": 3, "rejects": 0,
        "tokens": 0, "newest_token": None, "job": None,
    }  # fmt: skip
    assert end == {
        "event": "stage", "stage": "count", "number": 1, "of": 1, "state": "done", "seconds": 2.0,
        "bytes": 8000, "documents": 3, "rejects": 0, "tokens": 0,
    }  # fmt: skip


@pytest.mark.slow
def test_a_bar_goes_away_and_leaves_a_line_for_each_stage(lines: Lines) -> None:
    with progress.shown("bar", "reading build.yaml"):
        progress.expect(["count"])
        progress.start_stage("count")
        with progress.show("counting", 4, planned=8000):
            progress.note(tasks=1, documents=3, bytes=2000, planned=2000, finished_bytes=2000)
            time.sleep(0.2)
        progress.end_stage("count", "done", 2.0, 8000)
    shown = "\n".join(lines())
    assert "reading build.yaml" in shown
    assert "\u2501" in shown
    assert "25%" in shown
    assert "[1/1] counted: 8.0 kB in 2.0 s" in shown


def test_no_colour_is_drawn_where_none_is_wanted(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    with progress.shown("bar", "reading build.yaml"):
        pass
    assert "\x1b[3" not in "\n".join(lines())


def test_nothing_is_shown_on_request(lines: Lines) -> None:
    with progress.shown("none", "reading"), progress.show("counting", 3):
        progress.advance()
        assert lines() == []


def test_without_a_command_short_work_shows_nothing(lines: Lines) -> None:
    with progress.show("counting", 3):
        progress.advance()
        assert lines() == []


def test_without_a_command_long_work_is_shown(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_FIRST_SECONDS", 0.0)
    with progress.show("counting", 4):
        progress.advance()
        assert "counting: 25%, 1 of 4" in lines()[-1]


def test_an_error_ends_the_display() -> None:
    with pytest.raises(KeyError), progress.show("counting", 5):
        raise KeyError


# --- interruptions


def interrupt(stage: str, mode: ProgressMode = "none", **work: int) -> str:
    """Return the message of an interruption during a stage that has done some work."""
    total = work.pop("total", 7)
    shown = {key: work.pop(key, 0) for key in ("planned", "earlier", "shards")}
    local = bool(work.pop("local", False))
    with pytest.raises(KeyboardInterrupt) as caught, progress.shown(mode, "reading"):
        progress.expect(["count", "train", "encode"])
        progress.start_stage(stage)
        with progress.show(stage, total, local=local, **shown):
            progress.note(**work)
            raise KeyboardInterrupt
    return str(caught.value)


@pytest.mark.parametrize(
    ("stage", "work", "message"),
    [
        ("count", {"tasks": 2}, "Interrupted while counting, 2 of 7 tasks. Counting will begin "
         "again; run the same command."),
        ("count", {"tasks": 5, "kept": 4, "shards": 64}, "Interrupted while counting, 5 of 7 "
         "tasks. 4 of them are kept: run the same command to go on."),
        ("count", {"tasks": 1, "total": 5, "earlier": 2}, "Interrupted while counting, 3 of 7 "
         "tasks. 2 of them are kept: run the same command to go on."),
        ("count", {"tasks": 7, "kept": 7, "shards": 64}, "Interrupted while merging counts. All 7 "
         "tasks are counted, which is kept; only merging will begin again: run the same command."),
        ("count", {"local": True}, "Interrupted while counting, 0 of 7 tasks. Counting will begin "
         "again; run the same command."),
        ("count", {}, "Interrupted while counting, 7 tasks. Run the same command: it goes on from "
         "what the workers had finished."),
        ("train", {"tasks": 256, "total": 1000}, "Interrupted while training, 256 of 1,000 "
         "merges. The counts are kept. Training will begin again; run the same command."),
        ("encode", {"tasks": 3, "kept": 3}, "Interrupted while encoding, 3 of 7 tasks. They are "
         "kept: run the same command to go on."),
    ],
)  # fmt: skip
def test_an_interruption_is_told_as_it_is(stage: str, work: dict[str, int], message: str) -> None:
    assert interrupt(stage, **work) == message


def test_an_interruption_between_stages() -> None:
    with pytest.raises(KeyboardInterrupt) as caught, progress.shown("none", "reading"):
        progress.expect(["count"])
        raise KeyboardInterrupt
    assert str(caught.value).startswith("Interrupted before a stage began.")


def test_an_interruption_of_a_command_without_stages() -> None:
    with pytest.raises(KeyboardInterrupt) as caught, progress.shown("none", "reading"):
        raise KeyboardInterrupt
    assert str(caught.value) == "Interrupted."


# --- the command


@pytest.mark.slow
def test_a_build_without_a_terminal_leaves_a_line_for_each_stage(tmp_path: Path) -> None:
    write_corpus(tmp_path / "data", {"a.txt": some_text(12)})
    config = tmp_path / "build.yaml"
    config.write_text(
        "output: out\ninput: {files: [data/*.txt]}\ntokenizer: {vocab_size: 270}\n"
        "counts: {shards: 1}\n"
    )
    done = beam_bpe("build", config, "--progress", "plain")
    assert done.returncode == 0
    stages = done.stderr.splitlines()  # the launcher shows what comes first
    assert [line.partition(":")[0] for line in stages] == [
        "estimate", "[1/3] counted", "[2/3] trained", "[3/3] encoded",
    ]  # fmt: skip
    assert re.search(r"^total +\d", done.stdout, re.MULTILINE)
    next_command = done.stdout.splitlines()[-1]
    assert next_command == f"beam-bpe inspect {tmp_path / 'out'} --row 0"
    assert beam_bpe(*next_command.split()[1:]).returncode == 0


@pytest.mark.process
def test_the_first_line_comes_before_anything_large_is_imported(tmp_path: Path) -> None:
    """Before the child process, too: it is there within 0.3 s."""
    code = (
        "import sys\nfrom pipelines import supervisor\nfrom pipelines.cli import main\n"
        "large = {'apache_beam', 'pyarrow', 'numpy', 'yaml', 'fsspec', 'rich.progress'}\n"
        "def run_in_child(*_):\n"
        "    print(*large & sys.modules.keys(), file=sys.stderr)\n"
        "    return 7\n"
        "supervisor.run_in_child = run_in_child\n"
        "main(['build', 'none.yaml', '--progress', sys.argv[1]])"
    )
    for mode, line in (("plain", "reading none.yaml\n"), ("bar", "reading none.yaml\r")):
        done = subprocess.run(
            [sys.executable, "-c", code, mode],
            capture_output=True,
            env={"PYTHONPATH": str(PACKAGES)},
            check=False,
        )
        assert (done.returncode, done.stderr.decode()) == (7, f"{line}\n")


def test_an_error_is_a_line_of_json_too(tmp_path: Path) -> None:
    config = tmp_path / "build.yaml"
    config.write_text("output: out\ninput: {files: [none/*.txt]}\n")
    done = beam_bpe("count", config, "--progress", "json")
    *_, error = map(json.loads, done.stderr.splitlines())
    assert error.pop("message") == "No file matches a pattern of the input."
    assert error.keys() == {"event", "expected", "found", "where", "hint", "exit_code"}
    assert (error["event"], error["exit_code"]) == ("error", done.returncode) == ("error", 4)


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
def test_a_log_gets_lines_with_figures(config_file: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pipelines", "count", str(config_file)],
        capture_output=True,
        text=True,
        timeout=280,
        env=command_with_hook(tmp_path),
        check=True,
    )
    lines = re.findall(
        r"^\[1/1\] counting: (\d+)%, \S+ kB, \S+ \w+/s, .*\d+ documents, 0 rejects",
        done.stderr,
        re.MULTILINE,
    )
    assert len({*lines}) >= 2
    assert "\u2501" not in done.stderr
    assert "\x1b" not in done.stderr
