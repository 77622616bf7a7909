"""`beam-bpe inspect`: documents of a dataset in readable form, with their tokens.

Text of the corpus cannot control the terminal: everything but visible characters is escaped,
including bytes that are not valid UTF-8.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, pairwise
from math import isfinite
from random import Random
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from bpe_core.cores import usable_cores
from bpe_core.visible_text import visible
from pipelines.dataset.reading import SPLITS, TokenChunk, TokenDataset, TokenFile
from pipelines.errors import ConfigError
from pipelines.manifest.run_record import RunRecord
from pipelines.storage.parquet import footer_of, open_parquet
from pipelines.tokenizers.vocabulary import Vocabulary

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines.tokenizers.files import Model

BOUNDARY: Final = "│"
# Colors that every terminal has.
_COLOURS: Final = ("black on yellow", "black on cyan", "black on green", "black on magenta")
_PLACE: Final = re.compile(r"(.+):([0-9]+)")
_CONTEXT_BYTES: Final = 40
_SAME_IDS: Final = 10  # documents of a file with the same id that are found
_LABEL_WIDTH: Final = 10


# --- documents -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Place:
    """A row of the dataset.

    Attributes:
        file: that contains the row.
        row: number of the row in the file.
    """

    file: TokenFile
    row: int


@dataclass(frozen=True, kw_only=True)
class Document:
    """A document with the first of its tokens.

    Attributes:
        place: its first row.
        number: number of that row in its split.
        source, offset, record_id: its origin.
        parts: number of its rows.
        tokens, num_bytes: number of ids and size of the source text, over all rows.
        ids: the first ids.
        shown: their tokens, as bytes.
        kept: values of the columns of records that the dataset keeps.
    """

    place: Place
    number: int
    source: str
    offset: int
    record_id: str | None
    parts: int
    tokens: int
    num_bytes: int
    ids: tuple[int, ...]
    shown: tuple[bytes, ...]
    kept: Mapping[str, Any]

    def to_json(
        self, locations: Mapping[str, str], others: Sequence[Document] = ()
    ) -> dict[str, Any]:
        """Return the values that `show_document` prints, as JSON values."""
        return {
            **_place_to_json(self.place, self.number),
            "rows": self.parts,
            "source": self.source,
            "offset": self.offset,
            "location": locations.get(self.source),
            "id": self.record_id,
            "same_id": [{"source": other.source, "offset": other.offset} for other in others],
            "kept": {name: _json_value(value) for name, value in self.kept.items()},
            "tokens": self.tokens,
            "bytes": self.num_bytes,
            "text": b"".join(self.shown).decode("utf-8", "replace"),
            "shown_tokens": [token.decode("utf-8", "backslashreplace") for token in self.shown],
            "shown_ids": list(self.ids),
        }


@dataclass(frozen=True, kw_only=True)
class Hit:
    """An occurrence of a text: its row, and a little of the document around it."""

    place: Place
    number: int
    source: str
    offset: int
    before: str
    after: str


@dataclass(kw_only=True)
class Hits:
    """The result of a search: the first hits, and the number of all."""

    hits: list[Hit]
    matches: int = 0
    documents: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the hits as JSON values."""
        hits = [
            {
                **_place_to_json(hit.place, hit.number),
                "source": hit.source,
                "offset": hit.offset,
                "before": hit.before,
                "after": hit.after,
            }
            for hit in self.hits
        ]
        return {"matches": self.matches, "documents": self.documents, "hits": hits}


def _json_value(value: Any) -> Any:
    """Return a value of a kept column as JSON; times, bytes and special numbers as text."""
    is_plain = value is None or isinstance(value, str | bool | int)
    is_finite = isinstance(value, float) and isfinite(value)
    return value if is_plain or is_finite else str(value)


def _place_to_json(place: Place, number: int) -> dict[str, Any]:
    return {
        "split": place.file.split,
        "row": number,
        "file": place.file.name,
        "row_in_file": place.row,
    }


