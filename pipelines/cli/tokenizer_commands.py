"""The command that converts tokenizers."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.choices import TokenizerFormat, WrittenTokenizerFormat
from pipelines.cli.options import Debug
from pipelines.cli.output import print_result
from pipelines.cli.process import report_errors


def convert(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A tokenizer: a directory, tokenizer.arrow, tokenizer.json, tekken.json, "
            "vocab.json with merges.txt beside it, .tiktoken ranks, a .model of minbpe, or "
            "hf://ORG/NAME@REVISION on the Hugging Face Hub.",
            show_default=False,
        ),
    ],
    destination: Annotated[
        str,
        typer.Argument(
            metavar="DEST", help="A directory, or the name of a file.", show_default=False
        ),
    ],
    to: Annotated[
        WrittenTokenizerFormat,
        typer.Option("--to", help="The format to write.", show_default=False),
    ],
    source_format: Annotated[
        TokenizerFormat | None,
        typer.Option(
            "--from",
            help="The format of SOURCE, if its contents do not show it.",
            show_default=False,
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(
            help="The pattern with which ranks, or vocab.json and merges.txt (default gpt2), split "
            "text: a name or a regular expression.",
            show_default=False,
        ),
    ] = None,
    special: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=ID",
            help="A special token of ranks or of vocab.json (which needs only NAME). Repeatable.",
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
    """Convert a tokenizer, and check source and result with the libraries of their formats."""
    with report_errors(debug):
        from pipelines.tokenizers.conversion import Request, convert, format_conversion

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
        print_result(format_conversion(convert(request)))
