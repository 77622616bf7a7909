"""Progress in a notebook: one display, updated in its place."""

from __future__ import annotations

import signal
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from pipelines.console import notebook, progress
from pipelines.supervisor import deferred_interruption


class _Outputs:
    """Displays of a cell, with all their contents."""

    def __init__(self) -> None:
        self.made: list[list[dict[str, str]]] = []

    def display(self, content: dict[str, str], *, raw: bool, display_id: bool) -> Any:
        assert raw and display_id
        contents = [content]
        self.made.append(contents)
        return SimpleNamespace(update=lambda content, raw: contents.append(content))


@pytest.fixture
def outputs(monkeypatch: pytest.MonkeyPatch) -> _Outputs:
    made = _Outputs()
    shell = SimpleNamespace(kernel=object())
    module = SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", module)  # type: ignore[arg-type]
    place = SimpleNamespace(display=made.display)
    monkeypatch.setitem(sys.modules, "IPython.display", place)  # type: ignore[arg-type]
    monkeypatch.setattr(notebook, "_SECONDS", 0.01)
    return made


def test_a_command_has_one_display_whose_lines_stay(
    outputs: _Outputs, capfd: pytest.CaptureFixture[str]
) -> None:
    with progress.shown("auto", "reading <b>"):
        progress.leave("estimate", "3 documents")
        progress.start_stage("count")
        with progress.show("counting", 4, planned=8000):
            progress.note(documents=3, bytes=2000, tasks=1, planned=2000, finished_bytes=2000)
            time.sleep(0.1)
        progress.end_stage("count", "done", 1.0, 2000)
    (contents,) = outputs.made
    assert "reading &lt;b&gt;" in contents[0]["text/html"]
    assert any('<progress max="1" value="0.2500"' in c["text/html"] for c in contents)
    last = contents[-1]
    assert "<progress" not in last["text/html"]
    assert last["text/plain"].splitlines() == [
        "estimate: 3 documents",
        "[1/1] counted: 2.0 kB in 1.0 s (2.0 kB/s), 3 documents, 0 rejects",
    ]
    assert capfd.readouterr() == ("", "")


def test_work_of_a_program_that_is_short_shows_nothing(outputs: _Outputs) -> None:
    with progress.show("checking", 4):
        pass
    assert outputs.made == []


def test_an_interruption_leaves_what_is_kept(outputs: _Outputs) -> None:
    with pytest.raises(KeyboardInterrupt), progress.shown("auto", "reading"):
        progress.expect(["count"])
        raise KeyboardInterrupt
    assert outputs.made[0][-1]["text/plain"].startswith(
        "stopped: Interrupted before a stage began."
    )


def test_other_programs_with_ipython_get_no_display(
    outputs: _Outputs, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: SimpleNamespace())
    with progress.shown("auto", "reading"):
        pass
    assert outputs.made == [] and capfd.readouterr().err == "reading\n"


def test_commands_in_cells_draw_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    assert progress.has_terminal()
    monkeypatch.setenv("JPY_PARENT_PID", "1")
    assert not progress.has_terminal()


# --- interruptions while Beam is imported


def test_an_interruption_waits_for_the_end_of_the_block() -> None:
    done = False
    with pytest.raises(KeyboardInterrupt), deferred_interruption():
        signal.raise_signal(signal.SIGINT)
        done = True
    assert done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_in_the_block_wins_over_the_interruption() -> None:
    with pytest.raises(KeyError), deferred_interruption():
        signal.raise_signal(signal.SIGINT)
        raise KeyError


def test_threads_leave_signals_alone() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen: list[object] = []

    def run() -> None:
        with deferred_interruption():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [before]
