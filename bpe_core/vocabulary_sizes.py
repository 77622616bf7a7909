"""Use of a vocabulary by counted text, at several sizes of the vocabulary.

A smaller tokenizer of the same training has the first merges of a larger one. Encoding applies the
merge of lowest rank first, and each merge joins tokens that earlier merges made. So the tokens of a
pre-token at a smaller size are its tokens at the larger size with the later merges undone, the last
first. All distinct pre-tokens are encoded once, with the largest size; for each smaller one, the
counts of tokens suffice. `bpe_core.reference.use_at_size` is the same in plain Python.

Merges of an extended tokenizer may make a token in several ways. If such a merge would have to be
undone, the pre-tokens are encoded again instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bpe_core._native import undo_merges
from bpe_core.buffers import lengths_of
from bpe_core.cores import check_num_threads, usable_cores
from bpe_core.count_groups import Group
from bpe_core.counts import PretokenCounts
from bpe_core.errors import CountOverflowError, TrainingError
from bpe_core.model import TokenizerModel
from bpe_core.pretoken_encoding import (
    check_counted_as_encoded,
    check_keeps_spaces,
    make_pretoken_encoder,
    merge_rows,
)
from bpe_core.short_repr import short_repr
from bpe_core.tokenizer import BPETokenizer

__all__ = ["VocabularySize", "VocabularyUse", "measure_vocabulary_sizes"]

NEWEST: Final = 1000  # tokens whose frequency is measured
_MOST_ENTRIES: Final = 1 << 24  # counts of tokens by group, for a thread


@short_repr
@dataclass(frozen=True, kw_only=True)
class VocabularyUse:
    """Use of a vocabulary by a text, special tokens in the text excluded.

    Attributes:
        tokens: Number of tokens of the text.
        bytes: Number of bytes of the text, normalized as it was counted.
        pretokens: Number of pre-tokens, the words that the pattern splits the text into.
        single_token_pretokens: Number of pre-tokens that are one token.
        used_ids: Number of ids that occur.
        last_thousand_tokens: Occurrences of the 1,000 newest tokens together.
    """

    tokens: int
    bytes: int
    pretokens: int
    single_token_pretokens: int
    used_ids: int
    last_thousand_tokens: int

    @property
    def bytes_per_token(self) -> float:
        """Return the average number of bytes of a token; 0 without text."""
        return self.bytes / self.tokens if self.tokens else 0.0

    @property
    def fertility(self) -> float:
        """Return the average number of tokens of a pre-token; 0 without text."""
        return self.tokens / self.pretokens if self.pretokens else 0.0


@short_repr
@dataclass(frozen=True, kw_only=True)
class VocabularySize:
    """Use of the vocabulary at one size.

    Attributes:
        vocab_size: The size that was asked for, special tokens included.
        ids: The number of ids at this size: fewer if training found nothing more to merge.
        total: Use by all of the text.
        sources: Use by the text of each source, by name; empty if counts are not kept apart.
        groups: Use by the text of each group; empty unless counts are kept apart by a field.
    """

    vocab_size: int
    ids: int
    total: VocabularyUse
    sources: Mapping[str, VocabularyUse]
    groups: Mapping[Group, VocabularyUse]


def measure_vocabulary_sizes(
    tokenizer: BPETokenizer,
    counts: PretokenCounts,
    sizes: Sequence[int],
    *,
    num_threads: int = 0,
) -> list[VocabularySize]:
    """Return how the counted text would be encoded with smaller vocabularies of a tokenizer.

    The numbers are exact: those of tokenizers that are trained to each size.

    Args:
        tokenizer: The tokenizer, which merges bytes.
        counts: Counts of the text, by the tokenizer's pattern and normalizer.
        sizes: Sizes of the vocabulary, special tokens included. A size above the tokenizer's is
            only possible if training ended because there was nothing more to merge.
        num_threads: Number of threads; 0 for all cores.

    Returns:
        The use of the vocabulary at each size, in the order of `sizes`.

    Raises:
        TrainingError: A size is not possible, the tokenizer merges characters or adds spaces, or
            the counts were made with another pattern or normalization.
        CountOverflowError: The text has 2^63 bytes or more.

    Example:
        >>> from bpe_core import train_from_counts
        >>> counts = PretokenCounts.from_mapping({b"low": 5, b"lower": 2})
        >>> tokenizer = train_from_counts(counts, 258).tokenizer()
        >>> [size.total.tokens for size in measure_vocabulary_sizes(tokenizer, counts, [256, 258])]
        [25, 11]
    """
    check_num_threads(num_threads)
    model = tokenizer.model
    check_counted_as_encoded(model, counts, "tokenizer")
    check_keeps_spaces(model)
    steps = _Steps(model)
    for size in sizes:
        steps.check_size(size)
    text = _Text.of(counts)
    by_source = sorted({group.source for group in counts.groups})
    source_of = {name: i for i, name in enumerate(by_source)}
    by_value = [group for group in counts.groups if group.value is not None]
    use = _count_use_by_group(text, steps, sizes, max(1, len(counts.groups)), num_threads)
    total, sources, groups = (
        _measure(text, steps, sizes, parts, use, num_threads)
        for parts in (
            [0] * max(1, len(counts.groups)),
            [source_of[group.source] for group in counts.groups],
            [*range(len(by_value))],
        )
    )
    return [
        VocabularySize(
            vocab_size=size,
            ids=steps.ids_after(steps.merges_at(size)),
            total=total[size][0],
            sources=dict(zip(by_source, sources[size], strict=True)),
            groups=dict(zip(by_value, groups[size], strict=True)),
        )
        for size in sizes
    ]


@dataclass(frozen=True)
class _Text:
    """Counted pre-tokens with their counts by group; text without groups is one group.

    Attributes:
        keys, offsets: Pre-token i is keys[offsets[i]:offsets[i + 1]].
        rows: The counts of pre-token i are those from rows[i] to rows[i + 1].
        groups: Group of each count.
        counts: The counts.
    """

    keys: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    rows: NDArray[np.int64]
    groups: NDArray[np.int32]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, counts: PretokenCounts) -> _Text:
        keys, offsets, numbers = counts.columns()
        # Only an estimate: sums of int64 might overflow, too.
        if float(np.diff(offsets).astype(float) @ numbers.astype(float)) >= 2**62:
            raise CountOverflowError(
                "counts: expected text of fewer than 2^62 bytes, found more; scale the counts down"
            )
        columns = counts.group_columns()
        if columns is None:
            rows = np.arange(len(numbers) + 1)
            return cls(keys, offsets, rows, np.zeros(len(numbers), np.int32), numbers)
        return cls(keys, offsets, columns.offsets, columns.groups, columns.counts)

    def combine(self, parts: Sequence[int]) -> _Text:
        """Return the text with groups combined to parts, given for each group."""
        return replace(self, groups=np.array(parts, np.int32)[self.groups])

    def pretokens(self, num_groups: int) -> NDArray[np.int64]:
        """Return the number of pre-tokens of each group."""
        sums = np.zeros(num_groups, np.int64)
        np.add.at(sums, self.groups, self.counts)
        return sums


class _Steps:
    """The merges of a tokenizer as rows of its tokens, and the number of ids after each.

    Attributes:
        model: The tokenizer.
        sides: uint32[3, m], the left and the right side and the result of each merge.
        base: The number of merges of the tokenizer that was extended; 0 if none was.
        least: The smallest size.
    """

    def __init__(self, model: TokenizerModel) -> None:
        left, right, result = self.sides = merge_rows(model)
        ranks = np.arange(len(result))
        made = np.full(len(model.token_ids), -1)
        made[result[::-1]] = ranks[::-1]  # of several merges the first
        self.model = model
        self._is_new = made[result] == ranks
        self._new_tokens: NDArray[np.uint32] = result[self._is_new]
        self._ids = np.zeros(len(result) + 1, np.int64)
        np.cumsum(self._is_new, out=self._ids[1:])
        self._ids += len(model) - self._ids[-1]
        # The last merge that makes a side of an earlier one. Training never leads to these.
        last_made = np.maximum(made[left], made[right])
        self._made_later = last_made[last_made > ranks]
        self.base = _count_base_merges(model)
        self.least = int(self._ids[self.base])

    def check_size(self, size: int) -> None:
        """Raise TrainingError if the tokenizer does not contain one of this size."""
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)):
            raise TrainingError(f"sizes: expected integers, found {size!r}")
        if size < len(self.model) and (self.model.training_options or {}).get("required_tokens"):
            raise TrainingError(
                "tokenizer: expected one without required tokens, whose merges are other ones at "
                "each size, found one with them; train each size"
            )
        if size < self.least:
            raise TrainingError(
                f"sizes: expected at least {self.least}, the ids before the first merge, found "
                f"{size}"
            )
        is_complete = self.model.stop_reason in ("below_min_frequency", "no_pairs_left")
        if size > len(self.model) and not is_complete:
            raise TrainingError(
                f"sizes: expected at most {len(self.model)}, the ids of the tokenizer, found "
                f"{size}; train a tokenizer of that size"
            )

    def merges_at(self, size: int) -> int:
        """Return the number of merges that training to a size makes."""
        if size >= len(self.model):
            return len(self._is_new)
        return max(self.base, int(np.searchsorted(self._ids, size)))

    def ids_after(self, num_merges: int) -> int:
        """Return the number of ids after a number of merges."""
        return int(self._ids[num_merges])

    def newest(self, num_merges: int) -> NDArray[np.uint32]:
        """Return the rows of the newest tokens after a number of merges."""
        last = int(self._ids[num_merges] - self._ids[0])
        return self._new_tokens[max(0, last - NEWEST) : last]

    def can_undo(self, first: int, last: int) -> bool:
        """Return True if undoing merges, from `last` down to `first`, gives the earlier tokens."""
        if first == last:
            return True
        if self.model.ignore_merges or not self._is_new[first:last].all():
            return False
        later = self._made_later
        return not bool(((later >= first) & (later < last)).any())


def _count_base_merges(model: TokenizerModel) -> int:
    base = (model.training_options or {}).get("base")
    merges = base.get("merges") if isinstance(base, Mapping) else 0
    if not isinstance(merges, int) or not 0 <= merges <= len(model.merges):
        return 0
    return merges


@dataclass(frozen=True)
class _Use:
    """Use of the tokens after a number of merges.

    Attributes:
        occurrences: int64[tokens, groups], occurrences of each token.
        alone: int64[tokens, groups], number of pre-tokens that consist of the token.
        sums: int64[3, groups]: all occurrences, tokens that occur, pre-tokens of one token.
    """

    occurrences: NDArray[np.int64]
    alone: NDArray[np.int64]
    sums: NDArray[np.int64]

    @classmethod
    def of(cls, occurrences: NDArray[np.int64], alone: NDArray[np.int64]) -> _Use:
        used = np.count_nonzero(occurrences, axis=0)
        return cls(occurrences, alone, np.stack([occurrences.sum(axis=0), used, alone.sum(axis=0)]))

    def combine(self, parts: Sequence[int]) -> _Use:
        """Return the use with groups combined to parts, given for each group."""
        combined = []
        for of_groups in (self.occurrences, self.alone):
            sums = np.zeros((len(of_groups), max(parts) + 1), np.int64)
            for group, part in enumerate(parts):
                sums[:, part] += of_groups[:, group]
            combined.append(sums)
        return _Use.of(*combined)


def _count_use_by_group(
    text: _Text, steps: _Steps, sizes: Sequence[int], num_groups: int, num_threads: int
) -> _Use | None:
    """Return the use at the largest size by each group; None if there are too many groups."""
    if not sizes or num_groups * len(steps.model.token_ids) > _MOST_ENTRIES:
        return None
    num_merges = steps.merges_at(max(sizes))
    return _count_use(text, steps.model, num_merges, range(num_groups), num_threads)


def _measure(
    text: _Text,
    steps: _Steps,
    sizes: Sequence[int],
    parts: Sequence[int],
    use_by_group: _Use | None,
    num_threads: int,
) -> dict[int, list[VocabularyUse]]:
    """Return the use of the vocabulary at each size by each part of the text.

    Args:
        text: The text.
        steps: The merges.
        sizes: The sizes.
        parts: The part that each group of the text belongs to, from 0; none: nothing is measured.
        use_by_group: The use at the largest size, if all groups were counted at once.
        num_threads: Number of threads.
    """
    found: dict[int, list[VocabularyUse]] = {size: [] for size in sizes}
    if not parts:
        return found
    text = text.combine(parts)
    largest = None if use_by_group is None else use_by_group.combine(parts)
    num_parts = max(parts) + 1
    pretokens = text.pretokens(num_parts)
    lengths = lengths_of(steps.model.token_bytes)
    at_once = num_parts if largest else max(1, _MOST_ENTRIES // len(lengths))
    for first in range(0, num_parts, at_once):
        some = range(first, min(first + at_once, num_parts))
        bytes_of_parts: NDArray[np.int64] | None = None  # the same at each size
        for size, use in _use_at_sizes(text, steps, sizes, some, largest, num_threads):
            if bytes_of_parts is None:
                bytes_of_parts = lengths @ use.occurrences
            newest = steps.newest(steps.merges_at(size))
            tokens, used, alone = use.sums
            columns = {
                "tokens": tokens,
                "bytes": bytes_of_parts,
                "pretokens": pretokens[some.start : some.stop],
                "single_token_pretokens": alone,
                "used_ids": used,
                "last_thousand_tokens": use.occurrences[newest].sum(axis=0),
            }
            for i in range(len(some)):
                numbers = {name: int(values[i]) for name, values in columns.items()}
                found[size].append(VocabularyUse(**numbers))
    return found


def _use_at_sizes(
    text: _Text,
    steps: _Steps,
    sizes: Sequence[int],
    groups: range,
    largest: _Use | None,
    num_threads: int,
) -> Iterator[tuple[int, _Use]]:
    """Yield the use of the tokens at each size, the largest first; the next step changes it.

    Args:
        text: The text.
        steps: The merges.
        sizes: The sizes.
        groups: The groups whose use is counted.
        largest: Their use at the largest size; None if it is not known.
        num_threads: Number of threads.
    """
    use = largest
    last = steps.merges_at(max(sizes))
    for size in sorted(set(sizes), reverse=True):
        first = steps.merges_at(size)
        if use is not None and steps.can_undo(first, last):
            left, right, result = steps.sides[:, first:last]
            undo_merges(left, right, result, use.occurrences, use.alone, use.sums)
        else:
            use = _count_use(text, steps.model, first, groups, num_threads)
        last = first
        yield size, use


def _count_use(
    text: _Text, model: TokenizerModel, num_merges: int, groups: range, num_threads: int
) -> _Use:
    """Encode each pre-token with the first merges."""
    encoder = make_pretoken_encoder(model, num_merges)
    num_tokens = len(model.token_ids)
    occurrences, alone = encoder.count_token_use(
        text.keys,
        text.offsets,
        text.rows,
        text.groups,
        text.counts,
        groups.start,
        len(groups),
        num_tokens,
        num_threads or usable_cores(),
    )
    return _Use.of(occurrences.reshape(num_tokens, -1), alone.reshape(num_tokens, -1))
