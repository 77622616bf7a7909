"""Token rows as tables with a canonical order, whatever order they come in.

Rows are sorted by a key that follows from the hash of the document's text, then by the hash and by
all other columns. So the chunks of a document are adjacent, the last one first, and rows with the
same position are equal, so that their order does not matter. `join_pieces` then puts the chunks
into the order of the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bpe_core._native import scan_documents
from pipelines.errors import InputError, shortened
from pipelines.manifest.token_schema import ID_TYPES
from pipelines.sorting.arrow_lists import build_lists, flatten_lists, take_rows
from pipelines.sorting.keys import order_keys
from pipelines.writing.rows import TokenRows

_KEY: Final = "_key"
# Sort columns after the key: values that all chunks of a document share, then all other columns of
# the files. The last chunk comes first, so that the first row shows if there are others.
_DOCUMENT: Final = ("_upper", "_lower", "source", "offset", "id")
_TIES: Final = (
    *((name, "ascending") for name in (_KEY, *_DOCUMENT)),
    ("part", "descending"),
    ("num_bytes", "ascending"),
    ("_digest", "ascending"),
)
_COLUMNS: Final = (
    pa.field(_KEY, pa.uint64()),
    pa.field("_upper", pa.uint64()),
    pa.field("_lower", pa.uint64()),
    pa.field("_digest", pa.uint64()),
    pa.field("source", pa.string()),
    pa.field("offset", pa.int64()),
    pa.field("id", pa.string()),
    pa.field("part", pa.int32()),
    pa.field("num_bytes", pa.int64()),
)
_PARTS_SHOWN: Final = 8


def table_schema(itemsize: int) -> pa.Schema:
    """Return the columns of a table of rows, for ids of this size in bytes."""
    ids = pa.list_(ID_TYPES[f"uint{8 * itemsize}"])
    return pa.schema([*_COLUMNS, pa.field("input_ids", ids)])


def to_table(rows: TokenRows) -> pa.Table:
    """Return token rows as a table."""
    schema = table_schema(rows.ids.itemsize)
    record_ids = rows.record_ids
    return pa.table(
        [
            pa.array(order_keys(0, "", rows.hashes[:, 0] ^ rows.hashes[:, 1])),
            pa.array(rows.hashes[:, 0]),
            pa.array(rows.hashes[:, 1]),
            pa.array(hash_ids(rows.ids, rows.offsets)[:, 1]),
            rows.sources.dictionary_decode(),
            pa.array(rows.positions),
            pa.nulls(len(rows), pa.string()) if record_ids is None else record_ids,
            pa.array(rows.parts),
            pa.array(rows.num_bytes),
            build_lists(rows.ids, rows.offsets, schema.field("input_ids").type),
        ],
        schema=schema,
    )


def to_rows(table: pa.Table, dtype: type[Any]) -> TokenRows:
    """Return a table as token rows, in its order and with ids of a type.

    Raises:
        OverflowError: An id does not fit the type.
    """
    table = table.combine_chunks()
    ids, offsets = flatten_lists(table["input_ids"])
    if ids.itemsize > np.dtype(dtype).itemsize and len(ids) and ids.max() > np.iinfo(dtype).max:
        raise OverflowError(f"the id {ids.max()} in {np.dtype(dtype).name}")
    upper, lower = table["_upper"].to_numpy(), table["_lower"].to_numpy()
    return TokenRows(
        ids=ids.astype(dtype, copy=False),
        offsets=offsets,
        num_bytes=table["num_bytes"].to_numpy(),
        positions=table["offset"].to_numpy(),
        hashes=np.stack([upper, lower], axis=1),
        parts=table["part"].to_numpy(),
        sources=_to_array(table["source"]).dictionary_encode(),
        record_ids=_to_array(table["id"]),
    )


def hash_ids(ids: NDArray[Any], offsets: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return upper and lower half of the xxh3-128 of each row's ids as uint32: uint64[n, 2].

    Example:
        >>> ids = np.array([1, 2, 1, 2], np.uint16)
        >>> first, second = hash_ids(ids, np.array([0, 2, 4])).tolist()
        >>> first == second
        True
    """
    data = np.ascontiguousarray(ids, "<u4").view(np.uint8)
    # The hashes are of all bytes, even of those that are not UTF-8.
    _, hashes = scan_documents(data, 4 * offsets[:-1], 4 * offsets[1:])
    found: NDArray[np.uint64] = hashes
    return found


def concat_tables(tables: Sequence[pa.Table]) -> pa.Table:
    """Concatenate tables. Ids get the widest of their types."""
    types = {table.schema.field("input_ids").type for table in tables}
    if len(types) > 1:
        widest = max(types, key=lambda kind: kind.value_type.bit_width)
        at = tables[0].schema.get_field_index("input_ids")
        schema = tables[0].schema.set(at, pa.field("input_ids", widest))
        tables = [table.cast(schema) for table in tables]
    return pa.concat_tables(tables).combine_chunks()


