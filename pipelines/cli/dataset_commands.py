"""The commands that read outputs: export, verify, inspect, rejects, report."""

from __future__ import annotations

import shlex
from dataclasses import fields
from typing import Annotated

import typer

from bpe_core.visible_text import visible
from pipelines import supervisor
from pipelines.choices import ExportFormat, IdType, OneSplit, Packing, Runner, Split
from pipelines.cli.options import (
    BeamOptions,
    ConfigOfInputs,
    Debug,
    HtmlFile,
    Json,
    Output,
    OutputOrTokenizer,
    Overrides,
    StorageOptions,
    TokenizerOfOutput,
    parse_bytes,
    parse_number,
)
from pipelines.cli.output import check_page, display, print_json, print_result, write_page
from pipelines.cli.process import (
    check_beam_options,
    enter_child,
    leave_at_once,
    load,
    report_errors,
)
from pipelines.errors import ConfigError, InputError, NotWholeError


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
        typer.Argument(
            metavar="DEST",
            help="A directory: a path or URL; or hf://datasets/ORG/NAME on the Hugging Face Hub.",
            show_default=False,
        ),
    ],
    to: Annotated[
        ExportFormat,
        typer.Option("--to", case_sensitive=False, help="The format to write.", show_default=False),
    ],
    beam_options: BeamOptions = None,
    split: Annotated[
        Split, typer.Option(help="The split to export; all: both, in separate files.")
    ] = "all",
    id_type: Annotated[
        IdType | None,
        typer.Option(
            help="The type of the ids, if the format has several.", show_default="by format"
        ),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            parser=parse_number,
            metavar="N",
            help="llm.c: maximum number of ids in a file.",
            show_default="100M",
        ),
    ] = None,
    sequence_length: Annotated[
        int | None,
        typer.Option(
            parser=parse_number,
            metavar="N",
            help="mds, packed: ids in a sample or row.",
            show_default="mds: a sample is a document; packed: 2048",
        ),
    ] = None,
    shard_bytes: Annotated[
        int | None,
        typer.Option(
            parser=parse_bytes,
            metavar="SIZE",
            help="mds: maximum size of a shard, in bytes.",
            show_default="64MiB",
        ),
    ] = None,
    packing: Annotated[
        Packing | None,
        typer.Option(
            help="packed: cut the ids of all documents into rows, or combine documents and cut "
            "none that fits.",
            show_default="concatenate",
        ),
    ] = None,
    packing_window: Annotated[
        int | None,
        typer.Option(
            parser=parse_number,
            metavar="N",
            help="best-fit: number of documents to combine at a time.",
            show_default="4096",
        ),
    ] = None,
    pad_id: Annotated[
        int | None,
        typer.Option(help="packed: id to fill rows with.", show_default="rows may be shorter"),
    ] = None,
    position_ids: Annotated[
        bool | None,
        typer.Option(
            "--position-ids",
            help="packed: write the position of each id in its document.",
            show_default=False,
        ),
    ] = None,
    shuffle_seed: Annotated[
        int | None,
        typer.Option(
            help="documents, packed: shuffle the documents or packed rows.",
            show_default="in the order of the corpus",
        ),
    ] = None,
    files: Annotated[
        int | None,
        typer.Option(
            help="documents, packed: number of files of the training split.",
            show_default="256 MiB of ids each",
        ),
    ] = None,
    row_group_rows: Annotated[
        int | None,
        typer.Option(
            parser=parse_number,
            metavar="N",
            help="documents, packed: rows in a row group.",
            show_default="1 Mi ids of them",
        ),
    ] = None,
    runner: Annotated[
        Runner, typer.Option(help="documents, packed: runner of the pipelines, as beam.runner.")
    ] = "DirectRunner",
    workers: Annotated[
        int, typer.Option(min=0, help="documents, packed: as beam.workers; 0: all cores.")
    ] = 0,
    storage_options: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help="Options of the file system of OUTPUT and DEST, if they are not local; values "
            "may be ${NAME}, from the environment.",
            show_default=False,
        ),
    ] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Remove the export in DEST and start again.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Write the token ids in a format that training programs read."""
    with report_errors(debug):
        first = f"reading {output}"
        enter_child(context, debug, first)
        with display(first):
            from pipelines.config import BeamConfig
            from pipelines.exports.destinations import export_dataset
            from pipelines.exports.formats import ExportOptions

            given = {field.name: context.params[field.name] for field in fields(ExportOptions)}
            check_beam_options(beam_options or ())
            exported = export_dataset(
                output,
                destination,
                ExportOptions(**given),
                storage_options,
                restart=restart,
                beam=BeamConfig(runner=runner, workers=workers),
                beam_args=tuple(beam_options or ()),
            )
        print_result(exported)
        supervisor.leave(0)


def verify(
    output: Output,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="MANIFEST",
            help="A copy of manifest.json, kept elsewhere, to compare the one in OUTPUT with.",
            show_default=False,
        ),
    ] = None,
    sources: Annotated[
        bool,
        typer.Option(
            "--sources", help="Decode all documents and compare them with their input files."
        ),
    ] = False,
    sample: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Compare only N rows.", show_default=False),
    ] = None,
    config: ConfigOfInputs = None,
    overrides: Overrides = None,
    tokenizer: TokenizerOfOutput = None,
    storage_options: StorageOptions = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Verify an output or an export: bytes, rows, ids and, on request, documents."""
    with leave_at_once(), report_errors(debug):
        with display(f"reading {output}"):
            from pipelines.exports.export import output_directory
            from pipelines.verification.verify import verify

            found = verify(
                output_directory(output, storage_options),
                against=against,
                tokenizer=tokenizer,
                sources=sources,
                sample=sample,
                config=None if config is None else load(config, overrides),
            )
        if as_json:
            print_json(found.to_json())
        else:
            print_result(str(found))
        if found.problems:
            raise typer.Exit(NotWholeError.exit_code)


