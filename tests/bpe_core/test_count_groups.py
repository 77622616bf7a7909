"""Counts by group: every form has the same numbers, and sums over groups are the plain counts."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from grouped_counts_support import GROUPED, Grouped, counts_of, grouped_of
from hypothesis import given
from hypothesis import strategies as st

from bpe_core import Group, GroupColumns, PretokenCounts
from bpe_core.errors import CountOverflowError, FormatError, TrainingError


def sums_of(grouped: Grouped, which: int) -> dict[bytes, int]:
    sums: Counter[bytes] = Counter()
    for (key, _), numbers in grouped.items():
        sums[key] += numbers[which]
    return dict(sorted(sums.items()))


def in_memory(table: pa.Table) -> pa.Table:
    file = io.BytesIO()
    pq.write_table(table, file)
    return pq.read_table(io.BytesIO(file.getvalue()))


@given(grouped=GROUPED)
def test_counts_of_groups_add_up_to_those_of_the_corpus(grouped: Grouped) -> None:
    counts = counts_of(grouped)
    assert grouped_of(counts) == grouped
    assert dict(counts.items()) == sums_of(grouped, 0)
    documents, sources = counts.documents(), counts.sources()
    assert documents is not None or not grouped
    if documents is not None and sources is not None:
        assert documents.tolist() == list(sums_of(grouped, 1).values())
        expected = Counter(key for key, _ in {(key, group.source) for key, group in grouped})
        assert sources.tolist() == [expected[key] for key in sums_of(grouped, 0)]


@given(grouped=GROUPED, documents=st.booleans())
def test_counts_by_group_are_the_same_after_a_file_and_after_arrow(
    grouped: Grouped, documents: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    counts = counts_of(grouped, documents=documents)
    path = tmp_path_factory.getbasetemp() / "counts.parquet"
    counts.save(path)
    for found in (PretokenCounts.load(path), PretokenCounts.from_arrow(counts.to_arrow())):
        assert found == counts
        assert (found.groups, found.metadata) == (counts.groups, counts.metadata)
    PretokenCounts.load(path).save(f"{path}.again")
    assert path.read_bytes() == Path(f"{path}.again").read_bytes()


@given(one=GROUPED, other=GROUPED)
def test_a_sum_adds_each_group(one: Grouped, other: Grouped) -> None:
    if len({group.value is None for _, group in [*one, *other]}) > 1:
        with pytest.raises(TrainingError, match="the same field to group by"):
            counts_of(one) + counts_of(other)
        return
    expected = {
        place: tuple(map(sum, zip(one.get(place, (0, 0)), other.get(place, (0, 0)), strict=True)))
        for place in {**one, **other}
    }
    assert grouped_of(counts_of(one) + counts_of(other)) == expected
    assert counts_of(one) + counts_of(other) == counts_of(other) + counts_of(one)


@given(grouped=GROUPED, least=st.integers(1, 2**40))
def test_pruning_and_selecting_keep_the_groups_of_what_is_left(
    grouped: Grouped, least: int
) -> None:
    counts = counts_of(grouped)
    sums = sums_of(grouped, 0)
    assert grouped_of(counts.prune(least)) == {
        place: numbers for place, numbers in grouped.items() if sums[place[0]] >= least
    }
    for group in counts.groups:
        of_source = {place: n for place, n in grouped.items() if place[1].source == group.source}
        assert grouped_of(counts.select(source=group.source)) == of_source
        both = counts.select(source=group.source, value=group.value)
        assert both.groups == ((group,) if group.value is not None else both.groups)
        assert dict(both.items()).items() <= {**sums_of(of_source, 0), **dict(both.items())}.items()


def test_selecting_an_unknown_group_names_the_known_ones() -> None:
    counts = counts_of({(b"x", Group("books")): (3, 1)})
    with pytest.raises(TrainingError, match="with source 'web', found 'books'"):
        counts.select(source="web")
    with pytest.raises(TrainingError, match="not kept apart by group; count again"):
        PretokenCounts.from_mapping({b"x": 1}).select(source="web")


def test_a_sum_has_documents_if_both_have_them() -> None:
    grouped = {(b"x", Group("books")): (3, 1)}
    both = counts_of(grouped, documents=False) + counts_of(grouped)
    assert grouped_of(both) == {(b"x", Group("books")): (6, 0)}
    assert both.documents() is None


def test_a_sum_with_counts_without_groups_has_no_groups() -> None:
    grouped = counts_of({(b"x", Group("books")): (3, 1)})
    both = grouped + PretokenCounts.from_mapping({b"x": 4})
    assert (dict(both.items()), both.groups, both.documents()) == ({b"x": 7}, (), None)


def test_counts_of_documents_alone_survive_files_and_sums(tmp_path: Path) -> None:
    table = pa.table({"pretoken": [b"b", b"a", b"b"], "count": [5, 2, 1], "documents": [3, 1, 1]})
    counts = PretokenCounts.from_arrow(table)
    (counts + counts).save(tmp_path / "counts.parquet")
    found = PretokenCounts.load(tmp_path / "counts.parquet")
    documents = found.documents()
    assert documents is not None
    assert (dict(found.items()), documents.tolist()) == ({b"a": 4, b"b": 12}, [2, 8])
    assert found.group_columns() is None
    assert pq.read_table(tmp_path / "counts.parquet").column_names == [
        "pretoken",
        "count",
        "documents",
    ]


def test_a_file_with_groups_is_plain_parquet(tmp_path: Path) -> None:
    counts = counts_of(
        {
            (b"low", Group("web", "de")): (3, 1),
            (b"low", Group("web", "")): (4, 2),
            (b"new", Group("books", "")): (1, 1),
        }
    )
    counts.save(tmp_path / "counts.parquet")
    table = pq.read_table(tmp_path / "counts.parquet")
    assert table.to_pylist() == [
        {
            "pretoken": b"low",
            "count": 7,
            "documents": 3,
            "groups": [
                {"source": "web", "value": "", "count": 4, "documents": 2},
                {"source": "web", "value": "de", "count": 3, "documents": 1},
            ],
        },
        {
            "pretoken": b"new",
            "count": 1,
            "documents": 1,
            "groups": [{"source": "books", "value": "", "count": 1, "documents": 1}],
        },
    ]
    metadata = table.schema.metadata
    assert metadata[b"bpe.format"] == b"2"
    assert metadata[b"bpe.groups"] == b'[["books", ""], ["web", ""], ["web", "de"]]'


def test_counts_without_groups_keep_the_first_format(tmp_path: Path) -> None:
    PretokenCounts.from_mapping({b"x": 1}).save(tmp_path / "counts.parquet")
    assert pq.read_metadata(tmp_path / "counts.parquet").metadata[b"bpe.format"] == b"1"


def grouped_table(**changes: object) -> pa.Table:
    """Return a table with groups in the simplest types, with changes of its only row."""
    entries = [{"source": "a", "count": 2}, {"source": "b", "count": 1}]
    row = {"pretoken": b"x", "count": 3, "groups": entries, **changes}
    return pa.Table.from_pylist([row])


def test_groups_written_by_other_tools_are_read() -> None:
    counts = PretokenCounts.from_arrow(in_memory(grouped_table()))
    assert grouped_of(counts) == {(b"x", Group("a")): (2, 0), (b"x", Group("b")): (1, 0)}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"count": 4}, "the sums of those of the groups"),
        ({"documents": 4}, "documents above 0 and not above the count"),
        ({"groups": []}, "a pre-token without a group|a list of structs"),
        ({"groups": [{"source": "a", "count": 0}]}, "a count below 1"),
        ({"groups": [{"source": "a"}]}, "source, count and"),
        ({"groups": [{"source": None, "count": 3}]}, "without nulls"),
        ({"groups": 7}, "a list of structs"),
        ({"groups": [{"source": "b", "count": 2}, {"source": "a", "count": 1}]}, "ascending"),
        ({"groups": [{"source": 1, "count": 2.5}]}, "numbers as int64"),
        ({"groups": [{"source": "a", "count": 3, "documents": 4}]}, "more documents"),
    ],
)
def test_damaged_groups_are_refused(changes: dict[str, object], found: str) -> None:
    with pytest.raises(FormatError, match=found):
        PretokenCounts.from_arrow(grouped_table(**changes))


@pytest.mark.parametrize(
    "text",
    ["", "[1]", '[["b", null], ["a", null]]', '[["a", null], ["a", "x"]]', '[["a", 1]]', "{}"],
)
def test_damaged_names_of_groups_are_refused(text: str) -> None:
    table = grouped_table().replace_schema_metadata({"bpe.groups": text})
    with pytest.raises(FormatError, match="groups"):
        PretokenCounts.from_arrow(table)


def test_too_many_groups_are_refused() -> None:
    entries = [{"source": f"{i:05}", "count": 1} for i in range(4097)]
    with pytest.raises(FormatError, match="at most 4,096 groups"):
        PretokenCounts.from_arrow(grouped_table(groups=entries, count=4097))


def test_a_sum_above_64_bits_is_an_error() -> None:
    counts = counts_of({(b"x", Group("a")): (2**62, 1)})
    other = counts_of({(b"x", Group("b")): (2**62, 1)})
    with pytest.raises(CountOverflowError, match="64 bits"):
        counts + other


def test_a_changed_number_of_a_group_is_found(tmp_path: Path) -> None:
    counts = counts_of({(b"x", Group("a")): (2, 1), (b"x", Group("b")): (3, 1)})
    path = tmp_path / "counts.parquet"
    counts.save(path)
    table = pq.read_table(path)
    other = counts_of({(b"x", Group("a")): (3, 1), (b"x", Group("b")): (2, 1)}).to_arrow()
    pq.write_table(other.replace_schema_metadata(table.schema.metadata), path)
    with pytest.raises(FormatError, match="damaged"):
        PretokenCounts.load(path)


def test_contradicting_columns_are_refused() -> None:
    columns = GroupColumns(np.array([0, 1]), np.array([1], np.int32), np.array([1]))
    keys, offsets = np.frombuffer(b"x", np.uint8), np.array([0, 1])
    with pytest.raises(TrainingError, match="outside of the 1 groups"):
        PretokenCounts.from_group_columns(keys, offsets, [Group("a")], columns)
    with pytest.raises(TrainingError, match="not sorted"):
        PretokenCounts.from_group_columns(keys, offsets, [Group("b"), Group("a")], columns)
