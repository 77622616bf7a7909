"""Jobs that go on without the command that submitted them, and builds that go on after them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from build_support import checksums
from engine_support import (
    FlinkCluster,
    Work,
    WorkerPool,
    command,
    flink_options,
    job_server,
    wait_until,
    worker_pool,
)

from pipelines.errors import OutputError
from pipelines.storage.directory import Directory
from pipelines.storage.locks import FINISHED, LOCK, OutputLock

ON_WORKER = "tokenizer.train_where=worker"
NO_WAIT = "--no-wait"
LEFT = "A job that was submitted with --no-wait is still writing to this output"


@pytest.fixture(scope="module")
def own_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerPool]:
    """A pool of which all workers may be stopped."""
    with worker_pool(tmp_path_factory.mktemp("detached")) as running:
        yield running


def submit(work: Work, output: Path, *given: str) -> str:
    """Submits with --no-wait; gives what the command says."""
    done = command(work.configuration, output, *given, flags=[NO_WAIT])
    assert done.returncode == 0, done.stderr
    assert "submitted" in done.stdout
    return done.stdout


def job_of(output: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((output / LOCK).read_text())["job"]
    return found


def is_finished(output: Path) -> bool:
    return (output / FINISHED).exists()


def manifests(output: Path) -> list[Path]:
    return list(output.glob("*/manifest.json"))


def go_on(work: Work, output: Path, *given: str) -> None:
    """The same build on this machine goes on to its end, and has the same bytes."""
    done = command(work.configuration, output, *given)
    assert done.returncode == 0, done.stderr
    assert "resumed" in done.stdout
    assert checksums(output) == work.expected


@pytest.mark.engines
def test_a_job_counts_trains_and_encodes_after_its_command_has_left(
    work: Work, tmp_path: Path, pool: str
) -> None:
    output = tmp_path / "out"
    with job_server(tmp_path / "server") as server:
        workers = ["--environment_type=EXTERNAL", f"--environment_config={pool}"]
        given = ["beam.runner=PortableRunner", ON_WORKER, "--", f"--job_endpoint={server.address}"]
        said = submit(work, output, *given, *workers)
        with pytest.raises(OutputError, match=LEFT):
            OutputLock(Directory(url=str(output))).acquire()
        job = job_of(output)
        assert job["stages"] == ["count", "train", "encode"]
        assert str(job["name"]) in said
        [following] = [line for line in said.splitlines() if line.startswith("beam-bpe build")]
        assert NO_WAIT not in following and ON_WORKER in following
        wait_until(lambda: is_finished(output), "the job")
        assert not manifests(output)
        go_on(work, output)


# --- Flink ------------------------------------------------------------------------------------


@contextmanager
def frozen(pool: WorkerPool, output: Path, begun: str) -> Iterator[None]:
    """Stops the workers as soon as a file appears, so that the job does not end meanwhile."""
    wait_until(lambda: any(output.glob(begun)), begun)
    workers = pool.workers()
    assert workers
    for worker in workers:
        os.kill(worker, signal.SIGSTOP)
    try:
        assert not is_finished(output), "the job was faster than the test"
        yield
    finally:
        for worker in workers:
            os.kill(worker, signal.SIGCONT)


@pytest.mark.engines
@pytest.mark.parametrize("where", ["launcher", "worker"])
def test_on_flink_each_submission_does_what_one_job_can(
    work: Work, tmp_path: Path, cluster: FlinkCluster, own_pool: WorkerPool, where: str
) -> None:
    output = tmp_path / "out"
    options = flink_options(cluster.address, own_pool.address, detached=True)
    given = [f"tokenizer.train_where={where}", "beam.workers=2", *options]
    jobs = [["count"], ["encode"]] if where == "launcher" else [["count", "train", "encode"]]
    for stages in jobs:
        said = submit(work, output, *given)
        assert job_of(output)["stages"] == stages
        name = job_of(output)["name"]
        assert f"http://{cluster.address}/#/job/running/{name}/overview" in said
        wait_until(lambda: is_finished(output), "the job", 180)
        wait_until(
            lambda: cluster.state(str(job_of(output)["name"])) == "FINISHED", "Flink to say so"
        )
    go_on(work, output, *given)


@pytest.mark.engines
def test_on_flink_training_on_a_worker_is_waited_for(
    work: Work, tmp_path: Path, cluster: FlinkCluster, own_pool: WorkerPool
) -> None:
    output = tmp_path / "out"
    given = [ON_WORKER, "beam.workers=2", *flink_options(cluster.address, own_pool.address)]
    done = command(work.configuration, output, *given)
    assert done.returncode == 0, done.stderr
    assert checksums(output) == work.expected


@pytest.mark.engines
@pytest.mark.parametrize("begun", ["counts/_runs/*/run-*", "tokens/train-*"])
def test_on_flink_a_build_meanwhile_is_refused_and_the_job_goes_on(
    work: Work, tmp_path: Path, cluster: FlinkCluster, own_pool: WorkerPool, begun: str
) -> None:
    output = tmp_path / "out"
    options = flink_options(cluster.address, own_pool.address, detached=True)
    submit(work, output, ON_WORKER, "beam.workers=2", *options)
    with frozen(own_pool, output, begun):
        meanwhile = command(work.configuration, output)
        again = command(work.configuration, output, flags=["--restart"])
    for refused in (meanwhile, again):
        assert refused.returncode == 5
        assert LEFT in refused.stderr
        assert str(job_of(output)["name"]) in refused.stderr
    wait_until(lambda: is_finished(output), "the job", 180)
    go_on(work, output)


@pytest.mark.engines
@pytest.mark.parametrize("begun", ["counts/_runs/*/run-*", "tokens/train-*"])
def test_on_flink_a_job_that_was_taken_over_writes_nothing_more(
    work: Work, tmp_path: Path, cluster: FlinkCluster, own_pool: WorkerPool, begun: str
) -> None:
    output = tmp_path / "out"
    options = flink_options(cluster.address, own_pool.address, detached=True)
    submit(work, output, ON_WORKER, "beam.workers=2", *options)
    name = str(job_of(output)["name"])
    with frozen(own_pool, output, begun):
        done = command(work.configuration, output, flags=["--take-over"])
        assert done.returncode == 0, done.stderr
        assert checksums(output) == work.expected
    wait_until(lambda: cluster.state(name) == "FAILED", "the job to fail", 180)
    # A worker that was stopped between its look at the lock and the name of its file gave it that.
    assert {name: found for name, found in checksums(output).items() if "/_" not in name} == (
        work.expected
    )
