"""Counting of the documents of a user's pipeline, which has no tasks, into shards of counts.

The runs of a bundle belong to one attempt, and only descriptors of successful attempts are
shuffled. Every shard gets the number and the sum of hashes of each bundle's documents. These must
add up to the totals of all bundles, which are collected separately.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from pipelines.accounting import DocumentTotals
from pipelines.batches import DocumentBatch
from pipelines.counting.jobs import CountRules, Expected
from pipelines.counting.shards import Descriptor, merge_shard
from pipelines.counting.table import PretokenCounter
from pipelines.manifest.shards import ShardFiles
from pipelines.metrics import Meter
from pipelines.storage.directory import Directory


@dataclass(frozen=True, kw_only=True)
class CountShards:
    """Shards of counts without tasks. Small, since every worker receives this object.

    Attributes:
        rules: How pre-tokens are counted.
    """

    rules: CountRules

    @staticmethod
    def files_of(output: Directory, number: int) -> ShardFiles:
        """Return the files of the shards of counts."""
        return ShardFiles.below(output, number=number, prefix="shard", listing="counts-shards.json")

    def merge(self, shard: int, descriptors: Iterable[bytes], totals: bytes) -> dict[str, Any]:
        """Write the file of a shard. See `merge_shard`."""
        expected = CountTotals.from_bytes(totals).expected
        return merge_shard(self.rules, shard, Descriptor.read_all(descriptors), expected)

    def measure(self, entry: Mapping[str, Any]) -> dict[str, int]:
        """Return the metrics of a shard."""
        return {"distinct_pretokens": entry["rows"]}

    def add_totals(self, parts: Iterable[bytes]) -> bytes:
        """Add up the totals of bundles."""
        return CountTotals.sum_of(map(CountTotals.from_bytes, parts)).to_bytes()

    def list_totals(self, totals: bytes) -> dict[str, Any]:
        """Return the totals in the form of the listing."""
        return CountTotals.from_bytes(totals).to_json()


@dataclass(kw_only=True)
class CountTotals:
    """Totals of a count. Those of bundles add up to those of a pipeline.

    Attributes:
        documents: Totals of the documents.
        pretokens: Number of pre-tokens that were counted.
        long_pretokens: Number of pre-tokens that were skipped because of their length.
    """

    documents: DocumentTotals = field(default_factory=DocumentTotals)
    pretokens: int = 0
    long_pretokens: int = 0

    @classmethod
    def sum_of(cls, parts: Iterable[CountTotals]) -> Self:
        """Add up totals."""
        whole = cls()
        for part in parts:
            whole.documents.add(part.documents)
            whole.pretokens += part.pretokens
            whole.long_pretokens += part.long_pretokens
        return whole

    @property
    def expected(self) -> Expected:
        """Return the expectation that every document is counted once."""
        documents = self.documents
        return Expected(unit="document", items=documents.documents, hash_sum=documents.hash_sum)

    def to_json(self) -> dict[str, Any]:
        """Return the totals in the form of the listing."""
        totals = self.documents.to_json()
        names = ("documents", "empty", "rejected", "not_selected", "reasons")
        return {
            **{name: totals[name] for name in names},
            "text_bytes": self.documents.bytes,
            "corpus": self.documents.corpus_fingerprint,
            "pretokens": self.pretokens,
            "long_pretokens": self.long_pretokens,
        }

    def to_bytes(self) -> bytes:
        """Return the totals in the form in which they are shuffled."""
        return json.dumps({**asdict(self), "documents": self.documents.to_json()}).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the totals that `to_bytes` wrote."""
        values = json.loads(data)
        return cls(**{**values, "documents": DocumentTotals.from_json(values["documents"])})


class DocumentCounter:
    """Counter of the documents in one attempt of a bundle.

    Callers must call `close` at the end, also after an error.
    """

    def __init__(self, rules: CountRules, meter: Meter | None = None) -> None:
        self._shards = rules.shards
        self._meter = meter or Meter()
        self._counter = PretokenCounter(rules, self._meter)
        self._documents = DocumentTotals()

    def add(self, batch: DocumentBatch) -> None:
        """Count a batch."""
        self._documents.add_batch(batch)
        with self._meter.time("count"):
            self._counter.add(batch)
        self._meter.add_batch(batch)

    def finish(self) -> tuple[Iterator[tuple[int, bytes]], CountTotals]:
        """Write the last run. Return the pairs of shard and `Descriptor`, and the totals."""
        self._counter.flush()
        self._meter.report_times()
        totals = CountTotals(
            documents=self._documents,
            pretokens=self._counter.pretokens,
            long_pretokens=self._counter.long_pretokens,
        )
        return self._descriptors(), totals

    def close(self) -> None:
        """Release the memory."""
        self._counter.close()

    def _descriptors(self) -> Iterator[tuple[int, bytes]]:
        """Yield a descriptor for each shard, also if the runs have no section for it."""
        documents, hash_sum = self._documents.documents, self._documents.hash_sum
        for shard in range(self._shards):
            runs = self._counter.runs
            descriptor = Descriptor(
                items=documents,
                items_hash=hash_sum,
                documents=documents,
                hash_sum=hash_sum,
                sections=tuple(run[shard] for run in runs if run[shard].length),
            )
            yield shard, descriptor.to_bytes()
