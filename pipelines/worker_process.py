"""Begins a worker of Beam that is a process of the command's: what it says is only what matters.

    python -m pipelines.worker_process apache_beam.runners.worker.sdk_worker_main

Beam's module, run by itself, warns of packages that nothing here needs, tells that it logs, shows
errors that the command is to show, and a traceback of wherever Ctrl-C found it.
"""

from __future__ import annotations

import logging
import runpy
import signal
import sys
import warnings
from typing import Final

_OF_NO_USE: Final = ("apitools not found", "Logging handler created.")


def main() -> None:
    """Runs the module that the command line names, as this process's main one."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the command says that it was interrupted
    for name in (None, "__main__"):
        logging.getLogger(name).addFilter(_is_of_use)
    from pipelines.runners.failures import keep_errors_for_the_caller  # imports Beam, which warns

    keep_errors_for_the_caller()
    # The module was imported just now, and is run by itself nevertheless.
    warnings.filterwarnings("ignore", ".* found in sys.modules", RuntimeWarning)
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)


def _is_of_use(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(_OF_NO_USE)


if __name__ == "__main__":
    main()
