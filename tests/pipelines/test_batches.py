"""DocumentBatch and its Arrow IPC coder."""

from __future__ import annotations

from dataclasses import fields

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.testing.test_pipeline import TestPipeline as BeamPipeline
from apache_beam.testing.util import assert_that, equal_to

from pipelines.batches import DocumentBatch, Reject
from pipelines.beam.coders import DocumentBatchCoder


def make_batch(documents: list[bytes], **values: object) -> DocumentBatch:
    """Documents separated by "|", after two bytes that belong to none."""
    lengths = np.array([len(document) for document in documents], np.int64)
    starts = 2 + np.cumsum(lengths + 1) - lengths - 1
    return DocumentBatch(
        data=np.frombuffer(b"xx" + b"|".join(documents) + b"|yy", np.uint8),
        starts=starts,
        ends=starts + lengths,
        offsets=starts + 1000,
        num_bytes=lengths,
        hashes=np.array([[i, 2**64 - 1 - i] for i in range(len(documents))], np.uint64).reshape(
            -1, 2
        ),
        source="web/a.txt",
        **values,  # type: ignore[arg-type]
    )


REJECT = Reject(
    source="web/a.txt",
    offset=7,
    length=3,
    reason="invalid_utf8",
    message="ungültig",
    first_bytes=b"\xff\x00a",
    id="key",
)

BATCHES = {
    "documents": make_batch([b"one", "zwölf".encode(), b"3"], empty=2),
    "none": make_batch([], empty=5, rejects=(REJECT, REJECT)),
    "records": make_batch([b"one", b"2"], ids=pa.array(["a", None], pa.string()), framing_bytes=-3),
    "no records": make_batch([], ids=pa.array([], pa.string()), framing_bytes=1 << 40),
    "piece": make_batch([b"long"], part=3, last=False, whole_bytes=1 << 40, special_at=1 << 35),
    "last piece": make_batch([b"end"], part=4, whole_bytes=12, cutting="pattern:0"),
}


@pytest.mark.parametrize("name", BATCHES)
def test_the_coder_keeps_every_field(name: str) -> None:
    batch = BATCHES[name]
    coder = beam.coders.registry.get_coder(DocumentBatch)
    assert isinstance(coder, DocumentBatchCoder)
    copy = coder.decode(coder.encode(batch))
    assert len(copy) == len(batch)
    assert [copy.document(i) for i in range(len(copy))] == [
        batch.document(i) for i in range(len(batch))
    ]
    for field in fields(DocumentBatch):
        if field.name in ("data", "starts", "ends"):
            continue
        before, after = getattr(batch, field.name), getattr(copy, field.name)
        if isinstance(before, np.ndarray):
            assert after.dtype == before.dtype
            assert after.tolist() == before.tolist()
        else:
            assert after == before
            assert type(after) is type(before)


def test_only_the_bytes_of_the_documents_are_coded() -> None:
    large = np.zeros(1 << 20, np.uint8)
    one = np.ones(1, np.int64)
    batch = DocumentBatch(
        data=large,
        starts=one * 1000,
        ends=one * 1010,
        offsets=one,
        num_bytes=one,
        hashes=np.zeros((1, 2), np.uint64),
        source="a",
    )
    coder = DocumentBatchCoder()
    encoded = coder.encode(batch)
    assert len(encoded) < 5000
    assert len(coder.decode(encoded).data) == 10


def test_equal_batches_have_equal_bytes() -> None:
    coder = DocumentBatchCoder()
    assert coder.is_deterministic()
    assert coder.encode(make_batch([b"a", b"b"])) == coder.encode(make_batch([b"a", b"b"]))


@pytest.mark.beam
def test_batches_can_be_shuffled() -> None:
    with BeamPipeline(runner="FnApiRunner") as pipeline:
        texts = (
            pipeline
            | beam.Create(list(BATCHES.values())).with_output_types(DocumentBatch)
            | beam.Reshuffle()
            | beam.FlatMap(lambda batch: [batch.document(i) for i in range(len(batch))])
        )
        assert_that(
            texts, equal_to([b"one", "zwölf".encode(), b"3", b"one", b"2", b"long", b"end"])
        )


def test_a_batch_with_long_arrays_has_a_short_representation() -> None:
    assert repr(make_batch([b"a" * 500])).startswith("DocumentBatch(data=<ndarray of 505>")
