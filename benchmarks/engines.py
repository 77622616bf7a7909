"""How much time and memory do embedded Flink and a Flink cluster take beside the DirectRunner?

    .venv/bin/python benchmarks/engines.py             1 GB of code, three rounds
    .venv/bin/python benchmarks/engines.py --quick     8 MB, one round

Each engine counts and encodes the same text with two workers:

- DirectRunner: threads of the launcher;
- embedded Flink: Flink in the process of the job server, with threads of the launcher as workers;
- Flink cluster: two TaskManagers at parallelism 2, with processes of a pool as workers.

The engines are those of the tests (`tests/engines/engine_support.py`), so this script runs in the
environment of the tests. The runners alternate. The script prints a table and writes it to
`docs/runners.md`, and its figures to `benchmarks/engines.json`; with `--quick` it writes nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import command
import corpora
import measure
from corpora import QUICK_VOCAB_SIZE, VOCAB_SIZE
from measure import Case

sys.path.insert(0, str(corpora.ROOT / "tests" / "engines"))

import engine_support

RESULTS = Path(__file__).with_name("engines.json")
PAGE = corpora.ROOT / "docs" / "runners.md"
_MARKS = ("<!-- engines: begin -->\n", "<!-- engines: end -->")
STAGES = {"count": "counts", "encode": "tokens"}
COMMAND, JOB_SERVER, WORKER_PROCESSES = "command", "job server", "Python workers"
KINDS = (COMMAND, JOB_SERVER, "JobManager", "TaskManagers", WORKER_PROCESSES)
WORKERS = 2
_POLL_SECONDS = 0.05
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, kw_only=True)
class Engine:
    """An engine that runs pipelines.

    Attributes:
        beam: the section `beam` of the configuration.
        processes: ids of the engine's running processes, by kind.
    """

    beam: Mapping[str, Any]
    processes: Mapping[str, Sequence[int]] = field(default_factory=dict)


@dataclass
class Use:
    """Processor seconds by process id, and peak memory, of all processes of a kind."""

    seconds: dict[int, float] = field(default_factory=dict)
    peak_bytes: int = 0


def main() -> None:
    """Run the benchmark that the command line selects."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="on little text, one round")
    parser.add_argument("--rounds", type=int, help="samples of each, 3 by default")
    arguments = parser.parse_args()
    quick = arguments.quick
    rounds = arguments.rounds or (1 if quick else 3)
    texts = corpora.texts(quick=quick)
    text = texts[-1] if quick else corpora.large(texts)
    if not quick and not corpora.CODE_CORPUS.is_file():
        print("no corpus of code: `make bench-data` fetches it; smaller texts replace it")
    load = os.getloadavg()[0]
    print(f"{text.name}, {text.bytes / 1e6:.0f} MB, {WORKERS} workers, load before {load:.2f}")
    samples = [
        sample
        for stage in STAGES
        for sample in ask(
            Case(
                work=stage,
                text=text.name,
                path=text.path,
                bytes=text.bytes,
                threads=WORKERS,
                options={
                    "stage": stage,
                    "vocab_size": QUICK_VOCAB_SIZE if quick else VOCAB_SIZE,
                },
            ),
            rounds,
        )
    ]
    results = {"machine": measure.machine(), "text": text.bytes, "load": load, "samples": samples}
    print(render(results))
    if not quick:
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        before, _, rest = PAGE.read_text("utf-8").partition(_MARKS[0])
        after = rest.partition(_MARKS[1])[2]
        PAGE.write_text("".join((before, _MARKS[0], render(results), _MARKS[1], after)), "utf-8")


def ask(case: Case, rounds: int) -> Iterator[dict[str, Any]]:
    """Yield the samples of a stage, after one untimed run of each runner.

    Raises:
        RuntimeError: two runners wrote different bytes.
    """
    if case.options["stage"] == "encode":
        command.make_tokenizer(case)
    with contextlib.ExitStack() as stack:
        engines = {name: stack.enter_context(make()) for name, make in ENGINES.items()}
        first: list[tuple[str, str]] | None = None
        for number in range(rounds + 1):
            for name, engine in engines.items():
                sample, made = run(case, engine)
                first = first or made
                if made != first:
                    raise RuntimeError(
                        f"{case.work} on {name}: other bytes than on the DirectRunner"
                    )
                if number:
                    yield {"stage": case.work, "runner": name, **sample}


# --- engines ---------------------------------------------------------------------------------


@contextlib.contextmanager
def direct() -> Iterator[Engine]:
    """Yield the DirectRunner with threads of the launcher."""
    yield Engine(beam={"workers": WORKERS})


@contextlib.contextmanager
def embedded() -> Iterator[Engine]:
    """Yield Flink in the job server, with threads of the launcher as workers."""
    yield Engine(beam=_flink({"flink_master": "[local]"}))


@contextlib.contextmanager
def cluster() -> Iterator[Engine]:
    """Start a JobManager, two TaskManagers and a worker pool, each a process."""
    directory = command.scratch()
    place = Path(directory.name)
    with (
        directory,
        engine_support.flink_cluster(place / "cluster") as running,
        engine_support.worker_pool(place / "pool") as pool,
    ):
        yield Engine(
            beam=_flink(
                {
                    "flink_master": running.address,
                    "environment_type": "EXTERNAL",
                    "environment_config": pool.address,
                }
            ),
            processes={
                "JobManager": [running.processes["jobmanager"].pid],
                "TaskManagers": [
                    process.pid
                    for name, process in running.processes.items()
                    if name.startswith("taskmanager")
                ],
                WORKER_PROCESSES: [pool.process.pid],
            },
        )


