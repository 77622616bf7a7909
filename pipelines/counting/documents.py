"""Documents without tasks → shards of counts, with totals that show that none is missing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from pipelines.accounting import DocumentTotals
from pipelines.batches import DocumentBatch
from pipelines.counting.jobs import Counting, Section
from pipelines.counting.shards import write_shard
from pipelines.counting.table import PretokenCounter
from pipelines.errors import AccountingError
from pipelines.metrics import Meter
from pipelines.storage.directory import Directory


@dataclass(frozen=True, kw_only=True)
class DocumentCounting(Counting):
    """All that workers need to know to count documents.

    Attributes:
        run_directory: where the runs are.
    """

    run_directory: Directory

    @property
    def output(self) -> Directory:
        """The directory of the shards."""
        return self.counts

    @property
    def runs(self) -> Directory:
        """Where the runs are."""
        return self.run_directory

    @property
    def names(self) -> str:
        """The pattern of the names of shards, whatever their number."""
        return r"shard-\d+-of-\d+\.parquet"

    @property
    def listing(self) -> str:
        """The file that lists them."""
        return "counts-shards.json"

    def merge(self, shard: int, found: Iterable[bytes], totals: bytes) -> dict[str, Any]:
        """What `merge_counts` does."""
        return merge_counts(self, shard, found, CountTotals.from_bytes(totals))

    def measured(self, entry: Mapping[str, Any]) -> dict[str, int]:
        """What metrics say of a shard."""
        return {"distinct_pretokens": entry["rows"]}

    def listed(self, totals: bytes) -> dict[str, Any]:
        """What the listing says of the totals."""
        return CountTotals.from_bytes(totals).to_json()


@dataclass(kw_only=True)
class CountTotals:
    """What was counted; totals of bundles add up to those of the whole.

    Attributes:
        documents: that were met.
        pretokens: that were counted.
        long_pretokens: that were skipped because of their length.
    """

    documents: DocumentTotals = field(default_factory=DocumentTotals)
    pretokens: int = 0
    long_pretokens: int = 0

    def to_bytes(self) -> bytes:
        """All of it, as it is shuffled."""
        return json.dumps({**asdict(self), "documents": self.documents.to_json()}).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """What `to_bytes` gave."""
        values = json.loads(data)
        return cls(**{**values, "documents": DocumentTotals.from_json(values["documents"])})

    def to_json(self) -> dict[str, Any]:
        """What the listing says of them."""
        totals = self.documents.to_json()
        names = ("documents", "empty", "rejected", "not_selected", "reasons")
        return {
            **{name: totals[name] for name in names},
            "text_bytes": self.documents.bytes,
            "corpus": self.documents.corpus_fingerprint,
            "pretokens": self.pretokens,
            "long_pretokens": self.long_pretokens,
        }


def total_of_counts(parts: Iterable[bytes]) -> bytes:
    """What totals, as they are shuffled, add up to."""
    whole = CountTotals()
    for part in map(CountTotals.from_bytes, parts):
        whole.documents.add(part.documents)
        whole.pretokens += part.pretokens
        whole.long_pretokens += part.long_pretokens
    return whole.to_bytes()


class DocumentCounter:
    """Counts the documents of one bundle attempt. `close` must be called, also after an error."""

    def __init__(self, job: DocumentCounting, meter: Meter | None = None) -> None:
        self._job = job
        self._meter = meter or Meter()
        self._counter = PretokenCounter(job, self._meter)
        self._documents = DocumentTotals()

    def close(self) -> None:
        """Gives the memory back."""
        self._counter.close()

    def add(self, batch: DocumentBatch) -> None:
        """Counts a batch."""
        self._documents.add_batch(batch)
        with self._meter.time("count"):
            self._counter.add(batch)
        self._meter.add_batch(batch)

    def finish(self) -> tuple[Iterator[tuple[int, bytes]], CountTotals]:
        """Writes the last run; gives what each shard has to know of the runs, and the totals."""
        self._counter.flush()
        self._meter.tell_times()
        totals = CountTotals(
            documents=self._documents,
            pretokens=self._counter.pretokens,
            long_pretokens=self._counter.long_pretokens,
        )
        return self._descriptors(), totals

    def _descriptors(self) -> Iterator[tuple[int, bytes]]:
        """One for each shard, also where the runs have nothing for it."""
        totals = self._documents
        common = {"documents": totals.documents, "hash_sum": f"{totals.hash_sum:032x}"}
        for shard in range(self._job.shards):
            sections = [asdict(run[shard]) for run in self._counter.runs if run[shard].length]
            yield shard, json.dumps({**common, "sections": sections}).encode()


def merge_counts(
    job: DocumentCounting, shard: int, found: Iterable[bytes], totals: CountTotals
) -> dict[str, Any]:
    """Merges a shard's sections and writes its file; gives its entry.

    Args:
        job: what is counted.
        shard: its number.
        found: descriptors of the runs of all bundles; empty ones say nothing.
        totals: of all bundles.

    Raises:
        AccountingError: the runs are not of the documents that the totals are of.
        IncompleteCountsError: a run is damaged.
    """
    bundles: list[Mapping[str, Any]] = [json.loads(text) for text in found if text]
    held = DocumentTotals.sum_of(
        DocumentTotals(documents=bundle["documents"], hash_sum=int(bundle["hash_sum"], 16))
        for bundle in bundles
    ).corpus_fingerprint
    expected = totals.documents.corpus_fingerprint
    if held != expected:
        raise AccountingError(
            f"Shard {shard} of the counts can't be written: its runs do not hold every document "
            "once.",
            expected=f"number and sum of hashes {expected}",
            found=held,
            where=job.counts.url,
            hint="Run the pipeline again.",
        )
    sections = [Section(**section) for bundle in bundles for section in bundle["sections"]]
    return write_shard(job, shard, sections, expected)
