"""Outputs that earlier versions began: other ranges and another number of shards."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from build_support import checksums, config_for, some_text, write_corpus

from pipelines import build
from pipelines.batches import DocumentBatch
from pipelines.config import BuildConfig, TokenizerConfig
from pipelines.config.fingerprints import counts_configuration
from pipelines.errors import InputError
from pipelines.readers.tasks import SourceReading, TaskWork, read_task
from pipelines.stages.context import BuildContext
from pipelines.stages.inputs import Inputs
from pipelines.tasks.plan import BY_STORED_BYTES, BY_TEXT

FILES = 4


@pytest.fixture
def config(tmp_path: Path) -> BuildConfig:
    """Compressed files, of which two make a task by stored bytes, and each one by text."""
    text = {f"{i}.txt": some_text(9, start=9 * i) for i in range(FILES)}
    write_corpus(tmp_path / "data", text)
    for path in sorted((tmp_path / "data").iterdir()):
        path.with_suffix(".txt.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
        path.unlink()
    size = max(path.stat().st_size for path in (tmp_path / "data").iterdir())
    one = {"workers": 1}
    return config_for(tmp_path, input={"range_bytes": 2 * size}, counts={"shards": 2}, beam=one)


def elsewhere(config: BuildConfig, name: str) -> BuildConfig:
    return config.model_copy(update={"output": f"{config.output}-{name}"})


def as_before(patch: pytest.MonkeyPatch) -> None:
    """Plan as earlier versions did."""
    patch.setattr("pipelines.stages.inputs.read_task_rule", lambda *_: BY_STORED_BYTES)


def fail_at_second_task(patch: pytest.MonkeyPatch, module: str) -> None:
    begun = []

    def read(work: TaskWork, readings: Sequence[SourceReading]) -> Iterator[DocumentBatch]:
        begun.append(work)
        if len(begun) == 2:
            raise InputError("The disk went away.")
        return read_task(work, readings)

    patch.setattr(f"pipelines.{module}.read_task", read)


def forget_rule(config: BuildConfig, stage: str) -> None:
    """Make a plan one of an earlier version, which did not name its rule."""
    path = Path(config.output) / stage / "_plan.json"
    plan = json.loads(path.read_text("utf-8"))
    assert plan.pop("task_rule") == BY_STORED_BYTES
    path.write_text(json.dumps(plan), "utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "module"), [("counts", "counting.commits"), ("tokens", "writing.tasks")]
)
def test_an_interrupted_output_of_an_earlier_version_goes_on_with_its_tasks(
    stage: str, module: str, config: BuildConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    former = elsewhere(config, "former")
    with monkeypatch.context() as patch:
        as_before(patch)
        build.build(former)
        with pytest.raises(InputError):
            fail_at_second_task(patch, module)
            build.build(config)
    forget_rule(config, stage)
    assert build.plan(config).tasks == FILES // 2
    summary = build.build(config)
    assert checksums(Path(config.output)) == checksums(Path(former.output))
    if stage == "tokens":
        assert summary.stages[-1].state == "resumed"


@pytest.mark.slow
def test_a_new_output_has_tasks_by_text_and_a_restarted_one_too(
    config: BuildConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        as_before(patch)
        build.build(config)
    before = checksums(Path(config.output))
    assert build.build(config).stages[-1].state == "already finished"
    assert checksums(Path(config.output)) == before
    fresh = elsewhere(config, "fresh")
    build.build(fresh)
    names = {path.name for path in Path(fresh.output, "tokens").glob("train-*")}
    assert names == {f"train-{i:05d}-of-{FILES:05d}.parquet" for i in range(FILES)}
    build.encode(config, restart=True)
    assert checksums(Path(config.output)) == checksums(Path(fresh.output))


@pytest.mark.slow
def test_an_interrupted_generation_of_an_earlier_version_goes_on_with_its_tasks(
    config: BuildConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A generation has no `_plan.json`: its scratch says by what rule it was begun."""
    build.build(config)
    for path in sorted((tmp_path / "data").iterdir()):
        shutil.copy2(path, path.with_name(f"new-{path.name}"))
    tokenizer = TokenizerConfig(path=f"{config.output}/tokenizer")
    grown = config.model_copy(update={"tokenizer": tokenizer})
    real = Inputs.plan_added
    with monkeypatch.context() as patch, pytest.raises(InputError):
        patch.setattr(Inputs, "plan_added", lambda *given: real(*given[:3], BY_STORED_BYTES))
        fail_at_second_task(patch, "writing.tasks")
        build.encode(grown)
    assert build.encode(grown).stages[-1].state == "resumed"
    names = {path.name for path in Path(config.output, "tokens").glob("train-add001-*")}
    assert names == {f"train-add001-{i:05d}-of-{FILES // 2:05d}.parquet" for i in range(2)}


@pytest.mark.slow
def test_an_interrupted_restart_leaves_no_file_of_other_tasks(
    config: BuildConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        as_before(patch)
        build.build(config)
    tokens = Path(config.output, "tokens")
    (tokens / "manifest.json").rename(tokens / "_plan.json")
    build.build(config)
    assert len(list(tokens.glob("train-*.parquet"))) == FILES


def test_the_next_number_of_shards_is_that_of_the_counts_that_are_there(
    config: BuildConfig,
) -> None:
    def shards(**given: Any) -> int:
        counts = config.counts.model_copy(update=given)
        return BuildContext.of(config.model_copy(update={"counts": counts})).inputs.shards

    assert shards(shards=5) == 5
    assert shards(shards=None) == 1
    build.count(config)
    assert shards(shards=None) == 2
    automatic = config.counts.model_copy(update={"shards": None})
    same = config.model_copy(update={"counts": automatic})
    assert build.count(same).stages[-1].state == "already finished"
    assert counts_configuration(same, 2) == counts_configuration(config, 2)
    build.count(same, restart=True)
    assert len(list(Path(config.output, "counts").glob("shard-*"))) == 1
    assert BuildContext.of(config).inputs.task_rule == BY_TEXT
