"""Engines for tests: Flink (embedded and a cluster), Prism, pools of Python workers.

What is not there yet is fetched into a cache outside the repository: jars through Maven, Prism
through Go. Everything listens on the loopback address, and every process is ended by its own id.
"""

from __future__ import annotations

import fcntl
import http.client
import importlib
import itertools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import grpc
import pytest
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc
from apache_beam.version import __version__ as BEAM_VERSION
from build_support import PACKAGES, ROOT

CACHE = Path(os.environ.get("BEAM_BPE_ENGINES", "~/.cache/beam-bpe/engines")).expanduser()

# The newest set of thin modules that Maven's repositories hold whole; later ones come with Beam's
# job-server jar, which is what users take.
FLINK_VERSION = "1.19"
_JOB_SERVER_MODULE = f"org.apache.beam:beam-runners-flink-{FLINK_VERSION}:2.62.0"
_LOGGING_MODULE = "org.slf4j:slf4j-simple:1.7.36"
# Takes jars with jobs; Flink's own distribution has it.
_WEB_MODULE = f"org.apache.flink:flink-runtime-web:{FLINK_VERSION}.0"
_ADD_OPENS = (
    *(f"java.base/java.{package}" for package in ("lang", "util", "net", "io", "nio", "text")),
    *(f"java.base/java.{package}" for package in ("time", "lang.reflect", "util.concurrent")),
    *("java.base/java.util.concurrent.atomic", "java.base/java.util.concurrent.locks"),
    "java.base/sun.nio.ch",
)
_PARTS_OF_JOB_JAR = (
    *("args4j", "auto-value", "beam-", "byte-buddy", "classgraph", "commons-compress", "gson"),
    *("guava", "jackson", "joda", "lz4", "protobuf", "snappy"),
)
_SECONDS_TO_START = 90.0


def need(*programs: str, path: str | None = None) -> None:
    """Skip the test if a program is missing, or fail it if engines are required."""
    missing = [program for program in programs if shutil.which(program, path=path) is None]
    if missing:
        not_here(f"needs {', '.join(missing)}")


def need_module(module: str, package: str) -> None:
    """Skip the test if a Python module is missing, or fail it if engines are required."""
    try:
        importlib.import_module(module)
    except ImportError:
        not_here(f"needs {package}")


def not_here(reason: str) -> NoReturn:
    """Skip the test, or fail it if engines are required."""
    if os.environ.get("REQUIRE_ENGINES") == "1":
        pytest.fail(f"{reason}, and REQUIRE_ENGINES=1 asks for every engine")
    pytest.skip(reason)


