"""The commands that answer from counts and tokenizers: sizes, evaluate, explain, why."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from pipelines import supervisor
from pipelines.cli.options import (
    Debug,
    HtmlFile,
    Json,
    OutputOrTokenizer,
    Overrides,
    StorageOptions,
    parse_number,
)
from pipelines.cli.output import (
    check_page,
    display,
    print_json,
    print_note,
    print_result,
    write_page,
)
from pipelines.cli.process import enter_child, leave_at_once, load, report_errors
from pipelines.errors import ConfigError, InputError


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
            from pipelines.analysis.size_comparison import compare_sizes
            from pipelines.exports.export import output_directory

            if is_config:
                report = build.sizes(load(Path(source), overrides), wanted)
            else:
                report = compare_sizes(output_directory(source, storage_options), wanted)
        if as_json:
            print_json(report.to_json())
        else:
            print_result(str(report))
        supervisor.leave(0)


def evaluate(
    output: OutputOrTokenizer,
    others: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="TOKENIZER",
            help="Another tokenizer to compare with. Repeatable.",
            show_default=False,
        ),
    ] = None,
    counts: Annotated[
        str | None,
        typer.Option(
            metavar="OUTPUT_OR_FILE",
            help="Evaluate on these counts, for tokenizers that split text as it was counted.",
            show_default="those of OUTPUT",
        ),
    ] = None,
    texts: Annotated[
        list[str] | None,
        typer.Option(
            "--text",
            metavar="FILE",
            help="Evaluate on text: a path, glob or URL, also of compressed files; -: standard "
            "input. Repeatable: each is a group.",
            show_default=False,
        ),
    ] = None,
    text_field: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD",
            help="The texts are in this field of records (JSON lines, Parquet, Arrow), such as "
            "text or doc.text.",
            show_default=False,
        ),
    ] = None,
    sample: Annotated[
        bool,
        typer.Option(
            "--sample",
            help="Evaluate on a sample of the text of OUTPUT: up to 8 MiB, decoded from its token "
            "files.",
        ),
    ] = False,
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="GROUP",
            help="The group whose tokens per byte others are compared with.",
            show_default="the first",
        ),
    ] = None,
    as_json: Json = False,
    html: HtmlFile = None,
    storage_options: StorageOptions = None,
    debug: Debug = False,
) -> None:
    """Measure a tokenizer on counts or text, beside others."""
    with leave_at_once(), report_errors(debug):
        if (counts is not None) + bool(texts) + sample > 1:
            raise ConfigError(
                "It is not clear what to evaluate on.",
                expected="at most one of --counts, --text and --sample",
            )
        if text_field is not None and (not texts or "-" in texts):
            raise ConfigError(
                "Records are read from files.",
                expected="files by --text, with --text-field",
                found="standard input" if texts else "no --text",
            )
        check_page(html)
        from pipelines.analysis.evaluation import evaluate as measure
        from pipelines.analysis.evaluation_report import format_evaluation
        from pipelines.analysis.evaluation_sample import open_sample
        from pipelines.analysis.evaluation_texts import CountedText, EvaluationText, open_files
        from pipelines.counting.given import GivenCounts
        from pipelines.dataset.tokenizers import find_model, open_tokenizer
        from pipelines.exports.export import read_storage_options
        from pipelines.pages.evaluation import make_page
        from pipelines.tokenizers.files import make_tokenizer

        with display("reading tokenizers", brief=True):
            options = read_storage_options(storage_options)
            opened = {output: make_tokenizer(find_model(output, options))}
            opened |= {place: open_tokenizer(place) for place in others or []}
            text: EvaluationText
            if texts:
                text = open_files(texts, sys.stdin.buffer.read, text_field)
                for note in text.notes:
                    print_note(note)
            elif sample:
                text = open_sample(output, options)
            else:
                try:
                    given = GivenCounts.open(counts or output, options)
                except InputError as error:
                    error.hint = f"{error.hint} Or evaluate on text: --text FILE."
                    raise
                text = CountedText(given)
            found = measure(opened, text, reference)
        if html is not None:
            write_page(html, make_page(found))
        if as_json:
            print_json(found.to_json())
        else:
            print_result(format_evaluation(found))


def explain(
    output: OutputOrTokenizer,
    token: Annotated[
        str | None,
        typer.Argument(metavar="[TOKEN]", help="The text of the token.", show_default=False),
    ] = None,
    token_id: Annotated[
        int | None,
        typer.Option("--id", metavar="N", min=0, help="The token's id.", show_default=False),
    ] = None,
    token_bytes: Annotated[
        str | None,
        typer.Option(
            "--bytes", metavar="HEX", help="The token's bytes in hexadecimal.", show_default=False
        ),
    ] = None,
    limit: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, help="Maximum number of pre-tokens, or suspects, to show."
        ),
    ] = 10,
    suspects: Annotated[
        bool,
        typer.Option(
            "--suspects",
            help="List tokens that look like mistakes instead: those that encoding cannot reach, "
            "never or hardly uses, or that one source alone has.",
        ),
    ] = False,
    documents: Annotated[
        bool,
        typer.Option(
            "--documents/--no-documents",
            help="Count the documents that have the token. The first time, this reads all token "
            "files.",
        ),
    ] = True,
    storage_options: StorageOptions = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Explain a token: its merges, its pre-tokens and documents, its use."""
    with leave_at_once(), report_errors(debug):
        given = [option is not None for option in (token, token_id, token_bytes)]
        if sum([*given, suspects]) != 1:
            raise ConfigError(
                "It is not clear which token to explain.",
                expected="one of TOKEN, --id N, --bytes HEX and --suspects",
                hint="`beam-bpe explain --help` explains them.",
            )
        wanted = None if token_bytes is None else _parse_hex(token_bytes)
        with display(f"reading {output}", brief=True):
            from pipelines.analysis.explain import explain_token, find_token
            from pipelines.analysis.subjects import open_subject
            from pipelines.analysis.suspects import find_suspects
            from pipelines.exports.export import read_storage_options

            subject = open_subject(output, read_storage_options(storage_options))
            listed = find_suspects(subject) if suspects else None
        if listed is not None:
            if as_json:
                print_json(listed.to_json())
            else:
                typer.echo(listed.format(limit))
            return
        with display(f"reading {output}", brief=True):
            found = find_token(subject.model, text=token, token_id=token_id, token=wanted)
            explained = explain_token(subject, found, limit=limit, documents=documents)
        if as_json:
            print_json(explained.to_json())
        else:
            typer.echo(str(explained))


def why(
    output: OutputOrTokenizer,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text.", show_default=False)],
    ordinary: Annotated[
        bool, typer.Option("--ordinary", help="Encode special tokens in the text as ordinary text.")
    ] = False,
    storage_options: StorageOptions = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show why a text has its ids: its pre-tokens, and their merges step by step."""
    with leave_at_once(), report_errors(debug):
        from pipelines.analysis.subjects import open_subject
        from pipelines.analysis.why import explain_encoding
        from pipelines.exports.export import read_storage_options

        subject = open_subject(output, read_storage_options(storage_options))
        steps = explain_encoding(subject.model, text, ordinary=ordinary)
        if as_json:
            print_json(steps.to_json())
        else:
            typer.echo(str(steps))


def _parse_hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise ConfigError(
            "The bytes are not hexadecimal.",
            expected="two digits for each byte, such as 204c4f5244",
            found=f"{text}: {error}",
            where="--bytes",
        ) from None
