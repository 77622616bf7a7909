"""The command `beam-bpe`. Beam is imported only by the stages that run a pipeline."""

from __future__ import annotations

import shlex
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from bpe_core.errors import BpeError
from pipelines import supervisor
from pipelines.console.terminal import visible
from pipelines.errors import (
    INTERRUPTED_EXIT_CODE,
    TERMINATED_EXIT_CODE,
    ConfigError,
    exit_code_of,
)
from pipelines.scrubbing import scrubbed_output

if TYPE_CHECKING:
    from pipelines.config import BuildConfig
    from pipelines.console.summary import BuildSummary

_KEPT = "What is finished is kept: run the same command again to go on."
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

# What a command that goes on after another does not repeat.
_ONLY_ONCE = ("--restart", "--no-wait", "--take-over")
Format = Literal["arrow", "huggingface", "gpt2", "tiktoken", "minbpe"]  # bpe_core.formats' names
ExportFormat = Literal[
    "megatron", "nanogpt", "llm.c", "npy", "mds", "documents", "packed"
]  # pipelines.exports.formats' names
Split = Literal["train", "validation", "all"]
OneSplit = Literal["train", "validation"]
IdType = Literal["uint16", "uint32", "int32"]
Packing = Literal["concatenate", "best-fit"]
Runner = Literal[
    "DirectRunner", "FlinkRunner", "PrismRunner", "PortableRunner", "DataflowRunner"
]  # those of pipelines.config.BeamConfig
Stage = Literal["count", "train", "encode", "build", "replay"]
Config = Annotated[
    Path, typer.Argument(metavar="CONFIG", help="Configuration file (YAML).", show_default=False)
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a key of the configuration, such as encode.append=null. Repeatable.",
        show_default=False,
    ),
]
Restart = Annotated[
    bool, typer.Option("--restart", help="Discard what the stage made before and begin anew.")
]
NoWait = Annotated[
    bool,
    typer.Option(
        "--no-wait",
        help="Submit the first pipeline that is needed, and end. The same command without it goes "
        "on later.",
    ),
]
TakeOver = Annotated[
    bool,
    typer.Option(
        "--take-over",
        help="Go on though a job of --no-wait has not finished: it writes nothing more.",
    ),
]
Output = Annotated[
    str,
    typer.Argument(
        metavar="OUTPUT", help="The output of a build: a path or URL.", show_default=False
    ),
]
ConfigOfInputs = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="CONFIG",
        help="The configuration, which says where the input files are and how they are reached.",
        show_default="where the build found them",
    ),
]
TokenizerOfOutput = Annotated[
    str | None,
    typer.Option(
        "--tokenizer",
        metavar="DIR",
        help="The tokenizer that encoded, if it is not in OUTPUT.",
        show_default="where the build found it",
    ),
]
StorageOptions = Annotated[
    str | None,
    typer.Option(
        metavar="JSON",
        help="Options of the file system of OUTPUT, if it is not local; values may be ${NAME}, "
        "from the environment.",
        show_default=False,
    ),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")]
BeamOptions = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="BEAM_OPTIONS",
        help="After --: options of Beam pipelines, over those in beam.options.",
        show_default=False,
    ),
]


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


@app.command()
def plan(config: Config, overrides: Overrides = None, debug: Debug = False) -> None:
    """Show what a build would read, do and write, or why it would refuse, without doing it."""
    with _errors_shown(debug):
        loaded = _load(config, overrides)
        from rich.console import Console

        from pipelines import build
        from pipelines.console.summary import show_plan

        planned = build.plan(loaded)
        show_plan(planned, Console())
        if planned.refusal is not None:
            raise planned.refusal


def _add_stage(stage: Stage, does: str) -> None:
    """Add the command of a stage; all have the same options."""

    @app.command(name=stage, help=does)
    def command(
        context: typer.Context,
        config: Config,
        beam_options: BeamOptions = None,
        overrides: Overrides = None,
        restart: Restart = False,
        no_wait: NoWait = False,
        take_over: TakeOver = False,
        debug: Debug = False,
    ) -> None:
        _run(
            stage,
            context,
            config,
            beam_options,
            overrides,
            debug,
            restart=restart,
            no_wait=no_wait,
            take_over=take_over,
        )


