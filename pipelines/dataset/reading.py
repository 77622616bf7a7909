"""The token files of a build as one dataset, read in order and in bounded memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Final, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
from numpy.typing import NDArray
from pydantic import ValidationError

from bpe_core.short_repr import short_repr
from pipelines.config.fingerprints import fingerprint
from pipelines.config.values import column_name
from pipelines.errors import ConfigError, InputError
from pipelines.manifest.entries import Split, TokenFileEntry
from pipelines.manifest.models import (
    FORMAT_VERSION,
    FirstTokensManifest,
    TokenizerManifest,
    TokensManifest,
)
from pipelines.manifest.names import BASE, MANIFEST
from pipelines.manifest.records import first_problem
from pipelines.manifest.run_record import RunRecord
from pipelines.storage.directory import Directory
from pipelines.storage.parquet import open_parquet
from pipelines.storage.remote_files import REQUEST_BYTES, open_stored
from pipelines.tokenizers.files import Model, load_model

SPLITS: Final[tuple[Split, ...]] = ("train", "validation")
_AnyManifest: TypeAlias = TokensManifest | FirstTokensManifest
_NAME = re.compile(r"(train|validation)-(?:(add[0-9]{3,9})-)?([0-9]{5,9})-of-[0-9]{5,9}\.parquet")
_TYPES: Final[Mapping[str, np.dtype[Any]]] = {
    "uint16": np.dtype(np.uint16),
    "uint32": np.dtype(np.uint32),
}


@short_repr
@dataclass(frozen=True, kw_only=True)
class TokenFile:
    """A token file, as the manifest describes it.

    Attributes:
        name: file name, in the directory of the token files.
        split: "train" or "validation".
        generation: generation of its inputs: "base", "add001", ….
        index: number of the file in its split and generation.
        rows: number of rows; a very long document has several.
        documents: number of rows with part 0.
        tokens: number of ids.
        text_bytes: size of the source text.
        size: size of the file in bytes.
        xxh3_128: checksum of the file's bytes, in hexadecimal.
    """

    name: str
    split: Split
    generation: str
    index: int
    rows: int
    documents: int
    tokens: int
    text_bytes: int
    size: int
    xxh3_128: str


@dataclass(frozen=True, kw_only=True)
class TokenChunk:
    """Consecutive rows: row i has `ids[offsets[i]:offsets[i + 1]]`.

    Attributes:
        file: file that contains the rows.
        first_row: number of the first row in the file.
        ids: uint16 or uint32, the ids of all rows, without gaps; read-only.
        offsets: int64, one more than rows; the first is 0.
        columns: the other requested columns of these rows.
    """

    file: TokenFile
    first_row: int
    ids: NDArray[Any]
    offsets: NDArray[np.int64]
    columns: pa.Table

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.offsets) - 1

    def column(self, name: str) -> NDArray[Any]:
        """Return a requested numeric column, such as `part` (int32) or `num_bytes` (int64)."""
        values: NDArray[Any] = self.columns[name].to_numpy()
        return values

    @property
    def starts(self) -> NDArray[np.bool_]:
        """True for rows that begin a document; needs the column `part`."""
        starts: NDArray[np.bool_] = self.column("part") == 0
        return starts

    def runs_of_sources(self) -> Iterator[tuple[str, int, int]]:
        """Yield the runs of rows with one label in the column `source`: (label, first row, end)."""
        column = self.columns["source"].combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = column.chunk(0)
        codes = column.indices.to_numpy()
        labels = column.dictionary.to_pylist()
        bounds = np.flatnonzero(np.diff(codes)) + 1
        edges = [0, *bounds.tolist(), len(codes)]
        for first, end in pairwise(edges):
            if end > first:
                yield labels[codes[first]], first, end


@short_repr
@dataclass(frozen=True, kw_only=True)
class TokenDataset:
    """The output of `beam-bpe encode`: files of token ids in a fixed order.

    The order is that of the generations (base, add001, …) and, within each, of the files. Each
    split is a dataset of its own.

    Attributes:
        output: directory of the build.
        configuration: the canonical one of the build.
        configuration_fingerprint: fingerprint of the configuration.
        manifest: `tokens/manifest.json`; None if it has an older format, or on workers.
        files: all token files in order, the training split first.
        dtype: type of the ids, uint16 or uint32.

    Example::

        dataset = TokenDataset.open("out/quickstart")
        for chunk in dataset.chunks("train"):
            chunk.ids, chunk.offsets
    """

    output: Directory
    configuration: Mapping[str, Any]
    configuration_fingerprint: str
    manifest: TokensManifest | None
    files: tuple[TokenFile, ...]
    dtype: np.dtype[Any]

    @classmethod
    def open(cls, url: str, storage_options: Mapping[str, Any] | None = None) -> Self:
        """Return the dataset in the output of a build.

        Args:
            url: path or fsspec URL of the output, or of its directory `tokens`.
            storage_options: options of its file system.

        Raises:
            InputError: there is no manifest because encoding is unfinished, or it is damaged.
            OutputError: the manifest cannot be read.
        """
        url = url.rstrip("/") or "/"
        output = Directory(url=url, storage_options=storage_options or {})
        data = (output / "tokens").find_bytes(MANIFEST)
        if data is None and url.rpartition("/")[2] == "tokens":
            output = Directory(
                url=url.rpartition("/")[0] or ".", storage_options=storage_options or {}
            )
            data = (output / "tokens").find_bytes(MANIFEST)
        if data is None:
            raise InputError(
                "There are no finished token files.",
                expected="the output of a build, with tokens/manifest.json",
                where=url,
                hint="Check the path, or finish the build: `beam-bpe encode CONFIG`.",
            )
        try:
            manifest = _parse(data)
            return cls(
                output=output,
                configuration=manifest.configuration,
                configuration_fingerprint=manifest.configuration_fingerprint,
                manifest=manifest if isinstance(manifest, TokensManifest) else None,
                files=_files(manifest),
                dtype=_TYPES[manifest.configuration["id_type"]],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                "The manifest of the token files is damaged.",
                expected="a manifest that `beam-bpe encode` writes, format 1 or 2",
                found=f"no {error}" if isinstance(error, KeyError) else str(error),
                where=output.path(f"tokens/{MANIFEST}"),
                hint="Restore it, or encode again: `beam-bpe encode CONFIG --restart`.",
            ) from None

    def require_manifest(self) -> TokensManifest:
        """Return the manifest, which lists the outcome for each input file.

        Raises:
            InputError: it has an older format.
        """
        if self.manifest is None:
            raise InputError(
                "The dataset was made by an older version of this tool.",
                expected=f"format {FORMAT_VERSION}, which lists the outcome for each input file",
                found="format 1",
                where=self.tokens.path(MANIFEST),
                hint="`beam-bpe inspect --row` and `--grep` show its documents, and `beam-bpe "
                "export` exports them; for more, encode again: `beam-bpe encode CONFIG --restart`.",
            )
        return self.manifest

    def without_listing(self) -> Self:
        """Return the dataset without manifest and files: small enough to send to workers."""
        return replace(self, manifest=None, files=())

    @property
    def tokens(self) -> Directory:
        """The directory of the token files."""
        return self.output / "tokens"

    def of_split(self, split: str) -> tuple[TokenFile, ...]:
        """Return the files of a split, in order."""
        return tuple(file for file in self.files if file.split == split)

    def num_rows(self, split: str) -> int:
        """Return the number of rows of a split."""
        return sum(file.rows for file in self.of_split(split))

    def num_documents(self, split: str) -> int:
        """Return the number of documents of a split."""
        return sum(file.documents for file in self.of_split(split))

    def num_tokens(self, split: str) -> int:
        """Return the number of ids of a split."""
        return sum(file.tokens for file in self.of_split(split))

    @cached_property
    def kept_columns(self) -> pa.Schema:
        """The columns of records that token files keep (`keep_columns`), with their types.

        They are those of the last file: sources that keep columns may have been added.

        Raises:
            InputError: a file is missing or damaged, or does not match the manifest.
        """
        files = self.of_split("train")
        return self.kept_columns_of(files[-1]) if files and self._kept_names else pa.schema([])

    def kept_columns_of(self, file: TokenFile) -> pa.Schema:
        """Return the columns of records that a file keeps, with their types."""
        with self._opened(file) as parquet:
            found = parquet.schema_arrow
        return pa.schema([field for field in found if field.name in self._kept_names])

    @cached_property
    def _kept_names(self) -> set[str]:
        sources = self.configuration.get("input", ())
        return {column_name(text) for s in sources for text in s.get("keep_columns", ())}

    @cached_property
    def _added_later(self) -> dict[str, pa.DataType]:
        """Columns that files of early generations may lack, with the type of their nulls."""
        has_ids = any(source.get("id_field") for source in self.configuration.get("input", ()))
        ids = {"id": pa.string()} if has_ids else {}
        return {**ids, **dict.fromkeys(self._kept_names, pa.null())}

    def columns(self, split: str) -> list[str]:
        """Return the names of the columns of a split's files.

        Raises:
            InputError: a file is missing or damaged, or does not match the manifest.
        """
        with self._opened(self.of_split(split)[0]) as parquet:
            names: list[str] = parquet.schema_arrow.names
            return names

    @cached_property
    def fingerprint(self) -> str:
        """The xxh3-128 of the configuration's fingerprint and of each file's name and checksum."""
        return fingerprint(
            {
                "configuration": self.configuration_fingerprint,
                "files": [[file.name, file.xxh3_128] for file in self.files],
            }
        )

    def model(self, tokenizer: str | None = None) -> Model:
        """Return the tokenizer that the dataset was encoded with.

        Args:
            tokenizer: its directory; None: `tokenizer/` in the output of the build.

        Raises:
            ConfigError: the tokenizer is missing, or is not the one that encoded the dataset.
        """
        fingerprint = self.configuration["tokenizer"]
        if tokenizer is None:
            directory = find_encoder(self.output, fingerprint)
        else:
            directory = Directory(url=tokenizer, storage_options=self.output.storage_options)
        return _load_model(directory, fingerprint)

    def find_model(self, tokenizer: str | None = None) -> Model:
        """Return the tokenizer, from where the build found it if the output has none.

        Args:
            tokenizer: its directory, if it is known.

        Raises:
            ConfigError: the tokenizer is missing, or is not the one that encoded the dataset.
        """
        return find_model(self.output, self.configuration["tokenizer"], tokenizer)

    def affix_id(self, key: str, model: Model) -> int | None:
        """Return the id that begins ("prepend") or ends ("append") every document, if any."""
        token = self.configuration["encode"][key]
        return None if token is None else int(model.special_tokens[token])

    def chunks(
        self, split: str, columns: Sequence[str] = (), *, start_row: int = 0
    ) -> Iterator[TokenChunk]:
        """Yield the rows of a split, a row group at a time.

        The checksums of files on a local disk are compared first, because Parquet itself does not
        detect most damage. For remote files this would double the reading.

        Args:
            split: "train" or "validation".
            columns: wanted columns besides the ids.
            start_row: first row of the split to yield.

        Raises:
            InputError: a file is missing or damaged, or does not match the manifest.
        """
        yield from _read_ahead(self._chunks(split, columns, start_row))

    def _chunks(self, split: str, columns: Sequence[str], start_row: int) -> Iterator[TokenChunk]:
        for file in self.of_split(split):
            if start_row >= file.rows:
                start_row -= file.rows
            else:
                if self.tokens.is_local:
                    self.check_bytes(file)
                yield from self.file_chunks(file, columns, start_row=start_row)
                start_row = 0

    def file_chunks(
        self, file: TokenFile, columns: Sequence[str] = (), *, start_row: int = 0
    ) -> Iterator[TokenChunk]:
        """Yield the rows of a file, a row group at a time; see `chunks`."""
        row = tokens = 0
        for table in self._row_groups(file, ["input_ids", "num_tokens", *columns], start_row):
            first = max(0, start_row - row)
            row += table.num_rows
            if first >= table.num_rows:
                continue
            ids, offsets = self._lists(file, table)
            tokens += len(ids)
            yield TokenChunk(
                file=file,
                first_row=row - table.num_rows + first,
                ids=ids[offsets[first] :],
                offsets=offsets[first:] - offsets[first],
                columns=table.select(list(columns)).slice(first),
            )
        if start_row == 0 and tokens != file.tokens:
            raise self._wrong(file, f"{file.tokens:,} ids", f"{tokens:,}")

    def check_bytes(self, file: TokenFile) -> None:
        """Check the checksum of a file.

        Raises:
            InputError: the file is missing, or does not match the manifest.
        """
        hasher = xxhash.xxh3_128()
        block = memoryview(bytearray(REQUEST_BYTES))
        with self._reading(file):
            stored = open_stored(
                self.tokens.path(file.name), self.output.storage_options, size=file.size
            )
        try:
            for begin in range(0, file.size, len(block)):
                part = block[: file.size - begin]
                with self._reading(file):
                    stored.read_into(part, begin)
                hasher.update(part)
        finally:
            stored.close()
        if hasher.hexdigest() != file.xxh3_128:
            raise self._wrong(file, f"xxh3-128 {file.xxh3_128}", hasher.hexdigest())

    def tables(self, split: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield columns without the ids, a row group at a time; only these columns are read."""
        for file in self.of_split(split):
            yield from self._row_groups(file, columns, 0)

    def document_lengths(self, split: str) -> Iterator[NDArray[np.int64]]:
        """Yield the number of ids of each document of a split, over all its parts.

        Only two small columns of the files are read.

        Yields:
            int64 arrays; concatenated, they have a number for each document, in order.
        """
        open_length: NDArray[np.int64] = np.empty(0, np.int64)  # of the document that may continue
        for table in self.tables(split, ["num_tokens", "part"]):
            lengths = table["num_tokens"].to_numpy().astype(np.int64)
            begins = np.flatnonzero(table["part"].to_numpy() == 0)
            before = lengths[: begins[0]] if len(begins) else lengths
            if len(open_length):
                open_length[0] += before.sum()
            elif len(before):
                raise self._wrong(
                    self.of_split(split)[0], "part 0 of its first document", "another"
                )
            if len(begins):
                yield open_length
                whole = np.add.reduceat(lengths, begins)
                yield whole[:-1]
                open_length = whole[-1:].copy()
        yield open_length

    def file_tables(self, file: TokenFile, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield columns of a file without the ids, a row group at a time."""
        yield from self._row_groups(file, columns, 0)

    def _row_groups(
        self, file: TokenFile, columns: Sequence[str], start_row: int
    ) -> Iterator[pa.Table]:
        """Yield the row groups; those before the first wanted row as tables without columns.

        Columns that only files of later generations have are null.
        """
        with self._opened(file) as parquet:
            self._check_schema(file, parquet.schema_arrow, columns)
            there = [name for name in columns if name in parquet.schema_arrow.names]
            rows = 0
            for number in range(parquet.num_row_groups):
                with self._reading(file):
                    rows += parquet.metadata.row_group(number).num_rows
                    wanted = there if rows > start_row else []
                    table = parquet.read_row_group(number, columns=wanted, use_threads=False)
                for name in columns if wanted else ():
                    if name not in there:
                        nulls = pa.nulls(table.num_rows, self._added_later[name])
                        table = table.append_column(name, nulls)
                yield table
            if rows != file.rows:
                raise self._wrong(file, f"{file.rows:,} rows", f"{rows:,}")

    @contextmanager
    def _opened(self, file: TokenFile) -> Iterator[pq.ParquetFile]:
        with ExitStack() as stack:
            with self._reading(file):
                opened = open_parquet(self.tokens, file.name, file.size)
                parquet = stack.enter_context(opened)
            yield parquet

    def _check_schema(self, file: TokenFile, schema: pa.Schema, columns: Sequence[str]) -> None:
        missing = [name for name in columns if name not in {*schema.names, *self._added_later}]
        if missing:
            raise self._wrong(file, f"the column {missing[0]}", f"{', '.join(schema.names)}")
        if "input_ids" in columns:
            kind = schema.field("input_ids").type
            ids = pa.from_numpy_dtype(self.dtype)
            if not pa.types.is_list(kind) or kind.value_type != ids:
                raise self._wrong(file, f"input_ids: list of {ids}", str(kind))

    def _lists(self, file: TokenFile, table: pa.Table) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the ids of all rows and the offset of each row."""
        lists = table["input_ids"].combine_chunks()
        if isinstance(lists, pa.ChunkedArray):
            lists = lists.chunk(0)
        ids = lists.flatten()
        offsets = lists.offsets.to_numpy().astype(np.int64)
        offsets -= offsets[0]
        if lists.null_count or ids.null_count:
            raise self._wrong(file, "ids", "null")
        if not np.array_equal(np.diff(offsets), table["num_tokens"].to_numpy()):
            raise self._wrong(file, "num_tokens: the lengths of input_ids", "others")
        return ids.to_numpy(), offsets

    @contextmanager
    def _reading(self, file: TokenFile) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise self._wrong(file, f"{file.size:,} bytes of Parquet", str(error)) from error

    def _wrong(self, file: TokenFile, expected: str, found: str) -> InputError:
        return InputError(
            "A token file does not match the manifest.",
            expected=expected,
            found=found,
            where=self.tokens.path(file.name),
            hint="Restore it, or encode again: `beam-bpe encode CONFIG --restart`.",
        )


def find_model(output: Directory, fingerprint: str, tokenizer: str | None) -> Model:
    """Return the tokenizer of token files: the given one, or the one that the build used.

    Args:
        output: directory of the build.
        fingerprint: fingerprint of the tokenizer.
        tokenizer: its directory, or None for `tokenizer/` in the output, else the build's location
            of it.

    Raises:
        ConfigError: the tokenizer is missing, or is not the one that encoded the dataset.
    """
    directory = find_encoder(output, fingerprint)
    if tokenizer is None and not directory.sizes():
        record = RunRecord.load(output / "tokens")
        tokenizer = None if record is None else record.tokenizer
    if tokenizer is not None:
        directory = Directory(url=tokenizer, storage_options=output.storage_options)
    return _load_model(directory, fingerprint)


def find_encoder(output: Directory, fingerprint: str) -> Directory:
    """Return the directory of a tokenizer in an output: the largest, or the size of a fingerprint.

    Args:
        output: directory of the build.
        fingerprint: fingerprint of the tokenizer that encoded.
    """
    directory = output / "tokenizer"
    with suppress(ValidationError):
        manifest = TokenizerManifest.model_validate_json(directory.find_bytes(MANIFEST) or b"")
        for place, trained in manifest.of_all_sizes():
            if place and trained.fingerprint == fingerprint != manifest.fingerprint:
                return directory / place
    return directory


def _load_model(directory: Directory, fingerprint: str) -> Model:
    try:
        model = load_model(directory)
    except (FileNotFoundError, NotADirectoryError):
        found = "none"
    else:
        if model.fingerprint == fingerprint:
            return model
        found = f"another one, with fingerprint {model.fingerprint}"
    raise ConfigError(
        "The tokenizer of the token files was not found.",
        expected=f"the one with fingerprint {fingerprint}",
        found=found,
        where=directory.url,
        hint="Give the directory of the tokenizer that the build encoded with.",
    )


def _read_ahead(chunks: Iterator[TokenChunk]) -> Iterator[TokenChunk]:
    """Yield the same chunks; a thread reads the next one while one is used."""
    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(next, chunks, None)
        while (chunk := following.result()) is not None:
            following = thread.submit(next, chunks, None)
            yield chunk


def _parse(data: bytes) -> _AnyManifest:
    try:
        return TokensManifest.model_validate_json(data)
    except ValidationError as error:
        with suppress(ValidationError):
            return FirstTokensManifest.model_validate_json(data)
        raise ValueError(first_problem(error)) from None


def _files(manifest: _AnyManifest) -> tuple[TokenFile, ...]:
    """Return the token files in the order of the dataset."""
    files = [_file("train", entry) for entry in manifest.files.train]
    files += [_file("validation", entry) for entry in manifest.files.validation]
    names = [file.name for file in files]
    if len(set(names)) < len(names):
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)} twice")
    files.sort(key=lambda file: (SPLITS.index(file.split), _order(file.generation), file.index))
    tokens = sum(file.tokens for file in files)
    if tokens != manifest.totals.tokens:
        raise ValueError(f"{tokens:,} ids in the files, {manifest.totals.tokens:,} in all")
    return tuple(files)


def _file(split: Split, entry: TokenFileEntry) -> TokenFile:
    parts = _NAME.fullmatch(entry.name)
    if parts is None or parts[1] != split:
        raise ValueError(f"the file {entry.name!r} in {split}")
    return TokenFile(
        name=entry.name,
        split=split,
        generation=parts[2] or BASE,
        index=int(parts[3]),
        rows=entry.rows,
        documents=entry.documents,
        tokens=entry.tokens,
        text_bytes=entry.text_bytes,
        size=entry.bytes,
        xxh3_128=entry.xxh3_128,
    )


def _order(generation: str) -> int:
    return 0 if generation == BASE else int(generation.removeprefix("add"))
