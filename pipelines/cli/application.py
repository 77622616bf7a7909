"""The application behind `beam-bpe`: its commands, exit codes and entry point.

The commands import what they run once the command line is parsed: help, a wrong command line and a
wrong configuration answer at once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from pipelines.cli import build_commands, dataset_commands, text_commands, tokenizer_commands
from pipelines.cli.options import BuildCommand
from pipelines.cli.process import with_display
from pipelines.errors import EXIT_CODES
from pipelines.redaction import redacted_output

_EXIT_CODES = "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())
app = typer.Typer(
    name="beam-bpe",
    help="Train a byte-pair-encoding tokenizer on a whole corpus and encode the corpus with it.",
    epilog=f"Exit codes: {_EXIT_CODES}.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command and exit with its code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    with redacted_output():
        app(given, prog_name="beam-bpe", obj=given)
    raise AssertionError("the command line always leaves by SystemExit")


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # takes long to import

        typer.echo(f"beam-bpe {version('bpe-beam')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", is_eager=True, callback=_show_version
        ),
    ] = False,
) -> None:
    pass


_STAGES: dict[BuildCommand, str] = {
    "count": "Count the pre-tokens of the corpus.",
    "train": "Train the tokenizer; count first if necessary.",
    "encode": "Encode the corpus; count and train first if necessary.",
    "build": "Count, train and encode. Finished work is not repeated.",
}

app.command()(with_display(build_commands.plan))
for _stage, _help in _STAGES.items():
    app.command(_stage, help=_help)(with_display(build_commands.stage_command(_stage)))
app.command()(with_display(build_commands.replay))
app.command()(tokenizer_commands.convert)
app.command()(text_commands.tokenize)
app.command()(text_commands.count_tokens)
app.command()(with_display(dataset_commands.export))
app.command()(with_display(dataset_commands.verify))
app.command()(dataset_commands.inspect)
app.command()(dataset_commands.report)
