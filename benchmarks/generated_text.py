"""File system for fsspec whose text is made as it is read, and whose counts are known.

    generated://law=code/templates=64/seed=1/files=1000/blocks=1000/*.txt

are 1,000 files of 1,000 blocks of 1 MB. The text depends on the name alone, so any part of a file
can be read at any time by any process. `exact_counts` returns the counts of its pre-tokens (pattern
`gpt2`) without counting: they follow from how the text is made.

**Templates.** A block starts as a copy of one of a few templates, chosen by a hash. A template is a
megabyte of documents in several scripts: words of a vocabulary with frequencies by Zipf's law,
punctuation, code-like indentation, and now and then a document of invalid UTF-8. It consists of
cells of 64 bytes: 56 bytes of text and a slot for a word of eight bytes.

**Rare words.** Some slots get words that no template has. Heaps' law, `V(x) = K · x^β`, determines
which: word r occurs first at the byte x(r) where V reaches r, and again at 2 · x(r), 3 · x(r) and
so on, where x begins with the size of the templates. This is Zipf's law with the exponent 1 / β,
and a block contains, for each k, the words from V(begin / k) to V(end / k). So r occurs as often in
the text as there are k with V(end / k) > r. No rare word occurs more than a thousand times.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from fsspec.spec import AbstractFileSystem
from numpy.typing import NDArray

PROTOCOL: Final = "generated"
SEPARATOR: Final = b"<|endoftext|>"
BLOCK_BYTES: Final = 1_000_000

_CELL_BYTES: Final = 64
_SLOT_BYTES: Final = 8
_TEXT_BYTES: Final = _CELL_BYTES - _SLOT_BYTES - 1  # a space precedes the slot
_CELLS: Final = BLOCK_BYTES // _CELL_BYTES

# K and β by text, as measured in docs/scale.md.
LAWS: Final = {"code": (0.594, 0.699), "prose": (2.81, 0.668), "multilingual": (2.05, 0.709)}
_MOST_OCCURRENCES: Final = 1000  # of a rare word: every k costs time in every block

# Documents have lengths with a log-normal distribution: half are shorter than 2.5 kB.
_MEDIAN_CELLS: Final = 40
_SIGMA: Final = 1.2
_BAD_EVERY: Final = 16  # of as many templates, one has a document of invalid UTF-8
_SUFFIX_SHARE: Final = 0.12  # of the units that follow a word
_FLAT_RANKS: Final = 1000  # frequencies fall as 1 / rank up to this rank, then as rank^(-1 / β)
_QUANTILES: Final = 1 << 22

_Numbers = NDArray[np.int64]
_Hashes = NDArray[np.uint64]


class Recipe(NamedTuple):
    """Parameters of a corpus.

    Attributes:
        law: Key of `LAWS`.
        templates: Number of templates.
        seed: Number from which all text follows.
        files: Number of files.
        blocks: Blocks of each file.
    """

    law: str
    templates: int
    seed: int
    files: int
    blocks: int

    @property
    def folder(self) -> str:
        """Path of the folder of the files."""
        return "/".join(f"{name}={value}" for name, value in self._asdict().items())

    @property
    def url(self) -> str:
        """Pattern of all files."""
        return f"{PROTOCOL}://{self.folder}/*.txt"

    @property
    def file_bytes(self) -> int:
        """Size of a file."""
        return self.blocks * BLOCK_BYTES

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return self.files * self.file_bytes

    @property
    def text(self) -> Text:
        """The text of all corpora of this law, number of templates and seed."""
        return text_of(self.law, self.templates, self.seed)

    def file_name(self, index: int) -> str:
        """Return the name of a file in the folder."""
        return f"part-{index:05d}.txt"

    @classmethod
    def parse(cls, folder: str) -> Recipe:
        """Return the recipe of a folder.

        Raises:
            FileNotFoundError: The path is not a folder of generated text.
        """
        found = re.fullmatch(
            r"law=(\w+)/templates=(\d+)/seed=(\d+)/files=(\d+)/blocks=(\d+)", folder
        )
        if found is None or found[1] not in LAWS or 0 in map(int, found.group(2, 4, 5)):
            raise FileNotFoundError(folder)
        law, *numbers = found.groups()
        return cls(law, *map(int, numbers))


class GeneratedText(AbstractFileSystem):
    """File system of generated text; see the module."""

    protocol = PROTOCOL
    root_marker = ""

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """List the files of a recipe, or one of its files."""
        path = self._strip_protocol(path)
        if path.endswith(".txt"):
            entries = [self.info(path)]
        else:
            recipe = Recipe.parse(path)
            _ = recipe.text  # seconds of work, which should not count as reading
            entries = [
                _file_entry(recipe, f"{path}/{recipe.file_name(i)}") for i in range(recipe.files)
            ]
        return entries if detail else [entry["name"] for entry in entries]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Return the type and size of a path."""
        path = self._strip_protocol(path)
        if path.endswith(".txt"):
            return _file_entry(_locate(path)[0], path)
        Recipe.parse(path)
        return {"name": path, "type": "directory", "size": 0}

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: Any
    ) -> bytes:
        """Make the bytes from `start` to `end` of a file; negative ones count from its end."""
        recipe, index = _locate(self._strip_protocol(path))
        begin, stop, _step = slice(start, end).indices(recipe.file_bytes)
        offset = index * recipe.file_bytes
        return recipe.text.read(offset + begin, max(0, stop - begin))


