"""The commands that answer from counts and tokenizers: sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipelines import supervisor
from pipelines.cli.options import Debug, Json, Overrides, StorageOptions, parse_number
from pipelines.cli.output import display, print_json, print_result
from pipelines.cli.process import enter_child, load, report_errors
from pipelines.errors import ConfigError


def _parse_sizes(text: str) -> list[int]:
    return [parse_number(size.strip()) for size in text.split(",")]


def sizes(
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="CONFIG_OR_OUTPUT",
            help="Configuration file (YAML), or the output of a build: a path or URL.",
            show_default=False,
        ),
    ],
    vocab: Annotated[
        str,
        typer.Option(
            "--vocab",
            metavar="N,N,…",
            help="Sizes of the vocabulary, such as 8k,16k,32k.",
            show_default=False,
        ),
    ],
    overrides: Overrides = None,
    storage_options: StorageOptions = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare vocabularies of several sizes by the counts of a corpus. Count first if necessary."""
    wanted = _parse_sizes(vocab)
    is_config = source.endswith((".yaml", ".yml")) or Path(source).is_file()
    with report_errors(debug, [source] if is_config else []):
        first = f"reading {source}"
        if is_config:
            enter_child(context, debug, first)
        elif overrides:
            raise ConfigError(
                "--set overrides keys of a configuration.",
                expected="a configuration file, or no --set",
                found=source,
            )
        with display(first, brief=not is_config):
            from pipelines import build
            from pipelines.exports.export import output_directory
            from pipelines.stages.sizes import compare_sizes

            if is_config:
                report = build.sizes(load(Path(source), overrides), wanted)
            else:
                report = compare_sizes(output_directory(source, storage_options), wanted)
        if as_json:
            print_json(report.to_json())
        else:
            print_result(str(report))
        supervisor.leave(0)
