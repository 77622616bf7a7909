"""Every engine makes the same bytes from the same configuration, also when workers are killed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from build_support import ROOT, checksums
from engine_support import (
    FlinkCluster,
    Work,
    arguments,
    check_metrics,
    command,
    flink_options,
    prism_binary,
    wait_until,
    worker_processes,
)

EMBED = ("beam.runner=PortableRunner", "--", "--job_endpoint=embed")


def check(work: Work, output: Path, *given: str) -> None:
    """Builds, and compares every file with that of the DirectRunner."""
    done = command(work.configuration, output, *given)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "" or "Traceback" not in done.stderr
    assert checksums(output) == work.expected
    check_metrics(output)


@pytest.mark.parametrize("mode", ["in_memory", "multi_threading", "multi_processing"])
@pytest.mark.parametrize("repeat", [0, pytest.param(2, marks=pytest.mark.engines)])
def test_modes_of_the_direct_runner(work: Work, tmp_path: Path, mode: str, repeat: int) -> None:
    workers = 1 if mode == "in_memory" else 2
    options = [f"--direct_running_mode={mode}", f"--direct_runner_bundle_repeat={repeat}"]
    check(work, tmp_path / "out", f"beam.workers={workers}", "--", *options)


def test_portable_runner_with_workers_in_the_command(work: Work, tmp_path: Path) -> None:
    check(work, tmp_path / "out", *EMBED, "--environment_type=LOOPBACK")


def test_portable_runner_with_a_pool_of_processes(work: Work, tmp_path: Path, pool: str) -> None:
    options = ["--environment_type=EXTERNAL", f"--environment_config={pool}"]
    check(work, tmp_path / "out", *EMBED, *options)


def test_prism(work: Work, tmp_path: Path) -> None:
    location = f"--prism_location={prism_binary()}"
    check(work, tmp_path / "out", "beam.runner=PrismRunner", "--", location)


def test_embedded_flink(work: Work, tmp_path: Path) -> None:
    check(work, tmp_path / "out", "beam.workers=2", *flink_options("[local]"))


@pytest.mark.engines
@pytest.mark.parametrize("parallelism", [1, 2, 4])
def test_flink_cluster(
    work: Work, tmp_path: Path, cluster: FlinkCluster, pool: str, parallelism: int
) -> None:
    options = flink_options(cluster.address, pool)
    check(work, tmp_path / "out", f"beam.workers={parallelism}", *options)


def killed(
    work: Work, output: Path, given: list[str], begun: str, kill: Callable[[], None]
) -> None:
    """A build in which something is killed as soon as a file appears; then, if it failed, another.

    Compares the result with that of the DirectRunner.
    """
    building = subprocess.Popen(
        arguments(work.configuration, output, *given),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(
        lambda: building.poll() is not None or any(output.glob(begun)), f"{begun} to appear", 120
    )
    assert building.poll() is None, "the build was faster than the kill"
    kill()
    _, said = building.communicate(timeout=240)
    if building.returncode != 0:
        assert "error: " in said
        again = command(work.configuration, output, *given)
        assert again.returncode == 0, again.stderr
    assert checksums(output) == work.expected


def kill_a_worker() -> None:
    os.kill(worker_processes()[0], signal.SIGKILL)


def test_flink_cluster_loses_a_worker_process_while_counting(
    work: Work, tmp_path: Path, cluster: FlinkCluster, pool: str
) -> None:
    given = ["beam.workers=4", *flink_options(cluster.address, pool)]
    killed(work, tmp_path / "out", given, "counts/_runs/*/commit-*", kill_a_worker)


@pytest.mark.engines
def test_flink_cluster_loses_a_worker_process_while_encoding(
    work: Work, tmp_path: Path, cluster: FlinkCluster, pool: str
) -> None:
    given = ["beam.workers=4", *flink_options(cluster.address, pool)]
    killed(work, tmp_path / "out", given, "tokens/train-*", kill_a_worker)


@pytest.mark.engines
def test_flink_cluster_loses_a_task_manager_while_encoding(
    work: Work, tmp_path: Path, cluster: FlinkCluster, pool: str
) -> None:
    given = ["beam.workers=2", *flink_options(cluster.address, pool)]
    try:
        killed(
            work, tmp_path / "out", given, "tokens/train-*", lambda: cluster.kill_task_manager(1)
        )
    finally:
        cluster.start_task_manager(1)
        cluster.wait_for_slots(4)