def _flink(options: Mapping[str, Any]) -> dict[str, Any]:
    jar = engine_support.flink_directory() / "job-server.jar"
    return {
        "runner": "FlinkRunner",
        "workers": WORKERS,
        "options": {
            "flink_version": engine_support.FLINK_VERSION,
            "flink_job_server_jar": str(jar),
            **options,
        },
    }


ENGINES: dict[str, Callable[[], contextlib.AbstractContextManager[Engine]]] = {
    "DirectRunner": direct,
    "embedded Flink": embedded,
    "Flink cluster": cluster,
}


# --- watching --------------------------------------------------------------------------------


def run(case: Case, engine: Engine) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Run the stage; return its time and memory, and the checksums of its files."""
    stage = case.options["stage"]
    with command.scratch() as name:
        directory = Path(name)
        given = command.write_build(stage, case, WORKERS, directory, engine.beam)
        made = directory / "output" / STAGES[stage]
        begun = time.perf_counter()
        process = subprocess.Popen(given, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        with _watched(process.pid, engine, made) as (uses, first_file):
            _, errors = process.communicate()
            seconds = time.perf_counter() - begun
        if process.returncode != 0:
            raise RuntimeError(f"{' '.join(given)} failed:\n{errors.decode()}")
        sample = {
            "seconds": round(seconds, 2),
            "stage_seconds": command.stage_seconds(made),
            "first_file": round(first_file[0] - begun, 2) if first_file else None,
            "processor_seconds": {k: round(sum(u.seconds.values()), 2) for k, u in uses.items()},
            "peak_bytes": {kind: use.peak_bytes for kind, use in uses.items()},
        }
        return sample, command.file_checksums(made)


@contextlib.contextmanager
def _watched(root: int, engine: Engine, made: Path) -> Iterator[tuple[dict[str, Use], list[float]]]:
    """Poll the processes, and record when a worker starts its first file."""
    uses = {kind: Use() for kind in KINDS}
    first_file: list[float] = []
    finished = threading.Event()
    before = dict(_figures(root, engine, lambda figures: figures[0]))

    def look() -> None:
        sizes = dict.fromkeys(KINDS, 0)
        for (kind, process), (seconds, size) in _figures(root, engine, lambda f: f):
            sizes[kind] += size
            uses[kind].seconds[process] = seconds - before.get((kind, process), 0.0)
        for kind, size in sizes.items():
            uses[kind].peak_bytes = max(uses[kind].peak_bytes, size)
        begun = (*made.glob("_runs/*/*"), *made.glob(".*.parquet.*.tmp"), *made.glob("*.parquet"))
        if not first_file and begun:
            first_file.append(time.perf_counter())

    def watch() -> None:
        while not finished.wait(_POLL_SECONDS):
            look()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield uses, first_file
    finally:
        finished.set()
        watcher.join()


def _figures(
    root: int, engine: Engine, of: Callable[[tuple[float, int]], Any]
) -> Iterator[tuple[tuple[str, int], Any]]:
    """Yield processor seconds and resident memory of every process, by kind and id."""
    places = [(root, COMMAND)]
    places += [(process, kind) for kind, found in engine.processes.items() for process in found]
    while places:
        process, kind = places.pop()
        directory = Path("/proc") / str(process)
        try:
            name, _, rest = (directory / "stat").read_text().partition("(")[2].rpartition(")")
            values = rest.split()
            places += [(child, kind) for child in command.children(process)]
        except OSError:  # the process has ended
            continue
        figures = ((int(values[11]) + int(values[12])) / _TICKS, int(values[21]) * _PAGE)
        yield (JOB_SERVER if (kind, name) == (COMMAND, "java") else kind, process), of(figures)


# --- output ----------------------------------------------------------------------------------


def render(results: Mapping[str, Any]) -> str:
    """Return the medians as Markdown tables, with a description of the machine."""
    samples, machine = results["samples"], results["machine"]
    runs = {
        (stage, runner): [s for s in samples if (s["stage"], s["runner"]) == (stage, runner)]
        for stage in STAGES
        for runner in ENGINES
    }
    times = {"s, command": "seconds", "s, stage": "stage_seconds", "s to first file": "first_file"}
    lines = [_row(["stage", "runner", *times]), _row(["---"] * (2 + len(times)))]
    lines += [
        _row([*place, *(_median([run[figure] for run in found]) for figure in times.values())])
        for place, found in runs.items()
    ]
    heads = [f"{stage}: {figure}" for stage in STAGES for figure in ("processor s", "MB")]
    lines += ["", _row(["runner", "process", *heads]), _row(["---"] * (2 + len(heads)))]
    for runner in ENGINES:
        for kind in KINDS:
            found = [runs[stage, runner] for stage in STAGES]
            if any(run["peak_bytes"][kind] for stage in found for run in stage):
                cells = [cell for stage in found for cell in _use(stage, kind)]
                lines.append(_row([runner, kind, *cells]))
    lines += [
        "",
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB; "
        f"{results['text'] / 1e6:,.0f} MB of text, medians of {len(samples) // len(runs)} rounds, "
        f"load before {results['load']:.2f}. MB: the most that processes of a kind had together.",
    ]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _use(runs: Sequence[Mapping[str, Any]], kind: str) -> tuple[str, str]:
    seconds = [run["processor_seconds"][kind] for run in runs]
    return _median(
        seconds
    ), f"{statistics.median(run['peak_bytes'][kind] for run in runs) / 1e6:.0f}"


def _median(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.median(known):.1f}" if known else "–"


if __name__ == "__main__":
    main()
