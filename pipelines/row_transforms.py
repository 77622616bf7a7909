"""The transforms over rows with a schema, for Beam YAML and for SDKs of other languages.

Parameters are text, numbers, lists and mappings, and elements are rows, so the other side needs to
know nothing of Python. The transforms of the same names in `pipelines.transforms`, which are for
pipelines in Python, do the work.

Rejected documents go to the output that `error_handling` names, as rows of `REJECT_ROW`. Without
it, the first rejected document makes the pipeline fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields
from types import UnionType
from typing import (
    Any,
    ClassVar,
    Final,
    ForwardRef,
    Literal,
    Optional,
    Union,
    get_origin,
    get_type_hints,
)

import apache_beam as beam
import numpy as np
from apache_beam.typehints import typehints
from apache_beam.typehints.row_type import RowTypeConstraint

from pipelines import transforms
from pipelines.batches import DocumentBatch
from pipelines.beam.elements import DocumentFn, check_element_type, element_options
from pipelines.beam.parameters import check_values
from pipelines.beam.rows import REJECT_ROW, reject_row
from pipelines.config import SourceConfig
from pipelines.config.validation import did_you_mean
from pipelines.config.yaml_document import describe_value
from pipelines.errors import ConfigError, InputError

# Names that other SDKs and Beam YAML may use.
TRANSFORMS: Final = ("CountPretokens", "EncodeDocuments", "ReadDocuments", "WriteTokenShards")

__all__ = ["DOCUMENT_ROW", "TRANSFORMS", *TRANSFORMS]

# A document: its text, and where it is from as in the columns of token files.
DOCUMENT_ROW: Final = RowTypeConstraint.from_fields(
    [
        ("text", str),
        ("source", str),
        ("offset", int),
        ("id", Optional[str]),  # noqa: UP045  Beam does not know the other form
    ]
)
# Name of the output beside that of errors, the same as in Beam YAML's own transforms.
MAIN: Final = "good"
# With this pattern no document is cut into pieces, since it has no safe place to cut at.
_WHOLE: Final = "none"
InvalidUtf8 = Literal["reject", "replace", "error"]
_PLACE_FIELDS: Final = ("source", "offset")
_WHOLE_NUMBERS: Final = (int, np.integer)


class ReadDocuments(beam.PTransform):  # type: ignore[misc]
    """Files → rows of `DOCUMENT_ROW`, one for each document.

    No document is cut into pieces. Those above `max_document_bytes` are rejected.

    Args:
        error_handling: A mapping with the key `output`, the name of the output with rejects.
        source: The keys of one source of the configuration: `files`, `format`, `separator`, …
            Relative paths are relative to the directory where the pipeline is built.

    Raises:
        ConfigError: A key or a value is wrong.

    Example:
        >>> rows = beam.Pipeline() | ReadDocuments(files=["examples/data/kjv-00.txt"])
        >>> [name for name, _ in rows.element_type._fields]
        ['text', 'source', 'offset', 'id']
    """

    def __init__(self, *, error_handling: Any = None, **source: Any) -> None:
        super().__init__()
        values = {key: _to_plain(value) for key, value in source.items()}
        self._source = check_values(SourceConfig, values, "ReadDocuments")
        self._rejects_output = _read_error_handling(error_handling)

    def expand(self, begin: beam.pvalue.PBegin) -> Any:
        batches = begin | "Read" >> transforms.ReadDocuments(sources=[self._source], pattern=_WHOLE)
        read = batches | "Rows" >> beam.ParDo(_MakeRows()).with_output_types(
            DOCUMENT_ROW, rejects=REJECT_ROW
        ).with_outputs("rejects", main=MAIN)
        return _outputs(read[MAIN], read.rejects, self._rejects_output)


class _DocumentTransform(beam.PTransform):  # type: ignore[misc]
    """A transform of rows with text, made from one of Python that takes batches.

    Attributes:
        _transform: The transform of Python.
        _given: Parameters of it that have a fixed value here.
    """

    _transform: ClassVar[type[Any]]
    _given: ClassVar[Mapping[str, Any]] = {}

    def __init__(
        self,
        *,
        text_field: str = "text",
        id_field: str | None = None,
        invalid_utf8: InvalidUtf8 = "reject",
        error_handling: Any = None,
        **parameters: Any,
    ) -> None:
        super().__init__()
        self._batches = _Batches(text_field, id_field, invalid_utf8)
        self._work = _make_transform(
            self._transform, parameters, invalid_utf8=invalid_utf8, **self._given
        )
        self._rejects_output = _read_error_handling(error_handling)


class EncodeDocuments(_DocumentTransform):
    """Rows with text → rows (input_ids, num_tokens, num_bytes, source, offset, part, id, hash).

    Rows that have the fields `source` (text) and `offset` (a whole number), as those of
    `ReadDocuments`, keep them.

    Args:
        text_field: Field that is the text, as text or bytes.
        id_field: Field that is the document's own id. None: `id`, if rows have it as text or a
            whole number.
        invalid_utf8: "reject", "replace" or "error", for bytes.
        error_handling: See `ReadDocuments`.
        parameters: The other parameters of `pipelines.transforms.EncodeDocuments`: `tokenizer`,
            `prepend`, `append`, `special_tokens_in_text`, `storage_options`.

    Raises:
        ConfigError: A value is wrong, or rows lack a field.
    """

    _transform = transforms.EncodeDocuments
    _given: ClassVar = {"as_rows": True}

    def expand(self, rows: beam.PCollection[Any]) -> Any:
        encoded = rows | "Batches" >> self._batches | "Encode" >> self._work
        return _outputs(encoded.tokens, encoded.rejects, self._rejects_output)


class CountPretokens(_DocumentTransform):
    """Rows with text → files of counts, and a row for each of them.

    Args:
        text_field, id_field, invalid_utf8, error_handling: See `EncodeDocuments`.
        parameters: The other parameters of `pipelines.transforms.CountPretokens`: `output`,
            `pattern`, `special_tokens`, `shards`, …

    Raises:
        ConfigError: A value is wrong, or rows lack a field.
    """

    _transform = transforms.CountPretokens

    def expand(self, rows: beam.PCollection[Any]) -> Any:
        counted = rows | "Batches" >> self._batches | "Count" >> self._work
        rejects = counted.rejects | "Rejects" >> beam.Map(reject_row).with_output_types(REJECT_ROW)
        return _outputs(counted.shards, rejects, self._rejects_output)


class WriteTokenShards(beam.PTransform):  # type: ignore[misc]
    """Rows of `EncodeDocuments` → token files, and a row for each of them.

    Args:
        parameters: Those of `pipelines.transforms.WriteTokenShards`: `output`, `num_shards`, …
    """

    def __init__(self, **parameters: Any) -> None:
        super().__init__()
        self._write = _make_transform(transforms.WriteTokenShards, parameters)

    def expand(self, rows: beam.PCollection[Any]) -> beam.PCollection[beam.Row]:
        return rows | "Write" >> self._write


class _Batches(beam.PTransform):  # type: ignore[misc]
    """Rows → batches of whole documents, which keep source and offset."""

    def __init__(self, text_field: str, id_field: str | None, invalid_utf8: InvalidUtf8) -> None:
        super().__init__()
        self._text_field = text_field
        self._id_field = id_field
        self._invalid_utf8 = invalid_utf8

    def expand(self, rows: beam.PCollection[Any]) -> beam.PCollection[DocumentBatch]:
        found = _fields_of(rows.element_type)
        is_id = found.get("id") is Any or _is_one_of(found.get("id"), str, *_WHOLE_NUMBERS)
        id_field = self._id_field or ("id" if is_id else None)
        check_element_type(rows.element_type, self._text_field, id_field)
        # A user's own columns may have these names, too.
        source, offset = map(found.get, _PLACE_FIELDS)
        is_place = _is_one_of(source, str) and _is_one_of(offset, *_WHOLE_NUMBERS)
        place_fields = _PLACE_FIELDS if is_place else None
        make = _MakeBatches(self._text_field, id_field, place_fields, self._invalid_utf8)
        return rows | "Make" >> beam.ParDo(make).with_output_types(DocumentBatch)


def _make_transform(transform: type[Any], parameters: Mapping[str, Any], **given: Any) -> Any:
    """Return a transform of Python with the parameters of one over rows.

    Args:
        transform: The transform of Python.
        parameters: The parameters.
        given: Parameters that no user may set.
    """
    attributes = fields(transform)
    known = [field.name for field in attributes if field.name not in given]
    own = ["error_handling", "id_field", "invalid_utf8", "text_field"]
    named = sorted({*known, *own}) if "invalid_utf8" in given else known
    for name in parameters:
        if name not in known:
            raise ConfigError(
                f"{transform.__name__} has no such parameter.",
                expected="one of " + ", ".join(named),
                found=name,
                hint=did_you_mean(name, named),
            )
    for field in attributes:
        if field.name in known and field.name not in parameters and _is_needed(field):
            raise ConfigError(
                f"{transform.__name__} lacks a parameter.",
                expected=f"{field.name}: it has no default",
                found="none of this name",
            )
    return transform(**_to_plain(parameters), **given)


def _is_needed(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _read_error_handling(error_handling: Any) -> str | None:
    if error_handling is None:
        return None
    values = _to_plain(error_handling)
    name = values.get("output") if isinstance(values, dict) and len(values) == 1 else None
    if not isinstance(name, str) or not name or name == MAIN:
        raise ConfigError(
            "error_handling",
            expected="a mapping with the one key `output`, the name of the output with rejects, "
            f"other than {MAIN}",
            found=describe_value(values),
        )
    return name


def _to_plain(value: Any) -> Any:
    """Return a value with dicts in place of mappings, which other SDKs send as rows."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(key): _to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(item) for item in value]
    return value


