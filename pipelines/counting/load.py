"""Load shards of counts for training, within the available memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bpe_core.counts import PretokenCounts
from bpe_core.memory import available_memory, training_memory
from pipelines.errors import TooLargeError
from pipelines.manifest.entries import ShardRecord
from pipelines.storage.directory import Directory
from pipelines.storage.parquet import listed_bytes

# Metadata of a shard that describe the file, not the counts.
_FILE_METADATA: Final = (b"bpe.shard", b"bpe.format", b"bpe.totals", b"bpe.groups", b"bpe.group_by")
_COLUMNS: Final = ["pretoken", "count"]


def load_counts(
    directory: Directory, manifest: Mapping[str, Any], *, min_count: int = 1
) -> PretokenCounts:
    """Load the counts of a finished stage that its manifest lists, without groups and documents.

    Args:
        directory: Directory of the shards.
        manifest: Manifest of the stage.
        min_count: Leave out pre-tokens that occur less often.

    Raises:
        OutputError: A shard is missing or damaged.
        TooLargeError: Learning merges from these counts would need more memory than is available.
    """
    tables = []
    rows = key_bytes = 0
    available = available_memory()
    for entry in manifest["shards"]:
        shard = ShardRecord.model_validate(entry)
        data = listed_bytes(
            directory,
            shard.name,
            size=shard.bytes,
            xxh3_128=shard.xxh3_128,
            what="A shard of the counts",
            hint="Count again: `beam-bpe count CONFIG --restart`.",
        )
        table = _read_shard(data, min_count)
        tables.append(table)
        rows += table.num_rows
        key_bytes += pc.sum(pc.binary_length(table["pretoken"])).as_py() or 0
        needed = training_memory(rows, key_bytes)
        if available is not None and needed > available:
            raise _too_large(rows, len(tables), manifest, needed, available)
    metadata = {
        key.decode().removeprefix("bpe."): value.decode()
        for key, value in (tables[0].schema.metadata or {}).items()
        if key not in _FILE_METADATA
    }
    table = pa.concat_tables(table.replace_schema_metadata(None) for table in tables)
    return PretokenCounts(table, {**metadata, "fingerprint": manifest["fingerprint"]})


def _read_shard(data: bytes, min_count: int) -> pa.Table:
    """Read a shard without its rare pre-tokens, at most a row group of which is in memory."""
    file = pq.ParquetFile(pa.BufferReader(data))
    batches = file.iter_batches(columns=_COLUMNS)
    if min_count > 1:
        batches = (batch.filter(pc.greater_equal(batch["count"], min_count)) for batch in batches)
    fields = [file.schema_arrow.field(name) for name in _COLUMNS]
    return pa.Table.from_batches(batches, pa.schema(fields, file.schema_arrow.metadata))


def _too_large(
    rows: int, shards: int, manifest: Mapping[str, Any], needed: int, available: int
) -> TooLargeError:
    return TooLargeError(
        "Learning merges from these counts would need more memory than is available.",
        expected=f"at most {available / 2**30:,.1f} GiB, the memory available",
        found=f"about {needed / 2**30:,.1f} GiB for the {rows:,} pre-tokens of the first {shards} "
        f"of {len(manifest['shards'])} shards",
        where="training, which is one process",
        hint="Raise tokenizer.min_count to leave out rare pre-tokens, or train on a machine with "
        "more memory: the counts are finished and will be used again.",
    )
