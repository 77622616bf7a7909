"""PretokenCounts: distinct pre-tokens with their numbers of occurrences."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash
from numpy.typing import NDArray

from bpe_core._native import PretokenTable
from bpe_core.errors import FormatError, TrainingError
from bpe_core.normalization import checked_normalizer
from bpe_core.patterns import resolve_pattern

__all__ = ["PretokenCounts"]

_SCHEMA = pa.schema(
    [
        pa.field("pretoken", pa.large_binary(), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
    ]
)
FORMAT_VERSION = "1"
_DIGEST = "xxh3_128"  # in the metadata of files that `save` wrote; shards have it in the manifest
_HOW_COUNTED = ("pattern", "special_tokens", "unicode_version", "normalizer", "normalize_quotes")


class PretokenCounts:
    """Distinct pre-tokens with their counts, as Arrow columns.

    Attributes:
        metadata: How the text was counted (pattern, special_tokens as JSON, …).

    Example:
        >>> counts = PretokenCounts.from_mapping({b"low": 5, b" lower": 2})
        >>> len(counts), counts.total()
        (2, 7)
        >>> dict((counts + counts).items())
        {b' lower': 4, b'low': 10}
    """

    def __init__(self, table: pa.Table, metadata: Mapping[str, str] | None = None) -> None:
        self._table = table
        self.metadata = dict(metadata or {})

    @classmethod
    def from_mapping(
        cls, mapping: Mapping[bytes, int], metadata: Mapping[str, str] | None = None
    ) -> PretokenCounts:
        """Create counts from a mapping of bytes to counts above 0.

        Raises:
            TrainingError: a pre-token is not bytes or is empty, or a count is not a positive
                64-bit integer.
        """
        if not isinstance(mapping, Mapping):
            raise TrainingError(
                "counts: expected a mapping of pre-tokens to counts, found "
                f"{type(mapping).__name__}"
            )
        for pretoken, count in mapping.items():
            is_integer = isinstance(count, (int, np.integer)) and not isinstance(count, bool)
            if not isinstance(pretoken, bytes) or not is_integer:
                raise TrainingError(
                    "counts: expected pre-tokens as bytes with their counts as int, found "
                    f"{pretoken!r}: {count!r}"
                )
            if not pretoken or not 0 < count < 2**63:
                raise TrainingError(
                    "counts: expected pre-tokens of at least one byte with counts of 1 … 2^63-1, "
                    f"found {pretoken!r}: {count}"
                )
        table = pa.table(
            [
                pa.array(mapping.keys(), pa.large_binary()),
                pa.array(mapping.values(), pa.int64()),
            ],
            schema=_SCHEMA,
        )
        return cls(_sort(table), metadata)

    @classmethod
    def from_arrow(cls, table: pa.Table) -> PretokenCounts:
        """Create counts from a table with the columns pretoken (binary) and count (int, above 0).

        The counts of equal pre-tokens are added up.

        Raises:
            FormatError: a column is missing, has another type, or has nulls or counts below 1.
        """
        if not isinstance(table, pa.Table):
            raise FormatError(f"the table: expected a pyarrow.Table, found {type(table).__name__}")
        table, metadata = _check_table(table, "the table")
        distinct = PretokenTable(None, [])
        keys, offsets = _split_column(table["pretoken"])
        distinct.add_counts(keys, offsets, table["count"].to_numpy())
        return cls(columns_to_arrow(*distinct.columns()), metadata)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PretokenCounts:
        """Load counts from a file that `save` wrote, or from the `counts/` directory of a build.

        Raises:
            FormatError: the directory lacks shards, or a file is damaged or is not such a file.
            OSError: a file cannot be read.
        """
        path = Path(path)
        files = _find_shards(path) if path.is_dir() else [path]
        tables = []
        metadata: dict[str, str] = {}
        for number, file in enumerate(files):
            table, metadata = _read_file(file)
            shard = metadata.pop("shard", None)
            if path.is_dir() and shard not in (None, f"{number} of {len(files)}"):
                raise FormatError(
                    f"{file}: expected shard {number} of {len(files)}, found {shard}; "
                    "restore the file"
                )
            tables.append(table)
        return cls(pa.concat_tables(tables), metadata)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one Parquet file, sorted by pre-token; equal counts give equal bytes.

        Its metadata contain a checksum, by which `load` recognizes damage.
        """
        table = self.to_arrow()
        digest = _digest(table, self.metadata)
        table = table.replace_schema_metadata(
            {**(table.schema.metadata or {}), f"bpe.{_DIGEST}": digest}
        )
        temporary = f"{os.fspath(path)}.tmp"
        pq.write_table(table, temporary, compression="zstd", write_statistics=False)
        Path(temporary).replace(path)

    def to_arrow(self) -> pa.Table:
        """Return a table of pretoken (large_binary) and count (int64), sorted by pretoken."""
        metadata = {"bpe.format": FORMAT_VERSION, **_add_prefix(self.metadata)}
        return _sort(self._table).replace_schema_metadata(metadata)

    def columns(self) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
        """Return (bytes, offsets, counts): pre-token i is bytes[offsets[i]:offsets[i + 1]].

        The order is that of the table or text from which the counts were made.
        """
        keys, offsets = _split_column(self._table["pretoken"])
        return keys, offsets, self._table["count"].to_numpy()

    def items(self) -> Iterator[tuple[bytes, int]]:
        """Yield (pre-token, count), sorted by pre-token."""
        for batch in _sort(self._table).to_batches():
            yield from zip(batch["pretoken"].to_pylist(), batch["count"].to_pylist(), strict=True)

    def total(self) -> int:
        """Return the number of pre-tokens that were counted, repetitions included."""
        # In two halves, as Python integers: the sum of many int64 may need more than 64 bits.
        counts = self._table["count"].to_numpy()
        return int((counts >> 32).sum()) * 2**32 + int((counts & 0xFFFFFFFF).sum())

    def prune(self, min_count: int) -> PretokenCounts:
        """Return the counts without pre-tokens that occur fewer than `min_count` times."""
        kept = self._table.filter(pc.greater_equal(self._table["count"], min_count))
        return PretokenCounts(kept, self.metadata)

    def __len__(self) -> int:
        """Return the number of distinct pre-tokens."""
        return int(self._table.num_rows)

    def __add__(self, other: PretokenCounts) -> PretokenCounts:
        """Add up the counts of both.

        The metadata of the sum describes how both were counted, but not from which text.

        Raises:
            TrainingError: they were counted with different patterns or special tokens.
            CountOverflowError: a sum does not fit into 64 bits.
        """
        if not isinstance(other, PretokenCounts):
            return NotImplemented
        metadata = {}
        for key in _HOW_COUNTED:
            mine, theirs = self.metadata.get(key), other.metadata.get(key)
            if mine is not None and theirs is not None and not _agree(key, mine, theirs):
                raise TrainingError(
                    f"counts: expected the same {key} on both sides, found {mine} and {theirs}; "
                    "count one of them again"
                )
            if (value := theirs if mine is None else mine) is not None:
                metadata[key] = value
        both = PretokenTable(None, [])
        for counts in (self, other):
            both.add_counts(*counts.columns())
        return PretokenCounts(columns_to_arrow(*both.columns()), metadata)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PretokenCounts):
            return NotImplemented
        return bool(_sort(self._table).equals(_sort(other._table)))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"PretokenCounts({len(self)} distinct, {self.total()} in all)"


