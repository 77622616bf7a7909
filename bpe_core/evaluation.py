"""Measures of tokenizers, from how often a text has each id.

The frequencies of ids come from encoding a text, or from encoding each distinct pre-token of counts
once. Everything else follows from them and from the size of the text. docs/evaluating.md defines
each measure, and names those of other packages that are equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bpe_core._native import Encoder
from bpe_core.cores import check_num_threads, usable_cores
from bpe_core.counts import PretokenCounts
from bpe_core.pretoken_encoding import (
    check_counted_as_encoded,
    check_keeps_spaces,
    make_pretoken_encoder,
)
from bpe_core.short_repr import short_repr
from bpe_core.text_measures import find_words
from bpe_core.tokenizer import BPETokenizer

__all__ = ["TokenUse", "UseCounter", "gini", "renyi_efficiency"]


@short_repr
@dataclass(frozen=True, kw_only=True)
class TokenUse:
    """Use of the ids of a tokenizer by a text.

    Attributes:
        ids: int64[n], ids that occur, ascending.
        counts: int64[n], occurrences of each.
        word_tokens: Number of tokens of the words.
        single_token_words: Number of words that are one token.
    """

    ids: NDArray[np.int64]
    counts: NDArray[np.int64]
    word_tokens: int
    single_token_words: int

    @property
    def tokens(self) -> int:
        """The number of tokens."""
        return int(self.counts.sum())

    def __add__(self, other: TokenUse) -> TokenUse:
        """Return the use by both texts."""
        ids, places = np.unique(np.concatenate([self.ids, other.ids]), return_inverse=True)
        counts = np.zeros(len(ids), np.int64)
        np.add.at(counts, places, np.concatenate([self.counts, other.counts]))
        return TokenUse(
            ids=ids,
            counts=counts,
            word_tokens=self.word_tokens + other.word_tokens,
            single_token_words=self.single_token_words + other.single_token_words,
        )


class UseCounter:
    """Counter of the ids of a tokenizer in counted texts.

    Words are pre-tokens with a letter. Special tokens are not in counts.

    Args:
        tokenizer: The tokenizer, which merges bytes.
        num_threads: Number of threads; 0 for all cores.

    Example:
        >>> tokenizer = BPETokenizer({0: b"a", 1: b"b", 2: b"ab", 3: b"!"}, [(b"a", b"b")])
        >>> counts = PretokenCounts.from_mapping({b"ab": 3, b"!!": 1})
        >>> use = UseCounter(tokenizer).count(counts)
        >>> use.ids.tolist(), use.counts.tolist(), use.word_tokens, use.single_token_words
        ([2, 3], [3, 2], 3, 3)
    """

    def __init__(self, tokenizer: BPETokenizer, *, num_threads: int = 0) -> None:
        check_num_threads(num_threads)
        self._model = tokenizer.model
        self._threads = num_threads or usable_cores()

    def __repr__(self) -> str:
        return f"UseCounter({self._model!r})"

    @cached_property
    def _encoder(self) -> Encoder:
        return make_pretoken_encoder(self._model)

    def count(self, counts: PretokenCounts) -> TokenUse:
        """Return how often the ids occur in a counted text.

        Args:
            counts: Counts by the tokenizer's pattern and normalizer.

        Raises:
            TrainingError: The tokenizer would split or encode the text in another way than it was
                counted.
        """
        check_counted_as_encoded(self._model, counts, "tokenizer")
        check_keeps_spaces(self._model)
        keys, offsets, numbers = counts.columns()
        num_tokens = len(self._model.token_ids)
        occurrences, alone = (
            found.reshape(num_tokens, 2)
            for found in self._encoder.count_token_use(
                keys,
                offsets,
                np.arange(len(numbers) + 1),
                find_words(keys, offsets, "letters").astype(np.int32),
                numbers,
                0,
                2,
                num_tokens,
                self._threads,
            )
        )
        total = occurrences.sum(axis=1)
        used = np.flatnonzero(total)
        return TokenUse(
            ids=self._model.token_ids[used],
            counts=total[used],
            word_tokens=int(occurrences[:, 1].sum()),
            single_token_words=int(alone[:, 1].sum()),
        )


def renyi_efficiency(
    counts: NDArray[np.integer] | Sequence[int], vocab_size: int, alpha: float = 2.5
) -> float | None:
    """Return the Rényi entropy of the distribution of tokens as a share of the largest possible.

    It is 1 if all ids are equally frequent (Zouhar et al. 2023, "Tokenization and the Noiseless
    Channel"). With alpha 1 it is Shannon's entropy.

    Args:
        counts: Occurrences of each id; 0 is possible.
        vocab_size: Number of ids of the vocabulary.
        alpha: Order; the larger, the more frequent ids matter.

    Returns:
        The efficiency, or None without tokens or with fewer than two ids.

    Example:
        >>> renyi_efficiency([1, 1, 1, 1], 4), renyi_efficiency([2, 2, 0, 0], 4, alpha=1)
        (1.0, 0.5)
    """
    numbers = np.asarray(counts, float)
    numbers = numbers[numbers > 0]
    if not len(numbers) or vocab_size < 2:
        return None
    shares = numbers / numbers.sum()
    if alpha == 1:
        entropy = -float(shares @ np.log2(shares))
    else:
        entropy = math.log2(float((shares**alpha).sum())) / (1 - alpha)
    return max(entropy, 0.0) / math.log2(vocab_size)


def gini(costs: Iterable[float]) -> float | None:
    """Return the Gini coefficient: 0 for equal costs, towards 1 if one has all.

    Args:
        costs: Costs of groups, such as tokens of a byte; not negative.

    Returns:
        The coefficient, or None for fewer than two groups or costs of 0.

    Example:
        >>> gini([0.25, 0.25]), gini([0.0, 1.0])
        (0.0, 0.5)
    """
    ordered = np.sort(np.fromiter(costs, float))
    size = len(ordered)
    if size < 2 or not ordered.sum():
        return None
    # The sum of all differences, without forming them: each cost by its place in the order.
    places = 2 * np.arange(size) - size + 1
    return float(places @ ordered / (size * ordered.sum()))
