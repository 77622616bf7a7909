"""How much of the input may be bad before a build fails, and which files are to blame then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.config import SourceConfig
from pipelines.errors import BadFileLimitError, PipelineError, RejectLimitError
from pipelines.rejects.reasons import REASONS_OF_FILES
from pipelines.storage.directory import Directory
from pipelines.storage.parquet import open_parquet


def too_many_bad_files(
    limit: int, files: Sequence[str], number: int, where: str | None = None
) -> BadFileLimitError:
    """The error for more bad files in a source than allowed; `files` are some of them."""
    more = number - len(files)
    return BadFileLimitError(
        "Too many input files are bad.",
        expected=f"at most {limit:,} of a source (input.max_bad_files)",
        found=f"{number:,}\n    "
        + "\n    ".join(files)
        + (f"\n    and {more:,} more" * (more > 0)),
        where=where,
        hint="Get them again or leave them out of input.files, or raise input.max_bad_files and "
        "run the same command again.",
    )


_FILES_SHOWN: Final = 10
_ROWS_AT_ONCE: Final = 1 << 14


def check_rejects(
    totals: Mapping[str, Any], limit: float, rejects: Directory, names: Sequence[str]
) -> None:
    """Checks the share of rejected documents among the judged ones: these and the kept ones.

    Empty and not selected documents are not judged; what is rejected of bad files is no document.

    Args:
        totals: of a stage, as its manifest will have them.
        limit: `encode.max_reject_fraction`.
        rejects: the directory of the files of rejects.
        names: of those of the stage.

    Raises:
        RejectLimitError: it is above the limit; names the files with most rejects.
    """
    rejected = totals["rejected"]
    documents = totals["documents"] + rejected
    if rejected <= limit * documents:
        return
    raise RejectLimitError(
        "Too many documents are rejected.",
        expected=f"at most {limit:.6g} of the kept and rejected documents "
        "(encode.max_reject_fraction)",
        found=f"{rejected:,} of {documents:,}, most of them in\n    "
        + "\n    ".join(_most_rejects(rejects, names, rejected)),
        where=rejects.path(_pattern(names)),
        hint="Look at the rejects and mend the input, set input.invalid_utf8: replace, or raise "
        "encode.max_reject_fraction and run the same command again.",
    )


def check_bad_files(
    found: Sequence[Mapping[str, Any]],
    sources: Sequence[SourceConfig],
    rejects: Directory,
    names: Sequence[str],
) -> None:
    """Checks the number of bad files of each source.

    Args:
        found: totals of each source.
        sources: their configuration.
        rejects: the directory of the files of rejects.
        names: of those of the stage.

    Raises:
        BadFileLimitError: there are more of them in a source than `input.max_bad_files`.
    """
    for source, totals in zip(sources, found, strict=True):
        labels = totals["bad_files"]
        if len(labels) > source.max_bad_files:
            what = dict(_what_is_bad(rejects, names, set(labels[:_FILES_SHOWN])))
            shown = [f"{label}: {what.get(label, 'bad')}" for label in labels[:_FILES_SHOWN]]
            where = rejects.path(_pattern(names))
            raise too_many_bad_files(source.max_bad_files, shown, len(labels), where)


def _pattern(names: Sequence[str]) -> str:
    return "count-*.parquet" if names and names[0].startswith("count-") else "*.parquet"


def _most_rejects(rejects: Directory, names: Sequence[str], rejected: int) -> Iterator[str]:
    """The files with most rejects, in words: their number, their share of all, most for what."""
    numbers: Counter[str] = Counter()
    reasons: Counter[tuple[str, str]] = Counter()
    for rows in _rows(rejects, names, ["source", "reason"]):
        counted = rows.group_by(["source", "reason"]).aggregate([([], "count_all")]).to_pylist()
        for row in counted:
            if row["reason"] not in REASONS_OF_FILES:
                numbers[row["source"]] += row["count_all"]
                reasons[row["source"], row["reason"]] += row["count_all"]
    worst = nlargest(_FILES_SHOWN, numbers.items(), key=lambda item: (item[1], item[0]))
    most: dict[str, tuple[int, str]] = {label: (0, "") for label, _ in worst}
    for (label, reason), number in reasons.items():
        if label in most:
            most[label] = max(most[label], (number, reason))
    for label, number in worst:
        share = number / max(rejected, 1)
        yield f"{label}: {number:,} rejected ({share:.1%} of all), mostly {most[label][1]}"
    if len(numbers) > len(worst):
        yield f"and {len(numbers) - len(worst):,} more files"


def _what_is_bad(
    rejects: Directory, names: Sequence[str], labels: set[str]
) -> Iterator[tuple[str, str]]:
    """Of these files what is wrong with them, and where."""
    wanted = pa.array(sorted(labels), pa.string())
    for rows in _rows(rejects, names, ["source", "offset", "reason", "message"]):
        of_files = pc.is_in(rows["reason"], pa.array(sorted(REASONS_OF_FILES), pa.string()))
        for row in rows.filter(pc.and_(of_files, pc.is_in(rows["source"], wanted))).to_pylist():
            yield row["source"], f"{row['reason']} at {row['offset']:,}: {row['message']}"


def _rows(directory: Directory, names: Iterable[str], columns: list[str]) -> Iterator[pa.Table]:
    """Some columns of files of rejects, a few rows at once.

    A file that can't be read is left out: the error that is being made matters more.
    """
    for name in names:
        try:
            with open_parquet(directory, name) as file:
                for batch in file.iter_batches(_ROWS_AT_ONCE, columns=columns):
                    yield pa.Table.from_batches([batch])
        except (OSError, pa.ArrowException, PipelineError):
            continue
