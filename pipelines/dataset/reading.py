"""The token files of a build as one dataset, read in order and in bounded memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
from numpy.typing import NDArray

from pipelines.config.fingerprints import fingerprint
from pipelines.errors import ConfigError, InputError
from pipelines.manifest.models import FORMAT_VERSION
from pipelines.manifest.records import MANIFEST, read_manifest, read_run
from pipelines.storage.directory import Directory
from pipelines.storage.parquet import open_parquet
from pipelines.storage.remote_files import REQUEST_BYTES, open_stored
from pipelines.tokenizers.files import Model, load_model

SPLITS: Final = ("train", "validation")
# Of the manifest: what `beam-bpe encode` writes, and wrote before.
_FORMATS: Final = (1, 2)
_BASE: Final = "base"
_NAME = re.compile(r"(train|validation)-(?:(add[0-9]{3,9})-)?([0-9]{5,9})-of-[0-9]{5,9}\.parquet")
_TYPES: Final[Mapping[str, np.dtype[Any]]] = {
    "uint16": np.dtype(np.uint16),
    "uint32": np.dtype(np.uint32),
}


@dataclass(frozen=True, kw_only=True)
class TokenFile:
    """A token file, as the manifest describes it.

    Attributes:
        name: in the directory of the token files.
        split: "train" or "validation".
        generation: of the inputs that it is made of: "base", "add001", ….
        index: of the file in its split and generation.
        rows: a document is one row, or several if it is very long.
        documents: number of rows with part 0.
        tokens: number of ids.
        text_bytes: of the source text.
        size: of the file, in bytes.
        xxh3_128: of the file's bytes, in hexadecimal.
    """

    name: str
    split: str
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
    """Rows that follow each other: row i has `ids[offsets[i]:offsets[i + 1]]`.

    Attributes:
        file: where they are from.
        first_row: number, in the file, of the first of them.
        ids: uint16 or uint32, of all rows, without gaps; not to be written to.
        offsets: int64, one more than rows; the first is 0.
        columns: other columns of these rows that were asked for.
    """

    file: TokenFile
    first_row: int
    ids: NDArray[Any]
    offsets: NDArray[np.int64]
    columns: pa.Table

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.offsets) - 1

    def column(self, name: str) -> NDArray[Any]:
        """A column of numbers that was asked for, such as `part` (int32) or `num_bytes` (int64)."""
        values: NDArray[Any] = self.columns[name].to_numpy()
        return values

    @property
    def starts(self) -> NDArray[np.bool_]:
        """Whether a document begins with the row; the column `part` was asked for."""
        starts: NDArray[np.bool_] = self.column("part") == 0
        return starts

    def runs_of_sources(self) -> Iterator[tuple[str, int, int]]:
        """The rows by their label in the column `source`, as (label, first row, end)."""
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


@dataclass(frozen=True, kw_only=True)
class TokenDataset:
    """What `beam-bpe encode` wrote: files of token ids in a fixed order.

    The order is that of generations (base, add001, …), in each that of the files; splits are
    datasets of their own.

    Attributes:
        output: the directory of the build.
        manifest: the contents of tokens/manifest.json.
        files: all of them, in order, the training split first.
        dtype: of the ids, uint16 or uint32.

    Example::

        dataset = TokenDataset.open("out/quickstart")
        for chunk in dataset.chunks("train"):
            chunk.ids, chunk.offsets
    """

    output: Directory
    manifest: Mapping[str, Any]
    files: tuple[TokenFile, ...]
    dtype: np.dtype[Any]

    @classmethod
    def open(cls, url: str, storage_options: Mapping[str, Any] | None = None) -> Self:
        """The dataset in the output of a build.

        Args:
            url: the output, a path or fsspec URL; its directory `tokens` is meant too.
            storage_options: of its file system.

        Raises:
            InputError: there is no manifest, so encoding is not finished, or it is damaged.
            OutputError: it can't be read.
        """
        url = url.rstrip("/") or "/"
        output = Directory(url=url, storage_options=storage_options or {})
        manifest = read_manifest(output / "tokens")
        if manifest is None and url.rpartition("/")[2] == "tokens":
            output = Directory(
                url=url.rpartition("/")[0] or ".", storage_options=storage_options or {}
            )
            manifest = read_manifest(output / "tokens")
        if manifest is None:
            raise InputError(
                "There are no finished token files.",
                expected="the output of a build, with tokens/manifest.json",
                where=url,
                hint="Check the path, or finish it: `beam-bpe encode CONFIG`.",
            )
        try:
            return cls(
                output=output,
                manifest=manifest,
                files=_files(manifest),
                dtype=_TYPES[manifest["configuration"]["id_type"]],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                "The manifest of the token files is damaged.",
                expected=f"the manifest that `beam-bpe encode` writes, format "
                f"{' or '.join(map(str, _FORMATS))}",
                found=f"no {error}" if isinstance(error, KeyError) else str(error),
                where=output.path(f"tokens/{MANIFEST}"),
                hint="Restore it, or encode anew: `beam-bpe encode CONFIG --restart`.",
            ) from None

    def require_accounts(self) -> None:
        """Make sure that the manifest says what became of each input file.

        Raises:
            InputError: it has an older format, which does not.
        """
        found = self.manifest["format"]
        if found != FORMAT_VERSION:
            raise InputError(
                "The dataset was made by an older version of this tool.",
                expected=f"format {FORMAT_VERSION}, which says what became of each input file",
                found=f"format {found}",
                where=self.tokens.path(MANIFEST),
                hint="Its documents can be shown with `beam-bpe inspect --row` and `--grep`, and "
                "exported; for more, encode anew: `beam-bpe encode CONFIG --restart`.",
            )

    @property
    def tokens(self) -> Directory:
        """The directory of the files."""
        return self.output / "tokens"

    def of_split(self, split: str) -> tuple[TokenFile, ...]:
        """The files of a split, in order."""
        return tuple(file for file in self.files if file.split == split)

    def num_rows(self, split: str) -> int:
        """Rows of a split."""
        return sum(file.rows for file in self.of_split(split))

    def num_documents(self, split: str) -> int:
        """Documents of a split."""
        return sum(file.documents for file in self.of_split(split))

    def num_tokens(self, split: str) -> int:
        """Ids of a split."""
        return sum(file.tokens for file in self.of_split(split))

    def columns(self, split: str) -> list[str]:
        """The columns of a split's files.

        Raises:
            InputError: a file is missing, damaged, or not what the manifest says.
        """
        with self._opened(self.of_split(split)[0]) as parquet:
            names: list[str] = parquet.schema_arrow.names
            return names

    @cached_property
    def fingerprint(self) -> str:
        """The xxh3-128 of the configuration's fingerprint and every file's name and checksum."""
        return fingerprint(
            {
                "configuration": self.manifest["configuration_fingerprint"],
                "files": [[file.name, file.xxh3_128] for file in self.files],
            }
        )

    def model(self, tokenizer: str | None = None) -> Model:
        """The tokenizer that the dataset was encoded with.

        Args:
            tokenizer: its directory; None: the one in the output of the build.

        Raises:
            ConfigError: it is not there, or is another one.
        """
        directory = self.output / "tokenizer"
        if tokenizer is not None:
            directory = Directory(url=tokenizer, storage_options=self.output.storage_options)
        wanted = self.manifest["configuration"]["tokenizer"]
        try:
            model = load_model(directory)
        except (FileNotFoundError, NotADirectoryError):
            found = "none"
        else:
            if model.fingerprint == wanted:
                return model
            found = f"another one, with fingerprint {model.fingerprint}"
        raise ConfigError(
            "The tokenizer of the token files is not there.",
            expected=f"the one with fingerprint {wanted}",
            found=found,
            where=directory.url,
            hint="Name the directory of the tokenizer that the build encoded with.",
        )

    def affix_id(self, key: str, model: Model) -> int | None:
        """The id that every document begins ("prepend") or ends ("append") with; None: no id."""
        token = self.manifest["configuration"]["encode"][key]
        return None if token is None else int(model.special_tokens[token])

    def chunks(
        self, split: str, columns: Sequence[str] = (), *, start_row: int = 0
    ) -> Iterator[TokenChunk]:
        """The rows of a split, a row group at a time.

        Of files on a local disk the checksum is compared first: Parquet itself does not tell most
        damage. Elsewhere that would be twice the reading.

        Args:
            split: "train" or "validation".
            columns: others than the ids that are wanted.
            start_row: of the split; earlier ones are not read, or not given.

        Raises:
            InputError: a file is missing, damaged, or not what the manifest says.
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
        """The rows of a file, a row group at a time; see `chunks`."""
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
        """Reads a file and compares its checksum.

        Raises:
            InputError: it is missing, or not what the manifest says.
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
        """Columns without the ids, a row group at a time: little is read for them."""
        for file in self.of_split(split):
            yield from self._row_groups(file, columns, 0)

    def document_lengths(self, split: str) -> Iterator[NDArray[np.int64]]:
        """The number of ids of each document of a split, those of all its parts together.

        Of the files only two small columns are read.

        Returns:
            int64 arrays that joined have a number for each document, in order.
        """
        open_length: NDArray[np.int64] = np.empty(0, np.int64)  # of the document that may go on
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
        """Columns of a file without the ids, a row group at a time."""
        yield from self._row_groups(file, columns, 0)

    def _row_groups(
        self, file: TokenFile, columns: Sequence[str], start_row: int
    ) -> Iterator[pa.Table]:
        """The row groups; of those before the one with the first row, tables without columns."""
        with self._opened(file) as parquet:
            self._check_schema(file, parquet.schema_arrow, columns)
            rows = 0
            for number in range(parquet.num_row_groups):
                with self._reading(file):
                    rows += parquet.metadata.row_group(number).num_rows
                    wanted = columns if rows > start_row else []
                    table = parquet.read_row_group(number, columns=wanted, use_threads=False)
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
        missing = [name for name in columns if name not in schema.names]
        if missing:
            raise self._wrong(file, f"the column {missing[0]}", f"{', '.join(schema.names)}")
        if "input_ids" in columns:
            kind = schema.field("input_ids").type
            ids = pa.from_numpy_dtype(self.dtype)
            if not pa.types.is_list(kind) or kind.value_type != ids:
                raise self._wrong(file, f"input_ids: list of {ids}", str(kind))

    def _lists(self, file: TokenFile, table: pa.Table) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The ids of all rows, and where each row's begin."""
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
            "A token file is not what the manifest says.",
            expected=expected,
            found=found,
            where=self.tokens.path(file.name),
            hint="Restore it, or encode anew: `beam-bpe encode CONFIG --restart`.",
        )


