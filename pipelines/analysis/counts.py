"""`beam-bpe counts top`, `diff` and `show`: tables of pre-tokens, read file by file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bpe_core import PretokenCounts
from bpe_core._native import scan_documents
from bpe_core.count_files import columns_to_arrow
from bpe_core.count_groups import Group, one_array
from bpe_core.short_repr import short_repr
from bpe_core.visible_text import visible
from pipelines.console.tables import format_table
from pipelines.counting.given import GivenCounts
from pipelines.counting.streams import read_windows
from pipelines.errors import ConfigError

_PERCENT: Final = ".4%"


@short_repr
@dataclass(frozen=True, kw_only=True)
class CountOfGroup:
    """Count of a pre-token in a group, and its documents there, if they were counted."""

    group: Group
    count: int
    documents: int | None

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        named = {key: text for key, text in self.group._asdict().items() if text is not None}
        counted = {} if self.documents is None else {"documents": self.documents}
        return {**named, "count": self.count, **counted}


@short_repr
@dataclass(frozen=True, kw_only=True)
class PretokenCount:
    """A pre-token with its count, its documents, if they were counted, and its groups."""

    pretoken: bytes
    count: int
    documents: int | None = None
    groups: tuple[CountOfGroup, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            **_name(self.pretoken),
            "count": self.count,
            **({} if self.documents is None else {"documents": self.documents}),
            **({"groups": [group.to_json() for group in self.groups]} if self.groups else {}),
        }


@short_repr
@dataclass(frozen=True, kw_only=True)
class CountsTable:
    """Pre-tokens of counts, and the number of all pre-tokens."""

    rows: Sequence[PretokenCount]
    total: int

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"total": self.total, "pretokens": [row.to_json() for row in self.rows]}

    def __str__(self) -> str:
        """Return the table as text."""
        documents = any(row.documents is not None for row in self.rows)
        head = ["pre-token", "count", "share", *(["documents"] if documents else [])]
        lines = [head]
        for row in self.rows:
            lines.append(self._line(show(row.pretoken), row.count, row.documents))
            lines += [
                self._line(f"  {_title(group.group)}", group.count, group.documents)
                for group in row.groups
            ]
        return "\n".join(format_table(lines))

    def _line(self, name: str, count: int, documents: int | None) -> list[str]:
        share = count / self.total if self.total else 0.0
        counted = [] if documents is None else [f"{documents:,}"]
        return [name, f"{count:,}", f"{share:{_PERCENT}}", *counted]


@short_repr
@dataclass(frozen=True, kw_only=True)
class Difference:
    """Pre-tokens whose shares of two counts differ most.

    Attributes:
        rows: The pre-tokens, each with both counts.
        totals: Numbers of all pre-tokens of both.
    """

    rows: Sequence[tuple[bytes, int, int]]
    totals: tuple[int, int]

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "totals": list(self.totals),
            "pretokens": [
                {
                    **_name(pretoken),
                    "counts": [one, other],
                    "shares": list(self._shares(one, other)),
                }
                for pretoken, one, other in self.rows
            ],
        }

    def __str__(self) -> str:
        """Return the table as text."""
        lines = [["pre-token", "count", "share", "count", "share", "difference"]]
        for pretoken, one, other in self.rows:
            first, second = self._shares(one, other)
            lines.append(
                [
                    show(pretoken),
                    f"{one:,}",
                    f"{first:{_PERCENT}}",
                    f"{other:,}",
                    f"{second:{_PERCENT}}",
                    f"{second - first:+{_PERCENT}}",
                ]
            )
        return "\n".join(format_table(lines))

    def _shares(self, one: int, other: int) -> tuple[float, float]:
        first, second = self.totals
        return one / max(first, 1), other / max(second, 1)


def find_top(counts: GivenCounts, number: int) -> CountsTable:
    """Return the most frequent pre-tokens, in descending order; ties by bytes."""
    best = counts.empty
    for (rows,) in read_windows([counts]):
        best = (best + rows.top(number)).top(number)
    return CountsTable(rows=list(_rows_of(best, groups=False)), total=counts.total())


def find_difference(one: GivenCounts, other: GivenCounts, number: int) -> Difference:
    """Return the pre-tokens whose shares differ most, in descending order; ties by bytes.

    Raises:
        TrainingError: They were counted differently.
    """
    _without_groups(one.empty) + _without_groups(other.empty)  # checks that both were counted alike
    totals = one.total(), other.total()
    best: list[tuple[float, bytes, int, int]] = []
    for windows in read_windows([one, other]):
        found = list(_differences(list(map(_without_groups, windows)), totals, number))
        best = sorted([*best, *found], key=lambda row: (-row[0], row[1]))[:number]
    return Difference(rows=[row[1:] for row in best], totals=totals)


def look_up_pretokens(counts: GivenCounts, pretokens: Sequence[bytes]) -> CountsTable:
    """Return the counts of pre-tokens by group, in the given order; a count of 0 for others.

    Raises:
        ConfigError: A pre-token is empty.
    """
    if not all(pretokens):
        raise ConfigError("A pre-token is empty.", expected="pre-tokens of at least one byte")
    keys = np.frombuffer(b"".join(pretokens), np.uint8)
    ends = np.cumsum([len(pretoken) for pretoken in pretokens])
    _, hashes = scan_documents(
        keys, np.append(0, ends[:-1]).astype(np.int64), ends.astype(np.int64)
    )
    shards = (hashes[:, 1] % np.uint64(counts.shards)).tolist()
    found: dict[bytes, PretokenCount] = {}
    for shard in sorted(set(shards)):
        of_shard = [p for p, of in zip(pretokens, shards, strict=True) if of == shard]
        wanted = pa.array(of_shard, pa.large_binary())
        for rows in counts.read(shard):
            matching = rows.rows(_find_rows(rows, wanted))
            found.update({row.pretoken: row for row in _rows_of(matching, groups=True)})
    missing = 0 if counts.has_documents else None
    return CountsTable(
        rows=[
            found.get(p, PretokenCount(pretoken=p, count=0, documents=missing)) for p in pretokens
        ],
        total=counts.total(),
    )


def show(pretoken: bytes) -> str:
    """Return a pre-token for a table, on one line and with visible ends."""
    text = visible(pretoken).replace("\n", "\\n").replace("\t", "\\t")
    return f'"{text}"'


def _without_groups(counts: PretokenCounts) -> PretokenCounts:
    """Return the counts alone, which can be compared whatever groups and documents there are."""
    metadata = {key: text for key, text in counts.metadata.items() if key != "group_by"}
    return PretokenCounts(columns_to_arrow(*counts.columns()), metadata)


def _differences(
    windows: Sequence[PretokenCounts], totals: tuple[int, int], number: int
) -> Iterator[tuple[float, bytes, int, int]]:
    """Yield the rows of a window with the greatest differences."""
    both = windows[0] + windows[1]
    keys, offsets, sums = both.columns()
    # What is in the sum and not in the first is in the second.
    first = np.zeros(len(sums), np.int64)
    if len(windows[0]):
        first[_find_rows(both, _pretokens_of(windows[0]))] = windows[0].columns()[2]
    second = sums - first
    differences = np.abs(first / max(totals[0], 1) - second / max(totals[1], 1))
    # Rows are in order, so that a stable sort puts ties in the order of bytes.
    for row in np.argsort(-differences, kind="stable")[:number].tolist():
        pretoken = keys[offsets[row] : offsets[row + 1]].tobytes()
        yield float(differences[row]), pretoken, int(first[row]), int(second[row])


def _find_rows(rows: PretokenCounts, wanted: pa.Array) -> NDArray[np.bool_]:
    """Return True for each row whose pre-token is wanted."""
    found = pc.is_in(_pretokens_of(rows), value_set=wanted)
    return np.asarray(found.to_numpy(zero_copy_only=False), bool)


def _pretokens_of(rows: PretokenCounts) -> pa.Array:
    return one_array(columns_to_arrow(*rows.columns())["pretoken"])


def _rows_of(rows: PretokenCounts, *, groups: bool) -> Iterator[PretokenCount]:
    _, _, counts = rows.columns()
    documents = rows.documents()
    entries = rows.group_columns() if groups else None
    for row, pretoken in enumerate(_pretokens_of(rows).to_pylist()):
        of_row: tuple[CountOfGroup, ...] = ()
        if entries is not None:
            of_row = tuple(
                CountOfGroup(
                    group=rows.groups[entries.groups[i]],
                    count=int(entries.counts[i]),
                    documents=None if entries.documents is None else int(entries.documents[i]),
                )
                for i in range(int(entries.offsets[row]), int(entries.offsets[row + 1]))
            )
        yield PretokenCount(
            pretoken=pretoken,
            count=int(counts[row]),
            documents=None if documents is None else int(documents[row]),
            groups=of_row,
        )


def _name(pretoken: bytes) -> dict[str, str]:
    """Return the JSON values that name a pre-token: its text, or its bytes if they are not text."""
    try:
        return {"pretoken": pretoken.decode()}
    except UnicodeDecodeError:
        return {"bytes": pretoken.hex()}


def _title(group: Group) -> str:
    source = visible(group.source) or "(no name)"
    if group.value is None:
        return source
    return f"{source}, {visible(group.value) or '(no value)'}"
