"""The process of a command: its child, how errors and interruptions end it."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from bpe_core.errors import BpeError
from pipelines import supervisor
from pipelines.console.terminal import visible
from pipelines.errors import INTERRUPTED_EXIT_CODE, TERMINATED_EXIT_CODE, ConfigError, exit_code_of

if TYPE_CHECKING:
    from pipelines.config import BuildConfig


_KEPT = "What is finished is kept: run the same command again to go on."


def enter_child(context: typer.Context, debug: bool) -> None:
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


def silence_apitools_warning() -> None:
    """On import Beam warns that a Google client is missing, which nothing here needs."""
    import logging

    logging.getLogger().addFilter(lambda record: "apitools not found" not in record.getMessage())


def load(config: Path, overrides: list[str] | None) -> BuildConfig:
    """Return the configuration of a file, with overrides."""
    from pipelines.config import load_config

    return load_config(config, overrides or ())


def check_beam_options(options: Sequence[str]) -> None:
    """Check that what follows the configuration are options."""
    if options and not options[0].startswith("--"):
        raise ConfigError(
            "The command line has an argument too many.",
            expected="one CONFIG, and Beam options such as --name=value after --",
            found=options[0],
            hint="Keys of the configuration are overridden with --set KEY=VALUE.",
        )


@contextmanager
def leave_at_once() -> Iterator[None]:
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
def report_errors(debug: bool) -> Iterator[None]:
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
