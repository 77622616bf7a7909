"""Measure in fresh processes that alternate between the sides; compute medians and spread.

The script of a question defines `SIDES`, which maps the name of a side to a function that does the
work of a case once and returns an `Outcome`. Each sample is a separate process, in the order
A B A B …, so that changes on the machine affect all sides equally.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import peers

OURS = "bpe-beam"
ROUNDS = 5
_HASHED_BLOCKS = 2000
PACKAGES = (OURS, *peers.MODULES, "apache-beam", "pyarrow", "numpy")

Outputs = Mapping[str, Sequence[Any] | np.ndarray]


@dataclass(frozen=True)
class Target:
    """A target for the ratio of another side's figure to ours.

    Attributes:
        ratio: the target; 0 if the ratio is only reported.
        least: the smallest acceptable ratio.
        of: "seconds" or "peak_bytes".
    """

    ratio: float
    least: float
    of: str = "seconds"


@dataclass(frozen=True)
class Limit:
    """An upper limit for our "seconds" or "peak_bytes"."""

    most: float
    of: str = "peak_bytes"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A measurement to make.

    Attributes:
        work: description for the table; STEP in it is replaced by the name of each step.
        text: name of the text.
        path: file of the text.
        bytes: size of the text.
        threads: number of threads that each side may use.
        sides: ours, then the sides to compare with. Sides without a target are only reported.
        targets: targets by side.
        limits: limits for ours.
        not_compared: sides whose result cannot be compared with ours, with the reason.
        unit: unit of the figures: "MB/s", "s" or "µs". With "µs", seconds are those of one call.
        headline: the steps whose rows may be in the short table.
        items: (number, name) of items, if the cost of one item is reported.
        environment: environment variables for the processes of all sides.
        options: further arguments for the functions of the question.
    """

    work: str
    text: str
    path: str
    bytes: int
    threads: int
    sides: Sequence[str] = (OURS, "gigatoken")
    targets: Mapping[str, Sequence[Target]] = field(default_factory=dict)
    limits: Sequence[Limit] = ()
    not_compared: Mapping[str, str] = field(default_factory=dict)
    unit: str = "MB/s"
    headline: Sequence[str] = ()
    items: tuple[int, str] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the fields that a child process needs, as JSON."""
        names = ("work", "text", "path", "bytes", "threads", "items", "options")
        return json.dumps({name: getattr(self, name) for name in names})


@dataclass(frozen=True)
class Outcome:
    """The result of one run.

    Attributes:
        seconds: time of each step.
        outputs: returns the outputs that must be equal on both sides, by name; only called for the
            comparison. Names that only one side has are not compared.
        peak_bytes: peak of the resident memory of all processes of each step.
    """

    seconds: Mapping[str, float]
    outputs: Callable[[], Outputs] = dict
    peak_bytes: Mapping[str, int] = field(default_factory=dict)


Side = Callable[[Case], Outcome]


class SideFailedError(Exception):
    """A side failed; the message gives the reason."""


def measure(question: ModuleType, case: Case, rounds: int) -> list[dict[str, Any]]:
    """Measure a case; return one row of results for each step.

    Every side runs once untimed, and its result is compared with ours. The rows list sides that are
    not installed or fail as missing.
    """
    script = str(question.__file__)
    load = round(os.getloadavg()[0], 2)
    ours, *others = case.sides
    digests = {ours: _child(script, "--check", ours, case)["digests"]}
    missing: dict[str, str] = {}
    same: dict[str, str | None] = {}
    for side in others:
        if not peers.is_installed(side):
            missing[side] = "not installed"
            continue
        try:
            digests[side] = _child(script, "--check", side, case)["digests"]
        except SideFailedError as error:
            missing[side] = str(error)
        else:
            same[side] = case.not_compared.get(side) or _difference(script, case, digests, side)
    samples: dict[str, list[dict[str, Any]]] = {side: [] for side in digests}
    for _ in range(rounds):
        for side in list(samples):
            try:
                samples[side].append(_child(script, "--sample", side, case))
            except SideFailedError as error:
                missing[side] = str(error)
                del samples[side]
    steps = samples[ours][0]["seconds"]
    return [
        {
            "question": question.__name__,
            **_row(case, step, samples),
            "same": {side: found for side, found in same.items() if side in samples},
            "missing": missing,
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "load_before": load,
        }
        for step in steps
    ]


def _difference(
    script: str, case: Case, digests: Mapping[str, Mapping[str, str]], side: str
) -> str | None:
    ours, theirs = digests[case.sides[0]], digests[side]
    common = ours.keys() & theirs.keys()
    if not common:
        raise ValueError(f"{script}: {side} gives nothing that can be compared with ours")
    if all(ours[name] == theirs[name] for name in common):
        return None
    found: str = _child(script, "--explain", f"{case.sides[0]},{side}", case)["difference"]
    return found


def _row(case: Case, step: str, samples: Mapping[str, list[dict[str, Any]]]) -> dict[str, Any]:
    sides = {side: _summary(runs, step, case) for side, runs in samples.items()}
    ours, *others = case.sides
    comparisons = [
        {
            "against": side,
            "of": target.of,
            "ratio": _ratio(sides, (side, ours), target.of),
            "target": target.ratio,
            "least": target.least,
        }
        for side in others
        for target in case.targets.get(side, ())
    ]
    limits = [
        {"of": limit.of, "most": limit.most, "found": _figure(sides[ours], limit.of)}
        for limit in case.limits
    ]
    return {
        "work": case.work.replace("STEP", step),
        "text": case.text,
        "threads": case.threads,
        "unit": case.unit,
        "headline": step in case.headline,
        "items": case.items,
        "sides": sides,
        "comparisons": comparisons,
        "limits": limits,
    }


def _figure(side: Mapping[str, Any], of: str) -> float:
    figure: float = side["peak_bytes"] if of == "peak_bytes" else side["median"]
    return figure


def _ratio(sides: Mapping[str, Mapping[str, Any]], names: tuple[str, str], of: str) -> float | None:
    """Return the ratio of the first side's figure to the second's; None if one is missing."""
    if not sides.keys() >= set(names):
        return None
    above, below = (_figure(sides[name], of) for name in names)
    return round(above / below, 3)


def _summary(runs: Sequence[Mapping[str, Any]], step: str, case: Case) -> dict[str, Any]:
    seconds = [run["seconds"][step] for run in runs]
    summary = {
        "median": _short(statistics.median(seconds)),
        "lowest": _short(min(seconds)),
        "highest": _short(max(seconds)),
        "runs": len(seconds),
    }
    if case.unit == "MB/s":
        summary["mb_per_second"] = round(case.bytes / statistics.median(seconds) / 1e6, 1)
    peaks = [run["peak_bytes"][step] for run in runs if step in run["peak_bytes"]]
    if peaks:
        summary["peak_bytes"] = int(statistics.median(peaks))
    return summary


def _short(seconds: float) -> float:
    return float(f"{seconds:.4g}")


def _child(script: str, what: str, side: str, case: Case) -> dict[str, Any]:
    environment = {**os.environ, **case.environment, "RAYON_NUM_THREADS": str(case.threads)}
    command = [sys.executable, script, what, side, case.to_json()]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        message = f"{Path(script).name} {what} {side} failed on {case.work}, {case.text}"
        if side.partition(",")[0] == case.sides[0]:
            raise RuntimeError(f"{message}:\n{done.stderr}")
        print(f"{message}:\n{done.stderr}", file=sys.stderr)
        raise SideFailedError(f"failed: {(done.stderr.splitlines() or ['no message'])[-1]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def script_main(sides: Mapping[str, Side]) -> None:
    """Run all cases of a question's script or, as a child of `measure`, one sample."""
    if not sys.argv[1:] or sys.argv[1] not in ("--check", "--sample", "--explain"):
        question = Path(sys.argv[0])
        run = str(question.with_name("run.py"))
        os.execv(sys.executable, [sys.executable, run, "--only", question.stem, *sys.argv[1:]])
    what, names, given = sys.argv[1:]
    case = Case(**json.loads(given))
    if what == "--explain":
        ours, theirs = (sides[name](case).outputs() for name in names.split(","))
        print(json.dumps({"difference": first_difference(ours, theirs)}))
        return
    outcome = sides[names](case)
    outputs = outcome.outputs() if what == "--check" else {}
    sample = {
        "seconds": dict(outcome.seconds),
        "peak_bytes": dict(outcome.peak_bytes),
        "digests": {name: digest(output) for name, output in outputs.items()},
    }
    print(json.dumps(sample))


