"""An expansion service: the transforms over rows for pipelines written in Java, Go or Python.

::

    python -m pipelines.expansion_service --port=8097 --serve_workers

A pipeline elsewhere asks it to expand `pipelines.row_transforms.EncodeDocuments` or another of
`TRANSFORMS`; what it gets back is a part of its own pipeline that runs on Python workers. Those are
this process (`--serve_workers`), or what Beam's `--environment_type` and `--environment_config`
say: an image with this package, or a pool of workers.

Beam's own service takes a glob of names, walks from name to attribute, and unpickles what a
request holds; whoever reaches its port runs code. This one expands its few transforms, from
requests that need no more than data to be understood, and listens on this machine alone unless
`--host` says otherwise.
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

# Their names, in full.
TRANSFORMS: Final = frozenset(
    f"{row_transforms.__name__}.{name}" for name in row_transforms.TRANSFORMS
)
LOOPBACK_HOSTS: Final = ("127.0.0.1", "::1", "localhost")
_SECONDS_TO_STOP: Final = 5.0

# Stand-ins for what gives the inputs, in every SDK's requests.
_PRODUCERS: Final = frozenset({"", common_urns.primitives.IMPULSE.urn})


class ExpansionService(expansion_service.ExpansionServiceServicer):  # type: ignore[misc]
    """Expands `TRANSFORMS`, and refuses requests that could make it run anything else.

    Args:
        options: of Beam; its environment is where the transforms will run.
    """

    def Expand(  # noqa: N802
        self, request: beam_expansion_api_pb2.ExpansionRequest, context: Any = None
    ) -> beam_expansion_api_pb2.ExpansionResponse:
        """The expansion that is asked for, or an error with its reason."""
        try:
            safe = checked(request)
        except PipelineError as refused:
            return beam_expansion_api_pb2.ExpansionResponse(error=str(refused))
        response = super().Expand(safe, context)
        # Beam gives a traceback. Errors of ours say by themselves what is wrong.
        ours = "|".join(map(re.escape, sorted(_names_of_errors(BpeError))))
        *_, last = [None, *re.finditer(rf"^(?:{ours}): ", response.error, re.MULTILINE)]
        if last is not None:
            response.error = response.error[last.end() :].rstrip("\n")
        return response


def _names_of_errors(error: type[BaseException]) -> set[str]:
    """An error and all kinds of it, as tracebacks name them."""
    kinds = {name for kind in error.__subclasses__() for name in _names_of_errors(kind)}
    return {f"{error.__module__}.{error.__qualname__}", *kinds}


def checked(
    request: beam_expansion_api_pb2.ExpansionRequest,
) -> beam_expansion_api_pb2.ExpansionRequest:
    """A request without what it does not need, which runs no code of its sender's when it is read.

    Raises:
        ConfigError: it holds pickled coders or functions, asks for anything but one of
            `TRANSFORMS`, or has parameters that are no plain values.
    """
    safe = beam_expansion_api_pb2.ExpansionRequest()
    safe.CopyFrom(request)
    # The transforms know the types of their outputs; Python asks for objects in their place.
    safe.ClearField("output_coder_requests")
    producers = {producer.spec.urn for producer in request.components.transforms.values()}
    if (
        request.transform.spec.urn != PYTHON_FULLY_QUALIFIED_NAMED_TRANSFORM_URN
        or not producers <= _PRODUCERS
        or not _keep_used_coders(safe.components)
        or b"pickled_python" in safe.components.SerializeToString()
    ):
        raise ConfigError(
            "The request is refused: to read it could run code of its sender.",
            expected=f"one transform of the kind {PYTHON_FULLY_QUALIFIED_NAMED_TRANSFORM_URN}, "
            "and inputs whose elements have a schema or a standard coder",
            found=f"one of the kind {request.transform.spec.urn}, with inputs from "
            + (", ".join(sorted(filter(None, producers))) or "nowhere"),
            hint="Give rows with a schema, such as beam.Row with declared types.",
        )
    _check_parameters(request.transform.spec.payload)
    return safe


def _keep_used_coders(components: beam_runner_api_pb2.Components) -> bool:
    """Removes coders that no collection has, such as a pickled one that Python always sends.

    False if one is lacking: Beam unpickles the id of a coder that it does not find.
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
    values = _read(external_transforms_pb2.ExternalConfigurationPayload.FromString, payload)
    # Logical types are made from their representation by code, some by evaluating it.
    if "logical_type" in str(values.schema):
        raise ConfigError(
            "The request is refused: a parameter is no plain value.",
            expected="text, numbers, true or false, lists, mappings and rows of these",
            found="a logical type",
            hint="Give mappings with values of several types as rows.",
        )
    name = getattr(_read(_row_of(values.schema), values.payload), "constructor", None)
    if not isinstance(name, str) or name not in TRANSFORMS:
        raise ConfigError(
            "The request is refused: this service does not have the transform.",
            expected="one of " + ", ".join(sorted(TRANSFORMS)),
            found=repr(name),
        )