def inspect(
    output: Output,
    row: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Show the document in a row.", show_default=False),
    ] = None,
    doc: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Show the document with this id, or at LABEL:OFFSET of an input file.",
            show_default=False,
        ),
    ] = None,
    at_random: Annotated[bool, typer.Option("--random", help="Show a document at random.")] = False,
    seed: Annotated[
        int | None,
        typer.Option(metavar="N", help="Show the same document with --random.", show_default=False),
    ] = None,
    grep: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="List documents that contain a text.", show_default=False
        ),
    ] = None,
    split: Annotated[
        OneSplit,
        typer.Option(help="The split of --row and --random; rows are numbered in its order."),
    ] = "train",
    tokens: Annotated[
        int,
        typer.Option(parser=parse_number, metavar="N", help="Maximum number of tokens to show."),
    ] = 1000,
    limit: Annotated[
        int, typer.Option(min=0, help="Maximum number of matches to show with --grep.")
    ] = 20,
    tokenizer: TokenizerOfOutput = None,
    storage_options: StorageOptions = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show a document of the dataset: its text, its tokens and its origin."""
    with leave_at_once(), report_errors(debug):
        from rich.console import Console

        from pipelines.dataset import inspection
        from pipelines.dataset.reading import TokenDataset
        from pipelines.exports.export import output_directory

        wanted = (row is not None, doc is not None, at_random, grep is not None)
        if sum(wanted) != 1 or grep == "" or (seed is not None and not at_random):
            raise ConfigError(
                "It is not clear what to show.",
                expected="one of --row N, --doc ID, --random (with --seed N) and --grep TEXT",
                hint=f"The first document: `beam-bpe inspect {shlex.quote(output)} --row 0`.",
            )
        with display(f"reading {output}", brief=True):
            directory = output_directory(output, storage_options)
            dataset = TokenDataset.open(directory.url, directory.storage_options)
            inspector = inspection.Inspector(dataset, dataset.find_model(tokenizer))
            hits = None if grep is None else inspector.search(grep, limit)
        console = Console()
        if grep is not None and hits is not None:
            if as_json:
                print_json(hits.to_json())
            else:
                inspection.show_hits(hits, grep, console)
            return
        if at_random:
            places = [inspector.at_random(split, seed)]
        elif row is not None:
            places = [inspector.at_row(split, row)]
        else:
            places = inspector.all_with_name(doc or "")
        first, *others = [inspector.read(place, tokens) for place in places]
        locations = inspection.locations(dataset)
        if as_json:
            print_json(first.to_json(locations, others))
        else:
            inspection.show_document(first, console, locations, others)


def rejects(
    output: Output,
    limit: Annotated[int, typer.Option(min=0, help="Number of examples of each reason.")] = 3,
    storage_options: StorageOptions = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List the rejected documents of an output, by reason and file, with examples."""
    with leave_at_once(), report_errors(debug):
        from pipelines.exports.export import output_directory
        from pipelines.rejects.listing import list_rejects

        directory = output_directory(output, storage_options)
        if not directory.exists():
            raise InputError(
                "There is no output.",
                expected="the directory of a build, which it names `output`",
                found="nothing",
                where=directory.url,
                hint="Check the path.",
            )
        with display(f"reading {output}", brief=True):
            found = list_rejects(directory / "rejects", limit)
        if as_json:
            print_json(found.to_json())
        else:
            typer.echo(visible(str(found)))


