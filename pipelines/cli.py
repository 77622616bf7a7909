"""The command `beam-bpe`. Beam is imported only by the stages that run a pipeline."""

from __future__ import annotations

import shlex
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from bpe_core.errors import BpeError
from pipelines import supervisor
from pipelines.errors import (
    INTERRUPTED_EXIT_CODE,
    TERMINATED_EXIT_CODE,
    ConfigError,
    exit_code_of,
)
from pipelines.scrubbing import scrubbed_output

if TYPE_CHECKING:
    from pipelines.config import BuildConfig
    from pipelines.summary import BuildSummary

_KEPT = "What is finished is kept: run the same command again to go on."
_EXIT_CODES = (
    "Exit codes: 0 done; 1 unexpected error; 2 wrong configuration or command line; 3 the output "
    "belongs to another configuration; 4 input missing, unreadable or corrupt; 5 output can't be "
    "written; 6 too many documents rejected; 7 counts incomplete; 8 the working process died; "
    "9 the tokenizer core refused; 10 more memory needed than there is; 11 the accounts of the "
    "input do not add up; 130 interrupted, 143 terminated."
)

app = typer.Typer(
    name="beam-bpe",
    help="Train a byte-pair-encoding tokenizer on a whole corpus and encode the corpus with it.",
    epilog=_EXIT_CODES,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Format = Literal["arrow", "huggingface", "gpt2", "tiktoken", "minbpe"]  # bpe_core.formats' names
Stage = Literal["count", "train", "encode", "build"]
Config = Annotated[
    Path, typer.Argument(metavar="CONFIG", help="Configuration file (YAML).", show_default=False)
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a key of the configuration, such as encode.append=null. Repeatable.",
        show_default=False,
    ),
]
Restart = Annotated[
    bool, typer.Option("--restart", help="Discard what the stage made before and begin anew.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")]
BeamOptions = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="BEAM_OPTIONS",
        help="After --: options of Beam pipelines, over those in beam.options.",
        show_default=False,
    ),
]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command and leave with its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    with scrubbed_output():
        app(given, prog_name="beam-bpe", obj=given)
    raise AssertionError("the command line always leaves by SystemExit")


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"beam-bpe {version('bpe-beam')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and leave.", is_eager=True, callback=_show_version
        ),
    ] = False,
) -> None:
    pass


@app.command()
def plan(config: Config, overrides: Overrides = None, debug: Debug = False) -> None:
    """Show what a build would read, do and write, without doing it."""
    with _errors_shown(debug):
        loaded = _load(config, overrides)
        from rich.console import Console

        from pipelines import build
        from pipelines.summary import show_plan

        show_plan(build.plan(loaded), Console())


@app.command()
def count(
    context: typer.Context,
    config: Config,
    beam_options: BeamOptions = None,
    overrides: Overrides = None,
    restart: Restart = False,
    debug: Debug = False,
) -> None:
    """Count the pre-tokens of the corpus."""
    _run("count", context, config, beam_options, overrides, restart, debug)


@app.command()
def train(
    context: typer.Context,
    config: Config,
    beam_options: BeamOptions = None,
    overrides: Overrides = None,
    restart: Restart = False,
    debug: Debug = False,
) -> None:
    """Train the tokenizer; counts first if that is not finished."""
    _run("train", context, config, beam_options, overrides, restart, debug)


@app.command()
def encode(
    context: typer.Context,
    config: Config,
    beam_options: BeamOptions = None,
    overrides: Overrides = None,
    restart: Restart = False,
    debug: Debug = False,
) -> None:
    """Encode the corpus; counts and trains first if that is not finished."""
    _run("encode", context, config, beam_options, overrides, restart, debug)


@app.command(name="build")
def build_(
    context: typer.Context,
    config: Config,
    beam_options: BeamOptions = None,
    overrides: Overrides = None,
    restart: Restart = False,
    debug: Debug = False,
) -> None:
    """Do everything: count, train, encode. What is finished is not done again."""
    _run("build", context, config, beam_options, overrides, restart, debug)


