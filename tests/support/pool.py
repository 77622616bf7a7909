"""Beam's pool of worker processes, changed so that all TaskManagers of a machine can share it.

They give their workers the same names, and Beam's pool ends a worker by its name: that of one
TaskManager when another is done with its own. Here workers end by themselves, when whoever asked
for them closes their connection.
"""

from __future__ import annotations

import sys
from typing import Any

from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.worker import worker_pool_main


def stop_worker(*_: Any) -> beam_fn_api_pb2.StopWorkerResponse:
    """Do not stop the worker."""
    return beam_fn_api_pb2.StopWorkerResponse()


if __name__ == "__main__":
    worker_pool_main.BeamFnExternalWorkerPoolServicer.StopWorker = stop_worker
    worker_pool_main.main(sys.argv)
