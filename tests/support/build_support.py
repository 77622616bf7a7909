"""Helpers for tests of builds: small corpora, configurations, checksums, jobs without Beam."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

import profiles

import pipelines
from pipelines import supervisor
from pipelines.cli import main
from pipelines.config import BuildConfig
from pipelines.counting.commits import count_tasks, merge_commits, usable_commits
from pipelines.counting.jobs import CountJob
from pipelines.manifest.names import RUNS
from pipelines.readers.tasks import SourceReading, TaskWork, source_readings
from pipelines.storage.directory import Directory
from pipelines.tasks.listing import InputFile, list_files
from pipelines.tasks.plan import Plan, plan_tasks
from pipelines.tokenizers.files import cutting_rules
from pipelines.writing.jobs import EncodeJob

ROOT = Path(__file__).parents[2]
# Where Python finds the packages: the checkout, or what is installed from a wheel.
PACKAGES = Path(pipelines.__file__).parents[1]
EXAMPLES = ROOT / "examples" / "data"
SEPARATOR = "<|endoftext|>"

TEXT = "the cat sat on a mat and thought of 12 don't-s café 漢字 in Ünïcode\n"


def some_text(documents: int, words: int = 60, start: int = 0) -> list[bytes]:
    """Return different documents of words, the same at every call."""
    known = TEXT.split(" ")
    return [
        " ".join(known[(d * 7 + w * (w + d)) % len(known)] for w in range(words)).encode()
        for d in range(start, start + documents)
    ]


def write_corpus(
    directory: Path, files: Mapping[str, Iterable[bytes]], separator: str = SEPARATOR
) -> None:
    """Write each file's documents, with the separator after each."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, documents in files.items():
        (directory / name).write_bytes(
            b"".join(document + separator.encode() for document in documents)
        )


def config_for(directory: Path, **sections: Any) -> BuildConfig:
    """Return a configuration that builds `directory`/data into `directory`/out, or as given."""
    values: dict[str, Any] = {
        "output": str(directory / "out"),
        "input": {"files": [str(directory / "data" / "*")], "range_bytes": 4000},
        "tokenizer": {"vocab_size": 300},
        "counts": {"shards": 2},
        "beam": {"workers": 2},
    }
    for name, section in sections.items():
        merged = isinstance(section, dict) and isinstance(values.get(name), dict)
        values[name] = {**values[name], **section} if merged else section
    return BuildConfig.model_validate(values)


