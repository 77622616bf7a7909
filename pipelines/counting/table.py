"""Table in which a worker counts pre-tokens, and the sorted runs that it writes."""

from __future__ import annotations

import threading
from collections import Counter
from typing import ClassVar, Final
from weakref import WeakSet

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from numpy.typing import NDArray

from bpe_core._native import PretokenTable
from bpe_core.count_files import columns_to_arrow
from bpe_core.count_groups import MAX_GROUPS, Group
from bpe_core.counting import add_custom_pretokens
from bpe_core.counts import PretokenCounts
from bpe_core.errors import SlowPatternError
from bpe_core.normalization import native_normalizer
from bpe_core.patterns import resolve_pattern
from bpe_core.special_tokens import special_set
from pipelines.batches import DocumentBatch
from pipelines.counting.first_round import load_runs
from pipelines.counting.jobs import CountRules, Section
from pipelines.counting.shards import merge_document_runs
from pipelines.errors import InputError, slow_pattern_error
from pipelines.manifest.names import new_run_name
from pipelines.metrics import Meter

_LONGEST_VALUE: Final = 1000  # characters of a value to group by


class PretokenCounter:
    """Counter of the pre-tokens of batches, which writes sorted runs.

    If documents are counted, a long document is counted in a table of its own, since parts of it in
    several runs would count as several documents.

    Callers must call `close` at the end, also after an error.

    Attributes:
        runs: The runs written so far, each as its sections, one per shard.
        pretokens: Number of pre-tokens in these runs.
        long_pretokens: Number of pre-tokens that were skipped because of their length.
        documents: Number of documents of each group.
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
        self._table, self._long_document = (
            PretokenTable(
                pattern.scanner,
                tokens,
                rules.max_pretoken_bytes,
                normalizer=self._normalizer,
                counts_documents=rules.document_frequency,
                runs=runs,
            )
            for _ in range(2)
        )
        self.start()
        MemoryShare.join(self)

    def start(self) -> None:
        """Forget the runs written so far, after `flush`."""
        self.runs: list[tuple[Section, ...]] = []
        self.pretokens = 0
        self.long_pretokens = 0
        self.documents: Counter[Group] = Counter()
        self._groups: dict[Group, int] = {}
        self._group_of_long = 0
        self._runs_of_long: list[tuple[Section, ...]] = []

    def add(self, batch: DocumentBatch, source: int = 0) -> None:
        """Count the documents of a batch of a source. Write a run when the tables are full."""
        if batch.part == 0:
            self._finish_long_document()
        groups = self._find_groups(batch, source) if self._rules.grouped else None
        if self._rules.document_frequency and batch.is_piece:
            self._add_part(batch, groups)
            return
        done = 0
        while done < len(batch):
            limit = MemoryShare.of(self._rules.memory)
            done = self._add(self._table, batch, done, limit, groups)
            if self._table.memory_bytes > limit or done < len(batch):
                self._flush_table()

    def _add(
        self,
        table: PretokenTable,
        batch: DocumentBatch,
        first: int,
        limit: int,
        groups: NDArray[np.int32] | None,
        *,
        continues: bool = False,
    ) -> int:
        """Count documents of a batch into a table until it is full. Return the first not counted.

        `continues`: they are parts of the document before.
        """
        if self._custom is None:
            done, too_long = table.add_documents(
                batch.data, batch.starts, batch.ends, first, limit, groups, continues
            )
        else:
            try:
                too_long = add_custom_pretokens(
                    table,
                    (batch.data.tobytes(), batch.starts, batch.ends),
                    self._custom,
                    self._specials,
                    self._normalizer,
                    max_pretoken_bytes=self._rules.max_pretoken_bytes,
                    groups=groups,
                )
            except SlowPatternError as error:
                raise slow_pattern_error(error, batch.where(error.document)) from None
            done = len(batch)
        for place in too_long:
            self._handle_long_pretoken(batch, *place)
        return done

    def _add_part(self, batch: DocumentBatch, groups: NDArray[np.int32] | None) -> None:
        """Count a part of a long document into a table of its own."""
        table = self._long_document
        self._group_of_long = 0 if groups is None else int(groups[0])
        self._add(table, batch, 0, 0, None, continues=len(table) > 0)
        limit = MemoryShare.of(self._rules.memory)
        # When its counts are added to a table, that may grow to twice its size.
        if len(self._table) and self._table.memory_bytes + 3 * table.memory_bytes > limit:
            self._flush_table()
        if table.memory_bytes > limit:
            self._runs_of_long.append(self._write_run(table, self._group_of_long))
        if batch.last:
            self._finish_long_document()

    def _finish_long_document(self) -> None:
        """Add the counts of a long document, if there is one, to those of its group."""
        table = self._long_document
        if self._runs_of_long:
            if len(table):
                self._runs_of_long.append(self._write_run(table, self._group_of_long))
            self.runs.append(merge_document_runs(self._rules, self._runs_of_long))
            self._runs_of_long = []
        elif len(table):
            self._table.add_table(table, self._group_of_long)
            table.clear()

    def _find_groups(self, batch: DocumentBatch, source: int) -> NDArray[np.int32]:
        """Return the number of each document's group."""
        name = self._rules.sources[source]
        if self._rules.group_by is None:
            numbers = np.full(len(batch), self._number_of(Group(name), batch, 0), np.int32)
        else:
            column = pa.nulls(len(batch), pa.string()) if batch.kept is None else batch.kept[0]
            values = pc.dictionary_encode(column, null_encoding="encode")
            indices = values.indices.to_numpy()
            first = dict(zip(*np.unique(indices, return_index=True), strict=True))
            of_value = np.array(
                [
                    self._number_of(Group(name, value or ""), batch, int(first[index]))
                    for index, value in enumerate(values.dictionary.to_pylist())
                ],
                np.int32,
            )
            numbers = of_value[indices]
        if batch.part == 0:
            known = list(self._groups)
            for number, documents in enumerate(np.bincount(numbers).tolist()):
                if documents:
                    self.documents[known[number]] += documents
        return numbers

    def _number_of(self, group: Group, batch: DocumentBatch, document: int) -> int:
        """Return the number of a group; `document` of the batch belongs to it."""
        number = self._groups.get(group)
        if number is not None:
            return number
        if len(group.value or "") > _LONGEST_VALUE:
            raise InputError(
                "A value is too long to keep counts apart by it.",
                expected=f"at most {_LONGEST_VALUE:,} characters",
                found=f"{len(group.value or ''):,} characters in {self._rules.group_by}",
                where=batch.where(document),
                hint="Choose another field for counts.group_by.",
            )
        if len(self._groups) == MAX_GROUPS:
            raise self._rules.too_many_groups(batch.where(document))
        self._groups[group] = len(self._groups)
        return self._groups[group]

    def __len__(self) -> int:
        """Return the number of distinct pre-tokens in the table."""
        return len(self._table)

    def counts(self) -> PretokenCounts:
        """Return the counts in the table."""
        return PretokenCounts(columns_to_arrow(*self._table.columns()), self._rules.metadata)

    def flush(self) -> None:
        """Write all counts to runs, and empty the tables."""
        self._finish_long_document()
        self._flush_table()

    def _flush_table(self) -> None:
        if len(self._table):
            self.runs.append(self._write_run(self._table))

    def _write_run(self, table: PretokenTable, group: int | None = None) -> tuple[Section, ...]:
        """Write a table to a run, and empty it. `group`: the only one it has; None for all."""
        names = None
        if self._rules.grouped:
            names = [self._rules.group_name(known) for known in self._groups]
            names = names if group is None else [names[group]]
        name = new_run_name()
        sections = []
        offset = 0
        with self._meter.time("write"), self._rules.runs.write(name) as file:
            for packed in table.pack_sections(self._rules.shards, names):
                file.write(packed)
                digest = xxhash.xxh3_128_hexdigest(packed)
                sections.append(Section(run=name, offset=offset, length=len(packed), hash=digest))
                offset += len(packed)
        self.pretokens += table.total()
        table.clear()
        return tuple(sections)

    def close(self) -> None:
        """Release the memory. Counts that are not in a run are lost."""
        self._table.clear()
        self._long_document.clear()
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
