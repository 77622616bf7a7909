"""PretokenCounts: distinct pre-tokens with their numbers of occurrences."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bpe_core._native import PretokenTable
from bpe_core.count_algebra import (
    Factor,
    count_of_counter,
    match_pretokens,
    most_frequent,
    plain_entries,
    scale_entries,
    subtract_entries,
)
from bpe_core.count_files import (
    SCHEMA,
    check_ascending,
    check_table,
    columns_to_arrow,
    find_shards,
    pretokens_to_arrow,
    read_file,
    save_table,
    sort_table,
    split_column,
    table_to_file,
    with_entries,
)
from bpe_core.count_groups import (
    Group,
    GroupColumns,
    count_sources,
    entries_of_arrow,
    find_problem,
    sum_equal_rows,
)
from bpe_core.errors import FormatError, TrainingError
from bpe_core.mixtures import (
    add_group_bytes,
    find_mixture,
    mix_counts,
    name_groups,
    sum_by_name,
    to_units,
)
from bpe_core.normalization import checked_normalizer
from bpe_core.patterns import resolve_pattern

__all__ = ["PretokenCounts"]

_HOW_COUNTED = ("pattern", "special_tokens", "unicode_version", "normalizer", "normalize_quotes")


class PretokenCounts:
    """Distinct pre-tokens with their counts, as Arrow columns.

    Counts of several sources may be kept apart by group, and documents with each pre-token may be
    counted too; `documents`, `sources` and `group_columns` return those numbers.

    Attributes:
        metadata: How the text was counted (pattern, special_tokens as JSON, …).
        groups: The groups that have counts, in order; () if counts are not kept apart.

    Example:
        >>> counts = PretokenCounts.from_mapping({b"low": 5, b" lower": 2})
        >>> len(counts), counts.total()
        (2, 7)
        >>> dict((counts + counts).items())
        {b' lower': 4, b'low': 10}
    """

    def __init__(
        self,
        table: pa.Table,
        metadata: Mapping[str, str] | None = None,
        groups: Sequence[Group] = (),
    ) -> None:
        self._table = table
        self.metadata = dict(metadata or {})
        self.groups = tuple(groups)

    @classmethod
    def from_mapping(
        cls, mapping: Mapping[bytes, int], metadata: Mapping[str, str] | None = None
    ) -> PretokenCounts:
        """Create counts from a mapping of bytes to counts above 0.

        Raises:
            TrainingError: a pre-token is not bytes or is empty, or a count is not a positive
                64-bit integer.
        """
        if not isinstance(mapping, Mapping):
            raise TrainingError(
                "counts: expected a mapping of pre-tokens to counts, found "
                f"{type(mapping).__name__}"
            )
        for pretoken, count in mapping.items():
            is_integer = isinstance(count, (int, np.integer)) and not isinstance(count, bool)
            if not isinstance(pretoken, bytes) or not is_integer:
                raise TrainingError(
                    "counts: expected pre-tokens as bytes with their counts as int, found "
                    f"{pretoken!r}: {count!r}"
                )
            if not pretoken or not 0 < count < 2**63:
                raise TrainingError(
                    "counts: expected pre-tokens of at least one byte with counts of 1 … 2^63-1, "
                    f"found {pretoken!r}: {count}"
                )
        table = pa.table(
            [
                pa.array(mapping.keys(), pa.large_binary()),
                pa.array(mapping.values(), pa.int64()),
            ],
            schema=SCHEMA,
        )
        return cls(sort_table(table), metadata)

    @classmethod
    def from_counter(
        cls, counter: Mapping[Any, int], metadata: Mapping[str, str] | None = None
    ) -> PretokenCounts:
        """Create counts from a `collections.Counter` or another mapping of str or bytes to counts.

        Texts are encoded as UTF-8. What has the count 0 is left out.

        Raises:
            TrainingError: a count is negative or is not an integer, or a pre-token is empty or is
                neither str nor bytes.
            CountOverflowError: a count does not fit into 64 bits.

        Example:
            >>> from collections import Counter
            >>> dict(PretokenCounts.from_counter(Counter(["low", "low", " lower"])).items())
            {b' lower': 1, b'low': 2}
        """
        return cls.from_mapping(count_of_counter(counter), metadata)

    @classmethod
    def from_arrow(cls, table: pa.Table) -> PretokenCounts:
        """Create counts from a table with the columns pretoken (binary) and count (int, above 0).

        It may also have the columns documents and groups of a file with counts by group. The counts
        of equal pre-tokens are added up.

        Raises:
            FormatError: a column is missing, has another type, or has nulls or counts below 1.
            CountOverflowError: a sum does not fit into 64 bits.
        """
        if not isinstance(table, pa.Table):
            raise FormatError(f"the table: expected a pyarrow.Table, found {type(table).__name__}")
        table, metadata, groups = check_table(table, "the table")
        return cls(*_without_empty_groups(_add_equal_rows(table, len(groups)), groups, metadata))

    @classmethod
    def from_group_columns(
        cls,
        keys: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        groups: Sequence[Group],
        columns: GroupColumns,
        metadata: Mapping[str, str] | None = None,
    ) -> PretokenCounts:
        """Create counts from the entries of groups; the other numbers are their sums.

        Args:
            keys, offsets: distinct pre-tokens, as `columns` returns them.
            groups: sorted groups; those without entries are left out.
            columns: at least one entry for each pre-token.
            metadata: how the text was counted.

        Raises:
            TrainingError: the columns contradict each other.
            CountOverflowError: a sum does not fit into 64 bits.

        Example:
            >>> columns = GroupColumns(
            ...     np.array([0, 2, 3]), np.array([0, 1, 1], np.int32), np.array([3, 4, 5])
            ... )
            >>> counts = PretokenCounts.from_group_columns(
            ...     np.frombuffer(b"low new", np.uint8), np.array([0, 3, 7]),
            ...     [Group("books"), Group("web")], columns,
            ... )
            >>> dict(counts.items()), dict(counts.select(source="web").items())
            ({b' new': 5, b'low': 7}, {b' new': 5, b'low': 4})
        """
        problem = find_problem(columns, len(groups))
        if problem is None and list(groups) != sorted(set(groups)):
            problem = "groups that are not sorted, or repeated"
        if problem is None and len(offsets) != len(columns.offsets):
            problem = f"entries of {len(columns.offsets) - 1:,} rows for {len(offsets) - 1:,}"
        if problem is not None:
            raise TrainingError(
                f"counts: expected sorted entries for each pre-token, found {problem}"
            )
        table = with_entries(
            pa.table([pretokens_to_arrow(keys, offsets)], names=["pretoken"]), columns
        )
        return cls(*_without_empty_groups(table, groups, metadata))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PretokenCounts:
        """Load counts from a file that `save` wrote, or from the `counts/` directory of a build.

        Raises:
            FormatError: the directory lacks shards, or a file is damaged or is not such a file.
            OSError: a file cannot be read.
        """
        path = Path(path)
        files = find_shards(path) if path.is_dir() else [path]
        tables: list[pa.Table] = []
        metadata: dict[str, str] = {}
        groups: tuple[Group, ...] = ()
        for number, file in enumerate(files):
            table, metadata, of_file = read_file(file)
            if tables and (of_file != groups or table.schema != tables[0].schema):
                raise FormatError(
                    f"{file}: expected the columns and groups of {files[0].name}, found others; "
                    "restore the file"
                )
            groups = of_file
            shard = metadata.pop("shard", None)
            if path.is_dir() and shard not in (None, f"{number} of {len(files)}"):
                raise FormatError(
                    f"{file}: expected shard {number} of {len(files)}, found {shard}; "
                    "restore the file"
                )
            tables.append(table)
        return cls(*_without_empty_groups(pa.concat_tables(tables), groups, metadata))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one Parquet file, sorted by pre-token; equal counts give equal bytes.

        Its metadata contain a checksum, by which `load` recognizes damage.
        """
        save_table(path, self._table, self.metadata, self.groups)

    def to_arrow(self) -> pa.Table:
        """Return a table of pretoken (large_binary) and count (int64), sorted by pretoken.

        It has the column documents (int64) if documents were counted, and the column groups, a list
        of structs of source, value, count and documents, if counts are kept apart by group.
        """
        return table_to_file(self._table, self.metadata, self.groups)

    def columns(self) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
        """Return (bytes, offsets, counts): pre-token i is bytes[offsets[i]:offsets[i + 1]].

        The order is that of the table or text from which the counts were made.
        """
        keys, offsets = split_column(self._table["pretoken"])
        return keys, offsets, self._table["count"].to_numpy()

    def documents(self) -> NDArray[np.int64] | None:
        """Return the number of documents with each pre-token, in the order of `columns`.

        None if documents were not counted (`counts.document_frequency`).
        """
        if "documents" not in self._table.column_names:
            return None
        return np.asarray(self._table["documents"].to_numpy())

    def sources(self) -> NDArray[np.int64] | None:
        """Return the number of sources with each pre-token, in the order of `columns`.

        None if counts are not kept apart by group.
        """
        columns = self.group_columns()
        if columns is None:
            return None
        return count_sources(columns, self.groups)

    def group_columns(self) -> GroupColumns | None:
        """Return the counts of the groups of each pre-token, in the order of `columns`.

        None if counts are not kept apart by group.
        """
        return entries_of_arrow(self._table["groups"]) if self.groups else None

    def select(self, *, source: str | None = None, value: str | None = None) -> PretokenCounts:
        """Return the counts of the groups of a source, of a value, or of both.

        Raises:
            TrainingError: no group has this source or value, or counts are not kept apart.
        """
        wanted = np.array([source in (None, g[0]) and value in (None, g[1]) for g in self.groups])
        columns = self.group_columns()
        if columns is None or not wanted.any():
            names = {"source": source, "value": value}
            asked = " and ".join(f"{k} {v!r}" for k, v in names.items() if v is not None)
            known = ", ".join(
                repr(group.source if group.value is None else tuple(group))
                for group in self.groups[:12]
            )
            raise TrainingError(
                f"counts: expected a group with {asked or 'any source'}, found "
                f"{known or 'counts that are not kept apart by group; count again'}"
            )
        left = columns.select(wanted[columns.groups])
        return _keep_entries(self._table, left, self.groups, self.metadata)

    def mix(
        self,
        shares: Mapping[str, Factor] | None = None,
        *,
        temperature: Factor | None = None,
        by: str = "source",
    ) -> PretokenCounts:
        """Return the counts of a mixture of the groups, to train from.

        They are integers in units of 1 / `unit` occurrences, exactly the same everywhere;
        `bpe_core.mixtures` states the rule. Training takes the unit into account.

        Args:
            shares: Shares of bytes by name, one for each source; 0 leaves a source out. Only their
                proportions matter.
            temperature: Instead of shares, an exponent from 0 to 1: shares are proportional to
                bytes^temperature.
            by: `source`, or the field by which counts are grouped: then the names are its values.

        Raises:
            TrainingError: counts are not kept apart in this way, or a share is missing, of an
                unknown name or not a number.

        Example:
            >>> columns = GroupColumns(
            ...     np.array([0, 1, 2]), np.array([0, 1], np.int32), np.array([10, 10])
            ... )
            >>> counts = PretokenCounts.from_group_columns(
            ...     np.frombuffer(b"defnew", np.uint8), np.array([0, 3, 6]),
            ...     [Group("code"), Group("web")], columns,
            ... )
            >>> mixed = counts.mix({"code": 1, "web": 3})
            >>> {word: count / mixed.unit for word, count in mixed.items()}
            {b'def': 5.0, b'new': 15.0}
        """
        names = name_groups(self.groups, by, self.metadata.get("group_by"))
        keys, offsets, _ = self.columns()
        columns = self.group_columns()
        assert columns is not None, "the groups have names"
        sizes = np.zeros(len(names), np.int64)
        add_group_bytes(np.diff(offsets), columns, sizes)
        mixture = find_mixture(sum_by_name(names, sizes), shares, temperature)
        kept, weighted = mix_counts(columns, mixture, names)
        pretokens = pretokens_to_arrow(keys, offsets).filter(kept)
        table = pa.table([pretokens, pa.array(weighted)], schema=SCHEMA)
        metadata = {key: text for key, text in self.metadata.items() if key != "group_by"}
        return PretokenCounts(table, {**metadata, "unit": str(1 << mixture.scale_bits)})

    @property
    def unit(self) -> int:
        """Return the count of one occurrence: 1, or a power of two for the counts of a mixture."""
        return int(self.metadata.get("unit", "1"))

    def items(self) -> Iterator[tuple[bytes, int]]:
        """Yield (pre-token, count), sorted by pre-token."""
        for batch in sort_table(self._table).to_batches():
            yield from zip(batch["pretoken"].to_pylist(), batch["count"].to_pylist(), strict=True)

    def total(self) -> int:
        """Return the number of pre-tokens that were counted, repetitions included."""
        # In two halves, as Python integers: the sum of many int64 may need more than 64 bits.
        counts = self._table["count"].to_numpy()
        return int((counts >> 32).sum()) * 2**32 + int((counts & 0xFFFFFFFF).sum())

    def prune(self, min_count: int) -> PretokenCounts:
        """Return the counts without pre-tokens that occur fewer than `min_count` times."""
        least = to_units(min_count, self.unit)
        kept = self._table.filter(pc.greater_equal(self._table["count"], least))
        return PretokenCounts(*_without_empty_groups(kept, self.groups, self.metadata))

    def rows(self, selection: slice | NDArray[np.bool_]) -> PretokenCounts:
        """Return some of the rows, in the order of `columns`, with all groups."""
        if isinstance(selection, slice):
            kept = self._table[selection]
        else:
            kept = self._table.filter(pa.array(selection))
        return PretokenCounts(kept, self.metadata, self.groups)

    def top(self, number: int) -> PretokenCounts:
        """Return the most frequent pre-tokens; of equally frequent ones those that sort first.

        `columns` returns them in descending order of their counts.

        Example:
            >>> counts = PretokenCounts.from_mapping({b"low": 5, b" lower": 2, b" new": 2})
            >>> dict(counts.top(2).items())
            {b' lower': 2, b'low': 5}
        """
        kept = most_frequent(self._table, number)
        return PretokenCounts(*_without_empty_groups(kept, self.groups, self.metadata))

    def filter(
        self,
        *,
        script: str | None = None,
        min_bytes: int | None = None,
        max_bytes: int | None = None,
        regex: str | None = None,
        source: str | None = None,
        value: str | None = None,
    ) -> PretokenCounts:
        r"""Return the counts of the pre-tokens that fulfill all conditions.

        Args:
            script: name of a script of Unicode, such as Latin or Han, of which there is a
                character.
            min_bytes, max_bytes: least and greatest length.
            regex: regular expression in RE2's syntax that matches somewhere; with ^ and $ all of
                it. No character matches bytes that are not UTF-8.
            source, value: groups whose counts are kept; see `select`.

        Raises:
            TrainingError: the script or the regular expression is invalid, or no group has this
                source or value.

        Example:
            >>> counts = PretokenCounts.from_counter({"low": 5, " 1984": 2, " новый": 3})
            >>> dict(counts.filter(script="Latin").items()), len(counts.filter(regex=r"\d"))
            ({b'low': 5}, 1)
        """
        if source is not None or value is not None:
            selected = self.select(source=source, value=value)
            return selected.filter(
                script=script, min_bytes=min_bytes, max_bytes=max_bytes, regex=regex
            )
        matched = match_pretokens(
            self._table["pretoken"],
            script=script,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            regex=regex,
        )
        kept = self._table.filter(matched)
        return PretokenCounts(*_without_empty_groups(kept, self.groups, self.metadata))

    def __len__(self) -> int:
        """Return the number of distinct pre-tokens."""
        return int(self._table.num_rows)

    def __add__(self, other: PretokenCounts) -> PretokenCounts:
        """Add up the counts of both.

        The metadata of the sum describes how both were counted, but not from which text. The sum
        has groups, and numbers of documents, if both have them.

        Raises:
            TrainingError: they were counted with different patterns or special tokens, or grouped
                by different fields.
            CountOverflowError: a sum does not fit into 64 bits.
        """
        if not isinstance(other, PretokenCounts):
            return NotImplemented
        tables, groups, metadata = _align(self, other)
        table = _add_equal_rows(pa.concat_tables(tables), len(groups))
        return PretokenCounts(table, metadata, groups)

    def __sub__(self, other: PretokenCounts) -> PretokenCounts:
        """Subtract counts that are a part of these: (a + b) - b equals a.

        Metadata, groups and numbers of documents are those of the sum; see `__add__`.

        Raises:
            TrainingError: they were counted with different patterns or special tokens, or grouped
                by different fields; or a number would become negative.

        Example:
            >>> counts = PretokenCounts.from_mapping({b"low": 5, b" lower": 2})
            >>> dict((counts - PretokenCounts.from_mapping({b"low": 4, b" lower": 2})).items())
            {b'low': 1}
        """
        if not isinstance(other, PretokenCounts):
            return NotImplemented
        (table, subtracted), groups, metadata = _align(self, other)
        left = subtract_entries(
            table["pretoken"],
            _entries(table),
            subtracted["pretoken"],
            _entries(subtracted),
            max(len(groups), 1),
        )
        return _keep_entries(table, left, groups, metadata)

    def __mul__(self, factor: Factor) -> PretokenCounts:
        """Multiply all counts by an int, a float, a Decimal or a Fraction of at least 0.

        The result is exact, rounded to integers, halves to even; 0.1 is 1/10. Counts of groups are
        rounded one by one, and the other counts are their sums. What becomes 0 is left out. Numbers
        of documents are multiplied likewise, but stay at least 1.

        Raises:
            TrainingError: the factor is negative, or needs more than 63 bits as a fraction.
            CountOverflowError: a count does not fit into 64 bits.

        Example:
            >>> counts = PretokenCounts.from_mapping({b"low": 5, b" lower": 2, b" new": 1})
            >>> dict((counts * 0.5).items())
            {b' lower': 1, b'low': 2}
        """
        if not isinstance(factor, (int, float, Decimal, Fraction)):
            return NotImplemented
        left = scale_entries(self._table["pretoken"], _entries(self._table), factor)
        kept = {*_HOW_COUNTED, "group_by", "unit"}
        metadata = {key: text for key, text in self.metadata.items() if key in kept}
        return _keep_entries(self._table, left, self.groups, metadata)

    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PretokenCounts):
            return NotImplemented
        same = self.groups == other.groups
        return same and bool(sort_table(self._table).equals(sort_table(other._table)))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"PretokenCounts({len(self)} distinct, {self.total()} in all)"


