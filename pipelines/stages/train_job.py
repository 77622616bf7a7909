"""What workers need to go on with a build after its counts: to train, and then to encode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from bpe_core import BPETokenizer
from pipelines.accounting import planned_bytes_of_sources
from pipelines.config import BuildConfig
from pipelines.counting.content import counts_content
from pipelines.counting.jobs import CountJob
from pipelines.manifest import stage as records
from pipelines.manifest.names import BASE
from pipelines.manifest.records import read_manifest
from pipelines.stages.context import Run
from pipelines.stages.jobs import check_affixes, encode_configuration, encode_job
from pipelines.stages.learn import keep_trained, learn, trained_before, training_configuration
from pipelines.storage.directory import Directory
from pipelines.storage.locks import Guard
from pipelines.tasks.plan import plan_id
from pipelines.tokenizers.files import Model
from pipelines.writing.encoder import load_tokenizer
from pipelines.writing.jobs import EncodeJob


@dataclass(frozen=True, kw_only=True)
class TrainJob:
    """All that a worker needs to know to train; small.

    Attributes:
        config: of the build.
        guard: of the build, that its directories have.
        counting: of the counts, where the pipeline makes them; None: they are finished.
        planned_bytes: what the counts are held against, by the index of the source.
        plan, tasks: digest and number of tasks of the plan, where the pipeline goes on to encode;
            empty and 0: it does not.
        limits: where the limits of sources end, as `Run.limited` gives it, for the encoding.
    """

    config: BuildConfig
    guard: Guard
    counting: CountJob | None
    planned_bytes: tuple[int | None, ...]
    plan: str
    tasks: int
    limits: Mapping[str, Any]

    @classmethod
    def of(cls, run: Run, counting: CountJob | None = None, *, encodes: bool = False) -> Self:
        """The job for a run of the command."""
        sources = run.config.input
        return cls(
            config=run.config,
            guard=run.lock.guard,
            counting=counting,
            planned_bytes=()
            if counting is None
            else tuple(planned_bytes_of_sources(run.plan.files, sources)),
            plan=run.plan.digest if encodes else "",
            tasks=len(run.plan.tasks) if encodes else 0,
            limits=run.limited[1] if encodes else {},
        )

    def train(self) -> str:
        """Trains unless that was done; gives the tokenizer's fingerprint."""
        run = Run(self.config, guard=self.guard)
        counted = self._counted(run)
        configuration = training_configuration(run.config, counted)
        content = None
        if self.counting is not None:
            content = self._begin(run, run.tokenizer, configuration)
        if content is None:
            content = trained_before(run, configuration, counted)
        if content is None:
            content = learn(run, counted, configuration)
            keep_trained(run, configuration, content)
        return str(content["fingerprint"])

    def begin_encoding(self, fingerprint: str) -> None:
        """States what will be encoded, with the tokenizer of this fingerprint."""
        run = Run(self.config, guard=self.guard)
        model = self._model(run, fingerprint)
        check_affixes(run, model)
        self._begin(run, run.tokens, encode_configuration(run, model), self.limits, self.tasks)

    def encode_job(self, fingerprint: str) -> EncodeJob:
        """What encoding has to know, with the tokenizer of this fingerprint."""
        run = Run(self.config, guard=self.guard)
        model = self._model(run, fingerprint)
        configuration = encode_configuration(run, model)
        identity = records.Identity(configuration=configuration, inputs={}, marks={})
        plan = plan_id(self.plan, identity.configuration_fingerprint)
        return encode_job(run, identity, model, plan, BASE)

    def _counted(self, run: Run) -> Mapping[str, Any]:
        if self.counting is not None:
            return counts_content(self.counting, run.config.input, self.planned_bytes)
        counted = read_manifest(run.counts)
        assert counted is not None, "counts are finished before training begins"
        return counted

    def _begin(
        self,
        run: Run,
        directory: Directory,
        configuration: Mapping[str, Any],
        limits: Mapping[str, Any] | None = None,
        tasks: int | None = None,
    ) -> dict[str, Any] | None:
        """Begins a stage with the inputs of the one that the command has begun.

        Gives its manifest if it was finished before that one was begun anew.
        """
        begun = records.stated(run.counts if self.counting is not None else run.tokenizer)
        identity = records.Identity(
            configuration=configuration, inputs=begun["inputs"], marks=begun["marks"]
        )
        finished = records.finished_manifest(directory, identity)
        if finished is None:
            records.begin_stage(directory, identity, limits or {}, tasks)
        return finished

    def _model(self, run: Run, fingerprint: str) -> Model:
        tokenizer = load_tokenizer(run.tokenizer_directory, fingerprint)
        return tokenizer.model if isinstance(tokenizer, BPETokenizer) else tokenizer
