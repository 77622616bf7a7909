"""Tables of counts, in memory and in the Parquet files that docs/counts.md describes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash
from numpy.typing import NDArray

from bpe_core.count_groups import (
    Group,
    GroupColumns,
    entries_of_arrow,
    entries_of_file,
    entries_to_arrow,
    entries_to_file,
    find_problem,
    groups_of_text,
    groups_to_text,
    groups_type,
    one_array,
    sum_entries,
)
from bpe_core.errors import FormatError
from bpe_core.mixtures import MOST_SCALE_BITS

SCHEMA = pa.schema(
    [
        pa.field("pretoken", pa.large_binary(), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
    ]
)
FORMAT_VERSION = "1"
GROUPED_FORMAT_VERSION = "2"  # with documents or groups
_ROWS_AT_ONCE = 1 << 17
_UNITS = frozenset(str(1 << bits) for bits in range(MOST_SCALE_BITS + 1))
_DIGEST = "xxh3_128"  # in the metadata of files that `save` wrote; shards have it in the manifest


def find_shards(directory: Path) -> list[Path]:
    """Return the files of all shards in a directory, in order.

    Raises:
        FormatError: some are missing.
    """
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


def read_file(file: Path) -> tuple[pa.Table, dict[str, str], tuple[Group, ...]]:
    """Return the table of a file in the form of memory, its metadata and its groups.

    Raises:
        FormatError: it is damaged, or does not contain counts.
        OSError: it cannot be read.
    """
    try:
        with pa.OSFile(str(file)) as source:
            found = pq.ParquetFile(source).read(["pretoken", "count", "documents", "groups"])
        table, metadata, groups = check_table(found, str(file))
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
    if digest is not None and (computed := _digest(table, metadata, groups)) != digest:
        raise FormatError(
            f"{file}: expected contents of the checksum {digest[:32]}, found {computed}; the file "
            "is damaged: restore it, or count again"
        )
    check_ascending(table, str(file))
    return table, metadata, groups


def save_table(
    path: str | os.PathLike[str],
    table: pa.Table,
    metadata: Mapping[str, str],
    groups: Sequence[Group],
) -> None:
    """Write one file, sorted by pre-token, with a checksum by which `read_file` finds damage."""
    digest = _digest(sort_table(table), metadata, groups)
    found = table_to_file(table, metadata, groups)
    found = found.replace_schema_metadata(
        {**(found.schema.metadata or {}), f"bpe.{_DIGEST}": digest}
    )
    temporary = f"{os.fspath(path)}.tmp"
    pq.write_table(found, temporary, compression="zstd", write_statistics=False)
    Path(temporary).replace(path)


def table_to_file(
    table: pa.Table, metadata: Mapping[str, str], groups: Sequence[Group]
) -> pa.Table:
    """Return a table in memory as that of a file, sorted by pre-token."""
    table = sort_table(table)
    described = {"bpe.format": FORMAT_VERSION, **_add_prefix(metadata)}
    if len(table.column_names) > len(SCHEMA):
        described["bpe.format"] = GROUPED_FORMAT_VERSION
    if groups:
        described["bpe.groups"] = groups_to_text(groups)
        by_value = groups[0].value is not None
        documents = "documents" in table.column_names
        schema = file_schema(grouped=True, by_value=by_value, documents=documents)
        field = schema.field("groups")
        parts = (table[at : at + _ROWS_AT_ONCE] for at in range(0, len(table), _ROWS_AT_ONCE))
        column = [
            entries_to_file(entries_of_arrow(part["groups"]), groups, field.type) for part in parts
        ]
        table = table.drop_columns("groups").append_column(field, pa.chunked_array(column))
    return table.replace_schema_metadata(described)


def check_ascending(table: pa.Table, where: str) -> None:
    """Raise FormatError unless each pre-token is there once, in ascending order."""
    pretokens = one_array(table["pretoken"])
    ascending = pc.less(pretokens[:-1], pretokens[1:]) if len(pretokens) > 1 else pa.array([True])
    if not pc.all(ascending).as_py():
        row = pc.index(ascending, False).as_py() + 1
        raise FormatError(
            f"{where}, row {row}: expected each pre-token once, in ascending order, found "
            f"{pretokens[row].as_py()[:40]!r} after {pretokens[row - 1].as_py()[:40]!r}; restore "
            "the file, or read it with pyarrow and give the table to from_arrow"
        )


def _digest(table: pa.Table, metadata: Mapping[str, str], groups: Sequence[Group]) -> str:
    """Return the XXH3-128, in hex, of counts and of how they were counted."""
    keys, offsets = split_column(table["pretoken"])
    digest = xxhash.xxh3_128(json.dumps(sorted(metadata.items())).encode())
    columns = [np.diff(offsets), table["count"].to_numpy()]
    if "documents" in table.column_names:
        columns.append(table["documents"].to_numpy())
    if groups:
        digest.update(groups_to_text(groups).encode())
        entries = entries_of_arrow(table["groups"])
        columns += [entries.offsets, entries.groups, entries.counts]
        columns += [] if entries.documents is None else [entries.documents]
    for column in columns:
        digest.update(np.ascontiguousarray(column, "<i8").data)
    digest.update(keys[offsets[0] : offsets[-1]].data)
    return digest.hexdigest()


def check_table(table: pa.Table, where: str) -> tuple[pa.Table, dict[str, str], tuple[Group, ...]]:
    """Check a table in the form of a file. Return it in the form of memory, with its groups."""
    names = set(table.column_names)
    if not {"pretoken", "count"} <= names:
        raise FormatError(f"{where}: expected the columns pretoken and count, found {names}")
    metadata = _parse_metadata(table.schema.metadata or {}, where)
    found = table
    schema = SCHEMA
    if "documents" in names:
        schema = schema.append(pa.field("documents", pa.int64(), nullable=False))
    try:
        table = table.select(schema.names).cast(schema)
    except (pa.ArrowException, ValueError, KeyError) as error:
        raise FormatError(
            f"{where}: expected pretoken as binary, count and documents as int64: {error}"
        ) from None
    if table.num_rows and (
        pc.min(table["count"]).as_py() < 1
        or pc.min(pc.binary_length(table["pretoken"])).as_py() < 1
    ):
        raise FormatError(f"{where}: expected pre-tokens of at least one byte with counts above 0")
    if "documents" in names:
        documents = table["documents"]
        wrong = pc.or_(pc.less(documents, 1), pc.greater(documents, table["count"]))
        if pc.any(wrong).as_py():
            raise FormatError(f"{where}: expected documents above 0 and not above the count")
    declared = metadata.pop("groups", None)
    if "groups" not in names:
        return table, metadata, ()
    groups, columns = entries_of_file(found["groups"], where)
    if declared is not None:
        known = groups_of_text(declared, where)
        number_of = {group: number for number, group in enumerate(known)}
        if not number_of.keys() >= set(groups):
            raise FormatError(f"{where}: expected the groups of its metadata, found others")
        numbers = np.array([number_of[group] for group in groups], np.int32)
        groups, columns = known, replace(columns, groups=numbers[columns.groups])
    summed = with_entries(table, _check_entries(columns, len(groups), where))
    if not summed.drop_columns("groups").equals(table):
        raise FormatError(
            f"{where}: expected count and documents as the sums of those of the groups"
        )
    return summed, metadata, groups


def _check_entries(columns: GroupColumns, groups: int, where: str) -> GroupColumns:
    if problem := find_problem(columns, groups):
        raise FormatError(f"{where}: expected sorted groups with counts, found {problem}")
    return columns


def with_entries(table: pa.Table, columns: GroupColumns) -> pa.Table:
    """Return the rows of a table with these entries of groups and with their sums.

    Raises:
        CountOverflowError: a sum does not fit into 64 bits.
    """
    arrays = [one_array(table["pretoken"]), pa.array(sum_entries(columns.counts, columns.offsets))]
    fields = [*SCHEMA]
    if columns.documents is not None:
        arrays.append(pa.array(sum_entries(columns.documents, columns.offsets)))
        fields.append(pa.field("documents", pa.int64(), nullable=False))
    arrays.append(entries_to_arrow(columns))
    fields.append(pa.field("groups", arrays[-1].type, nullable=False))
    return pa.table(arrays, schema=pa.schema(fields))


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
    if metadata.get("unit", "1") not in _UNITS:
        raise FormatError(
            f"{where}, metadata: expected unit as a power of two up to 2^32, found "
            f"{metadata['unit'][:100]}"
        )
    version = metadata.pop("format", FORMAT_VERSION)
    if version not in (FORMAT_VERSION, GROUPED_FORMAT_VERSION):
        raise FormatError(
            f"{where}, metadata: expected format {FORMAT_VERSION} or {GROUPED_FORMAT_VERSION}, "
            f"found {version[:100]}; read it with the version of this package that wrote it"
        )
    return metadata


def split_column(column: pa.ChunkedArray) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bytes and offsets of a column of pre-tokens."""
    array = one_array(column)
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
    return pa.table([pretokens_to_arrow(keys, offsets), pa.array(counts)], schema=SCHEMA)


