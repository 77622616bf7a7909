"""Count and train on very much text on one machine, killed and resumed on the way.

    .venv/bin/python benchmarks/terabyte.py out/terabyte --kill 0.1 0.3 0.5 0.7 0.9    1 TB
    .venv/bin/python benchmarks/terabyte.py out/small --files 10 --blocks 100          1 GB

The text is made as it is read (generated_text.py), so it needs no disk and its counts are known.
The folder gets the configuration, what `beam-bpe plan` predicts, `samples.csv` (memory, open files,
threads and space over time) and at the end `result.json` and `plot.svg`. A run that was ended from
outside goes on when the same command is repeated.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, Final

import command
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml
from generated_text import BLOCK_BYTES, LAWS, PROTOCOL, SEPARATOR, Recipe

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_BENCHMARKS: Final = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Sample:
    """State of all processes of the command at a moment.

    Attributes:
        seconds: Time since the first start, without pauses between invocations of this program.
        attempt: Number of the start of the command.
        stage: Stage of the build.
        text_bytes: Bytes of text read since this start, according to the command.
        rss: Sum of resident memory.
        pss: Sum of resident memory, in which shared pages count once.
        open_files: Number of open files.
        threads: Number of threads.
        disk_bytes: Size of the output, and of temporary files elsewhere.
        cpu_seconds: Processor time since the first start.
    """

    seconds: float
    attempt: int
    stage: str
    text_bytes: int
    rss: int
    pss: int
    open_files: int
    threads: int
    disk_bytes: int
    cpu_seconds: float


def main() -> None:
    """Run the command to its end, check the counts, and write what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--law", choices=sorted(LAWS), default="code")
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--blocks", type=int, default=1000, help="megabytes of each file")
    parser.add_argument("--templates", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kill", type=float, nargs="*", default=[], metavar="FRACTION")
    parser.add_argument("--checkpoint-bytes", default="8GiB")
    parser.add_argument("--sample-seconds", type=float, default=5.0)
    parser.add_argument("--vocab-size", type=int, default=32_000)
    parser.add_argument("--min-count", type=int, default=20)
    arguments = parser.parse_args()
    recipe = Recipe(
        arguments.law, arguments.templates, arguments.seed, arguments.files, arguments.blocks
    )
    settings = {
        "output": "output",
        "input": {"files": [recipe.url], "separator": SEPARATOR.decode()},
        "counts": {"checkpoint_bytes": arguments.checkpoint_bytes},
        "tokenizer": {
            "pattern": "gpt2",
            "vocab_size": arguments.vocab_size,
            "min_count": arguments.min_count,
            "special_tokens": [SEPARATOR.decode()],
        },
        "encode": {"append": None, "max_reject_fraction": 0.01},
        "beam": {"workers": arguments.workers},
    }
    run = Run(arguments.folder.resolve(), settings, arguments.sample_seconds)
    run.plan()
    for fraction in sorted(arguments.kill)[run.kills :]:
        if run.is_finished or not run.train(kill_at=fraction):
            break
    if not run.is_finished:
        run.train()
    result = {**run.measured(recipe), "counts": check_counts(run.output / "counts", recipe)}
    (run.folder / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    draw(run.samples(), run.folder / "plot.svg")


class Run:
    """One build, over any number of starts of the command and of this program.

    Args:
        folder: Folder of all files.
        settings: Configuration of the build.
        sample_seconds: Seconds between samples.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], sample_seconds: float) -> None:
        self.sample_seconds = sample_seconds
        self.folder, self.output = folder, folder / "output"
        self._temporary = folder / "temporary"
        self._temporary.mkdir(parents=True, exist_ok=True)
        self._config = folder / "build.yaml"
        self._config.write_text(yaml.safe_dump(dict(settings), sort_keys=False))
        self._environment = {
            **os.environ,
            "TMPDIR": str(self._temporary),
            "PYTHONPATH": os.pathsep.join(map(str, (_register(folder), _BENCHMARKS))),
        }

    @property
    def is_finished(self) -> bool:
        """Return True if the tokenizer is complete."""
        return (self.output / "tokenizer" / "manifest.json").is_file()

    @property
    def kills(self) -> int:
        """Return the number of times that the command was killed so far."""
        return len(self._kills())

    def plan(self) -> None:
        """Write the plan, unless it is there."""
        path = self.folder / "plan.json"
        if not path.is_file():
            done = subprocess.run(
                self._command("plan", "--json"), env=self._environment, capture_output=True
            )
            if done.returncode:
                raise RuntimeError(done.stderr.decode())
            path.write_bytes(done.stdout)

    def train(self, kill_at: float | None = None) -> bool:
        """Run the command to its end, or kill it at a fraction of the text; return True if killed.

        Raises:
            RuntimeError: The command failed.
        """
        previous = self.samples()
        before = previous[-1] if previous else Sample(0.0, 0, "", 0, 0, 0, 0, 0, 0, 0.0)
        process = subprocess.Popen(
            self._command("train", "--progress", "json"),
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        watcher = _Watcher(process.pid, self, before)
        messages: list[str] = []
        try:
            assert process.stderr is not None
            for line in process.stderr:
                event = json.loads(line)
                watcher.see(event)
                if event["event"] == "error":
                    messages.append(event["message"])
                elif kill_at is not None and watcher.fraction >= kill_at:
                    kill(process.pid)
                    self._record_kill(watcher.fraction)
                    return True
        finally:
            kill(process.pid)
            process.wait()
            watcher.stop()
        if messages or not self.is_finished:
            raise RuntimeError("\n".join(messages) or "the command ended without a result")
        return False

    def samples(self) -> list[Sample]:
        """Return all samples so far."""
        path = self.folder / "samples.csv"
        if not path.is_file():
            return []
        kinds = {"int": int, "float": float, "str": str}
        convert = [kinds[str(field.type)] for field in fields(Sample)]
        with path.open(newline="") as file:
            rows = list(csv.reader(file))[1:]
        return [Sample(*(to(text) for to, text in zip(convert, row, strict=True))) for row in rows]

    def add_sample(self, sample: Sample) -> None:
        """Append a sample to the file."""
        path = self.folder / "samples.csv"
        is_new = not path.is_file()
        with path.open("a", newline="") as file:
            writer = csv.writer(file)
            if is_new:
                writer.writerow(field.name for field in fields(Sample))
            writer.writerow(astuple(sample))

    def disk_bytes(self) -> int:
        """Return the size of the output and of temporary files."""
        return _size(self.output) + _size(self._temporary)

    def measured(self, recipe: Recipe) -> dict[str, Any]:
        """Return times, peaks, and predictions beside what was measured."""
        samples = self.samples()
        counting = [sample for sample in samples if sample.stage == "count"]
        manifest = json.loads((self.output / "counts" / "manifest.json").read_text())
        totals = manifest["totals"]
        documents, bad = recipe.text.exact_documents(recipe.files * recipe.blocks)
        estimate = json.loads((self.folder / "plan.json").read_text())["estimate"]
        factor, exponent = LAWS[recipe.law]
        start = recipe.templates * BLOCK_BYTES
        law = factor * (recipe.bytes + start) ** exponent
        peak = max(counting, key=lambda sample: sample.pss)
        seconds, cpu = samples[-1].seconds, samples[-1].cpu_seconds
        return {
            "bytes": recipe.bytes,
            "files": recipe.files,
            "kills": self._kills(),
            "seconds": round(seconds, 1),
            "cpu_seconds": round(cpu, 1),
            "megabytes_per_second": round(recipe.bytes / seconds / 1e6, 1),
            "megabytes_per_cpu_second": round(recipe.bytes / cpu / 1e6, 1),
            "documents": {"expected": documents, "found": totals["documents"]},
            "rejected": {"expected": bad, "found": totals["rejected"]},
            "peaks": {
                name: max(getattr(sample, name) for sample in samples)
                for name in ("rss", "pss", "open_files", "threads", "disk_bytes")
            },
            "tenths_of_counting": {
                name: _tenths([getattr(sample, name) for sample in counting])
                for name in ("pss", "open_files", "threads")
            },
            "predictions": {
                "distinct pre-tokens, Heaps' law": _compare(law, totals["distinct_pretokens"]),
                "distinct pre-tokens, plan": _compare(
                    estimate["distinct_pretokens"], totals["distinct_pretokens"]
                ),
                "documents, plan": _compare(estimate["documents"], documents + bad),
                "text, plan": _compare(estimate["text_bytes"], totals["bytes"]),
                "files of counts, plan": _compare(
                    estimate["count_file_bytes"],
                    sum(shard["bytes"] for shard in manifest["shards"]),
                ),
                "memory of counting, plan": _compare(estimate["memory"]["count"], peak.pss),
            },
        }

    def _command(self, name: str, *options: str) -> list[str]:
        program = Path(sys.executable).with_name("beam-bpe")
        return [str(program), name, str(self._config), *options]

    def _kills(self) -> list[float]:
        path = self.folder / "kills.json"
        kills: list[float] = json.loads(path.read_text()) if path.is_file() else []
        return kills

    def _record_kill(self, fraction: float) -> None:
        (self.folder / "kills.json").write_text(json.dumps([*self._kills(), round(fraction, 4)]))


class _Watcher:
    """Thread that samples a command every few seconds.

    Args:
        process: Its process.
        run: The run that gets the samples.
        before: Last sample of the previous start.
    """

    def __init__(self, process: int, run: Run, before: Sample) -> None:
        self._process, self._run, self._before = process, run, before
        self.fraction = 0.0
        self._stage, self._bytes = "", 0
        self._begun = time.monotonic()
        self._ticks: dict[tuple[int, str], int] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def see(self, event: Mapping[str, Any]) -> None:
        """Take note of an event of the command."""
        if event["event"] == "progress":
            self._stage = event["stage"]
            if self._stage == "count":
                self.fraction = event["fraction"] or 0.0
                self._bytes = event["bytes"]

    def stop(self) -> None:
        """End the thread."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(self._run.sample_seconds):
            self._run.add_sample(self._sample())

    def _sample(self) -> Sample:
        totals = dict.fromkeys(("rss", "pss", "files", "threads"), 0)
        for process in descendants(self._process):
            with contextlib.suppress(OSError, ValueError):  # the process has ended
                place = Path(f"/proc/{process}")
                status = (place / "stat").read_text().rpartition(")")[2].split()
                self._ticks[process, status[19]] = int(status[11]) + int(status[12])
                totals["threads"] += int(status[17])
                totals["files"] += sum(1 for _ in (place / "fd").iterdir())
                for line in (place / "smaps_rollup").read_text().splitlines():
                    name, _, value = line.partition(":")
                    if name in ("Rss", "Pss"):
                        totals[name.lower()] += int(value.split()[0]) * 1024
        return Sample(
            round(self._before.seconds + time.monotonic() - self._begun, 1),
            self._before.attempt + 1,
            self._stage,
            self._bytes,
            totals["rss"],
            totals["pss"],
            totals["files"],
            totals["threads"],
            self._run.disk_bytes(),
            round(self._before.cpu_seconds + sum(self._ticks.values()) / _TICKS, 1),
        )


def _register(folder: Path) -> Path:
    """Return a folder that makes the file system known to every process with it in PYTHONPATH."""
    package = folder / "registered" / "generated_text-1.dist-info"
    package.mkdir(parents=True, exist_ok=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: generated-text\nVersion: 1\n")
    (package / "entry_points.txt").write_text(
        f"[fsspec.specs]\n{PROTOCOL} = generated_text:GeneratedText\n"
    )
    return package.parent


def descendants(process: int) -> list[int]:
    """Return the ids of a process and of all that it started."""
    found = [process]
    for one in found:
        with contextlib.suppress(OSError):
            found += command.children(one)
    return found


def kill(process: int) -> None:
    """Kill a process and all that it started, at once."""
    for one in descendants(process):
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)


def _size(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += (Path(place) / name).lstat().st_size
    return total


def _tenths(values: Sequence[int]) -> list[int]:
    """Return the largest value of each tenth of a series."""
    parts = np.array_split(np.array(values), min(10, len(values)))
    return [int(part.max()) for part in parts]


def _compare(predicted: float, measured: float) -> dict[str, float]:
    ratio = round(predicted / measured, 3)
    return {"predicted": round(predicted), "measured": measured, "ratio": ratio}


def check_counts(counts: Path, recipe: Recipe) -> dict[str, Any]:
    """Compare finished counts with the exact ones; return the number of each kind of difference."""
    blocks = recipe.files * recipe.blocks
    rare = recipe.text.rare_words
    missing = np.ones(rare.introduced(blocks)[0], bool)
    expected = dict(recipe.text.exact_counts(blocks))
    distinct = len(missing) + len(expected)
    wrong = repeated = 0
    for batch in _batches(counts):
        pretokens, found = batch["pretoken"], batch["count"].to_numpy()
        numbers = np.full(len(found), -1, np.int64)
        places = np.flatnonzero(pc.equal(pc.binary_length(pretokens), 9).to_numpy(False))
        words = pretokens.take(pa.array(places)).cast(pa.binary(9))
        words = np.frombuffer(words.buffers()[1], np.uint8).reshape(-1, 9)
        spaced = words[:, 0] == ord(" ")
        eight = np.ascontiguousarray(words[:, 1:]).view(np.uint64).reshape(-1)
        numbers[places] = np.where(spaced, rare.read(eight), -1)
        numbers[numbers >= len(missing)] = -1
        is_rare = numbers >= 0
        chosen = numbers[is_rare]
        wrong += int((rare.counts(chosen, blocks) != found[is_rare]).sum())
        repeated += int((~missing[chosen]).sum())
        missing[chosen] = False
        others = pretokens.filter(pa.array(~is_rare)).to_pylist()
        for pretoken, count in zip(others, found[~is_rare].tolist(), strict=True):
            wrong += expected.pop(pretoken, None) != count
    return {
        "distinct": distinct,
        "wrong": wrong,
        "repeated": repeated,
        "missing": int(missing.sum()) + len(expected),
    }


def _batches(counts: Path) -> Iterator[pa.RecordBatch]:
    for path in sorted(counts.glob("shard-*.parquet")):
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(1 << 18, columns=["pretoken", "count"])


def draw(samples: Sequence[Sample], path: Path) -> None:
    """Draw memory, open files, threads and space over time."""
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    mpl.use("svg")
    plt.rcParams["svg.hashsalt"] = "terabyte"
    figure, axes = plt.subplots(5, sharex=True, figsize=(8, 9), layout="constrained")
    minutes = [sample.seconds / 60 for sample in samples]
    lines = (
        ("memory, GB", {"PSS": "pss", "RSS": "rss"}, 1e9),
        ("text read, GB", {"": "text_bytes"}, 1e9),
        ("disk, GB", {"": "disk_bytes"}, 1e9),
        ("open files", {"": "open_files"}, 1),
        ("threads", {"": "threads"}, 1),
    )
    kills = [
        minutes[i] for i in range(len(samples) - 1) if samples[i].attempt != samples[i + 1].attempt
    ]
    for axis, (title, names, unit) in zip(axes, lines, strict=True):
        for label, name in names.items():
            values = [getattr(sample, name) / unit for sample in samples]
            axis.plot(minutes, values, linewidth=1, label=label)
        if len(names) > 1:
            axis.legend()
        for moment in kills:
            axis.axvline(moment, color="gray", linestyle=":", linewidth=1)
        axis.set_ylabel(title)
        axis.set_ylim(bottom=0)
    axes[-1].set_xlabel("minutes (dotted: killed and resumed)")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    main()
