"""The configuration of the guide to Flink, on a cluster of the tests instead of the reader's."""

from __future__ import annotations

from pathlib import Path

import pytest
from build_support import EXAMPLES, ROOT, checksums
from engine_support import FlinkCluster, command, flink_options
from guide_support import blocks

GUIDE = ROOT / "docs" / "guides" / "flink.md"


@pytest.mark.engines
def test_the_configuration_of_the_guide_builds_on_a_cluster(
    tmp_path: Path, cluster: FlinkCluster, pool: str
) -> None:
    [code] = [block.code for block in blocks(GUIDE) if block.file == "cluster.yaml"]
    configuration = tmp_path / "cluster.yaml"
    configuration.write_text(code)
    # Files of this machine, which workers in its own processes reach.
    given = [f"input.files=[{EXAMPLES}/genesis.jsonl.gz]", "input.text_field=content.text"]
    options = flink_options(cluster.address, pool)
    done = command(configuration, tmp_path / "out", *given, "beam.workers=2", *options)
    assert done.returncode == 0, done.stderr
    direct = [*given, "beam.runner=DirectRunner", "beam.options={}", "beam.workers=1"]
    done = command(configuration, tmp_path / "direct", *direct)
    assert done.returncode == 0, done.stderr
    assert checksums(tmp_path / "out") == checksums(tmp_path / "direct")
