"""Advice for command lines that cannot be parsed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

# Options of other programs, and those of this one with the same effect.
_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "--format": ("--to",),
    "--force": ("--restart",),
    "--overwrite": ("--restart",),
    "--jobs": ("--workers",),
    "--threads": ("--workers",),
    "-j": ("--workers",),
}
_ARGUMENTS: Final[Mapping[str, str]] = {
    "tokenize": "The text is read from standard input: "
    "echo 'Some text' | beam-bpe tokenize TOKENIZER.",
}
_PARQUET: Final = "Token files are Parquet already; `documents` and `packed` are Parquet, too."
# By the command and the format that was asked for.
_FORMATS: Final[Mapping[tuple[str, str], str]] = {
    **{("export", name): _PARQUET for name in ("parquet", "hf", "huggingface", "datasets")},
    **{("convert", name): "Did you mean huggingface?" for name in ("hf", "json", "transformers")},
}


def advise(context: Any, error: Any) -> str:
    """Return advice for a wrong command line, or "".

    Args:
        context: Context of the command.
        error: Error of the parser.
    """
    option = getattr(error, "option_name", None)
    names = {name for parameter in context.command.params for name in parameter.opts}
    if option is not None:
        ours = [name for name in _OPTIONS.get(option, ()) if name in names]
        if ours:
            return f"Did you mean {ours[0]}?"
        return _advise_key(option) if "--set" in names else ""
    if error.message.startswith("Got unexpected extra argument"):
        return _ARGUMENTS.get(context.command.name, "")
    if getattr(getattr(error, "param", None), "name", None) == "config" and not error.message:
        return _advise_configuration(context.command.name)
    wanted = re.match(r"'(\w+)' is not one of", error.message.removeprefix("Value error, "))
    return "" if wanted is None else _FORMATS.get((context.command.name, wanted[1].lower()), "")


def _advise_configuration(command: str) -> str:
    """Return advice for a command line without a configuration."""
    found = sorted(path for kind in ("*.yaml", "*.yml") for path in Path().glob(kind))
    if len(found) == 1:
        return f"Did you mean: beam-bpe {command} {shlex.quote(str(found[0]))}?"
    return "" if found else "`beam-bpe init FILES` writes one."


def _advise_key(option: str) -> str:
    """Return advice for an option with the name of a key of the configuration, or ""."""
    from pipelines.config.build import known_keys

    name = option.strip("-").replace("-", "_")
    keys = [".".join(path) for path in known_keys() if path[-1] == name]
    return f"It is a key of the configuration: --set {keys[0]}=VALUE." if keys else ""
