"""Columns of lists as NumPy arrays: the values of all lists, and their offsets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bpe_core._native import copy_pieces


def to_offsets(lengths: NDArray[Any]) -> NDArray[np.int64]:
    """Return the start of each list, and the end of the last.

    Example:
        >>> to_offsets(np.array([3, 1])).tolist()
        [0, 3, 4]
    """
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def gather_slices(
    values: NDArray[Any], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Concatenate slices of the values. Return them with their offsets.

    Example:
        >>> slices, offsets = gather_slices(np.arange(9), np.array([6, 1]), np.array([3, 1]))
        >>> slices.tolist(), offsets.tolist()
        ([6, 7, 8, 1], [0, 3, 4])
    """
    offsets = to_offsets(lengths)
    target = np.empty(offsets[-1], values.dtype)
    copy_pieces(values, starts, lengths, target, offsets[:-1])
    return target, offsets


def flatten_lists(column: pa.ChunkedArray) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the values of all lists of a column, and their offsets."""
    lists = column.combine_chunks()
    if isinstance(lists, pa.ChunkedArray):
        lists = pa.concat_arrays(lists.chunks) if lists.num_chunks else pa.array([], column.type)
    offsets = lists.offsets.to_numpy().astype(np.int64)
    return lists.flatten().to_numpy(), offsets - offsets[0]


def build_lists(
    values: NDArray[Any], offsets: NDArray[np.int64], kind: pa.ListType
) -> pa.ListArray:
    """Return a column of lists, in which list i is values[offsets[i]:offsets[i + 1]]."""
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(values), type=kind)


def take_rows(table: pa.Table, order: NDArray[np.int64]) -> pa.Table:
    """Return the rows in another order.

    Lists are copied slice by slice. `Table.take` would copy them value by value.
    """
    indices = pa.array(order)
    columns = []
    for column in table.columns:
        if pa.types.is_list(column.type):
            values, offsets = flatten_lists(column)
            taken = gather_slices(values, offsets[:-1][order], np.diff(offsets)[order])
            columns.append(build_lists(*taken, column.type))
        else:
            columns.append(column.take(indices))
    return pa.table(columns, schema=table.schema)


def replace_lists(
    table: pa.Table, name: str, values: NDArray[Any], offsets: NDArray[np.int64]
) -> pa.Table:
    """Return the table with other lists in a column."""
    at = table.schema.get_field_index(name)
    field = table.schema.field(at)
    return table.set_column(at, field, build_lists(values, offsets, field.type))
