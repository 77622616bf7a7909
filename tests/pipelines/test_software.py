"""Workers have the versions of the command, or say what differs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from build_support import config_for, some_text, write_corpus

from pipelines import build, runners, versions
from pipelines.beam.dofn import VersionCheckedDoFn
from pipelines.config import BeamConfig, SourceConfig
from pipelines.errors import WorkerVersionError
from pipelines.transforms import CountPretokens, EncodeDocuments, ReadDocuments, WriteTokenShards


class OfAnotherVersion(VersionCheckedDoFn):
    """Work that was sent by a command with another pyarrow and Python."""

    def __init__(self) -> None:
        super().__init__()
        self._versions |= {"pyarrow": "0.1", "python": "3.99"}

    def process(self, element: int) -> None:
        raise AssertionError("work was done")


def test_the_same_versions_are_taken() -> None:
    versions.check_worker(versions.worker_versions())


@pytest.mark.parametrize("mode", ["multi_threading", "in_memory"])
def test_the_first_bundle_tells_what_differs(mode: str) -> None:
    config = BeamConfig(workers=1, options={"direct_running_mode": mode})
    with (
        pytest.raises(WorkerVersionError, match=r"expected: pyarrow 0\.1, python 3\.99") as error,
        runners.pipeline(config) as pipeline,
    ):
        pipeline | beam.Create([1], reshuffle=False) | beam.ParDo(OfAnotherVersion())
    assert f"found: pyarrow {versions.deciding_versions()['pyarrow']}" in str(error.value)


# --- transforms for pipelines of one's own ----------------------------------------------------


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("software")
    write_corpus(directory / "data", {"a.txt": some_text(3)})
    build.train(config_for(directory, tokenizer={"vocab_size": 260}))
    return directory / "out/tokenizer"


Step = Callable[[Any, Path, Path], Any]

STEPS: dict[str, Step] = {
    "read": lambda begin, tokenizer, _: (
        begin
        | ReadDocuments(sources=[SourceConfig(files=[str(tokenizer.parents[1] / "data/a.txt")])])
    ),
    "count": lambda begin, _, output: (
        begin | beam.Create(["text"]) | CountPretokens(output=str(output))
    ),
    "encode": lambda begin, tokenizer, _: (
        begin | beam.Create(["text"]) | EncodeDocuments(tokenizer=str(tokenizer))
    ),
    "write": lambda begin, _, output: (
        begin
        | beam.Create([beam.Row(input_ids=[1], num_bytes=1)])
        | WriteTokenShards(output=str(output), num_shards=1)
    ),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.beam
def test_transforms_compare_the_versions_of_workers(
    tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    found = versions.worker_versions()
    monkeypatch.setattr("pipelines.beam.dofn.worker_versions", lambda: {**found, "zstd": "0"})
    with (
        pytest.raises(WorkerVersionError, match="expected: zstd 0\n"),
        runners.pipeline(BeamConfig(options={"direct_running_mode": "in_memory"})) as pipeline,
    ):
        STEPS[step](pipeline, tokenizer, tmp_path / "out")
