"""Token shards: the same bytes whatever the order, and nothing missing or there twice."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from build_support import checksums
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import times

from pipelines.batches import Reject
from pipelines.beam.coders import RejectCoder, TokenRowsCoder
from pipelines.beam.rows import RowElements, token_rows
from pipelines.errors import AccountingError, InputError, OutputError
from pipelines.sorting import spill
from pipelines.storage.directory import Directory
from pipelines.writing import token_runs
from pipelines.writing.rows import TokenRows
from pipelines.writing.token_order import find_order, to_table
from pipelines.writing.token_runs import RowRuns
from pipelines.writing.token_shards import RowTotals, TokenShards, describe_sections


def rows_of(
    documents: Sequence[Sequence[int]],
    *,
    texts: Sequence[int] | None = None,
    source: str = "",
    part: int = 0,
    place: int = 0,
    ids: Sequence[str | None] | None = None,
    dtype: Any = np.uint16,
) -> TokenRows:
    """Rows as EncodeDocuments gives them; `texts` are numbers that stand for the texts."""
    lengths = [len(document) for document in documents]
    numbers = np.array(range(len(documents)) if texts is None else texts, np.uint64)
    with np.errstate(over="ignore"):
        hashes = np.stack(
            [numbers * np.uint64(0x9E3779B97F4A7C15), numbers * np.uint64(0xD1B54A32D192ED03)],
            axis=1,
        )
    return TokenRows(
        ids=np.array([i for document in documents for i in document], dtype),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        num_bytes=3 * np.array(lengths, np.int64),
        positions=np.full(len(documents), place, np.int64),
        hashes=hashes,
        parts=np.full(len(documents), part, np.int32),
        sources=pa.array([source] * len(documents), pa.string()).dictionary_encode(),
        record_ids=None if ids is None else pa.array(ids, pa.string()),
    )


def shards_in(
    directory: Path, shards: int, split: str = "train", id_type: str = "auto"
) -> TokenShards:
    files = TokenShards.files_of(Directory(url=str(directory)), shards, split)
    return TokenShards(files=files, id_type=id_type)


def write(shards: TokenShards, bundles: Iterable[Sequence[TokenRows]]) -> list[dict[str, Any]]:
    """Do what the transform does, without Beam."""
    files = shards.files
    found: dict[int, list[bytes]] = {shard: [] for shard in range(files.number)}
    parts = []
    for bundle in bundles:
        runs = RowRuns(files.runs, files.number)
        for rows in bundle:
            runs.add(rows)
        for shard, descriptor in describe_sections(runs.finish()):
            found[shard].append(descriptor)
        parts.append(RowTotals.sum_of(map(RowTotals.of, bundle)).to_bytes())
    totals = shards.add_totals(parts)
    entries = [shards.merge(shard, found[shard], totals) for shard in range(files.number)]
    return files.finish(entries, shards.list_totals(totals))


# --- order


documents = st.lists(
    st.tuples(
        st.integers(0, 6),  # the text, of which there are few, so that many are equal
        st.sampled_from(["", "a", "b"]),
        st.integers(0, 2),
        st.sampled_from([None, "x", "y"]),
    ),
    max_size=60,
)


@settings(max_examples=times(0.25))
@given(
    documents=documents,
    order=st.randoms(use_true_random=False),
    bundles=st.integers(1, 7),
    shards=st.integers(1, 4),
    run_bytes=st.integers(1, 20_000),
    block_bytes=st.integers(1, 1000),
    merged=st.integers(2, 5),
    large=st.integers(2, 40),
)
def test_bytes_do_not_depend_on_order_bundles_runs_blocks_or_rounds(
    documents: list[tuple[int, str, int, str | None]],
    order: random.Random,
    bundles: int,
    shards: int,
    run_bytes: int,
    block_bytes: int,
    merged: int,
    large: int,
) -> None:
    parts = []
    for text, source, place, record_id in documents:
        pieces = 1 + text % 3
        for part in range(pieces):
            ids = [text * 100 + part] * (5 * text + part)
            rows = rows_of([ids], texts=[text], source=source, place=place, part=part)
            parts.append(replace(rows, record_ids=pa.array([record_id], pa.string())))
    with tempfile.TemporaryDirectory() as name:
        write(shards_in(Path(name) / "expected", shards), [parts])
        order.shuffle(parts)
        dealt = [parts[bundle::bundles] for bundle in range(bundles)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(token_runs, "_RUN_BYTES", run_bytes)
            patch.setattr(token_runs, "_SECTION_BYTES", 64)
            patch.setattr(token_runs, "_BLOCK_BYTES", block_bytes)
            patch.setattr(token_runs, "_BUFFER_BYTES", 1)
            patch.setattr(token_runs, "MERGED_AT_ONCE", merged)
            patch.setattr(token_runs, "_LARGE_ROW_IDS", large)
            write(shards_in(Path(name) / "other", shards), dealt)
        assert checksums(Path(name) / "other") == checksums(Path(name) / "expected")


def test_row_groups_are_cut_by_rows_and_tokens_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.writing.token_file._ROW_GROUP_ROWS", 10)
    monkeypatch.setattr("pipelines.writing.token_file._ROW_GROUP_TOKENS", 50)
    every = [rows_of([[text] * (text % 9)], texts=[text]) for text in range(200)]
    write(shards_in(tmp_path / "a", 1), [every])
    monkeypatch.setattr(token_runs, "_RUN_BYTES", 1000)
    monkeypatch.setattr(token_runs, "_BLOCK_BYTES", 3 * spill.ROW_BYTES)
    write(shards_in(tmp_path / "b", 1), [every[100:], every[:100]])
    assert checksums(tmp_path / "a") == checksums(tmp_path / "b")
    metadata = pq.ParquetFile(tmp_path / "a" / "train-00000-of-00001.parquet").metadata
    assert metadata.num_row_groups > 10


def test_pieces_of_a_document_follow_each_other_in_order(tmp_path: Path) -> None:
    pieces = [
        rows_of([[text] * 3], texts=[text], source=source, part=part)
        for text in range(30)
        for source in "ab"
        for part in range(3)
    ]
    random.Random(5).shuffle(pieces)
    write(shards_in(tmp_path, 3), [pieces[::2], pieces[1::2]])
    names = sorted(tmp_path.glob("train-*.parquet"))
    table = pa.concat_tables([pq.read_table(name) for name in names])
    assert table["part"].to_pylist() == [0, 1, 2] * 60
    documents = list(zip(table["input_ids"].to_pylist(), table["source"].to_pylist(), strict=True))
    for first in range(0, 180, 3):
        assert documents[first] == documents[first + 1] == documents[first + 2]
    assert [ids for ids, _ in documents[::3]] != sorted(ids for ids, _ in documents[::3])


@pytest.mark.parametrize("block_rows", [1, 2, 500])
def test_copies_of_a_long_document_have_their_pieces_together(
    block_rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_runs, "_BLOCK_BYTES", block_rows * spill.ROW_BYTES)
    monkeypatch.setattr(token_runs, "_BUFFER_BYTES", 1)
    pieces = [rows_of([[part] * 4], texts=[7], part=part) for part in range(3) for _ in range(4)]
    short = [rows_of([[9]], texts=[text]) for text in (6, 8, 8, 8)]
    found = []
    for seed in (1, 2, 3):
        random.Random(seed).shuffle(pieces)
        directory = tmp_path / str(seed)
        write(shards_in(directory, 1), [pieces[::2], short, pieces[1::2]])
        table = pq.read_table(directory / "train-00000-of-00001.parquet")
        found.append(table["part"].to_pylist())
        assert [ids[0] for ids in table["input_ids"].to_pylist() if len(ids) == 4] == [0, 1, 2] * 4
        assert sorted(found[-1]) == [0] * 8 + [1] * 4 + [2] * 4
    assert checksums(tmp_path / "1") == checksums(tmp_path / "2") == checksums(tmp_path / "3")


@pytest.mark.parametrize("parts", [[1], [0, 2], [0, 0, 1], [0, 1, 1], [0, 1, 2, 2]])
def test_pieces_that_are_missing_or_there_too_often_are_an_error(
    parts: list[int], tmp_path: Path
) -> None:
    pieces = [rows_of([[5]], texts=[3], source="web", part=part) for part in parts]
    others = [rows_of([[5]], texts=[text], part=part) for text in (1, 2, 4) for part in (0, 1)]
    with pytest.raises(InputError, match=r"Chunks of a document are missing(.|\n)*where: web"):
        write(shards_in(tmp_path, 1), [[*pieces, *others]])


def test_rows_with_the_same_hash_are_ordered_by_everything_else() -> None:
    rows = [
        rows_of([[1, 2]], texts=[4], source="b"),
        rows_of([[1, 2]], texts=[4], source="a", place=1),
        rows_of([[1, 2]], texts=[4], source="a"),
        rows_of([[1, 3]], texts=[4], source="a"),
    ]
    table = pa.concat_tables([to_table(part) for part in rows])
    order = find_order(table).tolist()
    assert order[2:] == [1, 0]
    assert sorted(order[:2]) == [2, 3]
    again = pa.concat_tables([to_table(rows[i]) for i in (3, 2, 1, 0)])
    assert [3 - i for i in find_order(again).tolist()] == order


# --- what is in the files


def test_files_have_the_columns_of_a_build_and_say_what_they_hold(tmp_path: Path) -> None:
    large = list(range(40_000))
    rows = rows_of([[1, 2], large, []], source="web/a.txt", place=7, ids=["x", None, "z"])
    entries = write(shards_in(tmp_path, 2), [[rows]])
    assert [entry["name"] for entry in entries] == [
        "train-00000-of-00002.parquet",
        "train-00001-of-00002.parquet",
    ]
    table = pa.concat_tables([pq.read_table(tmp_path / entry["name"]) for entry in entries])
    assert table.column_names == [
        "input_ids", "num_tokens", "num_bytes", "source", "offset", "part", "id",
    ]  # fmt: skip
    assert table.schema.field("input_ids").type.value_type == pa.uint16()
    found = sorted(table.to_pylist(), key=lambda row: str(row["num_tokens"]))
    assert [row["input_ids"] for row in found] == [[], [1, 2], large]
    assert {row["source"] for row in found} == {"web/a.txt"}
    assert sum(entry["tokens"] for entry in entries) == 40_002
    listing = json.loads((tmp_path / "train-shards.json").read_bytes())
    assert listing["files"] == entries
    assert listing["totals"] == {
        "rows": 3, "documents": 3, "tokens": 40_002, "text_bytes": 3 * 40_002,
    }  # fmt: skip
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *(entry["name"] for entry in entries), "train-shards.json",
    ]  # fmt: skip


@pytest.mark.parametrize(("id_type", "bits"), [("auto", 32), ("uint16", 16), ("uint32", 32)])
def test_ids_have_the_type_of_the_widest_rows_or_that_asked_for(
    id_type: str, bits: int, tmp_path: Path
) -> None:
    shards = shards_in(tmp_path, 1, id_type=id_type)
    narrow = rows_of([[1] * 20_000], texts=[1])
    wide = rows_of([[2] * 20_000], texts=[2], dtype=np.uint32)
    write(shards, [[narrow], [wide]])
    table = pq.read_table(tmp_path / "train-00000-of-00001.parquet")
    assert table.schema.field("input_ids").type.value_type.bit_width == bits
    assert sorted(map(set, table["input_ids"].to_pylist()), key=min) == [{1}, {2}]
    assert "id" not in table.column_names


def test_an_id_that_does_not_fit_is_an_error(tmp_path: Path) -> None:
    shards = shards_in(tmp_path, 1, id_type="uint16")
    with pytest.raises(InputError, match="the id 70000 in uint16"):
        write(shards, [[rows_of([[70_000]], dtype=np.uint32)]])


def test_nothing_at_all_gives_empty_files(tmp_path: Path) -> None:
    entries = write(shards_in(tmp_path, 3), [[]])
    assert [entry["rows"] for entry in entries] == [0, 0, 0]
    assert len(pq.read_table(tmp_path / "train-00002-of-00003.parquet")) == 0


# --- completeness


def test_rows_that_are_missing_or_there_twice_are_found(tmp_path: Path) -> None:
    rows = rows_of([[1], [2], [3]])
    shards = shards_in(tmp_path, 1)
    runs = RowRuns(shards.files.runs, 1)
    runs.add(rows)
    [(_, descriptor)] = describe_sections(runs.finish())
    totals = RowTotals.of(rows)
    for found in ([], [descriptor, descriptor]):
        entry = shards.merge(0, found, totals.to_bytes())
        with pytest.raises(AccountingError, match="3 rows, 3 documents, 3 tokens, 9 text_bytes"):
            shards.files.finish([entry], totals.to_json())
    assert not (tmp_path / "train-shards.json").exists()


def test_a_damaged_run_is_found(tmp_path: Path) -> None:
    rows = rows_of([[1] * 20_000, [2] * 500])
    totals = RowTotals.of(rows).to_bytes()
    for place in (100, -100):
        shards = shards_in(tmp_path, 1)
        runs = RowRuns(shards.files.runs, 1)
        runs.add(rows)
        found = [descriptor for _, descriptor in describe_sections(runs.finish())]
        [path] = Path(shards.files.runs.url).iterdir()
        data = bytearray(path.read_bytes())
        data[place] ^= 1
        path.write_bytes(data)
        with pytest.raises(OutputError, match="damaged"):
            shards.merge(0, found, totals)
        path.write_bytes(data[:50])
        with pytest.raises(OutputError, match="damaged"):
            shards.merge(0, found, totals)


def test_a_directory_with_other_shards_is_refused(tmp_path: Path) -> None:
    shards = shards_in(tmp_path, 2)
    shards.files.check_vacant()
    (tmp_path / "notes.txt").touch()
    shards.files.check_vacant()
    (tmp_path / "train-00000-of-00005.parquet").touch()
    with pytest.raises(OutputError, match=r"train-00000-of-00005"):
        shards.files.check_vacant()
    with pytest.raises(OutputError, match="another pipeline"):
        write(shards, [[rows_of([[1]])]])


def test_splits_in_one_directory_have_listings_of_their_own(tmp_path: Path) -> None:
    for split in ("train", "validation"):
        shards = shards_in(tmp_path, 1, split=split)
        shards.files.check_vacant()
        write(shards, [[rows_of([[1]])]])
    for split in ("train", "validation"):
        [file] = json.loads((tmp_path / f"{split}-shards.json").read_bytes())["files"]
        assert file["name"] == f"{split}-00000-of-00001.parquet"
    (tmp_path / "train-00000-of-00001.parquet").unlink()
    with pytest.raises(OutputError, match="train-shards"):
        shards_in(tmp_path, 1).files.check_vacant()


def test_a_listing_of_another_pipeline_is_not_overwritten(tmp_path: Path) -> None:
    write(shards_in(tmp_path, 1), [[rows_of([[1]])]])
    write(shards_in(tmp_path, 1), [[rows_of([[1]])]])  # as a step that is tried again
    with pytest.raises(OutputError, match="Another pipeline has written"):
        write(shards_in(tmp_path, 1), [[rows_of([[2]])]])


# --- rows and batches as elements


def test_rows_give_the_same_files_as_batches(tmp_path: Path) -> None:
    batches = [
        rows_of([[1, 2], [3]], source="a", ids=["x", None]),
        rows_of([[4] * 20_000], texts=[9]),
        rows_of([[4] * 20_000], texts=[9], part=1),
    ]
    elements = RowElements()
    for batch in batches:
        for row in token_rows(batch):
            elements.add(row)
    assert elements.totals() == replace(RowTotals.sum_of(map(RowTotals.of, batches)), itemsize=4)
    write(shards_in(tmp_path / "a", 2), [batches])
    write(shards_in(tmp_path / "b", 2, id_type="uint16"), [[elements.rows()]])
    assert checksums(tmp_path / "a") == checksums(tmp_path / "b")


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ({"num_bytes": 3}, "without 'input_ids'"),
        ({"input_ids": [1]}, "without 'num_bytes'"),
        ({"input_ids": [-1], "num_bytes": 3}, "the id -1"),
        ({"input_ids": [1 << 32], "num_bytes": 3}, "the id 4294967296"),
        ({"input_ids": ["a"], "num_bytes": 3}, "input_ids"),
        ({"input_ids": [1.7], "num_bytes": 3}, r"input_ids: \[1.7\]"),
        ({"input_ids": [True], "num_bytes": 3}, "input_ids"),
        ({"input_ids": np.array([1.0]), "num_bytes": 3}, "input_ids"),
        ({"input_ids": "12", "num_bytes": 3}, "input_ids: '12'"),
        ({"input_ids": b"12", "num_bytes": 3}, "input_ids: b'12'"),
        ({"input_ids": None, "num_bytes": 3}, "input_ids: None"),
        ({"input_ids": [1], "num_bytes": -1}, "num_bytes: -1"),
        ({"input_ids": [1], "num_bytes": 3.5}, "num_bytes: 3.5"),
        ({"input_ids": [1], "num_bytes": None}, "num_bytes: None"),
        ({"input_ids": [1], "num_bytes": 3, "offset": 7.9}, "offset: 7.9"),
        ({"input_ids": [1], "num_bytes": 3, "part": -1, "hash": bytes(16)}, "part: -1"),
        ({"input_ids": [1], "num_bytes": 3, "part": 1 << 31, "hash": bytes(16)}, "part"),
        ({"input_ids": [1], "num_bytes": 3, "source": 7}, "source: 7"),
        ({"input_ids": [1], "num_bytes": 3, "hash": 7}, "hash: 7"),
        ({"input_ids": [1], "num_bytes": 3, "part": 1}, "part 1 of a document, without hash"),
        ({"input_ids": [1], "num_bytes": 3, "hash": b"abc"}, "3 bytes"),
        ({"input_ids": [1], "num_bytes": 3, "id": 7}, "id: 7"),
        (7, "int"),
    ],
)
def test_malformed_rows_are_rejected(row: Any, found: str) -> None:
    elements = RowElements()
    with pytest.raises(InputError, match=f"(?s)not a row of tokens.*{found}"):
        elements.add(row)
        elements.rows()


@pytest.mark.parametrize("ids", [None, ["x", None]])
@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_the_coder_of_token_rows_keeps_them(ids: Any, dtype: Any) -> None:
    rows = rows_of([[1, 2], [3]], source="ü", place=5, part=2, ids=ids, dtype=dtype)
    coder = beam.coders.registry.get_coder(TokenRows)
    assert isinstance(coder, TokenRowsCoder)
    for given_rows in (rows, rows.slice(1, 2), rows.slice(0, 0)):
        copy = coder.decode(coder.encode(given_rows))
        assert copy.sources.to_pylist() == ["ü"] * len(given_rows)
        for name in ("ids", "offsets", "num_bytes", "positions", "hashes", "parts"):
            before, after = getattr(given_rows, name), getattr(copy, name)
            assert (before.dtype, before.tolist()) == (after.dtype, after.tolist())
        assert (copy.record_ids is None) == (ids is None)
        if ids is not None:
            assert copy.record_ids.to_pylist() == given_rows.record_ids.to_pylist()


def test_the_coder_of_rejects_keeps_them() -> None:
    reject = Reject(
        source="a", offset=1, length=2, reason="r", message="ü", first_bytes=b"\xff\x00", id=None
    )
    coder = beam.coders.registry.get_coder(Reject)
    assert isinstance(coder, RejectCoder)
    assert coder.decode(coder.encode(reject)) == reject
