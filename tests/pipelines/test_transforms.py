"""The public transforms, in pipelines of one's own and with bundles that fail or come twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
import xxhash
from apache_beam.internal import pickler
from apache_beam.testing.test_pipeline import TestPipeline as BeamTestPipeline
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.display import DisplayData
from apache_beam.utils.windowed_value import WindowedValue
from build_support import (
    SEPARATOR,
    checksums,
    config_for,
    count_job,
    encode_job,
    finish_counting,
    merge_all,
    some_text,
    works_of,
    write_corpus,
)

from bpe_core import BPETokenizer, count_pretokens, train_from_counts
from pipelines import counting, runners, transforms
from pipelines.batches import DocumentBatch, Reject
from pipelines.beam import encode_documents, read_tasks
from pipelines.beam import shards as shard_steps
from pipelines.beam.read_tasks import ReadTasks
from pipelines.beam.rows import (
    COUNT_ROW,
    REJECT_ROW,
    SHARD_ROW,
    TOKEN_ROW,
)
from pipelines.config import BeamConfig, BuildConfig, SourceConfig
from pipelines.counting import commits
from pipelines.counting.jobs import CountJob
from pipelines.readers.tasks import TaskWork
from pipelines.stages import transforms as build_transforms
from pipelines.stages.train_job import TrainJob
from pipelines.stages.transforms import (
    CountTasks,
    NoteFinished,
    TrainTokenizer,
    WriteTasks,
    WriteTrainedTasks,
)
from pipelines.storage.directory import Directory
from pipelines.storage.locks import Guard
from pipelines.transforms import (
    CountPretokens,
    EncodeDocuments,
    ReadDocuments,
    WriteTokenShards,
)
from pipelines.writing.rows import TokenRows
from pipelines.writing.token_shards import TokenShards

pytestmark = pytest.mark.beam

DOCUMENTS = {f"{name}.txt": some_text(20, start=20 * i) for i, name in enumerate("ab")}
ALL = [document for name in sorted(DOCUMENTS) for document in DOCUMENTS[name]]

OF_A_BUILD = ("ReadTasks", *build_transforms.__all__)


@pytest.fixture
def config(tmp_path: Path) -> BuildConfig:
    write_corpus(tmp_path / "data", DOCUMENTS)
    return config_for(tmp_path, counts={"shards": 3, "checkpoint_bytes": 1})


@pytest.fixture(scope="module")
def tokenizer_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tokenizer")
    train_from_counts(count_pretokens(ALL), 400, [SEPARATOR]).tokenizer().save(directory)
    return directory


def local_pipeline(*arguments: str) -> Any:
    return runners.pipeline(BeamConfig(workers=2), arguments)


# --- reading and encoding in a pipeline of one's own


def texts_of(batch: DocumentBatch) -> list[bytes]:
    return [batch.document(i) for i in range(len(batch))]


def test_documents_are_read_into_batches(config: BuildConfig) -> None:
    with local_pipeline() as pipeline:
        documents = pipeline | ReadDocuments(sources=config.input)
        assert_that(documents | "Texts" >> beam.FlatMap(texts_of), equal_to(ALL))


def test_documents_that_are_read_may_be_selected(config: BuildConfig) -> None:
    source = config.input[0].model_copy(
        update={"limit_documents": 30, "sample_fraction": 0.5, "exclude": ("b*",)}
    )
    taken = [
        document
        for document in DOCUMENTS["a.txt"]
        if xxhash.xxh3_128_intdigest(document) >> 64 < 1 << 63
    ]
    assert 2 < len(taken) < 18
    with local_pipeline() as pipeline:
        documents = pipeline | ReadDocuments(sources=[source])
        assert_that(documents | "Texts" >> beam.FlatMap(texts_of), equal_to(taken))
    limited = source.model_copy(
        update={"limit_documents": 30, "sample_fraction": 1.0, "exclude": ()}
    )
    with local_pipeline() as pipeline:
        documents = pipeline | ReadDocuments(sources=[limited])
        assert_that(documents | "Texts" >> beam.FlatMap(texts_of), equal_to(ALL[:30]))


def test_batches_may_be_shuffled(config: BuildConfig) -> None:
    with local_pipeline() as pipeline:
        documents = pipeline | ReadDocuments(sources=config.input) | beam.Reshuffle()
        assert_that(documents | "Texts" >> beam.FlatMap(texts_of), equal_to(ALL))


def test_the_transforms_run_in_beams_test_pipeline(
    config: BuildConfig, tokenizer_directory: Path
) -> None:
    tokenizer = BPETokenizer.load(tokenizer_directory)
    with BeamTestPipeline(runner="FnApiRunner") as pipeline:
        encoded = (
            pipeline
            | ReadDocuments(sources=config.input)
            | EncodeDocuments(tokenizer=str(tokenizer_directory))
        )
        rows = encoded.tokens | "Rows" >> beam.FlatMap(rows_of)
        assert_that(rows, equal_to([tokenizer.encode(text.decode()) for text in ALL]))


def rows_of(tokens: Any) -> list[list[int]]:
    bounds = zip(tokens.offsets[:-1], tokens.offsets[1:], strict=True)
    return [tokens.ids[begin:end].tolist() for begin, end in bounds]


def test_rows_have_the_columns_of_token_files(
    config: BuildConfig, tokenizer_directory: Path
) -> None:
    tokenizer = BPETokenizer.load(tokenizer_directory)
    end = tokenizer.special_tokens[SEPARATOR]
    expected = []
    for name in sorted(DOCUMENTS):
        offset = 0
        for text in DOCUMENTS[name]:
            ids = [*tokenizer.encode(text.decode()), end]
            expected.append((ids, len(ids), len(text), name, offset, 0))
            offset += len(text) + len(SEPARATOR)
    with local_pipeline() as pipeline:
        encoded = (
            pipeline
            | ReadDocuments(sources=config.input)
            | EncodeDocuments(tokenizer=str(tokenizer_directory), append=SEPARATOR, as_rows=True)
        )
        rows = encoded.tokens | "Tuples" >> beam.Map(
            lambda row: (
                row.input_ids, row.num_tokens, row.num_bytes, row.source, row.offset, row.part,
            )
        )  # fmt: skip
        assert_that(rows, equal_to(expected))


def test_rejects_are_an_output_of_their_own(tmp_path: Path, tokenizer_directory: Path) -> None:
    write_corpus(tmp_path, {"a.txt": [b"good", b"bad \xff", b"a <|x|>"]}, separator="\n\n")
    source = SourceConfig(files=(str(tmp_path / "a.txt"),), separator="\n\n")
    documents = [b"good", b"a <|x|>"]
    trained = train_from_counts(count_pretokens(documents), 280, ["<|x|>"])
    trained.tokenizer().save(tmp_path / "t")
    with local_pipeline() as pipeline:
        encoded = (
            pipeline
            | ReadDocuments(sources=[source], special_tokens=["<|x|>"])
            | EncodeDocuments(tokenizer=str(tmp_path / "t"), special_tokens_in_text="reject")
        )
        reasons = encoded.rejects | "Reasons" >> beam.Map(
            lambda reject: (reject.offset, reject.reason)
        )
        assert_that(reasons, equal_to([(6, "invalid_utf8"), (13, "special_token")]), label="Bad")
        sizes = encoded.tokens | "Sizes" >> beam.FlatMap(lambda rows: rows.num_bytes.tolist())
        assert_that(sizes, equal_to([4]), label="Good")


# --- what every transform promises


def of_a_build(config: BuildConfig, tokenizer_directory: Path) -> dict[str, Any]:
    """The transforms of a build but `WriteTrainedTasks`, which takes what another gives."""
    works = works_of(config)
    fingerprint = BPETokenizer.load(tokenizer_directory).model.fingerprint
    training = train_job(config)
    return {
        "ReadTasks": ReadTasks(works=works),
        "CountTasks": CountTasks(job=count_job(config, works)),
        "WriteTasks": WriteTasks(job=encode_job(config, tokenizer_directory, fingerprint)),
        "TrainTokenizer": TrainTokenizer(job=training),
        "NoteFinished": NoteFinished(guard=training.guard),
    }


def train_job(config: BuildConfig) -> TrainJob:
    options = {"password": "hidden-value"}
    output = Directory(url=config.output_path, storage_options=options)
    return TrainJob(
        config=config,
        guard=Guard(output=output, owner="0" * 32),
        counting=None,
        planned_bytes=(),
        plan="0" * 32,
        tasks=1,
        limits={},
    )


@pytest.fixture
def outputs(config: BuildConfig, tokenizer_directory: Path) -> dict[str, Any]:
    """What every public transform gives, by its name and that of the output."""
    made = of_a_build(config, tokenizer_directory)
    tokenizer = str(tokenizer_directory)
    pipeline = beam.Pipeline()
    tasks = pipeline | made["ReadTasks"]
    counted = tasks | made["CountTasks"]
    trained = counted | made["TrainTokenizer"]
    of_build = {
        "ReadTasks": tasks,
        "CountTasks": counted,
        "WriteTasks": tasks | made["WriteTasks"],
        "TrainTokenizer": trained,
        "WriteTrainedTasks": tasks | WriteTrainedTasks(job=train_job(config), trained=trained),
        "NoteFinished": trained | made["NoteFinished"],
    }
    documents = pipeline | ReadDocuments(sources=config.input)
    own_counts = documents | CountPretokens(output="memory://typed/counts")
    batches = documents | EncodeDocuments(tokenizer=tokenizer)
    rows = documents | "AsRows" >> EncodeDocuments(tokenizer=tokenizer, as_rows=True)
    write = WriteTokenShards(output="memory://typed/tokens", num_shards=1)
    return {
        **of_build,
        "ReadDocuments": documents,
        "CountPretokens.shards": own_counts.shards,
        "CountPretokens.rejects": own_counts.rejects,
        "EncodeDocuments.tokens": batches.tokens,
        "EncodeDocuments.rejects": batches.rejects,
        "EncodeDocuments.tokens as rows": rows.tokens,
        "EncodeDocuments.rejects as rows": rows.rejects,
        "WriteTokenShards": batches.tokens | write,
    }


def test_every_public_transform_gives_what_it_says(outputs: dict[str, Any]) -> None:
    types = {
        **dict.fromkeys(OF_A_BUILD, bytes),
        "ReadDocuments": DocumentBatch,
        "CountPretokens.shards": COUNT_ROW,
        "CountPretokens.rejects": Reject,
        "EncodeDocuments.tokens": TokenRows,
        "EncodeDocuments.rejects": Reject,
        "EncodeDocuments.tokens as rows": TOKEN_ROW,
        "EncodeDocuments.rejects as rows": REJECT_ROW,
        "WriteTokenShards": SHARD_ROW,
    }
    assert {name: found.element_type for name, found in outputs.items()} == types
    assert {name.partition(".")[0] for name in types} == {
        *transforms.__all__, *OF_A_BUILD,
    }  # fmt: skip


@pytest.mark.parametrize("name", [*transforms.__all__, *OF_A_BUILD])
def test_every_public_transform_is_a_dataclass_that_says_what_it_does(name: str) -> None:
    modules = (transforms, build_transforms, read_tasks)
    transform = next(getattr(module, name) for module in modules if hasattr(module, name))
    assert issubclass(transform, beam.PTransform)
    assert is_dataclass(transform)
    assert transform.__doc__
    assert transform.display_data is not beam.PTransform.display_data


def test_labels_are_in_pascal_case(outputs: dict[str, Any]) -> None:
    labels: list[str] = []

    class Labels(beam.pipeline.PipelineVisitor):  # type: ignore[misc]
        def enter_composite_transform(self, node: Any) -> None:
            labels.append(node.full_label)

        visit_transform = enter_composite_transform

    outputs["ReadTasks"].pipeline.visit(Labels())
    ours = {
        part
        for label in labels
        for part in [label.split("/")[:2]][0]
        if part and label.partition("/")[0] in (*transforms.__all__, *OF_A_BUILD)
    }
    steps = {"CountTasks", "MergeShards", "WriteTasks", "Train", "Note", "Encode", "Read", "Deal"}
    assert {*steps, *transforms.__all__, *OF_A_BUILD} <= ours
    assert all(part[0].isupper() and part.isidentifier() for part in ours), ours


def test_transforms_of_a_build_show_where_they_write_and_no_storage_options(
    config: BuildConfig, tokenizer_directory: Path
) -> None:
    made = of_a_build(config, tokenizer_directory)
    made["WriteTrainedTasks"] = WriteTrainedTasks(job=train_job(config), trained=None)
    assert made.keys() == set(OF_A_BUILD)
    shown = {
        name: {item.key: item.value for item in DisplayData.create_from(transform).items}
        for name, transform in made.items()
    }
    output = config.output_path
    assert shown["ReadTasks"] == {"tasks": len(works_of(config))}
    assert shown["TrainTokenizer"] == {
        "output": f"{output}/tokenizer", "unit": "byte", "pattern": "gpt2", "vocab_size": 300,
    }  # fmt: skip
    assert shown["WriteTrainedTasks"]["output"] == f"{output}/tokens"
    assert shown["NoteFinished"] == {"output": output}
    assert "hidden" not in str(shown)


def test_what_runs_on_workers_can_be_pickled(
    config: BuildConfig, tokenizer_directory: Path
) -> None:
    works = works_of(config)
    fingerprint = BPETokenizer.load(tokenizer_directory).model.fingerprint
    output = Directory(url="memory://pickled")
    files = TokenShards.files_of(output, 2, "train")
    token_shards = TokenShards(files=files, id_type="auto")
    for function in (
        build_transforms._CountTasks(count_job(config, works)),
        build_transforms._MergeShards(count_job(config, works)),
        build_transforms._WriteTasks(encode_job(config, tokenizer_directory, fingerprint)),
        build_transforms._Train(train_job(config)),
        build_transforms._WriteTrainedTasks(train_job(config)),
        encode_documents.EncodeBatches(
            Directory(url=str(tokenizer_directory)),
            prepend=None,
            append=None,
            special_tokens_in_text="split",
            text_field="text",
            id_field=None,
            invalid_utf8="reject",
        ),
        shard_steps.MergeShard(token_shards),
        shard_steps.FinishShards(files, token_shards),
    ):
        pickled = pickler.dumps(function)
        assert type(pickler.loads(pickled)) is type(function)
        assert len(pickled) < 20_000


def test_tasks_are_dealt_the_largest_first(config: BuildConfig) -> None:
    seen: list[int] = []
    _SEEN.clear()
    works = works_of(config)
    with runners.pipeline(BeamConfig(workers=1)) as pipeline:
        pipeline | ReadTasks(works=works) | beam.Map(_see)
    seen = [TaskWork.from_bytes(descriptor).index for descriptor in _SEEN]
    sizes = {work.index: sum(end - start for _, start, end in work.parts) for work in works}
    assert [sizes[i] for i in seen] == sorted(sizes.values(), reverse=True)


_SEEN: list[bytes] = []


def _see(descriptor: bytes) -> None:
    _SEEN.append(descriptor)


# --- counting, exactly once


def shards(job: CountJob) -> dict[str, str]:
    files = checksums(Path(job.counts.url))
    return {name: value for name, value in files.items() if not name.startswith("_")}


@pytest.fixture
def expected(config: BuildConfig, tmp_path: Path) -> dict[str, str]:
    works = works_of(config)
    job = count_job(config.model_copy(update={"output": str(tmp_path / "expected")}), works)
    finish_counting(job, works)
    return shards(job)


@pytest.mark.parametrize("checkpoint_bytes", [1, 9000, 1 << 40])
@pytest.mark.parametrize("arguments", [(), ("--direct_runner_bundle_repeat=3",)])
def test_counting_counts_once(
    checkpoint_bytes: int,
    arguments: tuple[str, ...],
    config: BuildConfig,
    expected: dict[str, str],
) -> None:
    works = works_of(config)
    job = replace(count_job(config, works), checkpoint_bytes=checkpoint_bytes)
    with local_pipeline(*arguments) as pipeline:
        entries = pipeline | ReadTasks(works=works) | CountTasks(job=job)
        names = entries | "Names" >> beam.Map(lambda entry: json.loads(entry)["name"])
        assert_that(names, equal_to(sorted(expected)))
    assert shards(job) == expected


def test_shards_without_any_task_are_written_from_finished_commits(
    config: BuildConfig, expected: dict[str, str]
) -> None:
    works = works_of(config)
    job = count_job(config, works)
    list(counting.count_tasks(job, works))
    commits = [commit.name for commit in counting.usable_commits(job)]
    with local_pipeline() as pipeline:
        pipeline | ReadTasks(works=[]) | CountTasks(job=job, commits=commits)
    assert shards(job) == expected


def test_a_corpus_without_tasks_gives_empty_shards(config: BuildConfig) -> None:
    job = count_job(config, [])
    with local_pipeline() as pipeline:
        pipeline | ReadTasks(works=[]) | CountTasks(job=job)
    assert len(shards(job)) == job.shards


def process_bundle(
    function: Any, works: list[TaskWork], *, fails_at: int | None = None
) -> list[tuple[int, bytes]]:
    """Does to a DoFn what a runner does for a bundle; outputs of one that fails are lost."""
    outputs: list[tuple[int, bytes]] = []
    function.start_bundle()
    for number, work in enumerate(works):
        if number == fails_at:
            return []
        outputs += function.process(work.to_bytes())
    outputs += [
        value.value if isinstance(value, WindowedValue) else value
        for value in function.finish_bundle()
    ]
    return outputs


@pytest.mark.parametrize("fails_at", [0, 1, 3])
@pytest.mark.parametrize("checkpoint_bytes", [1, 1 << 40])
def test_a_bundle_that_fails_and_is_tried_again_counts_once(
    fails_at: int, checkpoint_bytes: int, config: BuildConfig, expected: dict[str, str]
) -> None:
    works = works_of(config)
    job = replace(count_job(config, works), checkpoint_bytes=checkpoint_bytes)
    function = build_transforms._CountTasks(job)
    assert process_bundle(function, works, fails_at=fails_at) == []
    merge_all(job, process_bundle(function, works))
    assert shards(job) == expected


def test_a_bundle_that_fails_in_the_middle_of_a_task_counts_once(
    config: BuildConfig, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    works = works_of(config)
    job = replace(count_job(config, works), memory=1)
    function = build_transforms._CountTasks(job)
    real = commits.read_task

    def dying(work: TaskWork, readings: Any) -> Iterator[DocumentBatch]:
        yield from real(work, readings)
        if work.index == 2:
            raise MemoryError

    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr("pipelines.counting.commits.read_task", dying)
        process_bundle(function, works)
    merge_all(job, process_bundle(function, works))
    assert shards(job) == expected


def test_what_a_worker_has_finished_is_committed_when_another_fails(
    config: BuildConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    works = works_of(config)
    job = replace(count_job(config, works), checkpoint_bytes=1 << 40)
    function = build_transforms._CountTasks(job)
    function.start_bundle()
    list(function.process(works[0].to_bytes()))
    assert list(counting.usable_commits(job)) == []
    with runners.FAILURE.watched():
        with pytest.raises(KeyError), runners.FAILURE.noted(runners.FAILURE.run):
            raise KeyError  # another worker
        with pytest.raises(KeyError):
            list(function.process(works[1].to_bytes()))
    (commit,) = list(counting.usable_commits(job))
    assert set(commit.tasks) == {works[0].index}


# --- writing


def test_writing_twice_at_once_gives_every_file_once(
    config: BuildConfig, tokenizer_directory: Path
) -> None:
    works = works_of(config)
    fingerprint = BPETokenizer.load(tokenizer_directory).model.fingerprint
    job = encode_job(config, tokenizer_directory, fingerprint)
    with local_pipeline("--direct_runner_bundle_repeat=2") as pipeline:
        entries = pipeline | ReadTasks(works=[*works, *works]) | WriteTasks(job=job)
        names = entries | "Names" >> beam.Map(lambda entry: json.loads(entry)["train"]["name"])
        wanted = [f"train-{i:05d}-of-{len(works):05d}.parquet" for i in range(len(works))]
        assert_that(names, equal_to(wanted * 2))
    assert sorted(path.name for path in Path(job.tokens.url).glob("*.parquet")) == wanted
    assert not list(Path(job.tokens.url).glob(".*"))
