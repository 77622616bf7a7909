"""libFuzzer over the native code, under the address and undefined-behaviour sanitizers.

`make fuzz-native` runs this file. Each target in `tests/native/fuzz` compares two implementations.
Inputs are collected in `out/fuzz/corpus`; the smallest that together reach all code are kept in
`tests/native/fuzz/corpus`, a line in base64 for each (`--keep`). `make test` compares these with
Python, `make fuzz-native` all of them (`tests/bpe_core/test_fuzz_corpus.py`).
"""

from __future__ import annotations

import argparse
import base64
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pattern_samples

from bpe_core.patterns import scanned_patterns, steps_of
from bpe_core.split_patterns.compiler import _classify, _classify_bytes
from bpe_core.split_patterns.parser import parse
from bpe_core.split_patterns.program import Instruction, assemble
from bpe_core.split_patterns.syntax import UnsupportedPatternError

ROOT = Path(__file__).parents[2]
TARGETS = ROOT / "tests" / "native" / "fuzz"
KEPT = TARGETS / "corpus"
OUT = ROOT / "out" / "fuzz"

# The first patterns: those that the target compares with scanners, in its order.
SCANNED = ("gpt2", "cl100k", "cl100k_tiktoken", "o200k", "qwen2", "deepseek_v3")

_MOST_KEPT_BYTES = 9_000  # of a target, before base64
_MOST_PATTERNS = 256
_MEMORY_MB = 2048
_SECONDS_OF_ONE = 25


@dataclass(frozen=True)
class Result:
    """Figures that libFuzzer reports for one run of a target."""

    target: str
    executions: int
    coverage: int
    features: int
    new_inputs: int
    seconds: int
    failed: bool


def target_names() -> list[str]:
    return sorted(path.stem for path in TARGETS.glob("*.cpp"))


def fuzzed_patterns() -> list[str]:
    """Return the patterns of the target `patterns`, by the number in its inputs."""
    scanned = scanned_patterns()
    patterns = [scanned[name] for name in SCANNED]
    for pattern in pattern_samples.REGEX:
        try:
            for expression, _ in steps_of(pattern):
                assemble(parse(expression, "regex"))
        except UnsupportedPatternError:
            continue
        if pattern not in patterns:
            patterns.append(pattern)
    return patterns[:_MOST_PATTERNS]


def kept_inputs(target: str) -> list[bytes]:
    """Return the inputs in the repository."""
    path = KEPT / f"{target}.txt"
    lines = path.read_text("ascii").split() if path.exists() else []
    return [base64.b64decode(line) for line in lines]


def inputs_to_compare(target: str) -> list[bytes]:
    """Return the inputs in the repository; with FUZZ_COLLECTED=1 also those of earlier runs."""
    collected = OUT / "corpus" / target
    inputs = kept_inputs(target)
    if os.environ.get("FUZZ_COLLECTED") and collected.is_dir():
        inputs += [path.read_bytes() for path in sorted(collected.iterdir())]
    return inputs


# --- building -----------------------------------------------------------------------------------


def _numbers(values: Sequence[int]) -> str:
    return " ".join(map(str, (len(values), *values)))


def _code(code: Sequence[Instruction]) -> str:
    return _numbers([n for step in code for n in (int(step.op), step.first, step.second)])


def _programs(pattern: str) -> Iterator[str]:
    """Yield the programs of a chain as lines of numbers, which `patterns.cpp` reads."""
    steps = steps_of(pattern)
    yield str(len(steps))
    for expression, of_bytes in steps:
        program = assemble(parse(expression, "regex"))
        starts, classes, sets = _classify(program.sets)
        if of_bytes:
            starts, classes = _classify_bytes(starts, classes)
        yield str(int(of_bytes))
        yield _numbers(starts)
        yield _numbers(classes)
        yield str(sets.shape[1])
        yield _numbers(np.ravel(sets).tolist())
        yield _code(program.code)
        yield str(len(program.scouts))
        for scout in program.scouts:
            yield f"{int(scout.ahead)} {_code(scout.code)}"


def build(*, coverage: bool = False) -> None:
    """Compile the targets, and write the programs of patterns."""
    if not any(Path("/usr/bin").glob("clang++-*")) and "FUZZ_CXX" not in os.environ:
        sys.exit("clang is missing: sudo apt install clang-19 libclang-rt-19-dev llvm-19")
    out = OUT / "coverage" if coverage else OUT
    out.mkdir(parents=True, exist_ok=True)
    patterns = fuzzed_patterns()
    lines = [str(len(patterns)), *(line for pattern in patterns for line in _programs(pattern))]
    (out / "patterns.txt").write_text("\n".join(lines) + "\n")
    make = ["make", "--silent", "--jobs", str(os.cpu_count() or 1), "--file"]
    flags = ["COVERAGE=1"] if coverage else []
    subprocess.run([*make, str(TARGETS / "Makefile"), *flags], cwd=ROOT, check=True)


