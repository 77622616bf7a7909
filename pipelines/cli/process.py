"""The process of a command: its child process, and its end by errors and interruptions."""

from __future__ import annotations

import faulthandler
import os
import re
import shlex
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from bpe_core.errors import BpeError
from pipelines import supervisor
from pipelines.cli.output import announce, log, print_end, print_error
from pipelines.errors import (
    INTERRUPTED_EXIT_CODE,
    TERMINATED_EXIT_CODE,
    ConfigError,
    PipelineError,
    exit_code_of,
)

if TYPE_CHECKING:
    from pipelines.config import BuildConfig


_COMMAND: Final = re.compile(r"(\bbeam-bpe \w+) CONFIG\b")
_KEPT: Final = "Finished work is kept: run the same command again to continue."


def enter_child(context: typer.Context, debug: bool, first: str) -> None:
    """Continue in a supervised child process; this one waits for it and exits with its code.

    Args:
        context: Context of the command.
        debug: True to print the stack if the child crashes.
        first: What the child does first, shown before it starts.
    """
    if not supervisor.in_child():
        announce(first)
        code = supervisor.run_in_child(
            context.obj, lambda: print_end(f"Interrupted at once. {_KEPT}", INTERRUPTED_EXIT_CODE)
        )
        if code == TERMINATED_EXIT_CODE:
            print_end(f"Terminated. {_KEPT}", code)
        raise typer.Exit(code)
    supervisor.enter_child()
    leave_out_pandas()
    if debug:
        faulthandler.enable()


def load(config: Path, overrides: list[str] | None) -> BuildConfig:
    """Load a configuration file and apply overrides."""
    from pipelines.config import load_config

    loaded = load_config(config, overrides or ())
    keys = ", ".join(text.partition("=")[0] for text in overrides or ())  # values may be secret
    log(f"configuration {config}" + (f", with --set of {keys}" if keys else ""))
    return loaded


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
    leave_out_pandas()
    try:
        yield
    except typer.Exit as end:
        code = end.exit_code
    supervisor.leave(code)


def leave_out_pandas() -> None:
    """Keep pyarrow from importing pandas, which takes longer than most commands.

    pyarrow looks for pandas when it makes its first value, and again when it makes a data frame:
    with an error the first time, it does without. Others can import pandas as before.
    """
    import pyarrow as pa  # takes long to import

    absent = _AbsentPandas()
    sys.meta_path.insert(0, absent)
    try:
        pa.scalar(0)
    finally:
        sys.meta_path.remove(absent)


class _AbsentPandas(MetaPathFinder):
    """Finder of modules for which pandas is not installed."""

    def find_spec(self, fullname: str, *_: object) -> None:
        """Refuse to find pandas."""
        if fullname == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name=fullname)


@contextmanager
def closed_pipe_accepted() -> Iterator[None]:
    """End without a message if the reader of standard output has ended, such as `head`."""
    try:
        yield
    except BrokenPipeError:
        # What is buffered cannot be written either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def report_errors(debug: bool, config: Sequence[str] = ()) -> Iterator[None]:
    """Turn errors into a message on stderr and an exit code, and note an orderly end.

    Args:
        debug: True to show the traceback of an error, too.
        config: Words of the command line that stand for CONFIG in the commands of messages.
    """
    try:
        yield
    except BpeError as error:
        if debug:
            traceback.print_exc()
        if isinstance(error, PipelineError) and error.hint is not None and config:
            given = shlex.join(config)
            error.hint = _COMMAND.sub(lambda found: f"{found[1]} {given}", error.hint)
        print_error(f"error: {error}", error)
        raise typer.Exit(exit_code_of(error)) from None
    except KeyboardInterrupt as error:
        print_end(str(error) or "Interrupted.", INTERRUPTED_EXIT_CODE)
        if supervisor.in_child():
            supervisor.leave(INTERRUPTED_EXIT_CODE)
        raise typer.Exit(INTERRUPTED_EXIT_CODE) from None
    except typer.Exit:
        raise
    except Exception:  # shown here, where credentials are redacted
        traceback.print_exc()
        log(traceback.format_exc(), "ERROR")
        raise typer.Exit(1) from None
    finally:
        supervisor.note_orderly_end()
