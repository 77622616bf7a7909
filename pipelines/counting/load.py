"""Load counts for training, within the available memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from bpe_core.counts import PretokenCounts
from bpe_core.memory import available_memory, training_memory
from pipelines.counting.given import GivenCounts
from pipelines.errors import TooLargeError
from pipelines.manifest.entries import ShardRecord
from pipelines.storage.directory import Directory

# Metadata of a shard that describe the file, not the counts.
_OF_SHARD: Final = ("shard", "totals")
_FILE_METADATA: Final = frozenset({*_OF_SHARD, "format", "groups", "group_by"})
_COLUMNS: Final = ("pretoken", "count")


def load_counts(directory: Directory, manifest: Mapping[str, Any]) -> PretokenCounts:
    """Load the counts of a finished stage that its manifest lists, without groups and documents.

    Args:
        directory: Directory of the shards.
        manifest: Manifest of the stage.

    Raises:
        OutputError: A shard is missing or damaged.
        TooLargeError: Learning merges from these counts would need more memory than is available.
    """
    entries = tuple(ShardRecord.model_validate(entry).entry for entry in manifest["shards"])
    given = GivenCounts(
        directory=directory,
        names=tuple(entry.name for entry in entries),
        entries=entries,
        fingerprint=manifest["fingerprint"],
    )
    return Shards(given).join(group.read(_COLUMNS) for group in given.row_groups())


def load_all_columns(given: GivenCounts) -> PretokenCounts:
    """Load counts with their groups and documents, if there are any.

    Raises:
        OutputError: A shard is missing or damaged.
    """
    tables = [group.read().replace_schema_metadata(None) for group in given.row_groups()]
    if not tables:
        return given.empty
    metadata = {f"bpe.{k}": v for k, v in given.footer.items() if k not in _OF_SHARD}
    return PretokenCounts.from_arrow(pa.concat_tables(tables).replace_schema_metadata(metadata))


class Shards:
    """Counts to train from, whose rows are checked against the available memory.

    Attributes:
        given: The counts.
        metadata: How the text was counted.
        group_by: Field by which counts are kept apart, or None.
    """

    def __init__(self, given: GivenCounts) -> None:
        footer = given.footer
        self.given = given
        self.metadata = {key: text for key, text in footer.items() if key not in _FILE_METADATA}
        self.metadata["fingerprint"] = given.fingerprint or ""
        self.group_by = footer.get("group_by")
        self._available = available_memory()
        self._rows = self._key_bytes = self._more = 0

    def join(self, tables: Iterable[pa.Table]) -> PretokenCounts:
        """Return the rows of tables of pre-tokens and counts as counts.

        Raises:
            TooLargeError: Learning merges from them would need more memory than is available.
        """
        joined = []
        for table in tables:
            self.check_memory(table)
            joined.append(table.replace_schema_metadata(None))
        if not joined:
            return self.given.empty
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
            found=f"about {needed / 2**30:,.1f} GiB for the first {self._rows:,} pre-tokens",
            where="training, which is one process",
            hint="Raise tokenizer.min_count to leave out rare pre-tokens, or train on a machine "
            "with more memory: the counts are finished and will be used again.",
        )
