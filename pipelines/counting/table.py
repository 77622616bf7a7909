"""The table in which a worker counts, and the runs that it is flushed to."""

from __future__ import annotations

import secrets
import threading
from typing import ClassVar
from weakref import WeakSet

import xxhash

from bpe_core._native import PretokenTable
from bpe_core.counts import add_custom_pretokens
from bpe_core.normalization import native_normalizer
from bpe_core.patterns import resolve_pattern
from pipelines.batches import DocumentBatch
from pipelines.counting.jobs import Counting, Section
from pipelines.errors import InputError
from pipelines.metrics import Meter


class _MemoryShare:
    """Deals the memory of the tables to the counters that are at work in this process.

    It does not hold them: one that is forgotten after an error has no share.
    """

    _lock = threading.Lock()
    _at_work: ClassVar[WeakSet[PretokenCounter]] = WeakSet()

    @classmethod
    def join(cls, counter: PretokenCounter) -> None:
        with cls._lock:
            cls._at_work.add(counter)

    @classmethod
    def leave(cls, counter: PretokenCounter) -> None:
        with cls._lock:
            cls._at_work.discard(counter)

    @classmethod
    def of(cls, memory: int) -> int:
        with cls._lock:
            return max(memory // max(len(cls._at_work), 1), 1)


class PretokenCounter:
    """Counts batches into runs. `close` must be called, also after an error.

    Attributes:
        runs: what was written, for each run its sections, one a shard.
        pretokens: how many they hold.
        long_pretokens: pre-tokens that were skipped because of their length.
    """

    def __init__(self, job: Counting, meter: Meter | None = None) -> None:
        self._rules = job
        self._meter = meter or Meter()
        pattern = resolve_pattern(job.pattern)
        self._custom = pattern.regex if pattern.native is None else None
        tokens = [token.encode() for token in job.special_tokens]
        self._normalizer = native_normalizer(job.normalizer, job.normalize_quotes)
        self._table = PretokenTable(
            pattern.native, tokens, job.max_pretoken_bytes, normalizer=self._normalizer
        )
        self.start()
        _MemoryShare.join(self)

    def close(self) -> None:
        """Gives the memory back; what is not committed is lost."""
        self._table.clear()
        _MemoryShare.leave(self)

    def start(self) -> None:
        """Begins anew with nothing written; what is in the table stays."""
        self.runs: list[tuple[Section, ...]] = []
        self.pretokens = 0
        self.long_pretokens = 0

    def add(self, batch: DocumentBatch) -> None:
        """Counts the documents of a batch; writes a run when the table is full."""
        done = 0
        while done < len(batch):
            limit = _MemoryShare.of(self._rules.memory)
            if self._custom is None:
                done, too_long = self._table.add_documents(
                    batch.data, batch.starts, batch.ends, done, limit
                )
            else:
                too_long = add_custom_pretokens(
                    self._table,
                    (batch.data.tobytes(), batch.starts, batch.ends),
                    self._custom,
                    self._rules.special_tokens,
                    self._normalizer,
                    max_pretoken_bytes=self._rules.max_pretoken_bytes,
                )
                done = len(batch)
            for place in too_long:
                self._meet_long_pretoken(batch, *place)
            if self._table.memory_bytes > limit or done < len(batch):
                self.flush()

    def _meet_long_pretoken(
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

    def flush(self) -> None:
        """Packs the table into a run and empties it."""
        if not len(self._table):
            return
        name = f"run-{secrets.token_hex(16)}.bin"
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
