"""Counts by group, and documents: equal to the reference, however and wherever they are counted."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from build_support import (
    checksums,
    config_for,
    count_job,
    merge_all,
    some_text,
    with_small_pieces,
    works_of,
    write_corpus,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import times

from bpe_core import Group, PretokenCounts, reference
from bpe_core.errors import CountOverflowError
from pipelines.config import BuildConfig
from pipelines.counting.commits import TaskCounter, count_tasks, usable_commits
from pipelines.counting.jobs import CountJob
from pipelines.errors import IncompleteCountsError, InputError, PipelineError
from pipelines.readers.tasks import TaskWork, read_group_field

BOOKS = some_text(30)
# A long document, with pre-tokens that occur in others, and at its start and end.
LONG = b"the " * 100 + b"end of a long document " * 50 + b" the"
WEB = [*some_text(20, start=7), LONG, *some_text(20, start=40)]
RECORDS = [
    {"text": text.decode(), "meta": {"lang": lang}}
    for text, lang in zip(some_text(40, start=90), ["de", "en", None, 7] * 10, strict=True)
]


def language_of(record: dict[str, Any]) -> str:
    value = record["meta"]["lang"]
    return "" if value is None else str(value)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("groups")
    write_corpus(directory / "books", {"a.txt": BOOKS[:10], "b.txt": BOOKS[10:]})
    write_corpus(directory / "web", {"a.txt": WEB})
    (directory / "chat").mkdir()
    (directory / "chat" / "a.jsonl").write_text("".join(json.dumps(r) + "\n" for r in RECORDS))
    return directory


@pytest.fixture
def config(directory: Path, tmp_path: Path) -> BuildConfig:
    return config_of(directory, tmp_path)


def config_of(directory: Path, output: Path, **counts: Any) -> BuildConfig:
    text = {"format": "text", "separator": "<|endoftext|>", "range_bytes": 2000}
    sources = [
        {"name": "web", "files": [str(directory / "web" / "*")], **text},
        {"name": "chat", "files": [str(directory / "chat" / "*")], "format": "jsonl"},
        {"name": "books", "files": [str(directory / "books" / "*")], **text},
    ]
    sources[1]["range_bytes"] = 2000
    return config_for(
        output,
        output=str(output / "out"),
        input=sources,
        counts={"shards": 2, "checkpoint_bytes": 1, **counts},
    )


def job_for(config: BuildConfig, works: list[TaskWork], **changes: Any) -> CountJob:
    """Return the job of tests with the rules for groups of a build."""
    counts = config.counts
    job = replace(
        count_job(config, works),
        sources=tuple(source.name or "" for source in config.input),
        group_by=counts.group_by,
        document_frequency=counts.document_frequency,
    )
    job = replace(job, readings=read_group_field(job.readings, counts.group_path))
    return replace(job, **changes)


def documents_of(*, by_value: bool) -> Iterator[tuple[Group, str]]:
    for name, texts in (("books", BOOKS), ("web", WEB)):
        yield from ((Group(name, "" if by_value else None), text.decode()) for text in texts)
    for record in RECORDS:
        yield Group("chat", language_of(record) if by_value else None), record["text"]


def expected_rows(*, by_value: bool) -> dict[bytes, dict[Group, tuple[int, int]]]:
    return reference.count_groups(documents_of(by_value=by_value), special_tokens=["<|endoftext|>"])


def rows_of(job: CountJob, *, documents: bool = True) -> dict[bytes, dict[Group, tuple[int, int]]]:
    """Read the shards with pyarrow alone."""
    rows: dict[bytes, dict[Group, tuple[int, int]]] = {}
    for shard in sorted(Path(job.counts.url).glob("shard-*.parquet")):
        for row in pq.read_table(shard).to_pylist():
            of_groups = {
                Group(entry["source"], entry.get("value")): (
                    entry["count"],
                    entry["documents"] if documents else 0,
                )
                for entry in row["groups"]
            }
            assert list(of_groups) == sorted(of_groups)
            assert row["count"] == sum(count for count, _ in of_groups.values())
            if documents:
                assert row["documents"] == sum(number for _, number in of_groups.values())
            rows[row["pretoken"]] = of_groups
    return rows


def shards_of(job: CountJob) -> dict[str, str]:
    files = checksums(Path(job.counts.url))
    return {name: value for name, value in files.items() if not name.startswith("_")}


# --- equal to the reference


@pytest.mark.parametrize("by_value", [False, True])
def test_shards_hold_the_counts_and_documents_of_each_group(
    directory: Path, tmp_path: Path, by_value: bool
) -> None:
    group_by = "meta.lang" if by_value else None
    config = config_of(directory, tmp_path, group_by=group_by, document_frequency=True)
    works = works_of(config)
    job = job_for(config, works)
    entries = merge_all(job, count_tasks(job, works))
    expected = expected_rows(by_value=by_value)
    assert rows_of(job) == expected
    counts = PretokenCounts.load(job.counts.url)
    assert counts.groups == tuple(sorted({group for row in expected.values() for group in row}))
    documents = list(documents_of(by_value=by_value))
    assert {
        Group(entry["source"], entry.get("value")): entry["documents"]
        for entry in entries[0]["group_documents"]
    } == {group: sum(g == group for g, _ in documents) for group in counts.groups}
    for group in counts.groups:
        found = [
            numbers
            for entry in entries
            for numbers in entry["groups"]
            if (numbers["source"], numbers.get("value")) == group
        ]
        of_group = {key: row[group] for key, row in expected.items() if group in row}
        assert sum(numbers["distinct_pretokens"] for numbers in found) == len(of_group)
        assert sum(n["pretokens"] for n in found) == sum(count for count, _ in of_group.values())
        assert sum(n["bytes"] for n in found) == sum(
            len(key) * count for key, (count, _) in of_group.items()
        )


def test_without_document_frequency_only_counts_are_kept(
    config: BuildConfig, directory: Path
) -> None:
    works = works_of(config)
    job = job_for(config, works)
    merge_all(job, count_tasks(job, works))
    expected = expected_rows(by_value=False)
    assert rows_of(job, documents=False) == {
        key: {group: (count, 0) for group, (count, _) in row.items()}
        for key, row in expected.items()
    }
    metadata = pq.read_metadata(Path(job.counts.url) / "shard-00001-of-00002.parquet").metadata
    assert metadata[b"bpe.format"] == b"2"
    assert metadata[b"bpe.groups"] == b'[["books", null], ["chat", null], ["web", null]]'
    assert b"bpe.group_by" not in metadata


def test_documents_are_counted_without_groups(directory: Path, tmp_path: Path) -> None:
    config = config_of(directory, tmp_path, document_frequency=True)
    works = works_of(config)
    job = job_for(config, works, sources=())
    merge_all(job, count_tasks(job, works))
    counts = PretokenCounts.load(job.counts.url)
    documents = counts.documents()
    assert counts.groups == ()
    assert documents is not None
    expected = reference.count_groups(
        [("", text) for _, text in documents_of(by_value=False)], special_tokens=["<|endoftext|>"]
    )
    keys, offsets, numbers = counts.columns()
    assert {
        keys[offsets[i] : offsets[i + 1]].tobytes(): {"": (int(numbers[i]), int(documents[i]))}
        for i in range(len(counts))
    } == expected


@pytest.mark.parametrize("pattern", [r"\w+|\W", "none"])
def test_groups_and_documents_of_other_patterns(
    directory: Path, tmp_path: Path, pattern: str
) -> None:
    config = config_of(directory, tmp_path, group_by="meta.lang", document_frequency=True)
    works = works_of(config)
    job = job_for(config, works, pattern=pattern, max_pretoken_bytes=1 << 20)
    merge_all(job, count_tasks(job, works))
    assert rows_of(job) == reference.count_groups(
        documents_of(by_value=True), pattern=pattern, special_tokens=["<|endoftext|>"]
    )


# --- the same bytes however they are counted


@pytest.fixture(scope="module")
def undisturbed(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    config = config_of(
        directory, tmp_path_factory.mktemp("out"), group_by="meta.lang", document_frequency=True
    )
    job = job_for(config, works_of(config), checkpoint_bytes=1 << 30)
    merge_all(job, count_tasks(job, works_of(config)))
    return shards_of(job)


@settings(max_examples=times(0.5), deadline=None)
@given(data=st.data())
def test_memory_cuts_order_and_workers_change_no_byte(
    directory: Path,
    tmp_path_factory: pytest.TempPathFactory,
    undisturbed: dict[str, str],
    data: st.DataObject,
) -> None:
    config = config_of(
        directory, tmp_path_factory.mktemp("out"), group_by="meta.lang", document_frequency=True
    )
    works = works_of(config)
    data.draw(st.randoms(use_true_random=False)).shuffle(works)
    job = job_for(
        config,
        works,
        memory=data.draw(st.sampled_from([1, 1 << 30])),
        checkpoint_bytes=data.draw(st.sampled_from([1, 4000, 1 << 30])),
    )
    piece = data.draw(st.sampled_from([150, 400, 1 << 20]))
    job = replace(job, readings=with_small_pieces(job.readings, piece_bytes=piece, read_bytes=2000))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipelines.counting.shards.MERGED_AT_ONCE", data.draw(st.integers(8, 16)))
        descriptors = []
        cut = data.draw(st.integers(0, len(works)))
        for bundle in (works[:cut], works[cut:]):
            descriptors += count_tasks(job, bundle)
        merge_all(job, descriptors)
    assert shards_of(job) == undisturbed


def test_commits_are_used_again_with_their_groups(
    directory: Path, tmp_path: Path, undisturbed: dict[str, str]
) -> None:
    config = config_of(directory, tmp_path, group_by="meta.lang", document_frequency=True)
    works = works_of(config)
    job = job_for(config, works)
    counter = TaskCounter(job)
    for work in works[: len(works) // 2]:
        list(counter.count(work))
    counter.close()
    commits = list(usable_commits(job))
    assert commits
    done = {index for commit in commits for index in commit.tasks}
    descriptors = [d for commit in commits for d in commit.descriptors(job.shards)]
    descriptors += count_tasks(job, [work for work in works if work.index not in done])
    random.Random(1).shuffle(descriptors)
    merge_all(job, descriptors)
    assert shards_of(job) == undisturbed


def test_the_runs_of_a_long_document_are_removed(directory: Path, tmp_path: Path) -> None:
    config = config_of(directory, tmp_path, document_frequency=True)
    works = works_of(config)
    job = job_for(config, works, memory=1, checkpoint_bytes=1 << 30)
    job = replace(job, readings=with_small_pieces(job.readings, piece_bytes=100, read_bytes=2000))
    list(count_tasks(job, works))
    (commit,) = usable_commits(job)
    runs = {path.name for path in Path(job.runs.url).glob("run-*.bin")}
    assert runs == {section.run for run in commit.runs for section in run}


# --- what is refused


def test_a_changed_byte_of_a_run_is_found(directory: Path, tmp_path: Path) -> None:
    config = config_of(directory, tmp_path, group_by="meta.lang", document_frequency=True)
    works = works_of(config)
    job = job_for(config, works, checkpoint_bytes=1 << 30)
    descriptors = list(count_tasks(job, works))
    (run,) = Path(job.runs.url).glob("run-*.bin")
    content = run.read_bytes()
    generator = random.Random(7)
    for place in [*range(12), *generator.sample(range(len(content)), 60)]:
        damaged = bytearray(content)
        damaged[place] ^= 1 << generator.randrange(8)
        run.write_bytes(damaged)
        with pytest.raises((IncompleteCountsError, CountOverflowError)):
            merge_all(job, descriptors)


def test_too_many_groups_are_refused_with_field_and_place(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(directory, tmp_path, group_by="meta.lang")
    works = works_of(config)
    job = job_for(config, works)
    monkeypatch.setattr("pipelines.counting.table.MAX_GROUPS", 2)
    with pytest.raises(InputError, match=r"(?s)4,096.*counts.group_by: meta.lang.*a.jsonl"):
        list(count_tasks(job, works))
    monkeypatch.undo()
    monkeypatch.setattr("pipelines.counting.shards.MAX_GROUPS", 2)
    with pytest.raises(InputError, match=r"counts\.group_by: meta\.lang"):
        merge_all(job, count_tasks(job, works))


def test_a_value_as_long_as_a_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.jsonl").write_text(json.dumps({"text": "x", "lang": "y" * 1001}))
    source = {"files": [str(tmp_path / "data" / "*")], "format": "jsonl"}
    config = config_for(tmp_path, input=source, counts={"group_by": "lang"})
    job = job_for(config, works_of(config))
    with pytest.raises(InputError, match=r"(?s)too long.*1,001 characters in lang.*a.jsonl"):
        list(count_tasks(job, works_of(config)))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ({"files": ["*.txt"], "format": "text"}, "text files, which have no records"),
        ({"files": ["*"], "format": "jsonl", "text_field": "lang.text"}, "not inside text_field"),
    ],
)
def test_a_field_that_no_record_can_have_is_refused(source: dict[str, Any], found: str) -> None:
    with pytest.raises(Exception, match=found) as raised:
        config_for(Path("/nowhere"), input=source, counts={"group_by": "lang"})
    assert "group_by" in str(raised.value)


# --- what stays as it was


def test_one_source_without_a_field_is_not_grouped(directory: Path, tmp_path: Path) -> None:
    source = {"files": [str(directory / "books" / "*")], "format": "text"}
    config = config_for(tmp_path, input={**source, "separator": "<|endoftext|>"})
    works = works_of(config)
    job = count_job(config, works)
    merge_all(job, count_tasks(job, works))
    shard = pq.ParquetFile(Path(job.counts.url) / "shard-00000-of-00002.parquet")
    assert shard.schema_arrow.names == ["pretoken", "count"]
    assert shard.metadata.metadata[b"bpe.format"] == b"1"


@pytest.mark.parametrize("kind", [pa.string(), pa.dictionary(pa.int32(), pa.string()), pa.int64()])
def test_columns_of_parquet_group_by_their_text(tmp_path: Path, kind: pa.DataType) -> None:
    values = pa.array(["1", "2", None, "1"]).cast(pa.int64() if kind == pa.int64() else pa.string())
    values = values.dictionary_encode() if pa.types.is_dictionary(kind) else values
    (tmp_path / "data").mkdir()
    pq.write_table(
        pa.table({"text": ["a", "b", "c", "a"], "n": values}), tmp_path / "data" / "a.parquet"
    )
    source = {"files": [str(tmp_path / "data" / "*")], "format": "parquet"}
    config = config_for(tmp_path, input=source, counts={"group_by": "n", "shards": 1})
    works = works_of(config)
    job = job_for(config, works)
    merge_all(job, count_tasks(job, works))
    assert rows_of(job, documents=False) == {
        b"a": {Group("", "1"): (2, 0)},
        b"b": {Group("", "2"): (1, 0)},
        b"c": {Group("", ""): (1, 0)},
    }


def test_a_column_with_values_inside_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    table = pa.table({"text": ["a"], "meta": pa.array([{"lang": "de"}])})
    pq.write_table(table, tmp_path / "data" / "a.parquet")
    source = {"files": [str(tmp_path / "data" / "*")], "format": "parquet"}
    config = config_for(tmp_path, input=source, counts={"group_by": "meta"})
    works = works_of(config)
    with pytest.raises(PipelineError, match=r"(?s)column meta \(.*counts.group_by\).*struct"):
        list(count_tasks(job_for(config, works), works))
