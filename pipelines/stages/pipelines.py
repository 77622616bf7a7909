"""Beam pipelines of a build, run or submitted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import apache_beam as beam

from pipelines import runners
from pipelines.beam.metrics import read_metrics
from pipelines.beam.read_tasks import ReadTasks
from pipelines.config import BeamConfig
from pipelines.console.engine_jobs import EngineJob
from pipelines.counting.commits import TaskCounter
from pipelines.counting.jobs import CountJob
from pipelines.manifest.stage import ENCODE, TRAIN, Stage
from pipelines.metrics import MetricSums, PipelineRun
from pipelines.readers.tasks import TaskWork
from pipelines.stages.train_job import TrainJob
from pipelines.stages.transforms import (
    CountTasks,
    NoteFinished,
    TrainTokenizer,
    WriteTasks,
    WriteTrainedTasks,
)
from pipelines.storage.locks import DetachedJob
from pipelines.tasks.shared_queue import TaskQueue
from pipelines.writing.jobs import EncodeJob

# Adds the steps of a stage to a pipeline, and returns their last output.
Steps: TypeAlias = Callable[[beam.Pipeline], beam.PCollection[bytes]]


class Pipelines:
    """Pipelines of a build, on its runner.

    Args:
        config: Runner, workers and options.
        beam_args: Options that override those of the configuration.
        places: Paths and URLs that workers must reach.
        no_wait: True to submit pipelines rather than run them.
    """

    def __init__(
        self,
        config: BeamConfig,
        beam_args: Sequence[str],
        places: Sequence[str],
        *,
        no_wait: bool,
    ) -> None:
        self._config = config
        self._beam_args = beam_args
        self._places = places
        self._no_wait = no_wait

    def check_options(self) -> None:
        """Check the Beam options.

        Raises:
            ConfigError: An option is unknown, or does not fit the runner or the command.
        """
        options = runners.options_of(
            self._config, self._beam_args, self._places, no_wait=self._no_wait
        )
        if not self._no_wait:
            runners.check_waits(options)

    def count_workers(self) -> int | None:
        """Return the number of workers, or None if the engine decides it."""
        return runners.workers_of(self._config, runners.options_of(self._config, self._beam_args))

    def run(self, steps: Steps) -> tuple[Any, EngineJob | None]:
        """Run steps as a pipeline. Return its result when it has ended, and the engine's job."""
        jobs: list[EngineJob] = []
        with runners.pipeline(
            self._config, self._beam_args, self._places, note_job=jobs.append
        ) as pipeline:
            steps(pipeline)
        return pipeline.result, jobs[-1] if jobs else None

    def run_tasks(self, steps: Steps, tasks: int, begun: MetricSums) -> PipelineRun:
        """Run steps over a number of tasks, and return what was measured.

        Args:
            steps: Steps to run.
            tasks: Number of tasks that the steps process.
            begun: Metrics of the tasks that began before.
        """
        result, job = self.run(steps)
        return PipelineRun(measured=read_metrics(result, tasks, begun.measured), job=job)

    def submit(
        self, stages: Sequence[Stage[Any]], steps: Steps, job: TrainJob, works: Sequence[TaskWork]
    ) -> DetachedJob:
        """Submit the steps of a stage and of the following stages as one job.

        Args:
            stages: Stages that the job does, in order.
            steps: Steps of the first stage; for training, `begin`.
            job: Job that trains, and encodes with the trained tokenizer.
            works: Tasks to encode, if the job encodes after another stage.

        Raises:
            ConfigError: The runner cannot run a job without the launcher, or rejected it.
        """

        def build(pipeline: beam.Pipeline) -> None:
            done = steps(pipeline)
            if TRAIN in stages:
                done = done | "TrainTokenizer" >> TrainTokenizer(job=job)
            if ENCODE in stages[1:]:
                tasks = pipeline | "ReadTasksAgain" >> ReadTasks(works=works)
                done = tasks | "WriteTrainedTasks" >> WriteTrainedTasks(job=job, trained=done)
            _ = done | "NoteFinished" >> NoteFinished(guard=job.guard)

        return runners.submit(
            self._config,
            build,
            self._beam_args,
            self._places,
            stages=[stage.name for stage in stages],
        )

    @staticmethod
    def count(
        works: Sequence[TaskWork],
        job: CountJob,
        commits: Sequence[str],
        queue: TaskQueue[TaskCounter] | None = None,
    ) -> Steps:
        """Return the steps that count tasks, added to the commits of an earlier invocation."""

        def steps(pipeline: beam.Pipeline) -> beam.PCollection[bytes]:
            tasks = pipeline | "ReadTasks" >> ReadTasks(works=works, queue=queue)
            return tasks | "CountPretokens" >> CountTasks(job=job, commits=commits, queue=queue)

        return steps

    @staticmethod
    def begin(pipeline: beam.Pipeline) -> beam.PCollection[bytes]:
        """Add the single element that starts training."""
        return pipeline | "Begin" >> beam.Create([b""], reshuffle=False)

    @classmethod
    def train(cls, job: TrainJob) -> Steps:
        """Return the steps that train on a worker."""
        return lambda pipeline: cls.begin(pipeline) | "TrainTokenizer" >> TrainTokenizer(job=job)

    @staticmethod
    def encode(
        works: Sequence[TaskWork], job: EncodeJob, queue: TaskQueue[None] | None = None
    ) -> Steps:
        """Return the steps that write the token files of tasks."""

        def steps(pipeline: beam.Pipeline) -> beam.PCollection[bytes]:
            tasks = pipeline | "ReadTasks" >> ReadTasks(works=works, queue=queue)
            return tasks | "WriteTokenShards" >> WriteTasks(job=job, queue=queue)

        return steps