def _is_one_of(kind: Any, *types: type) -> bool:
    """Return whether the type of a field, null apart, is one of these."""
    if isinstance(kind, typehints.UnionConstraint):
        kinds = [each for each in kind.union_types if each is not type(None)]
        return bool(kinds) and all(_is_one_of(each, *types) for each in kinds)
    if get_origin(kind) in (Union, UnionType):
        return _is_one_of(typehints.normalize(kind), *types)
    return isinstance(kind, type) and kind is not bool and issubclass(kind, types)


def _fields_of(kind: Any) -> Mapping[str, Any]:
    row = kind if isinstance(kind, RowTypeConstraint) else RowTypeConstraint.from_user_type(kind)
    if row is None:
        raise ConfigError(
            "Elements of this PCollection are not rows with a schema.",
            expected="rows whose fields and types are known",
            found=str(kind),
            where="the input of the transform",
            hint="Put a transform before it that returns rows, such as MapToFields.",
        )
    found = dict(row._fields)
    # Classes of a module with `from __future__ import annotations` have only the names of types.
    if any(isinstance(field, ForwardRef) for field in found.values()):
        found |= get_type_hints(row.user_type)
    return found


def _outputs(
    rows: beam.PCollection[Any], rejects: beam.PCollection[Any], name: str | None
) -> beam.PCollection[Any] | dict[str, beam.PCollection[Any]]:
    """Return the rows alone, or rows and rejects by name, as Beam YAML expects outputs."""
    if name is None:
        _ = rejects | "Refuse" >> beam.Map(_refuse)
        return rows
    return {MAIN: rows, name: rejects}


