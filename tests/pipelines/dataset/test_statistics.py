"""Statistics of a dataset: sums that do not depend on cuts, workers or repetitions."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from build_support import config_for, some_text, write_corpus
from hypothesis import given
from hypothesis import strategies as st

from bpe_core import BPETokenizer
from bpe_core._native import add_id_counts
from pipelines import build
from pipelines.errors import OutputError
from pipelines.manifest.entries import TableEntry
from pipelines.storage.directory import Directory
from pipelines.tokenizers.vocabulary import Vocabulary
from pipelines.writing.statistics import (
    LONGEST_KEPT,
    SCHEMA,
    Statistics,
    read_statistics,
    write_statistics,
)

SPARSE = Vocabulary(BPETokenizer({0: b"a", 1: b"b", 10**9: b"c"}, []).model)
DENSE = Vocabulary(BPETokenizer({i: bytes([i]) for i in range(256)}, [], ["<s>"]).model)


def add(statistics: Statistics, documents: list[list[int]], **options: Any) -> None:
    """Documents of one file, as rows."""
    lengths = np.array([len(document) for document in documents], np.int32)
    statistics.add_rows(
        options.get("split", "train"),
        options.get("source"),
        options.get("file", "a.txt"),
        ids=np.array([i for document in documents for i in document], np.uint32),
        lengths=lengths,
        num_bytes=lengths.astype(np.int64) * 3,
        offsets=np.arange(len(documents), dtype=np.int64) + options.get("first", 0),
        begins=options.get("begins", np.ones(len(documents), np.bool_)),
    )


def table_of(statistics: Statistics, **options: Any) -> pa.Table:
    statistics.finish()
    return pa.concat_tables(statistics.tables(**options))


def rows_of(table: pa.Table, statistic: str) -> list[dict[str, Any]]:
    return table.filter(pc.equal(table["statistic"], statistic)).to_pylist()


# --- counting ids


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_ids_are_counted(dtype: type[Any]) -> None:
    ids = np.random.default_rng(1).integers(0, 300, 10_000).astype(dtype)
    counts = np.ones(300, np.int64)
    add_id_counts(ids, counts)
    assert np.array_equal(counts, np.bincount(ids, minlength=300) + 1)


def test_ids_out_of_bounds_are_refused() -> None:
    counts = np.zeros(3, np.int64)
    with pytest.raises(ValueError, match="expected ids below 3, found 7"):
        add_id_counts(np.array([1, 7, 2], np.uint32), counts)
    assert counts.tolist() == [0, 1, 0]


@pytest.mark.parametrize("ids", [[0, 1, 2], [5]])
@pytest.mark.parametrize("vocabulary", [SPARSE, DENSE], ids=["sparse", "dense"])
def test_only_ids_of_the_vocabulary_are_counted(vocabulary: Vocabulary, ids: list[int]) -> None:
    statistics = Statistics(vocabulary)
    known = set(vocabulary.ids.tolist())
    if known.issuperset(ids):
        add(statistics, [ids])
        assert statistics.uses("train").sum() == len(ids)
        return
    with pytest.raises(ValueError, match="is not in the vocabulary"):
        add(statistics, [ids])


def test_ids_far_apart_are_counted() -> None:
    statistics = Statistics(SPARSE)
    add(statistics, [[10**9, 0, 10**9]])
    assert statistics.uses("train").tolist() == [1, 0, 2]
    rows = rows_of(table_of(statistics, splits=["train"]), "token")
    assert [(row["token_id"], row["tokens"]) for row in rows] == [(0, 1), (1, 0), (10**9, 2)]


# --- documents

Documents = st.lists(st.lists(st.integers(0, 256), max_size=40), max_size=30)


@given(Documents, st.data())
def test_statistics_do_not_depend_on_how_rows_are_cut(
    documents: list[list[int]], data: st.DataObject
) -> None:
    whole, parts, merged = Statistics(DENSE), Statistics(DENSE), Statistics(DENSE)
    add(whole, documents)
    for number, document in enumerate(documents):
        cuts = data.draw(st.lists(st.integers(0, len(document)), max_size=2).map(sorted))
        pieces = [document[a:b] for a, b in zip([0, *cuts], [*cuts, len(document)], strict=True)]
        for i, piece in enumerate(pieces):
            add(parts, [piece], first=number, begins=np.array([i == 0]))
    for half in (documents[: len(documents) // 2], documents[len(documents) // 2 :]):
        of_half = Statistics(DENSE)
        add(of_half, half, first=0 if half is documents else len(documents) - len(half))
        of_half.finish()
        for table in of_half.tables("add001"):
            merged.add_table(table)
    expected = table_of(whole)
    assert table_of(parts).equals(expected)
    if len(documents) > 1:  # offsets of the halves are not those of the whole
        names = [name for name in SCHEMA.names if name != "offset"]
        longest = pc.equal(expected["statistic"], "longest")
        found = table_of(merged)
        assert (
            found.filter(pc.invert(longest))
            .select(names)
            .equals(expected.filter(pc.invert(longest)).select(names))
        )


def test_buckets_are_those_that_are_documented() -> None:
    statistics = Statistics(DENSE)
    sizes = [0, 1, 2, 3, 4, 7, 8, 2047, 2048]
    add(statistics, [[1] * size for size in sizes])
    rows = rows_of(table_of(statistics), "tokens_per_document")
    found = {(row["at_least"], row["below"]): row["documents"] for row in rows}
    assert found == {
        (0, 1): 1,
        (1, 2): 1,
        (2, 4): 2,
        (4, 8): 2,
        (8, 16): 1,
        (1024, 2048): 1,
        (2048, 4096): 1,
    }
    assert sum(row["tokens"] for row in rows) == sum(sizes)
    rows = rows_of(table_of(statistics), "bytes_per_token")
    assert [(row["at_least"], row["below"], row["documents"]) for row in rows] == [
        (0, 0.25, 1),
        (3, 3.25, 8),
    ]


def test_many_bytes_per_token_are_in_the_last_bucket() -> None:
    statistics = Statistics(DENSE)
    for number, size in enumerate((63, 64, 1000)):
        statistics.add_rows(
            "train",
            None,
            "a.txt",
            ids=np.array([1, 2, 3, 4], np.uint16),
            lengths=np.array([4]),
            num_bytes=np.array([size], np.int64),
            offsets=np.array([number], np.int64),
            begins=np.array([True]),
        )
    rows = rows_of(table_of(statistics), "bytes_per_token")
    assert [(row["at_least"], row["below"], row["documents"]) for row in rows] == [
        (15.75, 16, 1),
        (16, None, 2),
    ]


def test_the_longest_documents_are_those_with_most_tokens_then_first_in_place() -> None:
    statistics = Statistics(DENSE)
    add(statistics, [[1] * (n % 50) for n in range(500)], file="b.txt")
    add(statistics, [[1] * 49 for _ in range(20)], file="a.txt", split="validation")
    found = [
        (row["tokens"], row["file"], row["offset"])
        for row in rows_of(table_of(statistics), "longest")
    ]
    every = [(n % 50, "b.txt", n) for n in range(500)] + [(49, "a.txt", n) for n in range(20)]
    assert found == sorted(every, key=lambda d: (-d[0], d[1], d[2]))[:LONGEST_KEPT]


# --- files


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    directory = Directory(url=str(tmp_path))
    statistics = Statistics(DENSE)
    add(statistics, [[1, 2]])
    statistics.finish()
    written = write_statistics(directory, "s.parquet", statistics.tables(), {"bpe.format": "1"})
    entry = TableEntry.model_validate(written)
    assert read_statistics(directory, entry).num_rows == entry.rows
    path = tmp_path / "s.parquet"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(OutputError, match="statistics is damaged"):
        read_statistics(directory, entry)


def test_other_tables_are_refused() -> None:
    with pytest.raises(ValueError, match="other columns"):
        Statistics(DENSE).add_table(pa.table({"a": [1]}))
    row = dict.fromkeys(SCHEMA.names)
    row.update(statistic="new", generation="base", split="train", documents=1, tokens=1, bytes=1)
    with pytest.raises(ValueError, match="unknown statistic 'new'"):
        Statistics(DENSE).add_table(pa.Table.from_pylist([row], schema=SCHEMA))


@pytest.mark.slow
def test_the_statistics_of_a_build_say_what_its_token_files_hold(tmp_path: Path) -> None:
    write_corpus(tmp_path / "data" / "x", {"a.txt": some_text(30), "b.txt": some_text(9, 5)})
    write_corpus(tmp_path / "data" / "y", {"c.txt": some_text(40, words=3)})
    config = config_for(
        tmp_path,
        input=[
            {"name": name, "files": [str(tmp_path / "data" / name / "*")], "range_bytes": 4000}
            for name in "xy"
        ],
        encode={"validation_fraction": 0.2},
    )
    build.build(config)
    tokens = Path(config.output_path) / "tokens"
    table = pq.read_table(tokens / "statistics.parquet")
    for split in ("train", "validation"):
        rows = [r for f in sorted(tokens.glob(f"{split}-*")) for r in pq.read_table(f).to_pylist()]
        of_split = table.filter(pc.equal(table["split"], split))
        assert {
            (r["source"], r["file"]): (r["documents"], r["tokens"], r["bytes"])
            for r in rows_of(of_split, "file")
        } == {
            (label[0], label): (
                sum(r["source"] == label for r in rows),
                sum(r["num_tokens"] for r in rows if r["source"] == label),
                sum(r["num_bytes"] for r in rows if r["source"] == label),
            )
            for label in {r["source"] for r in rows}
        }
        uses = {r["token_id"]: r["tokens"] for r in rows_of(of_split, "token")}
        assert Counter({i: n for i, n in uses.items() if n}) == Counter(
            i for r in rows for i in r["input_ids"]
        )
        assert sorted(uses) == list(range(300))
    assert not (tokens / "_tasks").exists()
