"""A worker of the DirectRunner that dies ends the command with a message; nothing waits for it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from build_support import ROOT
from engine_support import Work, arguments

# Python imports this by itself; it has the first batch that a process counts end it.
SITE = """
import builtins, os, sys
_import = builtins.__import__
def patched(name, *rest, **kw):
    module = _import(name, *rest, **kw)
    counting = sys.modules.get("pipelines.counting")
    if counting is not None and hasattr(counting, "TaskCounter"):
        builtins.__import__ = _import
        counting.TaskCounter._count_batch = lambda *_: os.abort()
    return module
builtins.__import__ = patched
"""


@pytest.mark.parametrize("mode", ["multi_threading", "multi_processing"])
def test_native_code_that_aborts_ends_the_command_with_signal_stage_and_task(
    work: Work, tmp_path: Path, mode: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(SITE)
    option = f"--direct_running_mode={mode}"
    done = subprocess.run(
        arguments(work.configuration, tmp_path / "out", "beam.workers=2", "--", option),
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
    )
    assert done.returncode == 8
    assert "SIGABRT" in done.stderr
    assert re.search(r"at work on: count task \d+ of \d+ \(.*kjv", done.stderr)
