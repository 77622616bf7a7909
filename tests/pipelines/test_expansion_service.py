"""The expansion service as a process: transforms for other SDKs, and what it refuses."""

from __future__ import annotations

import ctypes
import os
import random
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apache_beam as beam
import grpc
import pyarrow.parquet as pq
import pytest
from apache_beam.coders import RowCoder
from apache_beam.internal import pickler
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import (
    beam_artifact_api_pb2,
    beam_artifact_api_pb2_grpc,
    beam_expansion_api_pb2,
    beam_expansion_api_pb2_grpc,
    beam_runner_api_pb2,
    external_transforms_pb2,
    schema_pb2,
)
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.external import ExternalTransform, ImplicitSchemaPayloadBuilder
from apache_beam.transforms.fully_qualified_named_transform import FullyQualifiedNamedTransform
from apache_beam.utils.python_callable import PythonCallableWithSource
from build_support import EXAMPLES, ROOT, SEPARATOR, some_text, write_corpus
from google.protobuf.wrappers_pb2 import BytesValue

from bpe_core import BPETokenizer, PretokenCounts, count_pretokens, train_from_counts
from pipelines import expansion_service
from pipelines.beam import row_bytes
from pipelines.errors import ConfigError

# Most tests share a service.
pytestmark = pytest.mark.process

URN = "beam:transforms:python:fully_qualified_named"
NAMES = "pipelines.row_transforms"
WRONG = "1 error in the configuration of CountPretokens:"
DOCUMENTS = some_text(40)


@contextmanager
def service_process(*arguments: str) -> Iterator[tuple[int, str]]:
    """The process id and the address of a service."""
    command = [sys.executable, "-m", "pipelines.expansion_service", "--port=0", *arguments]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("Listening for expansion requests on "), line
            yield process.pid, line.split()[-1]
        finally:
            process.terminate()
            try:
                code = process.wait(30)
            finally:
                process.kill()
        assert code == 0


@contextmanager
def service(*arguments: str) -> Iterator[str]:
    """The address of a service."""
    with service_process(*arguments) as (_, found):
        yield found


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """That of a service of this machine alone, where the transforms run too."""
    with service("--serve_workers") as found:
        assert re.fullmatch(r"127\.0\.0\.1:\d+", found)
        yield found


@pytest.fixture(scope="module")
def tokenizer_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tokenizer")
    counts = count_pretokens(DOCUMENTS, special_tokens=[SEPARATOR])
    train_from_counts(counts, 300, [SEPARATOR]).tokenizer().save(directory)
    return directory


def payload(constructor: str, **parameters: Any) -> bytes:
    values = {"constructor": constructor, "kwargs": beam.Row(**parameters)}
    written: bytes = ImplicitSchemaPayloadBuilder(values).payload()
    return written


def external(where: Any, name: str, **parameters: Any) -> ExternalTransform:
    return ExternalTransform(URN, payload(f"{NAMES}.{name}", **parameters), where)


@pytest.mark.beam
def test_a_pipeline_is_made_of_transforms_that_the_service_expands(
    address: str, tokenizer_directory: Path, tmp_path: Path
) -> None:
    tokenizer = BPETokenizer.load(tokenizer_directory)
    end = tokenizer.special_tokens[SEPARATOR]
    write_corpus(tmp_path / "data", {"a.txt": [*DOCUMENTS, b"bad \xff"]})
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        read = pipeline | "Read" >> external(
            address,
            "ReadDocuments",
            files=[str(tmp_path / "data" / "*")],
            error_handling=beam.Row(output="bad"),
        )
        assert_that(read["bad"] | beam.Map(lambda row: row.reason), equal_to(["invalid_utf8"]))
        encoded = read["good"] | "Encode" >> external(
            address, "EncodeDocuments", tokenizer=str(tokenizer_directory), append=SEPARATOR
        )
        expected = [[*tokenizer.encode(text.decode()), end] for text in DOCUMENTS]
        ids = encoded | "Ids" >> beam.Map(lambda row: list(row.input_ids))
        assert_that(ids, equal_to(expected), label="Ids?")
        shards = encoded | "Write" >> external(
            address, "WriteTokenShards", output=str(tmp_path / "tokens"), num_shards=2
        )
        assert_that(shards | beam.combiners.Count.Globally(), equal_to([2]), label="Files?")
    files = sorted((tmp_path / "tokens").glob("*.parquet"))
    written = [row for file in files for row in pq.read_table(file)["input_ids"].to_pylist()]
    assert sorted(written) == sorted(expected)


