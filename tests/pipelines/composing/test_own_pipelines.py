"""The public transforms in pipelines of users' own, from any elements, on local runners."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.internal import pickler
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.display import DisplayData
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, Repeatedly
from apache_beam.transforms.window import FixedWindows, GlobalWindows
from apache_beam.typehints import typehints
from apache_beam.utils.windowed_value import WindowedValue
from build_support import SEPARATOR, checksums, config_for, some_text, write_corpus

from bpe_core import BPETokenizer, PretokenCounts, count_pretokens, train_from_counts
from pipelines import (
    CountPretokens,
    EncodeDocuments,
    ReadDocuments,
    WriteTokenShards,
    runners,
)
from pipelines.batches import DocumentBatch
from pipelines.beam.count_documents import CountDocuments
from pipelines.config import BeamConfig, SourceConfig
from pipelines.errors import BpeError, ConfigError, OutputError

pytestmark = pytest.mark.beam

DOCUMENTS = [text.decode().replace("\n", " ").strip() for text in some_text(60)]
# Some documents are there twice; one becomes so long that it comes in pieces.
ALL = [*DOCUMENTS, *DOCUMENTS[:7], "long"]

# What stands for the long document becomes it: a pipeline carries what Create is given. A lambda,
# since processes of workers cannot import this module.
whole = lambda element: (  # noqa: E731
    element
    if element not in ("long", b"long")
    else "many words and some more. " * 200_000
    if element == "long"
    else b"many words and some more. " * 200_000
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("tokenizer")
    counts = count_pretokens(DOCUMENTS, special_tokens=[SEPARATOR])
    train_from_counts(counts, 400, [SEPARATOR]).tokenizer().save(directory)
    return str(directory)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documents as text, one a line, and as Parquet."""
    directory = tmp_path_factory.mktemp("corpus")
    (directory / "lines.txt").write_text("".join(f"{text}\n" for text in DOCUMENTS))
    table = pa.table({"body": DOCUMENTS, "key": list(range(len(DOCUMENTS)))})
    pq.write_table(table, directory / "pages.parquet", row_group_size=10)
    return directory


# Not inline, whatever replaces it later.
pipeline_of = runners.pipeline


def local_pipeline(*arguments: str, **config: Any) -> Any:
    return pipeline_of(BeamConfig.model_validate({"workers": 2, **config}), arguments)


