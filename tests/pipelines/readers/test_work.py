"""Tasks as they travel to workers, special tokens in documents, and totals that add up."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import xxhash
from build_support import config_for, plan_of, some_text, works_of, write_corpus
from hypothesis import given
from hypothesis import strategies as st

from bpe_core.special_tokens import special_set
from pipelines.accounting import DocumentTotals
from pipelines.batches import DocumentBatch
from pipelines.errors import InputError
from pipelines.readers.tasks import (
    TaskWork,
    read_task,
    refuse_special_tokens,
    source_readings,
)

SPECIALS = special_set(["<|x|>", "<|x|>y"])


def batch_of(documents: list[bytes], **changes: object) -> DocumentBatch:
    ends = np.cumsum([len(document) for document in documents], dtype=np.int64)
    lengths = np.array([len(document) for document in documents], np.int64)
    hashes = [divmod(xxhash.xxh3_128_intdigest(d), 1 << 64) for d in documents]
    values = {
        "data": np.frombuffer(b"".join(documents), np.uint8),
        "starts": ends - lengths,
        "ends": ends,
        "offsets": ends - lengths,
        "num_bytes": lengths,
        "hashes": np.array(hashes, np.uint64).reshape(-1, 2),
        "source": "a.txt",
    }
    return DocumentBatch(**{**values, **changes})  # type: ignore[arg-type]


def documents_of(batch: DocumentBatch) -> list[bytes]:
    return [batch.document(i) for i in range(len(batch))]


# --- tasks


def test_a_descriptor_brings_the_whole_task_and_is_small(tmp_path: Path) -> None:
    write_corpus(tmp_path / "data", {"é.txt": some_text(40), "b.txt": some_text(40)})
    for work in works_of(config_for(tmp_path)):
        descriptor = work.to_bytes()
        assert TaskWork.from_bytes(descriptor) == work
        assert len(descriptor) < 1000


def test_a_descriptor_of_many_files_is_compressed(tmp_path: Path) -> None:
    files = {f"part-{number:04d}.txt": some_text(1) for number in range(300)}
    write_corpus(tmp_path / "data", files)
    together = {"files": [f"{tmp_path}/data/*"], "range_bytes": 1 << 20}
    [work] = works_of(config_for(tmp_path, input=together))
    descriptor = work.to_bytes()
    assert TaskWork.from_bytes(descriptor) == work
    assert len(descriptor) < 60 * len(work.parts)


def test_a_task_is_described_by_what_a_person_can_find(tmp_path: Path) -> None:
    write_corpus(tmp_path / "data", {"a.txt": some_text(40)})
    (_, second, *_) = works_of(config_for(tmp_path))
    text = second.describe("count")
    assert text.startswith("count task 1 of ")
    assert f"{tmp_path}/data/a.txt byte 4000" in text
    assert "byte 8000" in text


def test_the_documents_of_all_tasks_are_those_of_the_files_in_order(tmp_path: Path) -> None:
    corpus = {"a.txt": some_text(50), "b.txt": some_text(3), "c.txt": some_text(20, start=60)}
    write_corpus(tmp_path / "data", corpus)
    config = config_for(tmp_path)
    readings = source_readings(config.input, "gpt2", ())
    found = [
        document
        for work in works_of(config)
        for batch in read_task(work, readings)
        for document in documents_of(batch)
    ]
    assert found == [document for name in sorted(corpus) for document in corpus[name]]


def test_task_hashes_tell_all_tasks_apart(tmp_path: Path) -> None:
    write_corpus(tmp_path / "data", {"a.txt": some_text(50), "b.txt": some_text(50)})
    plan = plan_of(config_for(tmp_path))
    hashes = {plan.task_hash(task) for task in plan.tasks}
    assert len(hashes) == len(plan.tasks) > 4


@pytest.mark.parametrize(
    ("pattern", "cut"),
    [("gpt2", True), ("o200k", True), ("none", False), (r"\w+", True), (r"(\w)\1", False)],
)
def test_long_documents_are_cut_only_where_the_pattern_has_safe_places(
    pattern: str, cut: bool, tmp_path: Path
) -> None:
    write_corpus(tmp_path / "data", {"a.txt": [b"x"]})
    (reading,) = source_readings(config_for(tmp_path).input, pattern, ["<|x|>"])
    assert reading.options.cut is cut
    assert reading.options.special_tokens == (b"<|x|>",)


# --- special tokens in documents


@pytest.mark.parametrize("policy", ["split", "text", "keep"])
def test_policies_that_keep_documents_change_nothing(policy: str) -> None:
    batch = batch_of([b"a <|x|>", b"b"])
    assert refuse_special_tokens(batch, SPECIALS, policy) is batch


def test_documents_with_a_special_token_are_rejected_with_their_place() -> None:
    long = b"z" * 100 + b"<|x|>"
    batch = batch_of([b"a", b"bc<|x|>y", b"d", long])
    kept = refuse_special_tokens(batch, SPECIALS, "reject")
    assert documents_of(kept) == [b"a", b"d"]
    first, second = kept.rejects
    assert (first.source, first.offset, first.length) == ("a.txt", 1, 8)
    assert (first.reason, first.first_bytes) == ("special_token", b"bc<|x|>y")
    assert "byte 2 " in first.message
    assert (second.offset, second.length, second.first_bytes) == (10, 105, b"z" * 64)


def test_rejects_of_reading_come_first_and_stay() -> None:
    batch = batch_of([b"a"], rejects=("reading's",), empty=3)
    kept = refuse_special_tokens(batch, SPECIALS, "reject")
    assert (kept.rejects, kept.empty) == (("reading's",), 3)
    batch = batch_of([b"a", b"<|x|>"], rejects=("reading's",), empty=3)
    kept = refuse_special_tokens(batch, SPECIALS, "reject")
    assert (kept.rejects[0], len(kept.rejects), kept.empty) == ("reading's", 2, 3)


def test_a_long_document_is_rejected_once_by_what_is_anywhere_in_it() -> None:
    rejects = 0
    for part in range(3):
        piece = batch_of(
            [b"nothing here"], part=part, last=part == 2, whole_bytes=36, special_at=30
        )
        kept = refuse_special_tokens(piece, SPECIALS, "reject")
        assert len(kept) == 0
        rejects += len(kept.rejects)
        assert [reject.length for reject in kept.rejects] == [36] * (part == 0)
    assert rejects == 1
    fine = batch_of([b"nothing"], part=1, whole_bytes=36)
    assert len(refuse_special_tokens(fine, SPECIALS, "reject")) == 1


def test_the_policy_error_names_the_document_and_the_byte() -> None:
    with pytest.raises(InputError) as error:
        refuse_special_tokens(batch_of([b"a" * 2000, b"bc<|x|>"]), SPECIALS, "error")
    text = str(error.value)
    assert "byte 2 of the document" in text
    assert "a.txt, document at offset 2,000" in text
    assert "encode.special_tokens_in_text" in text


def test_selecting_keeps_all_columns_together() -> None:
    batch = batch_of([b"a", b"bb", b"ccc"], empty=2)
    kept = batch.select(np.array([True, False, True]))
    assert documents_of(kept) == [b"a", b"ccc"]
    assert kept.num_bytes.tolist() == [1, 3]
    assert kept.offsets.tolist() == [0, 3]
    assert (kept.hashes == batch.hashes[[0, 2]]).all()
    assert kept.empty == 2


# --- totals


@given(
    documents=st.lists(st.binary(min_size=1, max_size=5), max_size=12),
    cut=st.integers(0, 12),
)
def test_totals_of_parts_add_up_to_those_of_the_whole(documents: list[bytes], cut: int) -> None:
    whole, sum_ = DocumentTotals(), DocumentTotals()
    whole.add_batch(batch_of(documents))
    for part in (documents[cut:], documents[:cut]):
        totals = DocumentTotals()
        totals.add_batch(batch_of(part))
        sum_.add(DocumentTotals.from_json(json.loads(json.dumps(totals.to_json()))))
    assert sum_ == whole
    expected = sum(xxhash.xxh3_128_intdigest(document) for document in documents) % 2**128
    assert whole.hash_sum == expected
    assert whole.corpus_fingerprint == f"{len(documents)}-{expected:032x}"
    assert whole.bytes == sum(map(len, documents))


def test_totals_count_every_document_once() -> None:
    totals = DocumentTotals()
    batch = batch_of([b"a", b"b<|x|>"], empty=3)
    totals.add_batch(refuse_special_tokens(batch, SPECIALS, "reject"))
    for part in range(3):
        totals.add_batch(batch_of([b"piece"], part=part, whole_bytes=15))
    assert (totals.documents, totals.rejected, totals.empty) == (2, 1, 3)
    assert totals.all_documents == 6
    assert (totals.bytes, totals.rejected_bytes, totals.all_bytes) == (1 + 15, 6, 1 + 6 + 15)


def test_sums_of_hashes_do_not_overflow() -> None:
    many = np.full((100_000, 2), np.uint64(2**64 - 1))
    batch = batch_of([b"a"])
    totals = DocumentTotals()
    n = len(many)
    ones = np.ones(n, np.int64)
    totals.add_batch(
        DocumentBatch(
            data=batch.data, starts=0 * ones, ends=ones, offsets=ones, num_bytes=ones, hashes=many,
            source="a",
        )
    )  # fmt: skip
    assert totals.hash_sum == n * (2**128 - 1) % 2**128
