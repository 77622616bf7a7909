"""Entry point of local Beam worker processes; filters log messages that do not concern the user.

    python -m pipelines.worker_process apache_beam.runners.worker.sdk_worker_main

Run directly, Beam's module warns about packages that are not needed here, logs that it logs, prints
errors that the launcher reports, and prints a traceback on Ctrl-C.
"""

from __future__ import annotations

import logging
import runpy
import signal
import sys
import warnings
from typing import Final

_IRRELEVANT: Final = ("apitools not found", "Logging handler created.")


def main() -> None:
    """Run the module named on the command line as the main module of this process."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the launcher reports the interruption
    for name in (None, "__main__"):
        logging.getLogger(name).addFilter(_is_relevant)
    from pipelines.runners.failures import keep_errors_for_the_caller  # imports Beam, which warns

    keep_errors_for_the_caller()
    # The module is already imported, which is harmless.
    warnings.filterwarnings("ignore", ".* found in sys.modules", RuntimeWarning)
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)


def _is_relevant(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(_IRRELEVANT)


if __name__ == "__main__":
    main()
