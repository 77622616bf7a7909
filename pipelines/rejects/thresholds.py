"""Thresholds for bad input, and errors that name the files with the most problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import nlargest
from typing import Final

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
    """Return the error for too many bad files in a source; `files` are some of `number`."""
    more = number - len(files)
    return BadFileLimitError(
        "Too many input files are bad.",
        expected=f"at most {limit:,} per source (input.max_bad_files)",
        found=f"{number:,}\n    "
        + "\n    ".join(files)
        + (f"\n    and {more:,} more" * (more > 0)),
        where=where,
        hint="Download them again or exclude them from input.files, or raise input.max_bad_files "
        "and run the same command again.",
    )


_FILES_SHOWN: Final = 10
_ROWS_AT_ONCE: Final = 1 << 14


def check_rejects(
    kept: int, rejected: int, limit: float, rejects: Directory, names: Sequence[str]
) -> None:
    """Check the share of rejected documents among the rejected and kept ones.

    Empty and not selected documents do not count, nor do rejects for the rest of bad files.

    Args:
        kept, rejected: numbers of documents of a stage.
        limit: `encode.max_reject_fraction`.
        rejects: the directory of reject files.
        names: names of the stage's reject files.

    Raises:
        RejectLimitError: the share exceeds the limit; names the files with the most rejects.
    """
    documents = kept + rejected
    if rejected <= limit * documents:
        return
    raise RejectLimitError(
        "Too many documents are rejected.",
        expected=f"at most {limit:.6g} of the kept and rejected documents "
        "(encode.max_reject_fraction)",
        found=f"{rejected:,} of {documents:,}, most of them in\n    "
        + "\n    ".join(_describe_worst(rejects, names, rejected)),
        where=rejects.path(_pattern(names)),
        hint="Inspect the rejects and fix the input, set input.invalid_utf8: replace, or raise "
        "encode.max_reject_fraction and run the same command again.",
    )


def check_bad_files(
    bad_files: Sequence[Sequence[str]],
    sources: Sequence[SourceConfig],
    rejects: Directory,
    names: Sequence[str],
) -> None:
    """Check the number of bad files of each source.

    Args:
        bad_files: labels of the bad files of each source.
        sources: configuration of each source.
        rejects: the directory of reject files.
        names: names of the stage's reject files.

    Raises:
        BadFileLimitError: a source has more bad files than `input.max_bad_files`.
    """
    for source, labels in zip(sources, bad_files, strict=True):
        if len(labels) > source.max_bad_files:
            listed = labels[:_FILES_SHOWN]
            faults = dict(_find_faults(rejects, names, set(listed)))
            shown = [f"{label}: {faults.get(label, 'bad')}" for label in listed]
            where = rejects.path(_pattern(names))
            raise too_many_bad_files(source.max_bad_files, shown, len(labels), where)


def _pattern(names: Sequence[str]) -> str:
    return "count-*.parquet" if names and names[0].startswith("count-") else "*.parquet"


def _describe_worst(rejects: Directory, names: Sequence[str], rejected: int) -> Iterator[str]:
    """Describe the files with the most rejects: number, share of all, most frequent reason."""
    numbers: Counter[str] = Counter()
    reasons: Counter[tuple[str, str]] = Counter()
    for rows in _read_rows(rejects, names, ["source", "reason"]):
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


def _find_faults(
    rejects: Directory, names: Sequence[str], labels: set[str]
) -> Iterator[tuple[str, str]]:
    """Yield these files, each with a description of its fault."""
    wanted = pa.array(sorted(labels), pa.string())
    for rows in _read_rows(rejects, names, ["source", "offset", "reason", "message"]):
        of_files = pc.is_in(rows["reason"], pa.array(sorted(REASONS_OF_FILES), pa.string()))
        for row in rows.filter(pc.and_(of_files, pc.is_in(rows["source"], wanted))).to_pylist():
            yield row["source"], f"{row['reason']} at {row['offset']:,}: {row['message']}"


def _read_rows(
    directory: Directory, names: Iterable[str], columns: list[str]
) -> Iterator[pa.Table]:
    """Yield columns of reject files, a few rows at a time.

    Unreadable files are skipped: the error to be reported matters more.
    """
    for name in names:
        try:
            with open_parquet(directory, name) as file:
                for batch in file.iter_batches(_ROWS_AT_ONCE, columns=columns):
                    yield pa.Table.from_batches([batch])
        except (OSError, pa.ArrowException, PipelineError):
            continue
