"""Texts that tokenizers are evaluated on: counts of a build, files, a sample of a dataset."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from bpe_core import BPETokenizer, Group, PretokenCounts
from bpe_core._native import PretokenTable, utf8_valid_prefix
from bpe_core.count_files import columns_to_arrow
from bpe_core.errors import TrainingError, UnknownTokenError
from bpe_core.evaluation import TokenUse, UseCounter
from bpe_core.patterns import resolve_pattern
from bpe_core.text_measures import WORDS, TextSize, find_words, measure_text
from pipelines.counting.given import GivenCounts
from pipelines.dataset.record_tokens import RecordCount, advise_field, read_records
from pipelines.errors import ConfigError, InputError, shortened
from pipelines.manifest.stage import COUNT
from pipelines.readers.plain_files import find_files, read_blocks
from pipelines.tokenizers.files import WHOLE_TEXTS, Tokenizer, model_of
from pipelines.tokenizers.streams import Block, StreamEncoder
from pipelines.tokenizers.vocabulary import Vocabulary

__all__ = [
    "CountedText",
    "Documents",
    "EvaluationText",
    "TextStream",
    "Texts",
    "WrittenText",
    "open_files",
]


class Documents(NamedTuple):
    """Texts in memory: text i is data[starts[i]:ends[i]]."""

    data: bytes | NDArray[np.uint8]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


class TextStream(NamedTuple):
    """A text of any length: its name, its blocks in UTF-8, and advice on how to read it."""

    name: str
    blocks: Iterable[Block]
    advice: str | None = None


Texts: TypeAlias = Iterable[Documents | TextStream]

_STANDARD_INPUT: Final = "-"
_WHITE_SPACE: Final = b" \t\n\r"
_TABLE_BLOCK: Final = 4 << 20
_ROWS_AT_ONCE: Final = 1 << 20
_EVERYTHING: Final = Group("")


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
    """Counts of a text, with their groups, some rows of which are in memory at a time.

    Raises:
        ConfigError: They are weights of a mixture.
        OutputError: They are damaged.
    """

    kind = "counts"
    word = "pre-token with a letter"
    has_lone_words = False

    def __init__(self, given: GivenCounts) -> None:
        self.description = f"counts of {_name_place(given)}"
        if given.empty.unit > 1:
            raise ConfigError(
                "These are weights of a mixture, not counts of a text.",
                expected="counts of a text",
                found=f"numbers in units of 1/{given.empty.unit}",
                where=given.url,
                hint="Evaluate on the counts that were mixed: groups show each part.",
            )
        self._given = given
        sizes = _measure_groups(self._parts(), lambda counts: measure_text(counts, "letters"))
        self._names = _name_groups(sizes)
        self.sizes: Mapping[str, TextSize] = {self._names[g]: size for g, size in sizes.items()}

    def _parts(self) -> Iterator[PretokenCounts]:
        for shard in range(self._given.shards):
            yield from self._given.read(shard, _ROWS_AT_ONCE)

    def use(self, tokenizer: Tokenizer, name: str) -> dict[str, TokenUse]:
        """Return the use of a tokenizer's ids by each group."""
        try:
            if not isinstance(tokenizer, BPETokenizer):
                raise TrainingError("tokenizer: expected one that merges bytes, found another one")
            uses = _measure_groups(self._parts(), UseCounter(tokenizer).count)
        except TrainingError as error:
            raise ConfigError(
                "Counts do not tell how this tokenizer encodes the text.",
                expected="a tokenizer that splits text as it was counted",
                found=str(error).removeprefix("tokenizer: "),
                where=name,
                hint="Evaluate on text: --text FILE, or --sample for text of the build.",
            ) from None
        return {self._names[group]: use for group, use in uses.items()}


class _Sum(Protocol):
    def __add__(self, other: Self) -> Self: ...


_Added = TypeVar("_Added", bound=_Sum)


def _measure_groups(
    parts: Iterable[PretokenCounts], measure: Callable[[PretokenCounts], _Added]
) -> dict[Group, _Added]:
    """Return the measures of each group of counts, over all parts."""
    found: dict[Group, _Added] = {}
    for counts in filter(len, parts):  # one without rows has no groups
        for group in counts.groups or (_EVERYTHING,):
            of_group = counts
            if counts.groups:
                of_group = counts.select(source=group.source, value=group.value)
            measured = measure(of_group)
            found[group] = found[group] + measured if group in found else measured
    return dict(sorted(found.items()))


def _name_place(given: GivenCounts) -> str:
    """Return the place of counts for people: the output, instead of its directory of counts."""
    return given.url.rstrip("/").removesuffix(f"/{COUNT.directory}")


def _name_groups(groups: Collection[Group]) -> dict[Group, str]:
    """Return a name for each group: the source where there are several, and the value."""
    sources = {group.source for group in groups}
    names = {}
    for group in groups:
        parts = [group.source] if len(sources) > 1 or group.value is None else []
        parts += [] if group.value is None else [group.value or "(no value)"]
        names[group] = "/".join(parts) or "all"
    return names