def _row_of(schema: Any) -> Callable[[bytes], Any]:
    def decode(data: bytes) -> Any:
        check_row(schema, data)
        return RowCoder(schema).decode(data)

    return decode


def _read(decode: Callable[[bytes], Any], data: bytes) -> Any:
    try:
        return decode(data)
    except Exception as error:  # decoders of Beam and protobuf raise anything
        raise ConfigError(
            "The request is refused: its parameters can't be read.",
            expected="a schema and a row of it, as SDKs of Beam send them",
            found=f"{len(data):,} bytes, {type(error).__name__}",
        ) from None


def serve(arguments: Sequence[str]) -> None:
    """Answers requests until the process gets SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(
        prog="python -m pipelines.expansion_service",
        description="Expands the transforms over rows for pipelines in other languages.",
        epilog="Other options are Beam's; its --environment_type and --environment_config say "
        "where the transforms run.",
    )
    parser.add_argument("--port", type=int, required=True, help="0: any that is free")
    parser.add_argument("--host", default=LOOPBACK_HOSTS[0], help="address to listen on")
    parser.add_argument(
        "--serve_workers",
        action="store_true",
        help="run the transforms in this process, for runners on this machine",
    )
    known, rest = parser.parse_known_args(arguments)
    options = PipelineOptions([*rest, "--sdk_location=container"])
    portable = options.view_as(PortableOptions)
    _check(known, portable)

    server = grpc.server(
        thread_pool_executor.shared_unbounded_instance(),
        options=[("grpc.so_reuseport", 0)],  # else a second service would share the port
    )
    try:
        port = server.add_insecure_port(_address(known.host, known.port))
    except RuntimeError:
        raise ConfigError(
            "The service can't listen there.",
            expected="an address of this machine and a port that is free",
            found=_address(known.host, known.port),
            hint="Take another --port; 0 is any that is free.",
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
        artifact_service.ArtifactRetrievalService(_no_file), server
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
        threading.Event().wait()
    server.stop(grace=None).wait(_SECONDS_TO_STOP)
    supervisor.leave(0)  # threads of requests and workers may still be busy


def _address(host: str, port: int) -> str:
    is_bare_ipv6 = ":" in host and not host.startswith("[")
    return f"[{host}]:{port}" if is_bare_ipv6 else f"{host}:{port}"


def _check(known: argparse.Namespace, portable: Any) -> None:
    if known.serve_workers and known.host not in LOOPBACK_HOSTS:
        raise ConfigError(
            "--serve_workers",
            expected=f"no other --host than {', '.join(LOOPBACK_HOSTS)}: workers run whatever "
            "they are sent",
            found=f"--host={known.host}",
            hint="Start workers by themselves, where only the runner reaches them, and name them "
            "with --environment_type and --environment_config.",
        )
    if known.serve_workers == bool(portable.environment_type):
        raise ConfigError(
            "Where the transforms run is not clear.",
            expected="either --serve_workers, or --environment_type with --environment_config",
            found="both" if known.serve_workers else "neither",
            hint="DOCKER takes an image with this package, EXTERNAL the address of a pool of "
            "workers.",
        )


def _no_file(path: str) -> Any:
    # Workers have this package already, so nothing is fetched from here, least of all any file.
    raise PermissionError("This service gives no files.")


if __name__ == "__main__":
    try:
        serve(sys.argv[1:])
    except PipelineError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(error.exit_code) from None
