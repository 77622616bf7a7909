"""Statistics of the token files, counted while the files are written: see docs/statistics.md.

Each task writes its `Statistics` beside its entry. At the end those of all tasks are added up and
written to `tokens/statistics.parquet`, or `statistics-add001.parquet` for added inputs. They are
sums, or the first documents in an order that depends on the documents alone, so they are
independent of ranges, workers and repetitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bpe_core._native import add_document_sums, add_id_counts
from pipelines.manifest.entries import TableEntry
from pipelines.manifest.names import BASE
from pipelines.storage.directory import Directory
from pipelines.storage.parquet import listed_bytes
from pipelines.tokenizers.vocabulary import Vocabulary

LONGEST_KEPT: Final = 32
# Width of the buckets of bytes per token; the last bucket is open.
_RATIO_STEPS: Final = 4
_RATIO_BUCKETS: Final = 64
_LENGTH_BUCKETS: Final = 64

SCHEMA: Final = pa.schema(
    [
        pa.field("statistic", pa.string(), nullable=False),
        pa.field("generation", pa.string(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
        pa.field("source", pa.string()),
        pa.field("file", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("token_id", pa.int64()),
        pa.field("at_least", pa.float64()),
        pa.field("below", pa.float64()),
        pa.field("documents", pa.int64()),
        pa.field("tokens", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64()),
    ]
)


@dataclass(frozen=True, kw_only=True, slots=True)
class LongDocument:
    """One of the longest documents, with its `offset` as in the token files."""

    split: str
    source: str | None
    file: str
    offset: int
    tokens: int
    bytes: int

    @property
    def order(self) -> tuple[int, int, str, int]:
        """Return the sort key: the longest first, equally long ones by file and offset."""
        return -self.tokens, -self.bytes, self.file, self.offset


@dataclass(kw_only=True, slots=True)
class _Documents:
    """Documents of a file, one element each in the arrays."""

    split: str
    source: str | None
    file: str
    tokens: NDArray[np.int64]
    bytes: NDArray[np.int64]
    offsets: NDArray[np.int64]

    def copy(self, which: slice) -> _Documents:
        """Return a copy of some of the documents."""
        arrays = {
            name: getattr(self, name)[which].copy() for name in ("tokens", "bytes", "offsets")
        }
        return replace(self, **arrays)


class Statistics:
    """Sums over documents. Sums over parts of a corpus add up to those over the whole.

    Attributes:
        files: Numbers of documents, tokens and bytes, as int64[3], by (split, source, file).
        lengths: The same, int64[3, 64], by (split, source); bucket 0 has the documents without
            tokens, bucket b ≥ 1 those with 2^(b - 1) to 2^b - 1.
        ratios: The same, int64[3, 65], by (split, source); bucket b has the documents with b / 4 to
            (b + 1) / 4 bytes per token, the last one all above.
        longest: The documents with most tokens, at most `LONGEST_KEPT`.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self.files: dict[tuple[str, str | None, str], NDArray[np.int64]] = {}
        self.lengths: dict[tuple[str, str | None], NDArray[np.int64]] = {}
        self.ratios: dict[tuple[str, str | None], NDArray[np.int64]] = {}
        self.longest: list[LongDocument] = []
        self._ids: dict[str, NDArray[np.int64]] = {}
        # The last document of each split; more of its parts may follow.
        self._open: dict[str, _Documents] = {}

    def add_rows(
        self,
        split: str,
        source: str | None,
        file: str,
        *,
        ids: NDArray[Any],
        lengths: NDArray[Any],
        num_bytes: NDArray[np.int64],
        offsets: NDArray[np.int64],
        begins: NDArray[np.bool_],
    ) -> None:
        """Count rows of a file, in order. Further parts of a document follow its first.

        Args:
            split: "train" or "validation".
            source: Name of the configured source, if it has one.
            file: Label of the file, as in the column `source`.
            ids: uint16 or uint32, the ids of all rows.
            lengths, num_bytes, offsets: Ids, bytes of text and column `offset` of each row.
            begins: True for each row that starts a document.

        Raises:
            ValueError: An id is not in the vocabulary.
        """
        if not len(lengths):
            return
        self._count_ids(split, ids)
        starts = np.flatnonzero(begins)
        before = int(starts[0]) if len(starts) else len(lengths)
        if before:
            pending = self._open.get(split)
            if pending is None:
                raise ValueError("a part of a document without its first part")
            pending.tokens += int(lengths[:before].sum())
            pending.bytes += int(num_bytes[:before].sum())
        if before == len(lengths):
            return
        self._close(split)
        if len(starts) == len(lengths):
            tokens, texts = lengths.astype(np.int64), num_bytes
        else:
            tokens = np.add.reduceat(lengths.astype(np.int64), starts)
            texts = np.add.reduceat(num_bytes, starts)
            offsets = offsets[starts]
        documents = _Documents(
            split=split, source=source, file=file, tokens=tokens, bytes=texts, offsets=offsets
        )
        self._add_documents(documents.copy(slice(0, -1)))
        # More of the last document may follow.
        self._open[split] = documents.copy(slice(-1, None))

    def finish(self) -> None:
        """Count the last documents, which are complete now."""
        for split in list(self._open):
            self._close(split)

    def _close(self, split: str) -> None:
        if split in self._open:
            self._add_documents(self._open.pop(split))

    def _add_documents(self, documents: _Documents) -> None:
        if not len(documents.tokens):
            return
        key = documents.split, documents.source
        tokens, size = documents.tokens, documents.bytes
        _add(self.files, (*key, documents.file), np.array([len(tokens), tokens.sum(), size.sum()]))
        add_document_sums(
            np.ascontiguousarray(tokens),
            np.ascontiguousarray(size),
            _histogram(self.lengths, key, _LENGTH_BUCKETS),
            _histogram(self.ratios, key, _RATIO_BUCKETS + 1),
            _RATIO_STEPS,
        )
        self._note_longest(documents)

    def _note_longest(self, documents: _Documents) -> None:
        tokens, size, offsets = documents.tokens, documents.bytes, documents.offsets
        least = 0 if len(self.longest) < LONGEST_KEPT else self.longest[-1].tokens
        if int(tokens.max()) < least:
            return
        candidates = np.flatnonzero(tokens >= least)
        if len(candidates) > LONGEST_KEPT:
            # In the order of `LongDocument.order`, except for the file, which is the same.
            keys = (offsets[candidates], -size[candidates], -tokens[candidates])
            candidates = candidates[np.lexsort(keys)[:LONGEST_KEPT]]
        self._keep_longest(
            LongDocument(
                split=documents.split,
                source=documents.source,
                file=documents.file,
                offset=int(offsets[i]),
                tokens=int(tokens[i]),
                bytes=int(size[i]),
            )
            for i in candidates
        )

    def _keep_longest(self, documents: Iterable[LongDocument]) -> None:
        together = [*self.longest, *documents]
        self.longest = sorted(together, key=lambda document: document.order)[:LONGEST_KEPT]

    def _count_ids(self, split: str, ids: NDArray[Any]) -> None:
        if not self._vocabulary.is_dense:
            rows = self._vocabulary.rows_of(ids)
            if len(rows) and rows.min() < 0:
                raise ValueError(f"id {int(ids[int(np.argmin(rows))])} is not in the vocabulary")
            ids = rows.astype(np.uint32)
        add_id_counts(ids, self._counters(split))

    def _counters(self, split: str) -> NDArray[np.int64]:
        """Return the uses by id, or by the id's row if ids are far apart."""
        if split not in self._ids:
            vocabulary = self._vocabulary
            dense = vocabulary.is_dense and len(vocabulary)
            size = int(vocabulary.ids[-1]) + 1 if dense else len(vocabulary)
            self._ids[split] = np.zeros(size, np.int64)
        return self._ids[split]

    def uses(self, split: str) -> NDArray[np.int64]:
        """Return how often each id of the vocabulary occurs: int64[n].

        Raises:
            ValueError: A counted number is not an id of the vocabulary.
        """
        counts = self._ids.get(split)
        if counts is None:
            return np.zeros(len(self._vocabulary), np.int64)
        if not self._vocabulary.is_dense:
            return counts
        uses = counts[self._vocabulary.ids]
        if uses.sum() != counts.sum():
            others = np.setdiff1d(np.flatnonzero(counts), self._vocabulary.ids)
            raise ValueError(f"id {int(others[0])} is not in the vocabulary")
        return uses

    def all_uses(self) -> NDArray[np.int64]:
        """Return how often each id of the vocabulary occurs in all splits: int64[n].

        Raises:
            ValueError: A counted number is not an id of the vocabulary.
        """
        uses = np.zeros(len(self._vocabulary), np.int64)
        for split in self.splits:
            uses += self.uses(split)
        return uses

    @property
    def splits(self) -> list[str]:
        """Return the splits that have documents."""
        return sorted(self._ids)

    def tables(
        self, generation: str = BASE, *, splits: Sequence[str] | None = None
    ) -> Iterator[pa.Table]:
        """Yield the statistics as tables of `SCHEMA`, one for each statistic.

        Args:
            generation: Generation of the inputs.
            splits: Splits to write, with a row for every id; None for all splits, without unused
                ids.
        """
        common = {"generation": generation}
        yield _table(
            "file",
            [
                {**common, "split": split, "source": source, "file": file, **_sums(sums)}
                for (split, source, file), sums in sorted(self.files.items(), key=_by_key)
            ],
        )
        yield _table("tokens_per_document", self._buckets(self.lengths, common, _length_bounds))
        yield _table("bytes_per_token", self._buckets(self.ratios, common, _ratio_bounds))
        for split in self.splits if splits is None else splits:
            uses = self.uses(split)
            rows = np.flatnonzero(uses) if splits is None else np.arange(len(uses))
            columns = {
                "statistic": _repeated("token", len(rows)),
                "generation": _repeated(generation, len(rows)),
                "split": _repeated(split, len(rows)),
                "token_id": pa.array(self._vocabulary.ids[rows]),
                "tokens": pa.array(uses[rows]),
            }
            yield pa.table(
                [columns.get(field.name, pa.nulls(len(rows), field.type)) for field in SCHEMA],
                schema=SCHEMA,
            )
        yield _table(
            "longest",
            [
                {
                    **common,
                    "split": document.split,
                    "source": document.source,
                    "file": document.file,
                    "offset": document.offset,
                    "documents": 1,
                    "tokens": document.tokens,
                    "bytes": document.bytes,
                }
                for document in self.longest
            ],
        )

    @staticmethod
    def _buckets(
        histograms: Mapping[tuple[str, str | None], NDArray[np.int64]],
        common: Mapping[str, Any],
        bounds: Any,
    ) -> list[dict[str, Any]]:
        return [
            {
                **common,
                "split": split,
                "source": source,
                **bounds(bucket),
                **_sums(histogram[:, bucket]),
            }
            for (split, source), histogram in sorted(histograms.items(), key=_by_key)
            for bucket in np.flatnonzero(histogram[0]).tolist()
        ]

    def add_table(self, table: pa.Table) -> None:
        """Add statistics from a table that `tables` returned, of any generation.

        Raises:
            ValueError: It is not a table of statistics.
        """
        if not table.schema.equals(SCHEMA):
            raise ValueError("a table with other columns")
        of_tokens = pc.equal(table["statistic"], "token")
        uses = table.select(["split", "token_id", "tokens"]).filter(of_tokens)
        for split in pc.unique(uses["split"]).to_pylist():
            self._add_uses(split, uses.filter(pc.equal(uses["split"], split)))
        for row in table.filter(pc.invert(of_tokens)).to_pylist():
            key = row["split"], row["source"]
            sums = np.array([row["documents"], row["tokens"], row["bytes"]], np.int64)
            match row["statistic"]:
                case "file":
                    _add(self.files, (*key, row["file"]), sums)
                case "tokens_per_document":
                    bucket = int(row["at_least"]).bit_length()
                    _add_bucket(_histogram(self.lengths, key, _LENGTH_BUCKETS), bucket, sums)
                case "bytes_per_token":
                    bucket = int(row["at_least"] * _RATIO_STEPS)
                    _add_bucket(_histogram(self.ratios, key, _RATIO_BUCKETS + 1), bucket, sums)
                case "longest":
                    names = ("split", "source", "file", "offset", "tokens", "bytes")
                    self._keep_longest([LongDocument(**{name: row[name] for name in names})])
                case other:
                    raise ValueError(f"an unknown statistic {other!r}")

    def _add_uses(self, split: str, table: pa.Table) -> None:
        rows = self._vocabulary.rows_of(table["token_id"].to_numpy())
        if rows.min() < 0:
            raise ValueError("an id that is not in the vocabulary")
        places = self._vocabulary.ids[rows] if self._vocabulary.is_dense else rows
        self._counters(split)[places] += table["tokens"].to_numpy()


