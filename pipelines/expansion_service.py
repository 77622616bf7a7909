"""Expansion service: the row transforms for pipelines written in Java, Go or Python.

::

    python -m pipelines.expansion_service --port=8097 --serve_workers

A pipeline in another process requests the expansion of `pipelines.row_transforms.EncodeDocuments`
or another of `TRANSFORMS`, and receives a part of its own pipeline that runs on Python workers.
These are this process (`--serve_workers`), or the environment given by Beam's `--environment_type`
and `--environment_config`: an image with this package, or a pool of workers.

Beam's own service accepts a glob of names, resolves attributes by name, and unpickles the content
of requests, so anyone who reaches its port can run code. This service expands only its own
transforms, accepts only requests that contain plain data, and listens on this machine only unless
`--host` is given.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import grpc
from apache_beam.coders import RowCoder
from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions
from apache_beam.portability import common_urns
from apache_beam.portability.api import (
    beam_artifact_api_pb2_grpc,
    beam_expansion_api_pb2,
    beam_expansion_api_pb2_grpc,
    beam_fn_api_pb2_grpc,
    beam_runner_api_pb2,
    external_transforms_pb2,
)
from apache_beam.runners.portability import artifact_service, expansion_service
from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer
from apache_beam.transforms.fully_qualified_named_transform import (
    PYTHON_FULLY_QUALIFIED_NAMED_TRANSFORM_URN,
    FullyQualifiedNamedTransform,
)
from apache_beam.utils import thread_pool_executor

from bpe_core.errors import BpeError
from pipelines import row_transforms, supervisor
from pipelines.beam.row_bytes import check_row
from pipelines.errors import ConfigError, PipelineError

# Fully qualified names.
TRANSFORMS: Final = frozenset(
    f"{row_transforms.__name__}.{name}" for name in row_transforms.TRANSFORMS
)
LOOPBACK_HOSTS: Final = ("127.0.0.1", "::1", "localhost")
_SECONDS_TO_STOP: Final = 5.0
_SECONDS_BETWEEN_SIGNALS: Final = 0.5

# Placeholders for the producers of the inputs in the requests of all SDKs.
_PRODUCERS: Final = frozenset({"", common_urns.primitives.IMPULSE.urn})


class ExpansionService(expansion_service.ExpansionServiceServicer):  # type: ignore[misc]
    """Service that expands `TRANSFORMS` and refuses requests that could run any other code.

    Args:
        options: options of Beam; their environment runs the transforms.
    """

    def Expand(  # noqa: N802
        self, request: beam_expansion_api_pb2.ExpansionRequest, context: Any = None
    ) -> beam_expansion_api_pb2.ExpansionResponse:
        """Return the requested expansion, or an error with its reason."""
        try:
            safe = check_request(request)
        except PipelineError as refused:
            return beam_expansion_api_pb2.ExpansionResponse(error=str(refused))
        response = super().Expand(safe, context)
        # Beam returns a traceback, but our errors need none.
        ours = "|".join(map(re.escape, sorted(_list_error_names(BpeError))))
        *_, last = [None, *re.finditer(rf"^(?:{ours}): ", response.error, re.MULTILINE)]
        if last is not None:
            response.error = response.error[last.end() :].rstrip("\n")
        return response


def _list_error_names(error: type[BaseException]) -> set[str]:
    """Return the names of an error and all its subclasses as in tracebacks."""
    kinds = {name for kind in error.__subclasses__() for name in _list_error_names(kind)}
    return {f"{error.__module__}.{error.__qualname__}", *kinds}


def check_request(
    request: beam_expansion_api_pb2.ExpansionRequest,
) -> beam_expansion_api_pb2.ExpansionRequest:
    """Return the request without unneeded parts, so that decoding it runs no code of the sender.

    Raises:
        ConfigError: the request contains pickled coders or functions, names a transform that is not
            in `TRANSFORMS`, or has parameters that are not plain values.
    """
    safe = beam_expansion_api_pb2.ExpansionRequest()
    safe.CopyFrom(request)
    # The transforms know the types of their outputs; Python SDKs request pickled objects instead.
    safe.ClearField("output_coder_requests")
    producers = {producer.spec.urn for producer in request.components.transforms.values()}
    if (
        request.transform.spec.urn != PYTHON_FULLY_QUALIFIED_NAMED_TRANSFORM_URN
        or not producers <= _PRODUCERS
        or not _keep_used_coders(safe.components)
        or b"pickled_python" in safe.components.SerializeToString()
    ):
        raise ConfigError(
            "The request is refused: decoding it could run code of its sender.",
            expected=f"one transform of the type {PYTHON_FULLY_QUALIFIED_NAMED_TRANSFORM_URN}, "
            "and inputs whose elements have a schema or a standard coder",
            found=f"one of the type {request.transform.spec.urn}, with inputs from "
            + (", ".join(sorted(filter(None, producers))) or "nowhere"),
            hint="Pass rows with a schema, such as beam.Row with declared types.",
        )
    _check_parameters(request.transform.spec.payload)
    return safe


def _keep_used_coders(components: beam_runner_api_pb2.Components) -> bool:
    """Remove coders that no collection uses, such as a pickled one that Python always sends.

    Return False if a used one is missing: Beam unpickles the id of a coder that it does not find.
    """
    needed = [collection.coder_id for collection in components.pcollections.values()]
    needed += [strategy.window_coder_id for strategy in components.windowing_strategies.values()]
    used: set[str] = set()
    while needed:
        coder_id = needed.pop()
        if coder_id not in components.coders:
            return False
        if coder_id not in used:
            used.add(coder_id)
            needed += components.coders[coder_id].component_coder_ids
    for coder_id in set(components.coders) - used:
        del components.coders[coder_id]
    return True


def _check_parameters(payload: bytes) -> None:
    values = _decode(external_transforms_pb2.ExternalConfigurationPayload.FromString, payload)
    # Logical types are created from their representation by code, in some cases by evaluating it.
    if "logical_type" in str(values.schema):
        raise ConfigError(
            "The request is refused: a parameter is not a plain value.",
            expected="strings, numbers, booleans, or lists, mappings and rows of these",
            found="a logical type",
            hint="Pass mappings with values of several types as rows.",
        )
    name = getattr(_decode(_row_decoder(values.schema), values.payload), "constructor", None)
    if not isinstance(name, str) or name not in TRANSFORMS:
        raise ConfigError(
            "The request is refused: unknown transform.",
            expected="one of " + ", ".join(sorted(TRANSFORMS)),
            found=repr(name),
        )


def _row_decoder(schema: Any) -> Callable[[bytes], Any]:
    def decode(data: bytes) -> Any:
        check_row(schema, data)
        return RowCoder(schema).decode(data)

    return decode


def _decode(decode: Callable[[bytes], Any], data: bytes) -> Any:
    try:
        return decode(data)
    except Exception as error:  # decoders of Beam and protobuf raise anything
        raise ConfigError(
            "The request is refused: its parameters cannot be decoded.",
            expected="a schema and a row with it, as Beam SDKs send them",
            found=f"{len(data):,} bytes, {type(error).__name__}",
        ) from None


def serve(arguments: Sequence[str]) -> None:
    """Answer requests until the process receives SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(
        prog="python -m pipelines.expansion_service",
        description="Expand the row transforms for pipelines in other languages.",
        epilog="All other options are Beam's. --environment_type and --environment_config select "
        "the workers that run the transforms.",
    )
    parser.add_argument(
        "--port", type=int, required=True, help="port to listen on; 0 selects a free port"
    )
    parser.add_argument("--host", default=LOOPBACK_HOSTS[0], help="address to listen on")
    parser.add_argument(
        "--serve_workers",
        action="store_true",
        help="run the transforms in this process, for runners on this machine",
    )
    known, rest = parser.parse_known_args(arguments)
    options = PipelineOptions([*rest, "--sdk_location=container"])
    portable = options.view_as(PortableOptions)
    _check_workers(known, portable)

    server = grpc.server(
        thread_pool_executor.shared_unbounded_instance(),
        options=[("grpc.so_reuseport", 0)],  # otherwise a second service could share the port
    )
    try:
        port = server.add_insecure_port(_address(known.host, known.port))
    except RuntimeError:
        raise ConfigError(
            "The service cannot listen on this address.",
            expected="an address of this machine and a free port",
            found=_address(known.host, known.port),
            hint="Choose another --port; 0 selects a free port.",
        ) from None
    address = _address(known.host, port)
    if known.serve_workers:
        portable.environment_type = "EXTERNAL"
        portable.environment_config = address
        beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(
            BeamFnExternalWorkerPoolServicer(), server
        )
    beam_expansion_api_pb2_grpc.add_ExpansionServiceServicer_to_server(
        ExpansionService(options), server
    )
    beam_artifact_api_pb2_grpc.add_ArtifactRetrievalServiceServicer_to_server(
        artifact_service.ArtifactRetrievalService(_refuse_file), server
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    with (
        suppress(KeyboardInterrupt),
        FullyQualifiedNamedTransform.with_filter(f"{row_transforms.__name__}.*"),
    ):
        server.start()
        sys.stdout.write(f"Listening for expansion requests on {address}\n")
        sys.stdout.flush()
        # In steps, since a signal that another thread receives does not interrupt this wait.
        while not threading.Event().wait(_SECONDS_BETWEEN_SIGNALS):
            pass
    server.stop(grace=None).wait(_SECONDS_TO_STOP)
    supervisor.leave(0)  # threads of requests and workers may still be busy


def _address(host: str, port: int) -> str:
    is_bare_ipv6 = ":" in host and not host.startswith("[")
    return f"[{host}]:{port}" if is_bare_ipv6 else f"{host}:{port}"


def _check_workers(known: argparse.Namespace, portable: Any) -> None:
    if known.serve_workers and known.host not in LOOPBACK_HOSTS:
        raise ConfigError(
            "--serve_workers is refused on a public address: workers run any code they receive.",
            expected=f"--host {', '.join(LOOPBACK_HOSTS)}",
            found=f"--host={known.host}",
            hint="Start workers separately, where only the runner can reach them, and set "
            "--environment_type and --environment_config.",
        )
    if known.serve_workers == bool(portable.environment_type):
        raise ConfigError(
            "The choice of workers for the transforms is missing or ambiguous.",
            expected="either --serve_workers, or --environment_type with --environment_config",
            found="both" if known.serve_workers else "neither",
            hint="For DOCKER, give an image with this package; for EXTERNAL, the address of a "
            "worker pool.",
        )


def _refuse_file(path: str) -> Any:
    # Workers already have this package, so the service provides no artifacts, let alone files.
    raise PermissionError("This service provides no files.")


if __name__ == "__main__":
    try:
        serve(sys.argv[1:])
    except PipelineError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(error.exit_code) from None
