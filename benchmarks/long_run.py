"""Build, interrupt, resume and add for a long time, and watch what grows.

    .venv/bin/python benchmarks/long_run.py out/long-run --seconds 3600              in this process
    .venv/bin/python benchmarks/long_run.py out/long-run --seconds 3600 --commands   by the command

Each cycle makes the same dataset: a build, an addition, a verification and an export, interrupted
at random moments and resumed. Its files must equal those of the first cycle, which is not
interrupted. After each cycle, memory, open files, threads, processes and temporary files are
written to `samples.csv`. The exit code is 1 if one of them has grown. It needs /proc.
"""

from __future__ import annotations

import argparse
import csv
import gc
import gzip
import hashlib
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, Final, Protocol

import command
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

SEPARATOR: Final = "<|endoftext|>"
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_DOCUMENTS: Final = 40
_POLL_SECONDS: Final = 0.1
_SECONDS_TO_END: Final = 60.0
# Files that depend on the machine, the time or paths.
_NOT_COMPARED: Final = {"run.json", "configuration.json", "report.html"}
# It may end before it is interrupted. 8: its child was killed. A command without a child ends by
# SIGTERM itself, and by SIGINT while Python imports it.
_CODES_OF_INTERRUPTION: Final = {
    *(0, 8, 130, 143),
    *(-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT),
}
_MULTIPLE_PROCESSES: Final = "--direct_running_mode=multi_processing"
_SHARE_OF_MULTIPLE_PROCESSES: Final = 0.1
_MINIMUM_CYCLES: Final = 6
# Memory of a process varies between cycles; what leaks in each of them exceeds this soon.
_ALLOWED_GROWTH: Final = {"memory": 1.1, "objects": 1.02}


@dataclass(frozen=True)
class Sample:
    """State after a cycle.

    Attributes:
        cycle: Number of the cycle.
        seconds: Time since the start.
        interruptions: Number of interruptions in this cycle.
        memory: Resident bytes; by the command, the largest sum of its processes.
        open_files, threads: Numbers of them; by the command, the largest.
        processes: Processes that are left; by the command, of all cycles.
        temporary_files: Files and directories that are left in the temporary directory.
        objects: Python objects that the garbage collector tracks; by the command, 0.
    """

    cycle: int
    seconds: float
    interruptions: int
    memory: int
    open_files: int
    threads: int
    processes: int
    temporary_files: int
    objects: int


_WATCHED: Final = ("memory", "open_files", "threads", "processes", "temporary_files", "objects")


class Runner(Protocol):
    """Executes the steps of a cycle, here or by the command."""

    def run(self, step: str, folder: Path, beam_args: Sequence[str]) -> None:
        """Execute a step to its end.

        Raises:
            RuntimeError: It failed.
        """

    def interrupt(
        self, step: str, folder: Path, beam_args: Sequence[str], numbers: random.Random
    ) -> bool:
        """Begin a step and interrupt it at a random moment; return False if it ended before."""

    def sample(self) -> dict[str, int]:
        """Return what `Sample` contains of memory, files, threads and processes."""


