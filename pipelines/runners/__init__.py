"""Everything specific to Beam's runners: making and running pipelines, and returning their errors.

`running` makes and runs pipelines, with the `options` of the configuration and the command line.
Each runner has a module with a `RunnerSpec`. `failures` returns errors of workers to the
launcher as they were raised.
"""

from pipelines.runners.failures import FAILURE
from pipelines.runners.options import check_waits, options_of, workers_of
from pipelines.runners.running import distribute, pipeline, share, submit

__all__ = [
    "FAILURE",
    "check_waits",
    "distribute",
    "options_of",
    "pipeline",
    "share",
    "submit",
    "workers_of",
]
