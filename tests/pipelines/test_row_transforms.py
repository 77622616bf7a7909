"""The transforms over rows: parameters, places, rejects, and rows of any schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, Optional

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.util import assert_that, equal_to
from build_support import SEPARATOR, some_text, write_corpus

from bpe_core import BPETokenizer, count_pretokens, train_from_counts
from pipelines import row_transforms, runners
from pipelines.config import BeamConfig
from pipelines.errors import ConfigError
from pipelines.row_transforms import (
    CountPretokens,
    EncodeDocuments,
    ReadDocuments,
    WriteTokenShards,
)

DOCUMENTS = {f"{name}.txt": some_text(20, start=20 * i) for i, name in enumerate("ab")}
ALL = [text.decode() for name in sorted(DOCUMENTS) for text in DOCUMENTS[name]]


@pytest.fixture(scope="module")
def tokenizer_directory(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("tokenizer")
    specials = [SEPARATOR, "<|x|>"]
    counts = count_pretokens([text.encode() for text in ALL], special_tokens=specials)
    train_from_counts(counts, 300, specials).tokenizer().save(directory)
    return str(directory)


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    write_corpus(tmp_path / "data", DOCUMENTS)
    return str(tmp_path / "data" / "*.txt")


def local_pipeline() -> Any:
    return runners.pipeline(BeamConfig(workers=2))


def place(row: Any) -> tuple[Any, ...]:
    return row.source, row.offset, row.id


def test_every_name_is_one_of_the_module() -> None:
    for name in row_transforms.TRANSFORMS:
        assert issubclass(getattr(row_transforms, name), beam.PTransform)


@pytest.mark.beam
def test_documents_keep_their_places_until_they_are_tokens(
    corpus: str, tokenizer_directory: str
) -> None:
    tokenizer = BPETokenizer.load(tokenizer_directory)
    expected = []
    for name in sorted(DOCUMENTS):
        offset = 0
        for text in DOCUMENTS[name]:
            expected.append((name, offset, None, tokenizer.encode(text.decode())))
            offset += len(text) + len(SEPARATOR)
    with local_pipeline() as pipeline:
        rows = pipeline | ReadDocuments(files=[corpus], range_bytes=4000)
        assert_that(
            rows | "Read" >> beam.Map(lambda row: (*place(row), row.text)),
            equal_to([(*at, text) for (*at, _), text in zip(expected, ALL, strict=True)]),
        )
        # In any order, also from one file and another by turns.
        encoded = (
            rows
            | "Shuffle" >> beam.Reshuffle()
            | EncodeDocuments(tokenizer=tokenizer_directory)
            | "Encoded" >> beam.Map(lambda row: (*place(row), row.input_ids))
        )
        assert_that(encoded, equal_to(expected), label="Encoded?")


@pytest.mark.beam
def test_a_long_document_is_one_row(tmp_path: Path, tokenizer_directory: str) -> None:
    text = "\n".join(ALL) * 700
    assert len(text.encode()) > 5 << 20
    write_corpus(tmp_path / "data", {"long.txt": [b"short", text.encode()]})
    with local_pipeline() as pipeline:
        rows = pipeline | ReadDocuments(files=[str(tmp_path / "data" / "*")])
        encoded = rows | EncodeDocuments(tokenizer=tokenizer_directory)
        assert_that(rows | beam.Map(lambda row: len(row.text)), equal_to([5, len(text)]))
        sizes = encoded | "Sizes" >> beam.Map(lambda row: (row.part, row.num_bytes))
        assert_that(sizes, equal_to([(0, 5), (0, len(text.encode()))]), label="Sizes?")


@pytest.mark.beam
def test_rejects_go_where_error_handling_says(tmp_path: Path, tokenizer_directory: str) -> None:
    write_corpus(tmp_path / "data", {"a.txt": [b"good", b"\xff", f"<|x|>{ALL[0]}".encode()]})
    with local_pipeline() as pipeline:
        read = pipeline | ReadDocuments(
            files=[str(tmp_path / "data" / "*")], error_handling={"output": "bad"}
        )
        encoded = read["good"] | EncodeDocuments(
            tokenizer=tokenizer_directory,
            special_tokens_in_text="reject",
            error_handling={"output": "bad"},
        )
        rejects = (read["bad"], encoded["bad"]) | beam.Flatten()
        assert_that(
            rejects | beam.Map(lambda row: (row.source, row.offset, row.reason)),
            equal_to([("a.txt", 17, "invalid_utf8"), ("a.txt", 31, "special_token")]),
        )


@pytest.mark.beam
def test_without_error_handling_a_reject_is_an_error(tmp_path: Path) -> None:
    write_corpus(tmp_path / "data", {"a.txt": [b"good", b"\xff"]})
    with (
        pytest.raises(Exception, match=r"set error_handling with `output: rejects`"),
        local_pipeline() as pipeline,
    ):
        _ = pipeline | ReadDocuments(files=[str(tmp_path / "data" / "*")])


@pytest.mark.beam
def test_fields_may_have_other_names(tokenizer_directory: str) -> None:
    tokenizer = BPETokenizer.load(tokenizer_directory)
    with local_pipeline() as pipeline:
        rows = pipeline | beam.Create([beam.Row(body=b"one", key=7), beam.Row(body=b"two", key=8)])
        encoded = rows | EncodeDocuments(
            tokenizer=tokenizer_directory, text_field="body", id_field="key"
        )
        assert_that(
            encoded | beam.Map(lambda row: (row.input_ids, *place(row))),
            equal_to(
                [(tokenizer.encode("one"), "", 0, "7"), (tokenizer.encode("two"), "", 0, "8")]
            ),
        )


class Page(NamedTuple):
    """A row of somebody's table, whose columns mean something else."""

    text: str
    source: int
    offset: str
    id: float


