"""The peer of `beam-bpe encode`: gigatoken and pyarrow in two threads that encode and write.

Usage: encode_to_parquet.py TOKENIZER_JSON TEXT DIRECTORY

Each thread takes the next chunk of the text and writes to its own file. Slower alternatives that
were tried: encoding one chunk at a time on two threads while the previous chunk is written; a
process for each half of the text; chunks of 32 MiB and more, whose memory is allocated each time.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import awkward as ak
import gigatoken
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SEPARATOR = b"<|endoftext|>"
PIECE_BYTES = 8 << 20
THREADS = 2
IDS = pa.list_(pa.field("element", pa.uint16(), nullable=False))
SCHEMA = pa.schema(
    [
        pa.field("input_ids", IDS, nullable=False),
        pa.field("num_tokens", pa.int32(), nullable=False),
        pa.field("num_bytes", pa.int64(), nullable=False),
        pa.field("source", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("part", pa.int32(), nullable=False),
    ]
)


def pieces(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, text) of chunks of the text that end with a separator."""
    at = 0
    rest = b""
    with path.open("rb") as file:
        while block := file.read(PIECE_BYTES):
            text = rest + block
            end = text.rfind(SEPARATOR) + len(SEPARATOR)
            if end < len(SEPARATOR):
                rest = text
                continue
            yield at, text[:end]
            at += end
            rest = text[end:]
    if rest:
        yield at, rest


def places(text: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Return the starts and sizes of the documents that are not empty."""
    ends = [match.start() for match in re.finditer(re.escape(SEPARATOR), text)]
    if not text.endswith(SEPARATOR):
        ends.append(len(text))
    starts = np.array([0, *(end + len(SEPARATOR) for end in ends[:-1])])
    sizes = np.array(ends) - starts
    return starts[sizes > 0], sizes[sizes > 0]


def to_table(encoded: ak.Array, at: int, text: bytes, source: str) -> pa.Table:
    """Return a table with the columns that beam-bpe writes."""
    layout = ak.to_layout(encoded)  # gives access to the arrays without a copy
    offsets = np.asarray(layout.offsets.data)
    ids = np.asarray(layout.content.data)[: offsets[-1]].astype(np.uint16)
    starts, sizes = places(text)
    zeros = pa.array(np.zeros(len(starts), np.int32))
    columns = [
        pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(ids), type=IDS),
        pa.array(np.diff(offsets).astype(np.int32)),
        pa.array(sizes),
        pa.DictionaryArray.from_arrays(zeros, pa.array([source])),
        pa.array(starts + at),
        zeros,
    ]
    return pa.table(columns, schema=SCHEMA)


def main(tokenizer_path: str, text: str, directory: str) -> None:
    """Encode the text; each thread writes one file."""
    tokenizer = gigatoken.Tokenizer(tokenizer_path)
    path = Path(text)
    waiting = pieces(path)
    lock = threading.Lock()

    def work(number: int) -> None:
        with pq.ParquetWriter(
            f"{directory}/tokens-{number}.parquet",
            SCHEMA,
            compression="zstd",
            compression_level=1,
            use_dictionary=["source"],
            use_byte_stream_split=["input_ids.list.element"],
            write_statistics=False,
        ) as writer:
            while True:
                with lock:
                    piece = next(waiting, None)
                if piece is None:
                    return
                at, data = piece
                source = gigatoken.BytesSource(data, separator=SEPARATOR)
                encoded = tokenizer.encode_batch(source, parallel=False)
                writer.write_table(to_table(encoded, at, data, path.name))

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))


if __name__ == "__main__":
    main(*sys.argv[1:])
