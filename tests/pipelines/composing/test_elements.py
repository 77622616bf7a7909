"""Elements of users' pipelines become the documents that files of them would be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pytest
import xxhash
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import (
    FixedWindows,
    GlobalWindow,
    IntervalWindow,
    SlidingWindows,
    TimestampedValue,
)
from apache_beam.typehints import typehints
from apache_beam.utils.windowed_value import WindowedValue

from pipelines import runners
from pipelines.batches import DocumentBatch, Reject
from pipelines.beam import elements as module
from pipelines.beam.elements import (
    DocumentFn,
    Elements,
    check_element_type,
    element_options,
)
from pipelines.config import BeamConfig
from pipelines.errors import ConfigError, InputError

OPTIONS = element_options("gpt2", ["<|endoftext|>"])


class Page(NamedTuple):
    text: str
    key: int


@dataclass
class Article:
    text: str


def batches_of(found: list[Any], **fields: Any) -> list[DocumentBatch]:
    elements = Elements(OPTIONS, **fields)
    batches: list[DocumentBatch] = []
    for element in found:
        if elements.add(element):
            batches += elements.batches()
    return [*batches, *elements.batches()]


def texts_of(batches: list[DocumentBatch]) -> list[bytes]:
    return [text for batch in batches for text in batch.documents()]


@pytest.mark.parametrize(
    "kind",
    [
        lambda text: text,
        lambda text: text.encode(),
        lambda text: np.str_(text),
        lambda text: {"text": text},
        lambda text: {"text": text.encode(), "more": 1},
        lambda text: beam.Row(text=text, more=1),
        lambda text: Page(text=text, key=1),
    ],
)
def test_every_kind_of_element_is_the_same_document(kind: Any) -> None:
    texts = ["one", "zwölf", "漢字 𝒳"]
    (batch,) = batches_of([kind(text) for text in texts])
    assert list(batch.documents()) == [text.encode() for text in texts]
    assert batch.num_bytes.tolist() == [len(text.encode()) for text in texts]
    assert batch.offsets.tolist() == [0, 0, 0]
    assert (batch.source, batch.ids, batch.rejects, batch.empty) == ("", None, (), 0)
    upper = [xxhash.xxh3_128_intdigest(text.encode()) >> 64 for text in texts]
    assert batch.hashes[:, 0].tolist() == upper


def test_kinds_may_be_mixed() -> None:
    assert texts_of(batches_of(["a", b"b", {"text": "c"}, beam.Row(text="d")])) == [
        b"a", b"b", b"c", b"d",
    ]  # fmt: skip


def test_records_have_ids_of_their_own() -> None:
    records = [
        {"body": "a", "key": "x"},
        beam.Row(body=b"b", key=7),
        {"body": "c", "key": None},
        {"body": "d"},
        "f",
        {"body": "e", "key": np.int64(9)},
    ]
    (batch,) = batches_of(records, text_field="body", id_field="key")
    assert batch.ids is not None
    assert batch.ids.to_pylist() == ["x", "7", None, None, None, "9"]


def test_empty_documents_are_counted_and_not_given() -> None:
    (batch,) = batches_of(["", "a", b""])
    assert (texts_of([batch]), batch.empty) == ([b"a"], 2)


@pytest.mark.parametrize(
    ("element", "reason", "length"),
    [
        (b"ab\xffc", "invalid_utf8", 4),
        ("ab\ud800c", "invalid_utf8", 6),
        ({}, "missing_field", 0),
        ({"text": None, "key": 5}, "null_field", 0),
        (beam.Row(text=3, key=5), "wrong_field_type", 0),
        ({"text": "a", "key": [1]}, "wrong_field_type", 0),
        ({"text": "a", "key": True}, "wrong_field_type", 0),
        ({"text": "a", "key": "x\ud800"}, "wrong_field_type", 0),
    ],
)
def test_what_is_no_text_is_rejected_with_its_reason(
    element: Any, reason: str, length: int
) -> None:
    fields = {} if isinstance(element, str | bytes) else {"id_field": "key"}
    batches = batches_of([element, {"text": "good", "key": 1}], **fields)
    (reject,) = [reject for batch in batches for reject in batch.rejects]
    assert (reject.reason, reject.length, reject.source, reject.offset) == (reason, length, "", 0)
    assert texts_of(batches) == [b"good"]


def test_a_reject_says_at_which_byte_of_which_document() -> None:
    (batch,) = batches_of([{"text": b"ab\xffc", "key": "k1"}], id_field="key")
    (reject,) = batch.rejects
    assert reject.id == "k1"
    assert reject.first_bytes == b"ab\xffc"
    assert "0xff 0x63 at byte 2 of the document" in reject.message


@pytest.mark.parametrize(
    ("element", "says"),
    [(b"ab\xff", "starts with b'ab"), ({"text": b"ab\xff", "key": "k1"}, "the id 'k1'")],
)
def test_invalid_text_may_be_an_error_that_says_where(element: Any, says: str) -> None:
    options = element_options("gpt2", [], invalid_utf8="error")
    elements = Elements(options, id_field="key" if isinstance(element, dict) else None)
    elements.add(element)
    with pytest.raises(InputError, match=says) as error:
        list(elements.batches())
    assert "at byte 2" in str(error.value)


def test_invalid_text_may_be_replaced() -> None:
    elements = Elements(element_options("gpt2", [], invalid_utf8="replace"))
    elements.add(b"ab\xffc")
    (batch,) = elements.batches()
    assert texts_of([batch]) == ["ab\ufffdc".encode()]
    assert batch.num_bytes.tolist() == [4]


def test_batches_are_bounded_in_bytes_and_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BATCH_BYTES", 100)
    batches = batches_of(["x" * 30] * 10)
    assert [len(batch) for batch in batches] == [4, 4, 2]
    monkeypatch.setattr(module, "_BATCH_ELEMENTS", 3)
    assert [len(batch) for batch in batches_of([""] * 2 + ["a"] * 5)] == [1, 3, 1]


def test_a_long_document_comes_in_pieces_with_one_hash() -> None:
    text = "some words and more of them. " * 400_000
    batches = batches_of([text, "short"])
    pieces = [batch for batch in batches if batch.is_piece]
    assert len(pieces) > 1
    assert [piece.part for piece in pieces] == list(range(len(pieces)))
    assert len({tuple(piece.hashes[0].tolist()) for piece in pieces}) == 1
    assert b"".join(texts_of(pieces)) == text.encode()


def test_an_element_that_is_no_document_is_an_error() -> None:
    with pytest.raises(InputError, match=r"(?s)not a document.*found: int"):
        batches_of([7])
    with pytest.raises(ConfigError, match=r"(?s)'text'.*found: body"):
        batches_of([beam.Row(body="a")])
    with pytest.raises(ConfigError, match=r"(?s)'count'.*found: text, key"):
        batches_of([Page(text="a", key=1)], text_field="count")


@pytest.mark.parametrize(
    "kind", [DocumentBatch, str, bytes, dict, Any, typehints.Any, dict[str, str], Page, str | bytes]
)
def test_a_type_hint_that_may_be_right_is_taken(kind: Any) -> None:
    check_element_type(typehints.normalize(kind), "text", None)


@pytest.mark.parametrize("kind", [int, tuple[int, str], list[str], Reject, Article])
def test_a_type_hint_that_is_wrong_is_refused(kind: Any) -> None:
    with pytest.raises(ConfigError, match="of an unsupported type"):
        check_element_type(typehints.normalize(kind), "text", None)


def test_rows_without_the_fields_are_refused_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match=r"(?s)'text' and 'id'.*found: text, key"):
        check_element_type(Page, "text", "id")


# --- in a bundle


class _Texts(DocumentFn):
    options = OPTIONS

    def __init__(self) -> None:
        super().__init__("text", None)

    def process_documents(self, batch: DocumentBatch) -> Any:
        yield [text.decode() for text in batch.documents()]
        for reject in batch.rejects:
            yield beam.pvalue.TaggedOutput("rejects", reject.reason)


@pytest.mark.beam
def test_elements_of_a_bundle_are_one_batch_and_those_of_windows_are_apart() -> None:
    with runners.pipeline(BeamConfig(workers=1)) as pipeline:
        texts = (
            pipeline
            | beam.Create(["a", "b", b"\xff"])
            | beam.ParDo(_Texts()).with_outputs("rejects", main="texts")
        )
        assert_that(texts.texts, equal_to([["a", "b"]]), label="Texts")
        assert_that(texts.rejects, equal_to(["invalid_utf8"]), label="Rejects")
        windowed = (
            pipeline
            | "More" >> beam.Create([("a", 1), ("b", 11), ("c", 2)])
            | "Stamp" >> beam.MapTuple(TimestampedValue)
            | beam.WindowInto(FixedWindows(10))
            | "Windowed" >> beam.ParDo(_Texts())
            | beam.Map(lambda texts, window=beam.DoFn.WindowParam: (int(window.start), texts))
        )
        assert_that(windowed, equal_to([(0, ["a", "c"]), (10, ["b"])]), label="Windows")


def outputs_in(window: Any, outputs: Any) -> list[tuple[Any, str]]:
    """The texts of outputs of `process` or `finish_bundle`, with the windows that they are in."""
    found: list[tuple[Any, str]] = []
    for output in outputs or ():
        texts = output
        if isinstance(output, WindowedValue):
            (window,), texts = output.windows, output.value
        found += [(window, text) for text in texts]
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("windows", "length"), [(2500, 1), (300, 5000)])
def test_what_a_bundle_holds_is_bounded_for_all_windows_together(
    windows: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BATCH_BYTES", 1 << 16)
    monkeypatch.setattr(module, "_HELD_BYTES", 1 << 20)
    function = _Texts()
    function.start_bundle()
    given = [
        (IntervalWindow(number, number + 1), f"{time}.{number}".ljust(length))
        for time in range(3)
        for number in range(windows)
    ]
    found: list[tuple[Any, str]] = []
    most = 0
    for window, text in given:
        found += outputs_in(window, function.process(text, window))
        held = [elements.held for elements in function._gathered.values()]
        most = max(most, sum(held))
        assert len(held) <= 1000
    assert 1 << 19 < most <= 1 << 20 or length == 1
    found += outputs_in(None, function.finish_bundle())
    assert sorted(found, key=str) == sorted(given, key=str)


def test_a_window_that_is_full_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BATCH_ELEMENTS", 3)
    function = _Texts()
    function.start_bundle()
    one, other = IntervalWindow(0, 1), IntervalWindow(1, 2)
    for window, text in [(one, "a"), (other, "b"), (one, "c")]:
        assert function.process(text, window) is None
    assert outputs_in(one, function.process("d", one)) == [(one, "a"), (one, "c"), (one, "d")]
    assert function.process("e", GlobalWindow()) is None
    assert function.process("f", GlobalWindow()) is None
    assert [texts for _, texts in outputs_in(None, function.finish_bundle())] == ["b", "e", "f"]


@pytest.mark.beam
def test_documents_of_many_windows_stay_in_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_HELD_WINDOWS", 3)
    with runners.pipeline(BeamConfig(workers=1)) as pipeline:
        texts = (
            pipeline
            | beam.Create([(str(time) if time % 5 else b"\xff", time) for time in range(40)])
            | "Stamp" >> beam.MapTuple(TimestampedValue)
            | beam.WindowInto(SlidingWindows(10, 5))  # each is in two
            | beam.ParDo(_Texts()).with_outputs("rejects", main="texts")
        )
        in_windows = texts.texts | beam.FlatMap(
            lambda texts, window=beam.DoFn.WindowParam: [(int(window.start), t) for t in texts]
        )
        expected = [
            (start, str(time))
            for time in range(40)
            if time % 5
            for start in (time // 5 * 5, time // 5 * 5 - 5)
        ]
        assert_that(in_windows, equal_to(expected), label="Texts")
        assert_that(texts.rejects, equal_to(["invalid_utf8"] * 16), label="Rejects")