def pretokens_to_arrow(keys: NDArray[np.uint8], offsets: NDArray[np.int64]) -> pa.Array:
    """Return pre-tokens as an Arrow array, without copying them."""
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(keys)]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def file_schema(*, grouped: bool, by_value: bool, documents: bool) -> pa.Schema:
    """Return the schema of a file of counts; by_value: groups have a value besides the source."""
    schema = SCHEMA
    if documents:
        schema = schema.append(pa.field("documents", pa.int64(), nullable=False))
    if grouped:
        data_type = groups_type(by_value=by_value, documents=documents)
        schema = schema.append(pa.field("groups", data_type, nullable=False))
    return schema


def columns_to_file(
    columns: Sequence[NDArray[Any]], groups: Sequence[Group], schema: pa.Schema
) -> pa.Table:
    """Return rows as a table of a file.

    Args:
        columns: keys, offsets, counts and documents; of groups: offsets, groups, counts, documents.
        groups: the groups of all files.
        schema: the schema of the file.
    """
    keys, offsets, counts, documents, group_offsets, numbers, group_counts, of_groups = columns
    arrays = [pretokens_to_arrow(keys, offsets), pa.array(counts)]
    if "documents" in schema.names:
        arrays.append(pa.array(documents))
    if "groups" in schema.names:
        entries = GroupColumns(
            group_offsets,
            numbers,
            group_counts,
            of_groups if "documents" in schema.names else None,
        )
        arrays.append(entries_to_file(entries, groups, schema.field("groups").type))
    return pa.table(arrays, schema=schema)


def sort_table(table: pa.Table) -> pa.Table:
    """Return the rows of a table, sorted by pre-token."""
    return table.take(pc.sort_indices(table, [("pretoken", "ascending")])).combine_chunks()


def _add_prefix(metadata: Mapping[str, str]) -> dict[str, str]:
    return {f"bpe.{key}": value for key, value in metadata.items()}