def sum_counts(parts: Sequence[PretokenCounts]) -> PretokenCounts:
    """Return the sum of one or more counts, as `+` does, but all at once if they are alike.

    Raises:
        TrainingError: they were counted differently.
        CountOverflowError: a sum does not fit into 64 bits.
    """
    first, *others = parts
    if len(others) < 2 or any(_outline(counts) != _outline(first) for counts in others):
        return reduce(add, parts)
    _, groups, metadata = _align(first, others[0])
    table = pa.concat_tables([counts._table for counts in parts])
    return PretokenCounts(_add_equal_rows(table, len(groups)), metadata, groups)


def _outline(counts: PretokenCounts) -> tuple[Any, ...]:
    """Return what counts need to have in common to be added as rows of one table."""
    described = {*_HOW_COUNTED, "group_by", "unit"}
    metadata = {key: text for key, text in counts.metadata.items() if key in described}
    return counts._table.column_names, counts.groups, metadata


def _align(
    one: PretokenCounts, other: PretokenCounts
) -> tuple[list[pa.Table], tuple[Group, ...], dict[str, str]]:
    """Return the tables of two counts with the same columns and groups, and the shared metadata.

    Raises:
        TrainingError: they were counted differently.
    """
    if one.unit != other.unit:
        raise TrainingError(
            f"counts: expected the same unit on both sides, found {one.unit} and {other.unit}; "
            "add counts first, and mix their sum"
        )
    parts = [counts for counts in (one, other) if len(counts)] or [one]
    grouped = all(counts.groups for counts in parts)
    metadata = _shared_field(parts) if grouped else {}
    for key in _HOW_COUNTED:
        mine, theirs = one.metadata.get(key), other.metadata.get(key)
        if mine is not None and theirs is not None and not _agree(key, mine, theirs):
            raise TrainingError(
                f"counts: expected the same {key} on both sides, found {mine} and {theirs}; "
                "count one of them again"
            )
        if (value := theirs if mine is None else mine) is not None:
            metadata[key] = value
    if one.unit > 1:
        metadata["unit"] = str(one.unit)
    groups = tuple(sorted({*one.groups, *other.groups})) if grouped else ()
    tables = _share_columns(parts, groups)
    # Empty counts have no columns of their own.
    full = iter(tables)
    aligned = [next(full) if len(counts) else tables[0][:0] for counts in (one, other)]
    return aligned, groups, metadata


