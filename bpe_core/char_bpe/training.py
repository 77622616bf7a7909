"""Learning a character-level vocabulary from counted words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bpe_core._native import MergeLearner, OrderedPretokens
from bpe_core.char_bpe.settings import WORD_END, Settings
from bpe_core.counts import PretokenCounts
from bpe_core.errors import TrainingError
from bpe_core.mixtures import to_occurrences, to_units

__all__ = [
    "CountedWords",
    "Learned",
    "Options",
    "character_counts",
    "learn",
    "longest_first_order",
    "token_length",
]

StopReason: TypeAlias = Literal[
    "vocab_size_reached", "max_merges_reached", "below_min_frequency", "no_pairs_left"
]
CharTieBreak: TypeAlias = Literal["first_seen", "lexicographic", "first_id"]

_MERGES_A_STEP = 256
_MOST_TOKEN_BYTES = 1 << 27  # limit for all tokens together, and so for the size of their file
_CHUNK_BYTES = 1 << 20
_CODE_POINTS = 0x110000
# The whitespace of str.split, in the syntax of Arrow's regular expressions.
_BEGINS_WITH_WHITE_SPACE = (
    r"^[\t-\r\x1c- \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]"
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Checked arguments of `CharBPETokenizer.train`.

    Raises:
        TrainingError: An argument is invalid.
    """

    vocab_size: int
    min_frequency: int
    max_merges: int | None
    limit_alphabet: int | None
    tie_break: CharTieBreak
    max_token_bytes: int | None = None
    forbidden_tokens: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, least in {
            "vocab_size": 1,
            "min_frequency": 1,
            "max_merges": 0,
            "limit_alphabet": 1,
            "max_token_bytes": 1,
        }.items():
            value = getattr(self, name)
            if value is None and name not in ("vocab_size", "min_frequency"):
                continue
            is_integer = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
            if not is_integer or value < least:
                raise TrainingError(f"{name}: expected an integer from {least}, found {value!r}")
        if self.tie_break not in ("first_seen", "lexicographic", "first_id"):
            raise TrainingError(
                "tie_break: expected first_seen, lexicographic or first_id, found "
                f"{self.tie_break!r}"
            )


@dataclass(frozen=True, kw_only=True)
class CountedWords:
    """Distinct words with their counts, in the order of first occurrence.

    Attributes:
        text: The concatenated words in UTF-8.
        offsets: int64[n + 1] of words in the text.
        counts: int64[n].
        unit: Count of one occurrence, above 1 for the counts of a mixture.
    """

    text: bytes
    offsets: NDArray[np.int64]
    counts: NDArray[np.int64]
    unit: int = 1


@dataclass(frozen=True, kw_only=True)
class Learned:
    """Result of training; tokens are texts, and ids are their indices."""

    vocab: dict[str, int]
    merges: list[tuple[str, str]]
    merge_counts: list[int]
    stop_reason: StopReason


def learn(
    words: CountedWords,
    settings: Settings,
    options: Options,
    on_merge: Callable[[str, str, int, int], None] | None = None,
    on_step: Callable[[int, bytes], None] | None = None,
) -> Learned:
    """Merge the most frequent pair of adjacent tokens, repeatedly.

    Ids: reserved tokens, the alphabet by code point, the end of a word (as a suffix: each character
    with it), merges in order. Of a word with a character outside of the alphabet, the parts before
    and after this character are used.

    Args:
        words: Words to learn from.
        settings: Settings of the tokenizer.
        options: Options of the training.
        on_merge: Called for each merge with (left, right, count of the pair, number of tokens).
        on_step: Called with the number of merges and the newest token from time to time.

    Raises:
        TrainingError: The vocabulary is smaller than the tokens that precede the merges.
    """
    alphabet = _Alphabet(words, settings, options.limit_alphabet)
    symbols = alphabet.symbols
    reserved = settings.reserved
    first = len(reserved)
    if options.vocab_size < first + len(symbols):
        raise TrainingError(
            f"vocab_size: expected at least {first + len(symbols)} ({first} special and unknown "
            f"tokens, {len(symbols)} characters and ends of words), found {options.vocab_size}; "
            "raise it, or limit the alphabet with limit_alphabet"
        )
    learner = MergeLearner.from_symbols(
        [symbol.encode() for symbol in symbols],
        *alphabet.sequences(),
        options.tie_break,
        to_units(options.min_frequency, words.unit),
        options.max_token_bytes or 0,
        [token.encode() for token in (*reserved, *options.forbidden_tokens)],
    )
    vocab = {token: i for i, token in enumerate([*reserved, *symbols])}
    learned = Learned(vocab=vocab, merges=[], merge_counts=[], stop_reason="no_pairs_left")
    tokens = list(symbols)
    goes_on = True
    while goes_on:
        room = _MERGES_A_STEP
        if options.max_merges is not None:
            room = min(room, options.max_merges - len(learned.merges))
        if not room and first + learner.num_symbols < options.vocab_size:
            return _stopped(learned, "max_merges_reached")
        goes_on = learner.learn(options.vocab_size - first, room)
        if learner.symbol_bytes > _MOST_TOKEN_BYTES:
            raise TrainingError(
                f"tokens: expected at most {_MOST_TOKEN_BYTES:,} bytes in all, found more after "
                f"{len(learner.merges()[0]):,} merges: the text is too small for the vocabulary, "
                "and its few words merge into single tokens; ask for a smaller vocab_size, or for "
                "a greater min_frequency"
            )
        tokens += (learner.symbol(i).decode() for i in range(len(tokens), learner.num_symbols))
        done = len(learned.merges)
        left, right, result, counts = learner.merges()
        columns = (left, right, result, to_occurrences(counts, words.unit))
        for a, b, c, count in zip(*(column[done:].tolist() for column in columns), strict=True):
            learned.merges.append((tokens[a], tokens[b]))
            learned.merge_counts.append(count)
            vocab.setdefault(tokens[c], first + c)
            if on_merge is not None:
                on_merge(tokens[a], tokens[b], count, len(vocab))
        if on_step is not None:
            on_step(len(learned.merges), tokens[-1].encode() if tokens else b"")
    return _stopped(learned, learner.stop_reason)


