"""The process of a command: its child process, and its end by errors and interruptions."""

from __future__ import annotations

import faulthandler
import inspect
import logging
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from bpe_core.errors import BpeError
from pipelines import supervisor
from pipelines.choices import ProgressMode
from pipelines.cli.options import ProgressOption
from pipelines.console import progress
from pipelines.console.displays import print_event
from pipelines.console.terminal import visible
from pipelines.errors import (
    INTERRUPTED_EXIT_CODE,
    TERMINATED_EXIT_CODE,
    ConfigError,
    PipelineError,
    exit_code_of,
)

if TYPE_CHECKING:
    from pipelines.config import BuildConfig


_KEPT: Final = "Finished work is kept: run the same command again to continue."


@dataclass(kw_only=True)
class _Settings:
    """Settings of the output of this process's command."""

    progress: ProgressMode = "auto"


_SETTINGS: Final = _Settings()


def with_display(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of the display to a command."""
    signature = inspect.signature(command, eval_str=True)

    @wraps(command)
    def run(*arguments: Any, progress: ProgressMode, **options: Any) -> None:
        _SETTINGS.progress = progress
        command(*arguments, **options)

    parameter = inspect.Parameter(
        "progress", inspect.Parameter.KEYWORD_ONLY, default="auto", annotation=ProgressOption
    )
    parameters = [*signature.parameters.values(), parameter]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {found.name: found.annotation for found in parameters}
    return run


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
    with progress.shown(mode, first):
        yield


def enter_child(context: typer.Context, debug: bool) -> None:
    """Continue in a supervised child process; this one waits for it and exits with its code."""
    if not supervisor.in_child():
        code = supervisor.run_in_child(context.obj)
        if code == TERMINATED_EXIT_CODE:
            typer.echo(f"Terminated. {_KEPT}", err=True)
        raise typer.Exit(code)
    supervisor.enter_child()
    if debug:
        faulthandler.enable()


def silence_apitools_warning() -> None:
    """Silence the warning of Beam's import that a Google client is missing: nothing needs it."""
    logging.getLogger().addFilter(lambda record: "apitools not found" not in record.getMessage())


def load(config: Path, overrides: list[str] | None) -> BuildConfig:
    """Load a configuration file and apply overrides."""
    from pipelines.config import load_config

    return load_config(config, overrides or ())


def check_beam_options(options: Sequence[str]) -> None:
    """Check that all arguments after the configuration are options.

    Raises:
        ConfigError: the first is not.
    """
    if options and not options[0].startswith("--"):
        raise ConfigError(
            "The command line has one argument too many.",
            expected="one CONFIG, and Beam options such as --name=value after --",
            found=options[0],
            hint="Keys of the configuration are overridden with --set KEY=VALUE.",
        )


@contextmanager
def leave_at_once() -> Iterator[None]:
    """Exit with the block's code without finalizing Python.

    Threads of Arrow may still hold buffers: releasing one during finalization aborts the process.
    """
    code = 0
    try:
        yield
    except typer.Exit as end:
        code = end.exit_code
    supervisor.leave(code)


@contextmanager
def report_errors(debug: bool) -> Iterator[None]:
    """Turn errors into a message on stderr and an exit code, and note an orderly end."""
    try:
        yield
    except BpeError as error:
        if debug:
            traceback.print_exc()
        _say(f"error: {error}", error)
        raise typer.Exit(exit_code_of(error)) from None
    except KeyboardInterrupt as error:
        _say(str(error) or "Interrupted.", error)
        if supervisor.in_child():
            supervisor.leave(INTERRUPTED_EXIT_CODE)
        raise typer.Exit(INTERRUPTED_EXIT_CODE) from None
    except typer.Exit:
        raise
    except Exception:  # shown here, where credentials are redacted
        traceback.print_exc()
        raise typer.Exit(1) from None
    finally:
        supervisor.note_orderly_end()


def _say(text: str, error: BaseException) -> None:
    """Print a message about an error on standard error: as text, or as a line of JSON."""
    if _SETTINGS.progress != "json":
        typer.echo(visible(text), err=True)
        return
    parts = dict.fromkeys(("expected", "found", "where", "hint"))
    if isinstance(error, PipelineError):
        parts = {name: getattr(error, name) for name in parts}
    message = error.message if isinstance(error, PipelineError) else text
    print_event("error", message=message, **parts, exit_code=exit_code_of(error))
