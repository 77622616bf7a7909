"""Counts by group as mappings, in both directions, and a strategy that draws them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from hypothesis import strategies as st

from bpe_core import Group, GroupColumns, PretokenCounts

# Of each pre-token and group: count and documents.
Grouped: TypeAlias = Mapping[tuple[bytes, Group], tuple[int, int]]

KEYS = st.binary(min_size=1, max_size=3)
NUMBERS = st.tuples(st.integers(1, 2**40), st.integers(1, 2**40)).map(
    lambda pair: (max(pair), min(pair))
)
SOURCES = st.sampled_from(["", "a", "b", "ü", "a b"]).map(Group)
VALUES = st.builds(Group, st.sampled_from(["a", "b"]), st.sampled_from(["", "de", "a", "\0"]))
GROUPED = st.one_of(
    st.dictionaries(st.tuples(KEYS, groups), NUMBERS, max_size=12) for groups in (SOURCES, VALUES)
)


def counts_of(grouped: Grouped, *, documents: bool = True) -> PretokenCounts:
    keys = sorted({key for key, _ in grouped})
    groups = sorted({group for _, group in grouped})
    rows = [sorted(group for k, group in grouped if k == key) for key in keys]
    cells = [grouped[key, group] for key, row in zip(keys, rows, strict=True) for group in row]
    columns = GroupColumns(
        np.cumsum([0, *map(len, rows)]),
        np.array([groups.index(group) for row in rows for group in row], np.int32),
        np.array([count for count, _ in cells], np.int64),
        np.array([number for _, number in cells], np.int64) if documents else None,
    )
    data = np.frombuffer(b"".join(keys), np.uint8)
    offsets = np.cumsum([0, *map(len, keys)])
    metadata = {"pattern": "gpt2"} | (
        {"group_by": "lang"} if groups and groups[0].value is not None else {}
    )
    return PretokenCounts.from_group_columns(data, offsets, groups, columns, metadata)


def grouped_of(counts: PretokenCounts) -> Grouped:
    columns = counts.group_columns()
    if columns is None:
        assert len(counts) == 0
        return {}
    data, offsets, _ = counts.columns()
    keys = [data[i:j].tobytes() for i, j in pairwise(offsets)]
    documents = np.zeros_like(columns.counts) if columns.documents is None else columns.documents
    return {
        (keys[row], counts.groups[group]): (count, number)
        for row, group, count, number in zip(
            columns.rows().tolist(),
            columns.groups.tolist(),
            columns.counts.tolist(),
            documents.tolist(),
            strict=True,
        )
    }
