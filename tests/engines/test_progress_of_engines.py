"""Progress moves where engines have their workers in the command."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_support import flink_options, prism_binary
from progress_support import check_progress, write_configuration


@pytest.mark.engines
def test_progress_moves_on_prism(tmp_path: Path) -> None:
    location = f"--prism_location={prism_binary()}"
    given = ["beam.runner=PrismRunner", "--", location]
    check_progress(tmp_path, write_configuration(tmp_path), *given)


@pytest.mark.engines
def test_progress_moves_on_embedded_flink(tmp_path: Path) -> None:
    given = ["beam.workers=2", *flink_options("[local]")]
    check_progress(tmp_path, write_configuration(tmp_path), *given)
