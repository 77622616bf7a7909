"""The commands that read datasets: export, verify, inspect, report."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines import supervisor
from pipelines.cli.options import (
    BeamOptions,
    ConfigOfInputs,
    Debug,
    ExportFormat,
    IdType,
    OneSplit,
    Output,
    Overrides,
    Packing,
    Runner,
    Split,
    StorageOptions,
    TokenizerOfOutput,
)
from pipelines.cli.process import (
    check_beam_options,
    enter_child,
    leave_at_once,
    load,
    report_errors,
    silence_apitools_warning,
)
from pipelines.console.terminal import visible
from pipelines.errors import ConfigError


def export(
    context: typer.Context,
    output: Annotated[
        str,
        typer.Argument(
            metavar="OUTPUT", help="The output of a build: a path or URL.", show_default=False
        ),
    ],
    destination: Annotated[
        str,
        typer.Argument(metavar="DEST", help="A directory: a path or URL.", show_default=False),
    ],
    to: Annotated[
        ExportFormat, typer.Option("--to", help="The format to write.", show_default=False)
    ],
    beam_options: BeamOptions = None,
    split: Annotated[Split, typer.Option(help="What to export; all: both, apart.")] = "all",
    id_type: Annotated[
        IdType | None,
        typer.Option(
            help="The type of the ids, where the format has several.", show_default="by format"
        ),
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="llm.c: ids of a file at most.", show_default="100000000")
    ] = None,
    sequence_length: Annotated[
        int | None,
        typer.Option(
            help="mds, packed: ids of a sample, or row.",
            show_default="mds: a sample is a document; packed: 2048",
        ),
    ] = None,
    shard_bytes: Annotated[
        int | None, typer.Option(help="mds: bytes of a shard at most.", show_default="67108864")
    ] = None,
    packing: Annotated[
        Packing | None,
        typer.Option(
            help="packed: cut the ids of all documents into rows, or put documents together and "
            "cut none that fits.",
            show_default="concatenate",
        ),
    ] = None,
    packing_window: Annotated[
        int | None,
        typer.Option(help="best-fit: documents that are put together.", show_default="4096"),
    ] = None,
    pad_id: Annotated[
        int | None,
        typer.Option(help="packed: fills rows up.", show_default="rows may be shorter"),
    ] = None,
    position_ids: Annotated[
        bool, typer.Option("--position-ids", help="packed: places of ids in their documents.")
    ] = False,
    shuffle_seed: Annotated[
        int | None,
        typer.Option(
            help="documents, packed: shuffle documents, or packed rows.",
            show_default="in the order of the corpus",
        ),
    ] = None,
    files: Annotated[
        int | None,
        typer.Option(
            help="documents, packed: files of the training split.", show_default="256 MiB of ids"
        ),
    ] = None,
    row_group_rows: Annotated[
        int | None,
        typer.Option(
            help="documents, packed: rows of a row group.", show_default="1 Mi ids of them"
        ),
    ] = None,
    runner: Annotated[
        Runner, typer.Option(help="documents, packed: what runs the pipelines, as beam.runner.")
    ] = "DirectRunner",
    workers: Annotated[
        int, typer.Option(min=0, help="documents, packed: as beam.workers; 0: all cores.")
    ] = 0,
    storage_options: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help="Options of the file system of OUTPUT and DEST, where they are not local; values "
            "may be ${NAME}, from the environment.",
            show_default=False,
        ),
    ] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Remove the export that is in DEST and begin anew.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Write the token ids in a form that training programs read."""
    with report_errors(debug):
        enter_child(context, debug)
        silence_apitools_warning()
        from pipelines.config import BeamConfig
        from pipelines.exports.export import export_dataset
        from pipelines.exports.formats import ExportOptions

        options = ExportOptions(
            to=to,
            split=split,
            id_type=id_type,
            max_tokens=max_tokens,
            sequence_length=sequence_length,
            shard_bytes=shard_bytes,
            packing=packing,
            packing_window=packing_window,
            pad_id=pad_id,
            position_ids=position_ids or None,
            shuffle_seed=shuffle_seed,
            files=files,
            row_group_rows=row_group_rows,
        )
        check_beam_options(beam_options or ())
        exported = export_dataset(
            output,
            destination,
            options,
            storage_options,
            restart=restart,
            beam=BeamConfig(runner=runner, workers=workers),
            beam_args=tuple(beam_options or ()),
        )
        typer.echo(visible(exported))
        supervisor.leave(0)


