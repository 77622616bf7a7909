"""List of the rejects of an output, by reason and file, with examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from bpe_core.short_repr import short_repr
from pipelines.batches import Reject
from pipelines.errors import OutputError
from pipelines.rejects.reasons import REASONS, REASONS_OF_FILES, SPECIAL_TOKEN
from pipelines.rejects.thresholds import describe_reject
from pipelines.storage.directory import Directory
from pipelines.storage.parquet import open_parquet

_ROWS_AT_ONCE: Final = 1 << 14
_FILES_SHOWN: Final = 5
# Input files to count separately, for each reason; more are counted together.
_MOST_FILES: Final = 100_000


@dataclass(kw_only=True)
class RejectsOfReason:
    """Rejects with one reason.

    Attributes:
        reason: The reason.
        number: Number of rejects.
        files: Number of rejects by the name of the input file.
        examples: Some of them.
    """

    reason: str
    number: int = 0
    files: Counter[str] = field(default_factory=Counter)
    examples: list[Reject] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "reason": self.reason,
            "meaning": REASONS.get(self.reason),
            "number": self.number,
            "files": [{"source": name, "number": n} for name, n in self.files.most_common()],
            "examples": [
                {
                    "source": reject.source,
                    "offset": reject.offset,
                    "length": reject.length,
                    "id": reject.id,
                    "message": reject.message,
                    "excerpt": reject.first_bytes.decode("utf-8", "replace"),
                }
                for reject in self.examples
            ],
        }

    def lines(self) -> Iterator[str]:
        """Yield lines of text: the reason, the files with the most rejects, and the examples."""
        yield f"{self.reason}: {self.number:,} ({REASONS.get(self.reason, 'unknown reason')})"
        for name, number in self.files.most_common(_FILES_SHOWN):
            yield f"  {number:>9,}  {name}"
        if len(self.files) > _FILES_SHOWN:
            others = len(self.files) - _FILES_SHOWN
            yield f"             and {others:,} more file" + ("" if others == 1 else "s")
        for reject in self.examples:
            yield f"  {describe_reject(reject, reason=False)}"


@short_repr
@dataclass(frozen=True, kw_only=True)
class RejectList:
    """Rejects of an output.

    Attributes:
        where: URL of the files of rejects.
        reasons: Rejects of each reason, the most frequent first.
    """

    where: str
    reasons: tuple[RejectsOfReason, ...] = ()

    @property
    def documents(self) -> int:
        """Return the number of rejected documents."""
        return sum(one.number for one in self.reasons if one.reason not in REASONS_OF_FILES)

    @property
    def unread(self) -> int:
        """Return the number of unread rests of bad files."""
        return sum(one.number for one in self.reasons if one.reason in REASONS_OF_FILES)

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "documents": self.documents,
            "unread_rests_of_files": self.unread,
            "reasons": [one.to_json() for one in self.reasons],
        }

    def __str__(self) -> str:
        """Return the list as text."""
        if not self.reasons:
            return f"no rejects in {self.where}"
        lines = [
            f"{self.documents:,} rejected documents, {self.unread:,} unread rests of bad files"
        ]
        for one in self.reasons:
            lines += ["", *one.lines()]
        return "\n".join(lines)


def list_rejects(rejects: Directory, examples: int) -> RejectList:
    """Read the files of rejects of an output.

    Rejects of counting are found again by encoding. As long as the files of both are there, only
    those that encoding alone finds are taken from its files.

    Args:
        rejects: Directory of the files.
        examples: Number of examples of each reason.

    Raises:
        OutputError: A file cannot be read.
    """
    names = sorted(name for name in rejects.sizes() if name.endswith(".parquet"))
    counted = [name for name in names if name.startswith("count-")]
    found: dict[str, RejectsOfReason] = {}
    for name in names:
        for rows in _read(rejects, name):
            if counted and name not in counted:
                rows = rows.filter(pc.equal(rows["reason"], SPECIAL_TOKEN))
            _add(found, rows, examples)
    ordered = sorted(found.values(), key=lambda one: (-one.number, one.reason))
    return RejectList(where=rejects.url, reasons=tuple(ordered))


def _add(found: dict[str, RejectsOfReason], rows: pa.Table, examples: int) -> None:
    counts = rows.group_by(["reason", "source"]).aggregate([([], "count_all")]).to_pylist()
    for row in counts:
        reason, number = row["reason"], row["count_all"]
        one = found.setdefault(reason, RejectsOfReason(reason=reason))
        one.number += number
        known = row["source"] in one.files or len(one.files) < _MOST_FILES
        one.files[row["source"] if known else "(other files)"] += number
    for one in found.values():
        missing = examples - len(one.examples)
        if missing > 0:
            of_reason = rows.filter(pc.equal(rows["reason"], one.reason)).slice(0, missing)
            one.examples += [Reject(**row) for row in of_reason.to_pylist()]


def _read(rejects: Directory, name: str) -> Iterator[pa.Table]:
    columns = [one.name for one in fields(Reject)]
    try:
        with open_parquet(rejects, name) as file:
            for batch in file.iter_batches(_ROWS_AT_ONCE, columns=columns):
                yield pa.Table.from_batches([batch])
    except (OSError, pa.ArrowException) as error:
        raise OutputError(
            "A file of rejects cannot be read.",
            found=str(error),
            where=rejects.path(name),
            hint="Remove it, and run the command that wrote it again.",
        ) from error