def model_of(output: Directory, manifest: Mapping[str, Any], tokenizer: str | None) -> Model:
    """The tokenizer that the token files were encoded with: as given, or where the build had it.

    Raises:
        ConfigError: it is not there, or is another one.
    """
    if tokenizer is None and not (output / "tokenizer").sizes():
        record = read_run(output / "tokens")
        noted = record.get("tokenizer")
        tokenizer = noted if isinstance(noted, str) else None
    dataset = TokenDataset(output=output, manifest=manifest, files=(), dtype=np.dtype(np.uint32))
    return dataset.model(tokenizer)


def _read_ahead(chunks: Iterator[TokenChunk]) -> Iterator[TokenChunk]:
    """The same chunks; while one is used, a thread reads the next."""
    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(next, chunks, None)
        while (chunk := following.result()) is not None:
            following = thread.submit(next, chunks, None)
            yield chunk


def _files(manifest: Mapping[str, Any]) -> tuple[TokenFile, ...]:
    if manifest["format"] not in _FORMATS:
        raise ValueError(f"format {manifest['format']!r}")
    files = [_file(split, entry) for split in SPLITS for entry in manifest["files"].get(split, ())]
    names = [file.name for file in files]
    if len(set(names)) < len(names):
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)} twice")
    files.sort(key=lambda file: (SPLITS.index(file.split), _order(file.generation), file.index))
    tokens = sum(file.tokens for file in files)
    if tokens != manifest["totals"]["tokens"]:
        raise ValueError(f"{tokens:,} ids in the files, {manifest['totals']['tokens']} in all")
    return tuple(files)


def _file(split: str, entry: Mapping[str, Any]) -> TokenFile:
    name = entry["name"]
    parts = _NAME.fullmatch(name)  # so it is no path to somewhere else
    if parts is None or parts[1] != split:
        raise ValueError(f"the file {name!r} in {split}")
    numbers = [entry[key] for key in ("rows", "documents", "tokens", "text_bytes", "bytes")]
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError(f"numbers {numbers} of {name}")
    rows, documents, tokens, text_bytes, size = numbers
    return TokenFile(
        name=name,
        split=split,
        generation=parts[2] or _BASE,
        index=int(parts[3]),
        rows=rows,
        documents=documents,
        tokens=tokens,
        text_bytes=text_bytes,
        size=size,
        xxh3_128=str(entry["xxh3_128"]),
    )


def _order(generation: str) -> int:
    return 0 if generation == _BASE else int(generation.removeprefix("add"))
