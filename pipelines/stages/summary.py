"""Reports of a plan and of a finished command, as values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeAlias

from bpe_core.short_repr import format_fields, short_repr
from pipelines.console.engine_jobs import EngineJob
from pipelines.console.units import format_bytes
from pipelines.errors import OutputError, PipelineError
from pipelines.manifest.names import BASE
from pipelines.stages.estimates import Estimate
from pipelines.storage.directory import Directory
from pipelines.storage.locks import DetachedJob
from pipelines.tokenizers.files import Tokenizer, load_model, make_tokenizer

StageState: TypeAlias = Literal[
    "done", "resumed", "already finished", "nothing to replay", "submitted"
]


@short_repr
@dataclass(frozen=True, kw_only=True)
class PlannedFile:
    """Input file of a plan.

    Attributes:
        path: Absolute path or URL.
        bytes: Size as stored.
        compression: "none", "gzip", "zstd", "bz2" or "xz".
        splittable: True if it can be cut into several ranges; compressed files cannot.
        ranges: Number of ranges.
        source: Name of its source, if there are several.
        stop: Byte of its text, or row, at which a limit of its source ends. 0 if it is not read,
            None if it is read to its end.
    """

    path: str
    bytes: int
    compression: str
    splittable: bool
    ranges: int
    source: str | None = None
    stop: int | None = None


@short_repr
@dataclass(frozen=True, kw_only=True)
class BuildPlan:
    """Work of a build, planned from the sizes of its files.

    The work does not depend on the content of files, except of sources with a limit. The estimate
    and most warnings come from samples.

    Attributes:
        files: Every input file, in source order.
        tasks: Number of tasks.
        finished_tasks: Number of tasks that already have their token file.
        shards: Number of count files; 0 if nothing is counted.
        token_files: Names of all token files, train and validation, in order.
        id_type: "uint16" or "uint32", the type of the column `input_ids`.
        splitting: How text is split into pre-tokens.
        output: Path or URL of the output.
        skipped: Number of files in the output that match patterns of the input.
        generation: Generation of the token files: "base", or one that extends a finished dataset.
        selection: Keys that select documents, by the name of their source.
        estimate: Expected documents, tokens, time and memory; None if the build is finished or ends
            with an error.
        warnings: Warnings to read before the start.
        refusal: Error with which a build would end because of its output or input, or None.
    """

    files: tuple[PlannedFile, ...]
    tasks: int
    finished_tasks: int = 0
    shards: int
    token_files: tuple[str, ...]
    id_type: str
    splitting: str
    output: str
    skipped: int = 0
    generation: str = BASE
    selection: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    estimate: Estimate | None = None
    warnings: tuple[str, ...] = ()
    refusal: PipelineError | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the attributes as JSON values, with sums."""
        refusal, estimate = self.refusal, self.estimate
        return {
            **asdict(replace(self, refusal=None, estimate=None)),
            "ranges": self.ranges,
            "bytes": self.bytes,
            "estimate": None if estimate is None else estimate.to_json(),
            "refusal": None if refusal is None else refusal.to_json(),
        }

    @property
    def unread(self) -> int:
        """Return the number of files that are not read because a limit ends before them."""
        return sum(file.stop == 0 for file in self.files)

    @property
    def ranges(self) -> int:
        """Return the number of ranges of all files."""
        return sum(file.ranges for file in self.files)

    @property
    def bytes(self) -> int:
        """Return the size of all files as stored."""
        return sum(file.bytes for file in self.files)


@short_repr
@dataclass(frozen=True, kw_only=True)
class StageSummary:
    """Result of one stage.

    Attributes:
        name: "count", "train", "encode" or "replay"; the last two may be followed by the name of
            the generation that they added.
        state: "done", or "resumed" if an earlier command had started it; "already finished";
            "submitted" if a job does it; "nothing to replay" if every reject needs a repaired file.
        seconds: Wall-clock time.
        bytes: Size of the text read in that time, for the rate; 0 if there is no meaningful rate.
        parts: Seconds of each part of the work, summed over all workers; empty if the runner does
            not report them.
        job: Job at the engine that did the work, if the engine has a page for it.
    """

    name: str
    state: StageState = "done"
    seconds: float = 0.0
    bytes: int = 0
    parts: Mapping[str, float] = field(default_factory=dict)
    job: EngineJob | None = None

    @property
    def megabytes_per_second(self) -> float | None:
        """Return the rate in 10^6 bytes per second, or None without a meaningful rate."""
        return self.rate_in(self.seconds)

    def rate_in(self, seconds: float) -> float | None:
        """Return the rate, in 10^6 bytes per second, for another duration of the stage."""
        return self.bytes / seconds / 1e6 if self.bytes and seconds > 0 else None


