"""Counts by group: parts of a corpus whose counts are kept apart, and their columns in Arrow.

In memory a row has a list of entries (group, count, documents), with groups as numbers. In files
the entries contain source and value of the group as dictionary-encoded text, so that any reader of
Parquet understands them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bpe_core.errors import CountOverflowError, FormatError
from bpe_core.short_repr import short_repr

__all__ = ["MAX_GROUPS", "Group", "GroupColumns"]

MAX_GROUPS: Final = 4096
_LOW: Final = 0xFFFFFFFF
_TEXT: Final = pa.dictionary(pa.int32(), pa.string())


class Group(NamedTuple):
    """A part of the corpus whose counts are kept apart.

    Attributes:
        source: name of the source; "" for a source without a name.
        value: text of the field that `counts.group_by` names, "" for a record without it; None if
            counts are kept apart by source alone.
    """

    source: str
    value: str | None = None


@short_repr
@dataclass(frozen=True, eq=False)
class GroupColumns:
    """Counts of the groups of each row: row i has the entries offsets[i]:offsets[i + 1].

    Attributes:
        offsets: int64[n + 1], from 0.
        groups: int32[m], indices of groups, ascending in each row.
        counts: int64[m], above 0.
        documents: int64[m], numbers of documents; None if they were not counted.
    """

    offsets: NDArray[np.int64]
    groups: NDArray[np.int32]
    counts: NDArray[np.int64]
    documents: NDArray[np.int64] | None = None

    def rows(self) -> NDArray[np.int64]:
        """Return the row of each entry."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def select(self, kept: NDArray[np.bool_]) -> GroupColumns:
        """Return the columns with only some of the entries; rows may become empty."""
        return GroupColumns(
            np.append(0, np.cumsum(kept, dtype=np.int64))[self.offsets],
            self.groups[kept],
            self.counts[kept],
            None if self.documents is None else self.documents[kept],
        )

    def select_rows(self, kept: NDArray[np.bool_]) -> GroupColumns:
        """Return the columns of only some of the rows."""
        entries = self.select(np.repeat(kept, np.diff(self.offsets)))
        return replace(entries, offsets=np.append(0, entries.offsets[1:][kept]))


def count_sources(columns: GroupColumns, groups: Sequence[Group]) -> NDArray[np.int64]:
    """Return the number of sources of each row."""
    numbers: dict[str, int] = {}
    of_groups = [numbers.setdefault(group.source, len(numbers)) for group in groups]
    of_entries = np.array(of_groups, np.int32)[columns.groups]
    differs = np.ones(len(of_entries), np.int64)
    differs[1:] = of_entries[1:] != of_entries[:-1]
    differs[columns.offsets[:-1]] = 1
    return sum_entries(differs, columns.offsets)


def find_problem(columns: GroupColumns, groups: int) -> str | None:
    """Return what is wrong with entries of so many groups, or None."""
    entries = len(columns.groups)
    numbers = [columns.counts] if columns.documents is None else [columns.counts, columns.documents]
    if any(len(column) != entries for column in numbers):
        return "columns of different lengths"
    offsets = columns.offsets
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != entries:
        return f"offsets that do not cover {entries:,} entries from 0"
    if (np.diff(offsets) < 1).any():
        return "a pre-token without a group"
    if entries and not (columns.groups.min() >= 0 and columns.groups.max() < groups):
        return f"a group outside of the {groups:,} groups"
    ascending = np.diff(columns.groups) > 0
    ascending[offsets[1:-1] - 1] = True
    if not ascending.all():
        return "groups of a pre-token that are not in ascending order"
    if any((column < 1).any() for column in numbers):
        return "a count below 1"
    if columns.documents is not None and (columns.documents > columns.counts).any():
        return "more documents with a pre-token than there are occurrences"
    return None


