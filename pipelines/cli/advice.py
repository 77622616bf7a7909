"""Advice for command lines that cannot be parsed."""

from __future__ import annotations

import re
from collections.abc import Mapping
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
_FORMATS: Final = "Token files are Parquet already; `documents` and `packed` are Parquet, too."


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
    if "--to" in names and re.search(
        r"'(parquet|hf|datasets|huggingface)' is not one", error.message
    ):
        return _FORMATS if context.command.name == "export" else ""
    return ""


def _advise_key(option: str) -> str:
    """Return advice for an option with the name of a key of the configuration, or ""."""
    from pipelines.config.build import known_keys

    name = option.strip("-").replace("-", "_")
    keys = [".".join(path) for path in known_keys() if path[-1] == name]
    return f"It is a key of the configuration: --set {keys[0]}=VALUE." if keys else ""