class Place(NamedTuple):
    text: str
    source: Optional[str]  # noqa: UP045
    offset: np.int64
    id: Optional[np.int64]  # noqa: UP045


@pytest.mark.beam
def test_columns_of_other_types_are_no_places_and_no_ids(tokenizer_directory: str) -> None:
    for kind, page, expected in (
        (Page, Page("one", 7, "far", 1.5), ("", 0, None)),
        (Place, Place("one", "web", np.int64(9), np.int64(4)), ("web", 9, "4")),
    ):
        with local_pipeline() as pipeline:
            rows = pipeline | beam.Create([page]).with_output_types(kind)
            encoded = rows | EncodeDocuments(tokenizer=tokenizer_directory)
            assert_that(encoded | beam.Map(place), equal_to([expected]))


def test_parameters_that_other_sdks_send_as_rows_are_mappings(corpus: str) -> None:
    read = ReadDocuments(
        files=[corpus],
        storage_options=beam.Row(auto_mkdir=True),
        error_handling=beam.Row(output="bad"),
    )
    assert read._source.storage_options == {"auto_mkdir": True}
    assert read._rejects_output == "bad"


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"files": ["a"], "seperator": "\n"}, "Did you mean separator?"),
        ({"files": "a"}, "expected: a list"),
        ({}, "files\n  expected: this key: it has no default"),
        ({"files": ["a"], "storage_options": {"key": "${NOT_SET}"}}, "NOT_SET to be set"),
        ({"files": ["a"], "error_handling": {"tag": "bad"}}, "the one key `output`"),
        ({"files": ["a"], "error_handling": {"output": "good"}}, "other than good"),
    ],
)
def test_wrong_sources_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ReadDocuments(**parameters)
    assert message in str(caught.value)


def test_wrong_parameters_are_refused(tokenizer_directory: str) -> None:
    with pytest.raises(ConfigError, match=r"found: tokeniser\n.*Did you mean tokenizer\?"):
        EncodeDocuments(tokeniser=tokenizer_directory)
    with pytest.raises(ConfigError, match="found: as_rows"):
        EncodeDocuments(tokenizer=tokenizer_directory, as_rows=True)
    with pytest.raises(ConfigError, match=r"Did you mean shards\?"):
        CountPretokens(output="out", shard=3)
    counting = CountPretokens(output="out", shards=None)._work
    with pytest.raises(ConfigError, match="shards\n  expected: a whole number"):
        counting.check_parameters()
    with pytest.raises(ConfigError, match="lacks a parameter"):
        WriteTokenShards(output="out")
    pipeline = beam.Pipeline()
    numbers = pipeline | "Numbers" >> beam.Create([1, 2])
    with pytest.raises(ConfigError, match="not rows with a schema"):
        _ = numbers | EncodeDocuments(tokenizer=tokenizer_directory)
    rows = pipeline | "Rows" >> beam.Create([beam.Row(text="a", n=1)])
    with pytest.raises(ConfigError, match="'body'"):
        _ = rows | "Field" >> EncodeDocuments(tokenizer=tokenizer_directory, text_field="body")
    with pytest.raises(ConfigError, match="invalid_utf8"):
        _ = rows | "Utf8" >> EncodeDocuments(
            tokenizer=tokenizer_directory,
            invalid_utf8="ignore",  # type: ignore[arg-type]
        )
