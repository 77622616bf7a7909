"""What workers need and tell: storage, versions, the package; errors come back as they are."""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from build_support import SEPARATOR, checksums, config_for, some_text, write_corpus
from engine_support import (
    Work,
    command,
    flink_options,
    patched,
    prism_binary,
    worker_pool,
)
from storage_support import KEY, S3, SECRET, Server, serve

from pipelines import build, versions

CREDENTIALS = {"TEST_S3_KEY": KEY, "TEST_S3_SECRET": SECRET}
EXTERNAL = "--environment_type=EXTERNAL"
IN_MEMORY = "in_memory"

WITH_POOL = ["pool", "cluster"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which workers of the pool look for modules first."""
    return tmp_path_factory.mktemp("path")


@pytest.fixture(scope="module")
def own_pool(tmp_path_factory: pytest.TempPathFactory, path: Path) -> Iterator[str]:
    """The address of a pool; its environment has the credentials."""
    with worker_pool(tmp_path_factory.mktemp("own-pool"), path, **CREDENTIALS) as running:
        yield running.address


@pytest.fixture(autouse=True)
def _path_emptied(path: Path) -> Iterator[None]:
    yield
    (path / "sitecustomize.py").unlink(missing_ok=True)


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> list[str]:
    """Keys and options for the engine that the parameter names."""
    if request.param == "prism":
        return ["beam.runner=PrismRunner", "--", f"--prism_location={prism_binary()}"]
    if request.param == "flink":
        return ["beam.workers=2", *flink_options("[local]")]
    pool = request.getfixturevalue("own_pool")
    if request.param == "cluster":
        cluster = request.getfixturevalue("cluster")
        return ["beam.workers=2", *flink_options(cluster.address, pool)]
    options = ["--job_endpoint=embed", EXTERNAL, f"--environment_config={pool}"]
    return ["beam.runner=PortableRunner", "--", *options]


def message_of(done: subprocess.CompletedProcess[str]) -> str:
    """What a command says but for its progress: one error of ours, and nothing else."""
    said = re.sub(r"^(?:\[|reading |estimate|job: ).*\n", "", done.stderr, flags=re.MULTILINE)
    labels = "expected|found|where|what to do"
    assert re.fullmatch(rf"error: .+\n(?:  (?:{labels}): .+\n)+", said), said
    return said


# --- storage ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    from moto.server import DomainDispatcherApplication, create_backend_app

    server = Server(DomainDispatcherApplication(create_backend_app))
    for endpoint in serve(server):
        bucket = S3(server, endpoint, "engines")
        bucket.backend.create_bucket(bucket.bucket, "us-east-1")
        yield bucket


@pytest.mark.engines
@pytest.mark.parametrize("engine", WITH_POOL, indirect=True)
def test_a_build_on_s3_with_workers_that_train_makes_the_bytes_of_a_local_one(
    s3: S3, tmp_path: Path, engine: list[str]
) -> None:
    documents = some_text(40)
    write_corpus(tmp_path / "data", {"a.txt": documents[:25], "b.txt": documents[25:]})
    for file in (tmp_path / "data").iterdir():
        s3.put(f"data/{file.name}", file.read_bytes())
    local = config_for(tmp_path, beam={"workers": 1, "options": {"direct_running_mode": IN_MEMORY}})
    build.build(local)
    options = {
        "key": "${TEST_S3_KEY}",
        "secret": "${TEST_S3_SECRET}",
        "endpoint_url": s3.endpoint,
        "client_kwargs": {"region_name": "us-east-1"},
    }
    source = {"files": [f"{s3.url}/data/*"], "range_bytes": 4000, "storage_options": options}
    values = {
        "output": f"{s3.url}/out",
        "output_storage_options": options,
        "input": source,
        "tokenizer": {"vocab_size": 300},
        "counts": {"shards": 2},
    }
    configuration = tmp_path / "build.yaml"
    configuration.write_text(yaml.safe_dump(values))
    name = f"out-{len(s3.names)}/"
    given = ["tokenizer.train_where=worker", *engine]
    done = command(configuration, f"{s3.url}/{name}", *given, **CREDENTIALS)
    assert done.returncode == 0, done.stderr
    found = {key.removeprefix(name): s3.get(key) for key in s3.names if key.startswith(name)}
    assert checksums(tmp_path / "out") == {
        key: hashlib.sha256(data).hexdigest()
        for key, data in found.items()
        if not key.endswith(("run.json", "configuration.json", "report.html"))
    }
    assert s3.unfinished_uploads == 0
    for text in (*found.values(), done.stdout.encode(), done.stderr.encode()):
        assert SECRET.encode() not in text


# --- software ---------------------------------------------------------------------------------


@pytest.mark.engines
@pytest.mark.parametrize("engine", WITH_POOL, indirect=True)
def test_workers_with_other_versions_fail_the_build_with_what_differs(
    work: Work, tmp_path: Path, engine: list[str], path: Path
) -> None:
    others = "found.worker_versions = lambda: {**found.deciding_versions(), 'pyarrow': '0.1'}"
    patched(path, "pipelines.versions", "check_worker", others)
    done = command(work.configuration, tmp_path / "out", *engine)
    assert done.returncode == 13, done.stderr
    said = message_of(done)
    assert said.startswith("error: A worker has other versions than the launcher.\n")
    known = versions.worker_versions()
    assert f"  expected: pyarrow {known['pyarrow']}, python {known['python']}\n" in said
    assert "  found: pyarrow 0.1, python unknown\n" in said


_WITHOUT_PACKAGE = """
import sys
class Lacking:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pipelines":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Lacking())
"""


@pytest.mark.engines
@pytest.mark.parametrize("engine", WITH_POOL, indirect=True)
def test_workers_without_the_package_fail_the_build_with_what_to_do(
    work: Work, tmp_path: Path, engine: list[str], path: Path
) -> None:
    (path / "sitecustomize.py").write_text(_WITHOUT_PACKAGE)
    done = command(work.configuration, tmp_path / "out", *engine)
    assert done.returncode == 13, done.stderr
    said = message_of(done)
    assert said.startswith("error: A worker cannot load this package.\n")
    assert "  found: ModuleNotFoundError: No module named 'pipelines'\n" in said
    assert "  what to do: Install the launcher's version there" in said


# --- errors -----------------------------------------------------------------------------------


@pytest.mark.engines
@pytest.mark.parametrize("engine", [*WITH_POOL, "prism", "flink"], indirect=True)
def test_errors_come_back_as_they_were_raised_and_nothing_beside_them(
    tmp_path: Path, engine: list[str]
) -> None:
    documents = [*some_text(20), b"no \xff UTF-8", *some_text(20, start=20)]
    write_corpus(tmp_path / "data", {"a.txt": some_text(9), "b.txt": documents})
    configuration = tmp_path / "build.yaml"
    configuration.write_text(
        "output: out\n"
        "input: {files: [data/*.txt], range_bytes: 4000, invalid_utf8: error}\n"
        "tokenizer: {vocab_size: 300}\n"
    )
    done = command(configuration, tmp_path / "out", *engine)
    assert done.returncode == 4, done.stderr
    said = message_of(done)
    assert said.startswith("error: A document is not valid UTF-8.\n")
    at = sum(len(text) + len(SEPARATOR) for text in documents[:20]) + len("no ")
    assert f"  where: {tmp_path}/data/b.txt, byte {at:,}\n" in said
    assert "  what to do: Repair the text, or set input.invalid_utf8" in said
