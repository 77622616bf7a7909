"""Thresholds for bad input, and errors that name the files with the most problems."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from heapq import nlargest
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.batches import DocumentBatch, Reject
from pipelines.config import SourceConfig
from pipelines.errors import BadFileLimitError, PipelineError, RejectLimitError, shortened
from pipelines.rejects.reasons import (
    INVALID_UTF8,
    MALFORMED_JSON,
    MISSING_FIELD,
    NULL_FIELD,
    REASONS_OF_FILES,
    SPECIAL_TOKEN,
    TOO_LONG,
    WRONG_FIELD_TYPE,
)
from pipelines.storage.directory import Directory
from pipelines.storage.parquet import open_parquet


def too_many_bad_files(
    limit: int, files: Sequence[str], number: int, where: str | None = None
) -> BadFileLimitError:
    """Return the error for too many bad files in a source; `files` are some of `number`."""
    return BadFileLimitError(
        "Too many input files are bad.",
        expected=f"at most {limit:,} per source (input.max_bad_files)",
        found=f"{number:,}\n    " + shortened(files, len(files), total=number, separator="\n    "),
        where=where,
        hint="Download them again or exclude them from input.files, or raise input.max_bad_files "
        "and run the same command again.",
    )


_ADVICE: Final = {
    INVALID_UTF8: "Repair the text, or set input.invalid_utf8: replace.",
    MALFORMED_JSON: "Repair or remove the line.",
    MISSING_FIELD: "Repair the record, or set input.text_field to the field with the text.",
    NULL_FIELD: "Repair the record, or set input.text_field to the field with the text.",
    WRONG_FIELD_TYPE: "Repair the record, or change input.text_field or input.id_field.",
    TOO_LONG: "Raise input.max_document_bytes, or shorten the document.",
    SPECIAL_TOKEN: "Set encode.special_tokens_in_text to split or text, or repair the text.",
}
_EXCERPT_BYTES: Final = 40


def describe_reject(reject: Reject, *, reason: bool = True) -> str:
    """Describe a reject as an example: place, problem, and the beginning of the document.

    Args:
        reject: The reject.
        reason: True to show the reason before the message.

    >>> describe_reject(Reject(source="a.jsonl", offset=7, length=2, reason="malformed_json",
    ...                        message="not JSON", first_bytes=b"{]"))
    "a.jsonl, document at offset 7: malformed_json, not JSON; it begins '{]'"
    """
    text = reject.first_bytes[:_EXCERPT_BYTES].decode("utf-8", "replace")
    cut = "…" if len(reject.first_bytes) > _EXCERPT_BYTES else ""
    begins = f"; it begins {text + cut!r}" if text else ""
    own = "" if reject.id is None else f", id {reject.id!r}"
    where = f"{reject.source}, document at offset {reject.offset:,}{own}"
    return f"{where}: " + (f"{reject.reason}, " if reason else "") + f"{reject.message}{begins}"


def reject_error(
    reject: Reject,
    *,
    where: str | None = None,
    found: int = 1,
    of: int | None = None,
    hint: str | None = None,
) -> RejectLimitError:
    """Return the error for rejects where none are allowed, with one of them as an example.

    Args:
        reject: The example.
        where: URL of a file, or None.
        found, of: Number of rejects, and of the documents read until then if it is known.
        hint: Advice, or None for that of the reason.
    """
    share = "" if of is None else f"{found:,} of {of:,} documents read so far; "
    return RejectLimitError(
        "Too many documents are rejected: none may be (encode.max_reject_fraction: 0).",
        found=share + describe_reject(reject),
        where=where,
        hint=f"{hint or _ADVICE[reject.reason]} Or allow some rejects, such as "
        "encode.max_reject_fraction: 0.001; `beam-bpe rejects OUTPUT` then lists them.",
    )


@dataclass(frozen=True, kw_only=True)
class RejectLimit:
    """Limit of rejected documents of a stage, judged by workers while they process its tasks.

    Attributes:
        fraction: `encode.max_reject_fraction`.
        most_documents: Number of kept and rejected documents of the stage, or an upper bound; None
            if it is unknown before the end.
        where: URL of the files of rejects, for messages.
        stage: Text that identifies the stage, such as the id of its plan.
    """

    fraction: float
    most_documents: int | None
    where: str
    stage: str

    def judge(self, task: int, rejected: int, batch: DocumentBatch) -> None:
        """Check if the limit can still be kept.

        Args:
            task: Index of the task.
            rejected: Rejected documents of the task so far; those of an earlier attempt do not
                count.
            batch: Batch with the last of them.

        Raises:
            RejectLimitError: There are too many, whatever the other documents are.
        """
        example = next((one for one in batch.rejects if one.reason not in REASONS_OF_FILES), None)
        if example is None:
            return
        if self.fraction == 0:
            raise reject_error(example, where=self.where)
        total = _note_rejects(self, task, rejected)
        if self.most_documents is None or total <= self.fraction * self.most_documents:
            return
        raise RejectLimitError(
            "Too many documents are rejected.",
            expected=f"at most {self.fraction:.6g} of at most {self.most_documents:,} kept and "
            "rejected documents (encode.max_reject_fraction)",
            found=f"{total:,} before the end, such as {describe_reject(example)}",
            where=self.where,
            hint="Fix the input, or raise encode.max_reject_fraction, and run the same command "
            "again. `beam-bpe rejects OUTPUT` lists the rejects so far.",
        )


# Rejected documents of each task that this process has worked on, by the limit of the stage; of the
# latest stages, as a process may run any number of builds.
_REJECTED: Final[dict[RejectLimit, dict[int, int]]] = {}
_STAGES_NOTED: Final = 16
_NOTING: Final = threading.Lock()


def _note_rejects(limit: RejectLimit, task: int, rejected: int) -> int:
    """Note the rejects of a task, and return the sum of all tasks of its stage in this process."""
    with _NOTING:
        of_tasks = _REJECTED[limit] = _REJECTED.pop(limit, {})
        of_tasks[task] = rejected
        if len(_REJECTED) > _STAGES_NOTED:
            del _REJECTED[next(iter(_REJECTED))]
        return sum(of_tasks.values())


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
    example = _find_example(rejects, names)
    advice = "" if example is None else f"{_ADVICE[example.reason]} "
    raise RejectLimitError(
        "Too many documents are rejected.",
        expected=f"at most {limit:.6g} of the kept and rejected documents "
        "(encode.max_reject_fraction)",
        found=f"{rejected:,} of {documents:,}, most of them in\n    "
        + _describe_worst(rejects, names, rejected)
        + (f"\n    such as {describe_reject(example)}" if example is not None else ""),
        where=rejects.path(_pattern(names)),
        hint=f"{advice}Or raise encode.max_reject_fraction and run the same command again. "
        "`beam-bpe rejects OUTPUT` lists the rejects.",
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


def _describe_worst(rejects: Directory, names: Sequence[str], rejected: int) -> str:
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
    described = [
        f"{label}: {number:,} rejected ({number / max(rejected, 1):.1%} of all), "
        f"mostly {most[label][1]}"
        for label, number in worst
    ]
    return shortened(described, _FILES_SHOWN, total=len(numbers), separator="\n    ")


def _find_example(rejects: Directory, names: Sequence[str]) -> Reject | None:
    """Return the first rejected document, or None."""
    columns = [field.name for field in fields(Reject)]
    for rows in _read_rows(rejects, names, columns):
        for row in rows.slice(0, 1000).to_pylist():
            if row["reason"] not in REASONS_OF_FILES:
                return Reject(**row)
    return None


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