@pytest.mark.beam
def test_the_code_of_the_page_runs(
    address: str, tokenizer_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "beam-yaml.md").read_text("utf-8")
    [code] = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    code = code.replace("localhost:8097", address)
    exec(code.replace("out/quickstart/tokenizer", str(tokenizer_directory)), {})
    text = (ROOT / "examples" / "data" / "kjv-00.txt").read_text("utf-8")
    tokenizer = BPETokenizer.load(tokenizer_directory)
    tokens = sum(len(tokenizer.encode(part)) for part in text.split(SEPARATOR))
    assert int(capsys.readouterr().out) == tokens


@pytest.mark.beam
def test_rows_of_the_asking_pipeline_are_counted(address: str, tmp_path: Path) -> None:
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        rows = pipeline | beam.Create([beam.Row(text=text.decode()) for text in DOCUMENTS])
        _ = rows | external(address, "CountPretokens", output=str(tmp_path / "counts"), shards=2)
    assert PretokenCounts.load(tmp_path / "counts") == count_pretokens(DOCUMENTS)


@pytest.mark.slow
def test_wrong_parameters_come_back_as_our_message(address: str) -> None:
    pipeline = beam.Pipeline()
    with pytest.raises(RuntimeError, match=r"Did you mean separator\?") as caught:
        _ = pipeline | external(address, "ReadDocuments", files=["a"], seperator="b")
    assert str(caught.value).startswith("1 error in the configuration of ReadDocuments:")


@pytest.mark.parametrize(
    ("name", "parameters", "begins"),
    [
        ("EncodeDocuments", {"tokenzer": "t"}, "EncodeDocuments has no such parameter."),
        ("CountPretokens", {"output": "o", "pattern": "gpt9"}, f"{WRONG}\n\npattern\n"),
        ("CountPretokens", {"output": "o", "special_tokens": "<pad>"}, f"{WRONG}\n\nspecial_t"),
        ("ReadDocuments", {"files": ["/no/such/file"]}, "No file matches"),
    ],
)
def test_every_error_of_ours_comes_back_without_a_traceback(
    address: str, name: str, parameters: dict[str, Any], begins: str
) -> None:
    source = beam.Pipeline()
    rows = source if name == "ReadDocuments" else source | beam.Create([beam.Row(text="a")])
    with pytest.raises(RuntimeError) as caught:
        _ = rows | external(address, name, **parameters)
    assert str(caught.value).startswith(begins)
    assert "Traceback" not in str(caught.value)


def test_a_name_that_is_no_text_is_refused(address: str) -> None:
    values = {"constructor": ["x"], "kwargs": beam.Row(files=["a"])}
    written = ImplicitSchemaPayloadBuilder(values).payload()
    assert "unknown transform" in expand(address, request(content=written)).error


# --- what is refused


def request(
    urn: str = URN, content: bytes = b"", **components: Any
) -> beam_expansion_api_pb2.ExpansionRequest:
    return beam_expansion_api_pb2.ExpansionRequest(
        transform=beam_runner_api_pb2.PTransform(
            unique_name="x", spec=beam_runner_api_pb2.FunctionSpec(urn=urn, payload=content)
        ),
        components=beam_runner_api_pb2.Components(**components),
    )


