"""Reports of a plan and of a finished command, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from pipelines.errors import PipelineError
from pipelines.manifest.names import BASE
from pipelines.storage.locks import DetachedJob

StageState: TypeAlias = Literal[
    "done", "resumed", "already finished", "nothing to replay", "submitted"
]


@dataclass(frozen=True, kw_only=True)
class PlannedFile:
    """An input file of a plan.

    Attributes:
        path: absolute path or URL.
        bytes: size as stored.
        compression: "none", "gzip", "zstd", "bz2" or "xz".
        splittable: if it can be cut into several ranges (compressed files can't).
        ranges: number of ranges it is cut into.
        source: name of its source, if there are several.
        stop: byte of its text, or row, at which a limit of its source ends; 0: it is not read;
            None: it is read to its end.
    """

    path: str
    bytes: int
    compression: str
    splittable: bool
    ranges: int
    source: str | None = None
    stop: int | None = None


@dataclass(frozen=True, kw_only=True)
class BuildPlan:
    """The work of a build, planned from the sizes of its files.

    Nothing is read to plan, except sources with a limit, which are read up to it.

    Attributes:
        files: every input file, in source order.
        tasks: number of tasks.
        finished_tasks: number of tasks that already have their token file.
        shards: number of count files; 0 if nothing is counted.
        token_files: names of all token files, train and validation, in order.
        id_type: "uint16" or "uint32"; the type of the column `input_ids`.
        output: path or URL that everything is written to.
        skipped: number of files in the output that the patterns of the input match.
        generation: of the token files: "base", or the generation that extends a finished dataset.
        selection: keys that select documents, by the name of their source.
        warnings: for the user to read before starting.
        refusal: the error with which a build would end because of its output; None: it would run.
    """

    files: tuple[PlannedFile, ...]
    tasks: int
    finished_tasks: int = 0
    shards: int
    token_files: tuple[str, ...]
    id_type: str
    output: str
    skipped: int = 0
    generation: str = BASE
    selection: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    refusal: PipelineError | None = None

    @property
    def unread(self) -> int:
        """Number of files that are not read because a limit ends before them."""
        return sum(file.stop == 0 for file in self.files)

    @property
    def ranges(self) -> int:
        """Number of ranges of all files."""
        return sum(file.ranges for file in self.files)

    @property
    def bytes(self) -> int:
        """Size of all files as stored."""
        return sum(file.bytes for file in self.files)


@dataclass(frozen=True, kw_only=True)
class StageSummary:
    """The result of one stage.

    Attributes:
        name: "count", "train", "encode" or "replay"; the last two may be followed by the name of
            the generation that they added.
        state: "done", or "resumed" if an earlier command had begun it; "already finished";
            "submitted" if a job does it; "nothing to replay" if every reject needs a repaired file.
        seconds: wall-clock time.
        bytes: text read in that time, for the rate; 0 if the stage has no meaningful rate.
        parts: seconds of each part of the work, summed over all workers; empty if the runner does
            not report them.
    """

    name: str
    state: StageState = "done"
    seconds: float = 0.0
    bytes: int = 0
    parts: Mapping[str, float] = field(default_factory=dict)

    @property
    def megabytes_per_second(self) -> float | None:
        """The rate in 10^6 bytes a second; None if there is none."""
        return self.rate_in(self.seconds)

    def rate_in(self, seconds: float) -> float | None:
        """Return the rate, in 10^6 bytes a second, as if the stage had taken this long."""
        return self.bytes / seconds / 1e6 if self.bytes and seconds > 0 else None


@dataclass(frozen=True, kw_only=True)
class BuildSummary:
    """The result of a command. Fields of stages that did not run are None.

    Attributes:
        documents: number of documents of the input, with empty, rejected and unselected ones.
        bytes: text of these documents, in bytes.
        framing_bytes: separators and markup around the documents in text and JSON lines, in bytes.
        empty: number of empty documents (counted, not written).
        not_selected: number of documents that the selection of their source left out.
        rejects: number of rejected documents.
        reasons: number of rejected documents, and of unread rests of bad files, by reason.
        bad_files: number of files that can't be read, or not to their end.
        distinct_pretokens: number of distinct pre-tokens.
        merges: number of merges learned.
        stop_reason: why training stopped, as a phrase ("the vocabulary is full").
        vocab_size: number of ids.
        tokens: number of token ids written, with those prepended and appended.
        bytes_per_token: bytes of encoded text for each token.
        train_rows, validation_rows: rows of the token files.
        stages: in the order in which they ran.
        outputs: path or URL of each result, by its name (such as "tokenizer").
        tokenizer_class: class of `bpe_core` that loads the tokenizer.
        submitted: the job that runs without the command, if one was submitted.
        next_command: a command to try next; after a submission, once the job has finished.
        warnings: for the user to read (such as a corpus too small for the vocabulary).
    """

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
    outputs: Mapping[str, str] = field(default_factory=dict)
    tokenizer_class: str = "BPETokenizer"
    submitted: DetachedJob | None = None
    next_command: str | None = None
    warnings: tuple[str, ...] = ()
