"""The application behind `beam-bpe`: its commands, exit codes and entry point.

The commands import what they run once the command line is parsed: help, a wrong command line and a
wrong configuration answer at once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Annotated, Any, Final, NoReturn

import typer
from typer.core import TyperCommand

from pipelines.cli import (
    analysis_commands,
    build_commands,
    config_commands,
    counts_commands,
    dataset_commands,
    text_commands,
    tokenizer_commands,
)
from pipelines.cli.advice import advise
from pipelines.cli.options import BuildCommand
from pipelines.cli.output import reset, with_output
from pipelines.errors import EXIT_CODES
from pipelines.redaction import redacted_output

_EXIT_CODES = "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())
_ALIKE: Final = 0.6
app = typer.Typer(
    name="beam-bpe",
    help="Train a byte-pair-encoding tokenizer on a whole corpus and encode the corpus with it.",
    epilog=f"Exit codes: {_EXIT_CODES}.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command and exit with its code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    reset()
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


class _Command(TyperCommand):
    """Command that advises on a wrong command line.

    Of the parser's suggestions, only options whose names are alike without their dashes remain.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            given, found = getattr(error, "option_name", ""), getattr(error, "possibilities", None)
            if found:
                error.possibilities = [  # type: ignore[attr-defined]
                    option
                    for option in found
                    if SequenceMatcher(None, given.strip("-"), option.strip("-")).ratio() > _ALIKE
                ]
            if isinstance(message := getattr(error, "message", None), str):
                advice = "" if getattr(error, "possibilities", None) else advise(ctx, error)
                said = message.replace("Value error, ", "")
                if advice:
                    said = f"{said.removesuffix('.')}. {advice}" if said else advice
                error.message = said  # type: ignore[attr-defined]
            raise


_STAGES: dict[BuildCommand, str] = {
    "train": "Train the tokenizer; count first if necessary.",
    "encode": "Encode the corpus; count and train first if necessary.",
    "build": "Count, train and encode. Finished work is not repeated.",
}

app.command(cls=_Command)(with_output(config_commands.init))
app.command(cls=_Command)(with_output(build_commands.plan))
app.command(cls=_Command)(with_output(build_commands.count))
for _stage, _help in _STAGES.items():
    _command = with_output(build_commands.stage_command(_stage))
    app.command(_stage, cls=_Command, help=_help)(_command)
for _command in (
    with_output(build_commands.add),
    with_output(build_commands.replay),
    with_output(tokenizer_commands.convert),
    with_output(tokenizer_commands.prune),
    with_output(text_commands.tokenize, shows_progress=False),
    with_output(text_commands.count_tokens, shows_progress=False),
    with_output(dataset_commands.export),
    with_output(dataset_commands.verify),
    with_output(dataset_commands.inspect),
    with_output(dataset_commands.rejects),
    with_output(dataset_commands.report),
    with_output(dataset_commands.compare),
    with_output(analysis_commands.sizes),
    with_output(analysis_commands.evaluate),
    analysis_commands.explain,
    analysis_commands.why,
    config_commands.schema,
):
    app.command(cls=_Command)(_command)

_counts = typer.Typer(
    help="Combine the counts of corpora, and show or print what they contain. No corpus is read.",
    no_args_is_help=True,
)
for _command in (
    with_output(counts_commands.merge),
    with_output(counts_commands.subtract),
    with_output(counts_commands.scale),
    with_output(counts_commands.prune),
    with_output(counts_commands.filter),
    counts_commands.top,
    counts_commands.diff,
    counts_commands.show,
    counts_commands.export,
):
    _counts.command(cls=_Command)(_command)
app.add_typer(_counts, name="counts")
