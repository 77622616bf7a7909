"""Counted pre-tokens that become a token, a row group at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bpe_core._native import Encoder
from bpe_core.buffers import from_arrow, to_arrow
from bpe_core.counts import PretokenCounts
from bpe_core.model import TokenizerModel
from bpe_core.pretoken_encoding import check_counted_as_encoded, make_pretoken_encoder
from pipelines.counting.given import GivenCounts, RowGroup

__all__ = [
    "CountedPretoken",
    "PretokensWithToken",
    "find_pretokens_with",
    "groups_to_json",
    "read_row_groups",
]

# Source and value of a group of counts; see `bpe_core.counts`.
GroupKey: TypeAlias = "tuple[str, str | None]"


@dataclass(frozen=True, kw_only=True)
class CountedPretoken:
    """A pre-token with its count, and its count in each group of the corpus."""

    count: int
    text: bytes
    groups: Mapping[GroupKey, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the pre-token as JSON values."""
        return {
            "pretoken": self.text.decode("utf-8", "replace"),
            "bytes": self.text.hex(),
            "count": self.count,
            **({"groups": groups_to_json(self.groups)} if self.groups else {}),
        }


@dataclass(kw_only=True)
class PretokensWithToken:
    """Counted pre-tokens whose encoding has a token.

    Attributes:
        distinct: number of pre-tokens.
        count: sum of their counts.
        uses: number of times that encoding the counted text uses the token.
        groups: the same by group of the corpus; empty if the counts are not grouped.
        top: the most frequent pre-tokens.
    """

    distinct: int = 0
    count: int = 0
    uses: int = 0
    groups: Counter[GroupKey] = field(default_factory=Counter)
    top: list[CountedPretoken] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the pre-tokens as JSON values."""
        return {
            "distinct": self.distinct,
            "count": self.count,
            "uses": self.uses,
            **({"groups": groups_to_json(self.groups)} if self.groups else {}),
            "top": [pretoken.to_json() for pretoken in self.top],
        }


def groups_to_json(groups: Mapping[GroupKey, int]) -> list[dict[str, Any]]:
    """Return counts by group as JSON values, the largest first."""
    ordered = sorted(groups.items(), key=lambda item: (-item[1], item[0][0], item[0][1] or ""))
    return [
        {"source": source, **({} if value is None else {"value": value}), "count": count}
        for (source, value), count in ordered
    ]


def find_pretokens_with(
    model: TokenizerModel, token_id: int, counts: GivenCounts, limit: int
) -> PretokensWithToken:
    """Return the counted pre-tokens whose encoding has a token.

    Args:
        model: a tokenizer that splits text as it was counted.
        token_id: id of an ordinary token.
        counts: the counts.
        limit: number of pre-tokens to return, the most frequent ones.

    Raises:
        TrainingError: the text was counted in another way than the tokenizer splits it.
        DamagedOutputError: a shard is missing or damaged.
    """
    found = PretokensWithToken()
    row = int(np.searchsorted(model.token_ids, token_id))
    search = _Search(
        encoder=make_pretoken_encoder(model),
        row=row,
        token=model.token_bytes[row].as_py(),
        limit=limit,
    )
    for group in read_row_groups(model, counts):
        search.add_row_group(found, group)
    return found


def read_row_groups(model: TokenizerModel, counts: GivenCounts) -> Iterator[RowGroup]:
    """Yield the row groups of counts.

    Raises:
        TrainingError: the text was counted in another way than the tokenizer splits it.
        DamagedOutputError: a file is missing or damaged.
    """
    check_counted_as_encoded(model, counts.empty, "tokenizer")
    return counts.row_groups()


@dataclass(frozen=True, kw_only=True)
class _Search:
    """Search for a token in pre-tokens; `row` is its index among the ordinary tokens."""

    encoder: Encoder
    row: int
    token: bytes
    limit: int

    def add_row_group(self, found: PretokensWithToken, group: RowGroup) -> None:
        """Add the pre-tokens of a row group."""
        table = group.read(["pretoken", "count"])
        # Only pre-tokens that contain the bytes of a token can become it.
        candidates = pc.indices_nonzero(pc.match_substring(table["pretoken"], self.token))
        rows, uses = self._encode(table.take(candidates), from_arrow(candidates))
        if not len(rows):
            return
        counts = table["count"].to_numpy()[rows]
        found.distinct += len(rows)
        found.count += sum(counts.tolist())
        found.uses += sum((counts * uses).tolist())
        groups = None
        if "groups" in group.columns:
            groups = group.read(["groups"])["groups"].combine_chunks().take(to_arrow(rows))
            found.groups.update(_sum_entries(groups, uses))
        most = np.argsort(-counts, kind="stable")[: self.limit]
        texts = table["pretoken"].take(to_arrow(rows[most])).to_pylist()
        added = [
            CountedPretoken(
                count=int(counts[i]),
                text=text,
                groups={} if groups is None else _sum_entries(groups[i : i + 1], _ONE),
            )
            for i, text in zip(most.tolist(), texts, strict=True)
        ]
        found.top = sorted([*found.top, *added], key=_order)[: self.limit]

    def _encode(
        self, pretokens: pa.Table, rows: NDArray[np.integer]
    ) -> tuple[NDArray[np.integer], NDArray[np.int64]]:
        """Return those of the rows that have the token, and how often each has it."""
        keys, offsets, _ = PretokenCounts(pretokens).columns()
        no_specials = np.full(len(rows), -1, np.int64)
        ids, bounds = self.encoder.encode_spans(keys, offsets[:-1], offsets[1:], no_specials)
        before = np.append(0, np.cumsum(ids == self.row))
        uses = np.diff(before[bounds])
        return rows[uses > 0], uses[uses > 0]


_ONE: Final = np.ones(1, np.int64)


def _order(pretoken: CountedPretoken) -> tuple[int, bytes]:
    return -pretoken.count, pretoken.text


def _sum_entries(lists: pa.ListArray, weights: NDArray[np.int64]) -> Counter[GroupKey]:
    """Return the sum of the counts of each group, each row's as often as its weight."""
    entries = lists.flatten()
    times = np.repeat(weights, lists.value_lengths().to_numpy())
    names = [name for name in ("source", "value") if entries.type.get_field_index(name) >= 0]
    table = pa.table(
        {
            **{name: entries.field(name).cast(pa.string()) for name in names},
            "count": to_arrow(entries.field("count").to_numpy() * times),
        }
    )
    sums = table.group_by(names).aggregate([("count", "sum")]).to_pylist()
    return Counter({(row["source"], row.get("value")): row["count_sum"] for row in sums})