# --- fuzzing ------------------------------------------------------------------------------------


def unpack_corpus(target: str) -> Path:
    """Return the folder of a target's inputs, with those that are kept."""
    folder = OUT / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(kept_inputs(target)):
        (folder / f"kept-{number:03}").write_bytes(data)
    return folder


def fuzz(target: str, seconds: int) -> Result:
    """Run a target for some seconds, and print what it finds."""
    corpus = unpack_corpus(target)
    found = OUT / "found"
    found.mkdir(exist_ok=True)
    dictionary = TARGETS / f"{target}.dict"
    command = [
        str(OUT / target),
        f"-max_total_time={seconds}",
        f"-timeout={_SECONDS_OF_ONE}",
        f"-rss_limit_mb={_MEMORY_MB}",
        f"-artifact_prefix={found}/{target}-",
        "-print_final_stats=1",
        "-use_value_profile=1",
        "-len_control=10",  # many inputs begin with a header, so short ones reach little
        *([f"-dict={dictionary}"] if dictionary.exists() else []),
        str(corpus),
    ]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output = done.stdout.decode("utf-8", "replace")
    if done.returncode != 0:
        print(output[-6000:], flush=True)

    def last(expression: str) -> int:
        numbers = re.findall(expression, output)
        return int(numbers[-1]) if numbers else 0

    return Result(
        target,
        last(r"stat::number_of_executed_units: *(\d+)") or last(r"#(\d+)\s"),
        last(r" cov: (\d+)"),
        last(r" ft: (\d+)"),
        last(r"stat::new_units_added: *(\d+)"),
        seconds,
        done.returncode != 0,
    )


def keep_inputs(target: str) -> None:
    """Write the smallest inputs that reach what all reach to the corpus in the repository."""
    merged = OUT / "merged" / target
    shutil.rmtree(merged, ignore_errors=True)
    merged.mkdir(parents=True)
    command = [str(OUT / target), "-set_cover_merge=1", str(merged), str(unpack_corpus(target))]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    inputs = sorted((path.read_bytes() for path in merged.iterdir()), key=lambda data: len(data))
    kept: list[str] = []
    room = _MOST_KEPT_BYTES
    for data in inputs:
        room -= len(data)
        if room >= 0 and data:
            kept.append(base64.b64encode(data).decode())
    KEPT.mkdir(exist_ok=True)
    (KEPT / f"{target}.txt").write_text("\n".join(kept) + "\n")
    print(f"{target}: {len(kept)} of {len(inputs)} inputs kept")


def report_coverage(targets: Sequence[str]) -> None:
    """Print which lines of the native code the collected inputs reach."""
    build(coverage=True)
    out = OUT / "coverage"
    for target in targets:
        environment = os.environ | {"LLVM_PROFILE_FILE": str(out / f"{target}.profraw")}
        command = [str(out / target), "-runs=0", str(unpack_corpus(target))]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True, env=environment)
    profiles = [str(out / f"{target}.profraw") for target in targets]
    version = subprocess.run(
        ["make", "--silent", "--file", str(TARGETS / "Makefile"), "version"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    merged = str(out / "all.profdata")
    merge = [f"llvm-profdata{version}", "merge", "-sparse", *profiles, "-o", merged]
    subprocess.run(merge, check=True)
    objects = [word for target in targets for word in ("-object", str(out / target))]
    report = [f"llvm-cov{version}", "report", f"-instr-profile={merged}", *objects[1:]]
    ignored = "-ignore-filename-regex=(tests|/usr)/"
    subprocess.run([*report, ignored], cwd=ROOT, check=True)


def main() -> int:
    """Run the targets in turn and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", default=target_names())
    parser.add_argument("--seconds", type=int, default=600, help="of all targets together")
    parser.add_argument("--keep", action="store_true", help="write the corpora of the repository")
    parser.add_argument("--coverage", action="store_true", help="print coverage of the inputs")
    options = parser.parse_args()
    build()
    each = max(1, options.seconds // len(options.targets)) if options.seconds else 0
    results = []
    for target in options.targets if each else ():
        result = fuzz(target, each)
        results.append(result)
        print(
            f"{result.target:16} {result.executions:>12,} executions in {result.seconds} s, "
            f"{result.coverage:,} edges, {result.features:,} features, "
            f"{result.new_inputs:,} new inputs{', FAILED' if result.failed else ''}",
            flush=True,
        )
    if options.keep:
        for target in options.targets:
            keep_inputs(target)
    if options.coverage:
        report_coverage(options.targets)
    if failed := [result.target for result in results if result.failed]:
        print(
            f"failed: {', '.join(failed)}; inputs are in out/fuzz/found. Run out/fuzz/TARGET FILE"
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
