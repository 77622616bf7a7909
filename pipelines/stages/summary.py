"""What a plan and a finished command report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pipelines.manifest.names import BASE

if TYPE_CHECKING:
    from pipelines.errors import PipelineError
    from pipelines.storage.locks import DetachedJob


StageState = Literal["done", "resumed", "already finished", "nothing taken", "submitted"]


@dataclass(frozen=True, kw_only=True)
class PlannedFile:
    """One input file of a plan.

    Attributes:
        path: absolute path or URL.
        bytes: size as stored.
        compression: "none", "gzip", "zstd", "bz2" or "xz".
        splittable: whether it can be cut into several ranges (compressed files can't).
        ranges: number of ranges it is cut into.
        source: name of its source, where there are several.
        stop: byte of its text, or row, at which a limit of its source ends; 0: it is not read;
            None: all of it is.
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
    """What a build would read, do and write.

    Made from file sizes alone. Nothing is read, unless a source has a limit: then all up to there.

    Attributes:
        files: every input file, in source order.
        tasks: number of tasks.
        finished_tasks: how many of them have their token file already.
        shards: number of count files; 0 if nothing is counted.
        token_files: names of all token files, train and validation, in order.
        id_type: "uint16" or "uint32"; the type of the column `input_ids`.
        output: where everything is written.
        skipped: number of files in the output that the patterns of the input match.
        generation: of the token files: "base", or that of what was added to a finished dataset.
        selection: keys that select documents, by the name of their source.
        warnings: what the user should know before starting.
        refusal: the error with which a build would end because of what is in the output.
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
        """Number of files that are not read, since a limit ends before them."""
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
    """What one stage did.

    Attributes:
        name: "count", "train" or "encode".
        state: whether it ran, finished what an earlier run had begun, had nothing to do, or is
            done by a job that goes on; of a replay, whether there are rejects of which it can take
            none.
        seconds: wall-clock time.
        bytes: text that it went through in that time, for the rate; 0 if a rate says nothing.
        parts: seconds of each part of the work, of all workers together; empty where the runner
            does not tell.
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
        """The rate, in 10^6 bytes a second, if the text had taken so long."""
        return self.bytes / seconds / 1e6 if self.bytes and seconds > 0 else None


@dataclass(frozen=True, kw_only=True)
class BuildSummary:
    """What a command did and where its results are. None: a stage that was not part of it.

    Attributes:
        documents: documents of the input, with the empty, rejected and not selected ones.
        bytes: text of these documents, in bytes.
        framing_bytes: what stands between and around the documents in files of text and JSON lines.
        empty: empty documents (counted, not written).
        not_selected: documents that the selection of their source left out.
        rejects: rejected documents.
        reasons: why documents, and rests of bad files, are rejected: numbers by reason.
        bad_files: files that could not be read, or not to their end.
        distinct_pretokens: pre-tokens that differ.
        merges: merges learned.
        stop_reason: why training stopped, as a phrase ("the vocabulary is full").
        vocab_size: number of ids.
        tokens: token ids written, with what was prepended and appended.
        bytes_per_token: bytes of encoded text for each token.
        train_rows, validation_rows: rows of the token files.
        stages: in the order in which they ran.
        outputs: what there is to use (such as "tokenizer") → path or URL.
        tokenizer_class: of `bpe_core`, that loads the tokenizer.
        submitted: the job that goes on without the command, where one was submitted.
        next_command: a command to try now; where a job was submitted, when it has finished.
        warnings: what did not go as asked (such as a corpus too small for the vocabulary).
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
