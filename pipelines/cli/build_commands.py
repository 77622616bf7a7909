"""The commands that run builds: plan, count, train, encode, build, replay."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pipelines import supervisor
from pipelines.cli.options import (
    BeamOptions,
    BuildCommand,
    Config,
    Debug,
    Json,
    NoWait,
    Overrides,
    Restart,
    TakeOver,
    Workers,
)
from pipelines.cli.output import display, is_quiet, log, print_json
from pipelines.cli.process import (
    check_beam_options,
    enter_child,
    load,
    report_errors,
)
from pipelines.console.displays import format_seconds

if TYPE_CHECKING:
    from pipelines.stages.summary import BuildSummary


# Options that the next command must not repeat.
_ONLY_ONCE: Final = ("--restart", "--update", "--no-wait", "--take-over")
_NEXT: Final[Mapping[BuildCommand, BuildCommand]] = {"count": "train", "train": "encode"}


def plan(
    config: Config,
    files: Annotated[bool, typer.Option("--files", help="List every file.")] = False,
    overrides: Overrides = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the work, time and output of a build, or why it would fail. Write nothing."""
    with report_errors(debug, _as_given(config, overrides)):
        with display(f"reading {config}", brief=True):
            loaded = load(config, overrides)
            from rich.console import Console

            from pipelines import build
            from pipelines.cli.render import show_plan

            planned = build.plan(loaded)
        if as_json:
            print_json(planned.to_json())
        elif not is_quiet():
            show_plan(planned, Console(), files=files)
        if planned.refusal is not None:
            raise planned.refusal


def stage_command(name: BuildCommand) -> Callable[..., None]:
    """Return the command that runs stages of a build; all have the same options."""

    def command(
        context: typer.Context,
        config: Config,
        beam_options: BeamOptions = None,
        overrides: Overrides = None,
        workers: Workers = None,
        restart: Restart = False,
        no_wait: NoWait = False,
        take_over: TakeOver = False,
        as_json: Json = False,
        debug: Debug = False,
    ) -> None:
        _run(
            name,
            context,
            config,
            beam_options,
            _with_workers(overrides, workers),
            as_json,
            debug,
            restart=restart,
            no_wait=no_wait,
            take_over=take_over,
        )

    return command


def count(
    context: typer.Context,
    config: Config,
    beam_options: BeamOptions = None,
    overrides: Overrides = None,
    workers: Workers = None,
    restart: Restart = False,
    update: Annotated[
        bool,
        typer.Option(
            "--update",
            help="Bring finished counts up to date: count added files alone, and subtract those "
            "that changed or are gone (counts.keep_file_counts).",
        ),
    ] = False,
    no_wait: NoWait = False,
    take_over: TakeOver = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Count the pre-tokens of the corpus."""
    _run(
        "count",
        context,
        config,
        beam_options,
        _with_workers(overrides, workers),
        as_json,
        debug,
        restart=restart,
        update=update,
        no_wait=no_wait,
        take_over=take_over,
    )


def add(
    context: typer.Context,
    config: Config,
    beam_options: BeamOptions = None,
    overrides: Overrides = None,
    take_over: TakeOver = False,
    workers: Workers = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Encode files that were added to a finished dataset, with the tokenizer that it has."""
    overrides = _with_workers(overrides, workers)
    _run("add", context, config, beam_options, overrides, as_json, debug, take_over=take_over)


def replay(
    context: typer.Context,
    config: Config,
    beam_options: BeamOptions = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--source",
            metavar="NAME=PATH",
            help="A repaired file, by the name in the column `source` of the file that it "
            "replaces. Repeatable.",
            show_default=False,
        ),
    ] = None,
    overrides: Overrides = None,
    workers: Workers = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Encode documents that a build rejected, by a changed policy or from repaired files."""
    repaired = dict(_name_and_path(text) for text in source or ())
    overrides = _with_workers(overrides, workers)
    _run("replay", context, config, beam_options, overrides, as_json, debug, repaired=repaired)


def _with_workers(overrides: list[str] | None, workers: int | None) -> list[str]:
    """Return the overrides with the number of workers, unless they contain one."""
    listed = overrides or []
    if workers is None or any(text.startswith("beam.workers=") for text in listed):
        return listed
    return [*listed, f"beam.workers={workers}"]


def _as_given(config: Path, overrides: list[str] | None) -> list[str]:
    """Return the words of the command line that name the configuration."""
    return [str(config), *(word for each in overrides or () for word in ("--set", each))]


def _name_and_path(text: str) -> tuple[str, str]:
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise typer.BadParameter(f"expected NAME=PATH, found {text!r}", param_hint="--source")
    return name, path


def _run(
    name: BuildCommand,
    context: typer.Context,
    config: Path,
    beam_options: list[str] | None,
    overrides: list[str],
    as_json: bool,
    debug: bool,
    **arguments: object,
) -> None:
    """Run a command of a build in a supervised child process, whose output this one shows."""
    with report_errors(debug, _as_given(config, overrides)):
        first = f"reading {config}"
        enter_child(context, debug, first)
        started = time.monotonic()
        with display(first):
            loaded = load(config, overrides)
            check_beam_options(beam_options or ())
            from rich.console import Console

            from pipelines import build
            from pipelines.cli.render import show_summary

            run: Callable[..., BuildSummary] = getattr(build, name)
            summary = run(loaded, **arguments, beam_args=tuple(beam_options or ()))
        following = _next_command(name, context.obj, summary, loaded.output_path)
        seconds = time.monotonic() - started
        summary = replace(summary, next_command=following, seconds=seconds)
        log(f"finished in {format_seconds(seconds)}")
        for warning in summary.warnings:
            log(warning, "WARNING")
        if as_json:
            print_json(summary.to_json())
        elif not is_quiet():
            show_summary(summary, Console())
        supervisor.leave(0)


def _next_command(
    name: BuildCommand, given: Sequence[str], summary: BuildSummary, output: str
) -> str | None:
    """Return a command to try next: the next stage, the same one after a job, or a look at it."""
    following = _NEXT.get(name) if summary.submitted is None else name
    if following is not None:
        arguments = [argument for argument in given[1:] if argument not in _ONLY_ONCE]
        restart = ["--restart"] if summary.outdates_next else []
        return shlex.join(["beam-bpe", following, *arguments, *restart])
    if not summary.train_rows:
        return None
    return shlex.join(["beam-bpe", "inspect", _below_here(output), "--row", "0"])


def _below_here(path: str) -> str:
    """Return a path relative to the current directory if it is below it."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path
