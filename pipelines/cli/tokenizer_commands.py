"""The commands that make tokenizers of others: convert, prune."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.choices import TokenizerFormat, WrittenTokenizerFormat
from pipelines.cli.options import Debug, Json, StorageOptions, parse_number
from pipelines.cli.output import display, print_json, print_result
from pipelines.cli.process import leave_at_once, report_errors
from pipelines.errors import ConfigError


def convert(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A tokenizer: a directory, the output of a build, tokenizer.arrow, "
            "tokenizer.json, tekken.json, vocab.json with merges.txt beside it, .tiktoken ranks, a "
            ".model of minbpe, or hf://ORG/NAME@REVISION on the Hugging Face Hub.",
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
        typer.Option("--to", case_sensitive=False, help="The format to write.", show_default=False),
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


def prune(
    source: Annotated[
        str,
        typer.Argument(
            metavar="OUTPUT_OR_TOKENIZER",
            help="The output of a build; or a byte-level tokenizer that `convert` reads, with "
            "--counts.",
            show_default=False,
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output", metavar="DIR", help="Directory to write the result to.", show_default=False
        ),
    ],
    keep_used: Annotated[
        int | None,
        typer.Option(
            parser=parse_number,
            metavar="N",
            help="Keep tokens that are used at least N times, and the tokens that they are made "
            "of.",
            show_default=False,
        ),
    ] = None,
    vocab_size: Annotated[
        int | None,
        typer.Option(
            parser=parse_number,
            metavar="N",
            help="Keep the most used tokens, N ids at most, special tokens included.",
            show_default=False,
        ),
    ] = None,
    counts: Annotated[
        str | None,
        typer.Option(
            metavar="OUTPUT_OR_FILE",
            help="Use these counts, counted by the tokenizer's pattern.",
            show_default="the token files, or else the counts, of the first argument",
        ),
    ] = None,
    storage_options: StorageOptions = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write a tokenizer without the tokens that a corpus hardly uses, and the map of its ids."""
    with leave_at_once(), report_errors(debug):
        if (keep_used is None) == (vocab_size is None):
            raise ConfigError(
                "It is not clear which tokens to keep.",
                expected="one of --keep-used N and --vocab-size N",
            )
        with display(f"reading {source}", brief=True):
            from pipelines.analysis.prune import prune
            from pipelines.analysis.subjects import open_subject
            from pipelines.counting.given import GivenCounts
            from pipelines.exports.export import output_directory, read_storage_options

            options = read_storage_options(storage_options)
            pruned = prune(
                open_subject(source, options),
                output_directory(output, storage_options),
                keep_used=keep_used,
                vocab_size=vocab_size,
                counts=None if counts is None else GivenCounts.open(counts, options),
            )
        if as_json:
            print_json(pruned.to_json())
        else:
            print_result(str(pruned))