class WrittenText:
    """Texts that are read once for each tokenizer.

    Args:
        kind: Kind of the text.
        description: The text, as a phrase.
        groups: Functions that return the texts of a group, by the group's name.

    Attributes:
        notes: What a user should know of the texts.
    """

    word = "text between white space"
    has_lone_words = True

    def __init__(
        self, kind: str, description: str, groups: Mapping[str, Callable[[], Texts]]
    ) -> None:
        self.kind = kind
        self.description = description
        self.notes: list[str] = []
        self._groups = groups
        self._words = {name: self._count_words(texts()) for name, texts in groups.items()}
        self.sizes: Mapping[str, TextSize] = {
            name: measure_text(counts, "white_space") for name, counts in self._words.items()
        }

    def _count_words(self, texts: Texts) -> PretokenCounts:
        """Count the words of texts, and the runs of white space between them."""
        table = PretokenTable(resolve_pattern(WORDS).scanner, [])
        for text in texts:
            if isinstance(text, Documents):
                table.add_documents(*text)
                continue
            if text.advice is not None:
                self.notes.append(
                    f"{text.name} is read as text, with all its markup: {text.advice}."
                )
            rest = bytearray()
            wanted = _TABLE_BLOCK
            for block in text.blocks:
                rest += memoryview(block)  # type: ignore[arg-type]  # an array is a buffer too
                if len(rest) >= wanted:
                    end = max(map(rest.rfind, _WHITE_SPACE)) + 1
                    _add(table, bytes(rest[:end]), text)
                    del rest[:end]
                    # More, if there is no white space for long.
                    wanted = max(_TABLE_BLOCK, 2 * len(rest))
            _add(table, bytes(rest), text)
        return PretokenCounts(columns_to_arrow(*table.columns()))

    def use(self, tokenizer: Tokenizer, name: str) -> dict[str, TokenUse]:
        """Return the use of a tokenizer's ids by each group."""
        encoder = StreamEncoder(tokenizer)
        vocabulary = Vocabulary(model_of(tokenizer))
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

        def add(ids: NDArray[Any]) -> None:
            np.add(counts, np.bincount(vocabulary.rows_of(ids), minlength=len(counts)), out=counts)

        for text in self._groups[group]():
            if isinstance(text, Documents):
                ids, _ = tokenizer.encode_documents(*text, num_threads=0)
                add(ids)
            else:
                for part in encoder.encode(text.blocks):
                    add(part)
        used = np.flatnonzero(counts)
        keys, offsets, numbers = self._words[group].columns()
        words = find_words(keys, offsets, "white_space")
        numbers = numbers[words]
        starts, ends = offsets[:-1][words], offsets[1:][words]
        _, bounds = tokenizer.encode_documents(keys, starts, ends, num_threads=0)
        tokens = np.diff(bounds)
        return TokenUse(
            ids=vocabulary.ids[used],
            counts=counts[used],
            word_tokens=int(tokens @ numbers),
            single_token_words=int(numbers[tokens == 1].sum()),
        )


def _add(table: PretokenTable, text: bytes, source: TextStream) -> None:
    valid = utf8_valid_prefix(text)
    if valid < len(text):
        raise InputError(
            "The input is not text in UTF-8.",
            found=f"the bytes {text[valid : valid + 4].hex(' ')}",
            where=source.name,
            hint=source.advice and f"{source.advice[0].upper()}{source.advice[1:]}.",
        )
    table.add_documents(text, np.array([0]), np.array([len(text)]))


def open_files(
    names: Sequence[str], standard_input: Callable[[], bytes], text_field: str | None = None
) -> WrittenText:
    """Return the texts of files; those of each name are a group.

    Args:
        names: Paths, globs or URLs; -: standard input.
        standard_input: Returns what there is on standard input.
        text_field: Field of records that contains the texts; None: each file is a text.

    Raises:
        ConfigError: The field is not a path of names.
        InputError: No file matches a name, or a file cannot be read or is not UTF-8.
    """
    groups: dict[str, Callable[[], Texts]] = {}
    skipped = RecordCount()
    for name in dict.fromkeys(names):
        if name == _STANDARD_INPUT:
            text = TextStream("standard input", [standard_input()])
            groups[name] = partial(_given, [text])
        elif text_field is None:
            groups[name] = partial(_read_files, name)
        else:
            groups[name] = partial(_read_records, name, text_field, skipped)
    found = WrittenText("text", "text of " + shortened(list(groups), 3), groups)
    if skipped.rejects:
        found.description += f" (records without text left out: {skipped.rejects:,})"
    return found


def _given(texts: Texts) -> Texts:
    return texts


def _read_files(argument: str) -> Iterator[TextStream]:
    for name, file in find_files(argument):
        yield TextStream(name, read_blocks(file), advise_field(file))


def _read_records(argument: str, text_field: str, skipped: RecordCount) -> Iterator[Documents]:
    """Yield the texts of records; note those without text, of the first reading alone."""
    for _, file in find_files(argument):
        counted = RecordCount()
        for batch in read_records(file, text_field, WHOLE_TEXTS, counted):
            yield Documents(batch.data, batch.starts, batch.ends)
        skipped.rejects += counted.rejects