def _agree(key: str, mine: str, theirs: str) -> bool:
    if key != "pattern" or mine == theirs:
        return mine == theirs
    # The regular expressions, not their names: llama3 and cl100k are one pattern.
    return resolve_pattern(mine).regex == resolve_pattern(theirs).regex


def normalization_metadata(normalizer: str | None, normalize_quotes: bool) -> dict[str, str]:
    """Return the metadata that describe how counted text was normalized."""
    return {
        "normalizer": checked_normalizer(normalizer) or "null",
        "normalize_quotes": json.dumps(normalize_quotes),
    }


def _find_shards(directory: Path) -> list[Path]:
    files = sorted(directory.glob("shard-*-of-*.parquet"))
    number = files[0].stem.rsplit("-", 1)[1] if files else ""
    expected = int(number) if number.isascii() and number.isdigit() else 0
    wanted = (f"shard-{i:05d}-of-{expected:05d}.parquet" for i in range(expected))
    found = {file.name for file in files}
    missing = next((name for name in wanted if name not in found), None)
    if missing is not None or len(files) != expected or not files:
        raise FormatError(
            f"{directory}: expected all shards of a finished count "
            f"(shard-00000-of-NNNNN.parquet …), found {len(files)} of {expected or 'some'}"
            f"{f', without {missing}' if missing else ''}; finish counting with `beam-bpe count`"
        )
    return files


