"""The columns of token files."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

ID_TYPES: Final = {"uint16": pa.uint16(), "uint32": pa.uint32()}


def schema(id_type: str, *, record_ids: bool = False, kept: pa.Schema | None = None) -> pa.Schema:
    """Return the columns of a token file.

    input_ids: list of uint16 or uint32; num_tokens: its length, with prepended and appended ids;
    num_bytes: bytes of the source text; source: name of source and file; offset: first byte of the
    document in the decompressed file, or number of the row; part: number of the piece of a long
    document; id: the record's own id, if sources have ids; kept: columns of records that are kept.
    """
    ids = pa.list_(pa.field("element", ID_TYPES[id_type], nullable=False))
    return pa.schema(
        [
            pa.field("input_ids", ids, nullable=False),
            pa.field("num_tokens", pa.int32(), nullable=False),
            pa.field("num_bytes", pa.int64(), nullable=False),
            pa.field("source", pa.dictionary(pa.int32(), pa.string()), nullable=False),
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("part", pa.int32(), nullable=False),
            *([pa.field("id", pa.string())] if record_ids else []),
            *(kept or ()),
        ]
    )
