"""How much time does it take to keep the counts of five sources apart, and to count documents?

One worker counts and writes the shards, without Beam, in a process with the memory settings of the
command. Each source is a fifth of the text.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import command
import corpora
from corpora import SEPARATOR, Text
from measure import OURS, Case, Outcome, Target, script_main

from pipelines.counting.commits import count_tasks, merge_commits
from pipelines.counting.jobs import CountJob
from pipelines.supervisor import MEMORY_SETTINGS

_SOURCES = 5
_ONE_SUM = "one sum"
# Work and smallest ratio of the times, by what is counted.
_KINDS = {
    "apart": ("count five sources apart", 1 / 1.15),
    "documents": ("count five sources, with documents", 1 / 1.1),
    "both": ("count five sources apart, with documents", 0),
}


def cases(texts: Sequence[Text], *, quick: bool) -> Iterator[Case]:
    """Yield the cases to measure."""
    text = texts[0] if quick else corpora.large(texts)
    for kind, (work, least) in _KINDS.items():
        yield Case(
            work=work,
            text=text.name,
            path=text.path,
            bytes=text.bytes,
            threads=1,
            sides=(OURS, _ONE_SUM),
            targets={_ONE_SUM: [Target(least, least)]},
            environment=MEMORY_SETTINGS,
            options={"kind": kind},
        )


def prepare(case: Case) -> None:
    """Write a file for each source."""
    files = _files(case)
    if all(f.is_file() and f.stat().st_mtime > Path(case.path).stat().st_mtime for f in files):
        return
    size = 0
    parts: list[list[bytes]] = [[] for _ in files]
    for document in corpora.documents(case.path):
        parts[min(size * _SOURCES // case.bytes, _SOURCES - 1)].append(document + SEPARATOR)
        size += len(document) + len(SEPARATOR)
    for file, part in zip(files, parts, strict=True):
        file.write_bytes(b"".join(part))


def _files(case: Case) -> list[Path]:
    return [
        corpora.MADE / f"{Path(case.path).stem}.source-{number}.txt" for number in range(_SOURCES)
    ]


def _count(case: Case, change: Callable[[CountJob], CountJob]) -> Outcome:
    sources = [
        {
            "name": f"source-{number}",
            "files": [str(file)],
            "format": "text",
            "separator": SEPARATOR.decode(),
        }
        for number, file in enumerate(_files(case))
    ]
    with command.scratch() as scratch:
        job, works = command.count_job(scratch, sources)
        job = change(job)
        begun = time.perf_counter()
        descriptors = list(count_tasks(job, works))
        entries = [
            merge_commits(job, shard, [found for to, found in descriptors if to == shard])
            for shard in range(job.shards)
        ]
        seconds = time.perf_counter() - begun
    found = [entry["pretokens"] for entry in entries]
    return Outcome({"count": seconds}, lambda: {"pre-tokens in each shard": found})


def run_ours(case: Case) -> Outcome:
    def change(job: CountJob) -> CountJob:
        kind = case.options["kind"]
        names = tuple(f"source-{number}" for number in range(_SOURCES))
        return replace(
            job,
            sources=() if kind == "documents" else names,
            document_frequency=kind != "apart",
        )

    return _count(case, change)


def run_one_sum(case: Case) -> Outcome:
    return _count(case, lambda job: job)


SIDES = {OURS: run_ours, _ONE_SUM: run_one_sum}

if __name__ == "__main__":
    script_main(SIDES)
