"""The commands that help to write a configuration: init, schema."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from bpe_core.visible_text import visible
from pipelines.cli.options import Debug
from pipelines.cli.output import display, print_result
from pipelines.cli.process import report_errors
from pipelines.errors import ConfigError, OutputError

if TYPE_CHECKING:
    from pipelines.probing.proposals import Proposal

_SHOWN_CHARACTERS: Final = 300


def init(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILES...",
            help="Files, folders, globs or URLs of text, JSON lines, Parquet or Arrow.",
            show_default=False,
        ),
    ],
    config: Annotated[
        Path, typer.Option("--config", metavar="FILE", help="The configuration to write.")
    ] = Path("build.yaml"),
    output: Annotated[
        str, typer.Option(metavar="DIR", help="Where the build will write: `output`.")
    ] = "out",
    vocabulary: Annotated[
        str | None,
        typer.Option(
            "--vocab-size", metavar="N", help="Number of ids.", show_default="by size and scripts"
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            metavar="TOKENIZER",
            help="Encode with this tokenizer instead of training one: a file or directory of any "
            "format that `convert` reads, the output of a build, a URL, or hf://ORG/NAME.",
            show_default=False,
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Ask nothing. The default without a terminal.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing FILE.")] = False,
    debug: Debug = False,
) -> None:
    """Look into files, show three documents, and write a configuration that builds them."""
    with report_errors(debug):
        if config.exists() and not force:
            raise ConfigError(
                "The configuration exists.",
                found=str(config),
                hint="Choose another name with --config, or replace it with --force.",
            )
        if tokenizer is not None and vocabulary is not None:
            raise ConfigError(
                "A finished tokenizer has its own vocabulary.",
                expected="--tokenizer or --vocab-size",
                found="both",
                hint="Leave out --vocab-size, or --tokenizer to train one.",
            )
        with display("reading the files", brief=True):
            from pipelines.config import load_config
            from pipelines.probing.proposals import (
                choose_vocabulary,
                propose,
                training_yaml,
                write_yaml,
            )

            lines = None if tokenizer is None else _encode_with(tokenizer, config)
            proposals, skipped = propose(files, config)
        for line in skipped:
            print_result(f"left out: {line}")
        for proposal in proposals:
            _show(proposal)
        asks = not yes and _has_user()
        wanted = vocabulary or choose_vocabulary(proposals)
        if asks:
            proposals = [_ask_field(proposal) for proposal in proposals]
        if asks and lines is None:
            wanted = typer.prompt("Vocabulary size", default=wanted)
        placed = [proposal.relative_to(config.absolute().parent) for proposal in proposals]
        lines = lines or training_yaml(proposals, wanted)
        text = write_yaml(placed, str(config), output, lines)
        if asks and not typer.confirm(f"Write {config}?", default=True):
            raise typer.Exit
        _write(config, text)
        try:
            load_config(config)
        except ConfigError:
            config.unlink()
            raise
        print_result(f"\nwritten: {config}\n\nnext\nbeam-bpe plan {config}")


def schema() -> None:
    """Print the JSON schema of a configuration, with which editors complete and check YAML."""
    from pipelines.config.schema import json_schema

    typer.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))


def _encode_with(location: str, config: Path) -> list[str]:
    """Return the lines of a configuration that encode with a finished tokenizer."""
    from pipelines.config.values import is_url
    from pipelines.dataset.tokenizers import find_model
    from pipelines.probing.proposals import encoding_yaml
    from pipelines.tokenizers.files import find_affixes

    affixes = find_affixes(find_model(location))
    path = location
    if not is_url(location):
        place = Path(location)
        place = place / "tokenizer" if (place / "tokenizer").is_dir() else place
        path = os.path.relpath(place, config.absolute().parent)
    return encoding_yaml(path, affixes)


def _has_user() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _show(proposal: Proposal) -> None:
    print_result(f"\n{proposal.describe()}")
    for number, document in enumerate(proposal.documents, 1):
        shown = " ".join(document[: 2 * _SHOWN_CHARACTERS].split())
        more = "…" if len(shown) > _SHOWN_CHARACTERS else ""
        print_result(f"document {number}: {shown[:_SHOWN_CHARACTERS]}{more}")
    for note in proposal.notes:
        print_result(f"note: {note}")


def _ask_field(proposal: Proposal) -> Proposal:
    if len(proposal.text_fields) < 2:
        return proposal
    names = ", ".join(proposal.text_fields[:10])
    chosen = typer.prompt(visible(f"Field of the text ({names})"), default=proposal.text_field)
    return replace(proposal, text_field=chosen)


def _write(config: Path, text: str) -> None:
    try:
        config.write_text(text, "utf-8")
    except OSError as error:
        raise OutputError(
            "The configuration cannot be written.",
            found=str(error),
            where=str(config),
            hint="Choose another name with --config.",
        ) from None
