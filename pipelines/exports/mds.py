"""MosaicML Streaming's shards (MDS): a directory for each split with `index.json`.

A sample has one column, `tokens`: a one-dimensional NumPy array. It is a complete document or, with
`sequence_length`, that many ids of the split regardless of documents; then the last sample may be
shorter.

A shard contains (`MDSWriter` of `streaming`): the number of samples, the start of each and the end
of the last (uint32), a description of the columns as JSON, and the samples. A sample is the size of
the array in bytes (uint32), then the array: a byte in which 4 means one dimension and the remainder
is the width of the length; the length; the ids.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipelines.console import progress
from pipelines.dataset.reading import TokenDataset
from pipelines.errors import ConfigError
from pipelines.exports.files import ExportFiles, FormatOptions, IdStream, Written, write_array
from pipelines.storage.directory import HashingFile

_VERSION: Final = 2
_HASH: Final = "xxh3_128"
_ONE_DIMENSION: Final = 1 << 2
# Bytes of a sample's entry in the shard's table, and of the size before the sample.
_TABLE_BYTES: Final = 4
_SIZE_BYTES: Final = 4
_LARGEST: Final = 2**32 - 1
_BLOCK: Final = 1 << 16


def write_split(
    dataset: TokenDataset, split: str, files: ExportFiles, options: FormatOptions
) -> Written:
    """Write the shards of a split, then their index."""
    dtype = np.dtype(options["id_type"])
    columns: dict[str, Any] = {
        "version": _VERSION,
        "format": "mds",
        "compression": None,
        "hashes": [_HASH],
        "size_limit": options["shard_bytes"],
        "column_names": ["tokens"],
        "column_encodings": [f"ndarray:{dtype.name}"],
        "column_sizes": [None],
    }
    head = json.dumps(columns, sort_keys=True).encode()
    lengths = (
        dataset.document_lengths(split)
        if options["sequence_length"] is None
        else _equal_lengths(dataset.num_tokens(split), options["sequence_length"])
    )
    ids = IdStream(dataset, split, dtype)
    shards: list[dict[str, Any]] = []
    room = options["shard_bytes"] - 2 * _TABLE_BYTES - len(head)
    for number, samples in enumerate(_cut(lengths, dtype.itemsize, room)):
        name = f"shard.{number:05d}.mds"
        with files.write(f"{split}/{name}") as file:
            _write_shard(file, samples, ids, head)
        data = {"basename": name, "bytes": file.size, "hashes": {_HASH: file.hexdigest}}
        shards.append({**columns, "samples": len(samples), "raw_data": data, "zip_data": None})
    with files.write(f"{split}/index.json") as file:
        index = {"version": _VERSION, "shards": shards}
        file.write(json.dumps(index, sort_keys=True).encode())
    return ids.finish(samples=sum(shard["samples"] for shard in shards), shards=len(shards))


def _equal_lengths(tokens: int, length: int) -> Iterator[NDArray[np.int64]]:
    """Yield equal lengths of samples; only the last may be shorter."""
    whole, rest = divmod(tokens, length)
    for first in range(0, whole, _BLOCK):
        yield np.full(min(_BLOCK, whole - first), length, np.int64)
    yield np.array([rest] if rest else [], np.int64)


def _cut(
    lengths: Iterator[NDArray[np.int64]], id_bytes: int, room: int
) -> Iterator[NDArray[np.int64]]:
    """Yield the lengths of each shard's samples: as many as fit, and at least one."""
    pending = np.empty(0, np.int64)
    for block in lengths:
        pending = np.concatenate([pending, block])
        ends = np.cumsum(_sample_bytes(pending, id_bytes) + _TABLE_BYTES)
        first, before = 0, 0
        while first < len(pending) and ends[-1] - before > room:
            end = max(first + 1, int(np.searchsorted(ends, before + room, side="right")))
            yield pending[first:end]
            first, before = end, int(ends[end - 1])
        pending = pending[first:]
    if len(pending):
        yield pending


def _length_bytes(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many bytes the length of an array needs: 1, 2 or 4."""
    return np.where(lengths < 1 << 8, 1, np.where(lengths < 1 << 16, 2, 4))


def _sample_bytes(lengths: NDArray[np.int64], id_bytes: int) -> NDArray[np.int64]:
    return _SIZE_BYTES + 1 + _length_bytes(lengths) + lengths * id_bytes


def _write_shard(file: HashingFile, lengths: NDArray[np.int64], ids: IdStream, head: bytes) -> None:
    sizes = _sample_bytes(lengths, ids.dtype.itemsize)
    table = np.cumsum(np.concatenate([[0], sizes]))
    table += _TABLE_BYTES * (1 + len(table)) + len(head)
    if table[-1] > _LARGEST:
        raise ConfigError(
            "A shard would be larger than the format allows.",
            expected=f"at most {_LARGEST:,} bytes, and documents that fit",
            found=f"{int(table[-1]):,} bytes in {len(lengths):,} samples",
            hint="Set --shard-bytes lower, or cut the ids into samples with --sequence-length.",
        )
    file.write(np.uint32(len(lengths)).tobytes())
    write_array(file, table.astype(np.uint32))
    file.write(head)
    headers = _headers(lengths, sizes)
    starts = np.cumsum(lengths) - lengths
    done = 0
    first = 0
    for chunk in ids.read(int(lengths.sum())):
        end = int(np.searchsorted(starts, done + len(chunk), side="left"))
        _write_samples(file, headers[first:end], starts[first:end] - done, chunk)
        done += len(chunk)
        first = end
        progress.advance(len(chunk))
    empty = np.empty(0, ids.dtype)  # for samples without ids after the last one with some
    _write_samples(file, headers[first:], starts[first:] - done, empty)


def _headers(lengths: NDArray[np.int64], sizes: NDArray[np.int64]) -> pa.Array:
    """Return the bytes before the ids of each sample."""
    widths = _length_bytes(lengths)
    fields = np.zeros(len(lengths), np.dtype([("size", "<u4"), ("shape", "u1"), ("length", "<u4")]))
    fields["size"] = sizes - _SIZE_BYTES
    fields["shape"] = _ONE_DIMENSION | widths >> 1  # 0, 1, 2: a byte, two, four
    fields["length"] = lengths
    rows = fields.view(np.uint8).reshape(len(lengths), fields.itemsize)
    # Numbers are little-endian, so a short length is the first bytes of a long one.
    data = rows[np.arange(fields.itemsize) < (_SIZE_BYTES + 1 + widths)[:, None]]
    offsets = np.concatenate([[0], np.cumsum(_SIZE_BYTES + 1 + widths)])
    return _binary(offsets, data)


def _write_samples(
    file: HashingFile, headers: pa.Array, starts: NDArray[np.int64], ids: NDArray[Any]
) -> None:
    """Write ids, with a header before each sample that starts in them."""
    # The ids before the first header belong to the sample before.
    before = pa.concat_arrays([pa.array([b""], pa.large_binary()), headers])
    offsets = np.concatenate([[0], starts, [len(ids)]]) * ids.itemsize
    bodies = _binary(offsets, np.ascontiguousarray(ids).view(np.uint8))
    joined = pc.binary_join_element_wise(before, bodies, pa.scalar(b"", pa.large_binary()))
    data = joined.buffers()[2]
    if data is not None and data.size:
        file.write(data)


def _binary(offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> pa.Array:
    """Return an array of bytes whose value i is data[offsets[i]:offsets[i + 1]]."""
    buffers = [None, pa.py_buffer(offsets.astype(np.int64)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
