"""Load counts for training: without rare pre-tokens, mixed or by group, as configured.

Files are read row group by row group. A mixture takes two passes: the first finds the bytes of each
group that are left, the second applies the weights. Groups are in memory for one row group only,
unless training itself needs them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bpe_core.count_files import split_column
from bpe_core.count_groups import Group, GroupColumns, count_sources, entries_of_file
from bpe_core.counts import PretokenCounts
from bpe_core.errors import TrainingError
from bpe_core.mixtures import (
    Mixture,
    add_group_bytes,
    find_mixture,
    mix_counts,
    name_groups,
    sum_by_name,
)
from bpe_core.parity import ParityRules, check_ratios
from pipelines.config import TokenizerConfig
from pipelines.counting.given import GivenCounts, RowGroup
from pipelines.counting.load import Shards
from pipelines.errors import ConfigError

_ENTRY_BYTES: Final = 64  # a count of a group: in the columns, as they are joined, and in training


@dataclass(frozen=True, kw_only=True)
class TrainingCounts:
    """Counts to train from.

    Attributes:
        counts: The counts, without rare pre-tokens; mixed, if configured.
        mixture: Weights of the mixture, or None.
        parity: Rules of parity-aware training, or None.
    """

    counts: PretokenCounts
    mixture: Mixture | None = None
    parity: ParityRules | None = None


def load_training_counts(given: GivenCounts, config: TokenizerConfig) -> TrainingCounts:
    """Load counts as the rules of training select and weight them.

    Args:
        given: The counts.
        config: Configuration of the tokenizer.

    Raises:
        OutputError: A shard is missing or damaged.
        ConfigError: The groups of the counts are not those of the mixture.
        TooLargeError: Learning merges from these counts would need more memory than is available.
    """
    shards = Shards(given)
    try:
        if config.mixture is not None:
            return _load_mixture(shards, config)
        if config.parity is not None:
            return _load_groups(shards, config)
    except TrainingError as error:
        raise _misfit(config, error, given.url) from None
    with_groups = config.min_sources > 1
    rows = (_read_rows(group, config, with_groups=with_groups) for group in given.row_groups())
    return TrainingCounts(counts=shards.join(part.table for part in rows))


def check_groups(config: TokenizerConfig, sizes: Mapping[Group, int] | None, where: str) -> None:
    """Check that the groups of finished counts are those of the rules of training.

    Args:
        config: Configuration of the tokenizer.
        sizes: Bytes of each group, or None if counts are not kept apart.
        where: Place of the counts, for the error.

    Raises:
        ConfigError: They are not.
    """
    section = config.mixture or config.parity
    if sizes is None and (section is not None or config.min_sources > 1):
        raise _lacking("groups")
    if sizes is None or section is None:
        return
    try:
        development = None if config.parity is None else config.parity.development
        groups = [group for group, size in sizes.items() if size and group.source != development]
        names = name_groups(groups, section.by)
        if config.mixture is not None:
            by_name = sum_by_name(names, np.array([sizes[group] for group in groups], np.int64))
            find_mixture(by_name, config.mixture.shares, config.mixture.temperature)
        elif config.parity is not None:
            check_ratios(config.parity.ratios, sorted(set(names)))
    except TrainingError as error:
        raise _misfit(config, error, where) from None


def _misfit(config: TokenizerConfig, error: TrainingError, where: str) -> ConfigError:
    key = "mixture" if config.mixture is not None else "parity"
    return ConfigError(
        f"The groups of the counts do not fit tokenizer.{key}.",
        expected=f"tokenizer.{key} for the groups that were counted",
        found=str(error),
        where=where,
        hint=f"Change tokenizer.{key}. The counts stay as they are.",
    )


def _lacking(column: str) -> ConfigError:
    return ConfigError(
        "The rules of training need counts that the output does not have.",
        expected="counts of each source, which are kept apart in counts of several sources"
        if column == "groups"
        else "numbers of documents, which counts.document_frequency counts",
        found=f"counts without the column {column}, such as those of an earlier version",
        hint="Count again: `beam-bpe count CONFIG --restart`; those of counts.path with the "
        "configuration of their own output.",
    )


class _Rows(NamedTuple):
    """Rows of a row group: pre-tokens and counts, and the entries of their groups."""

    table: pa.Table
    groups: tuple[Group, ...]
    columns: GroupColumns

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(split_column(self.table["pretoken"])[1])


def _read_rows(group: RowGroup, config: TokenizerConfig, *, with_groups: bool) -> _Rows:
    """Return the pre-tokens of a row group that are in enough text, documents and sources."""
    names = ["pretoken", "count"]
    names += ["documents"] * (config.min_documents > 1) + ["groups"] * with_groups
    if missing := [name for name in names if name not in group.columns]:
        raise _lacking(missing[0])
    table = group.read(names)
    if config.min_count > 1:
        table = table.filter(pc.greater_equal(table["count"], config.min_count))
    if config.min_documents > 1:
        table = table.filter(pc.greater_equal(table["documents"], config.min_documents))
    counted = table.select(names[:2])
    if not with_groups:
        nothing = GroupColumns(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int64))
        return _Rows(counted, (), nothing)
    groups, columns = entries_of_file(table["groups"], "a shard of the counts")
    if config.min_sources > 1:
        kept = count_sources(columns, groups) >= config.min_sources
        counted, columns = counted.filter(pa.array(kept)), columns.select_rows(kept)
    return _Rows(counted, groups, columns)


# --- mixtures


def _load_mixture(shards: Shards, config: TokenizerConfig) -> TrainingCounts:
    wanted = config.mixture
    assert wanted is not None, "the caller has it"
    sizes: Counter[str] = Counter()
    for group in shards.given.row_groups():
        rows = _read_rows(group, config, with_groups=True)
        of_groups = np.zeros(len(rows.groups), np.int64)
        add_group_bytes(rows.lengths, rows.columns, of_groups)
        names = name_groups(rows.groups, wanted.by, shards.group_by) if rows.groups else []
        for name, size in zip(names, of_groups.tolist(), strict=True):
            sizes[name] += size
    sizes = +sizes
    mixture = find_mixture(dict(sorted(sizes.items())), wanted.shares, wanted.temperature)

    def weighted(group: RowGroup) -> pa.Table:
        rows = _read_rows(group, config, with_groups=True)
        names = name_groups(rows.groups, wanted.by, shards.group_by) if rows.groups else []
        kept, counts = mix_counts(rows.columns, mixture, names)
        table = rows.table.filter(kept)
        return table.set_column(1, rows.table.schema.field(1), pa.array(counts))

    counts = shards.join(map(weighted, shards.given.row_groups()))
    counts.metadata["unit"] = str(1 << mixture.scale_bits)
    return TrainingCounts(counts=counts, mixture=mixture)


# --- groups


@dataclass
class _Entries:
    """Entries of groups, of which a file may have any, collected over files."""

    numbers: dict[Group, int] = field(default_factory=dict)
    parts: list[tuple[NDArray[Any], ...]] = field(default_factory=list)

    def add(self, rows: _Rows, kept: NDArray[np.bool_]) -> None:
        """Add the rows with the groups that are kept."""
        columns = rows.columns.select(kept[rows.columns.groups])
        with_entries = np.diff(columns.offsets) > 0
        columns = columns.select_rows(with_entries)
        keys, offsets = split_column(rows.table["pretoken"].filter(pa.array(with_entries)))
        of_rows = [self.numbers.setdefault(group, len(self.numbers)) for group in rows.groups]
        self.parts.append(
            (
                keys[offsets[0] : offsets[-1]],
                np.diff(offsets),
                np.diff(columns.offsets),
                np.array(of_rows, np.int32)[columns.groups],
                columns.counts,
            )
        )

    def join(self, metadata: Mapping[str, str]) -> PretokenCounts:
        """Return the rows as counts."""
        keys, lengths, sizes, groups, counts = (
            np.concatenate(columns) for columns in zip(*self.parts, strict=True)
        )
        ordered = sorted(self.numbers)
        places = np.empty(len(ordered), np.int32)
        places[[self.numbers[group] for group in ordered]] = np.arange(len(ordered))
        # Entries of a row are in the order of their groups in a shard, which is the same order.
        columns = GroupColumns(_ends(sizes), places[groups], counts)
        return PretokenCounts.from_group_columns(keys, _ends(lengths), ordered, columns, metadata)


def _ends(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.append(0, np.cumsum(lengths)).astype(np.int64)


def _load_groups(shards: Shards, config: TokenizerConfig) -> TrainingCounts:
    rules = config.parity
    assert rules is not None, "the caller has it"
    learned_from, parallel = _Entries(), _Entries()
    for group in shards.given.row_groups():
        rows = _read_rows(group, config, with_groups=True)
        is_parallel = np.array([g.source == rules.development for g in rows.groups], bool)
        learned_from.add(rows, ~is_parallel)
        parallel.add(rows, is_parallel)
        shards.check_memory(rows.table, more=_ENTRY_BYTES * len(rows.columns.groups))
    metadata = {**shards.metadata, **({"group_by": shards.group_by} if shards.group_by else {})}
    return TrainingCounts(
        counts=learned_from.join(metadata),
        parity=ParityRules(
            by=rules.by,
            ratios=rules.ratios,
            development=None if rules.development is None else parallel.join(metadata),
            global_merges=rules.global_merges,
            window_size=rules.window_size,
            alpha=rules.alpha,
        ),
    )
