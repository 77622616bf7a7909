"""The columns of token files."""

from __future__ import annotations

import pyarrow as pa


def schema(id_type: str, *, record_ids: bool = False) -> pa.Schema:
    """The columns of a token file.

    input_ids: list of uint16 or uint32; num_tokens: with what was prepended and appended;
    num_bytes: of the source text; source: name of source and file; offset: first byte of the
    document in the decompressed file, or number of the row; part: number of the piece of a long
    document; id: the record's own, if sources have ids.
    """
    ids = pa.uint16() if id_type == "uint16" else pa.uint32()
    return pa.schema(
        [
            pa.field(
                "input_ids", pa.list_(pa.field("element", ids, nullable=False)), nullable=False
            ),
            pa.field("num_tokens", pa.int32(), nullable=False),
            pa.field("num_bytes", pa.int64(), nullable=False),
            pa.field("source", pa.dictionary(pa.int32(), pa.string()), nullable=False),
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("part", pa.int32(), nullable=False),
            *([pa.field("id", pa.string())] if record_ids else []),
        ]
    )
