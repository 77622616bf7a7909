"""Predict the time of counting or encoding on more cores of one machine from measurements.

    .venv/bin/python -m pip install py-spy
    .venv/bin/python benchmarks/cores.py count|encode CONFIG

Three runs of the command on an otherwise idle machine give what the model needs, and one to compare
it with:

- `work`: seconds of the tasks with one worker, from `run.json`;
- `serial`: the other seconds of the command, in which no task runs;
- `locked`: seconds of the tasks that hold Python's global lock (samples of py-spy);
- the seconds with two workers.

Workers that are threads need the lock one after another, and everything else at the same time: a
closed queue with one server, whose throughput mean value analysis gives. It leaves out what two
threads do to each other in memory and on the disk.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from pipelines.config import load_config

CORES = (1, 2, 4, 8, 16, 32, 64)
_RATE = 250  # samples a second
_DIRECTORIES = {"count": "counts", "encode": "tokens"}
# Functions that do tasks, in frames of py-spy.
_TASKS = {"count": ("count (pipelines/counting/", "merge_shard ("), "encode": ("write_task (",)}


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Seconds of a command with one worker.

    Attributes:
        serial: Seconds in which no task runs.
        work: Seconds of the tasks.
        locked: Part of `work` that holds Python's global lock.
    """

    serial: float
    work: float
    locked: float

    def scaled(self, factor: float) -> Measured:
        """Return the same for so many times the text."""
        return replace(self, work=self.work * factor, locked=self.locked * factor)

    def seconds(self, workers: int) -> float:
        """Return the predicted seconds with a number of workers, each with a core.

        >>> one = Measured(serial=1, work=8, locked=1)
        >>> [round(one.seconds(workers), 2) for workers in (1, 2, 64)]
        [9.0, 5.06, 2.0]
        """
        waiting = 0.0  # workers that hold the lock or wait for it, on average
        work = self.work
        for number in range(1, workers + 1):
            response = self.locked * (1 + waiting)
            work = (self.work - self.locked + response) / number
            waiting = response / work
        return self.serial + work


def main(stage: str, config: str) -> None:
    """Measure a command, and print what the model says."""
    output = Path(load_config(Path(config), []).output_path) / _DIRECTORIES[stage]
    command = [str(Path(sys.executable).with_name("beam-bpe")), stage, config, "--restart"]
    wall, work = _run([*command, "--set", "beam.workers=1"], output)
    with tempfile.NamedTemporaryFile("r") as samples:
        spy = [str(Path(sys.executable).with_name("py-spy")), "record", "--gil", "--subprocesses"]
        spy += ["--rate", str(_RATE), "--format", "raw", "--output", samples.name, "--"]
        _run([*spy, *command, "--set", "beam.workers=1"], output)
        locked = sum(
            int(line.rpartition(" ")[2])
            for line in samples
            if any(function in line for function in _TASKS[stage])
        )
    two, _ = _run([*command, "--set", "beam.workers=2"], output)
    measured = Measured(serial=wall - work, work=work, locked=locked / _RATE)
    print(measured)
    print(f"two workers: {two:.2f} s, {wall / two:.2f} times one\n")
    print("| workers | seconds | times one | times one, 100 times the text |\n|---|---|---|---|")
    for workers in CORES:
        times = [
            text.seconds(1) / text.seconds(workers) for text in (measured, measured.scaled(100))
        ]
        print(f"| {workers} | {measured.seconds(workers):.2f} | {times[0]:.1f} | {times[1]:.1f} |")


def _run(command: list[str], output: Path) -> tuple[float, float]:
    """Run a command. Return its seconds, and those of its tasks."""
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seconds = time.perf_counter() - begun
    metrics = json.loads((output / "run.json").read_text())["metrics"]
    parts = [value["sum"] for name, value in metrics.items() if name.endswith("_microseconds")]
    return seconds, sum(parts) / 1e6


if __name__ == "__main__":
    main(*sys.argv[1:])
