"""The peer of `beam-bpe encode`: gigatoken and pyarrow, encoding and writing at the same time.

Usage: encode_to_parquet.py TOKENIZER_JSON TEXT OUTPUT
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import awkward as ak
import gigatoken
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SEPARATOR = b"<|endoftext|>"
PIECE_BYTES = 16 << 20
IDS = pa.list_(pa.field("element", pa.uint16(), nullable=False))
SCHEMA = pa.schema([pa.field("input_ids", IDS), pa.field("num_tokens", pa.int32())])


def pieces(path: Path) -> Iterator[bytes]:
    """The text in pieces that end with a separator."""
    rest = b""
    with path.open("rb") as file:
        while block := file.read(PIECE_BYTES):
            text = rest + block
            cut = text.rfind(SEPARATOR)
            if cut < 0:
                rest = text
                continue
            yield text[: cut + len(SEPARATOR)]
            rest = text[cut + len(SEPARATOR) :]
    if rest:
        yield rest


def to_table(encoded: ak.Array) -> pa.Table:
    lengths = ak.to_numpy(ak.num(encoded)).astype(np.int32)
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    ids = ak.to_numpy(ak.flatten(encoded)).astype(np.uint16)
    column = pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids), type=IDS)
    return pa.table([column, pa.array(lengths)], schema=SCHEMA)


def main(tokenizer_path: str, text: str, output: str) -> None:
    tokenizer = gigatoken.Tokenizer(tokenizer_path)
    with (
        pq.ParquetWriter(
            output,
            SCHEMA,
            compression="zstd",
            compression_level=1,
            use_dictionary=False,
            use_byte_stream_split=["input_ids.list.element"],
            write_statistics=False,
        ) as writer,
        ThreadPoolExecutor(1) as pool,  # a row group is written while the next piece is encoded
    ):
        written: Future[None] | None = None
        for piece in pieces(Path(text)):
            source = gigatoken.BytesSource(piece, separator=SEPARATOR)
            table = to_table(tokenizer.encode_batch(source, parallel=True))
            if written is not None:
                written.result()
            written = pool.submit(writer.write_table, table)
        if written is not None:
            written.result()


if __name__ == "__main__":
    main(*sys.argv[1:])
