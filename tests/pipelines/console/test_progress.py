from __future__ import annotations

import time

import pytest

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
