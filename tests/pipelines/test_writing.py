"""Token files: what is in them, and that it follows from task, tokenizer and configuration."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from build_support import (
    SEPARATOR,
    checksums,
    config_for,
    encode_job,
    plan_of,
    some_text,
    with_small_pieces,
    works_of,
    write_corpus,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import times

from bpe_core import BPETokenizer, count_pretokens, train_from_counts
from pipelines import writing
from pipelines.accounting import NUMBERS
from pipelines.config import BuildConfig
from pipelines.errors import DifferentConfigurationError, InputError
from pipelines.manifest import token_schema
from pipelines.manifest.entries import TaskEntry
from pipelines.manifest.names import token_file_name
from pipelines.readers.tasks import TaskWork
from pipelines.storage.directory import Directory
from pipelines.writing import tasks as writing_tasks
from pipelines.writing.encoder import keep_tokenizer
from pipelines.writing.jobs import EncodeJob, entry_name
from pipelines.writing.rows import TokenRows
from pipelines.writing.tasks import write_task
from pipelines.writing.token_file import TokenFile

END = "<|endoftext|>"
DOCUMENTS = {f"{name}.txt": some_text(30, start=30 * i) for i, name in enumerate("ab")}


@pytest.fixture(scope="module")
def tokenizer_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tokenizer")
    documents = [document for found in DOCUMENTS.values() for document in found]
    trained = train_from_counts(count_pretokens(documents), 400, [END, "<|x|>"])
    trained.tokenizer().save(directory)
    return directory


@pytest.fixture(scope="module")
def tokenizer(tokenizer_directory: Path) -> BPETokenizer:
    return BPETokenizer.load(tokenizer_directory)


@pytest.fixture
def config(tmp_path: Path) -> BuildConfig:
    write_corpus(tmp_path / "data", DOCUMENTS)
    return config_for(tmp_path)


def job_for(config: BuildConfig, tokenizer_directory: Path, **changes: Any) -> EncodeJob:
    fingerprint = BPETokenizer.load(tokenizer_directory).model.fingerprint
    return encode_job(config, tokenizer_directory, fingerprint, **changes)


@pytest.fixture
def job(config: BuildConfig, tokenizer_directory: Path) -> EncodeJob:
    return job_for(config, tokenizer_directory)


def write_all(job: EncodeJob, works: list[TaskWork]) -> list[dict[str, Any]]:
    return [write_task(job, work) for work in works]


def rows_of(job: EncodeJob, split: str = "train") -> list[dict[str, Any]]:
    paths = sorted(Path(job.tokens.url).glob(f"{split}-*.parquet"))
    return [row for path in paths for row in pq.read_table(path).to_pylist()]


def documents_in_order() -> list[bytes]:
    return [document for name in sorted(DOCUMENTS) for document in DOCUMENTS[name]]


# --- what a token file is


def test_there_is_one_train_file_for_each_task_in_order(
    job: EncodeJob, config: BuildConfig
) -> None:
    works = works_of(config)
    entries = write_all(job, works)
    names = [f"train-{i:05d}-of-{len(works):05d}.parquet" for i in range(len(works))]
    assert [entry["train"]["name"] for entry in entries] == names
    assert sorted(path.name for path in Path(job.tokens.url).glob("*.parquet")) == names


def test_columns_have_the_types_that_are_promised(job: EncodeJob, config: BuildConfig) -> None:
    write_all(job, works_of(config)[:1])
    (path,) = Path(job.tokens.url).glob("*.parquet")
    types = {field.name: field.type for field in pq.read_schema(path)}
    assert types == {
        "input_ids": pa.list_(pa.field("element", pa.uint16(), nullable=False)),
        "num_tokens": pa.int32(),
        "num_bytes": pa.int64(),
        "source": pa.dictionary(pa.int32(), pa.string()),
        "offset": pa.int64(),
        "part": pa.int32(),
    }
    wide = replace(job, id_type="uint32")
    write_all(wide, works_of(config)[:1])
    assert pq.read_schema(path).field("input_ids").type.value_type == pa.uint32()
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    assert (column.compression, column.path_in_schema) == ("ZSTD", "input_ids.list.element")
    assert "BYTE_STREAM_SPLIT" in column.encodings


def test_rows_decode_to_the_documents_in_order(
    job: EncodeJob, config: BuildConfig, tokenizer: BPETokenizer
) -> None:
    write_all(job, works_of(config))
    rows = rows_of(job)
    end = tokenizer.special_tokens[END]
    assert [row["input_ids"][-1] for row in rows] == [end] * len(rows)
    decoded = [tokenizer.decode_bytes(row["input_ids"][:-1]) for row in rows]
    assert decoded == documents_in_order()
    assert [row["num_tokens"] for row in rows] == [len(row["input_ids"]) for row in rows]
    assert [row["num_bytes"] for row in rows] == [len(document) for document in decoded]
    assert {row["part"] for row in rows} == {0}


def test_source_and_offset_lead_to_the_document(
    job: EncodeJob, config: BuildConfig, tmp_path: Path
) -> None:
    write_all(job, works_of(config))
    for row, document in zip(rows_of(job), documents_in_order(), strict=True):
        text = (tmp_path / "data" / row["source"]).read_bytes()
        assert text[row["offset"] : row["offset"] + row["num_bytes"]] == document


def test_prepend_and_append_stand_around_each_document(
    config: BuildConfig, tokenizer_directory: Path, tokenizer: BPETokenizer
) -> None:
    job = job_for(config, tokenizer_directory, prepend="<|x|>", append=None)
    write_all(job, works_of(config))
    first = tokenizer.special_tokens["<|x|>"]
    for row, document in zip(rows_of(job), documents_in_order(), strict=True):
        assert row["input_ids"] == [first, *tokenizer.encode(document.decode())]


def test_the_metadata_says_what_the_file_was_made_from(job: EncodeJob, config: BuildConfig) -> None:
    (entry, *_) = write_all(job, works_of(config))
    file = pq.ParquetFile(job.tokens.path(entry["train"]["name"]))
    said = {key.decode(): value.decode() for key, value in file.metadata.metadata.items()}
    assert said["bpe.tokenizer"] == job.tokenizer_fingerprint
    assert said["bpe.configuration"] == job.configuration
    assert json.loads(said["bpe.task"]) == {
        "index": 0,
        "of": len(works_of(config)),
        "inputs": [["a.txt", 0, 4000]],
    }
    train = entry["train"]
    assert json.loads(said["bpe.totals"]) == {
        "rows": train["rows"],
        "tokens": train["tokens"],
        "bytes": train["text_bytes"],
    }


def test_the_entry_is_right_about_the_file(job: EncodeJob, config: BuildConfig) -> None:
    for entry in write_all(job, works_of(config)):
        data = Path(job.tokens.path(entry["train"]["name"])).read_bytes()
        assert entry["train"]["bytes"] == len(data)
        assert entry["train"]["xxh3_128"] == xxhash.xxh3_128_hexdigest(data)
        table = pq.read_table(pa.BufferReader(data))
        assert entry["train"]["rows"] == entry["train"]["documents"] == len(table)
        assert entry["train"]["tokens"] == sum(table["num_tokens"].to_pylist())
        assert entry["train"]["text_bytes"] == sum(table["num_bytes"].to_pylist())


def test_writing_a_task_again_gives_the_same_bytes(job: EncodeJob, config: BuildConfig) -> None:
    write_all(job, works_of(config))
    before = checksums(Path(job.tokens.url))
    write_all(job, works_of(config))
    assert checksums(Path(job.tokens.url)) == before


def test_a_task_without_rows_has_its_file(tmp_path: Path, tokenizer_directory: Path) -> None:
    write_corpus(tmp_path / "data", {"a.txt": [b"", b"", b"x" * 500, b"y"]})
    config = config_for(tmp_path, input={"range_bytes": 100}, encode={"validation_fraction": 0.5})
    works = works_of(config)
    entries = write_all(job_for(config, tokenizer_directory), works)
    job = job_for(config, tokenizer_directory)
    assert len(list(Path(job.tokens.url).glob("train-*.parquet"))) == len(works) == 6
    assert len(list(Path(job.tokens.url).glob("validation-*.parquet"))) == len(works)
    empty = next(entry for entry in entries if entry["totals"]["documents"] == 0)
    table = pq.read_table(job.tokens.path(empty["train"]["name"]))
    assert len(table) == 0
    assert table.schema.remove_metadata() == token_schema.schema("uint16")


# --- long documents


def long_document(length: int) -> bytes:
    return b" ".join(some_text(1 + length // 200))[:length].decode(errors="ignore").encode()


@pytest.mark.parametrize("compression", [None, "gz"])
def test_pieces_of_a_document_have_together_the_ids_of_the_document(
    compression: str | None,
    tmp_path: Path,
    tokenizer_directory: Path,
    tokenizer: BPETokenizer,
) -> None:
    documents = [b"short", long_document(3000), b"also short", long_document(1500), b"end"]
    write_corpus(tmp_path / "data", {"a.txt": documents})
    if compression:
        import gzip

        path = tmp_path / "data" / "a.txt"
        (tmp_path / "data" / "a.txt.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    config = config_for(tmp_path, input={"range_bytes": 1 << 20})
    job = job_for(config, tokenizer_directory, prepend="<|x|>")
    pieces = replace(job, readings=with_small_pieces(job.readings, piece_bytes=200, read_bytes=300))
    (entry,) = write_all(pieces, works_of(config))
    rows = rows_of(job)
    assert len(rows) > 20
    parts: list[list[dict[str, Any]]] = []
    for row in rows:
        if row["part"] == 0:
            parts.append([])
        assert row["part"] == len(parts[-1])
        parts[-1].append(row)
    first, end = (tokenizer.special_tokens[token] for token in ("<|x|>", END))
    offset = 0
    for document, found in zip(documents, parts, strict=True):
        joined = [i for row in found for i in row["input_ids"]]
        assert joined == [first, *tokenizer.encode(document.decode()), end]
        assert {row["offset"] for row in found} == {offset}
        assert sum(row["num_bytes"] for row in found) == len(document)
        offset += len(document) + len(SEPARATOR)
    assert entry["train"]["documents"] == entry["totals"]["documents"] == len(documents)


def test_a_document_goes_into_one_split_with_all_its_pieces(
    tmp_path: Path, tokenizer_directory: Path
) -> None:
    documents = [long_document(1000 + i) for i in range(30)]
    write_corpus(tmp_path / "data", {"a.txt": documents})
    config = config_for(tmp_path, encode={"validation_fraction": 0.5})
    job = job_for(config, tokenizer_directory)
    job = replace(job, readings=with_small_pieces(job.readings, piece_bytes=200, read_bytes=300))
    write_all(job, works_of(config))
    offsets = [{row["offset"] for row in rows_of(job, split)} for split in ("train", "validation")]
    assert offsets[0].isdisjoint(offsets[1])
    assert len(offsets[0] | offsets[1]) == len(documents)
    assert min(map(len, offsets)) > 0


# --- row groups


@pytest.mark.slow
def test_row_groups_do_not_depend_on_batches(
    job: EncodeJob, config: BuildConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.writing.token_file._ROW_GROUP_ROWS", 7)
    monkeypatch.setattr("pipelines.writing.token_file._ROW_GROUP_TOKENS", 900)
    found = []
    for read_bytes in (1, 37, 500, 1 << 20):
        readings = with_small_pieces(job.readings, read_bytes=read_bytes)
        write_all(replace(job, readings=readings), works_of(config))
        found.append(checksums(Path(job.tokens.url)))
    assert found[1:] == found[:1] * 3
    paths = sorted(Path(job.tokens.url).glob("*.parquet"))
    for path in paths:
        metadata = pq.ParquetFile(path).metadata
        groups = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        assert sum(groups) <= 7 or len(groups) > 1
        assert max(groups) <= 7


@given(
    sizes=st.lists(st.integers(0, 12), max_size=40),
    cuts=st.lists(st.integers(0, 40), max_size=8),
    rows=st.integers(1, 9),
    tokens=st.integers(1, 30),
    joined=st.integers(2, 5),
    few=st.integers(0, 4),
)
@settings(max_examples=times(0.6))
def test_row_groups_are_cut_by_rows_and_tokens_alone(
    sizes: list[int], cuts: list[int], rows: int, tokens: int, joined: int, few: int
) -> None:
    """Batches that are joined, since they are small, change nothing."""
    import numpy as np

    places = sorted({0, *(min(cut, len(sizes)) for cut in cuts), len(sizes)})
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipelines.writing.token_file._ROW_GROUP_ROWS", rows)
        patch.setattr("pipelines.writing.token_file._ROW_GROUP_TOKENS", tokens)
        patch.setattr("pipelines.writing.token_file._JOINED_BATCHES", joined)
        patch.setattr("pipelines.writing.token_file._FEW_ROWS", few)
        job = _bare_job(name)
        columns = token_schema.schema(job.id_type, record_ids=True)
        ids, sources, record_ids = [], [], []
        with TokenFile(job.tokens, "f.parquet", columns, {}) as file:
            for begin, end in itertools.pairwise(places):
                lengths = sizes[begin:end]
                named = begin % 2 == 0
                sources += [f"s{begin}"] * (end - begin)
                record_ids += [str(row) if named else None for row in range(begin, end)]
                ends = np.cumsum(lengths).tolist()
                ids += [[*range(end - n, end)] for n, end in zip(lengths, ends, strict=True)]
                file.add(
                    TokenRows(
                        ids=np.arange(sum(lengths), dtype=np.uint16),
                        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
                        num_bytes=np.ones(end - begin, np.int64),
                        positions=np.arange(begin, end),
                        hashes=np.zeros((end - begin, 2), np.uint64),
                        parts=np.zeros(end - begin, np.int32),
                        sources=pa.array([f"s{begin}"] * (end - begin)).dictionary_encode(),
                        record_ids=pa.array(record_ids[begin:end]) if named else None,
                    )
                )
            file.finish()
        metadata = pq.ParquetFile(Path(name) / "f.parquet").metadata
        groups = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        table = pq.read_table(Path(name) / "f.parquet")
    expected, group, held = [], 0, 0
    for size in sizes:
        group, held = group + 1, held + size
        if group == rows or held >= tokens:
            expected.append(group)
            group = held = 0
    assert groups == expected + [group] * bool(group)
    assert table["num_tokens"].to_pylist() == sizes
    assert table["offset"].to_pylist() == list(range(len(sizes)))
    assert table["input_ids"].to_pylist() == ids
    assert table["source"].to_pylist() == sources
    assert table["id"].to_pylist() == record_ids


def _bare_job(directory: str) -> EncodeJob:
    from pipelines.storage.directory import Directory

    return EncodeJob(
        tokens=Directory(url=directory), rejects=Directory(url=directory), tokenizer="",
        tokenizer_fingerprint="", configuration="", plan_id="", prepend=None, append=None,
        special_tokens_in_text="split", id_type="uint16", validation_fraction=0.0, readings=(),
    )  # fmt: skip


# --- the validation split


@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.999])
def test_the_validation_split_is_by_the_lower_half_of_the_hash(
    fraction: float, config: BuildConfig, tokenizer_directory: Path, tokenizer: BPETokenizer
) -> None:
    job = job_for(config, tokenizer_directory, append=None, validation_fraction=fraction)
    write_all(job, works_of(config))
    found = {
        split: [tokenizer.decode_bytes(row["input_ids"]) for row in rows_of(job, split)]
        for split in ("train", "validation")
    }
    expected: dict[str, list[bytes]] = {"train": [], "validation": []}
    for document in documents_in_order():
        low = xxhash.xxh3_128_intdigest(document) % 2**64
        expected["validation" if low < fraction * 2**64 else "train"].append(document)
    assert found == expected


def test_without_a_fraction_there_are_no_validation_files(
    job: EncodeJob, config: BuildConfig
) -> None:
    entries = write_all(job, works_of(config))
    assert {entry["validation"] for entry in entries} == {None}
    assert list(Path(job.tokens.url).glob("validation*")) == []


# --- rejects and totals


def test_every_document_is_a_row_a_reject_or_empty(
    tmp_path: Path, tokenizer_directory: Path
) -> None:
    documents = [b"good", b"bad \xff byte", b"", b"a <|x|> here", b"fine", b"", b"\xc3"] * 5
    write_corpus(tmp_path / "data", {"a.txt": documents})
    config = config_for(
        tmp_path,
        input={"range_bytes": 150},
        encode={"special_tokens_in_text": "reject", "validation_fraction": 0.3},
    )
    job = job_for(config, tokenizer_directory)
    written = [TaskEntry.model_validate(entry) for entry in write_all(job, works_of(config))]
    entries = dict(enumerate(written))
    size = sum(map(len, documents)) + len(END) * len(documents)
    content = writing.tokens_content(
        entries, plan_of(config).files, config.input, written[0].statistics
    ).to_json()
    totals = content["totals"]
    assert (totals["documents"], totals["empty"], totals["rejected"]) == (10, 10, 15)
    rows = totals["train_rows"] + totals["validation_rows"]
    assert rows == len(rows_of(job)) + len(rows_of(job, "validation")) == 10
    assert totals["bytes"] == sum(map(len, documents)) - totals["rejected_bytes"] == 40
    (file,), (source,) = content["inputs"], content["sources"]
    numbers = {name: totals[name] for name in NUMBERS}
    said = {"name": "a.txt", "size": size, "generation": "base", "unread": False, "bad": False}
    said["planned_bytes"] = size
    hashes = 5 * xxhash.xxh3_128_intdigest(b"a <|x|> here") % 2**128
    assert file == {**said, **numbers, "refused": f"5-{hashes:032x}"}
    assert source == {
        "name": None,
        "planned_bytes": size,
        **numbers,
        "hash_sum": totals["hash_sum"],
        "bad_files": [],
        "reasons": {"invalid_utf8": 10, "special_token": 5},
    }
    assert sum(totals[name] for name in NUMBERS if "bytes" in name) == size
    files = [job.rejects.path(entry["name"]) for entry in content["files"]["rejects"]]
    rejects = [row for path in files for row in pq.read_table(path).to_pylist()]
    assert len(rejects) == sum(entry["rows"] for entry in content["files"]["rejects"]) == 15
    assert {row["reason"] for row in rejects} == {"invalid_utf8", "special_token"}
    text = (tmp_path / "data" / "a.txt").read_bytes()
    for row in rejects:
        document = text[row["offset"] : row["offset"] + row["length"]]
        assert document in documents
        assert document.startswith(row["first_bytes"])


def test_a_task_without_rejects_has_no_rejects_file(job: EncodeJob, config: BuildConfig) -> None:
    entries = write_all(job, works_of(config))
    assert {entry["rejects"] for entry in entries} == {None}
    assert not Path(job.rejects.url).exists()


# --- special tokens in text

TEXT = b"before <|x|> after"


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("policy", ["split", "text", "reject", "error"])
def test_special_tokens_in_text(
    policy: str, long: bool, tmp_path: Path, tokenizer_directory: Path, tokenizer: BPETokenizer
) -> None:
    filler = long_document(2000) if long else b""
    document = filler + TEXT + filler
    write_corpus(tmp_path / "data", {"a.txt": [b"other", document, b"last"]})
    config = config_for(
        tmp_path, input={"range_bytes": 1 << 20}, encode={"special_tokens_in_text": policy}
    )
    job = job_for(config, tokenizer_directory, append=None)
    job = replace(job, readings=with_small_pieces(job.readings, piece_bytes=200, read_bytes=300))
    works = works_of(config)
    if policy == "error":
        with pytest.raises(InputError) as error:
            write_all(job, works)
        assert f"a special token at byte {len(filler) + 7:,} of the document" in str(error.value)
        assert "a.txt, document at offset 18" in str(error.value)
        assert not list(Path(job.tokens.url).glob("train-*"))
        return
    (entry,) = write_all(job, works)
    ids = [i for row in rows_of(job) if row["offset"] == 18 for i in row["input_ids"]]
    texts = {"split": "all", "text": "none"}
    if policy == "reject":
        assert ids == []
        assert (entry["totals"]["documents"], entry["totals"]["rejected"]) == (2, 1)
        (reject,) = pq.read_table(job.rejects.path(entry["rejects"]["name"])).to_pylist()
        assert (reject["offset"], reject["length"]) == (18, len(document))
        assert reject["reason"] == "special_token"
        assert f"byte {len(filler) + 7}" in reject["message"]
        assert document.startswith(reject["first_bytes"])
    else:
        assert ids == tokenizer.encode(document.decode(), allowed_special=texts[policy])
        special = tokenizer.special_tokens["<|x|>"]
        assert ids.count(special) == (policy == "split")


# --- what is finished


def test_the_train_file_comes_last_and_means_that_the_task_is_finished(
    config: BuildConfig, tokenizer_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_for(config, tokenizer_directory, validation_fraction=0.5)
    works = works_of(config)
    order: list[str] = []
    replace_ = Path.replace
    monkeypatch.setattr(
        Path, "replace", lambda self, to: (order.append(Path(to).name), replace_(self, to))[1]
    )
    write_task(job, works[0])
    kinds = [name.partition("-")[0] for name in order]
    assert kinds == ["validation", "00000", "00000", "train"]  # statistics and entry
    assert set(writing.finished_entries(job, len(works))) == {0}


@pytest.mark.parametrize("damage", ["train", "validation", "entry", "short"])
def test_a_task_with_a_file_missing_is_not_finished(
    damage: str, config: BuildConfig, tokenizer_directory: Path
) -> None:
    job = job_for(config, tokenizer_directory, validation_fraction=0.5)
    works = works_of(config)
    write_all(job, works)
    name = token_file_name("train", 1, len(works))
    path = Path(job.tokens.path(name))
    if damage == "entry":
        path = Path(job.entries.path(entry_name(1, len(works))))
    elif damage == "validation":
        path = path.with_name(path.name.replace("train", "validation"))
    if damage == "short":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        path.unlink()
    assert set(writing.finished_entries(job, len(works))) == set(range(len(works))) - {1}


def test_entries_of_another_plan_do_not_count(job: EncodeJob, config: BuildConfig) -> None:
    works = works_of(config)
    write_all(job, works)
    assert writing.finished_entries(replace(job, plan_id="other"), len(works)) == {}


def test_a_task_that_fails_leaves_no_file(
    config: BuildConfig, tokenizer_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_for(config, tokenizer_directory, validation_fraction=0.5)
    real = writing_tasks.read_task

    def failing(work: TaskWork, readings: Any) -> Iterator[Any]:
        yield from real(work, readings)
        raise InputError("Bad.")

    monkeypatch.setattr("pipelines.writing.tasks.read_task", failing)
    with pytest.raises(InputError):
        write_task(job, works_of(config)[0])
    assert checksums(Path(job.tokens.url)) == {}


def test_a_process_has_the_tokenizer_once(job: EncodeJob, tmp_path: Path) -> None:
    absent = Directory(url=str(tmp_path / "absent"))
    loaded = writing.load_tokenizer(job.tokenizer, job.tokenizer_fingerprint)
    assert writing.load_tokenizer(job.tokenizer, job.tokenizer_fingerprint) is loaded
    keep_tokenizer(absent, loaded.model)
    kept = writing.load_tokenizer(absent, job.tokenizer_fingerprint)
    assert kept.model is loaded.model
    assert writing.load_tokenizer(job.tokenizer, job.tokenizer_fingerprint) is not loaded


def test_another_tokenizer_than_planned_is_refused(
    config: BuildConfig, tokenizer_directory: Path
) -> None:
    job = encode_job(config, tokenizer_directory, "another")
    with pytest.raises(DifferentConfigurationError, match="tokenizer has changed"):
        write_task(job, works_of(config)[0])


# --- corpora that hypothesis makes


@settings(max_examples=times(0.4))
@given(
    files=st.lists(
        st.lists(st.text(st.sampled_from("ab é\n.1'漢"), max_size=30).map(str.encode), max_size=6),
        min_size=1,
        max_size=3,
    ),
    range_bytes=st.integers(1, 80),
    fraction=st.sampled_from([0.0, 0.4]),
)
def test_rows_are_the_encoded_documents(
    files: list[list[bytes]],
    range_bytes: int,
    fraction: float,
    tokenizer_directory: Path,
    tokenizer: BPETokenizer,
) -> None:
    with tempfile.TemporaryDirectory() as name:
        write_corpus(Path(name) / "data", {f"{i}.txt": found for i, found in enumerate(files)})
        config = config_for(
            Path(name),
            input={"range_bytes": range_bytes},
            encode={"validation_fraction": fraction},
        )
        job = job_for(config, tokenizer_directory, append=None)
        entries = write_all(job, works_of(config))
        rows = rows_of(job) + rows_of(job, "validation")
        whole = [document for found in files for document in found if document]
        encoded = [tokenizer.encode(document.decode()) for document in whole]
        if not fraction:
            assert [row["input_ids"] for row in rows] == encoded
        assert sorted(row["input_ids"] for row in rows) == sorted(encoded)
        assert sum(entry["totals"]["documents"] for entry in entries) == len(whole)
        empty = sum(not document for found in files for document in found)
        assert sum(entry["totals"]["empty"] for entry in entries) == empty


def test_workers_that_write_a_task_at_the_same_time_make_one_of_it(
    job: EncodeJob, config: BuildConfig
) -> None:
    """Whichever entry and files stay, of whichever attempt: they fit each other."""
    works = works_of(config)
    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(lambda i: write_task(job, works[i % 2]), range(8)))
    assert made[0::2] == [made[0]] * 4
    assert made[1::2] == [made[1]] * 4
    assert set(writing.finished_entries(job, len(works))) == {0, 1}
    for entry in made[:2]:
        file = Path(job.tokens.path(entry["train"]["name"]))
        assert xxhash.xxh3_128_hexdigest(file.read_bytes()) == entry["train"]["xxh3_128"]
    assert not job.tokens.leftovers()
