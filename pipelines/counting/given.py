"""Counts to read: of an output, also if it trained from those of another, or in a file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from bpe_core import PretokenCounts
from bpe_core.counts import normalization_metadata, read_rows
from bpe_core.errors import FormatError, TrainingError
from pipelines.accounting import DocumentTotals
from pipelines.config import BuildConfig
from pipelines.counting.shard_files import shard_name
from pipelines.errors import ConfigError, DamagedOutputError, InputError, PipelineError
from pipelines.manifest.entries import ShardEntry
from pipelines.manifest.models import CountsContent
from pipelines.manifest.names import MANIFEST, SHARD_FILE
from pipelines.manifest.run_record import RunRecord
from pipelines.manifest.stage import COUNT, TRAIN
from pipelines.manifest.stage_records import load_manifest
from pipelines.storage.directory import Directory
from pipelines.storage.parquet import footer_of, open_parquet

_COLUMNS: Final = ("pretoken", "count", "documents", "groups")
# Metadata of a file that describe the file, not how text was counted.
_OF_THE_FILE: Final = ("shard", "totals", "corpus", "fingerprint", "xxh3_128")
_CHECKED_AT_ONCE: Final = 8 << 20


@dataclass(frozen=True)
class RowGroup:
    """A part of a file of counts, to read.

    Attributes:
        columns: Names of its columns.
        metadata: How text was counted, and the groups, as the file has them.
    """

    columns: Sequence[str]
    metadata: Mapping[str, str]
    _given: GivenCounts
    _file: pq.ParquetFile
    _number: int
    _where: str

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return some or all columns of its rows, in the order of the file.

        Raises:
            OutputError: The file is damaged.
        """
        with self._given._problems(self._where):
            return self._file.read_row_group(self._number, columns=columns, use_threads=False)


