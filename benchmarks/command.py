"""Run beam-bpe and other commands, and measure their memory."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import corpora
import yaml
from corpora import SEPARATOR
from measure import Case

if TYPE_CHECKING:
    from pipelines.counting.jobs import CountJob
    from pipelines.readers.tasks import TaskWork

_POLL_SECONDS = 0.02
_QUICK_TASKS = 8  # number of tasks for a small text


@dataclass(frozen=True)
class Run:
    """Time and memory of a command.

    Attributes:
        seconds: duration of the process.
        peak_bytes: largest sum of the resident memory of its processes.
    """

    seconds: float
    peak_bytes: int


def tokenizer_directory(case: Case) -> Path:
    """Return the directory of the tokenizer that a case encodes with."""
    return corpora.MADE / f"{Path(case.path).stem}-{case.options['vocab_size']}"


def make_tokenizer(case: Case) -> None:
    """Train the tokenizer that a case encodes with."""
    from bpe_core import count_pretokens, train_from_counts

    special = SEPARATOR.decode()
    counts = count_pretokens(Path(case.path), special_tokens=[special])
    result = train_from_counts(
        counts, case.options["vocab_size"], [special], tie_break="huggingface"
    )
    result.tokenizer().save(tokenizer_directory(case))


def scratch() -> tempfile.TemporaryDirectory[str]:
    """Create a temporary directory on the disk of the texts, deleted with its last reference."""
    return tempfile.TemporaryDirectory(dir=corpora.MADE)


def count_job(
    directory: str,
    source: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    counts: Mapping[str, Any] | None = None,
) -> tuple[CountJob, list[TaskWork]]:
    """Return the job that counts sources into a directory, as a build would, and its tasks.

    Counts are not kept apart by source.
    """
    from pipelines.config import BuildConfig
    from pipelines.counting.jobs import CountJob
    from pipelines.manifest.names import RUNS
    from pipelines.readers.tasks import TaskWork, source_readings
    from pipelines.storage.directory import Directory
    from pipelines.tasks.listing import list_files
    from pipelines.tasks.plan import choose_shards, estimate_text, plan_tasks

    config = BuildConfig.model_validate(
        {"output": directory, "input": source, "counts": counts or {}}
    )
    pattern, special_tokens = config.tokenizer.pattern, config.tokenizer.special_tokens
    files = [file for i, given in enumerate(config.input) for file in list_files(given, index=i)]
    plan = plan_tasks(files, config.input)
    works = [TaskWork.of_plan(plan, task) for task in plan.tasks]
    output = Directory(url=directory)
    job = CountJob(
        counts=output / "counts",
        runs=output / "counts" / RUNS / "benchmark",
        rejects=output / "rejects",
        configuration="benchmark",
        plan_id="benchmark",
        num_tasks=len(works),
        tasks_hash=sum(work.hash for work in works) % 2**128,
        pattern=pattern,
        special_tokens=special_tokens,
        shards=config.counts.shards or choose_shards(estimate_text(plan.files, config.input)),
        memory=config.counts.memory,
        checkpoint_bytes=config.counts.checkpoint_bytes,
        max_pretoken_bytes=config.counts.max_pretoken_bytes,
        on_long_pretoken=config.counts.on_long_pretoken,
        readings=source_readings(config.input, pattern, special_tokens),
    )
    return job, works


def beam_bpe(stage: str, case: Case, workers: int, directory: Path) -> Run:
    """Run a stage of a build; its output is `directory / "output"`."""
    return run_and_watch(write_build(stage, case, workers, directory))


def write_build(
    stage: str,
    case: Case,
    workers: int,
    directory: Path,
    beam: Mapping[str, Any] | None = None,
) -> list[str]:
    """Write the configuration of a build into a directory; return the command for a stage."""
    special = SEPARATOR.decode()
    tokenizer: dict[str, Any] = {
        "vocab_size": case.options["vocab_size"],
        "tie_break": "huggingface",
        "special_tokens": [special],
    }
    if stage == "encode":
        tokenizer = {"path": str(tokenizer_directory(case))}
    text: dict[str, Any] = {"files": [case.path], "separator": special}
    if case.bytes < 2 * corpora.QUICK_BYTES:
        text["range_bytes"] = case.bytes // _QUICK_TASKS
    text.update(case.options.get("input", {}))
    config = {
        "output": str(directory / "output"),
        "input": text,
        "tokenizer": tokenizer,
        "encode": {"append": None},
        "beam": {"workers": workers, **(beam or {})},
    }
    path = directory / "build.yaml"
    path.write_text(yaml.safe_dump(config))
    return [str(Path(sys.executable).with_name("beam-bpe")), stage, str(path)]


def stage_seconds(directory: Path) -> float:
    """Return the duration that a stage records, which excludes the start of Python and Beam."""
    seconds: float = json.loads((directory / "run.json").read_text())["seconds"]
    return seconds


def file_checksums(directory: Path) -> list[tuple[str, str]]:
    """Return the names and checksums of the files in a stage's manifest."""
    manifest = json.loads((directory / "manifest.json").read_text())
    return sorted(_checksums(manifest))


def _checksums(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        if "xxh3_128" in value:
            yield value["name"], value["xxh3_128"]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _checksums(item)


def run_and_watch(command: Sequence[str]) -> Run:
    """Run a command to its end and measure its time and memory.

    Raises:
        RuntimeError: the command failed; the message contains its standard error.
    """
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    with _watching(lambda: tree_bytes(process.pid)) as largest:
        _, errors = process.communicate()
        seconds = time.perf_counter() - begun
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{errors.decode()}")
    return Run(seconds, largest())


@contextmanager
def _watching(size: Callable[[], int]) -> Iterator[Callable[[], int]]:
    """Poll a size in a thread; yield a function that returns the largest one."""
    largest = 0
    finished = threading.Event()

    def watch() -> None:
        nonlocal largest
        while not finished.wait(_POLL_SECONDS):
            largest = max(largest, size())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield lambda: largest
    finally:
        finished.set()
        watcher.join()


def tree_bytes(root: int) -> int:
    """Return the resident memory of a process and its descendants; shared pages count twice."""
    total = 0
    pending = [root]
    while pending:
        process = Path("/proc") / str(pending.pop())
        try:
            for line in (process / "status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    total += int(line.split()[1]) * 1024
            pending += children(int(process.name))
        except OSError:  # the process has ended
            continue
    return total


def children(process: int) -> list[int]:
    """Return the ids of the child processes of a process.

    Raises:
        OSError: the process has ended.
    """
    found: list[int] = []
    for task in Path(f"/proc/{process}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            found += map(int, (task / "children").read_text().split())
    return found
