"""Output of a command besides its result: progress, messages, errors, the log."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final

import typer

from bpe_core.errors import BpeError
from bpe_core.visible_text import visible
from pipelines import supervisor
from pipelines.choices import ProgressMode
from pipelines.console import progress
from pipelines.console.displays import Display, print_event
from pipelines.console.log import Log
from pipelines.errors import ConfigError, OutputError, PipelineError, exit_code_of

_PANEL: Final = "Messages"
_Progress = Annotated[
    ProgressMode,
    typer.Option(
        "--progress",
        envvar="BEAM_BPE_PROGRESS",
        rich_help_panel=_PANEL,
        help="How progress is shown: a bar, a plain line every 10 seconds, or JSON lines, all on "
        "standard error. auto: a bar on a terminal, lines elsewhere.",
    ),
]
_Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        envvar="BEAM_BPE_QUIET",
        rich_help_panel=_PANEL,
        help="Print errors only, and what a command is asked to show.",
    ),
]
_Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        envvar="BEAM_BPE_VERBOSE",
        rich_help_panel=_PANEL,
        help="Show the log on standard error, instead of a bar.",
    ),
]
_LogFile = Annotated[
    Path | None,
    typer.Option(
        "--log",
        metavar="FILE",
        envvar="BEAM_BPE_LOG",
        rich_help_panel=_PANEL,
        help="Append progress, warnings and errors to a file, with times.",
        show_default=False,
    ),
]


@dataclass(kw_only=True)
class _Settings:
    """Settings of the output of this process's command."""

    progress: ProgressMode = "auto"
    quiet: bool = False
    logs: tuple[Log, ...] = ()


_SETTINGS: Final = _Settings()
_OPTIONS: Final[Mapping[str, tuple[Any, object]]] = {
    "progress": (_Progress, "auto"),
    "quiet": (_Quiet, False),
    "verbose": (_Verbose, False),
    "log": (_LogFile, None),
}


def with_output(
    command: Callable[..., None], *, shows_progress: bool = True
) -> Callable[..., None]:
    """Add the options of the output to a command.

    Args:
        command: The command.
        shows_progress: False for a command that prints its result while it works.
    """
    signature = inspect.signature(command, eval_str=True)
    added = {
        name: given for name, given in _OPTIONS.items() if shows_progress or name != "progress"
    }

    @wraps(command)
    def run(
        *arguments: Any,
        progress: ProgressMode = "none",
        quiet: bool,
        verbose: bool,
        log: Path | None,
        **options: Any,
    ) -> None:
        try:
            _set_up(progress, quiet=quiet, verbose=verbose, log=log)
        except OutputError as error:
            print_error(f"error: {error}", error)
            raise typer.Exit(exit_code_of(error)) from None
        command(*arguments, **options)

    parameters = [
        *signature.parameters.values(),
        *(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
            )
            for name, (annotation, default) in added.items()
        ),
    ]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {found.name: found.annotation for found in parameters}
    return run


def reset() -> None:
    """Forget the settings of an earlier command in this process."""
    for handler in _SETTINGS.logs:
        logging.getLogger().removeHandler(handler)
    _SETTINGS.progress, _SETTINGS.quiet, _SETTINGS.logs = "auto", False, ()


def _set_up(mode: ProgressMode, *, quiet: bool, verbose: bool, log: Path | None) -> None:
    places = ([None] if verbose else []) + ([log] if log is not None else [])
    _SETTINGS.quiet = quiet
    _SETTINGS.progress = "none" if mode == "auto" and (quiet or verbose) else mode
    _SETTINGS.logs = tuple(map(Log, places))
    root = logging.getLogger()
    for handler in _SETTINGS.logs:
        root.addHandler(handler)
    if log is not None and not verbose and logging.lastResort is not None:
        root.addHandler(logging.lastResort)  # warnings also stay on standard error


@contextmanager
def display(first: str, *, brief: bool = False) -> Iterator[None]:
    """Show the progress of the command while the block runs.

    Args:
        first: What the command does first.
        brief: True if the work is so short that only a terminal shows it.
    """
    mode = _SETTINGS.progress
    if brief and mode in ("auto", "plain"):
        mode = "bar" if mode == "auto" and progress.has_terminal() else "none"
    logs: tuple[Display, ...] = _SETTINGS.logs
    with progress.shown(mode, first, logs, announced=supervisor.in_child()):
        yield


def announce(first: str) -> None:
    """Show what a child process will do first."""
    progress.announce(_SETTINGS.progress, first)


def is_quiet() -> bool:
    """Return True if only errors are to be printed."""
    return _SETTINGS.quiet


def print_result(text: str) -> None:
    """Print the result of a command, unless only errors are wanted."""
    if not _SETTINGS.quiet:
        typer.echo(visible(text))


def check_page(path: Path | None) -> None:
    """Check that a page can be written, before the work for it.

    Raises:
        ConfigError: Its directory does not exist.
    """
    if path is not None and not path.absolute().parent.is_dir():
        raise ConfigError(
            "The page cannot be written.",
            expected="an existing directory",
            found=str(path.parent),
            where="--html",
        )


def write_page(path: Path, text: str) -> None:
    """Write a page of HTML.

    Raises:
        OutputError: It cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise OutputError(
            "The page cannot be written.", found=str(error), where=str(path)
        ) from None


def print_note(text: str) -> None:
    """Print what a user should know besides the result on standard error, and log it."""
    log(text, "WARNING")
    if not _SETTINGS.quiet:
        typer.echo(visible(f"note: {text}"), err=True)


def print_json(value: Any) -> None:
    """Print the result of a command as one line of JSON."""
    typer.echo(json.dumps(value, ensure_ascii=False))


def log(text: str, level: str = "INFO") -> None:
    """Write a text to the log, if there is one."""
    for one in _SETTINGS.logs:
        one.add(text, level)


def print_error(text: str, error: BpeError) -> None:
    """Print a message about an error on standard error, as text or as a line of JSON."""
    parts = error.to_json() if isinstance(error, PipelineError) else {}
    print_end(text, exit_code_of(error), parts)


def print_end(
    text: str, exit_code: int, parts: Mapping[str, str | int | None] = MappingProxyType({})
) -> None:
    """Print why a command ends early on standard error, as text or as a line of JSON.

    Args:
        text: Message.
        exit_code: Exit code of the command.
        parts: Parts of the message.
    """
    for one in _SETTINGS.logs:
        if one.has_file:  # else it would be there twice
            one.add(text, "ERROR")
    if _SETTINGS.progress != "json":
        typer.echo(visible(text), err=True)
        return
    empty = dict.fromkeys(("expected", "found", "where", "hint"))
    print_event("error", **{"message": text, **empty, "exit_code": exit_code, **parts})