def _shared_field(parts: Sequence[PretokenCounts]) -> dict[str, str]:
    """Return the metadata of the field by which several counts are grouped.

    Raises:
        TrainingError: the fields differ.
    """
    fields = {
        "the source alone"
        if counts.groups[0].value is None
        else counts.metadata.get("group_by", "a field without a name")
        for counts in parts
    }
    if len(fields) > 1:
        raise TrainingError(
            "counts: expected the same field to group by on both sides, found "
            f"{' and '.join(sorted(fields))}; count one of them again"
        )
    return {key: text for key, text in parts[0].metadata.items() if key == "group_by"}


def _share_columns(parts: Sequence[PretokenCounts], groups: Sequence[Group]) -> list[pa.Table]:
    """Return the tables of counts with the columns that all have, and with these groups."""
    tables = [counts._table for counts in parts]
    shared = [name for name in tables[0].column_names if name in tables[-1].column_names]
    if groups:
        number_of = {group: number for number, group in enumerate(groups)}
        for i, counts in enumerate(parts):
            columns = entries_of_arrow(tables[i]["groups"])
            numbers = np.array([number_of[group] for group in counts.groups], np.int32)
            columns = replace(columns, groups=numbers[columns.groups])
            if "documents" not in shared:
                columns = replace(columns, documents=None)
            tables[i] = with_entries(tables[i], columns)
    return [table.select(shared) for table in tables]


