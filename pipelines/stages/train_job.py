"""Job of a worker that continues a build after counting: training, then encoding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa

from bpe_core import BPETokenizer
from pipelines.config import BuildConfig
from pipelines.counting.content import counts_content
from pipelines.counting.given import GivenCounts
from pipelines.counting.jobs import CountJob
from pipelines.counting.training import training_configuration
from pipelines.manifest.models import CountsContent, Manifest, TokenizerContent
from pipelines.manifest.names import BASE
from pipelines.manifest.run_record import StagePlan
from pipelines.manifest.stage import COUNT, ENCODE, TRAIN, Identity, Stage
from pipelines.manifest.stage_comparison import find_finished_manifest
from pipelines.manifest.stage_records import load_manifest, load_plan
from pipelines.manifest.stage_writing import begin_stage
from pipelines.stages.jobs import check_affixes, encode_configuration, encode_job
from pipelines.stages.learn import find_trained, keep_trained, learn
from pipelines.stages.output import Output
from pipelines.storage.locks import Guard
from pipelines.tasks.plan import BY_TEXT, TaskRule, plan_id
from pipelines.tokenizers.files import Model
from pipelines.writing.encoder import load_tokenizer
from pipelines.writing.jobs import EncodeJob

_M = TypeVar("_M", bound=Manifest)


@dataclass(frozen=True, kw_only=True)
class TrainJob:
    """Complete instructions for a worker to train, and then to encode. Small.

    Attributes:
        config: Configuration of the build.
        guard: Guard of the build's output.
        counting: Job that counts in the same pipeline, or None if the counts are finished.
        planned_bytes: Bytes of each source that the counts must add up to.
        plan, tasks: Digest and number of tasks of the plan that the pipeline then encodes; empty
            and 0 if it does not encode.
        limits: Positions where the limits of sources end, for the encoding.
        task_rule: Rule by which the plan cuts the files.
        kept: Columns of records that the token files keep.
    """

    config: BuildConfig
    guard: Guard
    counting: CountJob | None = None
    planned_bytes: tuple[int | None, ...] = ()
    plan: str = ""
    tasks: int = 0
    limits: Mapping[str, Any] = field(default_factory=dict)
    task_rule: TaskRule = BY_TEXT
    kept: pa.Schema | None = None

    @property
    def _output(self) -> Output:
        return Output.of(self.config, self.guard)

    def train(self) -> str:
        """Train unless this is already done. Return the fingerprint of the encoding tokenizer."""
        output = self._output
        given = self._open_counts(output)
        configuration = training_configuration(self.config, given)
        content: TokenizerContent | None = None
        if self.counting is not None:
            content = self._begin(TRAIN, output, configuration)
        if content is None:
            content = find_trained(output.tokenizer, configuration, given)
        if content is None:
            content = learn(self.config.tokenizer, given, output.tokenizer, configuration)
            keep_trained(output.tokenizer, configuration, content)
        [encoder] = [
            trained
            for _, trained in content.of_all_sizes()
            if trained.vocab_size_asked_for == self.config.encoded_vocab_size
        ]
        return encoder.fingerprint

    def begin_encoding(self, fingerprint: str) -> None:
        """Start the stage that encodes with the tokenizer of this fingerprint."""
        output = self._output
        model = _load_model(output, fingerprint)
        check_affixes(self.config.encode, model)
        self._begin(ENCODE, output, encode_configuration(self.config, model))

    def encode_job(self, fingerprint: str) -> EncodeJob:
        """Return the job that encodes with the tokenizer of this fingerprint."""
        output = self._output
        model = _load_model(output, fingerprint)
        identity = Identity(
            configuration=encode_configuration(self.config, model), inputs={}, marks={}
        )
        configuration = identity.configuration_fingerprint
        return encode_job(
            self.config,
            output,
            model,
            configuration=configuration,
            plan_id=plan_id(self.plan, configuration),
            generation=BASE,
            kept=self.kept,
        )

    def _open_counts(self, output: Output) -> GivenCounts:
        """Return the counts, perhaps before the launcher has written their manifest."""
        if self.config.counts.path is not None:
            return GivenCounts.of_build(self.config, output.root)
        counted: CountsContent | None
        if self.counting is not None:
            counted = counts_content(self.counting, self.config.input, self.planned_bytes)
        else:
            counted = load_manifest(COUNT, output.counts)
        assert counted is not None, "counts are finished before training starts"
        return GivenCounts.listed(output.counts, counted)

    def _begin(
        self, stage: Stage[_M], output: Output, configuration: Mapping[str, Any]
    ) -> _M | None:
        """Start a stage with the inputs of the stage that the launcher has started.

        Returns:
            The manifest, if the stage was finished before the launcher started the other one again.
        """
        begun = (
            load_plan(TRAIN, output.tokenizer)
            if self.counting is None
            else load_plan(COUNT, output.counts)
        )
        assert isinstance(begun, StagePlan), "the launcher has started the stage"
        identity = Identity(configuration=configuration, inputs=begun.inputs, marks=begun.marks)
        directory = output.of_stage(stage)
        finished = find_finished_manifest(stage, directory, identity)
        if finished is None and stage == ENCODE:
            begin_stage(
                directory,
                identity,
                self.limits,
                self.tasks,
                begun.commits,
                task_rule=self.task_rule,
            )
        elif finished is None:
            begin_stage(directory, identity, commits=begun.commits)
        return finished


def _load_model(output: Output, fingerprint: str) -> Model:
    tokenizer = load_tokenizer(output.encoder, fingerprint)
    return tokenizer.model if isinstance(tokenizer, BPETokenizer) else tokenizer