def _refuse(reject: Any) -> None:
    raise InputError(
        f"A document is rejected: {reject.message}.",
        expected="no rejects, since error_handling names no output for them",
        found=f"reason {reject.reason}, {reject.length:,} bytes",
        where=f"{reject.source}, document at offset {reject.offset:,}",
        hint="Fix the document, or set error_handling with `output: rejects` and write that "
        "output.",
    )


class _MakeRows(beam.DoFn):  # type: ignore[misc]
    def process(self, batch: DocumentBatch) -> Iterator[Any]:
        for reject in batch.rejects:
            yield beam.pvalue.TaggedOutput("rejects", reject_row(reject))
        ids = [None] * len(batch) if batch.ids is None else batch.ids.to_pylist()
        texts, offsets = batch.documents(), batch.offsets.tolist()
        for text, offset, record_id in zip(texts, offsets, ids, strict=True):
            yield beam.Row(text=text.decode(), source=batch.source, offset=offset, id=record_id)


class _MakeBatches(DocumentFn):
    def __init__(
        self,
        text_field: str,
        id_field: str | None,
        place_fields: tuple[str, str] | None,
        invalid_utf8: InvalidUtf8,
    ) -> None:
        super().__init__(text_field, id_field, place_fields)
        self._invalid_utf8 = invalid_utf8

    def setup(self) -> None:
        super().setup()
        self.options = element_options(_WHOLE, (), invalid_utf8=self._invalid_utf8)

    def process_documents(self, batch: DocumentBatch) -> Iterator[DocumentBatch]:
        yield batch
