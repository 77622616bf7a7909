"""Plans and summaries, printed as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from bpe_core.visible_text import visible
from pipelines.console.displays import format_seconds
from pipelines.console.units import format_bytes
from pipelines.manifest.names import BASE
from pipelines.stages.summary import BuildPlan, BuildSummary, StageSummary

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines.stages.estimates import Estimate


_LABEL_WIDTH: Final = 21


def show_plan(plan: BuildPlan, console: Console, *, files: bool = False) -> None:
    """Print a plan: what a build will do, its warnings and, on request, every file."""
    for label, value in _facts_of_plan(plan):
        _row(console, label, value)
    _warnings(console, plan.warnings)
    if not files:
        return
    _line(console, "")
    for file in plan.files:
        cut = _count(file.ranges, "range") if file.splittable else "1 range, cannot be split"
        if file.stop is not None:
            cut = f"{cut}, read up to {file.stop:,}" if file.stop else "not read"
        compression = "" if file.compression == "none" else f", {file.compression}"
        source = "" if file.source is None else f" ({file.source})"
        _line(console, f"{file.path}{source}: {format_bytes(file.bytes)}{compression}, {cut}")


def _facts_of_plan(plan: BuildPlan) -> Iterator[tuple[str, str]]:
    split = sum(file.splittable for file in plan.files)
    unread = f", {plan.unread:,} not read" if plan.unread else ""
    yield (
        "files",
        f"{len(plan.files):,}, {format_bytes(plan.bytes)}; {split:,} can be split{unread}",
    )
    if plan.skipped:
        yield "skipped", f"{_count(plan.skipped, 'file')} of this output ({plan.output}/…)"
    for name, keys in plan.selection.items():
        yield f"selection {name}".rstrip(), ", ".join(f"{k}: {v}" for k, v in keys.items())
    estimate = plan.estimate
    if estimate is not None:
        yield from _facts_of_estimate(estimate)
    finished = f" ({plan.finished_tasks:,} finished)" if plan.finished_tasks else ""
    yield "work", f"{_count(plan.tasks, 'task')}{finished}" + _describe_workers(estimate)
    if estimate is not None:
        for stage, seconds in estimate.seconds.items():
            memory = format_bytes(estimate.memory[stage])
            whose = "" if stage == "train" else " a worker"
            time = f"{format_seconds(seconds)} of one core"
            yield f"  {stage}", f"about {time}, {memory} of memory{whose}"
    yield "text is split", plan.splitting
    yield "count files", _describe_count_files(plan)
    yield "token files", _describe_token_files(plan)
    yield "token ids", plan.id_type
    if plan.generation != BASE:
        yield "generation", f"{plan.generation}: added files; the others are encoded already"
    yield "output", plan.output


def _facts_of_estimate(estimate: Estimate) -> Iterator[tuple[str, str]]:
    about = "" if estimate.exact else "about "
    sampled = "all of it" if estimate.exact else format_bytes(estimate.sampled_bytes)
    yield "documents", f"{about}{estimate.documents:,}"
    yield "text", f"{about}{format_bytes(estimate.text_bytes)} ({sampled} sampled)"
    if estimate.distinct_pretokens is not None:
        fit = f"fit: {estimate.heaps_factor:.3g} × bytes^{estimate.heaps_exponent:.3f}"
        if not estimate.heaps_factor:
            about, fit = "", "of the given counts"
        yield "distinct pre-tokens", f"{about}{estimate.distinct_pretokens:,} ({fit})"
    if estimate.tokens:
        share = estimate.text_bytes / estimate.tokens
        yield "tokens", f"about {estimate.tokens:,}, {share:.2f} bytes per token"


def _describe_workers(estimate: Estimate | None) -> str:
    if estimate is None:
        return ""
    hours = f"{estimate.core_hours:,.2f}" if estimate.core_hours >= 0.01 else "under 0.01"
    elsewhere = f"; {hours} vCPU-hours elsewhere"
    if estimate.workers is None or estimate.elapsed is None:
        return elsewhere
    each = f" ({estimate.tasks / estimate.workers:.1f} each)"
    workers = _count(estimate.workers, "worker")
    return f" on {workers}{each}, about {format_seconds(estimate.elapsed)} here{elsewhere}"


def _describe_count_files(plan: BuildPlan) -> str:
    if not plan.shards:
        return "none: nothing is trained"
    size = plan.estimate.count_file_bytes if plan.estimate else 0
    return f"{plan.shards:,}" + (f", about {format_bytes(size)}" if size else "")


def _describe_token_files(plan: BuildPlan) -> str:
    shown = _first_to_last(plan.token_files)
    size = plan.estimate.token_file_bytes if plan.estimate else None
    if not size or not plan.token_files:
        return shown
    each = size // len(plan.token_files)
    each_one = f", {format_bytes(each)} each" if len(plan.token_files) > 1 else ""
    return f"{shown}; about {format_bytes(size)}{each_one}"


def show_summary(summary: BuildSummary, console: Console) -> None:
    """Print the summary of a command."""
    if summary.stages and all(stage.state == "already finished" for stage in summary.stages):
        _line(console, "Everything was finished already; nothing was done.", bold=True)
        _line(console, "")
    if any(stage.state == "nothing to replay" for stage in summary.stages):
        _line(console, "No reject can be replayed without a repaired file (--source).", bold=True)
        _line(console, "The dataset and its policy are unchanged.")
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
        if summary.seconds is not None:
            _line(console, _time_line("total", summary.seconds, None))
        if any(stage.parts for stage in summary.stages):
            _line(console, "(Indented: seconds of all workers together, MB/s of one.)")
    jobs = [(stage.name, stage.job) for stage in summary.stages if stage.job is not None]
    if jobs:
        _line(console, "")
        _line(console, "jobs", bold=True)
        for name, job in jobs:
            _row(console, name, job.url)
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
        separators = summary.framing_bytes
        yield "separators", f"{format_bytes(separators)} ({separators:,} bytes)"
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
    if stage.state in ("already finished", "nothing to replay", "submitted"):
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
