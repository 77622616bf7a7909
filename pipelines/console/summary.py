"""What a plan and a finished command tell a person, and how it is shown.

The stages fill in `BuildPlan` and `BuildSummary`; the command line prints them with
`show_plan` and `show_summary`. On a terminal headings are bold; elsewhere the text is plain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pipelines.console.terminal import visible
from pipelines.dataset.names import BASE

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines.errors import PipelineError
    from pipelines.storage.locks import DetachedJob

_FILES_SHOWN = 20
_LABEL_WIDTH = 21


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


def format_bytes(size: int) -> str:
    """A size for people, in powers of 1000.

    >>> format_bytes(999), format_bytes(4_404_445)
    ('999 bytes', '4.4 MB')
    """
    if size < 1000:
        return f"{size} byte" + ("" if size == 1 else "s")
    for unit, scale in (("kB", 1e3), ("MB", 1e6), ("GB", 1e9), ("TB", 1e12)):
        if size < 999.95 * scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size / 1e15:.1f} PB"


def show_plan(plan: BuildPlan, console: Console) -> None:
    """Print a plan."""
    for file in plan.files[:_FILES_SHOWN]:
        cut = _count(file.ranges, "range") if file.splittable else "1 range, can't be split"
        if file.stop is not None:
            cut = f"{cut}, read up to {file.stop:,}" if file.stop else "not read"
        compression = "" if file.compression == "none" else f", {file.compression}"
        source = "" if file.source is None else f" ({file.source})"
        _line(console, f"{file.path}{source}: {format_bytes(file.bytes)}{compression}, {cut}")
    if len(plan.files) > _FILES_SHOWN:
        _line(console, f"… and {_count(len(plan.files) - _FILES_SHOWN, 'more file')}")
    _line(console, "")
    finished = f", {plan.finished_tasks:,} of them finished" if plan.finished_tasks else ""
    split = sum(file.splittable for file in plan.files)
    unread = f", {plan.unread:,} not read" if plan.unread else ""
    rows = {
        "files": f"{len(plan.files):,}, {format_bytes(plan.bytes)}; {split:,} can be split{unread}",
        **{
            f"selection {name}".rstrip(): ", ".join(f"{k}: {v}" for k, v in keys.items())
            for name, keys in plan.selection.items()
        },
        "ranges": f"{plan.ranges:,}",
        "tasks": f"{plan.tasks:,}{finished}",
        "count files": f"{plan.shards:,}" if plan.shards else "none: nothing is trained",
        "token files": _first_to_last(plan.token_files),
        "token ids": plan.id_type,
        "output": plan.output,
    }
    if plan.generation != BASE:
        rows["generation"] = f"{plan.generation}: these files were added, the others are encoded"
    for label, value in rows.items():
        _row(console, label, value)
    _warnings(console, plan.warnings)


def show_summary(summary: BuildSummary, console: Console) -> None:
    """Print what a command did."""
    if summary.stages and all(stage.state == "already finished" for stage in summary.stages):
        _line(console, "Everything was finished already; nothing was done.", bold=True)
        _line(console, "")
    if any(stage.state == "nothing taken" for stage in summary.stages):
        _line(console, "No reject could be taken without a repaired file (--source).", bold=True)
        _line(console, "The dataset, and the policy that it is of, are as before.")
        _line(console, "")
    for label, value in _facts(summary):
        _row(console, label, value)
    if summary.stages:
        _line(console, "")
        _line(console, f"{'stage':<{_LABEL_WIDTH}}{'seconds':>9}{'MB/s':>10}", bold=True)
        for stage in summary.stages:
            _line(console, _stage_line(stage))
            for part, seconds in stage.parts.items():
                _line(console, _time_line(f"  {part}", seconds, stage.rate_in(seconds)))
        if any(stage.parts for stage in summary.stages):
            _line(console, "(Indented: seconds of all workers together, MB/s of one.)")
    if summary.outputs:
        _line(console, "")
        _line(console, "results", bold=True)
        for label, path in summary.outputs.items():
            _row(console, label, path)
    _warnings(console, summary.warnings)
    if summary.submitted is not None:
        _line(console, "")
        _line(console, "submitted", bold=True)
        _row(console, "job", summary.submitted.name)
        _row(console, "runner", summary.submitted.runner)
        if summary.submitted.url is not None:
            _row(console, "see", summary.submitted.url)
    if summary.next_command is not None:
        _line(console, "")
        _line(console, "next" if summary.submitted is None else "when it has finished", bold=True)
        _line(console, summary.next_command)


def _facts(summary: BuildSummary) -> Iterator[tuple[str, str]]:
    if summary.documents is not None:
        empty = f", {summary.empty:,} of them empty" if summary.empty else ""
        yield "documents", f"{summary.documents:,}{empty}"
    if summary.bytes is not None:
        yield "text", f"{format_bytes(summary.bytes)} ({summary.bytes:,} bytes)"
    if summary.framing_bytes:
        yield "framing", f"{format_bytes(summary.framing_bytes)} ({summary.framing_bytes:,} bytes)"
    if summary.not_selected:
        yield "not selected", f"{summary.not_selected:,}"
    if summary.rejects is not None:
        yield "rejects", f"{summary.rejects:,}"
    if summary.bad_files:
        yield "bad files", f"{summary.bad_files:,}"
    for reason, number in sorted(summary.reasons.items(), key=lambda item: (-item[1], item[0])):
        yield f"  {reason}", f"{number:,}"
    if summary.distinct_pretokens is not None:
        yield "distinct pre-tokens", f"{summary.distinct_pretokens:,}"
    if summary.merges is not None:
        reason = f"; stopped because {summary.stop_reason}" if summary.stop_reason else ""
        yield "merges", f"{summary.merges:,}{reason}"
    if summary.vocab_size is not None:
        yield "vocabulary", f"{summary.vocab_size:,} ids"
    if summary.tokens is not None:
        share = summary.bytes_per_token
        each = "" if share is None else f", {share:.2f} bytes per token"
        yield "tokens", f"{summary.tokens:,}{each}"
    if summary.train_rows is not None:
        validation = f", {summary.validation_rows:,} validation" if summary.validation_rows else ""
        yield "rows", f"{summary.train_rows:,} train{validation}"


def _stage_line(stage: StageSummary) -> str:
    if stage.state in ("already finished", "nothing taken", "submitted"):
        return f"{stage.name:<{_LABEL_WIDTH}}{'–':>9}{'–':>10}  {stage.state}"
    state = "" if stage.state == "done" else f"  {stage.state}"
    return _time_line(stage.name, stage.seconds, stage.megabytes_per_second) + state


def _time_line(name: str, seconds: float, rate: float | None) -> str:
    shown = "–" if rate is None else f"{rate:.1f}"
    return f"{name:<{_LABEL_WIDTH}}{seconds:>9.1f}{shown:>10}"


def _first_to_last(names: tuple[str, ...]) -> str:
    if len(names) <= 2:
        return ", ".join(names) or "none"
    return f"{len(names):,}: {names[0]} … {names[-1]}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _warnings(console: Console, warnings: tuple[str, ...]) -> None:
    for warning in warnings:
        _line(console, "")
        _line(console, f"warning: {warning}", bold=True)


def _row(console: Console, label: str, value: str) -> None:
    _line(console, f"{label:<{_LABEL_WIDTH}}{value}")


def _line(console: Console, text: str, *, bold: bool = False) -> None:
    # Paths must be copyable: no wrapping, no markup, no colours by content.
    console.print(
        visible(text), style="bold" if bold else None, markup=False, highlight=False, soft_wrap=True
    )
