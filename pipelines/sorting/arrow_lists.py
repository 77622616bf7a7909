"""Columns of lists as numpy arrays: the values of all lists, and their offsets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bpe_core._native import copy_pieces


def offsets_of(lengths: NDArray[Any]) -> NDArray[np.int64]:
    """Where each begins, and the last ends: int64, one more than lengths.

    Example:
        >>> offsets_of(np.array([3, 1])).tolist()
        [0, 3, 4]
    """
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def gathered(
    values: NDArray[Any], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Pieces of the values one after the other, and their offsets.

    Example:
        >>> pieces, offsets = gathered(np.arange(9), np.array([6, 1]), np.array([3, 1]))
        >>> pieces.tolist(), offsets.tolist()
        ([6, 7, 8, 1], [0, 3, 4])
    """
    offsets = offsets_of(lengths)
    target = np.empty(offsets[-1], values.dtype)
    copy_pieces(values, starts, lengths, target, offsets[:-1])
    return target, offsets


def list_values(column: pa.ChunkedArray) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The values of a column of lists, and where each list begins in them, and the last ends."""
    lists = column.combine_chunks()
    if isinstance(lists, pa.ChunkedArray):
        lists = pa.concat_arrays(lists.chunks) if lists.num_chunks else pa.array([], column.type)
    offsets = lists.offsets.to_numpy().astype(np.int64)
    return lists.flatten().to_numpy(), offsets - offsets[0]


def list_array(values: NDArray[Any], offsets: NDArray[np.int64], kind: pa.ListType) -> pa.ListArray:
    """A column of lists: list i is values[offsets[i]:offsets[i + 1]]."""
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(values), type=kind)


def take_rows(table: pa.Table, order: NDArray[np.int64]) -> pa.Table:
    """The rows in another order. Copies ids in pieces, not one by one as Arrow does."""
    indices = pa.array(order)
    columns = []
    for column in table.columns:
        if pa.types.is_list(column.type):
            values, offsets = list_values(column)
            taken = gathered(values, offsets[:-1][order], np.diff(offsets)[order])
            columns.append(list_array(*taken, column.type))
        else:
            columns.append(column.take(indices))
    return pa.table(columns, schema=table.schema)


def _with_ids(table: pa.Table, ids: NDArray[Any], offsets: NDArray[np.int64]) -> pa.Table:
    field = table.schema.field("input_ids")
    at = table.schema.get_field_index("input_ids")
    return table.set_column(at, field, list_array(ids, offsets, field.type))