@dataclass(frozen=True, kw_only=True)
class GivenCounts:
    """Counts to read, shard by shard.

    Attributes:
        directory: Directory of the files.
        names: Names of the files: all shards in order, or a single file.
        manifest: Manifest of the counts, or None for files without one.
        entries: Entries of the files in it; empty for files without one.
        fingerprint: Fingerprint in it, or None.
    """

    directory: Directory
    names: tuple[str, ...]
    manifest: CountsContent | None = None
    entries: tuple[ShardEntry, ...] = ()
    fingerprint: str | None = None
    _checked: set[str] = field(default_factory=set, compare=False, repr=False)

    @classmethod
    def open(cls, url: str, storage_options: Mapping[str, Any] | None = None) -> Self:
        """Return the counts at a path or URL.

        It is an output, whose counts may be those that its tokenizer was trained from
        (`counts.path`); a directory of counts; or a Parquet file.

        Raises:
            InputError: There are no finished counts.
            OutputError: Files are missing or damaged.
        """
        found = cls.find(url, storage_options)
        if found is None:
            raise _no_counts(url, f"no {COUNT.directory}/{MANIFEST}")
        return found

    @classmethod
    def find(cls, url: str, storage_options: Mapping[str, Any] | None = None) -> Self | None:
        """Return the counts at a path or URL, as `open` does, or None if none were finished.

        Raises:
            InputError: There is no such file, or the counts that an output was trained from are
                gone.
            OutputError: Files are missing or damaged.
        """
        root = Directory.given(url, storage_options)
        if url.endswith(".parquet") or (root.is_local and root.local_path("").is_file()):
            parent, slash, name = url.rpartition("/")
            directory = Directory.given(parent or slash or ".", storage_options)
            if name not in directory.sizes():
                raise _no_counts(url, "no such file")
            return cls(directory=directory, names=(name,))
        if (found := cls._find(root)) is not None:
            return found
        record = RunRecord.load(root / TRAIN.directory)
        if record is None or record.counts is None:
            return None
        given = root.elsewhere(record.counts)
        if (found := cls._find(given)) is None:
            raise _no_counts(given.url, f"none, though {url} was trained from counts there")
        return found

    @classmethod
    def _find(cls, root: Directory) -> Self | None:
        """Return the counts in an output or a directory of counts, or None."""
        sizes: dict[str, int] = {}
        for directory in (root / COUNT.directory, root):
            sizes = directory.sizes()
            if MANIFEST in sizes and (directory is not root or _has_shards(sizes)):
                manifest = load_manifest(COUNT, directory)
                assert manifest is not None
                wrong = [s.name for s in manifest.shards if sizes.get(s.name) != s.bytes]
                if wrong:
                    raise _damaged(directory.path(wrong[0]), "missing or of another size")
                return cls.listed(directory, manifest)
        # Shards that a pipeline of the user's wrote.
        found = next(filter(None, map(SHARD_FILE.fullmatch, sorted(sizes))), None)
        if found is None:
            return None
        names = tuple(shard_name(shard, int(found[1])) for shard in range(int(found[1])))
        if missing := [name for name in names if name not in sizes]:
            raise _no_counts(root.url, f"no {missing[0]}")
        return cls(directory=root, names=names)

    @classmethod
    def listed(cls, directory: Directory, manifest: CountsContent) -> Self:
        """Return the counts in a directory that a manifest, or its content, lists."""
        return cls(
            directory=directory,
            names=tuple(shard.name for shard in manifest.shards),
            manifest=manifest,
            entries=tuple(manifest.shards),
            fingerprint=manifest.fingerprint,
        )

    @classmethod
    def of_build(cls, config: BuildConfig, output: Directory) -> Self:
        """Return the counts at `counts.path`, from which a build trains.

        Args:
            config: Configuration of the build, with `counts.path`.
            output: Its output.

        Raises:
            ConfigError: They have no manifest, or were counted by other rules.
            InputError: There are no finished counts.
        """
        path = config.counts.path
        assert path is not None, "the caller has it"
        place = output.elsewhere(config.resolve(path))
        try:
            given = cls.open(place.url, place.storage_options)
        except InputError as error:  # counting by this configuration is refused, too
            error.hint = "Change counts.path, or remove it to count the input."
            raise
        if given.manifest is None:
            raise ConfigError(
                "Counts without a manifest cannot be trained from.",
                expected="a directory that `beam-bpe count` or `beam-bpe counts` wrote",
                found=given.url,
                where="counts.path",
                hint=f"Write one: `beam-bpe counts merge {path} --output DIR`.",
            )
        tokenizer = config.tokenizer
        wanted = {
            "pattern": tokenizer.effective_pattern,
            "special_tokens": json.dumps(tokenizer.special_tokens, ensure_ascii=False),
            **normalization_metadata(tokenizer.normalization_form, tokenizer.normalize_quotes),
        }
        try:
            PretokenCounts.from_mapping({}, wanted) + given.empty  # refuses other rules by name
        except TrainingError as error:
            raise ConfigError(
                "The counts were counted by other rules than those of the configuration.",
                expected="counts by the pattern, special tokens and normalization of `tokenizer`",
                found=f"{error} (configuration and counts)",
                where=f"counts.path: {given.url}",
                hint="Change `tokenizer`, or give counts by its rules.",
            ) from None
        return given

    @property
    def shards(self) -> int:
        """The number of files; each pre-token is in the file of its shard."""
        return len(self.names)

    @property
    def url(self) -> str:
        """The path or URL, for messages."""
        is_file = self.shards == 1 and not self.entries
        return self.directory.path(self.names[0]) if is_file else self.directory.url

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
        return self.footer.get("corpus", DocumentTotals().corpus_fingerprint)

    @cached_property
    def footer(self) -> dict[str, str]:
        """The metadata of the first file."""
        with self._open(self.names[0]) as file:
            return footer_of(file)

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
            InputError: A file without a manifest does not contain counts.
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
                for batch in file.iter_batches(rows_at_once, row_groups=[number], columns=columns):
                    if not batch.num_rows:
                        continue
                    table = pa.Table.from_batches([batch]).replace_schema_metadata(schema.metadata)
                    rows = read_rows(table, where)
                    keys, offsets, _ = rows.columns()
                    if keys[offsets[0] : offsets[1]].tobytes() <= last:
                        raise FormatError(f"{where}: expected pre-tokens in ascending order")
                    last = keys[offsets[-2] : offsets[-1]].tobytes()
                    yield rows

    def _check(self, shard: int) -> None:
        """Compare the bytes of a shard with its entry in the manifest, once."""
        if not self.entries or self.names[shard] in self._checked:
            return
        entry, digest = self.entries[shard], xxhash.xxh3_128()
        for start in range(0, entry.bytes, _CHECKED_AT_ONCE):
            end = min(start + _CHECKED_AT_ONCE, entry.bytes)
            digest.update(self.directory.read_bytes(entry.name, start, end))
        self._compare(shard, digest.hexdigest())
        self._checked.add(entry.name)

    def _compare(self, shard: int, found: str) -> None:
        entry = self.entries[shard]
        if found != entry.xxh3_128:
            with self._problems(self.directory.path(entry.name)):
                raise ValueError(f"xxh3-128 {found} instead of {entry.xxh3_128}")

    def row_groups(self) -> Iterator[RowGroup]:
        """Yield the row groups of all files. A file is in memory while its row groups are read.

        Raises:
            OutputError: A file is missing or damaged.
            InputError: A file without a manifest does not contain counts.
        """
        for shard, name in enumerate(self.names):
            where = self.directory.path(name)
            data = self.directory.read_bytes(name)
            if self.entries:
                self._compare(shard, xxhash.xxh3_128_hexdigest(data))
            with self._problems(where):
                file = pq.ParquetFile(pa.BufferReader(data))
                schema, footer = file.schema_arrow, footer_of(file)
            for number in range(file.num_row_groups):
                group = RowGroup(schema.names, footer, self, file, number, where)
                if not self.entries:
                    with self._problems(where):
                        columns = [column for column in _COLUMNS if column in schema.names]
                        rows = group.read(columns).replace_schema_metadata(schema.metadata)
                        read_rows(rows, where)  # checks them
                yield group

    @contextmanager
    def _open(self, name: str) -> Iterator[pq.ParquetFile]:
        with (
            self._problems(self.directory.path(name)),
            open_parquet(self.directory, name) as file,
        ):
            yield file

    @contextmanager
    def _problems(self, where: str) -> Iterator[None]:
        """Replace errors of a file that is damaged, or does not contain counts."""
        try:
            yield
        except (pa.ArrowException, OSError, ValueError, KeyError, FormatError) as error:
            if isinstance(error, PipelineError):
                raise
            if self.entries:
                raise _damaged(where, str(error)) from None
            raise InputError(
                "The counts cannot be read.",
                expected="Parquet with the columns pretoken and count, sorted by pre-token",
                found=str(error).removeprefix(f"{where}: expected "),
                where=where,
                hint="Give the output of a build, or a file that `PretokenCounts.save` or "
                "`beam-bpe counts` wrote.",
            ) from None


def _has_shards(names: Mapping[str, int]) -> bool:
    return any(map(SHARD_FILE.fullmatch, names))


def _no_counts(where: str, found: str) -> InputError:
    return InputError(
        "There are no counts.",
        expected="the output of a build with finished counts, its directory of counts, or a "
        ".parquet file of counts",
        found=found,
        where=where,
        hint="Count the corpus: `beam-bpe count CONFIG`.",
    )


def _damaged(where: str, found: str) -> DamagedOutputError:
    return DamagedOutputError(
        "A file of counts is damaged.",
        expected="the bytes that its manifest lists",
        found=found,
        where=where,
        hint="Restore it, or count again: `beam-bpe count CONFIG --restart`.",
    )
