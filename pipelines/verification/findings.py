"""The findings of a verification, and how its checks run."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from bpe_core.cores import usable_cores
from bpe_core.short_repr import short_repr
from pipelines.console import progress
from pipelines.manifest.models import TokensManifest

EXPORT: Final = "export"


@dataclass(frozen=True, order=True)
class Problem:
    """A problem: the path of the file below the output, and a message."""

    file: str
    message: str


@short_repr
@dataclass(kw_only=True)
class Verification:
    """Result of a verification: the extent of the checks, and the problems.

    Attributes:
        output: path or URL of the output.
        stages: the finished stages.
        files, bytes: number and size of the files whose checksums were computed.
        rows, tokens: numbers of rows and ids of the token files that were read.
        documents: number of documents compared with their source, or None if that was not
            requested.
        unread_tasks: number of tasks whose sources were not read, because a repaired file has
            replaced one of them.
        problems: sorted by file.
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

    def to_json(self) -> dict[str, Any]:
        """Return the attributes as JSON values, and whether the output is intact."""
        return {"intact": not self.problems, **asdict(self)}

    def __str__(self) -> str:
        """Return the result as text."""
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
                f"tasks of files that were repaired later, not compared: {self.unread_tasks:,}"
            )
        if not self.problems:
            but = ", except for the tasks that were not compared" if self.unread_tasks else ""
            return "\n".join([*looked, f"{self.output} is intact{but}."])
        lines = [f"{problem.file}: {problem.message}" for problem in self.problems]
        number = f"{len(lines):,} problem{'s' if len(lines) > 1 else ''}"
        return "\n".join([*looked, f"{self.output} is not intact: {number}", *lines])


class Findings:
    """The collector of problems and amounts, for all threads."""

    def __init__(self, result: Verification) -> None:
        self.result = result
        self.lock = threading.Lock()

    def note(self, file: str, message: str) -> None:
        """Add a problem."""
        with self.lock:
            self.result.problems.append(Problem(file, message))

    def add(self, **amounts: int) -> None:
        """Add amounts that were checked."""
        with self.lock:
            for name, amount in amounts.items():
                setattr(self.result, name, (getattr(self.result, name) or 0) + amount)


def compare(
    where: str, findings: Findings, found: Mapping[str, Any], expected: Mapping[str, Any]
) -> None:
    """Note the values that differ from the expected ones, for each key of `expected`."""
    for key, value in expected.items():
        if found.get(key) != value:
            findings.note(where, f"{key}: {found.get(key)}, but {value} is expected")


def check_software(
    where: str, findings: Findings, footer: Mapping[str, str], manifest: TokensManifest
) -> None:
    """Note a file that was written by other versions than its manifest lists.

    Only for files that are written with the manifest: the others may be of a build that was resumed
    with other versions. Files of earlier versions do not have these keys.
    """
    if "software" in footer:
        found = {"software": json.loads(footer["software"])}
        compare(where, findings, found, manifest.to_json("software"))


def run_side_by_side(what: str, jobs: Sequence[Callable[[], None]]) -> None:
    """Run jobs in as many threads as there are cores; an error in one ends all."""
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