class InProcess:
    """Steps as calls of Python functions in this process, as in a notebook or a service."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def run(self, step: str, folder: Path, beam_args: Sequence[str]) -> None:
        """See `Runner`."""
        begun = time.monotonic()
        _call(step, folder, beam_args)
        self._seconds.setdefault(step, time.monotonic() - begun)

    def interrupt(
        self, step: str, folder: Path, beam_args: Sequence[str], numbers: random.Random
    ) -> bool:
        """See `Runner`."""
        previous = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
        try:
            signal.setitimer(signal.ITIMER_REAL, numbers.uniform(0.001, self._seconds[step]))
            _call(step, folder, beam_args)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            return True
        finally:
            signal.signal(signal.SIGALRM, previous)
        return False

    def sample(self) -> dict[str, int]:
        """See `Runner`."""
        gc.collect()
        return {
            "memory": int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE,
            "open_files": _count("/proc/self/fd"),
            "threads": threading.active_count(),
            "processes": len(command.children(os.getpid())),
            "objects": len(gc.get_objects()),
        }


def _call(step: str, folder: Path, beam_args: Sequence[str]) -> None:
    import pipelines
    from pipelines.exports.destinations import export_dataset
    from pipelines.exports.formats import ExportOptions

    output = folder / "output"
    if step in ("build", "add"):
        getattr(pipelines.build, step)(folder / "build.yaml", beam_args=beam_args)
    elif step == "verify":
        found = pipelines.verify(output, sources=True)
        if found.problems:
            raise RuntimeError(f"verify found problems: {found.problems}")
    else:
        export_dataset(str(output), str(folder / "export"), ExportOptions(to="npy"))


class ByCommand:
    """Steps as commands, each a process with children."""

    def __init__(self, temporary: Path) -> None:
        self._temporary = temporary
        self._seconds: dict[str, float] = {}
        self._largest: dict[str, int] = {}
        self._left = 0

    def run(self, step: str, folder: Path, beam_args: Sequence[str]) -> None:
        """See `Runner`."""
        begun = time.monotonic()
        process = self._start(step, folder, beam_args)
        self._wait(process, float("inf"))
        _check_code(step, process, {0})
        self._left += len(_session(process.pid))
        self._seconds.setdefault(step, time.monotonic() - begun)

    def interrupt(
        self, step: str, folder: Path, beam_args: Sequence[str], numbers: random.Random
    ) -> bool:
        """See `Runner`."""
        kind = numbers.choice(["SIGINT", "SIGTERM", "launcher", "child", "all"])
        process = self._start(step, folder, beam_args)
        is_running = self._wait(process, numbers.uniform(0.0, self._seconds[step])) is None
        if is_running:
            if kind in ("SIGINT", "SIGTERM"):
                process.send_signal(signal.Signals[kind])
            elif kind == "launcher":
                process.kill()
            else:
                for one in _session(process.pid):
                    if kind == "all" or one != process.pid:
                        with suppress(ProcessLookupError):
                            os.kill(one, signal.SIGKILL)
        end = time.monotonic() + _SECONDS_TO_END
        process.wait(_SECONDS_TO_END)
        _check_code(step, process, _CODES_OF_INTERRUPTION)
        while _session(process.pid) and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)
        self._left += len(_session(process.pid))
        if is_running and kind == "all":  # no process was left that could remove them
            _empty(self._temporary)
        return is_running

    def sample(self) -> dict[str, int]:
        """See `Runner`."""
        largest, self._largest = self._largest, {}
        return {**largest, "processes": self._left, "objects": 0}

    def _start(self, step: str, folder: Path, beam_args: Sequence[str]) -> subprocess.Popen[bytes]:
        output = folder / "output"
        arguments = {
            "build": [folder / "build.yaml"],
            "add": [folder / "build.yaml"],
            "verify": [output, "--sources"],
            "export": [output, folder / "export", "--to", "npy"],
        }[step]
        given = [step, *map(str, arguments), *(["--", *beam_args] if beam_args else [])]
        return subprocess.Popen(
            [str(Path(sys.executable).with_name("beam-bpe")), *given],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def _wait(self, process: subprocess.Popen[bytes], seconds: float) -> int | None:
        """Wait for a command and watch it; return its exit code, or None after these seconds."""
        end = time.monotonic() + seconds
        while (code := process.poll()) is None and time.monotonic() < end:
            found = dict.fromkeys(("memory", "open_files", "threads"), 0)
            for one in _session(process.pid):
                with suppress(OSError, ValueError, IndexError):  # it has ended
                    statm = Path(f"/proc/{one}/statm").read_text().split()
                    found["memory"] += (int(statm[1]) - int(statm[2])) * _PAGE
                    found["open_files"] += _count(f"/proc/{one}/fd")
                    found["threads"] += _count(f"/proc/{one}/task")
            for name, value in found.items():
                self._largest[name] = max(self._largest.get(name, 0), value)
            time.sleep(_POLL_SECONDS)
        return code


def _check_code(step: str, process: subprocess.Popen[bytes], expected: set[int]) -> None:
    assert process.stderr is not None
    with process.stderr as stream:
        errors = stream.read().decode()
    if process.returncode not in expected:
        raise RuntimeError(f"{step} ended with exit code {process.returncode}:\n{errors}")


def _session(leader: int) -> list[int]:
    """Return the processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it has ended
                status = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(status[3]) == leader and status[0] != "Z":
                    found.append(int(entry.name))
    return found


def _count(folder: str) -> int:
    return sum(1 for _ in Path(folder).iterdir())


def _empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


# --- a dataset -----------------------------------------------------------------------------------