class Touch:
    """When it is unpickled, it leaves a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._path,)


@pytest.fixture
def touched(tmp_path: Path) -> Path:
    return tmp_path / "touched"


@pytest.mark.parametrize(
    "name",
    [
        "os.system",
        "pipelines.config.build.os.system",
        "apache_beam.io.ReadFromText",
        "pipelines.transforms.ReadDocuments",
        f"{NAMES}.beam.Create",
        f"{NAMES}.ReadDocuments.register_urn",
        f"{NAMES}.DOCUMENT_ROW",
        "__callable__",
        "__constructor__",
    ],
)
def test_other_names_are_refused(address: str, name: str) -> None:
    response = expand(address, request(content=payload(name, source="print", files=["a"])))
    assert "unknown transform" in response.error
    assert f"{NAMES}.ReadDocuments" in response.error


def test_pickled_transforms_are_not_read(address: str, touched: Path) -> None:
    pickled = pickler.dumps(Touch(touched))
    response = expand(address, request("beam:transform:pickled_python:v1", pickled))
    assert "could run code of its sender" in response.error
    producer = beam_runner_api_pb2.PTransform(
        spec=beam_runner_api_pb2.FunctionSpec(
            urn="beam:transform:pickled_python:v1", payload=pickled
        )
    )
    good = payload(f"{NAMES}.ReadDocuments", files=["a"])
    response = expand(address, request(content=good, transforms={"t": producer}))
    assert "could run code of its sender" in response.error
    assert not touched.exists()


def test_pickled_coders_and_coders_that_are_lacking_are_not_read(
    address: str, touched: Path
) -> None:
    pickled = pickler.dumps(Touch(touched))
    good = payload(f"{NAMES}.EncodeDocuments", tokenizer="x")
    spec = beam_runner_api_pb2.FunctionSpec(
        urn="beam:coder:pickled_python:v1",
        payload=BytesValue(
            value=b"Touch$" + pickler.dumps(Touch(touched), use_zlib=True)
        ).SerializeToString(),
    )
    for coders, coder_id in (
        ({"c": beam_runner_api_pb2.Coder(spec=spec)}, "c"),
        ({}, pickled.decode()),
    ):
        asked = request(
            content=good,
            coders=coders,
            pcollections={"p": beam_runner_api_pb2.PCollection(coder_id=coder_id)},
        )
        asked.transform.inputs["input"] = "p"
        assert "could run code of its sender" in expand(address, asked).error
    asked = request(content=payload(f"{NAMES}.ReadDocuments", files=["no-such-file"]))
    asked.output_coder_requests["out"] = pickled.decode()
    assert "no-such-file" in expand(address, asked).error
    assert not touched.exists()


def test_parameters_that_are_code_are_not_evaluated(address: str, touched: Path) -> None:
    source = f"(__import__('pathlib').Path({str(touched)!r}).touch(), len)[1]"
    code = PythonCallableWithSource.__new__(PythonCallableWithSource)
    code._source = source
    content = payload(f"{NAMES}.ReadDocuments", files=["a"], name=code)
    assert "a parameter is not a plain value" in expand(address, request(content=content)).error
    assert not touched.exists()


def parameters(schema: Any, row: bytes) -> bytes:
    """What SDKs send, with bytes in place of a row."""
    values = external_transforms_pb2.ExternalConfigurationPayload(schema=schema, payload=row)
    written: bytes = values.SerializeToString()
    return written


EVERY_KIND: dict[str, Any] = {
    "files": ["one", "two"],
    "separator": "b",
    "sample_fraction": 0.5,
    "strip_bom": True,
    "limit_documents": 2**40,
    "storage_options": {"key": "value", "other": "value"},
    "error_handling": beam.Row(output="bad", data=b"bytes"),
}


def test_parameters_that_are_cut_off_or_made_up_are_refused_in_words() -> None:
    good = external_transforms_pb2.ExternalConfigurationPayload.FromString(
        payload(f"{NAMES}.ReadDocuments", **EVERY_KIND)
    )
    row_bytes.check_row(good.schema, good.payload)
    service = expansion_service.ExpansionService(PipelineOptions())
    unreadable = "The request is refused: its parameters cannot be decoded"
    whole = parameters(good.schema, good.payload)
    for content in (b"\xff\xff", whole[:-3], parameters(good.schema, b"\xff" * 50)):
        assert service.Expand(request(content=content)).error.startswith(unreadable)
    for length in range(len(good.payload)):
        content = parameters(good.schema, good.payload[:length])
        assert service.Expand(request(content=content)).error.startswith(unreadable)


@pytest.mark.slow
def test_no_bytes_make_the_native_decoder_read_beyond_them() -> None:
    good = external_transforms_pb2.ExternalConfigurationPayload.FromString(
        payload("no.such.transform", **EVERY_KIND)
    )
    service = expansion_service.ExpansionService(PipelineOptions())
    numbers = random.Random(5)
    for _ in range(1000):
        data = bytearray(good.payload)
        for _ in range(numbers.randint(1, 3)):
            data[numbers.randrange(len(data))] = numbers.choice((0, 1, 0x7F, 0x80, 0xFF))
        error = service.Expand(request(content=parameters(good.schema, bytes(data)))).error
        assert error.startswith("The request is refused: ")
        assert len(error) < 2000


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "1 bytes where there are 0"),
        (b"\x01\x00" + b"\xff" * 9 + b"\x01", "-1 bytes where"),
        (b"\x01\x00" + b"\xff" * 10, "more than 64 bits"),
        (b"\x01\x00" + b"\xff" * 9 + b"\x7f", "more than 64 bits"),
        (b"\x01\x7f\x00", "127 bytes where there are 1"),
    ],
)
def test_lengths_that_can_not_be_are_refused(data: bytes, says: str) -> None:
    text = schema_pb2.FieldType(atomic_type=schema_pb2.STRING)
    schema = schema_pb2.Schema(fields=[schema_pb2.Field(name="text", type=text)])
    with pytest.raises(ValueError, match=says):
        row_bytes.check_row(schema, data)


def test_rows_are_gone_through_as_they_are_decoded() -> None:
    """In the order of their fields' positions, lists of unknown length in parts."""
    number = schema_pb2.FieldType(atomic_type=schema_pb2.INT64)
    short = schema_pb2.FieldType(atomic_type=schema_pb2.INT16)
    maybe = schema_pb2.FieldType(atomic_type=schema_pb2.STRING, nullable=True)
    several = schema_pb2.FieldType(array_type=schema_pb2.ArrayType(element_type=maybe))
    schema = schema_pb2.Schema(
        fields=[
            schema_pb2.Field(name="a", type=number, encoding_position=2),
            schema_pb2.Field(name="b", type=several, encoding_position=0),
            schema_pb2.Field(name="c", type=short, encoding_position=1),
        ],
        encoding_positions_set=True,
    )
    in_parts = b"\xff\xff\xff\xff" + b"\x02\x01\x01x\x00" + b"\x01\x01\x00" + b"\x00"
    data = b"\x03\x00" + in_parts + b"\x00\x07" + b"\xe8\x07"
    assert list(RowCoder(schema).decode(data)) == [1000, ["x", None, ""], 7]
    row_bytes.check_row(schema, data)
    for length in range(len(data)):
        with pytest.raises(ValueError, match="bytes where there are"):
            row_bytes.check_row(schema, data[:length])


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
@pytest.mark.slow
def test_the_service_listens_at_an_address_of_ipv6() -> None:
    with service("--serve_workers", "--host=::1") as found:
        assert re.fullmatch(r"\[::1\]:\d+", found)
        assert "unknown transform" in expand(found, request(content=payload("x"))).error


