"""A corpus, its build by the DirectRunner, and the engines, started once for all tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from build_support import checksums
from engine_support import (
    FlinkCluster,
    Work,
    WorkerPool,
    command,
    flink_cluster,
    slow,
    worker_pool,
)


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Work:
    """The corpus and its build by two workers of the DirectRunner."""
    directory = tmp_path_factory.mktemp("engines")
    work = Work(directory, {})
    work.write_configuration()
    done = command(work.configuration, directory / "direct", "beam.workers=2")
    assert done.returncode == 0, done.stderr
    work.expected.update(checksums(directory / "direct"))
    return work


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlinkCluster]:
    """A Flink cluster of two TaskManagers with two slots each."""
    with flink_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a pool of Python worker processes."""
    with worker_pool(tmp_path_factory.mktemp("pool")) as running:
        yield running.address


@pytest.fixture(scope="session")
def slowness(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Python finds what makes workers slow."""
    return slow(tmp_path_factory.mktemp("slowness") / "path")


@pytest.fixture(scope="session")
def slow_pool(tmp_path_factory: pytest.TempPathFactory, slowness: Path) -> Iterator[WorkerPool]:
    """A pool of slow workers, which are there to be killed."""
    with worker_pool(tmp_path_factory.mktemp("slow-pool"), slowness) as running:
        yield running
