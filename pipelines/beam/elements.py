"""Conversion of the elements of a user's pipeline to batches of documents.

Documents may come as `DocumentBatch`, as `str` or `bytes`, or as records: `beam.Row`, a NamedTuple
or a dict. Small elements are gathered into batches of a few MB, so that the only work in Python for
each of them is to append it to a list.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import is_dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.typehints import typehints
from apache_beam.typehints.row_type import RowTypeConstraint
from apache_beam.utils.windowed_value import WindowedValue

from bpe_core._native import Splitter
from pipelines.batches import DocumentBatch, Reject
from pipelines.beam.dofn import VersionCheckedDoFn
from pipelines.config import SourceConfig
from pipelines.errors import ConfigError, InputError
from pipelines.readers.documents import BatchMaker, Texts
from pipelines.readers.options import ReadOptions, find_different_rules
from pipelines.readers.tasks import source_readings
from pipelines.rejects.reasons import MISSING_FIELD, NULL_FIELD, WRONG_FIELD_TYPE
from pipelines.tasks.listing import InputFile

_BATCH_BYTES: Final = 2 << 20
_BATCH_ELEMENTS: Final = 1 << 16
# Limit of the gathered elements of a bundle, all its windows together.
_HELD_BYTES: Final = 64 << 20
_HELD_WINDOWS: Final = 1000
# Approximate overhead of an element in memory, besides its text.
_ELEMENT_BYTES: Final = 512
_HEAD_SHOWN: Final = 32
_KINDS: Final = "DocumentBatch, str, bytes, beam.Row, a NamedTuple or a dict"

_OPEN_HINTS: Final = (
    typehints.DictConstraint,
    typehints.UnionConstraint,
    typehints.TypeVariable,
)

# Elements have no file; only the document's own id shows its origin.
_NO_FILE: Final = InputFile(
    source=0, source_name=None, url="", name="", size=0, version_tag="", compression=None
)

# Returns an element's text and id. If the text is None, the second value is the document's reject.
_Values = Callable[[Any], tuple[Any, Any]]


def element_options(
    pattern: str,
    special_tokens: Sequence[str],
    *,
    token_flags: Mapping[str, Collection[str]] | None = None,
    normalizer: str | None = None,
    normalize_quotes: bool = False,
    splitter: Splitter | None = None,
    after_special: bool = True,
    invalid_utf8: str = "reject",
) -> ReadOptions:
    """Return the options for documents that are elements, as for records of files."""
    source = SourceConfig.model_validate(
        {"files": ["elements"], "format": "jsonl", "invalid_utf8": invalid_utf8}
    )
    (reading,) = source_readings(
        [source],
        pattern,
        special_tokens,
        token_flags=token_flags,
        normalizer=normalizer,
        normalize_quotes=normalize_quotes,
        splitter=splitter,
        after_special=after_special,
    )
    return reading.options


class Elements:
    """Collector of elements into batches.

    Documents have the source "" and the offset 0. An element that is not valid UTF-8 or has no text
    is rejected, like a record of a file.

    Args:
        options: How documents are read (`element_options`).
        text_field: Field of records that contains the text.
        id_field: Field of records that contains the document's own id, or None.
        origin_fields: Fields of records that contain the document's source and offset, or None.
            The document keeps them.

    Example:
        >>> elements = Elements(element_options("gpt2", []), id_field="id")
        >>> elements.add({"text": "one", "id": 7}), elements.add(beam.Row(text=b"two", id="b"))
        (False, False)
        >>> (batch,) = elements.batches()
        >>> batch.document(1), batch.ids.to_pylist()
        (b'two', ['7', 'b'])
    """

    def __init__(
        self,
        options: ReadOptions,
        *,
        text_field: str = "text",
        id_field: str | None = None,
        origin_fields: tuple[str, str] | None = None,
    ) -> None:
        self._options = options
        self._maker = _ElementMaker(_NO_FILE, options)
        self._origin_of = None if origin_fields is None else attrgetter(*origin_fields)
        self._text_field = text_field
        self._id_field = id_field
        self._values: dict[type, _Values] = {}
        self._start()

    def _start(self) -> None:
        self._texts: list[bytes] = []
        self._ids: list[str | None] = []
        self._origins: list[tuple[str, int]] = []
        self._rejects: list[Reject] = []
        self._bytes = 0

    def add(self, element: Any) -> bool:
        """Add an element that is not a `DocumentBatch`. Return whether to call `batches` now.

        Raises:
            InputError: The element is of a type that cannot be a document.
        """
        kind = type(element)
        record_id = None
        if kind is not str and kind is not bytes:
            values = self._values.get(kind)
            if values is None:
                values = self._values[kind] = self._values_of(element)
            origin = ("", 0) if self._origin_of is None else self._origin_of(element)
            element, record_id = values(element)
            if element is None:
                reject = replace(record_id, source=origin[0] or "", offset=origin[1] or 0)
                self._rejects.append(reject)
                return len(self._rejects) >= _BATCH_ELEMENTS
            if self._origin_of is not None:
                self._origins.append((origin[0] or "", origin[1] or 0))
        if self._id_field is not None:
            self._ids.append(record_id)
        # Lone surrogates have no UTF-8 form; "surrogatepass" gives bytes that are rejected as
        # invalid.
        text = element if type(element) is bytes else element.encode("utf-8", "surrogatepass")
        self._texts.append(text)
        self._bytes += len(text)
        return self._bytes >= _BATCH_BYTES or len(self._texts) >= _BATCH_ELEMENTS

    @property
    def held(self) -> int:
        """Return about how many bytes of memory the gathered elements use."""
        return self._bytes + _ELEMENT_BYTES * (len(self._texts) + len(self._rejects))

    def batches(self) -> Iterator[DocumentBatch]:
        """Yield the elements added since the last call, with long documents in chunks."""
        texts, ids, origins, rejects = self._texts, self._ids, self._origins, self._rejects
        self._start()
        if self._origin_of is None:
            if texts or rejects:
                yield from self._maker.make_batches(self._to_texts(texts, ids), rejects=rejects)
            return
        # A batch has one source.
        order = sorted(range(len(texts)), key=origins.__getitem__)
        for source, same in groupby(order, key=lambda i: origins[i][0]):
            of_source = list(same)
            found = self._to_texts(
                [texts[i] for i in of_source],
                [ids[i] for i in of_source] if ids else (),
                [origins[i][1] for i in of_source],
            )
            maker = _ElementMaker(replace(_NO_FILE, name=source), self._options)
            yield from maker.make_batches(found)
        if rejects:
            yield from self._maker.make_batches(self._to_texts((), ()), rejects=rejects)

    def _to_texts(
        self, texts: Sequence[bytes], ids: Sequence[str | None], offsets: Sequence[int] = ()
    ) -> Texts:
        ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))
        return Texts(
            data=np.frombuffer(b"".join(texts), np.uint8),
            starts=np.concatenate([np.zeros(1, np.int64), ends[:-1]])[: len(texts)],
            ends=ends,
            offsets=np.array(offsets or [0] * len(texts), np.int64),
            ids=None if self._id_field is None else pa.array(ids, pa.string()),
        )

    def _values_of(self, element: Any) -> _Values:
        if isinstance(element, str | bytes):
            # A subclass. Its documents have no ids, like those of str and bytes themselves.
            return lambda text: (text if isinstance(text, str) else bytes(text), None)
        if isinstance(element, Mapping):
            return self._values_of_mapping
        if hasattr(element, "_fields"):
            # Without this check, a method of tuples such as `count` would pass for a field.
            if not set(self._fields) <= set(element._fields):
                raise _no_field(self._fields, element._asdict())
            return self._values_of_row
        if isinstance(element, beam.Row):
            return self._values_of_row
        raise InputError(
            "An element is not a document.",
            expected=_KINDS,
            found=type(element).__name__,
            where="the input of the transform",
            hint="Put a beam.Map before it that returns one of these.",
        )

    def _values_of_mapping(self, record: Mapping[str, Any]) -> tuple[Any, Any]:
        record_id = None if self._id_field is None else record.get(self._id_field)
        if self._text_field not in record:
            return self._rejected(MISSING_FIELD, "is missing", record_id)
        return self._checked(record[self._text_field], record_id)

    def _values_of_row(self, row: Any) -> tuple[Any, Any]:
        try:
            record_id = None if self._id_field is None else getattr(row, self._id_field)
            return self._checked(getattr(row, self._text_field), record_id)
        except AttributeError:
            raise _no_field(self._fields, row._asdict()) from None

    @property
    def _fields(self) -> tuple[str, ...]:
        return (self._text_field, *([] if self._id_field is None else [self._id_field]))

    def _checked(self, text: Any, record_id: Any) -> tuple[Any, Any]:
        if record_id is not None and type(record_id) is not str:
            if isinstance(record_id, bool) or not isinstance(record_id, int | np.integer | str):
                message = f"the id is {type(record_id).__name__}, neither text nor a whole number"
                return None, self._maker.reject(0, 0, WRONG_FIELD_TYPE, message)
            record_id = str(record_id)
        if record_id is not None and not _is_unicode(record_id):
            message = "the id is not valid Unicode: it has half a pair of surrogates"
            return None, self._maker.reject(0, 0, WRONG_FIELD_TYPE, message)
        if text is None:
            return self._rejected(NULL_FIELD, "is null", record_id)
        if not isinstance(text, str | bytes):
            found = f"is {type(text).__name__}, not text"
            return self._rejected(WRONG_FIELD_TYPE, found, record_id)
        return (text if isinstance(text, str) else bytes(text)), record_id

    def _rejected(self, reason: str, what: str, record_id: Any) -> tuple[None, Reject]:
        message = f"the field {self._text_field} {what}"
        known = None if record_id is None else str(record_id)
        return None, self._maker.reject(0, 0, reason, message, record_id=known)


def _is_unicode(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class _ElementMaker(BatchMaker):
    """BatchMaker whose errors name the element, since there is no file."""

    def where(self, offset: int, byte: int = 0) -> str:
        """Return the position of a byte in an unidentified element."""
        return f"an element of the pipeline, byte {byte:,}"

    def where_document(self, offset: int, byte: int, head: bytes, record_id: str | None) -> str:
        """Name the element that contains a byte, by its id or its first bytes."""
        if record_id is None:
            return f"an element that starts with {head[:_HEAD_SHOWN]!r}, byte {byte:,}"
        return f"the element with the id {record_id!r}, byte {byte:,}"


def check_element_type(kind: Any, text_field: str, id_field: str | None) -> None:
    """Check, as far as the type hint shows, that elements of this type can be documents.

    Raises:
        ConfigError: They cannot, or they are rows without these fields.
    """
    wanted = (text_field, *([] if id_field is None else [id_field]))
    check_hint(kind, (DocumentBatch, str, bytes), wanted, _KINDS)


def check_hint(kind: Any, types: Sequence[type], wanted: Sequence[str], expected: str) -> None:
    """Check that a type hint is one of these types, a record with these fields, or unspecific.

    Args:
        kind: The type hint.
        types: Types that elements may have.
        wanted: Fields that records must have.
        expected: What elements may be, for the message.

    Raises:
        ConfigError: It is another type, or a record that lacks a field.
    """
    row = kind if isinstance(kind, RowTypeConstraint) else RowTypeConstraint.from_user_type(kind)
    if is_dataclass(kind if row is None else row.user_type) and kind not in types:
        raise _unsupported_type(kind, expected)
    if row is not None:
        if not set(wanted) <= dict(row._fields).keys():
            raise _no_field(wanted, dict(row._fields))
        return
    if kind in (None, Any, typehints.Any, beam.Row, object) or isinstance(kind, _OPEN_HINTS):
        return  # the type is only known when elements arrive
    if isinstance(kind, type) and issubclass(kind, (*types, Mapping)):
        return
    raise _unsupported_type(kind, expected)


def _unsupported_type(kind: Any, expected: str) -> ConfigError:
    return ConfigError(
        "Elements of this PCollection are of an unsupported type.",
        expected=expected,
        found=getattr(kind, "__name__", str(kind)),
        where="the input of the transform",
        hint="Put a beam.Map before it that returns one of these, and declare its type with "
        "with_output_types.",
    )


def _no_field(wanted: Sequence[str], found: Mapping[str, Any]) -> ConfigError:
    return ConfigError(
        "Rows lack a field.",
        expected=" and ".join(map(repr, wanted)),
        found=", ".join(found),
        where="the input of the transform",
        hint="Add these fields, or give the names of existing fields (text_field, id_field).",
    )


class DocumentFn(VersionCheckedDoFn):
    """Base class of the DoFns over batches of documents, for every type of element.

    Elements are gathered within a bundle, separately for each window, up to a limit for all windows
    together. Subclasses implement `process_documents` and set `options` before the first element.

    A batch of complete documents may have been read for any tokenizer. Chunks of a long document
    must have been cut for the same one.

    Args:
        text_field, id_field, origin_fields: Fields of records; see `Elements`.

    Attributes:
        options: How documents are read.
        consumer: Name of the transform, for messages.
    """

    options: ReadOptions
    consumer: str = "the next transform"
    _elements: Elements  # of the last element's window

    def __init__(
        self,
        text_field: str,
        id_field: str | None,
        origin_fields: tuple[str, str] | None = None,
    ) -> None:
        super().__init__()
        self._fields: dict[str, Any] = {
            "text_field": text_field,
            "id_field": id_field,
            "origin_fields": origin_fields,
        }

    def process_documents(self, batch: DocumentBatch) -> Iterator[Any]:
        """Yield the outputs for a batch."""
        raise NotImplementedError

    def start_bundle(self) -> None:
        """Discard the elements that a failed bundle gathered."""
        self._clear()

    def process(self, element: Any, window: Any = beam.DoFn.WindowParam) -> Iterator[Any] | None:
        """Add an element. Yield outputs if a batch is complete."""
        if type(element) is DocumentBatch:
            if element.cutting and element.cutting != self.options.cutting:
                raise self._different_cutting(element)
            return self.process_documents(element)
        if window is not self._window:  # the global window is always the same object
            return self._process_in(window, element)
        elements = self._elements
        return self._outputs(elements) if elements.add(element) else None

    def finish_bundle(self) -> Iterator[Any]:
        """Yield the outputs for the remaining elements."""
        return self._outputs_of_all()

    def _clear(self) -> None:
        self._gathered: dict[Any, Elements] = {}
        self._window: Any = None
        self._held_elsewhere = 0  # bytes gathered in all windows but this one

    def _process_in(self, window: Any, element: Any) -> Iterator[Any] | None:
        """Add an element of another window. Empty all windows if the limit is reached."""
        if self._window is not None:
            self._held_elsewhere += self._elements.held
        elements = self._gathered.get(window)
        if elements is None:
            elements = self._gathered[window] = Elements(self.options, **self._fields)
        self._held_elsewhere -= elements.held
        self._window, self._elements = window, elements
        is_full = elements.add(element)
        held = self._held_elsewhere + elements.held
        if held > _HELD_BYTES or len(self._gathered) > _HELD_WINDOWS:
            return self._outputs_of_all()
        return self._outputs(elements) if is_full else None

    def _different_cutting(self, batch: DocumentBatch) -> InputError:
        names = find_different_rules(batch.cutting, self.options.cutting)
        return InputError(
            "A long document comes in chunks that were cut for another tokenizer.",
            expected=f"ReadDocuments with the {' and '.join(names)} of {self.consumer}",
            found=f"other settings, for a document of {batch.whole_bytes or 0:,} bytes",
            where=batch.where(0) if len(batch) else batch.source,
            hint="Give ReadDocuments the pattern, special_tokens, normalizer and normalize_quotes "
            f"of {self.consumer}.",
        )

    def _outputs_of_all(self) -> Iterator[Any]:
        gathered = self._gathered
        self._clear()
        for window, elements in gathered.items():
            for output in self._outputs(elements):
                yield _in_window(output, window)

    def _outputs(self, elements: Elements) -> Iterator[Any]:
        for batch in elements.batches():
            yield from self.process_documents(batch)


def _in_window(output: Any, window: Any) -> Any:
    if isinstance(output, beam.pvalue.TaggedOutput):
        return beam.pvalue.TaggedOutput(output.tag, _in_window(output.value, window))
    return WindowedValue(output, window.max_timestamp(), (window,))