def _agree(key: str, mine: str, theirs: str) -> bool:
    if key != "pattern" or mine == theirs:
        return mine == theirs
    # The regular expressions, not their names: llama3 and cl100k are one pattern.
    return resolve_pattern(mine).regex == resolve_pattern(theirs).regex


def normalization_metadata(normalizer: str | None, normalize_quotes: bool) -> dict[str, str]:
    """Return the metadata that describe how counted text was normalized."""
    return {
        "normalizer": checked_normalizer(normalizer) or "null",
        "normalize_quotes": json.dumps(normalize_quotes),
    }


def read_rows(table: pa.Table, where: str) -> PretokenCounts:
    """Return some consecutive rows of a file of counts, with its metadata and all of its groups.

    Args:
        table: The rows, as the file contains them, with the metadata of the file.
        where: Name of the file, for errors.

    Raises:
        FormatError: the rows are not those of a file of counts.
    """
    rows, metadata, groups = check_table(table, where)
    check_ascending(rows, where)
    return PretokenCounts(rows, metadata, groups)


def _entries(table: pa.Table) -> GroupColumns:
    """Return the entries of groups, or a single one for each row without groups."""
    if "groups" in table.column_names:
        return entries_of_arrow(table["groups"])
    return plain_entries(table)


def _keep_entries(
    table: pa.Table,
    left: GroupColumns,
    groups: Sequence[Group],
    metadata: Mapping[str, str] | None,
) -> PretokenCounts:
    """Return the rows of a table that have entries left, with these entries."""
    rows = np.diff(left.offsets) > 0
    left = replace(left, offsets=np.append(left.offsets[:1], left.offsets[1:][rows]))
    kept = with_entries(table.filter(pa.array(rows)), left)
    return PretokenCounts(*_without_empty_groups(kept, groups, metadata))


