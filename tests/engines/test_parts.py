"""What the pipelines of builds and exports consist of: nothing that Flink runs on one worker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.portability.api import beam_runner_api_pb2 as runner_api
from build_support import SEPARATOR, config_for, some_text, write_corpus

from pipelines import build, runners
from pipelines.config import BeamConfig, SourceConfig
from pipelines.dataset.reading import TokenDataset
from pipelines.exports.export import export
from pipelines.exports.formats import ExportOptions
from pipelines.storage.directory import Directory
from pipelines.transforms import CountPretokens, EncodeDocuments, ReadDocuments, WriteTokenShards

LOCAL = {"runner": "DirectRunner", "workers": 2}
PORTABLE = {
    "runner": "PortableRunner",
    "workers": 0,
    "options": {"job_endpoint": "embed", "environment_type": "LOOPBACK"},
}

# Descriptors, numbered; Reshuffle wraps them with a key, their time and their window.
WRAPPED = "kv(varint,tuple(kv(varint,bytes),nullable(pickled_python),pickled_python))"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The pipelines that are run, as runners get them."""
    pipelines: list[Any] = []
    original = beam.Pipeline.run

    def noted(self: beam.Pipeline, *rest: Any, **keywords: Any) -> Any:
        pipelines.append(self.to_runner_api())
        return original(self, *rest, **keywords)

    monkeypatch.setattr(beam.Pipeline, "run", noted)
    yield pipelines
    for pipeline in pipelines:
        check(pipeline)


def check(pipeline: Any) -> None:
    """No splittable function and no source."""
    parts = pipeline.components
    assert not [urn for urn in pipeline.requirements if "splittable" in urn]
    for step in parts.transforms.values():
        assert step.spec.urn != "beam:transform:read:v1", step.unique_name
        if step.spec.urn == "beam:transform:pardo:v1":
            payload = runner_api.ParDoPayload.FromString(step.spec.payload)
            assert payload.restriction_coder_id == "", step.unique_name


def shuffled(pipeline: Any) -> set[str]:
    """The coders of what crosses a shuffle."""
    parts = pipeline.components

    def described(name: str) -> str:
        coder = parts.coders[name]
        inside = ",".join(map(described, coder.component_coder_ids))
        return coder.spec.urn.split(":")[2] + (f"({inside})" if inside else "")

    return {
        described(parts.pcollections[collection].coder_id)
        for step in parts.transforms.values()
        if step.spec.urn in ("beam:transform:group_by_key:v1", "beam:transform:reshuffle:v1")
        for collection in step.inputs.values()
    }


@pytest.mark.beam
@pytest.mark.parametrize(
    "configured",
    [
        pytest.param(LOCAL, id="direct"),
        pytest.param(PORTABLE, id="portable", marks=pytest.mark.engines),
    ],
)
def test_no_build_or_export_has_anything_that_can_be_split(
    tmp_path: Path, configured: Mapping[str, Any], run: list[Any]
) -> None:
    write_corpus(tmp_path / "data", {"a.txt": some_text(60), "b.txt": some_text(20, start=60)})
    build.build(config_for(tmp_path, beam=dict(configured)))
    dataset = TokenDataset.open(str(tmp_path / "out"))
    for name, options in {
        "documents": ExportOptions(to="documents", files=3),
        "packed": ExportOptions(to="packed", sequence_length=64, shuffle_seed=1),
    }.items():
        directory = Directory(url=str(tmp_path / name))
        export(dataset, directory, options, beam=BeamConfig(**configured))
    assert len(run) == 5  # count, encode; write; scatter, gather
    assert set().union(*map(shuffled, run)) <= {"kv(varint,bytes)", WRAPPED}


@pytest.mark.beam
def test_the_transforms_for_pipelines_of_ones_own_shuffle_descriptors_alone(
    tmp_path: Path, run: list[Any]
) -> None:
    write_corpus(tmp_path / "data", {"a.txt": some_text(20)})
    build.train(config_for(tmp_path, tokenizer={"vocab_size": 270}))
    tokenizer, output = str(tmp_path / "out/tokenizer"), str(tmp_path / "own")
    with runners.pipeline(BeamConfig(workers=2)) as pipeline:
        sources = [SourceConfig(files=[str(tmp_path / "data/a.txt")], separator=SEPARATOR)]
        documents = pipeline | ReadDocuments(sources=sources)
        documents | CountPretokens(output=output, shards=2)
        encoded = documents | EncodeDocuments(tokenizer=tokenizer)
        encoded.tokens | WriteTokenShards(output=output, num_shards=2)
        rows = documents | "AsRows" >> EncodeDocuments(tokenizer=tokenizer, as_rows=True)
        rows.tokens | "Rows" >> WriteTokenShards(output=output, num_shards=2, split="rows")
    assert len(run) == 2
    # The latter: parts of totals, with the key None that Beam gives what is combined globally.
    assert shuffled(run[-1]) == {"kv(varint,bytes)", "kv(pickled_python,bytes)"}
    assert {path.name.partition("-")[0] for path in (tmp_path / "own").iterdir()} == {
        "counts", "shard", "train", "rows",
    }  # fmt: skip
