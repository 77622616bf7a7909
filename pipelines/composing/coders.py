"""Coders for what is between EncodeDocuments and WriteTokenShards, for users who shuffle it.

Importing this module registers them.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Final

import apache_beam as beam
import numpy as np
import pyarrow as pa

from pipelines.batches import Reject
from pipelines.writing import TokenRows

_LATIN_1: Final = "latin-1"


class TokenRowsCoder(beam.coders.Coder):  # type: ignore[misc]
    """Codes TokenRows as an Arrow IPC stream: a row for each document."""

    def encode(self, value: TokenRows) -> bytes:
        """Bytes of the rows."""
        first, last = int(value.offsets[0]), int(value.offsets[-1])
        ids = pa.array(value.ids[first:last])
        lists = pa.LargeListArray.from_arrays(pa.array(value.offsets - first), ids)
        known = value.record_ids is not None
        record_ids = value.record_ids if known else pa.nulls(len(value), pa.string())
        batch = pa.RecordBatch.from_arrays(
            [
                lists,
                pa.array(value.num_bytes),
                pa.array(value.places),
                pa.array(np.ascontiguousarray(value.hashes[:, 0])),
                pa.array(np.ascontiguousarray(value.hashes[:, 1])),
                record_ids,
            ],
            names=["ids", "num_bytes", "places", "upper", "lower", "record_ids"],
        )
        shared = {"source": value.source, "part": str(value.part), "record_ids": str(int(known))}
        batch = batch.replace_schema_metadata(shared)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        encoded: bytes = sink.getvalue().to_pybytes()
        return encoded

    def decode(self, encoded: bytes) -> TokenRows:
        """The rows, with arrays that are views of `encoded`."""
        with pa.ipc.open_stream(encoded) as reader:
            batch = reader.read_next_batch()
        shared = batch.schema.metadata
        columns = {name: batch.column(name) for name in batch.schema.names}
        return TokenRows(
            ids=columns["ids"].values.to_numpy(),
            offsets=columns["ids"].offsets.to_numpy(),
            num_bytes=columns["num_bytes"].to_numpy(),
            places=columns["places"].to_numpy(),
            hashes=np.stack([columns["upper"].to_numpy(), columns["lower"].to_numpy()], axis=1),
            source=shared[b"source"].decode(),
            part=int(shared[b"part"]),
            record_ids=columns["record_ids"] if shared[b"record_ids"] == b"1" else None,
        )

    def is_deterministic(self) -> bool:
        """Equal rows have equal bytes."""
        return True

    def to_type_hint(self) -> type[TokenRows]:
        """What it codes."""
        return TokenRows


class RejectCoder(beam.coders.Coder):  # type: ignore[misc]
    """Codes a Reject as JSON."""

    def encode(self, value: Reject) -> bytes:
        """Bytes of the reject."""
        fields = asdict(value)
        return json.dumps({**fields, "first_bytes": value.first_bytes.decode(_LATIN_1)}).encode()

    def decode(self, encoded: bytes) -> Reject:
        """The reject."""
        fields = json.loads(encoded)
        return Reject(**{**fields, "first_bytes": fields["first_bytes"].encode(_LATIN_1)})

    def is_deterministic(self) -> bool:
        """Equal rejects have equal bytes."""
        return True

    def to_type_hint(self) -> type[Reject]:
        """What it codes."""
        return Reject


beam.coders.registry.register_coder(TokenRows, TokenRowsCoder)
beam.coders.registry.register_coder(Reject, RejectCoder)