@dataclass(frozen=True, kw_only=True, repr=False)
class BuildSummary:
    """Result of a command. Fields of stages that did not run are None.

    Attributes:
        output: Path or URL of the output.
        documents: Number of documents of the input, including empty, rejected and unselected ones.
        bytes: Size of the text of these documents.
        framing_bytes: Size of separators and markup around the documents of text and JSON lines.
        empty: Number of empty documents, which are counted but not written.
        not_selected: Number of documents that the selection of their source left out.
        rejects: Number of rejected documents.
        reasons: Number of rejected documents, and of unread rests of bad files, by reason.
        bad_files: Number of files that cannot be read, or not to their end.
        distinct_pretokens: Number of distinct pre-tokens.
        merges: Number of learned merges.
        stop_reason: Why training stopped, as a phrase ("the vocabulary is full").
        vocab_size: Number of ids.
        tokens: Number of token ids written, including prepended and appended ones.
        bytes_per_token: Bytes of encoded text per token.
        train_rows, validation_rows: Rows of the token files.
        stages: Results of the stages, in the order in which they ran.
        seconds: Wall-clock time of the command.
        outputs: Path or URL of each result, by its name (such as "tokenizer").
        submitted: Job that continues without the launcher, if one was submitted.
        next_command: A command to try next; after a submission, once the job has finished.
        warnings: Warnings for the user, such as a corpus too small for the vocabulary.
        outdates_next: True if the next stage has files that were made of former results.
        storage_options: Options of the output's file system.

    Example:
        summary = pipelines.build("configs/quickstart.yaml")
        print(summary.documents, summary.tokens, summary.seconds)
        tokenizer = summary.load_tokenizer()
    """

    output: str = ""
    documents: int | None = None
    bytes: int | None = None
    framing_bytes: int | None = None
    empty: int | None = None
    not_selected: int | None = None
    rejects: int | None = None
    reasons: Mapping[str, int] = field(default_factory=dict)
    bad_files: int = 0
    distinct_pretokens: int | None = None
    merges: int | None = None
    stop_reason: str | None = None
    vocab_size: int | None = None
    tokens: int | None = None
    bytes_per_token: float | None = None
    train_rows: int | None = None
    validation_rows: int | None = None
    stages: tuple[StageSummary, ...] = ()
    seconds: float | None = None
    outputs: Mapping[str, str] = field(default_factory=dict)
    submitted: DetachedJob | None = None
    next_command: str | None = None
    warnings: tuple[str, ...] = ()
    outdates_next: bool = False
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return the attributes as JSON values; those of each stage with its rate."""
        stages = [
            {**asdict(stage), "megabytes_per_second": stage.megabytes_per_second}
            for stage in self.stages
        ]
        values = {**asdict(self), "stages": stages}
        del values["storage_options"]  # they may contain credentials
        del values["outdates_next"]  # next_command has --restart then
        return values

    def __repr__(self) -> str:
        names = ("output", "documents", "rejects", "vocab_size", "tokens", "seconds")
        return format_fields("BuildSummary", {name: getattr(self, name) for name in names})

    def _repr_html_(self) -> str:
        from pipelines.pages.summary import make_summary

        jobs = {
            f"{stage.job.engine} job of {stage.name}": stage.job.url
            for stage in self.stages
            if stage.job is not None
        }
        submitted = self.submitted
        if submitted is not None:
            jobs["submitted"] = submitted.url or submitted.name
        return make_summary(
            title=self.output,
            numbers=dict(self._list_numbers()),
            times=[
                {
                    "stage": stage.name,
                    "seconds": stage.seconds or None,
                    "megabytes_per_second": stage.megabytes_per_second,
                    "state": stage.state,
                }
                for stage in self.stages
            ],
            places={**self.outputs, **jobs},
            warnings=self.warnings,
        )

    def _list_numbers(self) -> Iterator[tuple[str, str]]:
        """Yield the most important numbers by label, as the head of the report page has them."""
        for label, number in (
            ("documents", self.documents),
            ("rejects", self.rejects),
            ("tokens", self.tokens),
            ("distinct pre-tokens", self.distinct_pretokens),
            ("ids", self.vocab_size),
        ):
            if number is not None:
                yield label, f"{number:,}"
            if label == "documents" and self.bytes is not None:
                yield "text", format_bytes(self.bytes)
            if label == "tokens" and self.bytes_per_token is not None:
                yield "bytes per token", f"{self.bytes_per_token:.2f}"
        if self.seconds is not None:
            yield "seconds", f"{self.seconds:,.1f}"

    @property
    def tokenizer(self) -> str | None:
        """Return the path or URL of the tokenizer; None if the command did not get that far."""
        return self.outputs.get("tokenizer")

    def load_tokenizer(self) -> Tokenizer:
        """Load the tokenizer that was trained, or that encoded the corpus.

        Raises:
            OutputError: There is none: the command did not get that far.
            InputError: A file is damaged.
        """
        if self.tokenizer is None:
            raise OutputError(
                "There is no tokenizer yet.",
                where=self.output,
                hint="Run a command that trains, or wait for the submitted job.",
            )
        place = Directory(url=self.tokenizer, storage_options=dict(self.storage_options))
        return make_tokenizer(load_model(place))
