"""Counts given by path or URL: a finished output, its directory of counts, or a Parquet file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Self

import pyarrow as pa
import xxhash

from bpe_core import PretokenCounts
from bpe_core.counts import read_rows
from bpe_core.errors import FormatError
from pipelines.accounting import DocumentTotals
from pipelines.counting.shard_files import shard_name
from pipelines.errors import DamagedOutputError, InputError
from pipelines.manifest.models import CountsManifest
from pipelines.manifest.names import MANIFEST, SHARD_FILE
from pipelines.manifest.stage import COUNT
from pipelines.manifest.stage_records import load_manifest
from pipelines.storage.directory import Directory
from pipelines.storage.parquet import footer_of, open_parquet

_COLUMNS: Final = ("pretoken", "count", "documents", "groups")
# Metadata of a file that describe the file, not how text was counted.
_OF_THE_FILE: Final = ("shard", "totals", "corpus", "fingerprint", "xxh3_128")
_CHECKED_AT_ONCE: Final = 8 << 20


@dataclass(frozen=True, kw_only=True)
class GivenCounts:
    """Counts to read, shard by shard.

    Attributes:
        directory: Directory of the files.
        names: Names of the files: all shards in order, or a single file.
        manifest: Manifest of the counts, or None for files without one.
    """

    directory: Directory
    names: tuple[str, ...]
    manifest: CountsManifest | None = None
    _checked: set[str] = field(default_factory=set, compare=False, repr=False)

    @classmethod
    def open(cls, url: str, storage_options: Mapping[str, Any] | None = None) -> Self:
        """Return the counts at a path or URL.

        Raises:
            InputError: there are no finished counts.
            OutputError: files are missing or damaged.
        """
        if url.endswith(".parquet"):
            parent, _, name = url.rpartition("/")
            directory = Directory(url=parent or ".", storage_options=dict(storage_options or {}))
            if name not in directory.sizes():
                raise _no_counts(url, "no such file")
            return cls(directory=directory, names=(name,))
        root = Directory(url=url, storage_options=dict(storage_options or {}))
        for directory in (root / COUNT.directory, root):
            sizes = directory.sizes()
            if MANIFEST in sizes and (directory is not root or _has_shards(sizes)):
                manifest = load_manifest(COUNT, directory)
                assert manifest is not None
                names = tuple(shard.name for shard in manifest.shards)
                wrong = [s.name for s in manifest.shards if sizes.get(s.name) != s.bytes]
                if wrong:
                    raise _no_counts(directory.url, f"{wrong[0]} missing or of another size")
                return cls(directory=directory, names=names, manifest=manifest)
        sizes = root.sizes()  # shards that a pipeline of the user's wrote
        found = next(filter(None, map(SHARD_FILE.fullmatch, sorted(sizes))), None)
        if found is None:
            raise _no_counts(url, f"no {COUNT.directory}/{MANIFEST}")
        names = tuple(shard_name(shard, int(found[1])) for shard in range(int(found[1])))
        if missing := [name for name in names if name not in sizes]:
            raise _no_counts(url, f"no {missing[0]}")
        return cls(directory=root, names=names)

    @property
    def shards(self) -> int:
        """The number of files; each pre-token is in the file of its shard."""
        return len(self.names)

    @property
    def url(self) -> str:
        """The path or URL, for messages."""
        return self.directory.url if self.shards > 1 else self.directory.path(self.names[0])

    @cached_property
    def empty(self) -> PretokenCounts:
        """No counts, with the metadata and groups of these."""
        with self._open(self.names[0]) as file:
            schema = file.schema_arrow
            known = pa.schema([f for f in schema if f.name in _COLUMNS], schema.metadata)
            return read_rows(known.empty_table(), self.directory.path(self.names[0]))

    @property
    def metadata(self) -> dict[str, str]:
        """How text was counted."""
        known = self.empty.metadata.items()
        return {key: text for key, text in known if key not in _OF_THE_FILE}

    @cached_property
    def corpus(self) -> str:
        """The fingerprint of the counted documents; that of no documents if it is unknown."""
        if self.manifest is not None:
            return self.manifest.corpus
        return self._footers[0].get("corpus", DocumentTotals().corpus_fingerprint)

    @cached_property
    def rows(self) -> int:
        """The number of distinct pre-tokens."""
        return sum(int(footer["rows"]) for footer in self._footers)

    @cached_property
    def has_documents(self) -> bool:
        """Return True if documents were counted."""
        return self._footers[0]["documents"] == "True"

    @cached_property
    def _footers(self) -> list[dict[str, str]]:
        footers = []
        for name in self.names:
            with self._open(name) as file:
                footer = footer_of(file)
                footer["rows"] = str(file.metadata.num_rows)
                footer["documents"] = str("documents" in file.schema_arrow.names)
                footers.append(footer)
        return footers

    def total(self) -> int:
        """Return the number of pre-tokens that were counted, repetitions included."""
        if self.manifest is not None:
            return self.manifest.totals.pretokens
        return sum(rows.total() for shard in range(self.shards) for rows in self.read(shard))

    def read(self, shard: int, rows_at_once: int = 1 << 16) -> Iterator[PretokenCounts]:
        """Yield the rows of a file, in order.

        Raises:
            OutputError: The file is damaged.
            FormatError: The file does not contain counts.
        """
        name = self.names[shard]
        where = self.directory.path(name)
        self._check(shard)
        last = b""
        with self._open(name) as file:
            schema = file.schema_arrow
            columns = [column for column in _COLUMNS if column in schema.names]
            # One row group after the other: Arrow cannot read dictionaries of several as one batch.
            for number in range(file.num_row_groups):
                batches = file.iter_batches(rows_at_once, row_groups=[number], columns=columns)
                while (batch := _next(batches, where)) is not None:
                    table = pa.Table.from_batches([batch]).replace_schema_metadata(schema.metadata)
                    rows = read_rows(table, where)
                    keys, offsets, _ = rows.columns()
                    if keys[offsets[0] : offsets[1]].tobytes() <= last:
                        raise FormatError(f"{where}: expected pre-tokens in ascending order")
                    last = keys[offsets[-2] : offsets[-1]].tobytes()
                    yield rows

    def _check(self, shard: int) -> None:
        """Compare the bytes of a shard with its entry in the manifest, once."""
        if self.manifest is None or self.names[shard] in self._checked:
            return
        entry, digest = self.manifest.shards[shard], xxhash.xxh3_128()
        for start in range(0, entry.bytes, _CHECKED_AT_ONCE):
            end = min(start + _CHECKED_AT_ONCE, entry.bytes)
            digest.update(self.directory.read_bytes(entry.name, start, end))
        if digest.hexdigest() != entry.xxh3_128:
            where = self.directory.path(entry.name)
            raise _damaged(where, f"{digest.hexdigest()} instead of {entry.xxh3_128}")
        self._checked.add(entry.name)

    @contextmanager
    def _open(self, name: str) -> Iterator[Any]:
        where = self.directory.path(name)
        try:
            with open_parquet(self.directory, name) as file:
                yield file
        except (pa.ArrowException, OSError) as error:
            raise _damaged(where, str(error)) from None


def _next(batches: Iterator[pa.RecordBatch], where: str) -> pa.RecordBatch | None:
    """Return the next batch that has rows, or None."""
    try:
        return next((batch for batch in batches if batch.num_rows), None)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _damaged(where, str(error)) from None


def _has_shards(names: Mapping[str, int]) -> bool:
    return any(map(SHARD_FILE.fullmatch, names))


def _no_counts(where: str, found: str) -> InputError:
    return InputError(
        "There are no counts.",
        expected="the output of a build with finished counts, its directory of counts, or a "
        ".parquet file of counts",
        found=found,
        where=where,
        hint="Count a corpus: `beam-bpe count CONFIG`.",
    )


def _damaged(where: str, found: str) -> DamagedOutputError:
    return DamagedOutputError(
        "A file of counts is damaged.",
        expected="Parquet with the columns pretoken and count, with the bytes in its manifest",
        found=found,
        where=where,
        hint="Restore it, or count again: `beam-bpe count CONFIG --restart`.",
    )
