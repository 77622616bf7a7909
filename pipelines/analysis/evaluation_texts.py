"""Texts that tokenizers are evaluated on: counts of a build, files, a sample of a dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import numpy as np

from bpe_core import BPETokenizer, PretokenCounts
from bpe_core._native import PretokenTable, utf8_valid_prefix
from bpe_core.counts import columns_to_arrow
from bpe_core.errors import FormatError, TrainingError, UnknownTokenError
from bpe_core.evaluation import TokenUse, count_token_use
from bpe_core.patterns import resolve_pattern
from bpe_core.text_measures import WORDS, TextSize, find_words, measure_text
from pipelines.counting.load import load_counts
from pipelines.errors import ConfigError, InputError, shortened
from pipelines.manifest.names import MANIFEST
from pipelines.manifest.stage import COUNT, load_manifest
from pipelines.readers.plain_files import STANDARD_INPUT, find_files, read_blocks
from pipelines.storage.directory import Directory
from pipelines.tokenizers.files import Tokenizer
from pipelines.tokenizers.streams import Block, StreamEncoder
from pipelines.tokenizers.vocabulary import Vocabulary

__all__ = [
    "CountedText",
    "EvaluationText",
    "Texts",
    "WrittenText",
    "open_counts",
    "open_files",
]

# Names of texts, and their blocks.
Texts: TypeAlias = Iterable[tuple[str, Iterable[Block]]]

_WHITE_SPACE: Final = b" \t\n\r"
_TABLE_BLOCK: Final = 4 << 20


class EvaluationText(Protocol):
    """A text in groups.

    Attributes:
        kind: Kind of the text: "counts", "text" or "sample".
        description: The text, as a phrase.
        word: The definition of a word, as a phrase.
        has_lone_words: True if words are encoded alone, apart from the text.
        sizes: Size of each group, by name.
    """

    kind: str
    description: str
    word: str
    has_lone_words: bool
    sizes: Mapping[str, TextSize]

    def use(self, tokenizer: Tokenizer, name: str) -> dict[str, TokenUse]:
        """Return the use of a tokenizer's ids by each group.

        Args:
            tokenizer: The tokenizer.
            name: Its name for messages.

        Raises:
            ConfigError: The text cannot be used for this tokenizer.
            InputError: The tokenizer cannot encode the text.
        """


class CountedText:
    """Counts of a build, or of a file, with their groups.

    Args:
        counts: The counts.
        location: Where they are.
    """

    kind = "counts"
    word = "pre-token with a letter"
    has_lone_words = False

    def __init__(self, counts: PretokenCounts, location: str) -> None:
        self.description = f"counts of {location}"
        self._groups = dict(_select_groups(counts))
        self.sizes: Mapping[str, TextSize] = {
            name: measure_text(group, "letters") for name, group in self._groups.items()
        }

    def use(self, tokenizer: Tokenizer, name: str) -> dict[str, TokenUse]:
        """Return the use of a tokenizer's ids by each group."""
        try:
            if not isinstance(tokenizer, BPETokenizer):
                raise TrainingError("tokenizer: expected a byte-level tokenizer, found another one")
            return {
                group: count_token_use(tokenizer, counts) for group, counts in self._groups.items()
            }
        except TrainingError as error:
            raise ConfigError(
                "Counts do not tell how this tokenizer encodes the text.",
                expected="a tokenizer that splits text as it was counted",
                found=str(error).removeprefix("tokenizer: "),
                where=name,
                hint="Evaluate on text: --text FILE.",
            ) from None


def _select_groups(counts: PretokenCounts) -> Iterator[tuple[str, PretokenCounts]]:
    if not counts.groups:
        yield "all", counts
        return
    sources = {group.source for group in counts.groups}
    for group in counts.groups:
        parts = [group.source] if len(sources) > 1 or group.value is None else []
        parts += [] if group.value is None else [group.value or "(no value)"]
        yield "/".join(parts) or "all", counts.select(source=group.source, value=group.value)