def compare(
    first: Annotated[
        str,
        typer.Argument(metavar="A", help="An output or a tokenizer.", show_default=False),
    ],
    second: Annotated[
        str,
        typer.Argument(metavar="B", help="Another one.", show_default=False),
    ],
    as_json: Json = False,
    html: HtmlFile = None,
    storage_options: StorageOptions = None,
    debug: Debug = False,
) -> None:
    """Compare two datasets or tokenizers: numbers, sources, vocabularies, the same text."""
    with leave_at_once(), report_errors(debug):
        check_page(html)
        from pipelines.exports.export import read_storage_options
        from pipelines.pages.comparison import compare as compare_outputs

        with display(f"reading {first}", brief=True):
            found = compare_outputs(first, second, read_storage_options(storage_options))
        if html is not None:
            write_page(html, found.to_html())
        if as_json:
            print_json(found.to_json())
        else:
            print_result(str(found))


def report(
    output: OutputOrTokenizer,
    as_json: Json = False,
    html: HtmlFile = None,
    card: Annotated[
        bool,
        typer.Option(
            "--card",
            help="Print a dataset card instead, README.md of a repository on the Hugging Face Hub.",
        ),
    ] = False,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Group documents and tokens by a column that the dataset keeps "
            "(input.keep_columns).",
            show_default=False,
        ),
    ] = None,
    tokenizer: TokenizerOfOutput = None,
    storage_options: StorageOptions = None,
    debug: Debug = False,
) -> None:
    """Describe a dataset: inputs, rejects, sources, lengths, use of the vocabulary."""
    with leave_at_once(), report_errors(debug):
        if (html is not None) + card + (as_json or by is not None) > 1:
            raise ConfigError(
                "It is not clear which report is wanted.",
                expected="the page (--html), the card (--card) or the text (--json, --by), not two",
            )
        if html is not None or card:
            check_page(html)
            from pipelines.exports.export import read_storage_options
            from pipelines.pages.card import make_card
            from pipelines.pages.collect import collect
            from pipelines.pages.report import make_report

            with display(f"reading {output}", brief=True):
                options = read_storage_options(storage_options)
                data = collect(output, options, tokenizer=tokenizer)
            if card:
                print_result(make_card(data).rstrip())
            elif html is not None:
                write_page(html, make_report(data))
                print_result(f"page  {html}")
            return
        from pipelines.dataset import report as reports
        from pipelines.dataset.reading import TokenDataset
        from pipelines.exports.export import output_directory

        with display(f"reading {output}", brief=True):
            directory = output_directory(output, storage_options)
            dataset = TokenDataset.open(directory.url, directory.storage_options)
            model = dataset.find_model(tokenizer)
            found = reports.report(dataset, model, by)
        if as_json:
            print_json(found)
        else:
            typer.echo(reports.shown(found, model))