@pytest.mark.process
@pytest.mark.slow
def test_importing_the_package_imports_neither_beam_nor_pyarrow() -> None:
    code = (
        "import sys, pipelines; assert not {'apache_beam', 'pyarrow'} & sys.modules.keys();"
        "from pipelines import ReadDocuments, CountPretokens, EncodeDocuments, WriteTokenShards;"
        "assert set(pipelines.__all__) <= set(dir(pipelines)), dir(pipelines)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)


# --- routes


def is_short(batch: DocumentBatch) -> DocumentBatch:
    return batch.select(np.array([len(text) % 2 == 0 for text in batch.documents()], np.bool_))


def test_documents_that_are_read_and_filtered_are_counted(tmp_path: Path) -> None:
    write_corpus(tmp_path / "data", {"a.txt": some_text(30), "b.txt": [*some_text(9), b"\xff"]})
    source = SourceConfig(files=(f"{tmp_path}/data/*",), range_bytes=1000)
    output = tmp_path / "counts"
    with local_pipeline() as pipeline:
        counted = (
            pipeline
            | ReadDocuments(sources=[source], special_tokens=[SEPARATOR])
            | beam.Map(is_short)
            | CountPretokens(output=str(output), special_tokens=[SEPARATOR], shards=3, memory=1000)
        )
        assert_that(
            counted.rejects | beam.Map(lambda reject: (reject.source, reject.reason)),
            equal_to([("b.txt", "invalid_utf8")]),
            label="Rejects",
        )
        names = counted.shards | beam.Map(lambda shard: shard.name)
        assert_that(
            names, equal_to([f"shard-{i:05d}-of-00003.parquet" for i in range(3)]), label="Names"
        )
    kept = [text for text in [*some_text(30), *some_text(9)] if len(text) % 2 == 0]
    expected = count_pretokens(kept, special_tokens=[SEPARATOR])
    found = PretokenCounts.load(output)
    assert found.to_arrow().to_pylist() == expected.to_arrow().to_pylist()
    listing = json.loads((output / "counts-shards.json").read_bytes())
    assert listing["totals"]["documents"] == len(kept)
    assert listing["totals"]["reasons"] == {"invalid_utf8": 1}
    assert listing["totals"]["pretokens"] == sum(file["pretokens"] for file in listing["files"])
    assert sorted(path.name for path in output.iterdir())[0] == "counts-shards.json"
    assert not (output / "_runs").exists()
    ours = train_from_counts(found, 400, [SEPARATOR])
    assert ours.merges == train_from_counts(expected, 400, [SEPARATOR]).merges


def test_pieces_that_were_cut_for_another_tokenizer_are_refused(
    tokenizer: str, tmp_path: Path
) -> None:
    (tmp_path / "long.txt").write_bytes(b"many words and some more. " * 200_000)
    sources = [SourceConfig(files=(str(tmp_path / "*.txt"),))]
    with local_pipeline() as pipeline:
        batches = pipeline | ReadDocuments(sources=sources, special_tokens=[SEPARATOR])
        encoded = batches | EncodeDocuments(tokenizer=tokenizer, as_rows=True)
        assert_that(encoded.tokens | beam.Map(lambda row: row.part), equal_to([0, 1]))
    with (
        pytest.raises(Exception, match="with the special_tokens of the tokenizer of Encode"),
        local_pipeline() as pipeline,
    ):
        _ = pipeline | ReadDocuments(sources=sources) | EncodeDocuments(tokenizer=tokenizer)
    with (
        pytest.raises(Exception, match="with the pattern and normalizer of CountPretokens"),
        local_pipeline() as pipeline,
    ):
        batches = pipeline | ReadDocuments(sources=sources, pattern="cl100k", normalizer="nfc")
        _ = batches | CountPretokens(output=str(tmp_path / "counts"))


@pytest.mark.slow
def test_counts_are_the_same_from_any_elements_order_and_bundles(tmp_path: Path) -> None:
    shuffled = random.Random(3).sample(ALL, len(ALL))
    routes: dict[str, tuple[list[Any], tuple[str, ...]]] = {
        "str": (ALL, ()),
        "bytes": ([text.encode() for text in shuffled], ("--direct_runner_bundle_repeat=2",)),
    }
    for name, (elements, arguments) in routes.items():
        with local_pipeline(*arguments) as pipeline:
            counted = (
                pipeline
                | beam.Create(elements)
                | beam.Map(whole)
                | CountPretokens(output=str(tmp_path / name), shards=2)
            )
            assert_that(counted.rejects, equal_to([]))
    assert checksums(tmp_path / "bytes") == checksums(tmp_path / "str")
    assert (
        PretokenCounts.load(tmp_path / "str").to_arrow().to_pylist()
        == count_pretokens(map(whole, ALL)).to_arrow().to_pylist()
    )


def test_records_of_parquet_files_are_encoded_to_rows(
    corpus: Path, tokenizer: str, tmp_path: Path
) -> None:
    with local_pipeline() as pipeline:
        encoded = (
            pipeline
            | beam.io.ReadFromParquet(str(corpus / "pages.parquet"))
            | EncodeDocuments(tokenizer=tokenizer, as_rows=True, text_field="body", id_field="key")
        )
        # The schema is known, so nobody has to say it again.
        encoded.tokens | beam.io.WriteToParquet(str(tmp_path / "rows"))
        assert_that(encoded.rejects, equal_to([]))
    known = BPETokenizer.load(tokenizer)
    found = pa.concat_tables([pq.read_table(path) for path in tmp_path.glob("rows*")]).to_pylist()
    assert {row["id"]: row["input_ids"] for row in found} == {
        str(key): known.encode(text) for key, text in enumerate(DOCUMENTS)
    }
    assert {row["num_bytes"] for row in found} == {len(text.encode()) for text in DOCUMENTS}


def test_lines_are_encoded_and_written_to_shards(
    corpus: Path, tokenizer: str, tmp_path: Path
) -> None:
    with local_pipeline() as pipeline:
        encoded = (
            pipeline
            | beam.io.ReadFromText(str(corpus / "lines.txt"))
            | EncodeDocuments(tokenizer=tokenizer, append=SEPARATOR)
        )
        shards = encoded.tokens | WriteTokenShards(output=str(tmp_path), num_shards=2)
        rows = shards | beam.Map(lambda shard: shard.rows) | beam.CombineGlobally(sum)
        assert_that(rows, equal_to([len(DOCUMENTS)]))
    known = BPETokenizer.load(tokenizer)
    end = known.special_tokens[SEPARATOR]
    tables = [pq.read_table(path) for path in sorted(tmp_path.glob("train-*.parquet"))]
    found = pa.concat_tables(tables)["input_ids"].to_pylist()
    assert sorted(found) == sorted([*known.encode(text), end] for text in DOCUMENTS)


ROUTES: dict[str, tuple[bool, dict[str, Any], tuple[str, ...]]] = {
    "repeated": (False, {}, ("--direct_runner_bundle_repeat=2",)),
    "processes": (False, {}, ("--direct_running_mode=multi_processing",)),
    "portable": (
        True,
        {"workers": 0, "runner": "PortableRunner"},
        ("--job_endpoint=embed", "--environment_type=LOOPBACK"),
    ),
}


@pytest.fixture(scope="module")
def expected(tokenizer: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    directory = tmp_path_factory.mktemp("expected")
    write_shards(directory, ALL, tokenizer, as_rows=False)
    return checksums(directory)


def write_shards(
    directory: Path, texts: list[str], tokenizer: str, *arguments: str, as_rows: bool, **config: Any
) -> None:
    with local_pipeline(*arguments, **config) as pipeline:
        encoded = (
            pipeline
            | beam.Create(texts)
            | beam.Map(whole)
            | EncodeDocuments(tokenizer=tokenizer, append=SEPARATOR, as_rows=as_rows)
        )
        tokens = encoded.tokens | beam.Reshuffle() if as_rows else encoded.tokens
        tokens | WriteTokenShards(output=str(directory), num_shards=3, id_type="uint16")


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("route", ROUTES)
def test_token_shards_have_the_same_bytes_by_every_route(
    route: str, tokenizer: str, expected: dict[str, str], tmp_path: Path
) -> None:
    as_rows, config, arguments = ROUTES[route]
    texts = random.Random(route).sample(ALL, len(ALL))
    write_shards(tmp_path, texts, tokenizer, *arguments, as_rows=as_rows, **config)
    assert checksums(tmp_path) == expected


def test_ids_of_batches_are_as_wide_as_the_tokenizer_needs(tokenizer: str, tmp_path: Path) -> None:
    for as_rows, bits in ((False, 16), (True, 32)):
        output = tmp_path / str(bits)
        with local_pipeline() as pipeline:
            texts = pipeline | beam.Create(["hello world"] * 3)
            encoded = texts | EncodeDocuments(tokenizer=tokenizer, as_rows=as_rows)
            encoded.tokens | WriteTokenShards(output=str(output), num_shards=1)
        [file] = output.glob("*.parquet")
        assert pq.read_schema(file).field("input_ids").type.value_type.bit_width == bits


# --- bundles that fail


def bundle(function: Any, elements: list[Any], fails_at: int | None = None) -> list[Any]:
    """Does to a DoFn what a runner does for a bundle; outputs of one that fails are lost."""
    outputs: list[Any] = []
    function.start_bundle()
    for number, element in enumerate(elements):
        if number == fails_at:
            return []
        outputs += function.process(element, beam.window.GlobalWindow()) or ()
    outputs += function.finish_bundle()
    return [o.value if isinstance(o, WindowedValue) else o for o in outputs]


class _Catch(beam.DoFn):  # type: ignore[misc]
    """Does to each element of a list what a runner does that tries its bundle twice."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def process(self, elements: list[Any]) -> Iterator[Any]:
        bundle(self._function, elements, fails_at=len(elements) - 1)
        yield from bundle(self._function, elements)


def test_what_a_failed_bundle_left_is_in_no_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = beam.ParDo

    def twice(function: Any, *arguments: Any) -> Any:
        tried_twice = isinstance(function, CountDocuments)
        return real(_Catch(function) if tried_twice else function, *arguments)

    monkeypatch.setattr(beam, "ParDo", twice)
    with local_pipeline() as pipeline:
        documents = pipeline | beam.Create([[text] * 3 for text in DOCUMENTS])
        documents.element_type = Any
        documents | CountPretokens(output=str(tmp_path), shards=2, memory=1)
    found = PretokenCounts.load(tmp_path)
    assert found.to_arrow().to_pylist() == count_pretokens(DOCUMENTS * 3).to_arrow().to_pylist()


# --- what is refused


@pytest.mark.parametrize(
    ("transform", "says"),
    [
        (CountPretokens(output="o", shards=0), "shards\n  expected: at least 1"),
        (CountPretokens(output="o", invalid_utf8="drop"), "'reject', 'replace' or 'error'"),
        (CountPretokens(output="o", pattern="gpt9"), "gpt9"),
        (CountPretokens(output="o", special_tokens="<pad>"), "found: '<pad>'"),
        (CountPretokens(output="o", special_tokens=["a", "b", "a"]), "every special token once"),
        (CountPretokens(output="o", id_field="id"), "'text' and 'id'"),
        (EncodeDocuments(tokenizer="t", special_tokens_in_text="drop"), "special_tokens_in_text"),
        (EncodeDocuments(tokenizer="t", text_field="body"), "'body'"),
        (WriteTokenShards(output="o", num_shards=2), "'input_ids' and 'num_bytes'"),
        (WriteTokenShards(output="o", num_shards=2, split="../up"), "letters, digits"),
        (WriteTokenShards(output="o", num_shards=2, id_type="int8"), "'uint16'"),
    ],
)
def test_what_is_wrong_is_said_when_the_pipeline_is_built(transform: Any, says: str) -> None:
    with pytest.raises(BpeError, match=says):
        beam.Pipeline() | beam.Create([beam.Row(text="a")]) | transform


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ({"sources": SourceConfig(files=("x",))}, "found: SourceConfig"),
        ({"sources": ["/x*"]}, "found: a list with str"),
        ({"sources": "/x*"}, "found: str"),
        ({"sources": [SourceConfig(files=("x",))], "special_tokens": "<pad>"}, "expected: a list"),
    ],
)
def test_wrong_attributes_of_reading_are_said_when_the_pipeline_is_built(
    attributes: Any, says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        beam.Pipeline() | ReadDocuments(**attributes)


@pytest.mark.parametrize("name", ["prepend", "append"])
def test_a_wrong_affix_is_said_when_the_pipeline_is_built(name: str, tokenizer: str) -> None:
    texts = beam.Pipeline() | beam.Create(["a"])
    with pytest.raises(ConfigError, match=r"'<\|endoftext\|>'\n  found: '<s>'\n  where: " + name):
        texts | EncodeDocuments(tokenizer=tokenizer, **{name: "<s>"})  # type: ignore[arg-type]


def test_a_tokenizer_that_is_missing_is_said_by_the_worker(tmp_path: Path) -> None:
    with (
        pytest.raises(Exception, match="There is no tokenizer"),
        local_pipeline() as pipeline,
    ):
        _ = pipeline | beam.Create(["a"]) | EncodeDocuments(tokenizer=str(tmp_path))


def test_errors_of_elements_say_which_by_its_id_or_first_bytes(tokenizer: str) -> None:
    for element, says in (
        (f"my text {SEPARATOR}", "an element that starts with b'my text"),
        ({"text": f"my text {SEPARATOR}", "key": 7}, "the element with the id '7'"),
    ):
        id_field = "key" if isinstance(element, dict) else None
        with (
            pytest.raises(Exception, match=rf"where: {says}(.|\n)*Set special_tokens_in_text"),
            local_pipeline() as pipeline,
        ):
            _ = (
                pipeline
                | beam.Create([element])
                | EncodeDocuments(
                    tokenizer=tokenizer, special_tokens_in_text="error", id_field=id_field
                )
            )


def test_two_transforms_of_a_pipeline_do_not_write_the_same_files(tmp_path: Path) -> None:
    pipeline, output = beam.Pipeline(), str(tmp_path)
    tokens = pipeline | beam.Create([{}])
    tokens | "Train" >> WriteTokenShards(output=output, num_shards=1)
    tokens | "Other" >> WriteTokenShards(output=output, num_shards=1, split="validation")
    tokens | "Count" >> CountPretokens(output=output)
    for label, transform in {
        "TrainAgain": WriteTokenShards(output=output + "/", num_shards=2),
        "CountAgain": CountPretokens(output=output),
    }.items():
        with pytest.raises(ConfigError, match="write the same files"):
            tokens | label >> transform


@pytest.mark.parametrize(
    "transform", [CountPretokens(output="o"), WriteTokenShards(output="o", num_shards=1)]
)
@pytest.mark.parametrize(
    ("windows", "found"),
    [
        (beam.WindowInto(FixedWindows(10)), "FixedWindows"),
        (
            beam.WindowInto(
                GlobalWindows(),
                trigger=Repeatedly(AfterCount(1)),
                accumulation_mode=AccumulationMode.DISCARDING,
            ),
            r"GlobalWindows with the trigger Repeatedly\(AfterCount",
        ),
    ],
    ids=["windows", "trigger"],
)
def test_files_are_of_whole_collections(windows: Any, found: str, transform: Any) -> None:
    documents = beam.Pipeline() | beam.Create([{}]) | windows
    with pytest.raises(ConfigError, match=f"in the global window, without a trigger(.|\n)*{found}"):
        documents | transform


def test_a_trigger_upstream_is_undone_as_the_error_says(tmp_path: Path) -> None:
    with local_pipeline() as pipeline:
        texts = (
            pipeline
            | beam.Create(["a b", "c"])
            | "EachByItself"
            >> beam.WindowInto(
                GlobalWindows(),
                trigger=Repeatedly(AfterCount(1)),
                accumulation_mode=AccumulationMode.DISCARDING,
            )
            | "All" >> beam.WindowInto(GlobalWindows())
        )
        texts | CountPretokens(output=str(tmp_path), shards=1)
    assert PretokenCounts.load(tmp_path) == count_pretokens(["a b", "c"])


def test_an_output_that_has_shards_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shard-00000-of-00002.parquet").touch()
    (tmp_path / "train-00000-of-00002.parquet").touch()
    for transform in (
        CountPretokens(output=str(tmp_path)),
        WriteTokenShards(output=str(tmp_path), num_shards=1),
    ):
        with pytest.raises(OutputError, match="already contains files"):
            beam.Pipeline() | beam.Create([{}]) | transform


# --- what runners show and carry


def everything(tmp_path: Path) -> list[Any]:
    options = {"token": "${BPE_TEST_TOKEN}", "password": "hidden-value"}
    config = config_for(tmp_path)
    source = config.input[0].model_copy(update={"storage_options": options})
    return [
        ReadDocuments(sources=[source]),
        CountPretokens(output="memory://counts", pattern="o200k", storage_options=options),
        EncodeDocuments(tokenizer="memory://tokenizer", storage_options=options),
        WriteTokenShards(output="memory://tokens", num_shards=4, storage_options=options),
    ]


def test_transforms_show_their_attributes_but_no_storage_options(tmp_path: Path) -> None:
    shown = {
        type(transform).__name__: {
            item.key: str(item.value) for item in DisplayData.create_from(transform).items
        }
        for transform in everything(tmp_path)
    }
    assert shown["CountPretokens"]["pattern"] == "o200k"
    assert shown["WriteTokenShards"]["num_shards"] == "4"
    assert shown["EncodeDocuments"]["invalid_utf8"] == "reject"
    assert str(tmp_path) in shown["ReadDocuments"]["sources"]
    assert "hidden" not in str(shown) and "TOKEN" not in str(shown)
    assert "hidden" not in repr(everything(tmp_path))


def test_storage_options_come_from_the_environment_of_the_workers(
    tokenizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BPE_TEST_TOKEN", "secret-value")
    options = {"option": "${BPE_TEST_TOKEN}"}
    write = WriteTokenShards(output="memory://own/tokens", num_shards=1, storage_options=options)
    with local_pipeline() as pipeline:
        encoded = pipeline | beam.Create(["a", "b"]) | EncodeDocuments(tokenizer=tokenizer)
        encoded.tokens | write
        assert b"secret-value" not in pipeline.to_runner_api().SerializeToString()
    assert b"secret-value" not in pickler.dumps(write)
    from pipelines.storage.directory import Directory

    assert set(Directory(url="memory://own/tokens").sizes()) == {
        "train-00000-of-00001.parquet", "train-shards.json",
    }  # fmt: skip


def test_labels_are_in_pascal_case_and_everything_shuffled_has_a_type(tokenizer: str) -> None:
    pipeline = beam.Pipeline()
    documents = pipeline | "Texts" >> beam.Create(["a"])
    documents | "Count" >> CountPretokens(output="memory://pascal/counts")
    encoded = documents | "Encode" >> EncodeDocuments(tokenizer=tokenizer)
    encoded.tokens | "Write" >> WriteTokenShards(output="memory://pascal/tokens", num_shards=1)
    labels: list[str] = []
    shuffled: dict[str, Any] = {}

    class See(beam.pipeline.PipelineVisitor):  # type: ignore[misc]
        def enter_composite_transform(self, node: Any) -> None:
            self.visit_transform(node)

        def visit_transform(self, node: Any) -> None:
            labels.append(node.full_label)
            if isinstance(node.transform, beam.GroupByKey | beam.Reshuffle):
                [elements] = node.inputs
                shuffled[node.full_label] = elements.element_type

    pipeline.visit(See())
    of_ours = [label for label in labels if label.startswith(("Count/", "Encode/", "Write/"))]
    ours = {label.split("/")[1] for label in of_ours}
    assert {"WriteRuns", "ByShard", "MergeShards", "AllShards", "Finish", "AddUp"} <= ours
    assert all(part[0].isupper() and part.isidentifier() for part in ours), ours
    # Of the totals, parts that add up to them.
    kinds = {"ByShard": int, "AllShards": int, "Total/CombinePerKey/GroupByKey": None}
    assert shuffled == {
        f"{transform}/{name}": typehints.KV[key, bytes]
        for transform in ("Count", "Write")
        for name, key in kinds.items()
    }
