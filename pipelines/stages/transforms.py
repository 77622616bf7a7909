"""Transforms of a build, each a few lines over plain functions that work without Beam.

::

    descriptors = pipeline | ReadTasks(works=...)        # one descriptor of a task per element
    descriptors | CountTasks(job=count_job)              # → entries of the shards of counts
    descriptors | WriteTasks(job=encode_job)             # → entries of the tasks' token files
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindows
from apache_beam.typehints import with_input_types, with_output_types

from pipelines import runners
from pipelines.beam.dofn import VersionCheckedDoFn
from pipelines.beam.metrics import beam_meter
from pipelines.beam.shards import create_every_shard
from pipelines.counting.commits import TaskCounter, merge_commits, read_commit
from pipelines.counting.jobs import CountJob
from pipelines.readers.tasks import TaskWork
from pipelines.runners import FAILURE
from pipelines.stages.train_job import TrainJob
from pipelines.storage.locks import Guard
from pipelines.tasks.shared_queue import TaskQueue
from pipelines.writing.jobs import EncodeJob
from pipelines.writing.tasks import write_task

__all__ = ["CountTasks", "NoteFinished", "TrainTokenizer", "WriteTasks", "WriteTrainedTasks"]


@with_input_types(bytes)
@with_output_types(bytes)
@dataclass(kw_only=True)
class CountTasks(beam.PTransform):  # type: ignore[misc]
    """Task descriptors → entries, as JSON, of the shards of counts.

    Each task is counted exactly once: a shard is written only if its commits (checkpoints) contain
    every task of the plan once. Parallelism is limited by the number of tasks, then of shards.

    Attributes:
        job: Job of the counting.
        commits: Names of an earlier command's commits, which workers read.
        queue: Queue of the tasks, some of which may have begun; None if workers share none.
    """

    job: CountJob
    commits: Sequence[str] = ()
    queue: TaskQueue[TaskCounter] | None = None

    def expand(self, tasks: beam.PCollection[bytes]) -> beam.PCollection[bytes]:
        # Declared types select efficient coders; without one, elements are shuffled as pickled
        # objects.
        counted = tasks | "CountTasks" >> beam.ParDo(
            _CountTasks(self.job, self.queue)
        ).with_output_types(tuple[int, bytes])
        found = [counted, create_every_shard(tasks.pipeline, self.job.shards)]
        if self.commits:
            names = [name.encode() for name in self.commits]
            read = beam.ParDo(_ReadCommits(self.job)).with_output_types(tuple[int, bytes])
            begin = beam.pvalue.PBegin(tasks.pipeline)
            found.append(runners.distribute(begin, names) | "ReadCommits" >> read)
        return (
            found
            | "Sections" >> beam.Flatten()
            | "BySection" >> beam.GroupByKey()
            | "MergeShards" >> beam.ParDo(_MergeShards(self.job)).with_output_types(bytes)
        )

    def display_data(self) -> dict[str, Any]:
        """Return the destination and the rules of the counts."""
        job = self.job
        return {"output": job.counts.url, "pattern": job.pattern, "shards": job.shards}


@with_input_types(bytes)
@with_output_types(bytes)
@dataclass(kw_only=True)
class WriteTasks(beam.PTransform):  # type: ignore[misc]
    """Task descriptors → entries, as JSON, of the token files of the tasks.

    Repeating a task is safe: names and bytes depend on the task alone, and a file gets its name
    when it is complete. Parallelism is limited by the number of tasks.

    Attributes:
        job: Job of the encoding.
        queue: Queue of the tasks, some of which may have begun; None if workers share none.
    """

    job: EncodeJob
    queue: TaskQueue[None] | None = None

    def expand(self, tasks: beam.PCollection[bytes]) -> beam.PCollection[bytes]:
        return tasks | "WriteTasks" >> beam.ParDo(
            _WriteTasks(self.job, self.queue)
        ).with_output_types(bytes)

    def display_data(self) -> dict[str, Any]:
        """Return the destination and the rules of the token files."""
        job = self.job
        return {
            "output": job.tokens.url,
            "tokenizer": job.tokenizer.url,
            "special_tokens_in_text": job.special_tokens_in_text,
        }


@with_input_types(bytes)
@with_output_types(bytes)
@dataclass(kw_only=True)
class TrainTokenizer(beam.PTransform):  # type: ignore[misc]
    """Entries of all shards of counts, or any one element → the tokenizer's fingerprint.

    One step on one worker, which waits for all elements. Repeating it is safe: the files always
    have the same bytes.
    """

    job: TrainJob

    def expand(self, entries: beam.PCollection[bytes]) -> beam.PCollection[bytes]:
        return (
            entries
            | "AfterAll" >> _AfterAll()
            | "Train" >> beam.ParDo(_Train(self.job)).with_output_types(bytes)
        )

    def display_data(self) -> dict[str, Any]:
        """Return the destination and the size of the tokenizer."""
        job, tokenizer = self.job, self.job.config.tokenizer
        sizes = tokenizer.vocab_sizes
        return {
            "output": (job.guard.output / "tokenizer").url,
            "unit": tokenizer.unit,
            "pattern": tokenizer.pattern,
            "vocab_size": sizes[0] if len(sizes) == 1 else ", ".join(map(str, sizes)),
        }


@with_input_types(bytes)
@with_output_types(bytes)
@dataclass(kw_only=True)
class WriteTrainedTasks(beam.PTransform):  # type: ignore[misc]
    """`WriteTasks` with a tokenizer that is trained in the same pipeline.

    Attributes:
        job: Job of the training.
        trained: Output of `TrainTokenizer`, which encoding waits for.
    """

    job: TrainJob
    trained: beam.PCollection[bytes]

    def expand(self, tasks: beam.PCollection[bytes]) -> beam.PCollection[bytes]:
        return tasks | "WriteTasks" >> beam.ParDo(
            _WriteTrainedTasks(self.job), beam.pvalue.AsSingleton(self.trained)
        ).with_output_types(bytes)

    def display_data(self) -> dict[str, Any]:
        """Return the destination and the rules of the token files."""
        output, encode = self.job.guard.output, self.job.config.encode
        return {
            "output": (output / "tokens").url,
            "tokenizer": (output / "tokenizer").url,
            "special_tokens_in_text": encode.special_tokens_in_text,
        }


@with_input_types(bytes)
@with_output_types(bytes)
@dataclass(kw_only=True)
class NoteFinished(beam.PTransform):  # type: ignore[misc]
    """Record, after all elements, that a job that no launcher waits for has finished."""

    guard: Guard

    def expand(self, entries: beam.PCollection[bytes]) -> beam.PCollection[bytes]:
        return (
            entries
            | "AfterAll" >> _AfterAll()
            | "Note" >> beam.ParDo(_NoteFinished(self.guard)).with_output_types(bytes)
        )

    def display_data(self) -> dict[str, Any]:
        """Return the finished output."""
        return {"output": self.guard.output.url}


class _CountTasks(VersionCheckedDoFn):
    """DoFn that counts tasks into a table that belongs to one attempt of a bundle.

    Only the commits of the attempt are used.
    """

    def __init__(self, job: CountJob, queue: TaskQueue[TaskCounter] | None = None) -> None:
        super().__init__()
        self._job = job
        self._queue = queue
        self._counter: TaskCounter | None = None

    def start_bundle(self) -> None:
        if self._counter is not None:  # the previous attempt failed
            self._counter.close()
        with FAILURE.noted(self._run):
            begun = next(self._begun(), None)
        self._counter = TaskCounter(self._job, beam_meter()) if begun is None else begun

    def process(self, descriptor: bytes) -> Iterator[tuple[int, bytes]]:
        assert self._counter is not None
        if FAILURE.happened:
            for _ in self._counter.commit():  # keep the finished tasks
                pass
        with FAILURE.task(self._run):
            yield from self._counter.count(TaskWork.from_bytes(descriptor))

    def finish_bundle(self) -> Iterator[Any]:
        assert self._counter is not None
        with FAILURE.noted(self._run):
            counters = [self._counter, *self._begun()]
        for counter in counters:
            for section in (*counter.descriptors, *counter.commit()):
                yield GlobalWindows.windowed_value_at_end_of_window(section)
            counter.close()
        self._counter = None

    def _begun(self) -> Iterator[TaskCounter]:
        """Yield the counters of threads that counted before there was a pipeline."""
        return iter(()) if self._queue is None else self._queue.take_over()


class _ReadCommits(VersionCheckedDoFn):
    def __init__(self, job: CountJob) -> None:
        super().__init__()
        self._job = job

    def process(self, name: bytes) -> Iterator[tuple[int, bytes]]:
        with FAILURE.task(self._run):
            yield from read_commit(self._job, name.decode()).descriptors(self._job.shards)


class _MergeShards(VersionCheckedDoFn):
    def __init__(self, job: CountJob) -> None:
        super().__init__()
        self._job = job

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[bytes]:
        shard, descriptors = element
        with FAILURE.task(self._run):
            entry = merge_commits(self._job, shard, descriptors, beam_meter())
        yield json.dumps(entry).encode()


class _WriteTasks(VersionCheckedDoFn):
    def __init__(self, job: EncodeJob, queue: TaskQueue[None] | None = None) -> None:
        super().__init__()
        self._job = job
        self._queue = queue

    def start_bundle(self) -> None:
        if self._queue is not None:
            with FAILURE.noted(self._run):
                next(self._queue.take_over(), None)

    def finish_bundle(self) -> None:
        if self._queue is not None:
            with FAILURE.noted(self._run):
                list(self._queue.take_over())

    def process(self, descriptor: bytes) -> Iterator[bytes]:
        with FAILURE.task(self._run):
            entry = write_task(self._job, TaskWork.from_bytes(descriptor), beam_meter())
        yield json.dumps(entry).encode()


class _AfterAll(beam.PTransform):  # type: ignore[misc]
    """Any number of elements → one element, once all of them have arrived."""

    def expand(self, elements: beam.PCollection[Any]) -> beam.PCollection[bytes]:
        return (
            elements
            | "Alike" >> beam.Map(lambda _: (0, b"")).with_output_types(tuple[int, bytes])
            | "Together" >> beam.GroupByKey()
            | "One" >> beam.Map(lambda _: b"").with_output_types(bytes)
        )


class _Train(VersionCheckedDoFn):
    def __init__(self, job: TrainJob) -> None:
        super().__init__()
        self._job = job

    def process(self, _: bytes) -> Iterator[bytes]:
        with FAILURE.task(self._run):
            fingerprint = self._job.train()
            if self._job.tasks:
                self._job.begin_encoding(fingerprint)
        yield fingerprint.encode()


class _WriteTrainedTasks(VersionCheckedDoFn):
    def __init__(self, job: TrainJob) -> None:
        super().__init__()
        self._job = job
        self._encode_job: EncodeJob | None = None

    def process(self, descriptor: bytes, trained: bytes) -> Iterator[bytes]:
        with FAILURE.task(self._run):
            if self._encode_job is None:
                self._encode_job = self._job.encode_job(trained.decode())
            entry = write_task(self._encode_job, TaskWork.from_bytes(descriptor), beam_meter())
        yield json.dumps(entry).encode()


class _NoteFinished(VersionCheckedDoFn):
    def __init__(self, guard: Guard) -> None:
        super().__init__()
        self._guard = guard

    def process(self, _: bytes) -> Iterator[bytes]:
        self._guard.note_finished()
        yield b""
