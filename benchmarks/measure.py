"""Measuring: fresh processes, alternating between the sides, medians and spread.

A question's script has `SIDES`: from a side's name to a function that does the work of a case once
and returns an `Outcome`. Each sample is a process of its own, in turn A B A B …, so that what
changes on the machine meanwhile befalls all sides alike.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

OURS = "bpe-beam"
PACKAGES = (OURS, "gigatoken", "tiktoken", "tokenizers", "apache-beam", "pyarrow", "numpy")


@dataclass(frozen=True)
class Case:
    """What is measured.

    Attributes:
        work: what is done, for the table.
        text: name of the text.
        path: of its file.
        bytes: of the text.
        threads: that each side may use.
        options: what else the question's functions need.
    """

    work: str
    text: str
    path: str
    bytes: int
    threads: int
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What one run gives.

    Attributes:
        seconds: of each step.
        outputs: what must be the same on both sides, by name; called only where it is compared.
        peak_bytes: largest resident memory of the step's processes together.
        bytes: of the text that was gone through, where that is only its beginning; else 0.
    """

    seconds: Mapping[str, float]
    outputs: Callable[[], Mapping[str, Sequence[Any] | np.ndarray]] = dict
    peak_bytes: Mapping[str, int] = field(default_factory=dict)
    bytes: int = 0


Side = Callable[[Case], Outcome]


def measure(
    question: ModuleType, case: Case, sides: Sequence[str], *, stated: Sequence[str], rounds: int
) -> list[dict[str, Any]]:
    """Rows of results of a case, one a step.

    Args:
        question: the module with SIDES.
        case: what is measured.
        sides: ours and the peer, measured `rounds` times after a warm-up in which their outputs
            are compared.
        stated: others, run once.
        rounds: samples of each side.
    """
    script = str(question.__file__)
    digests = {side: _sample(script, side, case, check=True)["digests"] for side in sides}
    difference = None
    if len(sides) == 2:
        ours, theirs = (digests[side] for side in sides)
        if any(ours[key] != theirs[key] for key in ours.keys() & theirs.keys()):
            difference = _child(script, "--explain", ",".join(sides), case)["difference"]
    samples: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side in sides:
            samples[side].append(_sample(script, side, case))
    for side in stated:
        samples[side] = [_sample(script, side, case)]
    steps = samples[sides[0]][0]["seconds"]
    return [_row(case, step, samples, difference) for step in steps]


def _row(
    case: Case, step: str, samples: Mapping[str, list[dict[str, Any]]], difference: str | None
) -> dict[str, Any]:
    sides = {
        side: _summary([run for run in runs if step in run["seconds"]], step, case)
        for side, runs in samples.items()
        if any(step in run["seconds"] for run in runs)
    }
    row = {
        "work": case.work.replace("STEP", step),
        "text": case.text,
        "threads": case.threads,
        "sides": sides,
        "difference": difference,
    }
    ours, *others = list(sides)
    if others:
        row["ratio"] = round(sides[others[0]]["median"] / sides[ours]["median"], 3)
    return row


def _summary(runs: Sequence[Mapping[str, Any]], step: str, case: Case) -> dict[str, Any]:
    seconds = [run["seconds"][step] for run in runs]
    size = runs[0]["bytes"] or case.bytes
    median = statistics.median(seconds) * case.bytes / size
    summary = {
        "median": round(median, 5),
        "lowest": round(min(seconds) * case.bytes / size, 5),
        "highest": round(max(seconds) * case.bytes / size, 5),
        "runs": len(seconds),
        "mb_per_second": round(case.bytes / median / 1e6, 1),
    }
    peaks = [run["peak_bytes"][step] for run in runs if step in run["peak_bytes"]]
    if peaks:
        summary["peak_bytes"] = int(statistics.median(peaks))
    return summary


def _sample(script: str, side: str, case: Case, *, check: bool = False) -> dict[str, Any]:
    return _child(script, "--check" if check else "--sample", side, case)


def _child(script: str, what: str, side: str, case: Case) -> dict[str, Any]:
    environment = {**os.environ, "RAYON_NUM_THREADS": str(case.threads)}
    command = [sys.executable, script, what, side, json.dumps(vars(case))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{script} {what} {side} failed on {case}:\n{done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def child_main(sides: Mapping[str, Side], arguments: Sequence[str]) -> None:
    """What a question's script does when `measure` starts it."""
    what, names, given = arguments
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
        "bytes": outcome.bytes,
        "digests": {name: digest(output) for name, output in outputs.items()},
    }
    print(json.dumps(sample))


def digest(output: Sequence[Any] | np.ndarray) -> str:
    """Of a list, or of an array's values."""
    data = output.tobytes() if isinstance(output, np.ndarray) else repr(output).encode()
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def first_difference(
    ours: Mapping[str, Sequence[Any] | np.ndarray], theirs: Mapping[str, Sequence[Any] | np.ndarray]
) -> str | None:
    """Where two sides' outputs begin to differ, in words; None if they don't."""
    for name in ours.keys() & theirs.keys():
        left, right = ours[name], theirs[name]
        common = min(len(left), len(right))
        if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
            unequal = np.flatnonzero(left[:common] != right[:common])
            at = int(unequal[0]) if len(unequal) else common
        else:
            at = next((i for i in range(common) if left[i] != right[i]), common)
        if at < common:
            return f"{name} differ from number {at} on: {left[at]!r} here, {right[at]!r} there"
        if len(left) != len(right):
            return f"{len(left)} {name} here, {len(right)} there, equal as far as both go"
    return None


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
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
        "load_before": round(os.getloadavg()[0], 2),
    }


def versions() -> dict[str, str]:
    """Of Python and of the packages measured."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
