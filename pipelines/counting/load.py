"""Load shards of counts for training, within the available memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bpe_core.counts import PretokenCounts
from bpe_core.memory import available_memory, training_memory
from pipelines.errors import InputError, TooLargeError
from pipelines.manifest.entries import ShardRecord
from pipelines.manifest.models import CountsManifest
from pipelines.manifest.names import MANIFEST
from pipelines.manifest.stage import COUNT
from pipelines.manifest.stage_records import load_manifest
from pipelines.storage.directory import Directory
from pipelines.storage.parquet import listed_bytes

# Metadata of a shard that describe the file, not the counts.
_OF_SHARD: Final = (b"bpe.shard", b"bpe.totals")
_FILE_METADATA: Final = (*_OF_SHARD, b"bpe.format", b"bpe.groups", b"bpe.group_by")
_COLUMNS: Final = ["pretoken", "count"]


def find_counts(root: Directory) -> CountsManifest:
    """Return the manifest of the counts of an output.

    Raises:
        InputError: There are no finished counts.
        OutputError: The manifest is damaged.
    """
    manifest = load_manifest(COUNT, root / COUNT.directory)
    if manifest is None:
        raise InputError(
            "There are no counts.",
            expected="the finished counts of a build",
            found=f"no {COUNT.directory}/{MANIFEST}",
            where=root.url,
            hint="Count the corpus: `beam-bpe count CONFIG`; a build with tokenizer.path has no "
            "counts, and one with counts.path uses those of another output.",
        )
    return manifest


def load_counts(directory: Directory, manifest: Mapping[str, Any]) -> PretokenCounts:
    """Load the counts of a finished stage that its manifest lists, without groups and documents.

    Args:
        directory: Directory of the shards.
        manifest: Manifest of the stage.

    Raises:
        OutputError: A shard is missing or damaged.
        TooLargeError: Learning merges from these counts would need more memory than is available.
    """
    shards = Shards(directory, manifest)
    return shards.join(file.read(_COLUMNS) for file in shards)


def load_all_columns(directory: Directory, manifest: CountsManifest) -> PretokenCounts:
    """Load the counts of a finished stage with their groups and documents, if there are any.

    Raises:
        OutputError: A shard is missing or damaged.
    """
    shards = Shards(directory, manifest.to_json("shards", "fingerprint"))
    tables = [table for file in shards for table in _read_row_groups(file)]
    metadata = dict(tables[0].schema.metadata or {})
    for key in _OF_SHARD:
        metadata.pop(key, None)
    table = pa.concat_tables([table.replace_schema_metadata(metadata) for table in tables])
    return PretokenCounts.from_arrow(table)


def _read_row_groups(file: pq.ParquetFile) -> Iterator[pa.Table]:
    """Yield the row groups of a shard; an empty table if it has none."""
    # pyarrow cannot read the dictionaries of several row groups inside lists together.
    for number in range(file.num_row_groups):
        yield file.read_row_group(number)
    if not file.num_row_groups:
        yield file.read()


class Shards:
    """Shards of counts that a manifest lists, read one by one, as often as needed.

    Attributes:
        metadata: How the text was counted; known once the first shard is read.
        group_by: Field by which counts are kept apart, or None; likewise.
    """

    def __init__(self, directory: Directory, manifest: Mapping[str, Any]) -> None:
        self.metadata: dict[str, str] = {}
        self.group_by: str | None = None
        self._directory = directory
        self._manifest = manifest
        self._available = available_memory()
        self._rows = self._key_bytes = self._more = self._read = 0

    def __iter__(self) -> Iterator[pq.ParquetFile]:
        """Yield the shards.

        Raises:
            OutputError: A shard is missing or damaged.
        """
        self._read = 0
        for entry in self._manifest["shards"]:
            shard = ShardRecord.model_validate(entry)
            data = listed_bytes(
                self._directory,
                shard.name,
                size=shard.bytes,
                xxh3_128=shard.xxh3_128,
                what="A shard of the counts",
                hint="Count again: `beam-bpe count CONFIG --restart`.",
            )
            self._read += 1
            file = pq.ParquetFile(pa.BufferReader(data))
            self._keep_metadata(file.schema_arrow.metadata or {})
            yield file

    def join(self, tables: Iterable[pa.Table]) -> PretokenCounts:
        """Return the rows of tables of pre-tokens and counts, one of each shard, as counts.

        Raises:
            TooLargeError: Learning merges from them would need more memory than is available.
        """
        joined = []
        for table in tables:
            self.check_memory(table)
            joined.append(table.replace_schema_metadata(None))
        return PretokenCounts(pa.concat_tables(joined), self.metadata)

    def check_memory(self, table: pa.Table, more: int = 0) -> None:
        """Check that learning merges from these rows, and from those before, is possible.

        Args:
            table: Rows with pre-tokens.
            more: Bytes that training needs in addition.

        Raises:
            TooLargeError: It would need more memory than is available.
        """
        self._rows += table.num_rows
        self._key_bytes += pc.sum(pc.binary_length(table["pretoken"])).as_py() or 0
        self._more += more
        needed = training_memory(self._rows, self._key_bytes) + self._more
        if self._available is None or needed <= self._available:
            return
        raise TooLargeError(
            "Learning merges from these counts would need more memory than is available.",
            expected=f"at most {self._available / 2**30:,.1f} GiB, the memory available",
            found=f"about {needed / 2**30:,.1f} GiB for the {self._rows:,} pre-tokens of the first "
            f"{self._read} of {len(self._manifest['shards'])} shards",
            where="training, which is one process",
            hint="Raise tokenizer.min_count to leave out rare pre-tokens, or train on a machine "
            "with more memory: the counts are finished and will be used again.",
        )

    def _keep_metadata(self, found: Mapping[bytes, bytes]) -> None:
        self.metadata = {
            key.decode().removeprefix("bpe."): value.decode()
            for key, value in found.items()
            if key not in _FILE_METADATA
        }
        self.metadata["fingerprint"] = self._manifest["fingerprint"]
        group_by = found.get(b"bpe.group_by")
        self.group_by = None if group_by is None else group_by.decode()
