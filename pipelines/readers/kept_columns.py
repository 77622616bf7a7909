"""Columns of records that token files keep: `keep_columns` of a source.

All token files of a dataset have the same columns. JSON values are kept as text; columns of Parquet
and Arrow keep their type, which is that in the first file of the source that has the column. A
column that has different types in several sources is kept as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines.batches import DocumentBatch
from pipelines.config import SourceConfig
from pipelines.config.values import column_name, parse_field_path
from pipelines.errors import ConfigError, DamagedFileError, InputError
from pipelines.readers.arrow_footer import ARROW_FILE_MAGIC
from pipelines.readers.fields import (
    convert_ids,
    decode_column,
    is_text,
    prepare_column,
    unwrap_array,
    unwrap_type,
)
from pipelines.readers.options import FieldPath, ReadOptions
from pipelines.readers.streams import open_handle
from pipelines.tasks.listing import InputFile

# Files of a source that are opened to find the type of a column.
_FILES_OPENED: Final = 16


def find_kept_columns(
    sources: Sequence[SourceConfig], files: Iterable[InputFile], known: pa.Schema | None = None
) -> pa.Schema | None:
    """Return the columns that token files keep, or None if no source keeps any.

    Args:
        sources: Sources of the configuration.
        files: Files of the sources; some of those in column formats are opened.
        known: Columns of an existing dataset, which keep their types.

    Raises:
        InputError: A file cannot be read.
        ConfigError: A column has no type that can be kept.
    """
    if not any(source.keep_columns for source in sources):
        return None
    found: dict[str, pa.DataType] = {}
    of_source: dict[int, list[InputFile]] = {}
    for file in files:
        of_source.setdefault(file.source, []).append(file)
    for index, source in enumerate(sources):
        types = _types_in_files(source, index, of_source.get(index, []))
        for text in source.keep_columns:
            name = column_name(text)
            data_type = types.get(name)
            if data_type is not None and found.setdefault(name, data_type) != data_type:
                found[name] = pa.string()
    names = [column_name(text) for source in sources for text in source.keep_columns]
    fields = {name: pa.field(name, found.get(name, pa.string())) for name in names}
    for field in known or ():
        if field.name in fields:
            fields[field.name] = pa.field(field.name, field.type)
    return pa.schema(fields.values())


def find_column_type(schema: pa.Schema, path: FieldPath) -> pa.DataType | None:
    """Return the type of the column of a path; None if it is missing."""
    holder: Any = schema
    for part in path:
        if not isinstance(holder, pa.Schema):
            holder = unwrap_type(holder)
            if not pa.types.is_struct(holder):
                return None
        indices = holder.get_all_field_indices(part)
        if len(indices) != 1:
            return None
        holder = holder.field(indices[0]).type
    return holder


def convert_column(array: pa.Array[Any], *, untrusted: bool) -> pa.Array[Any]:
    """Return a column of a file as it is kept: texts are valid UTF-8, and nothing is a dictionary.

    Raises:
        pa.ArrowInvalid: An offset or index of an untrusted array is out of bounds.
    """
    array = unwrap_array(array)
    if _is_string(array.type):
        return convert_ids(decode_column(prepare_column(array, untrusted=untrusted)))
    if untrusted:
        array.validate(full=True)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array.cast(_kept_type(array.type))


def collect_columns(
    options: ReadOptions, columns: Mapping[str, pa.Array[Any]], rows: int, where: str
) -> pa.RecordBatch:
    """Return the kept columns of rows: those that were found, with their types, and nulls.

    Raises:
        InputError: A value does not fit the type of its column.
    """
    assert options.kept is not None
    arrays = []
    for field in options.kept:
        array = columns.get(field.name)
        if array is None:
            array = pa.nulls(rows, field.type)
        elif array.type != field.type:
            try:
                array = array.cast(field.type)
            except pa.ArrowException as error:
                raise InputError(
                    "A value does not fit the column that keeps it.",
                    expected=f"{field.type} in the column {field.name}, as in other files",
                    found=str(error),
                    where=where,
                    hint="Make the files alike, or remove the column from input.keep_columns or "
                    "counts.group_by.",
                ) from None
        arrays.append(array)
    return pa.record_batch(arrays, schema=options.kept)


def same_columns(batch: DocumentBatch, rows: pa.Table) -> bool:
    """Return True if the kept columns of a batch are those of rows of a token file."""
    for name in rows.column_names:
        there = rows[name].combine_chunks()
        here = pa.nulls(len(batch), there.type) if batch.kept is None else batch.kept[name]
        if pa.types.is_floating(there.type):  # NaN differs from itself
            there, here = pc.cast(there, pa.string()), pc.cast(here, pa.string())
        if not here.equals(there):
            return False
    return True


def _types_in_files(
    source: SourceConfig, index: int, files: Sequence[InputFile]
) -> dict[str, pa.DataType]:
    """Return the types of the columns that a source keeps, by name."""
    if source.format == "jsonl":
        return {column_name(text): pa.string() for text in source.keep_columns}
    left = dict.fromkeys(source.keep_columns)
    found: dict[str, pa.DataType] = {}
    for file in [file for file in files if file.size][:_FILES_OPENED]:
        schema = _read_schema(file, source) if left else None
        for text in list(left) if schema is not None else ():
            data_type = find_column_type(schema, parse_field_path(text))
            if data_type is not None:
                del left[text]
                found[column_name(text)] = _check_type(data_type, text, index, file)
    return found


def _read_schema(file: InputFile, source: SourceConfig) -> pa.Schema | None:
    """Return the columns of a file; None if it is damaged, which its reader reports."""
    try:
        with open_handle(file, source.storage_options) as handle:
            if source.format == "parquet":
                stored = pa.PythonFile(handle, "r")
                return pq.ParquetFile(stored, arrow_extensions_enabled=False).schema_arrow
            is_file = handle.read(len(ARROW_FILE_MAGIC)) == ARROW_FILE_MAGIC
            handle.seek(0)
            open_source = pa.ipc.open_file if is_file else pa.ipc.open_stream
            return open_source(pa.PythonFile(handle, "r")).schema
    except (pa.ArrowException, OSError, ValueError, DamagedFileError):
        return None


def _check_type(data_type: pa.DataType, text: str, index: int, file: InputFile) -> pa.DataType:
    data_type = unwrap_type(data_type)
    if pa.types.is_nested(data_type):
        raise ConfigError(
            "A column with values inside cannot be kept.",
            expected="a column of texts, numbers, truth values or times",
            found=f"{text}: {data_type}",
            where=f"input[{index}].keep_columns, {file.url}",
            hint="Name a field inside it, as in meta.url.",
        )
    return _kept_type(data_type)


def _kept_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type in which a column is kept: all texts, and all bytes, have one type."""
    if pa.types.is_dictionary(data_type):
        data_type = data_type.value_type
    if _is_string(data_type):
        return pa.string()
    return pa.binary() if is_text(data_type) else data_type


def _is_string(data_type: pa.DataType) -> bool:
    if pa.types.is_dictionary(data_type):
        data_type = data_type.value_type
    return bool(
        pa.types.is_string(data_type)
        or pa.types.is_large_string(data_type)
        or pa.types.is_string_view(data_type)
        or pa.types.is_null(data_type)
    )
