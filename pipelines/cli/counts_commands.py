"""`beam-bpe counts`: commands that combine counts, and show what they contain."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.choices import CountsFormat
from pipelines.cli.options import Debug, Json, StorageOptions, parse_number
from pipelines.cli.output import display, print_json, print_result
from pipelines.cli.process import closed_pipe_accepted, leave_at_once, report_errors
from pipelines.errors import ConfigError, shortened

if TYPE_CHECKING:
    from pipelines.analysis.counts import CountsTable, Difference
    from pipelines.counting.algebra import Operation
    from pipelines.counting.given import GivenCounts

_NAMES_SHOWN = 12
_WHAT = (
    "The output of a build with finished counts, its directory of counts, or a .parquet file: a "
    "path or URL."
)
Counts = Annotated[str, typer.Argument(metavar="COUNTS", help=_WHAT, show_default=False)]
ManyCounts = Annotated[list[str], typer.Argument(metavar="COUNTS…", help=_WHAT, show_default=False)]
Destination = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        metavar="DIR_OR_FILE",
        help="Where to write the result: an output, whose directory counts/ gets the shards, or a "
        "single file NAME.parquet.",
        show_default=False,
    ),
]
Shards = Annotated[
    int | None,
    typer.Option(
        "--shards",
        metavar="N",
        min=1,
        max=65536,
        help="Number of shards in an output.",
        show_default="the largest of the counts",
    ),
]
Limit = Annotated[
    int, typer.Option("-n", "--limit", metavar="N", min=0, help="Maximum number of pre-tokens.")
]


def merge(
    counts: ManyCounts,
    output: Destination,
    shards: Shards = None,
    storage_options: StorageOptions = None,
    debug: Debug = False,
) -> None:
    """Add up counts: the result equals a count of all texts together."""
    with leave_at_once(), report_errors(debug):
        from pipelines.counting.algebra import MERGE

        _combine(counts, MERGE, output, shards, storage_options)


def subtract(
    counts: Counts,
    parts: Annotated[
        list[str],
        typer.Argument(
            metavar="PART…", help="Counts of parts of the same text.", show_default=False
        ),
    ],
    output: Destination,
    shards: Shards = None,
    storage_options: StorageOptions = None,
    debug: Debug = False,
) -> None:
    """Subtract the counts of parts of a text."""
    with leave_at_once(), report_errors(debug):
        from pipelines.counting.algebra import SUBTRACT

        _combine([counts, *parts], SUBTRACT, output, shards, storage_options)


def scale(
    counts: Counts,
    factor: Annotated[
        str,
        typer.Option(
            "--by", metavar="NUMBER", help="Factor, such as 0.3, 1/3 or 2.", show_default=False
        ),
    ],
    output: Destination,
    shards: Shards = None,
    storage_options: StorageOptions = None,
    debug: Debug = False,
) -> None:
    """Multiply counts by a number: exactly, rounded to integers, halves to even."""
    with leave_at_once(), report_errors(debug):
        from pipelines.counting.algebra import Operation

        exact = _parse_fraction(factor)
        operation = Operation(
            name="scale",
            combine=lambda parts: parts[0] * exact,
            arguments={"factor": str(exact)},
        )
        _combine([counts], operation, output, shards, storage_options)


def prune(
    counts: Counts,
    min_count: Annotated[
        int,
        typer.Option(
            "--min-count",
            metavar="N",
            parser=parse_number,
            help="Least number of occurrences of the pre-tokens that stay.",
            show_default=False,
        ),
    ],
    output: Destination,
    shards: Shards = None,
    storage_options: StorageOptions = None,
    debug: Debug = False,
) -> None:
    """Leave out rare pre-tokens."""
    with leave_at_once(), report_errors(debug):
        from pipelines.counting.algebra import Operation

        operation = Operation(
            name="prune",
            combine=lambda parts: parts[0].prune(min_count),
            arguments={"min_count": min_count},
        )
        _combine([counts], operation, output, shards, storage_options)


def filter(  # the name of the command
    counts: Counts,
    output: Destination,
    script: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Script of Unicode, such as Latin or Han, of which there is a character.",
            show_default=False,
        ),
    ] = None,
    regex: Annotated[
        str | None,
        typer.Option(
            metavar="RE",
            help="Regular expression (RE2) that matches somewhere; with ^ and $ all of it.",
            show_default=False,
        ),
    ] = None,
    min_bytes: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Least length.", show_default=False)
    ] = None,
    max_bytes: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Greatest length.", show_default=False)
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Counts of this source alone.", show_default=False),
    ] = None,
    value: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Counts of this value of counts.group_by.", show_default=False
        ),
    ] = None,
    shards: Shards = None,
    storage_options: StorageOptions = None,
    debug: Debug = False,
) -> None:
    """Keep the pre-tokens that fulfill all conditions."""
    with leave_at_once(), report_errors(debug):
        from pipelines.counting.algebra import Operation

        conditions = {
            "script": script,
            "regex": regex,
            "min_bytes": min_bytes,
            "max_bytes": max_bytes,
            "source": source,
            "value": value,
        }
        given = {name: value for name, value in conditions.items() if value is not None}
        operation = Operation(
            name="filter",
            combine=lambda parts: parts[0].filter(**given),  # type: ignore[arg-type]
            arguments=given,
            source=source,
            value=value,
        )
        _combine([counts], operation, output, shards, storage_options)


def top(
    counts: Counts,
    limit: Limit = 20,
    storage_options: StorageOptions = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the most frequent pre-tokens."""
    with leave_at_once(), report_errors(debug):
        with display(f"reading {counts}", brief=True):
            from pipelines.analysis.counts import find_top

            (given,) = _open([counts], storage_options)
            found = find_top(given, limit)
        _print(found, as_json)


