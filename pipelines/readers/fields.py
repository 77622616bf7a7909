"""Columns of records → texts: Arrow arrays become bytes with places, no value a Python object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.readers.documents import IntArray
from pipelines.readers.options import FieldPath
from pipelines.readers.streams import ByteArray


def show_path(path: FieldPath) -> str:
    """A path as the configuration writes it.

    >>> show_path(("doc", "text")), show_path(("a.b",))
    ('doc.text', 'a\\\\.b')
    """
    return ".".join(part.replace("\\", "\\\\").replace(".", "\\.") for part in path)


def stored_type(data_type: pa.DataType) -> pa.DataType:
    """What values of an extension type are stored as; other types are what they are."""
    while isinstance(data_type, pa.BaseExtensionType):
        data_type = data_type.storage_type
    return data_type


def stored(array: pa.Array[Any]) -> pa.Array[Any]:
    """The array as it is stored, without its extension type."""
    while isinstance(array, pa.ExtensionArray):
        array = array.storage
    return array


def is_text(data_type: pa.DataType) -> bool:
    """Whether a column of this type may hold texts. A column of nothing but nulls may."""
    data_type = stored_type(data_type)
    if pa.types.is_dictionary(data_type):
        data_type = data_type.value_type
    return bool(
        pa.types.is_string(data_type)
        or pa.types.is_large_string(data_type)
        or pa.types.is_string_view(data_type)
        or pa.types.is_binary(data_type)
        or pa.types.is_large_binary(data_type)
        or pa.types.is_binary_view(data_type)
        or pa.types.is_null(data_type)
    )


def is_integer(data_type: pa.DataType) -> bool:
    """Whether a column of this type holds whole numbers."""
    return bool(pa.types.is_integer(stored_type(data_type)))


def prepared(array: pa.Array[Any], *, untrusted: bool) -> pa.Array[Any]:
    """The array with texts as bytes, of which `decoded` may take slices.

    Bytes, since whether they are UTF-8 is judged by the rules for documents.

    Args:
        array: texts or whole numbers.
        untrusted: whether it came from a file as it is; then every offset and index is checked.

    Raises:
        pa.ArrowInvalid: an offset or index lies outside of its array.
    """
    array = stored(array)
    if pa.types.is_dictionary(array.type):
        values = decoded(prepared(array.dictionary, untrusted=untrusted))
        array = pa.DictionaryArray.from_arrays(array.indices, values, safe=False)
    elif pa.types.is_null(array.type):
        array = pa.nulls(len(array), pa.binary())
    elif pa.types.is_string(array.type):
        array = array.view(pa.binary())
    elif pa.types.is_large_string(array.type):
        array = array.view(pa.large_binary())
    elif pa.types.is_string_view(array.type):
        array = array.view(pa.binary_view())
    if untrusted:
        array.validate(full=True)
    return array


def decoded(array: pa.Array[Any]) -> pa.Array[Any]:
    """A prepared array, or a slice of it, as plain bytes (`binary`, `large_binary`) or numbers."""
    if pa.types.is_dictionary(array.type):
        return array.dictionary_decode()
    if pa.types.is_binary_view(array.type):
        return array.cast(pa.large_binary())
    return array


def value_bytes(array: pa.Array[Any]) -> IntArray:
    """The bytes of each value of a prepared array of texts; 0 for null."""
    if pa.types.is_dictionary(array.type):
        of_values = value_bytes(array.dictionary)
        # One more for null, whose index may be anything.
        of_values = np.append(of_values, 0)
        indices = pc.fill_null(array.indices.cast(pa.int64()), len(of_values) - 1)
        bytes_of_rows: IntArray = of_values[indices.to_numpy(zero_copy_only=False)]
        return bytes_of_rows
    if pa.types.is_binary_view(array.type):
        array = array.cast(pa.large_binary())
    lengths = pc.fill_null(pc.binary_length(array), 0).cast(pa.int64())
    numbers: IntArray = lengths.to_numpy(zero_copy_only=False)
    return numbers


def joined(columns: Sequence[pa.Array[Any]], join: bytes) -> pa.Array[Any]:
    """Decoded columns as one, their values joined; null where one of them is."""
    if len(columns) == 1:
        return columns[0]
    wide = [column.cast(pa.large_binary()) for column in columns]
    return pc.binary_join_element_wise(*wide, pa.scalar(join, pa.large_binary()))


def spans(array: pa.Array[Any]) -> tuple[ByteArray, IntArray, IntArray]:
    """Bytes, starts and ends of an array of bytes, whose buffer is not copied."""
    nothing = np.empty(0, np.uint8)
    if not len(array):
        return nothing, np.empty(0, np.int64), np.empty(0, np.int64)
    _, offsets, data = array.buffers()
    width = np.int64 if pa.types.is_large_binary(array.type) else np.int32
    bounds = np.frombuffer(offsets, width)[array.offset : array.offset + len(array) + 1]
    first, end = int(bounds[0]), int(bounds[-1])
    if data is not None:
        nothing = np.frombuffer(data, np.uint8)[first:end]
    bounds = bounds.astype(np.int64) - first
    return nothing, bounds[:-1], bounds[1:]


def id_strings(array: pa.Array[Any]) -> pa.StringArray:
    """Decoded ids as strings: numbers in decimal, what is not UTF-8 replaced by U+FFFD."""
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        values = array.to_pylist()
        return pa.array(
            [None if value is None else value.decode("utf-8", "replace") for value in values],
            pa.string(),
        )
