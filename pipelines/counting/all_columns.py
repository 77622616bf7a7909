"""Shards of counts with all of their columns: counts by group, and numbers of documents."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from bpe_core.counts import PretokenCounts
from pipelines.manifest.models import CountsManifest
from pipelines.storage.directory import Directory
from pipelines.storage.parquet import listed_bytes

_OF_SHARD = (b"bpe.shard", b"bpe.totals")


def open_shards(directory: Directory, manifest: CountsManifest) -> Iterator[pq.ParquetFile]:
    """Yield the shards that a manifest lists, each in memory and compared with its entry.

    Raises:
        OutputError: A shard is missing or damaged.
    """
    for shard in manifest.shards:
        data = listed_bytes(
            directory,
            shard.name,
            size=shard.bytes,
            xxh3_128=shard.xxh3_128,
            what="A shard of the counts",
            hint="Count again: `beam-bpe count CONFIG --restart`.",
        )
        yield pq.ParquetFile(pa.BufferReader(data))


def load_all_columns(directory: Directory, manifest: CountsManifest) -> PretokenCounts:
    """Load counts with their groups and documents, if there are any.

    Raises:
        OutputError: A shard is missing or damaged.
    """
    tables = [file.read() for file in open_shards(directory, manifest)]
    metadata = dict(tables[0].schema.metadata or {})
    for key in _OF_SHARD:
        metadata.pop(key, None)
    table = pa.concat_tables([table.replace_schema_metadata(metadata) for table in tables])
    return PretokenCounts.from_arrow(table)