def write_inputs(folder: Path) -> None:
    """Write a configuration, and files of text, JSON lines and Parquet."""
    data = folder / "data"
    data.mkdir(parents=True)
    for number in range(3):
        text = SEPARATOR.join(_documents(number))
        (data / f"text-{number}.txt").write_text(text)
    with gzip.GzipFile(data / "records.jsonl.gz", "wb", mtime=0) as file:
        for text in _documents(3):
            file.write(json.dumps({"text": text}).encode() + b"\n")
    table = pa.table({"text": _documents(4)})
    pq.write_table(table, data / "rows.parquet", row_group_size=_DOCUMENTS // 4)
    (data / "bad.txt").write_bytes(b"not UTF-8: \xff")
    (folder / "build.yaml").write_text(
        yaml.safe_dump(
            {
                "output": str(folder / "output"),
                "input": [
                    {"name": "texts", "files": [str(data / "*.txt")], "range_bytes": 20_000},
                    {"name": "records", "files": [str(data / "*.gz")], "format": "jsonl"},
                    {"name": "rows", "files": [str(data / "*.parquet")], "format": "parquet"},
                ],
                "tokenizer": {"vocab_size": 400, "special_tokens": [SEPARATOR]},
                "counts": {"shards": 3, "checkpoint_bytes": 1},
                "encode": {"validation_fraction": 0.3, "max_reject_fraction": 0.1},
                "beam": {"workers": 2},
            }
        )
    )


def add_input(folder: Path) -> None:
    """Write one more file."""
    (folder / "data" / "text-9.txt").write_text(SEPARATOR.join(_documents(9)))


def _documents(seed: int) -> list[str]:
    numbers = random.Random(seed)
    words = ["the", "cat", "sat", "on", "mat's", "12", "Ünïcode", "漢字", "don't", "\n\n"]
    return [" ".join(numbers.choices(words, k=300)) for _ in range(_DOCUMENTS)]


def checksums(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of the files of a dataset and its export, by their names."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for part in ("output", "export")
        for path in sorted((folder / part).rglob("*"))
        if path.is_file() and path.name not in _NOT_COMPARED
    }


def make_dataset(runner: Runner, folder: Path, numbers: random.Random | None) -> int:
    """Make a dataset, interrupted at random moments unless `numbers` is None; return how often."""
    write_inputs(folder)
    interruptions = 0
    for step in ("build", "add", "verify", "export"):
        if step == "add":
            add_input(folder)
        if numbers is not None:
            for _ in range(numbers.randint(0, 2)):
                beam_args = _choose_mode(step, numbers)
                interruptions += runner.interrupt(step, folder, beam_args, numbers)
        runner.run(step, folder, _choose_mode(step, numbers))
    return interruptions


def _choose_mode(step: str, numbers: random.Random | None) -> list[str]:
    runs_pipelines = step in ("build", "add") and numbers is not None
    if runs_pipelines and numbers.random() < _SHARE_OF_MULTIPLE_PROCESSES:
        return [_MULTIPLE_PROCESSES]
    return []


# --- cycles --------------------------------------------------------------------------------------


def main() -> int:
    """Run cycles until the time is over, and report what has grown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--commands", action="store_true", help="start a command for each step")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    samples = list(run_cycles(folder, arguments.seconds, arguments.seed, arguments.commands))
    print(json.dumps(summarize(samples), indent=1))
    problems = find_growth(samples)
    print(*problems, sep="\n")
    return int(bool(problems))


def run_cycles(folder: Path, seconds: float, seed: int, by_command: bool) -> Iterator[Sample]:
    """Run cycles for a time; yield a sample after each and append it to `samples.csv`.

    Raises:
        RuntimeError: A step failed, or the dataset differs from that of the first cycle.
    """
    begun = time.monotonic()
    with (
        _temporary_directory(folder / "temporary") as temporary,
        (folder / "samples.csv").open("w", newline="") as file,
    ):
        runner: Runner = ByCommand(temporary) if by_command else InProcess()
        writer = csv.writer(file)
        writer.writerow(field.name for field in fields(Sample))
        expected: Mapping[str, str] = {}
        cycle = 0
        while cycle < _MINIMUM_CYCLES or time.monotonic() - begun < seconds:
            place = folder / f"cycle-{cycle}"
            numbers = random.Random(f"{seed}-{cycle}") if cycle else None
            try:
                interruptions = make_dataset(runner, place, numbers)
                found = checksums(place)
                expected = expected or found
                if found != expected:
                    names = sorted(name for name, _ in expected.items() ^ found.items())
                    raise RuntimeError(f"these files differ: {', '.join(names)}")
            except Exception as error:
                error.add_note(f"in cycle {cycle} of seed {seed}; its files are in {place}")
                raise
            shutil.rmtree(place)
            left = sum(1 for _ in temporary.rglob("*"))
            sample = Sample(
                cycle=cycle,
                seconds=round(time.monotonic() - begun, 1),
                interruptions=interruptions,
                temporary_files=left,
                **runner.sample(),
            )
            writer.writerow(astuple(sample))
            file.flush()
            yield sample
            cycle += 1


def summarize(samples: Sequence[Sample]) -> dict[str, Any]:
    """Return totals, and the largest value of each tenth of the cycles."""
    parts = min(10, len(samples))
    bounds = [len(samples) * part // parts for part in range(parts + 1)]
    return {
        "cycles": len(samples),
        "seconds": samples[-1].seconds,
        "interruptions": sum(sample.interruptions for sample in samples),
        "tenths": {
            name: [
                max(getattr(sample, name) for sample in samples[first:end])
                for first, end in itertools.pairwise(bounds)
            ]
            for name in _WATCHED
        },
    }


@contextmanager
def _temporary_directory(folder: Path) -> Iterator[Path]:
    folder.mkdir()
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"], tempfile.tempdir = str(folder), None
    try:
        yield folder
    finally:
        tempfile.tempdir = None
        os.environ.pop("TMPDIR")
        if before is not None:
            os.environ["TMPDIR"] = before


def find_growth(samples: Sequence[Sample]) -> list[str]:
    """Return what the last third of the cycles has more of than the second, with both values.

    The smallest values are compared, since workers that end and processes that work vary.
    """
    third = len(samples) // 3
    problems = []
    for name in _WATCHED:
        before, after = (
            min(getattr(sample, name) for sample in part)
            for part in (samples[third : 2 * third], samples[-third:])
        )
        if after > before * _ALLOWED_GROWTH.get(name, 1.0):
            problems.append(f"{name} grew from {before:,.0f} to {after:,.0f}")
    return problems


if __name__ == "__main__":
    sys.exit(main())
