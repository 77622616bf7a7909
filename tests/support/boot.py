"""Replacement for the boot program of Beam's container image, for workers of a pool in tests."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import grpc
from apache_beam.portability.api import beam_provision_api_pb2, beam_provision_api_pb2_grpc
from google.protobuf import json_format


def main() -> None:
    """Request the pipeline's options and become the worker."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--id", required=True)
    for endpoint in ("provision", "control", "logging", "artifact"):
        parser.add_argument(f"--{endpoint}_endpoint", default="")
    given, _ = parser.parse_known_args()
    channel = grpc.intercept_channel(
        grpc.insecure_channel(given.provision_endpoint), _WorkerId(given.id)
    )
    service = beam_provision_api_pb2_grpc.ProvisionServiceStub(channel)
    information = service.GetProvisionInfo(beam_provision_api_pb2.GetProvisionInfoRequest()).info
    os.environ["WORKER_ID"] = given.id
    os.environ["PIPELINE_OPTIONS"] = json_format.MessageToJson(information.pipeline_options)
    os.environ["RUNNER_CAPABILITIES"] = " ".join(information.runner_capabilities)
    for name, told in (
        ("CONTROL", given.control_endpoint or information.control_endpoint.url),
        ("LOGGING", given.logging_endpoint or information.logging_endpoint.url),
    ):
        os.environ[f"{name}_API_SERVICE_DESCRIPTOR"] = f'url: "{told}"'
    log = Path(os.environ["ENGINE_LOGS"]) / f"worker-{given.id}-{os.getpid()}.log"
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.execv(sys.executable, [sys.executable, "-m", "apache_beam.runners.worker.sdk_worker_main"])


class _WorkerId(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc]
    """Interceptor that adds the worker's id to each call."""

    def __init__(self, worker: str) -> None:
        self._worker = worker

    def intercept_unary_unary(self, continuation, details, request):  # type: ignore[no-untyped-def]
        return continuation(details._replace(metadata=[("worker_id", self._worker)]), request)


if __name__ == "__main__":
    main()