class Inspector:
    """Lookups in a dataset.

    Args:
        dataset: to search.
        model: the tokenizer that it was encoded with.
    """

    def __init__(self, dataset: TokenDataset, model: Model) -> None:
        self._dataset = dataset
        self._vocabulary = Vocabulary(model)

    @cached_property
    def _first_rows(self) -> dict[str, int]:
        """The number in its split of the first row of each file, by name of the file."""
        firsts = {}
        for split in SPLITS:
            first = 0
            for file in self._dataset.of_split(split):
                firsts[file.name] = first
                first += file.rows
        return firsts

    @property
    def _has_record_ids(self) -> bool:
        return any(
            source.get("id_field") is not None for source in self._dataset.configuration["input"]
        )

    # Finding

    def at_row(self, split: str, number: int) -> Place:
        """Return the row with a number in the order of a split; reads only the manifest.

        Raises:
            ConfigError: the split has fewer rows.
        """
        first = 0
        for file in self._dataset.of_split(split):
            if first <= number < first + file.rows:
                return Place(file=file, row=number - first)
            first += file.rows
        raise ConfigError(
            "There is no such row.",
            expected=f"a row of {split}, 0 to {first - 1:,}" if first else f"rows in {split}",
            found=f"{number:,}",
            where="--row",
        )

    def at_random(self, split: str, seed: int | None = None) -> Place:
        """Return a row of a split at random, the same for the same seed.

        Raises:
            ConfigError: the split has no rows.
        """
        rows = self._dataset.num_rows(split)
        return self.at_row(split, Random(seed).randrange(rows) if rows else 0)

    def with_name(self, name: str) -> Place:
        """Return the first document of `all_with_name`."""
        return self.all_with_name(name)[0]

    def all_with_name(self, name: str) -> list[Place]:
        """Return the document that begins at LABEL:OFFSET, or all that have this id.

        Raises:
            ConfigError: there is none.
            InputError: the manifest has an older format.
        """
        labels = self._dataset.require_manifest().inputs_by_label
        parts = _PLACE.fullmatch(name)
        found = None
        if parts is not None and parts[1] in labels:
            found = self._at_place(parts[1], int(parts[2]))
        if found is not None:
            return [found]
        places = self._with_record_id(name) if self._has_record_ids else []
        if places:
            return places
        forms = "LABEL:OFFSET" + (" or the id of a record" if self._has_record_ids else "")
        raise ConfigError(
            "There is no such document.",
            expected=f"{forms}, as in the columns of the token files",
            found=name,
            where="--doc",
            hint="It may have been rejected (`beam-bpe rejects OUTPUT`), be empty, or be excluded "
            "by a selection.",
        )

    def _at_place(self, label: str, offset: int) -> Place | None:
        with ThreadPoolExecutor(usable_cores()) as threads:
            found = threads.map(partial(self._may_contain, label), self._dataset.files)
            candidates = [file for file, may in zip(self._dataset.files, found, strict=True) if may]
        for file in candidates:
            row = 0
            for table in self._dataset.file_tables(file, ["source", "offset", "part"]):
                same = pc.and_(
                    pc.equal(table["source"].cast("string"), label),
                    pc.and_(pc.equal(table["offset"], offset), pc.equal(table["part"], 0)),
                )
                at = pc.index(same, True).as_py()
                if at >= 0:
                    return Place(file=file, row=row + at)
                row += table.num_rows
        return None

    def _may_contain(self, label: str, file: TokenFile) -> bool:
        """Return True if the task in a file's footer reads an input."""
        with open_parquet(self._dataset.tokens, file.name) as parquet:
            task: Mapping[str, Any] = json.loads(footer_of(parquet).get("task", "{}"))
        return any(part[0] == label for part in task.get("inputs", ()))

    def _with_record_id(self, record_id: str) -> list[Place]:
        find = partial(self._find_record_id, record_id)
        with ThreadPoolExecutor(usable_cores()) as threads:
            return [
                place for of_file in threads.map(find, self._dataset.files) for place in of_file
            ]

    def _find_record_id(self, record_id: str, file: TokenFile) -> list[Place]:
        found = []
        row = 0
        for table in self._dataset.file_tables(file, ["id", "part"]):
            same = pc.and_(pc.equal(table["id"], record_id), pc.equal(table["part"], 0))
            found += [
                Place(file=file, row=row + i.as_py()) for i in pc.indices_nonzero(same)[:_SAME_IDS]
            ]
            row += table.num_rows
        return found[:_SAME_IDS]

    # Reading

    def read(self, place: Place, max_tokens: int) -> Document:
        """Return the document that a row belongs to, with at most `max_tokens` of its tokens."""
        kept = self._dataset.kept_columns.names
        columns = ["source", "offset", "part", "num_bytes", *kept]
        columns += ["id"] if self._has_record_ids else []
        chunks = self._dataset.file_chunks(place.file, columns, start_row=place.row)
        chunk = next(chunks)
        part = int(chunk.column("part")[0])
        if part:  # the parts of a document are consecutive rows
            return self.read(Place(file=place.file, row=place.row - part), max_tokens)
        parts = tokens = num_bytes = 0
        first_ids: list[int] = []
        shown: list[bytes] = []
        for more in chain((chunk,), chunks):
            starts = more.starts.copy()
            if parts == 0:
                starts[0] = False
            rows = int(np.argmax(starts)) if starts.any() else len(more)
            ids = more.ids[: more.offsets[rows]]
            some = ids[: max_tokens - len(shown)]
            first_ids += some.tolist()
            shown += self._tokens(some)
            parts += rows
            tokens += len(ids)
            num_bytes += int(more.column("num_bytes")[:rows].sum())
            if starts.any():
                break
        return Document(
            place=place,
            number=self._first_rows[place.file.name] + place.row,
            source=chunk.columns["source"][0].as_py(),
            offset=int(chunk.column("offset")[0]),
            record_id=chunk.columns["id"][0].as_py() if self._has_record_ids else None,
            parts=parts,
            tokens=tokens,
            num_bytes=num_bytes,
            ids=tuple(first_ids),
            shown=tuple(shown),
            kept={name: chunk.columns[name][0].as_py() for name in kept},
        )

    def _tokens(self, ids: NDArray[Any]) -> list[bytes]:
        data, bounds = self._vocabulary.decode(ids)
        text, edges = data.tobytes(), bounds.tolist()
        return [text[a:b] for a, b in pairwise(edges)]

    # Searching

    def search(self, text: str, limit: int) -> Hits:
        """Search all documents for a text, several files at a time.

        Args:
            text: to search for in the decoded ids, special tokens included.
            limit: number of hits to return; all are counted.
        """
        found = Hits(hits=[])
        with ThreadPoolExecutor(usable_cores()) as threads:
            search = partial(self._search_file, text.encode(), limit)
            for of_file in threads.map(search, self._dataset.files):
                found.hits += of_file.hits[: limit - len(found.hits)]
                found.matches += of_file.matches
                found.documents += of_file.documents
        return found

    def _search_file(self, needle: bytes, limit: int, file: TokenFile) -> Hits:
        found = Hits(hits=[])
        overlap = b""  # the end of the previous text, if its document continues
        document = -1  # the row in which it began
        counted = -1  # the last document with a match
        for chunk in self._dataset.file_chunks(file, ["source", "offset", "part"]):
            data, bounds = self._vocabulary.decode(chunk.ids)
            starts = chunk.starts
            carried = b"" if starts[0] else overlap
            text = carried + data.tobytes()
            # Offsets of rows in the text, and for each row the first row of its document.
            edges = bounds[chunk.offsets] + len(carried)
            rows = np.arange(len(chunk)) + chunk.first_row
            begins = np.maximum.accumulate(np.where(starts, rows, document))
            ends = self._document_ends(starts, edges)
            firsts = np.maximum.accumulate(np.where(starts, edges[:-1], 0))
            done = 0
            at = text.find(needle)
            while at >= 0:
                row = max(int(np.searchsorted(edges, at, side="right")) - 1, 0)
                if at + len(needle) <= ends[row]:
                    found.matches += 1
                    if begins[row] != counted:
                        counted = int(begins[row])
                        found.documents += 1
                    if len(found.hits) < limit:
                        around = text[: ends[row]], int(firsts[row]), at, at + len(needle)
                        found.hits.append(self._hit(chunk, row, *around))
                    done = at + len(needle)
                    at = text.find(needle, done)
                else:  # across the end of a document
                    at = text.find(needle, at + 1)
            document = int(begins[-1])
            overlap = text[max(len(text) - len(needle) + 1, done) :]
        return found

    @staticmethod
    def _document_ends(starts: NDArray[np.bool_], edges: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return for each row where its document ends in the text of the chunk."""
        last_rows = np.append(np.flatnonzero(starts[1:]), len(starts) - 1)
        of_rows = last_rows[np.searchsorted(last_rows, np.arange(len(starts)))]
        ends: NDArray[np.int64] = edges[of_rows + 1]
        return ends

    def _hit(
        self, chunk: TokenChunk, row: int, text: bytes, first: int, begin: int, end: int
    ) -> Hit:
        """Return the hit at text[begin:end], in a document that begins at `first`."""
        place = Place(file=chunk.file, row=chunk.first_row + row)
        return Hit(
            place=place,
            number=self._first_rows[chunk.file.name] + place.row,
            source=chunk.columns["source"][row].as_py(),
            offset=int(chunk.column("offset")[row]),
            before=_whole_characters(text[max(begin - _CONTEXT_BYTES, first) : begin]),
            after=_whole_characters(text[end : end + _CONTEXT_BYTES]),
        )


def _whole_characters(text: bytes) -> str:
    """Return the text without incomplete characters at its ends."""
    return text.decode("utf-8", "ignore")


# --- showing ---------------------------------------------------------------------------------


def _in_a_line(data: bytes | str) -> str:
    return visible(data).replace("\n", "⏎").replace("\t", " ")


def show_document(
    document: Document,
    console: Console,
    locations: Mapping[str, str] | None = None,
    others: Sequence[Document] = (),
) -> None:
    """Print a document: its origin, its text, its tokens and their ids.

    Args:
        document: to print.
        console: to print to; tokens have colors on a terminal, else `BOUNDARY` between them.
        locations: path or URL of input files, by label.
        others: other documents with the same id.
    """
    from rich.text import Text

    place = document.place
    rows = "" if document.parts == 1 else f"; {document.parts:,} rows"
    ratio = document.num_bytes / document.tokens if document.tokens else 0.0
    facts = {
        "document": f"{place.file.split} row {document.number:,} "
        f"({place.file.name}, row {place.row:,}{rows})",
        "source": f"{document.source}, offset {document.offset:,}",
        "file": (locations or {}).get(document.source),
        "id": document.record_id,
        "same id": ", ".join(f"{other.source}:{other.offset}" for other in others) or None,
        **{name: None if value is None else str(value) for name, value in document.kept.items()},
        "tokens": f"{document.tokens:,}, of {document.num_bytes:,} bytes of text "
        f"({ratio:.2f} bytes per token)",
    }
    for label, value in facts.items():
        if value is not None:
            shown_label = _in_a_line(label).ljust(_LABEL_WIDTH - 1)
            _print(console, Text(f"{shown_label} {_in_a_line(value)}"))
    left = document.tokens - len(document.shown)
    more = f"… and {left:,} more tokens" if left else None
    _print(console, Text("\ntext", style="bold"))
    _print(console, Text(visible(b"".join(document.shown))))
    if more:
        _print(console, Text(more))
    _print(console, Text("\ntokens", style="bold"))
    coloured = console.is_terminal and not console.no_color and console.color_system is not None
    shown = Text()
    for number, token in enumerate(document.shown):
        if number and not coloured:
            shown.append(BOUNDARY)
        shown.append(visible(token).replace("\n", "⏎\n"), _COLOURS[number % len(_COLOURS)])
    _print(console, shown)
    if more:
        _print(console, Text(more))
    _print(console, Text("\nids", style="bold"))
    _print(console, Text(" ".join(map(str, document.ids))))
    if more:
        _print(console, Text(more))


def show_hits(found: Hits, text: str, console: Console) -> None:
    """Print the result of a search."""
    from rich.text import Text

    for hit in found.hits:
        where = f"{hit.place.file.split} row {hit.number:,}, {_in_a_line(hit.source)} "
        line = Text(f"{where}offset {hit.offset:,}: ")
        line.append(_in_a_line(hit.before))
        line.append(_in_a_line(text), "bold reverse")
        line.append(_in_a_line(hit.after))
        _print(console, line)
    shown = f"; the first {len(found.hits):,} are shown" if len(found.hits) < found.matches else ""
    number = f"{found.matches:,} match" + ("" if found.matches == 1 else "es")
    documents = f"{found.documents:,} document" + ("" if found.documents == 1 else "s")
    _print(console, Text(f"{number} in {documents}{shown}"))


def _print(console: Console, text: Any) -> None:
    console.print(text, soft_wrap=True, highlight=False)


def locations(dataset: TokenDataset) -> Mapping[str, str]:
    """Return the path or URL of the input files at the time of the build, by label."""
    record = RunRecord.load(dataset.tokens)
    return {} if record is None else record.locations