def _without_empty_groups(
    table: pa.Table, groups: Sequence[Group], metadata: Mapping[str, str] | None
) -> tuple[pa.Table, Mapping[str, str] | None, tuple[Group, ...]]:
    """Return what counts consist of, without the groups that have no entries."""
    if not len(table) or not groups:
        kept = [name for name in table.column_names if name != "groups"]
        return table.select(kept), metadata, ()
    columns = entries_of_arrow(table["groups"])
    present = np.bincount(columns.groups, minlength=len(groups)) > 0
    if not present.all():
        numbers = (np.cumsum(present) - 1).astype(np.int32)
        table = with_entries(table, replace(columns, groups=numbers[columns.groups]))
    return (
        table,
        metadata,
        tuple(group for group, kept in zip(groups, present, strict=True) if kept),
    )


def _add_equal_rows(table: pa.Table, groups: int) -> pa.Table:
    """Add up the rows of equal pre-tokens. Return the rows in order.

    Raises:
        CountOverflowError: a sum does not fit into 64 bits.
    """
    if groups:
        keys, columns = sum_equal_rows(table["pretoken"], groups, entries_of_arrow(table["groups"]))
        return with_entries(pa.table([keys], names=["pretoken"]), columns)
    keys, offsets = split_column(table["pretoken"])
    sums = []
    for name in table.column_names[1:]:
        distinct = PretokenTable(None, [])
        distinct.add_counts(keys, offsets, table[name].to_numpy())
        sums.append(distinct.columns())
    summed = columns_to_arrow(*sums[0])
    for name, (_, _, numbers) in zip(table.column_names[2:], sums[1:], strict=True):
        field = pa.field(name, pa.int64(), nullable=False)
        summed = summed.append_column(field, pa.chunked_array([numbers]))
    return summed