def checksums(
    directory: Path, *, but: Sequence[str] = ("run.json", "configuration.json", "report.html")
) -> dict[str, str]:
    """Return the SHA-256 of every file below the directory, by its relative path."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name not in but
    }


def states(directory: Path) -> dict[str, tuple[int, int]]:
    """Return modification time and size of every file below the directory."""
    return {
        str(path.relative_to(directory)): (path.stat().st_mtime_ns, path.stat().st_size)
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


# --- jobs without Beam ------------------------------------------------------------------------


def plan_of(config: BuildConfig) -> Plan:
    files = [
        file
        for i, source in enumerate(config.input)
        for file in list_files(source, index=i, resolve=config.resolve_glob)
    ]
    return plan_tasks(files, config.input)


def works_of(config: BuildConfig) -> list[TaskWork]:
    plan = plan_of(config)
    return [TaskWork.of_plan(plan, task) for task in plan.tasks]


def count_job(config: BuildConfig, works: Sequence[TaskWork], plan_id: str = "plan") -> CountJob:
    output = Directory(url=config.output_path)
    tokenizer, counts = config.tokenizer, config.counts
    return CountJob(
        counts=output / "counts",
        runs=output / "counts" / RUNS / plan_id,
        rejects=output / "rejects",
        configuration="configuration",
        plan_id=plan_id,
        num_tasks=len(works),
        tasks_hash=sum(work.hash for work in works) % 2**128,
        pattern=tokenizer.pattern,
        special_tokens=tokenizer.special_tokens,
        shards=counts.shards or 1,
        memory=counts.memory,
        checkpoint_bytes=counts.checkpoint_bytes,
        max_pretoken_bytes=counts.max_pretoken_bytes,
        on_long_pretoken=counts.on_long_pretoken,
        readings=source_readings(config.input, tokenizer.pattern, tokenizer.special_tokens),
    )


def merge_all(job: CountJob, descriptors: Iterable[tuple[int, bytes]]) -> list[dict[str, Any]]:
    """Merge every shard from these descriptors."""
    by_shard: dict[int, list[bytes]] = {shard: [] for shard in range(job.shards)}
    for shard, descriptor in descriptors:
        by_shard[shard].append(descriptor)
    return [merge_commits(job, shard, found) for shard, found in by_shard.items()]


def finish_counting(job: CountJob, works: Sequence[TaskWork]) -> list[dict[str, Any]]:
    """Finish a count like a resumed build: use existing commits, count other tasks, merge."""
    commits = list(usable_commits(job))
    done = {index for commit in commits for index in commit.tasks}
    descriptors = [d for commit in commits for d in commit.descriptors(job.shards)]
    descriptors += count_tasks(job, [work for work in works if work.index not in done])
    return merge_all(job, descriptors)


def encode_job(config: BuildConfig, tokenizer: Path, fingerprint: str, **changes: Any) -> EncodeJob:
    from bpe_core import BPETokenizer

    output = Directory(url=config.output_path)
    model = BPETokenizer.load(tokenizer).model
    values: dict[str, Any] = {
        "tokens": output / "tokens",
        "rejects": output / "rejects",
        "tokenizer": Directory(url=str(tokenizer)),
        "tokenizer_fingerprint": fingerprint,
        "configuration": "configuration",
        "plan_id": "plan",
        "prepend": config.encode.prepend,
        "append": config.encode.append,
        "special_tokens_in_text": config.encode.special_tokens_in_text,
        "id_type": "uint16" if model.max_id < 1 << 16 else "uint32",
        "validation_fraction": config.encode.validation_fraction,
        "readings": source_readings(config.input, **cutting_rules(model)),
    }
    return EncodeJob(**{**values, **changes})


def with_small_pieces(readings: Sequence[SourceReading], **sizes: int) -> tuple[SourceReading, ...]:
    """Return the readings with small buffers, so that documents are cut into chunks."""
    from dataclasses import replace

    return tuple(
        replace(reading, options=replace(reading.options, **sizes)) for reading in readings
    )


# --- the command ------------------------------------------------------------------------------


def command(
    *arguments: object,
    hook: str | None = None,
    directory: Path | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    here: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run `beam-bpe`: in this process, as its child does, or at night and with a hook in its own.

    Args:
        arguments: of the command.
        hook: Python that the child runs first.
        directory: for the hook.
        cwd: where it runs.
        env: variables beside those of this process.
        here: also at night in this process, for tests that replace a part of it.
    """
    given = [*map(str, arguments)]
    variables = {"COLUMNS": "200", **(env or {})}
    if here or (hook is None and profiles.PROFILE != "nightly"):
        return _command_here(given, cwd, variables)
    path = [str(PACKAGES)]
    if hook is not None:
        assert directory is not None
        indented = "".join(f"    {line}\n" for line in hook.strip().splitlines())
        (directory / "sitecustomize.py").write_text(
            f"import os\nif 'BEAM_BPE_STATUS_DIR' in os.environ:\n{indented}"
        )
        path.insert(0, str(directory))
    return subprocess.run(
        [sys.executable, "-P", "-m", "pipelines", *given],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": ":".join(path), **variables},
        check=False,
    )


def _command_here(
    given: Sequence[str], cwd: Path | None, variables: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    out, err = io.StringIO(), io.StringIO()
    with (
        tempfile.TemporaryDirectory() as status,
        mock.patch.dict(os.environ, {supervisor.STATUS_VARIABLE: status, **variables}),
        mock.patch.object(supervisor, "enter_child", lambda: None),
        mock.patch.object(supervisor, "leave", sys.exit),
        mock.patch("faulthandler.enable"),  # it needs a file for what is printed
        chdir(cwd or Path.cwd()),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main(given)
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 0
    return subprocess.CompletedProcess(given, code, out.getvalue(), err.getvalue())


def input_file(
    path: Path, stored: bytes, compression: str | None = None, source_name: str | None = None
) -> InputFile:
    """Write a file, and return it as a plan would describe it."""
    path.write_bytes(stored)
    return InputFile(
        source=0,
        source_name=source_name,
        url=str(path),
        name=path.name,
        size=len(stored),
        version_tag="",
        compression=compression,
    )
