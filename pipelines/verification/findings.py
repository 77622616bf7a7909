"""What verifying notes, and how it runs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from bpe_core.cores import usable_cores
from pipelines.console import progress

EXPORT: Final = "export"


@dataclass(frozen=True, order=True)
class Problem:
    """Something that is wrong: the file, by its path below the output, and what."""

    file: str
    message: str


@dataclass(kw_only=True)
class Verification:
    """What was looked at, and what is wrong.

    Attributes:
        output: what was verified.
        stages: those that are finished.
        files, bytes: whose checksums were computed.
        rows, tokens: of token files that were looked into.
        documents: that were compared with their source; None: none was to be.
        unread_tasks: whose sources were not read, since a repaired file took the place of one.
        problems: in order of files.
    """

    output: str
    stages: list[str] = field(default_factory=list)
    files: int = 0
    bytes: int = 0
    rows: int = 0
    tokens: int = 0
    documents: int | None = None
    unread_tasks: int = 0
    problems: list[Problem] = field(default_factory=list)

    def __str__(self) -> str:
        """A page for people."""
        looked = [f"stages: {', '.join(self.stages) or 'none is finished'}"]
        looked.append(f"checksums: {self.files:,} files, {self.bytes:,} bytes")
        if self.stages == [EXPORT]:
            looked = [f"export: {looked[1]}"]
        if "tokens" in self.stages:
            looked.append(f"rows: {self.rows:,}, with {self.tokens:,} ids")
        compared = (
            "none (--sources, --sample N)" if self.documents is None else f"{self.documents:,}"
        )
        if self.stages != [EXPORT]:
            looked.append(f"documents compared with their source: {compared}")
        if self.unread_tasks:
            looked.append(
                f"tasks of files that were repaired since, not compared: {self.unread_tasks:,}"
            )
        if not self.problems:
            but = " but for the tasks that were not compared" if self.unread_tasks else ""
            return "\n".join([*looked, f"{self.output} is whole{but}."])
        lines = [f"{problem.file}: {problem.message}" for problem in self.problems]
        number = f"{len(lines):,} problem{'s' if len(lines) > 1 else ''}"
        return "\n".join([*looked, f"{self.output} is not whole: {number}", *lines])


class Findings:
    """Where problems and amounts are noted, from any thread."""

    def __init__(self, result: Verification) -> None:
        self.result = result
        self.lock = threading.Lock()

    def note(self, file: str, message: str) -> None:
        """Something is wrong."""
        with self.lock:
            self.result.problems.append(Problem(file, message))

    def add(self, **amounts: int) -> None:
        """So much more was looked at."""
        with self.lock:
            for name, amount in amounts.items():
                setattr(self.result, name, (getattr(self.result, name) or 0) + amount)


def compare(
    where: str, findings: Findings, found: Mapping[str, Any], expected: Mapping[str, Any]
) -> None:
    """Notes what is not as expected, by the keys of `expected`."""
    for key, value in expected.items():
        if found.get(key) != value:
            findings.note(where, f"{key}: {found.get(key)}, where {value} is expected")


def entry_of(entry: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """Some keys of an entry of a manifest."""
    return {key: entry[key] for key in keys}


def check_software(
    where: str, findings: Findings, footer: Mapping[str, str], manifest: Mapping[str, Any]
) -> None:
    """Notes if a file was written by other versions than its manifest says.

    Only of files that are written with the manifest: others may be of a build that went on with
    other versions. Files of earlier versions do not say it.
    """
    if "software" in footer:
        found = {"software": json.loads(footer["software"])}
        compare(where, findings, found, {"software": manifest["software"]})


def run_side_by_side(what: str, jobs: Sequence[Callable[[], None]]) -> None:
    """Runs jobs in as many threads as there are cores; an error in one ends all."""
    with (
        progress.show(what, len(jobs)),
        ThreadPoolExecutor(usable_cores()) as threads,
    ):
        running = [threads.submit(job) for job in jobs]
        try:
            for done in running:
                done.result()
                progress.advance()
        except BaseException:
            threads.shutdown(cancel_futures=True)
            raise