_add_stage("count", "Count the pre-tokens of the corpus.")
_add_stage("train", "Train the tokenizer; counts first if that is not finished.")
_add_stage("encode", "Encode the corpus; counts and trains first if that is not finished.")
_add_stage("build", "Do everything: count, train, encode. What is finished is not done again.")


@app.command()
def replay(
    context: typer.Context,
    config: Config,
    beam_options: BeamOptions = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--source",
            metavar="NAME=PATH",
            help="A repaired file, by the name in the column `source` of the file that it takes "
            "the place of. Repeatable.",
            show_default=False,
        ),
    ] = None,
    overrides: Overrides = None,
    debug: Debug = False,
) -> None:
    """Encode rejected documents after all: by a changed policy, or from repaired files."""
    repaired = dict(_name_and_path(text) for text in source or ())
    _run("replay", context, config, beam_options, overrides, debug, repaired=repaired)


def _name_and_path(text: str) -> tuple[str, str]:
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise typer.BadParameter(f"expected NAME=PATH, found {text!r}", param_hint="--source")
    return name, path


@app.command()
def convert(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A tokenizer: a directory, tokenizer.arrow, tokenizer.json, vocab.json with the "
            "merges.txt beside it, .tiktoken ranks, or a .model of minbpe.",
            show_default=False,
        ),
    ],
    destination: Annotated[
        str,
        typer.Argument(metavar="DEST", help="A directory, or a file's name.", show_default=False),
    ],
    to: Annotated[Format, typer.Option("--to", help="The format to write.", show_default=False)],
    source_format: Annotated[
        Format | None,
        typer.Option(
            "--from",
            help="The format of SOURCE, where its contents do not tell.",
            show_default=False,
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(
            help="How ranks, or vocab.json and merges.txt (default gpt2), split text: a name or a "
            "regular expression.",
            show_default=False,
        ),
    ] = None,
    special: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=ID",
            help="A special token of ranks, or of vocab.json (there NAME alone will do). "
            "Repeatable.",
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
    """Convert a tokenizer's files, and check them with the library that owns the format."""
    with _errors_shown(debug):
        from pipelines.tokenizers.conversion import Request, convert, shown

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
        typer.echo(visible(shown(convert(request))))


@app.command()
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
    with _errors_shown(debug):
        _enter_child(context, debug)
        _leave_out_warning_of_beam()
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
        _check_beam_options(beam_options or ())
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


@app.command()
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
    with _left_at_once(), _errors_shown(debug):
        from pipelines.errors import NotWholeError
        from pipelines.exports.export import output_directory
        from pipelines.verification.verify import verify

        _leave_out_warning_of_beam()

        found = verify(
            output_directory(output, storage_options),
            against=against,
            tokenizer=tokenizer,
            sources=sources,
            sample=sample,
            config=None if config is None else _load(config, overrides),
        )
        typer.echo(visible(str(found)))
        if found.problems:
            raise typer.Exit(NotWholeError.exit_code)


@app.command()
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
    with _left_at_once(), _errors_shown(debug):
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


@app.command()
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
    with _left_at_once(), _errors_shown(debug):
        import json

        from pipelines.dataset import report as reports
        from pipelines.dataset.reading import TokenDataset, model_of
        from pipelines.exports.export import output_directory

        directory = output_directory(output, storage_options)
        dataset = TokenDataset.open(directory.url, directory.storage_options)
        model = model_of(dataset.output, dataset.manifest, tokenizer)
        found = reports.report(dataset, model)
        typer.echo(json.dumps(found, indent=2) if as_json else reports.shown(found, model))


def _run(
    stage: Stage,
    context: typer.Context,
    config: Path,
    beam_options: list[str] | None,
    overrides: list[str] | None,
    debug: bool,
    **arguments: object,
) -> None:
    """Run a stage in a supervised child process or, in that child, the stage itself."""
    with _errors_shown(debug):
        _enter_child(context, debug)
        loaded = _load(config, overrides)
        _check_beam_options(beam_options or ())
        _leave_out_warning_of_beam()
        from rich.console import Console

        from pipelines import build
        from pipelines.console.summary import show_summary

        run: Callable[..., BuildSummary] = getattr(build, stage)
        summary = run(loaded, **arguments, beam_args=tuple(beam_options or ()))
        following = _next_command(stage, context.obj, summary)
        show_summary(replace(summary, next_command=following), Console())
        supervisor.leave(0)


def _enter_child(context: typer.Context, debug: bool) -> None:
    """Go on in a supervised child process; this one waits for it and leaves with its exit code."""
    if not supervisor.in_child():
        code = supervisor.run_in_child(context.obj)
        if code == TERMINATED_EXIT_CODE:
            typer.echo(f"Terminated. {_KEPT}", err=True)
        raise typer.Exit(code)
    supervisor.enter_child()
    if debug:
        import faulthandler

        faulthandler.enable()


def _next_command(stage: Stage, given: Sequence[str], summary: BuildSummary) -> str | None:
    """What to try now: the next stage with the same arguments, or the tokenizer."""
    following = {"count": "train", "train": "encode"}.get(stage)
    if summary.submitted is not None:
        following = stage
    if following is not None:
        arguments = [argument for argument in given[1:] if argument not in _ONLY_ONCE]
        return shlex.join(["beam-bpe", following, *arguments])
    if "tokenizer" not in summary.outputs:
        return None
    tokenizer = _below_here(summary.outputs["tokenizer"])
    return (
        f'{_below_here(sys.executable)} -c "from bpe_core import {summary.tokenizer_class}; '
        f"print({summary.tokenizer_class}.load('{tokenizer}').encode('In the beginning'))\""
    )


def _below_here(path: str) -> str:
    """A path relative to the current directory if it lies below it."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path


def _leave_out_warning_of_beam() -> None:
    """On import Beam warns that a Google client is missing, which nothing here needs."""
    import logging

    logging.getLogger().addFilter(lambda record: "apitools not found" not in record.getMessage())


def _load(config: Path, overrides: list[str] | None) -> BuildConfig:
    from pipelines.config import load_config

    return load_config(config, overrides or ())


def _check_beam_options(options: Sequence[str]) -> None:
    if options and not options[0].startswith("--"):
        raise ConfigError(
            "The command line has an argument too many.",
            expected="one CONFIG, and Beam options such as --name=value after --",
            found=options[0],
            hint="Keys of the configuration are overridden with --set KEY=VALUE.",
        )


@contextmanager
def _left_at_once() -> Iterator[None]:
    """End this process with its exit code once the block is done.

    Python must not be taken apart before: threads of Arrow may still hold buffers of it, and one
    that lets go of them then aborts the process.
    """
    code = 0
    try:
        yield
    except typer.Exit as end:
        code = end.exit_code
    supervisor.leave(code)


@contextmanager
def _errors_shown(debug: bool) -> Iterator[None]:
    """Turn errors into a message on stderr and an exit code, and tell the parent of the end."""
    try:
        yield
    except BpeError as error:
        if debug:
            traceback.print_exc()
        typer.echo(visible(f"error: {error}"), err=True)
        raise typer.Exit(exit_code_of(error)) from None
    except KeyboardInterrupt:
        typer.echo(f"Interrupted. {_KEPT}", err=True)
        if supervisor.in_child():
            supervisor.leave(INTERRUPTED_EXIT_CODE)
        raise typer.Exit(INTERRUPTED_EXIT_CODE) from None
    except typer.Exit:
        raise
    except Exception:  # shown here, where no credential gets through
        traceback.print_exc()
        raise typer.Exit(1) from None
    finally:
        supervisor.note_orderly_end()