def verify(
    output: Output,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="MANIFEST",
            help="A copy of a manifest.json, kept elsewhere, that the one in OUTPUT must equal.",
            show_default=False,
        ),
    ] = None,
    sources: Annotated[
        bool,
        typer.Option(
            "--sources", help="Decode all documents and compare them with the files they are from."
        ),
    ] = False,
    sample: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="The same for N rows only.", show_default=False),
    ] = None,
    config: ConfigOfInputs = None,
    overrides: Overrides = None,
    tokenizer: TokenizerOfOutput = None,
    storage_options: StorageOptions = None,
    debug: Debug = False,
) -> None:
    """Check that an output, or an export of it, is whole: bytes, rows, ids, documents if asked."""
    with leave_at_once(), report_errors(debug):
        from pipelines.errors import NotWholeError
        from pipelines.exports.export import output_directory
        from pipelines.verification.verify import verify

        silence_apitools_warning()

        found = verify(
            output_directory(output, storage_options),
            against=against,
            tokenizer=tokenizer,
            sources=sources,
            sample=sample,
            config=None if config is None else load(config, overrides),
        )
        typer.echo(visible(str(found)))
        if found.problems:
            raise typer.Exit(NotWholeError.exit_code)


def inspect(
    output: Output,
    row: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="The document in a row.", show_default=False),
    ] = None,
    doc: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="The document at LABEL:OFFSET of an input file, or with an id of its own.",
            show_default=False,
        ),
    ] = None,
    grep: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Documents in which a text occurs.", show_default=False),
    ] = None,
    split: Annotated[
        OneSplit, typer.Option(help="Of --row; rows are numbered in the order of the dataset.")
    ] = "train",
    tokens: Annotated[int, typer.Option(min=1, help="Tokens to show of a document.")] = 1000,
    limit: Annotated[int, typer.Option(min=0, help="Places to show with --grep.")] = 20,
    tokenizer: TokenizerOfOutput = None,
    storage_options: StorageOptions = None,
    debug: Debug = False,
) -> None:
    """Show a document of the dataset: its text, its tokens, where it came from."""
    with leave_at_once(), report_errors(debug):
        from rich.console import Console

        from pipelines.dataset import inspection
        from pipelines.dataset.reading import TokenDataset, model_of
        from pipelines.exports.export import output_directory

        if sum(wanted is not None for wanted in (row, doc, grep)) != 1 or grep == "":
            raise ConfigError(
                "It is not clear what to show.",
                expected="one of --row N, --doc ID and --grep TEXT",
                hint="`beam-bpe inspect --help` explains them.",
            )
        directory = output_directory(output, storage_options)
        dataset = TokenDataset.open(directory.url, directory.storage_options)
        inspector = inspection.Inspector(
            dataset, model_of(dataset.output, dataset.manifest, tokenizer)
        )
        console = Console()
        if grep is not None:
            inspection.show_hits(inspector.search(grep, limit), grep, console)
            return
        place = inspector.at_row(split, row) if row is not None else inspector.with_name(doc or "")
        document = inspector.read(place, tokens)
        inspection.show_document(document, console, inspection.locations(dataset))


def report(
    output: Output,
    as_json: Annotated[
        bool, typer.Option("--json", help="As JSON, with all that is known.")
    ] = False,
    tokenizer: TokenizerOfOutput = None,
    storage_options: StorageOptions = None,
    debug: Debug = False,
) -> None:
    """Show what the dataset is: inputs, rejects, sources, lengths, use of the vocabulary."""
    with leave_at_once(), report_errors(debug):
        import json

        from pipelines.dataset import report as reports
        from pipelines.dataset.reading import TokenDataset, model_of
        from pipelines.exports.export import output_directory

        directory = output_directory(output, storage_options)
        dataset = TokenDataset.open(directory.url, directory.storage_options)
        model = model_of(dataset.output, dataset.manifest, tokenizer)
        found = reports.report(dataset, model)
        typer.echo(json.dumps(found, indent=2) if as_json else reports.shown(found, model))
