"""Summary of a command, collected as its stages finish."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from pipelines.console import progress
from pipelines.manifest.entries import CorpusTotals
from pipelines.manifest.models import CountsContent, TokenizerManifest, TokensManifest
from pipelines.manifest.stage import Stage
from pipelines.stages.output import Output
from pipelines.stages.summary import BuildSummary, StageSummary
from pipelines.storage.directory import Directory
from pipelines.storage.locks import DetachedJob


class Report:
    """Summary of a command so far."""

    def __init__(self, output: Directory) -> None:
        self.summary = BuildSummary(output=output.url, storage_options=output.storage_options)

    @property
    def has_changes(self) -> bool:
        """Return True if a stage of the command was not finished before."""
        return any(stage.state != "already finished" for stage in self.summary.stages)

    def add_stage(self, stage: StageSummary) -> None:
        """Add the result of a stage, and show it."""
        self._set(stages=(*self.summary.stages, stage))
        name = stage.name.partition(" ")[0]  # a generation may follow
        progress.end_stage(name, stage.state, stage.seconds, stage.bytes)

    def add_warnings(self, warnings: Iterable[str]) -> None:
        """Add warnings that are not yet in the report."""
        self._set(warnings=tuple(dict.fromkeys([*self.summary.warnings, *warnings])))

    def add_submitted(self, job: DetachedJob, stages: Iterable[Stage[Any]]) -> None:
        """Add a job that does stages after the launcher has ended."""
        for stage in stages:
            self.add_stage(StageSummary(name=stage.name, state="submitted"))
        self._set(submitted=job)

    def add_counts(self, manifest: CountsContent, counts: Directory) -> None:
        """Add the results of counting."""
        totals = manifest.totals
        self._add_documents(totals)
        self._set(distinct_pretokens=totals.distinct_pretokens)
        self._add_outputs(counts=counts.url)
        if totals.long_pretokens:
            self.add_warnings(
                [
                    f"{totals.long_pretokens:,} pre-tokens longer than "
                    "counts.max_pretoken_bytes were not counted"
                ]
            )

    def add_tokenizer(self, manifest: TokenizerManifest, output: Output) -> None:
        """Add the results of training."""
        reached, asked_for = manifest.vocab_size, manifest.vocab_size_asked_for
        self._set(
            merges=manifest.merges,
            stop_reason=manifest.stopped_because,
            vocab_size=reached,
        )
        self._add_outputs(tokenizer=output.tokenizer.url)
        if reached < asked_for:
            self.add_warnings(
                [
                    "the corpus is too small for the vocabulary: training reached "
                    f"{reached:,} of {asked_for:,} ids ({manifest.stopped_because})"
                ]
            )

    def add_dataset(self, manifest: TokensManifest, output: Output) -> None:
        """Add the results of encoding, for all generations of the dataset."""
        totals = manifest.totals
        tokens = totals.tokens
        self._add_documents(totals)
        self._set(
            tokens=tokens,
            bytes_per_token=totals.text_bytes / tokens if tokens else None,
            train_rows=totals.train_rows,
            validation_rows=totals.validation_rows,
        )
        self._add_outputs(tokenizer=output.encoder.url, tokens=output.tokens.url)
        if totals.reasons:
            self._add_outputs(rejects=output.rejects.url)

    def add_page(self, location: str) -> None:
        """Add the path or URL of the report page."""
        self._add_outputs(report=location)

    def _add_documents(self, totals: CorpusTotals) -> None:
        found = totals.document_totals()
        self._set(
            documents=found.all_documents,
            bytes=found.all_bytes,
            framing_bytes=found.framing_bytes,
            empty=found.empty,
            not_selected=found.not_selected,
            rejects=found.rejected,
            reasons=found.reasons,
            bad_files=len(found.bad_files),
        )

    def _add_outputs(self, **outputs: str) -> None:
        self._set(outputs={**self.summary.outputs, **outputs})

    def _set(self, **fields: Any) -> None:
        self.summary = replace(self.summary, **fields)
