"""Rows of token files as tables with an order of their own, whatever order they come in.

Rows are ordered by a key that follows from the hash of the document's text, then by the hash and
all other columns. So pieces of a document follow each other, the last first, and rows that stand at
the same place are equal: which of them comes first makes no difference. `whole_documents` then puts
pieces into the order of the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bpe_core._native import scan_documents
from pipelines.errors import InputError
from pipelines.sorting.arrow_lists import list_array, list_values, take_rows
from pipelines.sorting.keys import order_keys
from pipelines.writing.rows import TokenRows

_KEY: Final = "_key"
# Of rows with the same key: what is the same for all pieces of a document, then everything else
# that files show. The last piece is first, so that the first row shows whether there are others.
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
_UINT16_BYTES: Final = 2


def table_schema(itemsize: int, *more: pa.Field) -> pa.Schema:
    """The columns of a table of rows with ids of so many bytes."""
    ids = pa.uint16() if itemsize == _UINT16_BYTES else pa.uint32()
    return pa.schema([*_COLUMNS, *more, pa.field("input_ids", pa.list_(ids))])


def table_of(rows: TokenRows | TokenTable) -> pa.Table:
    """Token rows as a table."""
    keys = order_keys(0, "", rows.hashes[:, 0] ^ rows.hashes[:, 1])
    names, which = rows.sources
    sources = pa.DictionaryArray.from_arrays(pa.array(which), pa.array(list(names), pa.string()))
    schema = table_schema(rows.ids.itemsize)
    record_ids = rows.record_ids
    return pa.table(
        [
            pa.array(keys),
            pa.array(rows.hashes[:, 0]),
            pa.array(rows.hashes[:, 1]),
            pa.array(id_hashes(rows.ids, rows.offsets)[:, 1]),
            sources.dictionary_decode(),
            pa.array(rows.places),
            pa.nulls(len(rows), pa.string()) if record_ids is None else record_ids,
            pa.array(rows.part_numbers),
            pa.array(rows.num_bytes),
            list_array(rows.ids, rows.offsets, schema.field("input_ids").type),
        ],
        schema=schema,
    )


def id_hashes(ids: NDArray[Any], offsets: NDArray[np.int64]) -> NDArray[np.uint64]:
    """uint64[n, 2]: upper and lower half of the xxh3-128 of each row's ids as uint32.

    Example:
        >>> ids = np.array([1, 2, 1, 2], np.uint16)
        >>> first, second = id_hashes(ids, np.array([0, 2, 4])).tolist()
        >>> first == second
        True
    """
    data = np.ascontiguousarray(ids, "<u4").view(np.uint8)
    # Hashes are of all bytes, whether or not they are UTF-8.
    _, hashes = scan_documents(data, 4 * offsets[:-1], 4 * offsets[1:])
    found: NDArray[np.uint64] = hashes
    return found


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables one after the other; their ids in the widest of their types."""
    types = {table.schema.field("input_ids").type for table in tables}
    if len(types) > 1:
        widest = max(types, key=lambda kind: kind.value_type.bit_width)
        at = tables[0].schema.get_field_index("input_ids")
        schema = tables[0].schema.set(at, pa.field("input_ids", widest))
        tables = [table.cast(schema) for table in tables]
    return pa.concat_tables(tables).combine_chunks()


def order_of(table: pa.Table) -> NDArray[np.int64]:
    """The order of the rows, as indices: int64[n]."""
    keys = table[_KEY].to_numpy()
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    same = ordered[1:] == ordered[:-1]
    if same.any():
        # Equal keys follow each other, so that rows that have them only change places.
        tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
        of_ties = table.select([name for name, _ in _TIES]).take(pa.array(order[tied]))
        order[tied] = order[tied][pc.sort_indices(of_ties, sort_keys=list(_TIES)).to_numpy()]
    return order


def ordered(table: pa.Table) -> pa.Table:
    """The table in its order."""
    return take_rows(table, order_of(table))