def find_order(table: pa.Table) -> NDArray[np.int64]:
    """Return the order of the rows as indices: int64[n]."""
    keys = table[_KEY].to_numpy()
    order = np.argsort(keys, kind="stable")
    sorted_keys = keys[order]
    same = sorted_keys[1:] == sorted_keys[:-1]
    if same.any():
        # Equal keys are adjacent, so only rows with equal keys need more columns.
        tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
        of_ties = table.select([name for name, _ in _TIES]).take(pa.array(order[tied]))
        order[tied] = order[tied][pc.sort_indices(of_ties, sort_keys=list(_TIES)).to_numpy()]
    return order


def sort_rows(table: pa.Table) -> pa.Table:
    """Return the rows in canonical order."""
    return take_rows(table, find_order(table))


def find_shards(table: pa.Table, shards: int) -> NDArray[np.int64]:
    """Return where the rows of each shard start in a sorted table: int64[shards + 1]."""
    starts = np.array([-(-(shard << 64) // shards) for shard in range(shards)], np.uint64)
    bounds: NDArray[np.int64] = np.searchsorted(table[_KEY].to_numpy(), starts)
    return np.append(bounds, len(table))


def join_pieces(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield sorted rows with the chunks of each document from the first to the last.

    If a document occurs several times, the chunks of each copy are adjacent. At most a table and
    the chunks of one text are in memory.

    Raises:
        InputError: A chunk is missing, or occurs more often than the others.
    """
    held: list[pa.Table] = []
    for new in tables:
        if not len(new):
            continue
        table = concat_tables([*held, new]) if held else new
        last = int(np.flatnonzero(_begins_document(table))[-1])
        held = []
        if table["part"][last].as_py() > 0:
            table, held = table.slice(0, last), [table.slice(last)]
        if len(table):
            yield _sort_pieces(table)
    if held:
        yield _sort_pieces(held[0])


def _sort_pieces(table: pa.Table) -> pa.Table:
    parts = table["part"].to_numpy()
    if not parts.any():
        return table
    documents = _begins_document(table)
    begins = documents | np.append(True, parts[1:] != parts[:-1])
    # Stretches of rows that are the same chunk of the same text, one row for each copy of it.
    stretches = np.flatnonzero(begins)
    copies = np.diff(np.append(stretches, len(parts)))
    of_document = np.cumsum(documents[stretches]) - 1
    ends = np.append(np.flatnonzero(documents[stretches])[1:], len(stretches))[of_document]
    expected_parts = ends - 1 - np.arange(len(stretches))
    wrong = (parts[stretches] != expected_parts) | (copies != copies[ends - 1])
    if wrong.any():
        raise _missing_pieces(table, documents, int(stretches[np.argmax(wrong)]))
    copy = np.arange(len(parts)) - np.repeat(stretches, copies)
    return take_rows(table, np.lexsort((parts, copy, np.cumsum(documents))))


def _begins_document(table: pa.Table) -> NDArray[np.bool_]:
    """Return True for each row that belongs to another document than the row before: bool[n]."""
    begins = np.zeros(len(table), bool)
    begins[:1] = True
    for name in (_KEY, *_DOCUMENT):
        column = table[name].combine_chunks()
        if pa.types.is_string(column.type):
            column = column.dictionary_encode(null_encoding="encode").indices
        values = column.to_numpy()
        begins[1:] |= values[1:] != values[:-1]
    return begins


def _missing_pieces(table: pa.Table, documents: NDArray[np.bool_], row: int) -> InputError:
    starts = np.flatnonzero(documents)
    which = int(np.searchsorted(starts, row, side="right"))
    end = int(starts[which]) if which < len(starts) else len(table)
    found = np.unique(table["part"].to_numpy()[starts[which - 1] : end], return_counts=True)
    values = {name: table[name][row].as_py() for name in ("source", "offset", "id")}
    own = "" if values["id"] is None else f", id {values['id']!r}"
    numbers = [f"part {part} {times} times" for part, times in zip(*found, strict=True)]
    return InputError(
        "Chunks of a document are missing, or occur too often.",
        expected="the parts of a document from 0 to the last, each as often as the others",
        found=shortened(numbers, _PARTS_SHOWN),
        where=f"{values['source'] or 'the input'}, document at offset {values['offset']:,}{own}",
        hint="Keep or drop all chunks of a document: select by a value that they share, such as "
        "hash or whole_bytes.",
    )


def _to_array(column: pa.ChunkedArray) -> pa.StringArray:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
