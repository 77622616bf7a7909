"""Beam coders for the values that users may shuffle; importing this module registers them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

import apache_beam as beam
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipelines.batches import DocumentBatch, Reject
from pipelines.writing.rows import TokenRows, encode_sources

_INT64S: Final = pa.list_(pa.int64())
_SCHEMA: Final = pa.schema(
    [
        ("data", pa.large_binary()),
        ("starts", _INT64S),
        ("ends", _INT64S),
        ("offsets", _INT64S),
        ("num_bytes", _INT64S),
        ("hashes", pa.list_(pa.uint64())),  # upper and lower halves alternate
        ("source", pa.string()),
        ("ids", pa.list_(pa.string())),
        ("part", pa.int32()),
        ("last", pa.bool_()),
        ("whole_bytes", pa.int64()),
        ("special_at", pa.int64()),
        ("cutting", pa.string()),
        ("empty", pa.int64()),
        ("framing_bytes", pa.int64()),
        ("not_selected", pa.int64()),
        ("not_selected_bytes", pa.int64()),
        ("rows", pa.int64()),
        (
            "rejects",
            pa.list_(
                pa.struct(
                    [
                        ("source", pa.string()),
                        ("offset", pa.int64()),
                        ("length", pa.int64()),
                        ("reason", pa.string()),
                        ("message", pa.string()),
                        ("first_bytes", pa.binary()),
                        ("id", pa.string()),
                    ]
                )
            ),
        ),
    ]
)
_ARRAYS: Final = ("starts", "ends", "offsets", "num_bytes", "hashes")
_VALUES: Final = (
    "source",
    "part",
    "last",
    "whole_bytes",
    "special_at",
    "cutting",
    "empty",
    "framing_bytes",
    "not_selected",
    "not_selected_bytes",
    "rows",
)
_LATIN_1: Final = "latin-1"


class DocumentBatchCoder(beam.coders.Coder):  # type: ignore[misc]
    """Coder of a DocumentBatch as an Arrow IPC stream of one row."""

    def encode(self, value: DocumentBatch) -> bytes:
        """Encode a batch. Keep only those bytes of `data` that the documents span."""
        return _to_stream(_to_arrow(value))

    def decode(self, encoded: bytes) -> DocumentBatch:
        """Decode a batch, whose arrays are views of `encoded`."""
        with pa.ipc.open_stream(encoded) as reader:
            return _from_arrow(reader.read_next_batch())

    def is_deterministic(self) -> bool:
        """Return True: equal batches have equal bytes."""
        return True

    def to_type_hint(self) -> type[DocumentBatch]:
        """Return the type of the values."""
        return DocumentBatch


class TokenRowsCoder(beam.coders.Coder):  # type: ignore[misc]
    """Coder of TokenRows as an Arrow IPC stream with one row for each of them."""

    def encode(self, value: TokenRows) -> bytes:
        """Encode rows."""
        first, last = int(value.offsets[0]), int(value.offsets[-1])
        ids = pa.array(value.ids[first:last])
        has_ids = value.record_ids is not None
        columns = {
            "ids": pa.LargeListArray.from_arrays(pa.array(value.offsets - first), ids),
            "num_bytes": pa.array(value.num_bytes),
            "positions": pa.array(value.positions),
            "upper": pa.array(np.ascontiguousarray(value.hashes[:, 0])),
            "lower": pa.array(np.ascontiguousarray(value.hashes[:, 1])),
            "parts": pa.array(value.parts),
            "sources": encode_sources([value.sources]),
            **({"record_ids": value.record_ids} if has_ids else {}),
        }
        return _to_stream(pa.RecordBatch.from_pydict(columns))

    def decode(self, encoded: bytes) -> TokenRows:
        """Decode rows, whose arrays are views of `encoded`."""
        with pa.ipc.open_stream(encoded) as reader:
            batch = reader.read_next_batch()
        columns = {name: batch.column(name) for name in batch.schema.names}
        return TokenRows(
            ids=columns["ids"].values.to_numpy(),
            offsets=columns["ids"].offsets.to_numpy(),
            num_bytes=columns["num_bytes"].to_numpy(),
            positions=columns["positions"].to_numpy(),
            hashes=np.stack([columns["upper"].to_numpy(), columns["lower"].to_numpy()], axis=1),
            parts=columns["parts"].to_numpy(),
            sources=columns["sources"],
            record_ids=columns.get("record_ids"),
        )

    def is_deterministic(self) -> bool:
        """Return True: equal rows have equal bytes."""
        return True

    def to_type_hint(self) -> type[TokenRows]:
        """Return the type of the values."""
        return TokenRows


class RejectCoder(beam.coders.Coder):  # type: ignore[misc]
    """Coder of a Reject as JSON."""

    def encode(self, value: Reject) -> bytes:
        """Encode a reject."""
        fields = asdict(value)
        return json.dumps({**fields, "first_bytes": value.first_bytes.decode(_LATIN_1)}).encode()

    def decode(self, encoded: bytes) -> Reject:
        """Decode a reject."""
        fields = json.loads(encoded)
        return Reject(**{**fields, "first_bytes": fields["first_bytes"].encode(_LATIN_1)})

    def is_deterministic(self) -> bool:
        """Return True: equal rejects have equal bytes."""
        return True

    def to_type_hint(self) -> type[Reject]:
        """Return the type of the values."""
        return Reject


beam.coders.registry.register_coder(DocumentBatch, DocumentBatchCoder)
beam.coders.registry.register_coder(TokenRows, TokenRowsCoder)
beam.coders.registry.register_coder(Reject, RejectCoder)


def _to_stream(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def _to_arrow(batch: DocumentBatch) -> pa.RecordBatch:
    """Return a batch as one row, with `data` trimmed to the documents."""
    first = int(batch.starts[0]) if len(batch) else 0
    end = int(batch.ends[-1]) if len(batch) else 0
    arrays: dict[str, NDArray[Any]] = {
        "starts": batch.starts - first,
        "ends": batch.ends - first,
        "offsets": batch.offsets,
        "num_bytes": batch.num_bytes,
        "hashes": batch.hashes.reshape(-1),
    }
    columns: dict[str, pa.Array[Any]] = {
        "data": pa.LargeBinaryArray.from_buffers(
            pa.large_binary(),
            1,
            [
                None,
                pa.py_buffer(np.array([0, end - first], np.int64).data),
                pa.py_buffer(batch.data[first:end].data),
            ],
        ),
        "rejects": pa.array(
            [[asdict(reject) for reject in batch.rejects]], _SCHEMA.field("rejects").type
        ),
    }
    for name, values in arrays.items():
        offsets = pa.array([0, len(values)], pa.int32())
        columns[name] = pa.ListArray.from_arrays(offsets, pa.array(values))
    columns["ids"] = (
        pa.nulls(1, _SCHEMA.field("ids").type)
        if batch.ids is None
        else pa.ListArray.from_arrays(pa.array([0, len(batch.ids)], pa.int32()), batch.ids)
    )
    for name in _VALUES:
        columns[name] = pa.array([getattr(batch, name)], _SCHEMA.field(name).type)
    return pa.RecordBatch.from_arrays([columns[name] for name in _SCHEMA.names], schema=_SCHEMA)


def _from_arrow(row: pa.RecordBatch) -> DocumentBatch:
    """Return the batch of a row. Its arrays are read-only views of the row."""
    values: dict[str, Any] = {name: row.column(name)[0] for name in _SCHEMA.names}
    arrays = {name: values[name].values.to_numpy() for name in _ARRAYS}
    rejects: Sequence[dict[str, Any]] = values["rejects"].as_py()
    return DocumentBatch(
        data=np.frombuffer(values["data"].as_buffer(), np.uint8),
        **{**arrays, "hashes": arrays["hashes"].reshape(-1, 2)},
        **{name: values[name].as_py() for name in _VALUES},
        ids=values["ids"].values,
        rejects=tuple(Reject(**reject) for reject in rejects),
    )