def _stopped(learned: Learned, stop_reason: str) -> Learned:
    return Learned(
        vocab=learned.vocab,
        merges=learned.merges,
        merge_counts=learned.merge_counts,
        stop_reason=stop_reason,  # type: ignore[arg-type]
    )


class _Alphabet:
    """Initial symbols of words, and words as sequences of these symbols."""

    def __init__(self, words: CountedWords, settings: Settings, limit: int | None) -> None:
        self._words = words
        self._word_end = settings.word_end
        characters = _alphabet(words, settings, limit)
        self.symbols = [chr(c) for c in characters]
        self._symbol_of = np.full(_CODE_POINTS, -1, np.int32)
        self._symbol_of[characters] = np.arange(len(characters))
        marker = settings.end_of_word or ""
        if self._word_end == "symbol":
            if marker not in self.symbols:
                self.symbols.append(marker)
            self._marker = self.symbols.index(marker)
        elif self._word_end == "suffix":
            last = np.zeros(len(characters) + 1, bool)  # the last entry is for -1
            for code_points, bounds in _chunks(words):
                last[self._symbol_of[code_points[bounds[1:] - 1]]] = True
            kinds = np.flatnonzero(last[:-1])
            self._with_suffix = np.full(len(characters) + 1, -1, np.int32)
            self._with_suffix[kinds] = np.arange(len(kinds)) + len(characters)
            self.symbols += [f"{self.symbols[kind]}{marker}" for kind in kinds.tolist()]

    def sequences(self) -> tuple[NDArray[np.uint32], NDArray[np.int64], NDArray[np.int64]]:
        """Return (symbols of all words, offsets, counts).

        A word with unknown characters becomes the parts between them.
        """
        sequences = [np.zeros(0, np.uint32)]
        lengths = [np.zeros(0, np.int64)]
        counts = [np.zeros(0, np.int64)]
        done = 0
        for code_points, bounds in _chunks(self._words):
            sequence, bounds = self._sequence(code_points, bounds)
            number = self._words.counts[done : done + len(bounds) - 1]
            done += len(number)
            if len(sequence) and sequence.min() < 0:
                sequence, bounds, number = _parts(sequence, bounds, number)
            sequences.append(sequence.astype(np.uint32))
            lengths.append(np.diff(bounds))
            counts.append(number)
        offsets = np.concatenate([np.zeros(1, np.int64), *lengths])
        np.cumsum(offsets, out=offsets)
        return np.concatenate(sequences), offsets, np.concatenate(counts)

    def _sequence(
        self, code_points: NDArray[np.uint32], bounds: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return words as symbols, with -1 for unknown characters, and the words' ends."""
        sequence = self._symbol_of[code_points]
        if self._word_end == "symbol":
            with_ends = np.insert(sequence, bounds[1:], self._marker)
            return with_ends, bounds + np.arange(len(bounds))
        if self._word_end == "suffix":
            last = bounds[1:] - 1
            sequence[last] = self._with_suffix[sequence[last]]
        return sequence, bounds


def _chunks(words: CountedWords) -> Iterator[tuple[NDArray[np.uint32], NDArray[np.int64]]]:
    """Yield (code points, bounds of words in them) for a few MB of words at a time."""
    first = 0
    while first < len(words.counts):
        end = int(np.searchsorted(words.offsets, words.offsets[first] + _CHUNK_BYTES, "right")) - 1
        end = max(end, first + 1)
        text = words.text[words.offsets[first] : words.offsets[end]]
        begins = (np.frombuffer(text, np.uint8) & 0xC0) != 0x80
        characters = np.add.reduceat(
            begins, words.offsets[first:end] - words.offsets[first], dtype=np.int64
        )
        bounds = np.zeros(end - first + 1, np.int64)
        np.cumsum(characters, out=bounds[1:])
        yield np.frombuffer(text.decode().encode("utf-32-le"), np.uint32), bounds
        first = end


def character_counts(words: CountedWords, settings: Settings) -> NDArray[np.int64]:
    """Return how often each code point occurs in the words; 0 for those that are reserved."""
    frequencies = np.zeros(_CODE_POINTS, np.int64)
    done = 0
    for code_points, bounds in _chunks(words):
        counts = words.counts[done : done + len(bounds) - 1]
        done += len(counts)
        np.add.at(frequencies, code_points, np.repeat(counts, np.diff(bounds)))
    frequencies[[ord(token) for token in settings.reserved if len(token) == 1]] = 0
    return frequencies


def _alphabet(words: CountedWords, settings: Settings, limit: int | None) -> NDArray[np.int64]:
    """Return the code points of the alphabet: of `limit` characters, the most frequent ones."""
    frequencies = character_counts(words, settings)
    characters = np.flatnonzero(frequencies)
    if limit is None or limit >= len(characters):
        return characters
    most_frequent = np.lexsort((characters, -frequencies[characters]))[:limit]
    return np.sort(characters[most_frequent])


def _parts(
    sequence: NDArray[np.int32], bounds: NDArray[np.int64], counts: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
    """Return words as parts without unknown characters (-1): (symbols, bounds, counts)."""
    word_of = np.repeat(np.arange(len(counts)), np.diff(bounds))
    known = sequence >= 0
    # A part starts where a word starts, and after each unknown character.
    part_of = (word_of + np.cumsum(~known))[known]
    _, first, lengths = np.unique(part_of, return_index=True, return_counts=True)
    part_bounds = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=part_bounds[1:])
    return sequence[known], part_bounds, counts[word_of[known][first]]


def longest_first_order(
    vocab: Mapping[str, int],
    marker: str | None,
    ids: NDArray[np.int32],
    counts: NDArray[np.int64],
) -> list[int]:
    """Return the order in which encoding searches the longest tokens: ids that occur in words.

    The longest comes first, with the end of a word counting as one character; of equally long ones,
    the most frequent; of these, the first in the words.

    Args:
        vocab: Token to id.
        marker: Marker for the end of a word.
        ids: Concatenated ids of the training words, encoded by merges; -1 for unknown characters.
        counts: How often each of them occurs.
    """
    token_of = {i: token for token, i in vocab.items()}
    known = ids >= 0
    distinct, first, inverse = np.unique(ids[known], return_index=True, return_inverse=True)
    frequencies = np.zeros(len(distinct), np.int64)
    np.add.at(frequencies, inverse, counts[known])
    keys = zip(distinct.tolist(), frequencies.tolist(), first.tolist(), strict=True)
    ordered = sorted(
        keys, key=lambda key: (-token_length(token_of[key[0]], marker), -key[1], key[2])
    )
    return [token_id for token_id, _, _ in ordered]


def token_length(token: str, marker: str | None) -> int:
    """Return the length of a token in characters; the end of a word is one.

    Example:
        >>> token_length("est</w>", "</w>")
        4
    """
    if marker is not None and token.endswith(marker):
        return len(token) - len(marker) + 1
    return len(token)


class WordCounter:
    """Counter of the words in results of `Settings.marked`, in the order of first occurrence."""

    def __init__(self) -> None:
        self._words = OrderedPretokens("marked_words")

    def add(self, marked: NDArray[np.uint8], offsets: NDArray[np.int64]) -> None:
        """Count the words of documents marked[offsets[i]:offsets[i + 1]]."""
        self._words.add_documents(marked, offsets[:-1], offsets[1:])

    def counted(self) -> CountedWords:
        """Return the counted words."""
        keys, offsets, counts = self._words.columns()
        return CountedWords(
            text=keys[keys != WORD_END].tobytes(),  # each word has one, at its end
            offsets=offsets - np.arange(len(offsets)),
            counts=counts,
        )


def words_of_counts(counts: PretokenCounts) -> CountedWords:
    """Return the words among counted pre-tokens, sorted and without whitespace."""
    table = counts.to_arrow()
    # A pre-token is either all whitespace or has none, so its first character is enough.
    texts = table["pretoken"].cast(pa.large_string())
    is_word = pc.invert(pc.match_substring_regex(texts, _BEGINS_WITH_WHITE_SPACE))
    keys, offsets, numbers = PretokenCounts(table.filter(is_word)).columns()
    return CountedWords(
        text=keys[offsets[0] : offsets[-1]].tobytes(),
        offsets=offsets - offsets[0],
        counts=numbers,
        unit=counts.unit,
    )