def write_statistics(
    directory: Directory,
    name: str,
    tables: Iterable[pa.Table],
    metadata: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Write tables of `SCHEMA`, a row group each. Return the file's entry of the manifest.

    Raises:
        OutputError: The file cannot be written.
    """
    rows = 0
    with directory.write(name) as file:
        with pq.ParquetWriter(
            pa.PythonFile(file, "w"),
            SCHEMA.with_metadata(metadata),
            compression="zstd",
            compression_level=1,
            use_dictionary=["statistic", "generation", "split", "source", "file"],
            write_statistics=False,
        ) as writer:
            for table in tables:
                rows += table.num_rows
                if table.num_rows:
                    writer.write_table(table)
        size, digest = file.size, file.hexdigest
    return {"name": name, "rows": rows, "bytes": size, "xxh3_128": digest}


def read_statistics(directory: Directory, entry: TableEntry) -> pa.Table:
    """Return the table that `write_statistics` wrote.

    Raises:
        OutputError: The file is missing, or does not match its entry.
    """
    data = listed_bytes(
        directory,
        entry.name,
        size=entry.bytes,
        xxh3_128=entry.xxh3_128,
        what="A file of statistics",
        hint="Start encoding over: `beam-bpe encode CONFIG --restart`.",
    )
    return pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False)  # `read_table` is slower


def _add(sums: dict[Any, NDArray[np.int64]], key: Any, more: NDArray[np.int64]) -> None:
    if key in sums:
        sums[key] += more
    else:
        sums[key] = more.copy()


def _histogram(
    histograms: dict[tuple[str, str | None], NDArray[np.int64]],
    key: tuple[str, str | None],
    buckets: int,
) -> NDArray[np.int64]:
    """Return the documents, tokens and bytes of a key by bucket."""
    if key not in histograms:
        histograms[key] = np.zeros((3, buckets), np.int64)
    return histograms[key]


def _add_bucket(histogram: NDArray[np.int64], bucket: int, sums: NDArray[np.int64]) -> None:
    if not 0 <= bucket < histogram.shape[1]:
        raise ValueError(f"bucket {bucket} of {histogram.shape[1]}")
    histogram[:, bucket] += sums


def _length_bounds(bucket: int) -> dict[str, float]:
    return {"at_least": float(1 << (bucket - 1)) if bucket else 0.0, "below": float(1 << bucket)}


def _ratio_bounds(bucket: int) -> dict[str, float | None]:
    above = None if bucket == _RATIO_BUCKETS else (bucket + 1) / _RATIO_STEPS
    return {"at_least": bucket / _RATIO_STEPS, "below": above}


def _sums(sums: NDArray[np.int64]) -> dict[str, int]:
    documents, tokens, size = sums.tolist()
    return {"documents": documents, "tokens": tokens, "bytes": size}


def _by_key(item: tuple[tuple[str | None, ...], Any]) -> tuple[str, ...]:
    return tuple(part or "" for part in item[0])


def _repeated(value: str, times: int) -> pa.Array[Any]:
    return pa.repeat(pa.scalar(value, pa.string()), times)


def _table(statistic: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist([{"statistic": statistic, **row} for row in rows], schema=SCHEMA)
