"""The commands of counts: `beam-bpe counts …`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from pipelines.choices import CountsFormat
from pipelines.cli.options import Debug, Output, StorageOptions, parse_number
from pipelines.cli.process import closed_pipe_accepted, leave_at_once, report_errors


def export(
    output: Output,
    to: Annotated[
        CountsFormat,
        typer.Option(
            "--to",
            help="sentencepiece: lines of a word, a tab and its count, for spm_train "
            "--input_format=tsv. tokenizers: JSON lines with word and count, for "
            "train_from_iterator, which reads texts: repeat each word.",
            show_default=False,
        ),
    ],
    words: Annotated[
        int,
        typer.Option(
            parser=parse_number,
            metavar="N",
            help="tokenizers: maximum sum of the counts; larger counts are scaled down.",
        ),
    ] = 10_000_000,
    storage_options: StorageOptions = None,
    debug: Debug = False,
) -> None:
    """Print counted words for the trainers of other libraries on standard output."""
    with leave_at_once(), report_errors(debug), closed_pipe_accepted():
        from pipelines.counting.load import find_counts
        from pipelines.counting.words import write_words
        from pipelines.exports.export import output_directory

        root = output_directory(output, storage_options)
        manifest = find_counts(root)
        found = write_words(root / "counts", manifest, to, sys.stdout.buffer, most=words)
        sys.stdout.buffer.flush()
        typer.echo(str(found), err=True)
