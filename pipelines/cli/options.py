"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

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