def diff(
    counts: Counts,
    other: Annotated[str, typer.Argument(metavar="OTHER", help=_WHAT, show_default=False)],
    limit: Limit = 20,
    storage_options: StorageOptions = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the pre-tokens whose shares of two corpora differ most."""
    with leave_at_once(), report_errors(debug):
        with display(f"reading {counts}", brief=True), _alike("compare"):
            from pipelines.analysis.counts import find_difference

            one, second = _open([counts, other], storage_options)
            found = find_difference(one, second, limit)
        _print(found, as_json)


def show(
    counts: Counts,
    pretokens: Annotated[
        list[str],
        typer.Argument(
            metavar="PRETOKEN…",
            help="Pre-tokens as text, with their leading spaces.",
            show_default=False,
        ),
    ],
    storage_options: StorageOptions = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the counts of pre-tokens, by group and with documents if these were counted."""
    with leave_at_once(), report_errors(debug):
        with display(f"reading {counts}", brief=True):
            from pipelines.analysis.counts import look_up_pretokens

            (given,) = _open([counts], storage_options)
            found = look_up_pretokens(given, [text.encode() for text in pretokens])
        _print(found, as_json)


def export(
    counts: Counts,
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
        from pipelines.counting.words import write_words

        (given,) = _open([counts], storage_options)
        found = write_words(given, to, sys.stdout.buffer, most=words)
        sys.stdout.buffer.flush()
        typer.echo(str(found), err=True)


def _open(urls: Sequence[str], storage_options: str | None) -> list[GivenCounts]:
    from pipelines.counting.given import GivenCounts
    from pipelines.exports.export import read_storage_options

    options = read_storage_options(storage_options)
    return [GivenCounts.open(url, options) for url in urls]


def _combine(
    urls: Sequence[str],
    operation: Operation,
    output: str,
    shards: int | None,
    storage_options: str | None,
) -> None:
    with display(f"reading {urls[0]}", brief=True), _alike(operation.name):
        from pipelines.counting.algebra import combine_to_file, combine_to_output
        from pipelines.exports.export import output_directory

        counts = _open(urls, storage_options)
        _check_group(counts[0], operation)
        if output.endswith(".parquet"):
            if shards is not None:
                raise ConfigError(
                    "A single file has no shards.",
                    expected="a directory as --output, or no --shards",
                    found=output,
                )
            parent, _, name = output.rpartition("/")
            directory = output_directory(parent or ".", storage_options)
            directory.create()
            entry = combine_to_file(counts, operation, directory, name)
            rows, total = entry["rows"], entry["pretokens"]
        else:
            directory = output_directory(output, storage_options)
            manifest = combine_to_output(counts, operation, directory, shards)
            rows, total = manifest.totals.distinct_pretokens, manifest.totals.pretokens
    print_result(f"counts: {rows:,} distinct pre-tokens, {total:,} in all, in {output}")


@contextmanager
def _alike(operation: str) -> Iterator[None]:
    """Replace errors of arguments that do not fit together."""
    from bpe_core.errors import TrainingError

    try:
        yield
    except TrainingError as error:
        raise ConfigError(
            f"It is not possible to {operation} these counts so.", found=str(error)
        ) from None


def _check_group(counts: GivenCounts, operation: Operation) -> None:
    """Check that counts have the source and value that an operation keeps."""
    from pipelines.config.validation import did_you_mean

    groups = counts.empty.groups
    for key, wanted in (("source", operation.source), ("value", operation.value)):
        known = sorted({str(name) for group in groups if (name := getattr(group, key)) is not None})
        if wanted is None or wanted in known:
            continue
        if not known:
            raise ConfigError(
                f"The counts are not kept apart by {key}.",
                expected="counts of several sources, or by counts.group_by",
                where=counts.url,
                hint="Count the corpus so: docs/counts.md.",
            )
        raise ConfigError(
            f"The counts have no such {key}.",
            expected=f"one of {shortened(known, _NAMES_SHOWN)}",
            found=wanted,
            where=f"--{key}",
            hint=did_you_mean(wanted, known),
        )


def _parse_fraction(text: str) -> Fraction:
    try:
        factor = Fraction(text)
        if factor < 0:
            raise ValueError
        return factor
    except (ValueError, ZeroDivisionError):
        raise ConfigError(
            "The factor is not a number of at least 0.",
            expected="a number such as 0.3, 1/3 or 2",
            found=text,
            where="--by",
        ) from None


def _print(found: CountsTable | Difference, as_json: bool) -> None:
    if as_json:
        print_json(found.to_json())
    else:
        typer.echo(str(found))