@app.command()
def convert(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A tokenizer: a directory, tokenizer.arrow, tokenizer.json, vocab.json with the "
            "merges.txt beside it, .tiktoken ranks, or a .model of minbpe.",
            show_default=False,
        ),
    ],
    destination: Annotated[
        str,
        typer.Argument(metavar="DEST", help="A directory, or a file's name.", show_default=False),
    ],
    to: Annotated[Format, typer.Option("--to", help="The format to write.", show_default=False)],
    source_format: Annotated[
        Format | None,
        typer.Option(
            "--from",
            help="The format of SOURCE, where its contents do not tell.",
            show_default=False,
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(
            help="How ranks, or vocab.json and merges.txt (default gpt2), split text: a name or a "
            "regular expression.",
            show_default=False,
        ),
    ] = None,
    special: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=ID",
            help="A special token of ranks, or of vocab.json (there NAME alone will do). "
            "Repeatable.",
            show_default=False,
        ),
    ] = None,
    merges: Annotated[
        str | None,
        typer.Option(help="The merges.txt, if it is not beside vocab.json.", show_default=False),
    ] = None,
    sample: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Text to check the result with.", show_default="built-in"
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Convert a tokenizer's files, and check them with the library that owns the format."""
    with _errors_shown(debug):
        from pipelines.conversion import Request, convert, shown

        request = Request(
            source=source,
            destination=destination,
            to=to,
            source_format=source_format,
            merges=merges,
            pattern=pattern,
            special_tokens=special or (),
            sample=sample,
        )
        typer.echo(shown(convert(request)))


def _run(
    stage: Stage,
    context: typer.Context,
    config: Path,
    beam_options: list[str] | None,
    overrides: list[str] | None,
    restart: bool,
    debug: bool,
) -> None:
    """Run a stage in a supervised child process or, in that child, the stage itself."""
    with _errors_shown(debug):
        if not supervisor.in_child():
            code = supervisor.run_in_child(context.obj)
            if code == TERMINATED_EXIT_CODE:
                typer.echo(f"Terminated. {_KEPT}", err=True)
            raise typer.Exit(code)
        supervisor.enter_child()
        if debug:
            import faulthandler

            faulthandler.enable()
        loaded = _load(config, overrides)
        _check_beam_options(beam_options or ())
        _leave_out_warning_of_beam()
        from rich.console import Console

        from pipelines import build
        from pipelines.summary import show_summary

        run: Callable[..., BuildSummary] = getattr(build, stage)
        summary = run(loaded, restart=restart, beam_args=tuple(beam_options or ()))
        following = _next_command(stage, context.obj, summary)
        show_summary(replace(summary, next_command=following), Console())
        supervisor.leave(0)


def _next_command(stage: Stage, given: Sequence[str], summary: BuildSummary) -> str | None:
    """What to try now: the next stage with the same arguments, or the tokenizer."""
    following = {"count": "train", "train": "encode"}.get(stage)
    if following is not None:
        arguments = [argument for argument in given[1:] if argument != "--restart"]
        return shlex.join(["beam-bpe", following, *arguments])
    if "tokenizer" not in summary.outputs:
        return None
    tokenizer = _below_here(summary.outputs["tokenizer"])
    return (
        f'{_below_here(sys.executable)} -c "from bpe_core import {summary.tokenizer_class}; '
        f"print({summary.tokenizer_class}.load('{tokenizer}').encode('In the beginning'))\""
    )


def _below_here(path: str) -> str:
    """A path relative to the current directory if it lies below it."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path


def _leave_out_warning_of_beam() -> None:
    """On import Beam warns that a Google client is missing, which nothing here needs."""
    import logging

    logging.getLogger().addFilter(lambda record: "apitools not found" not in record.getMessage())


def _load(config: Path, overrides: list[str] | None) -> BuildConfig:
    from pipelines.config import load_config

    return load_config(config, overrides or ())


def _check_beam_options(options: Sequence[str]) -> None:
    if options and not options[0].startswith("--"):
        raise ConfigError(
            "The command line has an argument too many.",
            expected="one CONFIG, and Beam options such as --name=value after --",
            found=options[0],
            hint="Keys of the configuration are overridden with --set KEY=VALUE.",
        )


@contextmanager
def _errors_shown(debug: bool) -> Iterator[None]:
    """Turn errors into a message on stderr and an exit code, and tell the parent of the end."""
    try:
        yield
    except BpeError as error:
        if debug:
            traceback.print_exc()
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(exit_code_of(error)) from None
    except KeyboardInterrupt:
        typer.echo(f"Interrupted. {_KEPT}", err=True)
        if supervisor.in_child():
            supervisor.leave(INTERRUPTED_EXIT_CODE)
        raise typer.Exit(INTERRUPTED_EXIT_CODE) from None
    except typer.Exit:
        raise
    except Exception:  # shown here, where no credential gets through
        traceback.print_exc()
        raise typer.Exit(1) from None
    finally:
        supervisor.note_orderly_end()