def sum_entries(values: NDArray[np.int64], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sum of values[offsets[i]:offsets[i + 1]] for each row, none of which is empty.

    Raises:
        CountOverflowError: a sum does not fit into 64 bits.
    """
    if len(offsets) == 1:
        return np.zeros(0, np.int64)
    # In two halves, since a sum of many int64 may need more than 64 bits.
    high = np.add.reduceat(values >> 32, offsets[:-1])
    low = np.add.reduceat(values & _LOW, offsets[:-1])
    high += low >> 32
    if (high >> 31).any():
        raise CountOverflowError("the sum of the counts of a pre-token does not fit 64 bits")
    return np.asarray((high << 32) | (low & _LOW))


def sum_equal_rows(
    keys: pa.ChunkedArray, number: int, columns: GroupColumns
) -> tuple[pa.Array, GroupColumns]:
    """Add up the entries of equal keys and groups.

    Args:
        keys: key of each row, in any order, also repeated.
        number: number of groups.
        columns: entries of the rows; groups may be in any order, also repeated.

    Returns:
        The distinct keys in ascending order, and their entries.

    Raises:
        CountOverflowError: a sum does not fit into 64 bits.
    """
    encoded = one_array(pc.dictionary_encode(one_array(keys)))
    order = pc.sort_indices(encoded.dictionary)
    rank = np.empty(len(order), np.int64)
    rank[order.to_numpy()] = np.arange(len(order))
    places = rank[encoded.indices.to_numpy(zero_copy_only=False)][columns.rows()]
    places = places * max(number, 1) + columns.groups
    by_place = np.argsort(places, kind="stable")
    distinct, starts = np.unique(places[by_place], return_index=True)
    ends = np.append(starts, len(places)).astype(np.int64)
    rows = distinct // max(number, 1)
    documents = columns.documents
    return encoded.dictionary.take(order), GroupColumns(
        np.append(0, np.cumsum(np.bincount(rows, minlength=len(order)))).astype(np.int64),
        (distinct % max(number, 1)).astype(np.int32),
        sum_entries(columns.counts[by_place], ends),
        None if documents is None else sum_entries(documents[by_place], ends),
    )


def one_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return a column as one array."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    return array


# --- in memory


def entries_to_arrow(columns: GroupColumns) -> pa.Array:
    """Return entries as a column in memory, without copying them."""
    field = pa.field("group", pa.int32(), nullable=False)
    return _list_array(columns, [field], [pa.array(columns.groups)], large=True)


def entries_of_arrow(column: pa.ChunkedArray) -> GroupColumns:
    """Return the entries in a column in memory."""
    offsets, entries = _split_list(one_array(column))
    return GroupColumns(offsets, *(entries.field(i).to_numpy() for i in range(len(entries.type))))


# --- in files


def groups_type(*, by_value: bool, documents: bool) -> pa.DataType:
    """Return the type of the column `groups` of files."""
    return pa.list_(_element([*_names(by_value), *_numbers(documents)]))


def entries_to_file(
    columns: GroupColumns, groups: Sequence[Group], data_type: pa.DataType
) -> pa.Array:
    """Return entries as a column of a file of this `groups_type`; at most 2^31 - 1 of them."""
    by_value = data_type.value_type.get_field_index("value") >= 0
    names = [
        _encode_names([group[i] or "" for group in groups], columns.groups)
        for i in range(1 + by_value)
    ]
    return _list_array(columns, _names(by_value), names, large=False)


def entries_of_file(column: pa.ChunkedArray, where: str) -> tuple[tuple[Group, ...], GroupColumns]:
    """Return the groups in a column of a file, in order, and the entries.

    Raises:
        FormatError: the column has another type, nulls or too many groups.
    """
    numbers: dict[Group, int] = {}
    parts = [_part_of_file(chunk, numbers, where) for chunk in column.chunks]
    groups = sorted(numbers)
    places = np.empty(len(groups), np.int32)
    places[[numbers[group] for group in groups]] = np.arange(len(groups))
    offsets = [np.diff(part.offsets) for part in parts]
    documents = [part.documents for part in parts if part.documents is not None]
    found = GroupColumns(
        np.append(0, np.cumsum(np.concatenate([np.zeros(0, np.int64), *offsets]))),
        places[np.concatenate([np.zeros(0, np.int32), *(part.groups for part in parts)])],
        np.concatenate([np.zeros(0, np.int64), *(part.counts for part in parts)]),
        np.concatenate(documents) if documents else None,
    )
    return tuple(groups), found


def groups_to_text(groups: Sequence[Group]) -> str:
    """Return groups as the text in the metadata of a file.

    >>> groups_to_text([Group("books"), Group("web")])
    '[["books", null], ["web", null]]'
    """
    return json.dumps([list(group) for group in groups], ensure_ascii=False)


def groups_of_text(text: str, where: str) -> tuple[Group, ...]:
    """Return the groups that `groups_to_text` wrote.

    Raises:
        FormatError: they are not sorted pairs of source and value.
    """
    try:
        pairs = json.loads(text)
        groups = tuple(Group(source, value) for source, value in pairs)
    except (ValueError, TypeError, RecursionError):
        groups = (Group("", 0),)  # type: ignore[arg-type]
    kinds = {type(value) for _, value in groups}
    if not (
        all(isinstance(source, str) for source, _ in groups)
        and kinds in ({str}, {type(None)}, set())
        and all(one < other for one, other in pairwise(groups))
        and len(groups) <= MAX_GROUPS
    ):
        raise FormatError(
            f"{where}, metadata: expected groups as sorted pairs of source and value, at most "
            f"{MAX_GROUPS:,}, found {text[:100]}"
        )
    return groups


def _part_of_file(array: pa.Array, numbers: dict[Group, int], where: str) -> GroupColumns:
    """Return the entries of a chunk, with the groups numbered as they occur."""
    kind = array.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_struct(
        kind.value_type
    ):
        raise FormatError(f"{where}: expected groups as a list of structs, found {kind}")
    offsets, entries = _split_list(array)
    names = {field.name for field in kind.value_type}
    if not {"source", "count"} <= names <= {"source", "value", "count", "documents"}:
        raise FormatError(
            f"{where}: expected groups with source, count and perhaps value and documents, found "
            f"{sorted(names)}"
        )
    columns = {name: entries.field(name) for name in names}
    if array.null_count or entries.null_count or any(c.null_count for c in columns.values()):
        raise FormatError(f"{where}: expected groups without nulls")
    try:
        counts = columns["count"].cast(pa.int64()).to_numpy()
        documents = (
            columns["documents"].cast(pa.int64()).to_numpy() if "documents" in names else None
        )
        sources, of_source = _decode_names(columns["source"], where)
        values: Sequence[str | None] = [None]
        of_value = np.zeros(len(counts), np.int32)
        if "value" in names:
            values, of_value = _decode_names(columns["value"], where)
    except pa.ArrowException as error:
        raise FormatError(
            f"{where}: expected groups with source and value as texts and numbers as int64: {error}"
        ) from None
    pairs = of_source.astype(np.int64) * len(values) + of_value
    number_of = np.zeros(len(sources) * len(values), np.int32)
    for pair in np.flatnonzero(np.bincount(pairs, minlength=len(number_of))).tolist():
        group = Group(sources[pair // len(values)], values[pair % len(values)])
        number_of[pair] = numbers.setdefault(group, len(numbers))
    if len(numbers) > MAX_GROUPS:
        raise FormatError(f"{where}: expected at most {MAX_GROUPS:,} groups, found more")
    return GroupColumns(offsets, number_of[pairs], counts, documents)


def _encode_names(names: Sequence[str], groups: NDArray[np.int32]) -> pa.Array:
    distinct = sorted(set(names))
    place = {name: i for i, name in enumerate(distinct)}
    indices = np.array([place[name] for name in names], np.int32)[groups]
    return pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(distinct, pa.string()))


def _decode_names(array: pa.Array, where: str) -> tuple[list[str], NDArray[np.int32]]:
    """Return the distinct texts of a column, and the number of each one's text among them."""
    if not pa.types.is_dictionary(array.type) or len(array.dictionary) > MAX_GROUPS:
        array = pc.dictionary_encode(array.cast(pa.string()))
    if len(array.dictionary) > MAX_GROUPS:
        raise FormatError(f"{where}: expected at most {MAX_GROUPS:,} groups, found more")
    texts = array.dictionary.cast(pa.string()).to_pylist()
    return texts, array.indices.cast(pa.int32()).to_numpy()


def _names(by_value: bool) -> list[pa.Field]:
    return [pa.field(name, _TEXT, nullable=False) for name in ("source", "value")[: 1 + by_value]]


def _numbers(documents: object) -> list[pa.Field]:
    names = ("count",) if documents is None or documents is False else ("count", "documents")
    return [pa.field(name, pa.int64(), nullable=False) for name in names]


def _element(fields: Sequence[pa.Field]) -> pa.Field:
    return pa.field("element", pa.struct(fields), nullable=False)


def _list_array(
    columns: GroupColumns, fields: list[pa.Field], names: list[pa.Array], *, large: bool
) -> pa.Array:
    """Return entries whose groups are in some arrays as an array of lists."""
    fields = [*fields, *_numbers(columns.documents)]
    numbers = [columns.counts, *([] if columns.documents is None else [columns.documents])]
    entries = pa.StructArray.from_arrays([*names, *map(pa.array, numbers)], fields=fields)
    kind, array = (pa.large_list, pa.LargeListArray) if large else (pa.list_, pa.ListArray)
    offsets = pa.array(columns.offsets.astype(np.int64 if large else np.int32))
    return array.from_arrays(offsets, entries, type=kind(_element(fields)))


def _split_list(array: pa.Array) -> tuple[NDArray[np.int64], pa.StructArray]:
    """Return the offsets of a list array, from 0, and its entries."""
    offsets = array.offsets.cast(pa.int64()).to_numpy()
    return offsets - offsets[0], array.values[int(offsets[0]) : int(offsets[-1])]