class WrittenText:
    """Texts that are read once for each tokenizer.

    Args:
        kind: Kind of the text.
        description: The text, as a phrase.
        groups: Functions that return the texts of a group, by the group's name.
    """

    word = "text between white space"
    has_lone_words = True

    def __init__(
        self, kind: str, description: str, groups: Mapping[str, Callable[[], Texts]]
    ) -> None:
        self.kind = kind
        self.description = description
        self._groups = groups
        self._words = {name: _count_words(texts()) for name, texts in groups.items()}
        self.sizes: Mapping[str, TextSize] = {
            name: measure_text(counts, "white_space") for name, counts in self._words.items()
        }

    def use(self, tokenizer: Tokenizer, name: str) -> dict[str, TokenUse]:
        """Return the use of a tokenizer's ids by each group."""
        encoder = StreamEncoder(tokenizer)
        vocabulary = Vocabulary(
            tokenizer.model if isinstance(tokenizer, BPETokenizer) else tokenizer
        )
        try:
            return {
                group: self._use_of_group(group, tokenizer, encoder, vocabulary)
                for group in self._groups
            }
        except UnknownTokenError as error:
            raise InputError(
                "The tokenizer cannot encode the text.", found=str(error), where=name
            ) from None

    def _use_of_group(
        self, group: str, tokenizer: Tokenizer, encoder: StreamEncoder, vocabulary: Vocabulary
    ) -> TokenUse:
        counts = np.zeros(len(vocabulary), np.int64)
        for _, blocks in self._groups[group]():
            for ids in encoder.encode(blocks):
                counts += np.bincount(vocabulary.rows_of(ids), minlength=len(counts))
        used = np.flatnonzero(counts)
        keys, offsets, numbers = self._words[group].columns()
        words = find_words(keys, offsets, "white_space")
        numbers = numbers[words]
        starts, ends = offsets[:-1][words], offsets[1:][words]
        _, bounds = tokenizer.encode_documents(keys, starts, ends)
        tokens = np.diff(bounds)
        return TokenUse(
            ids=vocabulary.ids[used],
            counts=counts[used],
            word_tokens=int(tokens @ numbers),
            single_token_words=int(numbers[tokens == 1].sum()),
        )


def _count_words(texts: Texts) -> PretokenCounts:
    """Count the words of texts, and the runs of white space between them."""
    table = PretokenTable(resolve_pattern(WORDS).scanner, [])
    for name, blocks in texts:
        rest = bytearray()
        wanted = _TABLE_BLOCK
        for block in blocks:
            rest += memoryview(block)  # type: ignore[arg-type]  # an array is a buffer too
            if len(rest) >= wanted:
                end = max(map(rest.rfind, _WHITE_SPACE)) + 1
                _add(table, bytes(rest[:end]), name)
                del rest[:end]
                # More, if there is no white space for long.
                wanted = max(_TABLE_BLOCK, 2 * len(rest))
        _add(table, bytes(rest), name)
    return PretokenCounts(columns_to_arrow(*table.columns()))


def _add(table: PretokenTable, text: bytes, name: str) -> None:
    valid = utf8_valid_prefix(text)
    if valid < len(text):
        raise InputError(
            "The input is not text in UTF-8.",
            found=f"the bytes {text[valid : valid + 4].hex(' ')}",
            where=name,
        )
    table.add_documents(text, np.array([0]), np.array([len(text)]))


def open_counts(location: str, storage_options: Mapping[str, Any] | None = None) -> CountedText:
    """Return the counts in the output of a build, in its directory `counts`, or in a file.

    Raises:
        ConfigError: There are none.
        InputError, OutputError: They are damaged, or the storage fails.
        TooLargeError: They do not fit the memory.
    """
    if Path(location).is_file():
        try:
            return CountedText(PretokenCounts.load(location), location)
        except FormatError as error:
            raise InputError(
                "The counts cannot be read.", found=str(error), where=location
            ) from None
    place = Directory(url=location, storage_options=storage_options or {})
    is_counts = location.rstrip("/").endswith(f"/{COUNT.directory}")
    directory = place if is_counts else place / COUNT.directory
    manifest = load_manifest(COUNT, directory)
    if manifest is None:
        raise ConfigError(
            "There are no counts to evaluate on.",
            expected=f"an output with {COUNT.directory}/{MANIFEST}, or a file of counts",
            where=location,
            hint="Count the corpus: `beam-bpe count CONFIG`; or evaluate on text: --text FILE.",
        )
    return CountedText(load_counts(directory, manifest.to_json("shards", "fingerprint")), location)


def open_files(names: Sequence[str], standard_input: Callable[[], bytes]) -> WrittenText:
    """Return the texts of files; those of each name are a group.

    Args:
        names: Paths, globs or URLs; -: standard input.
        standard_input: Returns what there is on standard input.

    Raises:
        InputError: No file matches a name, or a file cannot be read or is not UTF-8.
    """
    groups: dict[str, Callable[[], Texts]] = {}
    for name in dict.fromkeys(names):
        if name == STANDARD_INPUT:
            groups[name] = partial(_one_text, standard_input())
        else:
            groups[name] = partial(_read_files, name)
    return WrittenText("text", "text of " + shortened(list(groups), 3), groups)


def _read_files(name: str) -> Texts:
    return ((shown, read_blocks(file)) for shown, file in find_files(name))


def _one_text(text: bytes) -> Texts:
    return [("standard input", [text])]