def digest(output: Sequence[Any] | np.ndarray) -> str:
    """Return the digest of a list, or of an array's values for any integer type."""
    hasher = hashlib.blake2b(digest_size=16)
    if isinstance(output, np.ndarray):
        for begin in range(0, len(output), 1 << 22):
            hasher.update(output[begin : begin + (1 << 22)].astype(np.int64).tobytes())
    else:
        for item in output:
            hasher.update(repr(item).encode())
    return hasher.hexdigest()


def first_difference(ours: Outputs, theirs: Outputs) -> str | None:
    """Describe the first difference between two sides' outputs; None if they are equal."""
    for name in [name for name in ours if name in theirs]:
        left, right = ours[name], theirs[name]
        sizes = len(left), len(right)
        if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
            unequal = np.flatnonzero(left[: min(sizes)] != right[: min(sizes)])
            at = int(unequal[0]) if len(unequal) else min(sizes)
        else:
            at = next((i for i in range(min(sizes)) if left[i] != right[i]), min(sizes))
        if at < min(sizes):
            here, there = (_plain(values[at]) for values in (left, right))
            return f"{name} differ from number {at:,} on: {here!r} here, {there!r} there"
        if sizes[0] != sizes[1]:
            return f"{sizes[0]} {name} here, {sizes[1]} there, equal as far as both go"
    return None


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def peak() -> int:
    """Return the peak resident memory of this process in bytes."""
    status = Path("/proc/self/status")
    if not status.is_file():
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes, unlike on Linux
    for line in status.read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def machine() -> dict[str, Any]:
    """Describe the machine of the measurements."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
        "two_threads": _two_threads(),
    }


def _two_threads() -> float:
    """Measure the speedup of two threads that share nothing and stay in the caches."""
    block = bytes(1 << 15)

    def work() -> None:
        hasher = hashlib.blake2b()  # releases the GIL
        for _ in range(_HASHED_BLOCKS):
            hasher.update(block)

    def seconds(count: int) -> float:
        threads = [threading.Thread(target=work) for _ in range(count)]
        begun = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - begun

    pairs = [(seconds(1), seconds(2)) for _ in range(ROUNDS)]
    return round(2 * min(one for one, _ in pairs) / min(two for _, two in pairs), 2)


def versions() -> dict[str, str]:
    """Return the versions of Python and of the measured packages."""
    return {"python": platform.python_version(), **dict(_installed(PACKAGES))}


def _installed(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    for name in names:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            continue