def whole_documents(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Rows that come in order, with the pieces of each document from the first to the last.

    Of a document that is there several times each copy has all its pieces together. No more is held
    than a table and the pieces of one text.

    Raises:
        InputError: a piece is missing, or there more often than the others.
    """
    held: list[pa.Table] = []
    for new in tables:
        if not len(new):
            continue
        table = joined([*held, new]) if held else new
        last = int(np.flatnonzero(_begins_document(table))[-1])
        held = []
        if table["part"][last].as_py() > 0:
            table, held = table.slice(0, last), [table.slice(last)]
        if len(table):
            yield _pieces_in_order(table)
    if held:
        yield _pieces_in_order(held[0])


def _pieces_in_order(table: pa.Table) -> pa.Table:
    parts = table["part"].to_numpy()
    if not parts.any():
        return table
    documents = _begins_document(table)
    begins = documents | np.append(True, parts[1:] != parts[:-1])
    # Runs of rows that are the same piece of the same text, each a copy's.
    runs = np.flatnonzero(begins)
    copies = np.diff(np.append(runs, len(parts)))
    of_document = np.cumsum(documents[runs]) - 1
    ends = np.append(np.flatnonzero(documents[runs])[1:], len(runs))[of_document]
    wrong = (parts[runs] != ends - 1 - np.arange(len(runs))) | (copies != copies[ends - 1])
    if wrong.any():
        raise _missing_pieces(table, documents, int(runs[np.argmax(wrong)]))
    copy = np.arange(len(parts)) - np.repeat(runs, copies)
    return take_rows(table, np.lexsort((parts, copy, np.cumsum(documents))))


def _begins_document(table: pa.Table) -> NDArray[np.bool_]:
    """bool[n]: which rows are of another document than the row before."""
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
    shown = [f"part {part} {times} times" for part, times in zip(*found, strict=True)]
    return InputError(
        "Pieces of a document are missing, or there too often.",
        expected="the parts of a document from 0 to the last, each as often as the others",
        found=", ".join(shown[:8]) + (", …" if len(shown) > 8 else ""),
        where=f"{values['source'] or 'the input'}, document at offset {values['offset']:,}{own}",
        hint="Keep or leave out all pieces of a document: choose by what they share, such as "
        "hash or whole_bytes.",
    )


def shard_bounds(table: pa.Table, shards: int) -> NDArray[np.int64]:
    """int64[shards + 1]: where the rows of each shard begin in an ordered table."""
    starts = np.array([-(-(shard << 64) // shards) for shard in range(shards)], np.uint64)
    bounds: NDArray[np.int64] = np.searchsorted(table[_KEY].to_numpy(), starts)
    return np.append(bounds, len(table))


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenTable:
    """Rows of many documents, as `writing.Rows` has them.

    Attributes:
        ids, offsets, num_bytes, places, hashes, record_ids: as of `TokenRows`.
        part_numbers: int32[n].
        source_names: string[n].
    """

    ids: NDArray[Any]
    offsets: NDArray[np.int64]
    num_bytes: NDArray[np.int64]
    places: NDArray[np.int64]
    hashes: NDArray[np.uint64]
    part_numbers: NDArray[np.int32]
    source_names: pa.StringArray
    record_ids: pa.StringArray | None

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.num_bytes)

    @property
    def sources(self) -> tuple[Sequence[str], NDArray[np.int32]]:
        """As `TokenRows.sources`."""
        encoded = self.source_names.dictionary_encode()
        return encoded.dictionary.to_pylist(), encoded.indices.to_numpy()

    def slice(self, first: int, end: int) -> TokenTable:
        """The rows [first, end), of the same memory."""
        start, stop = self.offsets[first], self.offsets[end]
        return TokenTable(
            ids=self.ids[start:stop],
            offsets=self.offsets[first : end + 1] - start,
            num_bytes=self.num_bytes[first:end],
            places=self.places[first:end],
            hashes=self.hashes[first:end],
            part_numbers=self.part_numbers[first:end],
            source_names=self.source_names[first:end],
            record_ids=None if self.record_ids is None else self.record_ids[first:end],
        )

    @classmethod
    def of(cls, table: pa.Table, dtype: type[Any]) -> TokenTable:
        """The rows of a table, in its order.

        Raises:
            OverflowError: an id does not fit the type.
        """
        table = table.combine_chunks()
        ids, offsets = list_values(table["input_ids"])
        if ids.itemsize > np.dtype(dtype).itemsize and len(ids) and ids.max() > np.iinfo(dtype).max:
            raise OverflowError(f"the id {ids.max()} in {np.dtype(dtype).name}")
        upper, lower = table["_upper"].to_numpy(), table["_lower"].to_numpy()
        return cls(
            ids=ids.astype(dtype, copy=False),
            offsets=offsets,
            num_bytes=table["num_bytes"].to_numpy(),
            places=table["offset"].to_numpy(),
            hashes=np.stack([upper, lower], axis=1),
            part_numbers=table["part"].to_numpy(),
            source_names=_array(table["source"]),
            record_ids=_array(table["id"]),
        )


def _array(column: pa.ChunkedArray) -> pa.StringArray:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
