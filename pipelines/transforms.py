"""The PTransforms. Each is a few lines over plain functions that work without Beam.

::

    descriptors = pipeline | ReadTasks(works=...)        # task descriptors, dealt to the workers
    descriptors | CountPretokens(job=count_job)          # → entries of the shards of counts
    descriptors | WriteTokenShards(job=encode_job)       # → entries of the tasks' token files

    documents = pipeline | ReadDocuments(sources=[SourceConfig(files=["corpus/*.txt"])])
    encoded = documents | EncodeDocuments(tokenizer="out/tokenizer", append="<|endoftext|>")
    encoded.tokens, encoded.rejects
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindows

from pipelines import runners
from pipelines.batches import DocumentBatch
from pipelines.config import SourceConfig
from pipelines.counting import CountJob, TaskCounter, merge_shard
from pipelines.readers.work import TaskWork, read_task, source_readings
from pipelines.runners import FAILURE
from pipelines.software import check_worker, worker_versions
from pipelines.stages.limits import limit_files
from pipelines.storage.directory import Directory
from pipelines.tasks import list_files, plan_tasks
from pipelines.tokenizers.files import load_model, tokenizer_of
from pipelines.writing import (
    DocumentEncoder,
    EncodeJob,
    TokenRows,
    write_task,
)

__all__ = ["CountPretokens", "EncodeDocuments", "ReadDocuments", "ReadTasks", "WriteTokenShards"]


@dataclass(kw_only=True)
class ReadTasks(beam.PTransform):  # type: ignore[misc]
    """Task descriptors, the largest first, dealt to the workers."""

    works: Sequence[TaskWork]

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[bytes]:
        sizes = {
            work.index: sum(end - start for _, start, end in work.parts) for work in self.works
        }
        ordered = sorted(self.works, key=lambda work: (-sizes[work.index], work.index))
        numbered = list(enumerate(work.to_bytes() for work in ordered))
        tasks = begin | "Tasks" >> beam.Create(numbered, reshuffle=False).with_output_types(
            tuple[int, bytes]
        )
        if not runners.deals_by_key(begin.pipeline.runner):
            return tasks | "Deal" >> beam.Reshuffle() | "Dealt" >> beam.Values()
        # Keys of their own: what Reshuffle does for those who have none, with a third less to run.
        return (
            tasks
            | "Deal" >> beam.GroupByKey()
            | "Dealt" >> beam.FlatMapTuple(lambda _, tasks: tasks).with_output_types(bytes)
        )


@dataclass(kw_only=True)
class CountPretokens(beam.PTransform):  # type: ignore[misc]
    """Task descriptors → shards of counts, one file each; gives their entries as JSON.

    Exactly once: a shard is written only if its commits hold every task of the plan once. At most
    as parallel as there are tasks, then shards.

    Attributes:
        job: what to count and where to.
        finished: descriptors (shard, JSON) of commits of an earlier run.
    """

    job: CountJob
    finished: Sequence[tuple[int, bytes]] = ()

    def expand(self, tasks: beam.PCollection[bytes]) -> beam.PCollection[bytes]:
        every_shard = [(shard, b"") for shard in range(self.job.shards)]
        # Types are what coders follow from: undeclared, elements would be shuffled as objects.
        counted = tasks | "CountTasks" >> beam.ParDo(_CountTasks(self.job)).with_output_types(
            tuple[int, bytes]
        )
        earlier = tasks.pipeline | "EveryShard" >> beam.Create(
            [*every_shard, *self.finished], reshuffle=False
        ).with_output_types(tuple[int, bytes])
        return (
            (counted, earlier)
            | "Sections" >> beam.Flatten()
            | "BySection" >> beam.GroupByKey()
            | "MergeShards" >> beam.ParDo(_MergeShards(self.job)).with_output_types(bytes)
        )


@dataclass(kw_only=True)
class WriteTokenShards(beam.PTransform):  # type: ignore[misc]
    """Task descriptors → one token file each; gives their entries as JSON.

    Idempotent: names and bytes follow from the task alone, and a file gets its name when it is
    whole. At most as parallel as there are tasks.
    """

    job: EncodeJob

    def expand(self, tasks: beam.PCollection[bytes]) -> beam.PCollection[bytes]:
        return tasks | "WriteTasks" >> beam.ParDo(_WriteTasks(self.job)).with_output_types(bytes)


@dataclass(kw_only=True)
class ReadDocuments(beam.PTransform):  # type: ignore[misc]
    """Files → batches of documents (`DocumentBatch`), for pipelines of one's own.

    Bounded. Files are listed, and the ends of limits found, when the pipeline is built; at most as
    parallel as there are tasks.

    Attributes:
        sources: which files, and how they are read.
        pattern, special_tokens, normalizer, normalize_quotes: of the tokenizer that is to encode
            them; they decide where documents of many megabytes are cut into pieces.
    """

    sources: Sequence[SourceConfig]
    pattern: str = "gpt2"
    special_tokens: Sequence[str] = ()
    normalizer: str | None = None
    normalize_quotes: bool = False

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[DocumentBatch]:
        files = [
            file for i, source in enumerate(self.sources) for file in list_files(source, index=i)
        ]
        files, _ = limit_files(files, self.sources)
        plan = plan_tasks(files, self.sources)
        readings = source_readings(
            self.sources,
            self.pattern,
            self.special_tokens,
            normalizer=self.normalizer,
            normalize_quotes=self.normalize_quotes,
        )
        return (
            begin
            | ReadTasks(works=[TaskWork.of_plan(plan, task) for task in plan.tasks])
            | "Read"
            >> beam.FlatMap(
                lambda descriptor: read_task(TaskWork.from_bytes(descriptor), readings)
            ).with_output_types(DocumentBatch)
        )


@dataclass(kw_only=True)
class EncodeDocuments(beam.PTransform):  # type: ignore[misc]
    """Batches of documents → `tokens` (`TokenRows`, or rows) and `rejects` (`Reject`).

    Attributes:
        tokenizer: a directory that `save` of a tokenizer, or a build, wrote.
        prepend, append: special tokens put around each document.
        special_tokens_in_text: "split", "text", "reject" or "error".
        as_rows: give a `beam.Row(input_ids, num_tokens, num_bytes, source, offset, part)` for each
            document instead of batches.
    """

    tokenizer: str
    prepend: str | None = None
    append: str | None = None
    special_tokens_in_text: str = "split"
    as_rows: bool = False

    def expand(self, documents: beam.PCollection[DocumentBatch]) -> beam.pvalue.DoOutputsTuple:
        encode = _EncodeBatches(self)
        return documents | "Encode" >> beam.ParDo(encode).with_outputs("rejects", main="tokens")


# --- what runs on workers --------------------------------------------------------------------


class _Work(beam.DoFn):  # type: ignore[misc]
    """Work of a build, which only workers with the versions of the command do."""

    def __init__(self) -> None:
        self._versions = dict(worker_versions())

    def setup(self) -> None:
        with FAILURE.noted():
            check_worker(self._versions)


class _CountTasks(_Work):
    """The table belongs to one bundle attempt; whatever becomes of it, only commits count."""

    def __init__(self, job: CountJob) -> None:
        super().__init__()
        self._job = job
        self._counter: TaskCounter | None = None

    def start_bundle(self) -> None:
        if self._counter is not None:  # an attempt before this one failed
            self._counter.close()
        self._counter = TaskCounter(self._job)

    def process(self, descriptor: bytes) -> Iterator[tuple[int, bytes]]:
        assert self._counter is not None
        if FAILURE.happened:
            for _ in self._counter.commit():  # so that what is finished is kept
                pass
        FAILURE.raise_again()
        with FAILURE.noted():
            yield from self._counter.count(TaskWork.from_bytes(descriptor))

    def finish_bundle(self) -> Iterator[Any]:
        assert self._counter is not None
        for section in self._counter.commit():
            yield GlobalWindows.windowed_value_at_end_of_window(section)
        self._counter.close()
        self._counter = None


class _MergeShards(_Work):
    def __init__(self, job: CountJob) -> None:
        super().__init__()
        self._job = job

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[bytes]:
        shard, descriptors = element
        FAILURE.raise_again()
        with FAILURE.noted():
            entry = merge_shard(self._job, shard, list(descriptors))
        yield json.dumps(entry).encode()


class _WriteTasks(_Work):
    def __init__(self, job: EncodeJob) -> None:
        super().__init__()
        self._job = job

    def process(self, descriptor: bytes) -> Iterator[bytes]:
        FAILURE.raise_again()
        with FAILURE.noted():
            entry = write_task(self._job, TaskWork.from_bytes(descriptor))
        yield json.dumps(entry).encode()


class _EncodeBatches(beam.DoFn):  # type: ignore[misc]
    def __init__(self, transform: EncodeDocuments) -> None:
        self._transform = transform

    def setup(self) -> None:
        self._encoder = DocumentEncoder(
            tokenizer_of(load_model(Directory(url=self._transform.tokenizer))),
            prepend=self._transform.prepend,
            append=self._transform.append,
            special_tokens_in_text=self._transform.special_tokens_in_text,
        )

    def process(self, batch: DocumentBatch) -> Iterator[Any]:
        kept = self._encoder.refuse(batch)
        for reject in kept.rejects:
            yield beam.pvalue.TaggedOutput("rejects", reject)
        if not len(kept):
            return
        rows = self._encoder.encode(kept)
        if self._transform.as_rows:
            yield from _rows_of(rows)
        else:
            yield rows


def _rows_of(rows: TokenRows) -> Iterator[beam.Row]:
    for i in range(len(rows)):
        ids = rows.ids[rows.offsets[i] : rows.offsets[i + 1]]
        yield beam.Row(
            input_ids=ids.tolist(),
            num_tokens=len(ids),
            num_bytes=int(rows.num_bytes[i]),
            source=rows.source,
            offset=int(rows.places[i]),
            part=rows.part,
        )