def _read_file(file: Path) -> tuple[pa.Table, dict[str, str]]:
    try:
        # From an open file: given a path, pyarrow also makes columns of folders named key=value.
        with pa.OSFile(str(file)) as source:
            found = pq.read_table(source, columns=["pretoken", "count"])
        table, metadata = _check_table(found, str(file))
    except FormatError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        # pyarrow also raises OSError, without an errno, if the contents are damaged.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise FormatError(
            f"{file}: expected Parquet with the columns pretoken and count: {error}; restore the "
            "file, or count again"
        ) from None
    digest = metadata.pop(_DIGEST, None)
    if digest is not None and (computed := _digest(table, metadata)) != digest:
        raise FormatError(
            f"{file}: expected contents of the checksum {digest[:32]}, found {computed}; the file "
            "is damaged: restore it, or count again"
        )
    pretokens = table["pretoken"].combine_chunks()
    ascending = pc.less(pretokens[:-1], pretokens[1:]) if len(pretokens) > 1 else pa.array([True])
    if not pc.all(ascending).as_py():
        row = pc.index(ascending, False).as_py() + 1
        raise FormatError(
            f"{file}, row {row}: expected each pre-token once, in ascending order, found "
            f"{pretokens[row].as_py()[:40]!r} after {pretokens[row - 1].as_py()[:40]!r}; restore "
            "the file, or read it with pyarrow and give the table to from_arrow"
        )
    return table, metadata


def _digest(table: pa.Table, metadata: Mapping[str, str]) -> str:
    """Return the XXH3-128, in hex, of counts and of how they were counted."""
    keys, offsets = _split_column(table["pretoken"])
    digest = xxhash.xxh3_128(json.dumps(sorted(metadata.items())).encode())
    for column in (np.diff(offsets), table["count"].to_numpy()):
        digest.update(np.ascontiguousarray(column, "<i8").data)
    digest.update(keys[offsets[0] : offsets[-1]].data)
    return digest.hexdigest()


def _check_table(table: pa.Table, where: str) -> tuple[pa.Table, dict[str, str]]:
    names = set(table.column_names)
    if not {"pretoken", "count"} <= names:
        raise FormatError(f"{where}: expected the columns pretoken and count, found {names}")
    metadata = _parse_metadata(table.schema.metadata or {}, where)
    try:
        table = table.select(["pretoken", "count"]).cast(_SCHEMA)
    except (pa.ArrowException, ValueError, KeyError) as error:
        raise FormatError(
            f"{where}: expected pretoken as binary, count as int64: {error}"
        ) from None
    if table.num_rows and (
        pc.min(table["count"]).as_py() < 1
        or pc.min(pc.binary_length(table["pretoken"])).as_py() < 1
    ):
        raise FormatError(f"{where}: expected pre-tokens of at least one byte with counts above 0")
    return table, metadata


def _parse_metadata(found: Mapping[bytes, bytes], where: str) -> dict[str, str]:
    try:
        metadata = {
            key.decode().removeprefix("bpe."): value.decode()
            for key, value in found.items()
            if key.startswith(b"bpe.")
        }
        specials = json.loads(metadata.get("special_tokens", "[]"))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{where}, metadata: expected UTF-8 and JSON: {error}") from None
    if not isinstance(specials, list) or not all(isinstance(text, str) for text in specials):
        raise FormatError(
            f"{where}, metadata: expected special_tokens as a list of texts, found "
            f"{metadata['special_tokens'][:100]}"
        )
    version = metadata.pop("format", FORMAT_VERSION)
    if version != FORMAT_VERSION:
        raise FormatError(
            f"{where}, metadata: expected format {FORMAT_VERSION}, found {version[:100]}; read it "
            "with the version of this package that wrote it"
        )
    return metadata


def _split_column(column: pa.ChunkedArray) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    _, offsets_buffer, data = array.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64)[array.offset : array.offset + len(array) + 1]
    if len(offsets) == 0:
        offsets = np.zeros(1, np.int64)
    keys = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return keys, offsets


def columns_to_arrow(
    keys: NDArray[np.uint8], offsets: NDArray[np.int64], counts: NDArray[np.int64]
) -> pa.Table:
    """Return the columns as a table, without copying them."""
    pretokens = pa.Array.from_buffers(
        pa.large_binary(), len(counts), [None, pa.py_buffer(offsets), pa.py_buffer(keys)]
    )
    return pa.table([pretokens, pa.array(counts)], schema=_SCHEMA)


def _sort(table: pa.Table) -> pa.Table:
    return table.take(pc.sort_indices(table, [("pretoken", "ascending")])).combine_chunks()


def _add_prefix(metadata: Mapping[str, str]) -> dict[str, str]:
    return {f"bpe.{key}": value for key, value in metadata.items()}
