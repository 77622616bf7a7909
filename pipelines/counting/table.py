"""Table in which a worker counts pre-tokens, and the sorted runs that it writes."""

from __future__ import annotations

import threading
from typing import ClassVar
from weakref import WeakSet

import xxhash

from bpe_core._native import PretokenTable
from bpe_core.counting import add_custom_pretokens
from bpe_core.counts import PretokenCounts, columns_to_arrow
from bpe_core.normalization import native_normalizer
from bpe_core.patterns import resolve_pattern
from bpe_core.special_tokens import special_set
from pipelines.batches import DocumentBatch
from pipelines.counting.first_round import load_runs
from pipelines.counting.jobs import CountRules, Section
from pipelines.errors import InputError
from pipelines.manifest.names import new_run_name
from pipelines.metrics import Meter


class PretokenCounter:
    """Counter of the pre-tokens of batches, which writes sorted runs.

    Callers must call `close` at the end, also after an error.

    Attributes:
        runs: The runs written so far, each as its sections, one per shard.
        pretokens: Number of pre-tokens in these runs.
        long_pretokens: Number of pre-tokens that were skipped because of their length.
    """

    def __init__(self, rules: CountRules, meter: Meter | None = None) -> None:
        self._rules = rules
        self._meter = meter or Meter()
        pattern = resolve_pattern(rules.pattern)
        self._custom = pattern.regex if pattern.scanner is None else None
        tokens = [token.encode() for token in rules.special_tokens]
        self._specials = special_set(rules.special_tokens)
        self._normalizer = native_normalizer(rules.normalizer, rules.normalize_quotes)
        runs = None if rules.superwords is None else load_runs(rules.superwords)
        self._table = PretokenTable(
            pattern.scanner,
            tokens,
            rules.max_pretoken_bytes,
            normalizer=self._normalizer,
            runs=runs,
        )
        self.start()
        MemoryShare.join(self)

    def start(self) -> None:
        """Forget the runs written so far. The table keeps its counts."""
        self.runs: list[tuple[Section, ...]] = []
        self.pretokens = 0
        self.long_pretokens = 0

    def add(self, batch: DocumentBatch) -> None:
        """Count the documents of a batch. Write a run when the table is full."""
        done = 0
        while done < len(batch):
            limit = MemoryShare.of(self._rules.memory)
            if self._custom is None:
                done, too_long = self._table.add_documents(
                    batch.data, batch.starts, batch.ends, done, limit
                )
            else:
                too_long = add_custom_pretokens(
                    self._table,
                    (batch.data.tobytes(), batch.starts, batch.ends),
                    self._custom,
                    self._specials,
                    self._normalizer,
                    max_pretoken_bytes=self._rules.max_pretoken_bytes,
                )
                done = len(batch)
            for place in too_long:
                self._handle_long_pretoken(batch, *place)
            if self._table.memory_bytes > limit or done < len(batch):
                self.flush()

    def __len__(self) -> int:
        """Return the number of distinct pre-tokens in the table."""
        return len(self._table)

    def counts(self) -> PretokenCounts:
        """Return the counts in the table."""
        return PretokenCounts(columns_to_arrow(*self._table.columns()), self._rules.metadata)

    def flush(self) -> None:
        """Write the table to a run, and empty it."""
        if not len(self._table):
            return
        name = new_run_name()
        sections = []
        offset = 0
        with self._meter.time("write"), self._rules.runs.write(name) as file:
            for packed in self._table.pack_sections(self._rules.shards):
                file.write(packed)
                digest = xxhash.xxh3_128_hexdigest(packed)
                sections.append(Section(run=name, offset=offset, length=len(packed), hash=digest))
                offset += len(packed)
        self.runs.append(tuple(sections))
        self.pretokens += self._table.total()
        self._table.clear()

    def close(self) -> None:
        """Release the memory. Counts that are not in a run are lost."""
        self._table.clear()
        MemoryShare.leave(self)

    def _handle_long_pretoken(
        self, batch: DocumentBatch, document: int, begin: int, length: int
    ) -> None:
        if self._rules.on_long_pretoken == "skip":
            self.long_pretokens += 1
            return
        raise InputError(
            "A pre-token is too long.",
            expected=f"at most {self._rules.max_pretoken_bytes:,} bytes (max_pretoken_bytes)",
            found=f"{length:,} bytes",
            where=f"{batch.where(document)}, part {batch.part}, byte {begin:,}",
            hint="Raise max_pretoken_bytes, or leave such pre-tokens out with on_long_pretoken "
            "(in a build counts.max_pretoken_bytes, counts.on_long_pretoken: skip).",
        )


class MemoryShare:
    """Division of the memory for tables among the counters of this process.

    It only has weak references to counters, so that one left over after an error loses its share.
    """

    _lock = threading.Lock()
    _counters: ClassVar[WeakSet[PretokenCounter]] = WeakSet()

    @classmethod
    def join(cls, counter: PretokenCounter) -> None:
        """Give a counter a share from now on."""
        with cls._lock:
            cls._counters.add(counter)

    @classmethod
    def leave(cls, counter: PretokenCounter) -> None:
        """Divide a counter's share among the others."""
        with cls._lock:
            cls._counters.discard(counter)

    @classmethod
    def of(cls, memory: int) -> int:
        """Return how many bytes of this memory each counter may use."""
        with cls._lock:
            return max(memory // max(len(cls._counters), 1), 1)