def threads_that_accept(number: signal.Signals, process: int) -> list[int]:
    """The threads of a process, its first one excepted, that do not block a signal."""
    found = []
    for task in Path(f"/proc/{process}/task").iterdir():
        blocked = int((task / "status").read_text().split("SigBlk:")[1].split()[0], 16)
        if task.name != str(process) and not blocked >> (number - 1) & 1:
            found.append(int(task.name))
    return found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="sends a signal to a thread of a process")
def test_a_signal_that_another_thread_receives_ends_the_service() -> None:
    with service_process("--serve_workers") as (process, _):
        thread = min(threads_that_accept(signal.SIGTERM, process))
        assert ctypes.CDLL(None).tgkill(process, thread, int(signal.SIGTERM)) == 0
        ended = os.pidfd_open(process)
        try:
            assert select.select([ended], [], [], 10)[0], "it goes on"
        finally:
            os.close(ended)


@pytest.mark.parametrize(
    ("host", "found"), [("::1", "[::1]:80"), ("[::1]", "[::1]:80"), ("localhost", "localhost:80")]
)
def test_addresses_of_ipv6_have_brackets(host: str, found: str) -> None:
    assert expansion_service._address(host, 80) == found


def test_the_service_gives_no_files(address: str) -> None:
    with grpc.insecure_channel(address) as channel:
        stub = beam_artifact_api_pb2_grpc.ArtifactRetrievalServiceStub(channel)
        file = beam_runner_api_pb2.ArtifactInformation(
            type_urn="beam:artifact:type:file:v1",
            type_payload=beam_runner_api_pb2.ArtifactFilePayload(path=__file__).SerializeToString(),
        )
        asked = beam_artifact_api_pb2.GetArtifactRequest(artifact=file)
        with pytest.raises(grpc.RpcError):
            list(stub.GetArtifact(asked))


def expand(
    address: str, asked: beam_expansion_api_pb2.ExpansionRequest
) -> beam_expansion_api_pb2.ExpansionResponse:
    with grpc.insecure_channel(address) as channel:
        stub = beam_expansion_api_pb2_grpc.ExpansionServiceStub(channel)
        return stub.Expand(asked, timeout=60)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "found: neither"),
        (["--serve_workers", "--environment_type=EXTERNAL"], "found: both"),
        (["--serve_workers", "--host=0.0.0.0"], "workers run any code they receive"),
    ],
)
def test_services_that_nobody_should_start_are_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        expansion_service.serve(["--port=0", *arguments])
    assert message in str(caught.value)


def test_a_port_that_is_taken_is_refused(address: str) -> None:
    port = address.rpartition(":")[2]
    with pytest.raises(ConfigError, match="cannot listen on this address"):
        expansion_service.serve([f"--port={port}", "--environment_type=DOCKER"])


def test_transforms_run_in_the_environment_that_is_named() -> None:
    options = PipelineOptions(environment_type="EXTERNAL", environment_config="localhost:50000")
    asked = request(content=payload(f"{NAMES}.ReadDocuments", files=[f"{EXAMPLES}/*.txt"]))
    with FullyQualifiedNamedTransform.with_filter(f"{NAMES}.*"):
        response = expansion_service.ExpansionService(options).Expand(asked)
    assert not response.error
    [environment] = response.components.environments.values()
    assert environment.urn == "beam:env:external:v1"
    assert b"localhost:50000" in environment.payload
    assert not environment.dependencies
