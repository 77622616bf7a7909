"""A user's plain Beam program with the public transforms gives the same bytes on every engine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from build_support import PACKAGES, ROOT, checksums
from engine_support import FlinkCluster, Work, flink_options, prism_binary, run

PROGRAM = Path(__file__).with_name("own_pipeline.py")


def own(work: Work, output: Path, *options: str) -> dict[str, str]:
    """Runs the program; what it wrote, by name."""
    tokenizer = str(work.directory / "direct/tokenizer")
    done = run(
        [sys.executable, str(PROGRAM), tokenizer, str(output), *options],
        PYTHONPATH=f"{PACKAGES}:{ROOT / 'tests/support'}",
    )
    assert done.returncode == 0, done.stderr
    found = checksums(output)
    assert len(found) == 3 + 1 + 3 + 1 + 2 + 1
    return found


@pytest.fixture(scope="module")
def expected(work: Work, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """By one worker of the DirectRunner."""
    return own(work, tmp_path_factory.mktemp("own") / "out", "--runner=FnApiRunner")


def of_flink(master: str, pool: str | None = None) -> list[str]:
    keys, options = flink_options(master, pool)[:1], flink_options(master, pool)[2:]
    assert keys == ["beam.runner=FlinkRunner"]
    return ["--runner=FlinkRunner", *options]


@pytest.mark.engines
def test_prism(work: Work, expected: dict[str, str], tmp_path: Path) -> None:
    options = ["--runner=PrismRunner", f"--prism_location={prism_binary()}"]
    assert own(work, tmp_path / "out", *options) == expected


@pytest.mark.engines
def test_embedded_flink(work: Work, expected: dict[str, str], tmp_path: Path) -> None:
    assert own(work, tmp_path / "out", *of_flink("[local]"), "--parallelism=2") == expected


@pytest.mark.engines
def test_flink_cluster(
    work: Work, expected: dict[str, str], tmp_path: Path, cluster: FlinkCluster, pool: str
) -> None:
    options = [*of_flink(cluster.address, pool), "--parallelism=4"]
    assert own(work, tmp_path / "out", *options) == expected