def _fetched(directory: Path, fetch: Callable[[Path], None]) -> Path:
    """Return a directory of the cache, which is filled once even by concurrent callers."""
    if directory.exists():
        return directory
    directory.parent.mkdir(parents=True, exist_ok=True)
    with (directory.parent / f".{directory.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.exists():
            half = directory.with_name(f".{directory.name}.half")
            shutil.rmtree(half, ignore_errors=True)
            half.mkdir()
            try:
                fetch(half)
            except subprocess.CalledProcessError as error:
                not_here(f"{error.cmd[0]} could not fetch {directory.name}: {error.output[-500:]}")
            half.rename(directory)
    return directory


def _run(command: Sequence[str], **environment: str) -> None:
    subprocess.run(
        command,
        check=True,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


# --- Prism -----------------------------------------------------------------------------------


def prism_binary() -> Path:
    """Return Prism of Beam's version, built once."""
    need("go")
    module = f"github.com/apache/beam/sdks/v2/go/cmd/prism@v{BEAM_VERSION}"

    def build(directory: Path) -> None:
        _run(["go", "install", module], GOBIN=str(directory))

    return _fetched(CACHE / f"prism-{BEAM_VERSION}", build) / "prism"


# --- Flink -----------------------------------------------------------------------------------


def flink_directory() -> Path:
    """Return a directory with `flinklib/*.jar` (Flink, Beam's job server) and `job-server.jar`."""
    need("java", "mvn")
    return _fetched(CACHE / f"flink-{FLINK_VERSION}", _fetch_flink)


def _fetch_flink(directory: Path) -> None:
    modules = "".join(
        "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
        "</dependency>".format(*module.split(":"))
        for module in (_JOB_SERVER_MODULE, _LOGGING_MODULE)
    )
    pom = directory / "pom.xml"
    pom.write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>tests</groupId><artifactId>job-server</artifactId><version>1</version>"
        f"<dependencies>{modules}</dependencies></project>"
    )
    libraries = directory / "flinklib"
    _run(
        [
            *("mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"),
            *("-DincludeScope=runtime", f"-DoutputDirectory={libraries}"),
        ]
    )
    _write_job_server(directory / "job-server.jar", sorted(libraries.glob("*.jar")))


def _write_job_server(path: Path, libraries: Sequence[Path]) -> None:
    """Write a jar that is only a manifest: the main class, and the libraries to load."""
    entries = {
        "Manifest-Version": "1.0",
        "Main-Class": "org.apache.beam.runners.flink.FlinkJobServerDriver",
        "Add-Opens": " ".join(_ADD_OPENS),
        "Class-Path": " ".join(f"flinklib/{library.name}" for library in libraries),
    }
    lines = []
    for key, value in entries.items():
        line = f"{key}: {value}"
        # At most 72 bytes a line; the next one goes on after a space.
        lines.append(line[:72])
        lines += [f" {line[at : at + 71]}" for at in range(72, len(line), 71)]
    with zipfile.ZipFile(path, "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", "\r\n".join([*lines, "", ""]))


def flink_web_directory() -> Path:
    """Return a directory with the jar that lets a cluster accept jobs as jars."""
    need("mvn")
    return _fetched(
        CACHE / f"flink-web-{FLINK_VERSION}",
        lambda directory: _run(
            [
                *("mvn", "-q", "-B", "dependency:copy", f"-Dartifact={_WEB_MODULE}"),
                f"-DoutputDirectory={directory}",
            ]
        ),
    )


def flink_job_jar() -> Path:
    """Return one jar with everything that a job needs of Beam, like Beam's job-server jar."""
    libraries = flink_directory() / "flinklib"
    return (
        _fetched(
            CACHE / f"flink-job-{FLINK_VERSION}",
            lambda directory: _join(directory / "job.jar", sorted(libraries.glob("*.jar"))),
        )
        / "job.jar"
    )


def _join(path: Path, libraries: Sequence[Path]) -> None:
    """Join the libraries of Beam's runner into one jar; Flink itself is on the cluster."""
    seen = {"META-INF/MANIFEST.MF"}
    services: dict[str, list[bytes]] = {}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as jar:
        jar.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\r\n\r\n")
        for library in libraries:
            if not library.name.startswith(_PARTS_OF_JOB_JAR):
                continue
            with zipfile.ZipFile(library) as part:
                for name in part.namelist():
                    if name.startswith("META-INF/services/") and not name.endswith("/"):
                        services.setdefault(name, []).append(part.read(name))
                    elif name not in seen and not name.endswith((".SF", ".RSA", ".DSA")):
                        seen.add(name)
                        jar.writestr(name, part.read(name))
        for name, lists in services.items():
            jar.writestr(name, b"\n".join(lists))


def free_port() -> int:
    """Return an unused port of the loopback address.

    Not one of those that systems give to whoever asks for any, so that it stays free.
    """
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket() as listening, suppress(OSError):
            listening.bind(("127.0.0.1", port))
            return port


@dataclass
class FlinkCluster:
    """Standalone cluster: a JobManager and TaskManagers of two slots each."""

    directory: Path
    task_managers: int = 2
    rest_port: int = field(default_factory=free_port)
    rpc_port: int = field(default_factory=free_port)

    def __post_init__(self) -> None:
        self._libraries = f"{flink_directory() / 'flinklib'}/*:{flink_web_directory()}/*"
        self._configuration = self.directory / "conf"
        self._configuration.mkdir(parents=True)
        settings = {
            "jobmanager": {
                "rpc": {"address": "localhost", "port": self.rpc_port},
                "bind-host": "localhost",
                "memory": {"process": {"size": "1024m"}},
            },
            "taskmanager": {"bind-host": "localhost", "host": "localhost", "numberOfTaskSlots": 2},
            "rest": {"address": "localhost", "bind-address": "localhost", "port": self.rest_port},
            "blob": {"server": {"port": "0"}},
            "io": {"tmp": {"dirs": str(self.directory / "tmp")}},
            "heartbeat": {"interval": 2000, "timeout": 10000},
            "restart-strategy": {
                "type": "fixed-delay",
                # Together more than the timeout above: so long a TaskManager that died gets tasks.
                "fixed-delay": {"attempts": 3, "delay": "5 s"},
            },
        }
        (self.directory / "tmp").mkdir()
        (self._configuration / "config.yaml").write_text(json.dumps(settings))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def address(self) -> str:
        """Return the value for `--flink_master`."""
        return f"localhost:{self.rest_port}"

    def start(self) -> bool:
        """Start all processes and wait until every slot is free. Return False if one has ended."""
        self._start(
            "jobmanager",
            ["-Xmx448m"],
            "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint",
            ["--executionMode", "cluster"],
        )
        for number in range(self.task_managers):
            self.start_task_manager(number)
        slots = 2 * self.task_managers
        wait_until(
            lambda: self.overview().get("slots-available") == slots or not self._all_run(),
            f"{slots} free slots; logs in {self.directory}",
        )
        return self._all_run()

    def _all_run(self) -> bool:
        return all(process.poll() is None for process in self.processes.values())

    def start_task_manager(self, number: int) -> None:
        """Start one TaskManager."""
        sizes = {
            "process.size": "1984m",
            "task.heap.size": "383mb",
            "task.off-heap.size": "0b",
            "managed.size": "512mb",
            "network.min": "384mb",
            "network.max": "384mb",
            "framework.heap.size": "128mb",
            "framework.off-heap.size": "128mb",
            "jvm-metaspace.size": "256mb",
            "jvm-overhead.min": "192mb",
            "jvm-overhead.max": "192mb",
        }
        settings = {
            "taskmanager.cpu.cores": "2.0",
            **{f"taskmanager.memory.{name}": size for name, size in sizes.items()},
        }
        self._start(
            f"taskmanager-{number}",
            ["-Xmx512m", "-XX:MaxDirectMemorySize=600m"],
            "org.apache.flink.runtime.taskexecutor.TaskManagerRunner",
            [item for name, value in settings.items() for item in ("-D", f"{name}={value}")],
        )

    def _start(self, name: str, memory: Sequence[str], main: str, arguments: Sequence[str]) -> None:
        opens = [f"--add-opens={package}=ALL-UNNAMED" for package in _ADD_OPENS]
        command = [
            *("java", *memory, *opens, "-cp", self._libraries, main),
            *("--configDir", str(self._configuration), *arguments),
        ]
        with (self.directory / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def overview(self) -> dict[str, Any]:
        """Return the cluster's overview, empty while it does not answer."""
        try:
            return self._answer("overview")
        except (OSError, http.client.HTTPException, ValueError):
            return {}

    def state(self, job: str) -> str:
        """Return the state of a job, by its id."""
        return str(self._answer(f"jobs/{job}")["state"])

    def restarted(self) -> list[str]:
        """Return the ids of the jobs that the cluster had to restart."""
        jobs = [job["jid"] for job in self._answer("jobs/overview")["jobs"]]
        return [job for job in jobs if self._answer(f"jobs/{job}")["timestamps"]["RESTARTING"]]

    def _answer(self, question: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://{self.address}/v1/{question}", timeout=5) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def wait_for_slots(self, slots: int) -> None:
        """Wait until this many slots are free."""
        wait_until(
            lambda: self.overview().get("slots-available") == slots,
            f"{slots} free slots; logs in {self.directory}",
        )

    def kill_task_manager(self, number: int) -> None:
        """Send SIGKILL to a TaskManager."""
        process = self.processes.pop(f"taskmanager-{number}")
        process.kill()
        process.wait()

    def stop(self) -> None:
        """End all processes."""
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            end(process)


@contextmanager
def flink_cluster(directory: Path, task_managers: int = 2) -> Iterator[FlinkCluster]:
    """Run a cluster during the block."""
    for attempt in itertools.count():
        cluster = FlinkCluster(directory / str(attempt), task_managers)
        try:
            # Its JobManager ends if another process has taken a port meanwhile.
            if not cluster.start() and attempt < 2:
                continue
            yield cluster
            return
        finally:
            cluster.stop()


# --- pools of Python workers -----------------------------------------------------------------


@dataclass(frozen=True)
class WorkerPool:
    """Pool that starts a Python process for each worker."""

    address: str
    process: subprocess.Popen[bytes]

    def workers(self) -> list[int]:
        """Return the ids of the pool's worker processes, which are in its process group."""
        found = []
        for directory in Path("/proc").glob("[0-9]*"):
            try:
                command = (directory / "cmdline").read_bytes()
                group = os.getpgid(int(directory.name))
            except OSError:  # it has ended
                continue
            if group == self.process.pid and b"sdk_worker_main" in command:
                found.append(int(directory.name))
        return found


# What Python runs as a pool; Beam's own is for one TaskManager.
SHARED_POOL = (str(Path(__file__).with_name("pool.py")),)
BEAMS_POOL = ("-m", "apache_beam.runners.worker.worker_pool_main")


@contextmanager
def worker_pool(
    directory: Path, *paths: Path, program: Sequence[str] = SHARED_POOL, **variables: str
) -> Iterator[WorkerPool]:
    """Run a pool during the block.

    Its processes do what the boot program of Beam's container image does; `paths` come before the
    packages that they find, and `variables` are in their environment. `program` is the pool's.
    """
    directory.mkdir(parents=True, exist_ok=True)
    boot = directory / "boot"
    boot.write_text(
        f'#!/bin/sh\nexec {sys.executable} {Path(__file__).with_name("boot.py")} "$@"\n'
    )
    boot.chmod(0o755)
    port = free_port()
    with (directory / "pool.log").open("wb") as log:
        pool = subprocess.Popen(
            [
                *(sys.executable, *program),
                *(f"--service_port={port}", f"--container_executable={boot}"),
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**environment(*paths), **variables, "ENGINE_LOGS": str(directory)},
            start_new_session=True,
        )
    try:
        wait_until(lambda: _listens(port), f"the worker pool at port {port}")
        yield WorkerPool(f"localhost:{port}", pool)
    finally:
        os.killpg(pool.pid, signal.SIGTERM)
        end(pool)


@dataclass(frozen=True)
class JobServer:
    """Beam's own job server, in a separate process."""

    address: str
    process: subprocess.Popen[bytes]

    def cancel(self) -> None:
        """Cancel all jobs, as an administrator may."""
        with grpc.insecure_channel(self.address) as channel:
            jobs = beam_job_api_pb2_grpc.JobServiceStub(channel)
            for job in jobs.GetJobs(beam_job_api_pb2.GetJobsRequest()).job_info:
                jobs.Cancel(beam_job_api_pb2.CancelJobRequest(job_id=job.job_id))


@contextmanager
def job_server(directory: Path) -> Iterator[JobServer]:
    """Run a job server during the block."""
    directory.mkdir(parents=True, exist_ok=True)
    port = free_port()
    with (directory / "job-server.log").open("wb") as log:
        server = subprocess.Popen(
            [
                *(sys.executable, "-m", "apache_beam.runners.portability.local_job_service_main"),
                *(f"--port={port}", f"--staging_dir={directory}"),
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_until(lambda: _listens(port), f"the job server at port {port}")
        yield JobServer(f"localhost:{port}", server)
    finally:
        server.terminate()
        end(server)


def _listens(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


def wait_until(
    condition: Callable[[], bool], what: str, seconds: float = _SECONDS_TO_START
) -> None:
    """Wait for a condition, and fail the test if it takes too long."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"waited {seconds:.0f} s in vain for {what}")
        time.sleep(0.05)


def end(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process that was asked to end, and kill it if it does not."""
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


# --- builds ----------------------------------------------------------------------------------


_CONFIGURATION = f"""
output: out
input:
  - name: kjv
    files: ["{ROOT}/examples/data/kjv-0[0-2].txt"]
    range_bytes: 24KiB
  - name: records
    files: ["{ROOT}/examples/data/*.jsonl.gz"]
    format: jsonl
tokenizer: {{vocab_size: 600}}
counts: {{shards: 4, checkpoint_bytes: 64KiB}}
encode: {{validation_fraction: 0.1, max_reject_fraction: 0.5}}
"""


@dataclass(frozen=True)
class Work:
    """Directory with the configuration, and the result of its build by the DirectRunner."""

    directory: Path
    expected: dict[str, str]

    @property
    def configuration(self) -> Path:
        """Return the path of the configuration."""
        return self.directory / "config.yaml"

    def write_configuration(self) -> None:
        """Write the configuration."""
        self.configuration.write_text(_CONFIGURATION)


def arguments(
    configuration: Path,
    output: Path | str,
    *given: str,
    stage: str = "build",
    flags: Sequence[str] = (),
) -> list[str]:
    """Return the command for a stage; `given` are keys with values, then "--" and Beam options."""
    keys = list(itertools.takewhile(lambda item: item != "--", given))
    settings = [f"output={output}", *keys]
    return [
        *(sys.executable, "-m", "pipelines", stage, str(configuration)),
        *(item for setting in settings for item in ("--set", setting)),
        *flags,
        *given[len(keys) :],
    ]


def environment(*paths: Path) -> dict[str, str]:
    """Return this process's environment, with the paths and then the packages on PYTHONPATH."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*paths, PACKAGES)))}


def command(
    configuration: Path,
    output: Path | str,
    *given: str,
    stage: str = "build",
    flags: Sequence[str] = (),
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """Run a stage to its end."""
    return run(arguments(configuration, output, *given, stage=stage, flags=flags), **variables)


def run(given: Sequence[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with environment variables."""
    changed = {**environment(), **variables}
    return subprocess.run(given, capture_output=True, text=True, timeout=800, env=changed)


def processes_with(variable: str, value: str) -> list[int]:
    """Return the ids of the processes that have an environment variable with this value."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            variables = (directory / "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended, or belongs to another
            continue
        if f"{variable}={value}".encode() in variables:
            found.append(int(directory.name))
    return found


def patched(directory: Path, module: str, name: str, statement: str) -> Path:
    """Return a directory for `environment` that executes a statement once a module has a name.

    Args:
        directory: that is made if it is not there.
        module: as `found` in the statement.
        name: of the module's.
        statement: Python.
    """
    directory.mkdir(exist_ok=True)
    (directory / "sitecustomize.py").write_text(  # Python imports this by itself
        f"""
import builtins, os, sys, time
_import = builtins.__import__
def patched(*arguments, **keywords):
    module = _import(*arguments, **keywords)
    found = sys.modules.get({module!r})
    if found is not None and hasattr(found, {name!r}):
        builtins.__import__ = _import
        {statement}
    return module
builtins.__import__ = patched
"""
    )
    return directory


def slow(directory: Path) -> Path:
    """Make workers start tasks slowly, so that one can be killed in the meantime."""
    return patched(
        directory,
        "pipelines.readers.tasks",
        "source_readings",
        "begin = found.TaskWork.from_bytes; "
        "found.TaskWork.from_bytes = lambda data: (time.sleep(0.1), begin(data))[1]",
    )


def flink_options(master: str, pool: str | None = None, *, detached: bool = False) -> list[str]:
    """Return keys and options for Flink; without a pool the workers are threads of the launcher."""
    jar = flink_job_jar() if detached else flink_directory() / "job-server.jar"
    options = [
        *("beam.runner=FlinkRunner", "--", f"--flink_version={FLINK_VERSION}"),
        *(f"--flink_job_server_jar={jar}", f"--flink_master={master}"),
    ]
    if pool is not None:
        options += ["--environment_type=EXTERNAL", f"--environment_config={pool}"]
    return options


def check_metrics(output: Path) -> None:
    """Check that the runner reported the workers' metrics, and that they match the manifests."""
    for stage in ("counts", "tokens"):
        metrics = json.loads((output / stage / "run.json").read_text("utf-8"))["metrics"]
        totals = json.loads((output / stage / "manifest.json").read_text("utf-8"))["totals"]
        names = {"documents": "documents", "bytes": "bytes", "rejects": "rejected"}
        amount = "distinct_pretokens" if stage == "counts" else "tokens"
        for name, total in {**names, amount: amount}.items():
            assert metrics[name] == totals[total], name
        for part in ("read", "write", "merge" if stage == "counts" else "encode"):
            times = metrics[f"{part}_microseconds"]
            assert 0 <= times["min"] <= times["max"] <= times["sum"]
            assert times["count"] > 0
