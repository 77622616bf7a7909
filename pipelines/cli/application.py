"""The application behind `beam-bpe`: its commands, exit codes and entry point.

Beam is imported only by the stages that run a pipeline.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from pipelines.cli import build_commands, dataset_commands, tokenizer_commands
from pipelines.cli.options import Stage
from pipelines.redaction import scrubbed_output

_EXIT_CODES = (
    "Exit codes: 0 done; 1 unexpected error; 2 wrong configuration or command line; 3 the output "
    "belongs to another configuration; 4 input missing, unreadable or corrupt; 5 output can't be "
    "written; 6 too many documents rejected; 7 counts incomplete; 8 the working process died; "
    "9 the tokenizer core refused; 10 more memory needed than there is; 11 the accounts of the "
    "input do not add up; 12 an output is not whole; 13 a worker has other versions; 130 "
    "interrupted, 143 terminated."
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


_STAGES: dict[Stage, str] = {
    "count": "Count the pre-tokens of the corpus.",
    "train": "Train the tokenizer; counts first if that is not finished.",
    "encode": "Encode the corpus; counts and trains first if that is not finished.",
    "build": "Do everything: count, train, encode. What is finished is not done again.",
}

app.command()(build_commands.plan)
for _stage, _help in _STAGES.items():
    app.command(_stage, help=_help)(build_commands.stage_command(_stage))
app.command()(build_commands.replay)
app.command()(tokenizer_commands.convert)
app.command()(dataset_commands.export)
app.command()(dataset_commands.verify)
app.command()(dataset_commands.inspect)
app.command()(dataset_commands.report)
