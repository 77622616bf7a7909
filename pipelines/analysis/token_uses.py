"""Use of all tokens of a tokenizer by the counted text or the token files of an output."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from bpe_core.cores import usable_cores
from bpe_core.count_groups import entries_of_file
from bpe_core.counts import PretokenCounts
from bpe_core.model import TokenizerModel
from bpe_core.pretoken_encoding import make_pretoken_encoder
from pipelines.analysis.pretokens import read_row_groups
from pipelines.counting.given import GivenCounts, RowGroup
from pipelines.dataset.reading import TokenDataset
from pipelines.dataset.report import read_all_statistics
from pipelines.tokenizers.vocabulary import Vocabulary

__all__ = ["TokenUses", "count_uses", "read_uses"]

# Sources whose uses are in memory at the same time.
_SOURCES_AT_ONCE: Final = 32


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenUses:
    """Use of the ordinary tokens of a tokenizer, in the order of `TokenizerModel.token_ids`.

    Attributes:
        uses: int64[n], number of times that encoding the counted text uses each token.
        sources: names of the sources whose counts are kept apart; () if they are not.
        source_tokens: number of tokens of each source.
        only_source: int64[n], index of the source that alone has the token; -1 if none has it, -2
            if several have.
        documents: int64[n], upper bound of the documents with the token: those of all pre-tokens
            that have it; None if documents were not counted.
    """

    uses: NDArray[np.int64]
    sources: tuple[str, ...]
    source_tokens: tuple[int, ...]
    only_source: NDArray[np.int64]
    documents: NDArray[np.int64] | None = None

    @classmethod
    def of_all_text(cls, uses: NDArray[np.int64]) -> Self:
        """Return uses of which the sources are not known."""
        nowhere = np.full(len(uses), -1, np.int64)
        return cls(uses=uses, sources=(), source_tokens=(), only_source=nowhere)


def read_uses(dataset: TokenDataset, model: TokenizerModel) -> NDArray[np.int64]:
    """Return the uses of the ordinary tokens in token files: int64[n], from their statistics."""
    vocabulary = Vocabulary(model)
    uses = read_all_statistics(dataset, vocabulary).all_uses()
    return uses[vocabulary.rows_of(model.token_ids)]


def count_uses(model: TokenizerModel, counts: GivenCounts) -> TokenUses:
    """Return the use of the tokens by counted text, a row group of which is in memory at a time.

    Args:
        model: a tokenizer that splits text as it was counted.
        counts: the counts.

    Raises:
        TrainingError: the text was counted in another way than the tokenizer splits it.
        DamagedOutputError: a shard is missing or damaged.
    """
    counter = _Counter(model)
    counter.add_all(read_row_groups(model, counts))
    while counter.has_more_sources:
        counter.begin_next_sources()
        counter.add_all(read_row_groups(model, counts))
    return counter.finish()


class _Counter:
    """Counts of uses, of all text and of a range of sources."""

    def __init__(self, model: TokenizerModel) -> None:
        self._encoder = make_pretoken_encoder(model)
        self._size = len(model.token_ids)
        self._total = np.zeros(self._size, np.int64)
        self._only = np.full(self._size, -1, np.int64)
        self._documents: NDArray[np.int64] | None = None
        self._sources: dict[str, int] = {}
        self._source_tokens: list[int] = []
        self._first = 0
        self._of_sources = np.zeros((self._size, _SOURCES_AT_ONCE), np.int64)

    @property
    def has_more_sources(self) -> bool:
        """True if there are sources that were not counted yet."""
        return len(self._sources) > self._first + _SOURCES_AT_ONCE

    def add_all(self, groups: Iterable[RowGroup]) -> None:
        """Add the pre-tokens of row groups."""
        for group in groups:
            self._add(group)

    def _add(self, group: RowGroup) -> None:
        optional = [name for name in ("documents", "groups") if name in group.columns]
        table = group.read(["pretoken", "count", *optional])
        keys, offsets, counts = PretokenCounts(table.select(["pretoken", "count"])).columns()
        rows, whole = np.arange(len(table) + 1), np.zeros(len(table), np.int32)
        if "documents" in optional and self._first == 0:
            documents = table["documents"].to_numpy()
            found = self._count(keys, offsets, rows, whole, documents)[:, 0]
            self._documents = found if self._documents is None else self._documents + found
        if "groups" not in optional:
            self._total += self._count(keys, offsets, rows, whole, counts)[:, 0]
            return
        groups, entries = entries_of_file(table["groups"], "the counts")
        numbers = [self._sources.setdefault(g.source, len(self._sources)) for g in groups]
        of_entries = np.array(numbers, np.int32)[entries.groups]
        self._of_sources += self._count(keys, offsets, entries.offsets, of_entries, entries.counts)

    def _count(
        self,
        keys: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        rows: NDArray[np.int64],
        groups: NDArray[np.int32],
        counts: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Return the uses by the sources of the range, int64[n, sources]."""
        occurrences, _ = self._encoder.count_token_use(
            keys,
            offsets,
            rows,
            groups,
            counts,
            self._first,
            _SOURCES_AT_ONCE,
            self._size,
            usable_cores(),
        )
        return occurrences.reshape(self._size, -1)

    def begin_next_sources(self) -> None:
        """Continue with the sources after those of the range, for which all is read again."""
        self._close()
        self._first += _SOURCES_AT_ONCE

    def finish(self) -> TokenUses:
        """Return the uses, once all sources were counted."""
        self._close()
        sources = tuple(self._sources)
        return TokenUses(
            uses=self._total,
            sources=sources,
            source_tokens=tuple(self._source_tokens[: len(sources)]),
            only_source=self._only,
            documents=self._documents,
        )

    def _close(self) -> None:
        used = self._of_sources > 0
        several = used.sum(axis=1) + (self._only != -1) > 1
        one = used.any(axis=1)
        self._only = np.where(one, self._first + used.argmax(axis=1), self._only)
        self._only[several] = -2
        self._total += self._of_sources.sum(axis=1)
        self._source_tokens += self._of_sources.sum(axis=0).tolist()
        self._of_sources[:] = 0
