"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from pipelines.quantities import BYTES, NUMBER, Quantity

# Each is a function of `pipelines.build`.
BuildCommand: TypeAlias = Literal["count", "train", "encode", "build", "add", "replay"]


def parse_number(text: str | int) -> int:
    """Return the value of an option that is a number, such as `32k`."""
    return _parse(NUMBER, text)


def parse_bytes(text: str | int) -> int:
    """Return the value of an option that is a size, such as `64MiB`."""
    return _parse(BYTES, text)


def _parse(kind: Quantity, text: str | int) -> int:
    if isinstance(text, int):  # a default, which typer parses too
        return text
    try:
        return kind.parse(str(text))  # typer parses defaults too
    except ValueError as error:
        raise typer.BadParameter(f"{error}; found {text!r}") from None


Config = Annotated[
    Path,
    typer.Argument(
        metavar="CONFIG",
        envvar="BEAM_BPE_CONFIG",
        help="Configuration file (YAML).",
        show_default=False,
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        envvar="BEAM_BPE_SET",
        help="Override a key of the configuration, such as encode.append=null. Repeatable.",
        show_default=False,
    ),
]
Restart = Annotated[
    bool, typer.Option("--restart", help="Discard the output of the stage and start again.")
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=0,
        envvar="BEAM_BPE_WORKERS",
        help="Number of workers, as beam.workers; 0: all cores.",
        show_default=False,
    ),
]
NoWait = Annotated[
    bool,
    typer.Option(
        "--no-wait",
        help="Submit the first pipeline that is needed, and exit. To continue later, run the "
        "command without it.",
    ),
]
TakeOver = Annotated[
    bool,
    typer.Option(
        "--take-over",
        help="Take the output over from an unfinished job of --no-wait, which can then write no "
        "more.",
    ),
]
Output = Annotated[
    str,
    typer.Argument(
        metavar="OUTPUT", help="The output of a build: a path or URL.", show_default=False
    ),
]
OutputOrTokenizer = Annotated[
    str,
    typer.Argument(
        metavar="OUTPUT",
        help="The output of a build; or a tokenizer: a directory or file of any format that "
        "`convert` reads, a URL, or hf://ORG/NAME@REVISION on the Hugging Face Hub.",
        show_default=False,
    ),
]
HtmlFile = Annotated[
    Path | None,
    typer.Option(
        "--html",
        metavar="FILE",
        help="Write a page, which needs no other files and no network.",
        show_default=False,
    ),
]
ConfigOfInputs = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="CONFIG",
        help="The configuration of the build, for the locations of the input files and their "
        "options.",
        show_default="where the build found them",
    ),
]
TokenizerOfOutput = Annotated[
    str | None,
    typer.Option(
        "--tokenizer",
        metavar="DIR",
        help="Directory of the tokenizer that encoded the dataset, if it is not in OUTPUT.",
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
Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
Debug = Annotated[
    bool, typer.Option("--debug", envvar="BEAM_BPE_DEBUG", help="Show tracebacks of errors.")
]
BeamOptions = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="BEAM_OPTIONS",
        help="After --: Beam pipeline options, which override beam.options.",
        show_default=False,
    ),
]
