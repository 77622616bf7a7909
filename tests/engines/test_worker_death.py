"""A worker of the DirectRunner that dies ends the command with a message; nothing waits for it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from engine_support import Work, arguments, environment, patched


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param("multi_threading", marks=pytest.mark.engines),
        pytest.param("multi_processing", marks=pytest.mark.smoke),
    ],
)
def test_native_code_that_aborts_ends_the_command_with_signal_stage_and_task(
    work: Work, tmp_path: Path, mode: str
) -> None:
    # The first batch that a process counts ends it.
    abort = "found.TaskCounter.add = lambda *_: os.abort()"
    path = patched(tmp_path / "path", "pipelines.counting.commits", "TaskCounter", abort)
    option = f"--direct_running_mode={mode}"
    done = subprocess.run(
        arguments(work.configuration, tmp_path / "out", "beam.workers=2", "--", option),
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(path),
    )
    assert done.returncode == 8
    assert "SIGABRT" in done.stderr
    # Whichever came first: one of each source may.
    assert re.search(r"tasks in progress: count task \d+ of \d+ \(\S*/examples/data/", done.stderr)
