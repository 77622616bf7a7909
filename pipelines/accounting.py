"""What became of every document and every byte of the input: totals of parts add up to the whole.

Documents in are the kept, the empty, the rejected and the not selected ones. Of text and JSON lines
the bytes of the kept, rejected and not selected documents and the framing between them are all
bytes of the decompressed file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pipelines.errors import AccountingError
from pipelines.rejects.reasons import REASONS_OF_FILES
from pipelines.tasks.listing import Form, InputFile
from pipelines.tasks.plan import COLUMN_FORMATS

if TYPE_CHECKING:
    from pipelines.batches import DocumentBatch, Reject

_MASK_128 = (1 << 128) - 1


@dataclass(kw_only=True)
class DocumentTotals:
    """What was read; totals of parts add up to those of the whole.

    Attributes:
        documents: kept ones: neither empty, nor rejected, nor left out by a selection.
        empty, rejected, not_selected: numbers of documents.
        bytes: source text of the kept documents.
        rejected_bytes, not_selected_bytes: source text of those.
        framing_bytes: see `DocumentBatch.framing_bytes`.
        rows: of Parquet and Arrow, how many the files have, as their footers say; else 0.
        hash_sum: of the kept documents' xxh3-128, modulo 2^128.
        bad_files: labels of the files that could not be read, or not to their end.
        reasons: why documents, and rests of such files, are rejected: numbers by reason.
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
        """Counts the documents of a batch; a long document at its first piece."""
        self.empty += batch.empty
        self.not_selected += batch.not_selected
        self.bytes += int(batch.num_bytes.sum())
        self.not_selected_bytes += batch.not_selected_bytes
        self.framing_bytes += batch.framing_bytes
        self.rows += batch.rows
        if batch.part == 0:
            self.documents += len(batch)
            self.hash_sum = (self.hash_sum + _sum_of_hashes(batch.hashes)) & _MASK_128
        for reject in batch.rejects:
            self._add_reject(reject)

    def _add_reject(self, reject: Reject) -> None:
        self.reasons[reject.reason] = self.reasons.get(reject.reason, 0) + 1
        if reject.reason in REASONS_OF_FILES:  # no document
            self.bad_files |= {reject.source}
        else:
            self.rejected += 1
            self.rejected_bytes += reject.length

    def add(self, other: DocumentTotals) -> None:
        """Adds the totals of another part."""
        for name in NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.hash_sum = (self.hash_sum + other.hash_sum) & _MASK_128
        self.bad_files |= other.bad_files
        for reason, number in other.reasons.items():
            self.reasons[reason] = self.reasons.get(reason, 0) + number

    @classmethod
    def sum_of(cls, parts: Iterable[DocumentTotals]) -> DocumentTotals:
        """The totals of the whole that these are the parts of."""
        whole = cls()
        for part in parts:
            whole.add(part)
        return whole

    @classmethod
    def removed(cls, before: DocumentBatch, after: DocumentBatch) -> DocumentTotals:
        """The corpus of the documents of a batch that are in it no more."""
        parts = cls(), cls()
        for part, batch in zip(parts, (before, after), strict=True):
            part.add_batch(batch)
        return cls(
            documents=parts[0].documents - parts[1].documents,
            hash_sum=(parts[0].hash_sum - parts[1].hash_sum) & _MASK_128,
        )

    @classmethod
    def of_corpora(cls, fingerprints: Iterable[str]) -> DocumentTotals:
        """The corpus that corpora add up to, by their fingerprints.

        >>> DocumentTotals.of_corpora(["1-0a", "2-07"]).corpus_fingerprint
        '3-00000000000000000000000000000011'
        """
        parts = [fingerprint.split("-") for fingerprint in fingerprints]
        return cls(
            documents=sum(int(number) for number, _ in parts),
            hash_sum=sum(int(hashes, 16) for _, hashes in parts) & _MASK_128,
        )

    def to_json(self) -> dict[str, Any]:
        """JSON values; the sum of hashes in hex, since JSON numbers are not that long."""
        return {
            **asdict(self),
            "hash_sum": f"{self.hash_sum:032x}",
            "bad_files": sorted(self.bad_files),
            "reasons": dict(sorted(self.reasons.items())),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> DocumentTotals:
        """The totals that `to_json` gave; other keys are left out."""
        return cls(
            **{name: value[name] for name in NUMBERS},
            hash_sum=int(value["hash_sum"], 16),
            bad_files=frozenset(value["bad_files"]),
            reasons=dict(value["reasons"]),
        )

    def numbers(self) -> dict[str, int]:
        """The numbers of documents and of bytes alone."""
        return {name: getattr(self, name) for name in NUMBERS}

    @property
    def all_documents(self) -> int:
        """Documents in the input, with the empty, the rejected and the not selected ones."""
        return self.documents + self.empty + self.rejected + self.not_selected

    @property
    def all_bytes(self) -> int:
        """Source text of all these documents."""
        return self.bytes + self.rejected_bytes + self.not_selected_bytes

    @property
    def file_bytes(self) -> int:
        """Bytes of the decompressed files, of text and JSON lines."""
        return self.all_bytes + self.framing_bytes

    @property
    def corpus_fingerprint(self) -> str:
        """Number of kept documents and the sum of their hashes: independent of order and cuts."""
        return f"{self.documents}-{self.hash_sum:032x}"


# Fields that are plain sums.
NUMBERS = tuple(
    f.name for f in fields(DocumentTotals) if f.name not in ("hash_sum", "bad_files", "reasons")
)


def planned_bytes(file: InputFile, form: str) -> int | None:
    """What the bytes of a file, decompressed, must add up to; None if that is not known before."""
    if form in COLUMN_FORMATS:
        return None
    if file.stop is not None:
        return file.stop
    return None if file.compression else file.size


def planned_bytes_of_sources(
    files: Sequence[InputFile], sources: Sequence[Form]
) -> list[int | None]:
    """The same of the files of each source together."""
    planned: list[int | None] = [0] * len(sources)
    for file in files:
        sum_, of_file = planned[file.source], planned_bytes(file, sources[file.source].format)
        planned[file.source] = None if sum_ is None or of_file is None else sum_ + of_file
    return planned


def check_accounts(manifest: Mapping[str, Any]) -> None:
    """Checks that the totals in a manifest, of counts or of token files, add up.

    Of every source and, where the manifest lists them so, every input file: the bytes of text and
    JSON lines must be those that were planned to be read, where that is known (not if compressed),
    and the documents of Parquet and Arrow must be the rows of the files. Damaged files are
    excepted. Files together must be their sources, sources together the whole, and the token files
    and files of rejects must hold what the totals say.

    Args:
        manifest: with `configuration`, `sources`, `totals` and, of token files, `inputs`, `files`.

    Raises:
        AccountingError: they don't; it names the source or the file.
    """
    forms = [source["format"] for source in manifest["configuration"]["input"]]
    names = [source["name"] for source in manifest["sources"]]
    form_of = dict(zip(names, forms, strict=True))
    # The smallest part that is wrong is named: files before sources, sources before the whole.
    inputs = manifest["inputs"] if isinstance(manifest["inputs"], list) else []
    of_source: dict[str | None, list[Mapping[str, Any]]] = {name: [] for name in names}
    for file in inputs:
        name = None if names == [None] else file["name"].partition("/")[0]
        of_source[name].append(file)
        _check_account(f"input {file['name']}", file, form_of[name], is_bad=file["bad"])
    for number, source in enumerate(manifest["sources"]):
        where = f"source {source['name'] or number}"
        _check_account(where, source, forms[number], is_bad=bool(source["bad_files"]))
        if inputs:
            _check_sum(f"all inputs of {where}", of_source[source["name"]], source)
    _check_sum("all sources", manifest["sources"], manifest["totals"])
    if "files" in manifest:
        _check_files(manifest["files"], manifest["totals"])


def _check_account(where: str, account: Mapping[str, Any], form: str, *, is_bad: bool) -> None:
    totals = DocumentTotals(**{name: account[name] for name in NUMBERS})
    if is_bad:
        return
    planned = account["planned_bytes"]
    if form in COLUMN_FORMATS:
        _expect(where, "rows, all of them documents", totals.rows, totals.all_documents)
    elif planned is not None:
        _expect(where, "bytes of documents and framing", planned, totals.file_bytes)


def _check_sum(where: str, parts: Iterable[Mapping[str, Any]], whole: Mapping[str, Any]) -> None:
    parts = list(parts)
    for name in NUMBERS:
        _expect(where, f"{name} together", whole[name], sum(part[name] for part in parts))


def _check_files(files: Mapping[str, Any], totals: Mapping[str, Any]) -> None:
    written = [*files["train"], *files["validation"]]
    documents = sum(file["documents"] for file in written)
    _expect("token files", "documents", totals["documents"], documents)
    text = sum(file["text_bytes"] for file in written)
    _expect("token files", "bytes of text", totals["bytes"], text)
    # What is left of bad files is a row too, but no document.
    rows = sum(file["rows"] for file in files["rejects"])
    _expect("files of rejects", "rows", sum(totals["reasons"].values()), rows)
    documents = totals["reasons"].items()
    rejected = sum(number for reason, number in documents if reason not in REASONS_OF_FILES)
    _expect("files of rejects", "documents", totals["rejected"], rejected)


def _expect(where: str, what: str, expected: int, found: int) -> None:
    if expected == found:
        return
    raise AccountingError(
        "The accounts of the input do not add up: something was lost or done twice.",
        expected=f"{expected:,} {what}",
        found=f"{found:,}",
        where=where,
        hint="Make the stage anew with --restart. If it happens again, it is a mistake of this "
        "program: please report it with the manifest.",
    )


def _sum_of_hashes(hashes: NDArray[np.uint64]) -> int:
    """The sum of (high, low) pairs. In halves of 32 bits, so that uint64 sums can't overflow."""
    low_halves = (hashes & np.uint64(0xFFFFFFFF)).sum(axis=0, dtype=np.uint64)
    high_halves = (hashes >> np.uint64(32)).sum(axis=0, dtype=np.uint64)
    high, low = ((int(high_halves[i]) << 32) + int(low_halves[i]) for i in (0, 1))
    return (high << 64) + low
