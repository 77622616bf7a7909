"""Helpers for tests of progress: a command with slow tasks, and its display on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

from build_support import PACKAGES, some_text, write_corpus

# Workers take a while for each task, and what draws the bar is there before they begin, which takes
# long on a loaded machine. It runs in the command's child and in its workers.
_SLOW_TASKS = """
import logging, time
import rich.console, rich.progress, rich.table
logging.getLogger().addFilter(lambda record: "apitools not found" not in record.getMessage())
from pipelines.counting import commits
from pipelines.console import displays
displays.BAR_SECONDS = displays.LINE_SECONDS = 0.05
read = commits.read_task
commits.read_task = lambda *given: (time.sleep(0.25), read(*given))[1]
"""


def on_a_terminal(directory: Path, *arguments: object) -> str:
    """Return the display of `beam-bpe` on 120 columns, with one line per state of the bar."""
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
    """Return the environment of a command whose tasks are slow."""
    indented = "".join(f"    {line}\n" for line in _SLOW_TASKS.strip().splitlines())
    (directory / "sitecustomize.py").write_text(
        f"import os\nif 'BEAM_BPE_STATUS_DIR' in os.environ:\n{indented}"
    )
    path = f"{directory}{os.pathsep}{PACKAGES}"
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "TERM": "xterm-256color",
        "BEAM_BPE_PROGRESS": "auto",
    }
    environment.pop("COLUMNS", None)
    return environment


def write_configuration(directory: Path) -> Path:
    """Write a configuration with 8 tasks that counts into `directory`/out."""
    write_corpus(directory / "data", {f"{i}.txt": some_text(12, start=12 * i) for i in range(8)})
    path = directory / "config.yaml"
    path.write_text(
        "output: out\n"
        "input: {files: [data/*.txt], range_bytes: 2000}\n"
        "tokenizer: {vocab_size: 300}\n"
        "counts: {shards: 2}\n"
    )
    return path


def check_progress(directory: Path, config_file: Path, *given: str) -> None:
    """Count with keys and Beam options. Check that the bar moves, and what it leaves behind."""
    keys = list(takewhile(lambda item: item != "--", given))
    settings = [item for key in keys for item in ("--set", key)]
    shown = on_a_terminal(directory, "count", config_file, *settings, *given[len(keys) :])
    states = re.findall(
        r"\[1/1\] counting \S+ +(\d+)% (\S+) kB, \S+ \w+/s,(?: \S+ s left,)? (\d+) documents", shown
    )
    percents = [int(state[0]) for state in states]
    documents = [int(state[2]) for state in states]
    assert len({*percents} - {0, 100}) >= 2
    assert documents == sorted(documents)
    assert documents[-1] <= 96
    lines = {line.split("\u2501")[0].split(":")[0].strip() for line in shown.splitlines()}
    before = {"", f"reading {config_file}", "listing the input files", "starting Beam", "estimate"}
    before.add("reading samples of the input")
    works = ("counting", "starting Beam", "merging counts", "counted")
    # Nothing else is shown: neither by Beam nor by its workers.
    assert lines <= before | {f"[1/1] {work}" for work in works}
    assert re.search(r"^\[1/1\] counted: \S+ kB in \S+ s \(\S+ \w+/s\), 96 documents", shown, re.M)
