"""The outcome for every document and every byte of the input; totals of parts add up to the whole.

Each document of the input is kept, empty, rejected or not selected. For text and JSON lines, the
bytes of the kept, rejected and not selected documents and the framing (separators and markup)
between them are together the decompressed file. For Parquet and Arrow, the range with the last row
to be read reports the number of rows of the file, by its footer. Workers sum totals by source in
commits (checkpoints of counting) and by input file in entries of tasks (encoding); at the end of
both stages `check_accounts` compares them with sizes, rows and written files (exit code 11).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pipelines.errors import AccountingError
from pipelines.rejects.reasons import REASONS_OF_FILES
from pipelines.tasks.listing import InputFile
from pipelines.tasks.plan import COLUMN_FORMATS, FileFormat

if TYPE_CHECKING:
    from pipelines.batches import DocumentBatch, Reject


def sum_hashes(hashes: Iterable[int]) -> int:
    """Return the sum of hashes modulo 2^128, which no order of adding them changes.

    >>> sum_hashes([5, -6]) == 2**128 - 1
    True
    """
    return sum(hashes) & ((1 << 128) - 1)


@dataclass(kw_only=True)
class DocumentTotals:
    """Totals of documents that were read; totals of parts add up to those of the whole.

    Attributes:
        documents: kept documents: neither empty, nor rejected, nor excluded by a selection.
        empty, rejected, not_selected: numbers of documents.
        bytes: source text of the kept documents.
        rejected_bytes, not_selected_bytes: source text of the rejected and not selected ones.
        framing_bytes: see `DocumentBatch.framing_bytes`.
        rows: rows of Parquet and Arrow files by their footers; else 0.
        hash_sum: sum of the kept documents' xxh3-128, modulo 2^128.
        bad_files: labels of files that could not be read, or not to their end.
        reasons: number of rejects (documents, and unread ends of bad files) by reason.
    """

    documents: int = 0
    empty: int = 0
    rejected: int = 0
    not_selected: int = 0
    bytes: int = 0
    rejected_bytes: int = 0
    not_selected_bytes: int = 0
    framing_bytes: int = 0
    rows: int = 0
    hash_sum: int = 0
    bad_files: frozenset[str] = field(default=frozenset())
    reasons: dict[str, int] = field(default_factory=dict)

    def add_batch(self, batch: DocumentBatch) -> None:
        """Add the documents of a batch; a long document counts at its first part."""
        self.empty += batch.empty
        self.not_selected += batch.not_selected
        self.bytes += int(batch.num_bytes.sum())
        self.not_selected_bytes += batch.not_selected_bytes
        self.framing_bytes += batch.framing_bytes
        self.rows += batch.rows
        if batch.part == 0:
            self.documents += len(batch)
            self.hash_sum = sum_hashes((self.hash_sum, _sum_of_hashes(batch.hashes)))
        for reject in batch.rejects:
            self._add_reject(reject)

    def _add_reject(self, reject: Reject) -> None:
        self.reasons[reject.reason] = self.reasons.get(reject.reason, 0) + 1
        if reject.reason in REASONS_OF_FILES:  # not a document
            self.bad_files |= {reject.source}
        else:
            self.rejected += 1
            self.rejected_bytes += reject.length

    def add(self, other: DocumentTotals) -> None:
        """Add the totals of another part."""
        for name in NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.hash_sum = sum_hashes((self.hash_sum, other.hash_sum))
        self.bad_files |= other.bad_files
        for reason, number in other.reasons.items():
            self.reasons[reason] = self.reasons.get(reason, 0) + number

    def subtract(self, other: DocumentTotals) -> None:
        """Subtract the totals of a part, as far as they are known."""
        for name in NUMBERS:
            setattr(self, name, max(getattr(self, name) - getattr(other, name), 0))
        self.hash_sum = sum_hashes((self.hash_sum, -other.hash_sum))
        self.bad_files -= other.bad_files
        left = {reason: n - other.reasons.get(reason, 0) for reason, n in self.reasons.items()}
        self.reasons = {reason: number for reason, number in left.items() if number > 0}

    @classmethod
    def sum_of(cls, parts: Iterable[DocumentTotals]) -> DocumentTotals:
        """Return the totals of the whole with these parts."""
        whole = cls()
        for part in parts:
            whole.add(part)
        return whole

    @classmethod
    def removed(cls, before: DocumentBatch, after: DocumentBatch) -> DocumentTotals:
        """Return number and hashes of the documents that were removed from a batch."""
        parts = cls(), cls()
        for part, batch in zip(parts, (before, after), strict=True):
            part.add_batch(batch)
        return cls(
            documents=parts[0].documents - parts[1].documents,
            hash_sum=sum_hashes((parts[0].hash_sum, -parts[1].hash_sum)),
        )

    @classmethod
    def of_corpora(cls, fingerprints: Iterable[str]) -> DocumentTotals:
        """Return the sum of corpora, given by their fingerprints.

        >>> DocumentTotals.of_corpora(["1-0a", "2-07"]).corpus_fingerprint
        '3-00000000000000000000000000000011'
        """
        parts = [fingerprint.split("-") for fingerprint in fingerprints]
        return cls(
            documents=sum(int(number) for number, _ in parts),
            hash_sum=sum_hashes(int(hashes, 16) for _, hashes in parts),
        )

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; the sum of hashes in hex, because it exceeds JSON numbers."""
        return {
            **asdict(self),
            "hash_sum": f"{self.hash_sum:032x}",
            "bad_files": sorted(self.bad_files),
            "reasons": dict(sorted(self.reasons.items())),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> DocumentTotals:
        """Return the totals in JSON values from `to_json`; other keys are ignored."""
        return cls(
            **{name: value[name] for name in NUMBERS},
            hash_sum=int(value["hash_sum"], 16),
            bad_files=frozenset(value["bad_files"]),
            reasons=dict(value["reasons"]),
        )

    def numbers(self) -> dict[str, int]:
        """Return the numbers of documents, bytes and rows, without hashes, files and reasons."""
        return {name: getattr(self, name) for name in NUMBERS}

    @property
    def all_documents(self) -> int:
        """Number of documents of the input: kept, empty, rejected and not selected."""
        return self.documents + self.empty + self.rejected + self.not_selected

    @property
    def all_bytes(self) -> int:
        """Bytes of source text of all documents."""
        return self.bytes + self.rejected_bytes + self.not_selected_bytes

    @property
    def file_bytes(self) -> int:
        """Bytes of the decompressed files, for text and JSON lines."""
        return self.all_bytes + self.framing_bytes

    @property
    def corpus_fingerprint(self) -> str:
        """Number of kept documents and sum of their hashes; independent of order and cuts."""
        return f"{self.documents}-{self.hash_sum:032x}"


# The fields that are plain sums.
NUMBERS = tuple(
    f.name for f in fields(DocumentTotals) if f.name not in ("hash_sum", "bad_files", "reasons")
)


def planned_bytes(file: InputFile, form: str) -> int | None:
    """Return the expected sum of a file's decompressed bytes; None if it is unknown in advance."""
    if form in COLUMN_FORMATS:
        return None
    if file.stop is not None:
        return file.stop
    return None if file.compression else file.size


def planned_bytes_of_sources(
    files: Sequence[InputFile], sources: Sequence[FileFormat]
) -> list[int | None]:
    """Return the expected sum of bytes of each source; None if it is unknown in advance."""
    planned: list[int | None] = [0] * len(sources)
    for file in files:
        sum_, of_file = planned[file.source], planned_bytes(file, sources[file.source].format)
        planned[file.source] = None if sum_ is None or of_file is None else sum_ + of_file
    return planned


@dataclass(frozen=True, kw_only=True)
class _Account:
    """The documents of an input file or of a source, as a manifest lists them."""

    where: str
    totals: DocumentTotals
    planned_bytes: int | None
    form: str
    is_bad: bool

    def check(self) -> None:
        """Check the totals against planned bytes or rows."""
        if self.is_bad:
            return
        found = self.totals
        if self.form in COLUMN_FORMATS:
            _expect(self.where, "rows, each a document", found.rows, found.all_documents)
        elif self.planned_bytes is not None:
            _expect(
                self.where, "bytes of documents and framing", self.planned_bytes, found.file_bytes
            )


def check_accounts(manifest: Mapping[str, Any]) -> None:
    """Check that the totals in a manifest of counts or of token files add up.

    For every source and, if they are listed, every input file: the bytes of text and JSON lines
    must be the planned ones, if these are known (not of compressed files), and the documents of
    Parquet and Arrow must be the rows of the files. Damaged files are exempt. All files of a source
    must add up to the source and all sources to the whole, and the token files and the files of
    rejects must contain what the totals say.

    Args:
        manifest: the JSON values of `counts/manifest.json` or `tokens/manifest.json`.

    Raises:
        AccountingError: totals do not add up; names the source or the file.
    """
    forms = [source["format"] for source in manifest["configuration"]["input"]]
    sources = {
        entry["name"]: _Account(
            where=f"source {entry['name'] or number}",
            totals=DocumentTotals.from_json(entry),
            planned_bytes=entry["planned_bytes"],
            form=form,
            is_bad=bool(entry["bad_files"]),
        )
        for number, (entry, form) in enumerate(zip(manifest["sources"], forms, strict=True))
    }
    # The error names the smallest part that is wrong: files before sources, sources before all.
    inputs = manifest["inputs"] if isinstance(manifest["inputs"], list) else []
    files: dict[str | None, list[DocumentTotals]] = {name: [] for name in sources}
    for entry in inputs:
        name = None if None in sources else entry["name"].partition("/")[0]
        account = _Account(
            where=f"input {entry['name']}",
            totals=DocumentTotals(**{key: entry[key] for key in NUMBERS}),
            planned_bytes=entry["planned_bytes"],
            form=sources[name].form,
            is_bad=entry["bad"],
        )
        account.check()
        files[name].append(account.totals)
    for name, source in sources.items():
        source.check()
        if inputs:
            _check_sum(f"all inputs of {source.where}", files[name], source.totals)
    whole = DocumentTotals.from_json(manifest["totals"])
    _check_sum("all sources", [source.totals for source in sources.values()], whole)
    if "files" in manifest:
        _check_files(manifest["files"], whole)


def _check_sum(where: str, parts: Sequence[DocumentTotals], whole: DocumentTotals) -> None:
    together = DocumentTotals.sum_of(parts).numbers()
    for name, expected in whole.numbers().items():
        _expect(where, f"{name} together", expected, together[name])


def _check_files(files: Mapping[str, Any], totals: DocumentTotals) -> None:
    written = [*files["train"], *files["validation"]]
    documents = sum(file["documents"] for file in written)
    _expect("token files", "documents", totals.documents, documents)
    text = sum(file["text_bytes"] for file in written)
    _expect("token files", "bytes of text", totals.bytes, text)
    # The unread end of a bad file is a row too, but not a document.
    rows = sum(file["rows"] for file in files["rejects"])
    _expect("files of rejects", "rows", sum(totals.reasons.values()), rows)
    reasons = totals.reasons.items()
    rejected = sum(number for reason, number in reasons if reason not in REASONS_OF_FILES)
    _expect("files of rejects", "documents", totals.rejected, rejected)


def _expect(where: str, unit: str, expected: int, found: int) -> None:
    if expected == found:
        return
    raise AccountingError(
        "The documents or bytes of the input do not add up: some were lost or counted twice.",
        expected=f"{expected:,} {unit}",
        found=f"{found:,}",
        where=where,
        hint="Run the stage again with --restart. If the error returns, it is a defect of this "
        "program: please report it with the manifest.",
    )


def _sum_of_hashes(hashes: NDArray[np.uint64]) -> int:
    """Return the sum of (high, low) pairs, in halves of 32 bits so that uint64 cannot overflow."""
    low_halves = (hashes & np.uint64(0xFFFFFFFF)).sum(axis=0, dtype=np.uint64)
    high_halves = (hashes >> np.uint64(32)).sum(axis=0, dtype=np.uint64)
    high, low = ((int(high_halves[i]) << 32) + int(low_halves[i]) for i in (0, 1))
    return (high << 64) + low
