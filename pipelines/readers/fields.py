"""Columns of records → texts: Arrow arrays to bytes with bounds, without Python objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.config.validation import did_you_mean
from pipelines.errors import InputError, shortened
from pipelines.readers.documents import IntArray
from pipelines.readers.options import FieldPath
from pipelines.readers.streams import ByteArray

_NAMES_SHOWN: Final = 20
# Names that fields with the text usually have.
_NAMES_OF_TEXTS: Final = ("text", "content", "body", "document", "markdown", "code", "raw_content")
_NAMES_OF_IDS: Final = ("id", "_id", "uuid", "guid", "doc_id", "document_id", "key", "url")


def format_path(path: FieldPath) -> str:
    """Format a path as in the configuration.

    >>> format_path(("doc", "text")), format_path(("a.b",))
    ('doc.text', 'a\\\\.b')
    """
    return ".".join(part.replace("\\", "\\\\").replace(".", "\\.") for part in path)


def suggest_field(path: FieldPath, names: Sequence[str], key: str) -> str:
    """Return the advice for a field that does not exist.

    Args:
        path: The field.
        names: Names of the fields that exist.
        key: Key of the configuration that names the field.

    >>> suggest_field(("txt",), ["id", "text"], "input.text_field")
    'Did you mean text? '
    >>> suggest_field(("prose",), ["id", "body"], "input.text_field")
    'Did you mean body? '
    >>> suggest_field(("key",), ["doc_id", "text"], "input.id_field")
    'Did you mean doc_id? '
    """
    known = _NAMES_OF_IDS if key.endswith("id_field") else _NAMES_OF_TEXTS
    usual = [name for name in names if name.rpartition(".")[2].lower() in known]
    question = did_you_mean(format_path(path), names)
    if question is None and usual:
        question = f"Did you mean {usual[0]}?"
    return f"{question} " if question else ""


def list_fields(names: Iterable[str], what: str) -> str:
    """Return "the fields a, b" for a message."""
    known = list(names)
    return f"the {what} {shortened(known, _NAMES_SHOWN)}" if known else f"no {what}"


def no_such_field(
    path: FieldPath, records: Sequence[Mapping[str, Any]], *, of: str, key: str, where: str
) -> InputError:
    """Return the error for a field that no record has.

    Args:
        path: The field.
        records: Some of the records.
        of: Name of the source or file, for the message.
        key: Key of the configuration that names the field.
        where: URL of a file.
    """
    names = list(dict.fromkeys(name for record in records for name in _fields_beside(record, path)))
    return InputError(
        f'No record of {of} has the field "{format_path(path)}" ({key}).',
        found=f"records with {list_fields(names, 'fields')}",
        where=where,
        hint=f"{suggest_field(path, names, key)}Set {key} to a field of the records.",
    )


def _fields_beside(record: Mapping[str, Any], path: FieldPath) -> list[str]:
    """Return the paths of the fields at the level at which a record lacks the field."""
    before: FieldPath = ()
    for part in path[:-1]:
        inner = record.get(part)
        if not isinstance(inner, Mapping):
            break
        record, before = inner, (*before, part)
    return [format_path((*before, name)) for name in record]


def unwrap_type(data_type: pa.DataType) -> pa.DataType:
    """Return the storage type of an extension type; any other type unchanged."""
    while isinstance(data_type, pa.BaseExtensionType):
        data_type = data_type.storage_type
    return data_type


def unwrap_array(array: pa.Array[Any]) -> pa.Array[Any]:
    """Return the storage of an extension array; any other array unchanged."""
    while isinstance(array, pa.ExtensionArray):
        array = array.storage
    return array


def is_text(data_type: pa.DataType) -> bool:
    """Return True if a column of this type can contain texts, or nulls only."""
    data_type = unwrap_type(data_type)
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


def is_shared(data_type: pa.DataType) -> bool:
    """Return True if values of a prepared column can share bytes: of a dictionary, or as views."""
    return bool(pa.types.is_dictionary(data_type) or pa.types.is_binary_view(data_type))


def is_integer(data_type: pa.DataType) -> bool:
    """Return True if a column of this type contains integers."""
    return bool(pa.types.is_integer(unwrap_type(data_type)))


def prepare_column(array: pa.Array[Any], *, untrusted: bool) -> pa.Array[Any]:
    """Return the array with texts as bytes, ready for slicing and `decode_column`.

    Texts become bytes because the rules for documents, not Arrow, decide about invalid UTF-8.

    Args:
        array: texts or integers.
        untrusted: the array comes from a file unchanged; every offset and index is checked.

    Raises:
        pa.ArrowInvalid: an offset or index is out of bounds.
    """
    array = unwrap_array(array)
    if pa.types.is_dictionary(array.type):
        values = decode_column(prepare_column(array.dictionary, untrusted=untrusted))
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


def decode_column(array: pa.Array[Any]) -> pa.Array[Any]:
    """Convert a prepared array, or a slice, to bytes (`binary`, `large_binary`) or integers."""
    if pa.types.is_dictionary(array.type):
        return array.dictionary_decode()
    if pa.types.is_binary_view(array.type):
        return array.cast(pa.large_binary())
    return array


def measure_values(array: pa.Array[Any]) -> IntArray:
    """Return the length in bytes of each value of a prepared array of texts; 0 for null."""
    if pa.types.is_dictionary(array.type):
        # The last entry is for null, whose index is undefined.
        lengths_in_dictionary = np.append(measure_values(array.dictionary), 0)
        indices = pc.fill_null(array.indices.cast(pa.int64()), len(lengths_in_dictionary) - 1)
        row_lengths: IntArray = lengths_in_dictionary[indices.to_numpy(zero_copy_only=False)]
        return row_lengths
    if pa.types.is_binary_view(array.type):
        # Views can overlap: copies of them may be much larger than the file.
        views = np.frombuffer(array.buffers()[1], np.int32)[array.offset * 4 :: 4][: len(array)]
        lengths_of_views: IntArray = np.where(array.is_valid(), views, 0).astype(np.int64)
        return lengths_of_views
    lengths = pc.fill_null(pc.binary_length(array), 0).cast(pa.int64())
    numbers: IntArray = lengths.to_numpy(zero_copy_only=False)
    return numbers


def join_columns(columns: Sequence[pa.Array[Any]], join: bytes) -> pa.Array[Any]:
    """Join the values of decoded columns; the result is null if any of them is."""
    if len(columns) == 1:
        return columns[0]
    wide = [column.cast(pa.large_binary()) for column in columns]
    return pc.binary_join_element_wise(*wide, pa.scalar(join, pa.large_binary()))


def extract_spans(array: pa.Array[Any]) -> tuple[ByteArray, IntArray, IntArray]:
    """Return the buffer, starts and ends of an array of bytes, without copying the buffer."""
    content: ByteArray = np.empty(0, np.uint8)
    if not len(array):
        return content, np.empty(0, np.int64), np.empty(0, np.int64)
    _, offsets, data = array.buffers()
    width = np.int64 if pa.types.is_large_binary(array.type) else np.int32
    bounds = np.frombuffer(offsets, width)[array.offset : array.offset + len(array) + 1]
    first, end = int(bounds[0]), int(bounds[-1])
    if data is not None:
        content = np.frombuffer(data, np.uint8)[first:end]
    bounds = bounds.astype(np.int64) - first
    return content, bounds[:-1], bounds[1:]


def convert_ids(array: pa.Array[Any]) -> pa.StringArray:
    """Convert decoded ids to strings: integers in decimal, invalid UTF-8 replaced by U+FFFD."""
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        values = array.to_pylist()
        return pa.array(
            [None if value is None else value.decode("utf-8", "replace") for value in values],
            pa.string(),
        )