def _file_entry(recipe: Recipe, path: str) -> dict[str, Any]:
    return {"name": path, "type": "file", "size": recipe.file_bytes, "ETag": recipe.folder}


def _locate(path: str) -> tuple[Recipe, int]:
    """Return the recipe of a file and its index.

    Raises:
        FileNotFoundError: There is no such file.
    """
    folder, _, name = path.rpartition("/")
    recipe = Recipe.parse(folder)
    found = re.fullmatch(r"part-(\d+)\.txt", name)
    if found is None or not int(found[1]) < recipe.files:
        raise FileNotFoundError(path)
    return recipe, int(found[1])


@functools.cache
def text_of(law: str, templates: int, seed: int) -> Text:
    """Return the text of a law, number of templates and seed, once made by each process."""
    return Text(law, templates, seed)


class Text:
    """Endless text in blocks.

    Args:
        law: Key of `LAWS`.
        templates: Number of templates.
        seed: Number from which all text follows.
    """

    def __init__(self, law: str, templates: int, seed: int) -> None:
        self._seed = seed
        self.templates = _Templates(law, templates, seed)
        self.rare_words = RareWords(law, templates * BLOCK_BYTES)
        # Slots in the order in which they are filled, as positions in units of eight bytes.
        order = np.argsort(_hashes(seed, 1, _CELLS), kind="stable")
        self._slots = (order * _CELL_BYTES + _CELL_BYTES - _SLOT_BYTES) // _SLOT_BYTES

    def read(self, offset: int, length: int) -> bytes:
        """Make `length` bytes from `offset` on."""
        first = offset // BLOCK_BYTES
        last = -(-(offset + length) // BLOCK_BYTES)
        data = np.empty((max(last - first, 0), BLOCK_BYTES), np.uint8)
        for block, view in zip(range(first, last), data, strict=True):
            self._make(block, view.view(np.uint64))
        begin = offset - first * BLOCK_BYTES
        return data.reshape(-1)[begin : begin + length].tobytes()

    def chosen_templates(self, first: int, last: int) -> _Numbers:
        """Return the template of each block from `first` to `last`."""
        hashes = _hashes(self._seed, 2, last, first)
        chosen: _Numbers = (hashes % np.uint64(len(self.templates.data))).astype(np.int64)
        return chosen

    def _make(self, block: int, view: _Hashes) -> None:
        template = self.chosen_templates(block, block + 1)[0]
        view[:] = self.templates.data[template].view(np.uint64)
        words = self.rare_words.spell(self.rare_words.numbers(block))
        view[self._slots[: len(words)]] = words

    def exact_counts(self, blocks: int) -> Counter[bytes]:
        """Return the counts of the first blocks without rare words (`RareWords.counts`)."""
        chosen = self.chosen_templates(0, blocks)
        uses = np.bincount(chosen, minlength=len(self.templates.data))
        counts = self.templates.counts(uses)
        filled = self.rare_words.numbers_of_slots(blocks)
        rank_of_slot = np.argsort(self._slots)
        for template in np.flatnonzero(uses):
            sizes = np.sort(filled[chosen == template])
            # The slot that is filled as number i is filled in all blocks with more rare words.
            lost = len(sizes) - np.searchsorted(sizes, rank_of_slot, side="right")
            counts.subtract(self.templates.lost_fills(int(template), lost))
        return +counts

    def exact_documents(self, blocks: int) -> tuple[int, int]:
        """Return the numbers of good and of bad documents in the first blocks."""
        chosen = self.chosen_templates(0, blocks)
        return (
            int(self.templates.documents[chosen].sum()),
            int(self.templates.bad_documents[chosen].sum()),
        )


class RareWords:
    """Words that templates do not have: which of them each block contains, and their spelling.

    Args:
        law: Key of `LAWS`.
        base_bytes: Size of the templates, after which rare words begin.
    """

    def __init__(self, law: str, base_bytes: int) -> None:
        self._factor, self._exponent = LAWS[law]
        self._base = base_bytes
        self._before = self._factor * base_bytes**self._exponent
        steps = np.arange(1.0, _MOST_OCCURRENCES + 1)
        # Rare words of a block, by this law, where the k-th occurrences of words begin.
        slope = self._before * self._exponent * BLOCK_BYTES / base_bytes
        most = slope * steps ** (self._exponent - 1) * np.cumsum(steps**-self._exponent) + steps
        self._steps = steps[: np.argmax(np.append(most, np.inf) > _CELLS)]
        self._last = (-1, np.zeros(0, np.int64))

    def introduced(self, blocks: int) -> _Numbers:
        """Return the number of words that occur for the k-th time in the first blocks, by k."""
        position = (blocks * BLOCK_BYTES + self._base) / self._steps
        numbers = self._factor * position**self._exponent - self._before
        return np.maximum(numbers, 0).astype(np.int64)

    def numbers(self, block: int) -> _Numbers:
        """Return the numbers of the rare words of a block."""
        known, begins = self._last
        if known != block:
            begins = self.introduced(block)
        ends = self.introduced(block + 1)
        self._last = (block + 1, ends)
        lengths = ends - begins
        shifts = begins - (np.cumsum(lengths) - lengths)
        return np.repeat(shifts, lengths) + np.arange(lengths.sum())

    def numbers_of_slots(self, blocks: int) -> _Numbers:
        """Return how many rare words each of the first blocks has."""
        ends = [int(self.introduced(block).sum()) for block in range(blocks + 1)]
        return np.diff(np.array(ends, np.int64))

    def counts(self, numbers: _Numbers, blocks: int) -> _Numbers:
        """Return how often rare words, by their numbers, occur in the first blocks."""
        introduced = self.introduced(blocks)[::-1]
        return len(introduced) - np.searchsorted(introduced, numbers, side="right")

    def spell(self, numbers: _Numbers) -> _Hashes:
        """Return words of eight bytes: of eight, six are Latin, one Cyrillic, one is a number."""
        kinds = numbers & 7
        words = _LATIN.spell(numbers)
        for kind, letters in ((6, _CYRILLIC), (7, _DIGITS)):
            chosen = kinds == kind
            words[chosen] = letters.spell(numbers[chosen] >> 3)
        return words

    def read(self, words: _Hashes) -> _Numbers:
        """Return the numbers of words of eight bytes, or -1 for other words: reverses `spell`."""
        numbers = np.full(len(words), -1, np.int64)
        for letters, shift, kind in ((_LATIN, 0, None), (_CYRILLIC, 3, 6), (_DIGITS, 3, 7)):
            found = letters.read(words)
            is_word = found >= 0
            number = found[is_word] << shift
            numbers[is_word] = number if kind is None else number + kind
        is_word = numbers >= 0
        is_word[is_word] = self.spell(numbers[is_word]) == words[is_word]
        return np.where(is_word, numbers, -1)


class _Spelling:
    """Bijection between numbers below `radix²` and words of two halves of four bytes.

    Args:
        halves: The `radix` halves, in any order.
        factor: Number without common divisors with `radix`; it scatters the numbers.
    """

    def __init__(self, halves: Sequence[bytes], factor: int) -> None:
        self._radix = np.uint64(len(halves))
        self._limit = len(halves) ** 2
        self._halves = np.frombuffer(b"".join(halves), np.uint32).astype(np.uint64)
        self._order = np.argsort(self._halves)
        self._factor = np.uint64(factor)
        self._inverse = pow(factor, -1, self._limit)

    def spell(self, numbers: _Numbers) -> _Hashes:
        """Return the words of numbers, which must be below the limit."""
        if len(numbers) and int(numbers.max()) >= self._limit:
            raise ValueError(f"there are only {self._limit:,} rare words of a kind")
        scattered = numbers.astype(np.uint64) * self._factor % np.uint64(self._limit)
        first = self._halves[scattered // self._radix]
        second = self._halves[scattered % self._radix]
        words: _Hashes = first | second << np.uint64(32)
        return words

    def read(self, words: _Hashes) -> _Numbers:
        """Return the numbers of words, or -1 for other words."""
        digits = []
        for half in (words & np.uint64(0xFFFFFFFF), words >> np.uint64(32)):
            place = np.searchsorted(self._halves, half, sorter=self._order)
            digit = self._order[np.minimum(place, len(self._order) - 1)]
            digits.append(np.where(self._halves[digit] == half, digit, -1))
        scattered = digits[0] * int(self._radix) + digits[1]
        # In two parts, as the product has more than 64 bits.
        low, high = self._inverse & 0xFFFF, self._inverse >> 16
        clipped = np.maximum(scattered, 0)
        upper = clipped.astype(np.uint64) * np.uint64(high) % np.uint64(self._limit)
        total = upper * np.uint64(1 << 16) + clipped.astype(np.uint64) * np.uint64(low)
        numbers = (total % np.uint64(self._limit)).astype(np.int64)
        return np.where((digits[0] >= 0) & (digits[1] >= 0), numbers, -1)


_RARE_LETTERS: Final = b"acdeghiklmnoprst"
_LATIN: Final = _Spelling(
    [bytes(_RARE_LETTERS[i >> s & 15] for s in (12, 8, 4, 0)) for i in range(1 << 16)],
    2_654_435_761,
)
_CYRILLIC: Final = _Spelling(
    [f"{chr(0x400 + (i >> 7))}{chr(0x400 + (i & 127))}".encode() for i in range(1 << 14)],
    179_424_673,
)
_DIGITS: Final = _Spelling([b"%04d" % i for i in range(10_000)], 61_803_399)


class _Templates:
    """Blocks that all text starts from, and what they count.

    Attributes:
        data: The templates, one in each row.
        documents: Number of documents in UTF-8 that are not empty, by template.
        bad_documents: Number of others, by template.
    """

    def __init__(self, law: str, templates: int, seed: int) -> None:
        factor, exponent = LAWS[law]
        self._units = units = _Units(int(factor * (templates * BLOCK_BYTES) ** exponent))
        picker = _Picker(units, exponent, seed)
        cells = templates * _CELLS
        self._chosen = _fill_cells(units, picker, templates, seed)
        text = pa.array(units.texts, pa.large_binary()).take(pa.array(self._chosen.reshape(-1)))
        text = np.frombuffer(text.buffers()[2], np.uint8)
        ranks = _hashes(seed, 3, cells) % np.uint64(len(units.fills))
        # The smaller of two uniform ranks, so that some fills are more frequent.
        others = _hashes(seed, 4, cells) % np.uint64(len(units.fills))
        self._fills = np.minimum(ranks, others).astype(np.int64).reshape(templates, _CELLS)
        words = np.frombuffer(b"".join(units.fills), np.uint8).reshape(-1, _SLOT_BYTES)
        data = np.full((cells, _CELL_BYTES), ord(" "), np.uint8)
        data[:, :_TEXT_BYTES] = text[: cells * _TEXT_BYTES].reshape(cells, _TEXT_BYTES)
        data[:, -_SLOT_BYTES:] = words[self._fills.reshape(-1)]
        self.data = data.reshape(templates, BLOCK_BYTES)
        self.bad_documents = (self._chosen[:, :, 0] == units.bad).sum(axis=1)
        self.documents = units.begins_document[self._chosen[:, :, 0]].sum(axis=1)

    def counts(self, uses: _Numbers) -> Counter[bytes]:
        """Return the counts of their pre-tokens, if each is used so often."""
        units = np.zeros(len(self._units.texts), np.int64)
        fills = np.zeros(len(self._units.fills), np.int64)
        for chosen, filled, times in zip(self._chosen, self._fills, uses.tolist(), strict=True):
            units += times * np.bincount(chosen.reshape(-1), minlength=len(units))
            fills += times * np.bincount(filled, minlength=len(fills))
        counts: Counter[bytes] = Counter()
        for pretokens, times in zip(self._units.pretokens, units.tolist(), strict=True):
            for pretoken in pretokens:
                counts[pretoken] += times
        for word, times in zip(self._units.fills, fills.tolist(), strict=True):
            counts[b" " + word] += times
        return counts

    def lost_fills(self, template: int, lost: _Numbers) -> Mapping[bytes, int]:
        """Return the counts of words in slots of a template that so many blocks overwrite."""
        totals = np.bincount(self._fills[template], weights=lost, minlength=len(self._units.fills))
        return {
            b" " + word: int(times)
            for word, times in zip(self._units.fills, totals.tolist(), strict=True)
        }


class _Units:
    """Pieces of text whose pre-tokens are the same wherever they may stand.

    The first are `words` of the vocabulary, the most frequent first. They begin with a space and
    come after anything. The others are suffixes, which come after a word with letters or digits,
    the padding, of each length, and the beginnings of documents, which come after a slot.
    """

    def __init__(self, size: int) -> None:
        self.texts: list[bytes] = []
        self.pretokens: list[tuple[bytes, ...]] = []
        for operator in _OPERATORS:
            self._add(b" " + operator)
        operators = len(self.texts)
        for word in _vocabulary(size):
            self._add(b" " + word)
        self.words = len(self.texts)
        for suffix in _SUFFIXES:
            self._add(*suffix)
        starts = [word.capitalize() for word in map(_latin, range(_STARTS))]
        for start in starts:
            self._add(b"\n", start)
            self._add(b".", b"\n", b"\n", start)
            self._add(b".", b"\n   ", b" " + start.lower())
        self.suffixes = (self.words, len(self.texts))
        # By length from 2 on, words of consonants, none of which is a rare word.
        self.padding = len(self.texts)
        longest = max(map(len, self.texts)) + 1
        for length in range(2, longest + 1):
            for first in _NEVER_RARE[:_PADDINGS]:
                self._add(b" " + (bytes([first]) + b"dfghkmnstr" * 3)[: length - 1])
        self.beginnings = len(self.texts)
        for start in starts:
            self._add(start, text=SEPARATOR + start)
        self.bad = len(self.texts)
        bad = "Résumé".encode("latin-1")
        self._add(starts[0], text=SEPARATOR + bad + SEPARATOR + starts[0])
        self.empty = len(self.texts)
        self._add()
        self.lengths = np.array(list(map(len, self.texts)))
        self.begins_document = np.zeros(len(self.texts), bool)
        self.begins_document[self.beginnings : self.empty] = True
        self.takes_suffix = np.zeros(len(self.texts), bool)
        self.takes_suffix[operators : self.words] = True
        self.fills = [
            bytes([first, 97]) + _latin(1000 + 9 * i)[:4] + b"zo"
            for i in range(60)
            for first in _NEVER_RARE
        ]

    def _add(self, *pretokens: bytes, text: bytes | None = None) -> None:
        self.texts.append(b"".join(pretokens) if text is None else text)
        self.pretokens.append(pretokens)


_OPERATORS: Final = b"= { } == - + * / -> != += & | < > <= >= // && || :: ... ( )".split()
_SUFFIXES: Final = ((b",",), (b".",), (b"'s",), (b";",), (b"()",), (b":",), (b"?",))
_STARTS: Final = 400
_PADDINGS: Final = 8  # words for each length of padding; a power of two
_CONSONANTS: Final = "bcdfghjklmnpqrstvwxz"
_SYLLABLES: Final = [a + b for a in _CONSONANTS for b in "aeiou"]
_NEVER_RARE: Final = b"bfjquvwxz"  # letters that begin no rare word


def _latin(number: int) -> bytes:
    """Return a word of syllables, shorter for small numbers; never of eight letters here."""
    return _spelled(number, _SYLLABLES)


def _spelled(number: int, symbols: Sequence[str]) -> bytes:
    """Return a number in bijective numeration, in which no two numbers look the same."""
    symbols_of = []
    number += 1
    while number:
        number, digit = divmod(number - 1, len(symbols))
        symbols_of.append(symbols[digit])
    return "".join(reversed(symbols_of)).encode()


def _letters(first: int, last: int) -> list[str]:
    return list(map(chr, range(first, last + 1)))


# Share of a script in the vocabulary out of 21, symbols of its words, and how they end.
_CYRILLIC_SYLLABLES: Final = [a + b for a in _letters(0x431, 0x44B) for b in "аеиоу"]
_SCRIPTS: Final = (
    (10, _SYLLABLES, ""),
    (2, _CYRILLIC_SYLLABLES, "ь"),  # odd lengths: rare words have four letters
    (1, _letters(0x3B1, 0x3C9), ""),
    (1, _letters(0x628, 0x63A), ""),
    (1, _letters(0x905, 0x939), ""),
    (2, _letters(0x4E00, 0x59FF), ""),
    (1, _letters(0xAC00, 0xB3FF), ""),
    (1, _letters(0x3042, 0x3082), ""),
    (1, _letters(0xE01, 0xE2E), ""),
)


def _vocabulary(size: int) -> list[bytes]:
    """Return words of several scripts, and numbers, in order of their frequency."""
    words: list[bytes] = []
    for turn in itertools.count():
        for share, symbols, end in _SCRIPTS:
            numbers = range(turn * share, (turn + 1) * share)
            words += [_spelled(number, symbols) + end.encode() for number in numbers]
        words.append(b"%d" % turn)
        if len(words) >= size:
            return words[:size]
    raise AssertionError


class _Picker:
    """Units in an order by hashes: first each word once, then words by Zipf's law."""

    def __init__(self, units: _Units, exponent: float, seed: int) -> None:
        self._units, self._seed = units, seed
        ranks = np.arange(units.words) + 1.0
        flat = np.minimum(ranks, _FLAT_RANKS)
        shares = np.cumsum(1 / (flat + 2.7) * (ranks / flat) ** (-1 / exponent))
        quantiles = (np.arange(_QUANTILES) + 0.5) / _QUANTILES * shares[-1]
        self._words = np.searchsorted(shares, quantiles)

    def pick(self, step: int, cells: _Numbers, before: _Numbers) -> _Numbers:
        """Return the unit to put into each cell at a step, after the units `before`."""
        hashes = _hashes(self._seed, 10 + step, int(cells[-1]) + 1)[cells]
        picked = self._words[hashes % np.uint64(_QUANTILES)]
        if step < 2:  # two units always fit
            order = np.argsort(hashes, kind="stable")
            half = len(order) * step
            missing = np.arange(half, min(half + len(order), self._units.words))
            picked[order[: len(missing)]] = missing
            return picked
        uniform = (hashes >> np.uint64(40)).astype(np.float64) / 2**24
        follows = self._units.takes_suffix[before] & (uniform < _SUFFIX_SHARE)
        first, last = self._units.suffixes
        # Half of all suffixes are the first, the comma.
        place = (uniform[follows] / _SUFFIX_SHARE) ** 12 * (last - first)
        picked[follows] = first + place.astype(np.int64)
        return picked


def _fill_cells(units: _Units, picker: _Picker, templates: int, seed: int) -> _Numbers:
    """Return the units of each cell, by template, cell and place.

    All cells are filled at once, one unit at a step, and then padded.
    """
    cells = np.arange(templates * _CELLS)
    first = np.full(len(cells), -1)
    begins = _document_begins(len(cells), seed)
    first[begins] = units.beginnings + begins % _STARTS
    bad = np.arange(min(5, templates - 1), templates, _BAD_EVERY) * _CELLS + _CELLS // 2
    first[bad] = units.bad
    free = np.flatnonzero(first < 0)
    first[free] = picker.pick(0, free, first[free])
    chosen = [first]
    rest = _TEXT_BYTES - units.lengths[first]
    open_cells, step = free, 1
    while len(open_cells):
        picked = picker.pick(step, open_cells, chosen[-1][open_cells])
        left = rest[open_cells] - units.lengths[picked]
        fits = (left == 0) | (left > 1)  # one byte could not be padded
        column = np.full(len(cells), units.empty)
        column[open_cells[fits]] = picked[fits]
        rest[open_cells[fits]] = left[fits]
        chosen.append(column)
        open_cells = open_cells[fits] if step > 1 else cells
        step += 1
    paddings = _hashes(seed, 5, len(cells)).astype(np.int64) & (_PADDINGS - 1)
    chosen.append(
        np.where(rest > 0, units.padding + (rest - 2) * _PADDINGS + paddings, units.empty)
    )
    return np.stack(chosen, axis=1).reshape(templates, _CELLS, -1)


def _document_begins(cells: int, seed: int) -> _Numbers:
    """Return the cells that begin with a new document; the first of a template always does."""
    uniform = (_hashes(seed, 6, cells) >> np.uint64(11)).astype(np.float64) / 2**53
    angles = (_hashes(seed, 7, cells) >> np.uint64(11)).astype(np.float64) / 2**53
    normal = np.sqrt(-2 * np.log1p(-uniform)) * np.cos(2 * np.pi * angles)
    lengths = np.maximum(1, _MEDIAN_CELLS * np.exp(_SIGMA * normal)).astype(np.int64)
    begins = np.cumsum(lengths)
    return np.union1d(begins[begins < cells], np.arange(0, cells, _CELLS))


def _hashes(seed: int, stream: int, stop: int, start: int = 0) -> _Hashes:
    """Return hashes of the numbers from `start` to `stop` (SplitMix64), by seed and stream."""
    golden = np.uint64(0x9E3779B97F4A7C15)
    state = np.uint64(((seed << 8 | stream) * 0xD1342543DE82EF95) & 0xFFFFFFFFFFFFFFFF)
    hashes = state + np.arange(start + 1, stop + 1, dtype=np.uint64) * golden
    hashes = (hashes ^ hashes >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    hashes = (hashes ^ hashes >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    mixed: _Hashes = hashes ^ hashes >> np.uint64(31)
    return mixed
