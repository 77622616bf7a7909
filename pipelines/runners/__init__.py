"""All knowledge of Beam's runners: how a pipeline is made, run, and how its errors come back.

`running` makes pipelines and runs them, with `options` of the configuration and of the command.
What is particular to a runner is in a module of its name, as a `Kind`. `failures` brings errors of
workers back as they were raised.
"""

from pipelines.runners.failures import FAILURE
from pipelines.runners.options import check_waits, options_of, workers_of
from pipelines.runners.running import deal, pipeline, submit

__all__ = [
    "FAILURE",
    "check_waits",
    "deal",
    "options_of",
    "pipeline",
    "submit",
    "workers_of",
]
