"""Pipelines that go on without the command, as far as the stages are concerned.

Here the job runs on the DirectRunner and is over before the command has left the lock to it; jobs
that really go on elsewhere are in tests/engines/test_detached.py.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from build_support import checksums, config_for, some_text, write_corpus

from pipelines import build, runners
from pipelines.config import BeamConfig, BuildConfig
from pipelines.errors import DifferentConfigurationError, OutputError
from pipelines.runners import options
from pipelines.storage.directory import Directory
from pipelines.storage.locks import FINISHED, LOCK, DetachedJob, OutputLock

FILES = {"a.txt": some_text(40), "b.txt": some_text(30, start=40)}


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that have ended when they were submitted."""

    def submit(
        config: BeamConfig,
        steps: Callable[[beam.Pipeline], object],
        beam_args: Sequence[str] = (),
        places: Sequence[str] = (),
        *,
        stages: Sequence[str] = (),
    ) -> DetachedJob:
        with runners.pipeline(config, beam_args, places) as pipeline:
            steps(pipeline)
        return DetachedJob(name="job-7", runner=config.runner, url=None, stages=tuple(stages))

    monkeypatch.setattr(options, "check_detaches", lambda *_: None)
    monkeypatch.setattr(runners, "submit", submit)


def corpus(directory: Path, **sections: Any) -> BuildConfig:
    write_corpus(directory / "data", FILES)
    return config_for(directory, **sections)


def states(summary: Any) -> list[tuple[str, str]]:
    return [(stage.name, stage.state) for stage in summary.stages]


SETTINGS: dict[str, dict[str, Any]] = {
    "bytes": {},
    "characters": {"tokenizer": {"unit": "character", "vocab_size": 60}},
    "normalized": {"tokenizer": {"normalizer": "nfkc", "special_tokens": ["<|endoftext|>", "on"]}},
    "limited": {"input": {"limit_documents": 50}, "encode": {"validation_fraction": 0.2}},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bytes", "characters"])
def test_training_on_a_worker_gives_the_same_bytes(tmp_path: Path, name: str) -> None:
    settings = SETTINGS[name]
    build.build(corpus(tmp_path / "here", **settings))
    there = corpus(tmp_path / "there", **settings)
    there = there.model_copy(
        update={"tokenizer": there.tokenizer.model_copy(update={"train_where": "worker"})}
    )
    build.build(there)
    assert checksums(tmp_path / "there/out") == checksums(tmp_path / "here/out")


@pytest.mark.slow
@pytest.mark.usefixtures("at_once")
def test_superwords_are_counted_by_a_job_of_their_own(tmp_path: Path) -> None:
    settings = {"tokenizer": {"vocab_size": 320, "superwords": {"vocab_size_before": 300}}}
    build.build(corpus(tmp_path / "here", **settings))
    config = corpus(tmp_path / "there", **settings)
    assert states(build.train(config, no_wait=True)) == [("count", "submitted")]
    found = states(build.train(config, no_wait=True))
    assert found == [("count", "resumed"), ("superwords", "submitted")]
    assert states(build.build(config))[1:3] == [("superwords", "resumed"), ("train", "done")]
    assert checksums(tmp_path / "there/out") == checksums(tmp_path / "here/out")


@pytest.mark.slow
@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("name", SETTINGS)
def test_one_job_counts_trains_and_encodes_and_the_next_build_writes_the_manifests(
    tmp_path: Path, name: str
) -> None:
    settings = SETTINGS[name]
    build.build(corpus(tmp_path / "here", **settings))
    tokenizer = {**settings.get("tokenizer", {}), "train_where": "worker"}
    config = corpus(tmp_path / "there", **{**settings, "tokenizer": tokenizer})
    submitted = build.build(config, no_wait=True)
    assert states(submitted) == [(s, "submitted") for s in ("count", "train", "encode")]
    assert submitted.submitted is not None and submitted.submitted.name == "job-7"
    output = tmp_path / "there/out"
    assert not list(output.rglob("manifest.json"))
    assert {LOCK, FINISHED} <= {path.name for path in output.iterdir()}
    done = build.build(config)
    assert states(done) == [(s, "resumed") for s in ("count", "train", "encode")]
    assert checksums(output) == checksums(tmp_path / "here/out")


@pytest.mark.slow
@pytest.mark.usefixtures("at_once")
def test_where_the_command_trains_each_submission_is_one_stage(tmp_path: Path) -> None:
    config = corpus(tmp_path)
    assert states(build.build(config, no_wait=True)) == [("count", "submitted")]
    assert states(build.build(config, no_wait=True)) == [
        ("count", "resumed"),
        ("train", "done"),
        ("encode", "submitted"),
    ]
    finished = ("already finished",) * 2
    assert [state for _, state in states(build.build(config, no_wait=True))] == [
        *finished,
        "resumed",
    ]
    assert build.build(config, no_wait=True).submitted is None
    build.build(corpus(tmp_path / "here"))
    assert checksums(tmp_path / "out") == checksums(tmp_path / "here/out")


@pytest.mark.slow
@pytest.mark.usefixtures("at_once")
def test_counting_alone_and_training_with_encoding_may_be_submitted(tmp_path: Path) -> None:
    config = corpus(tmp_path, tokenizer={"train_where": "worker"})
    assert states(build.count(config, no_wait=True)) == [("count", "submitted")]
    assert states(build.count(config)) == [("count", "resumed")]
    assert states(build.encode(config, no_wait=True)) == [
        ("count", "already finished"),
        ("train", "submitted"),
        ("encode", "submitted"),
    ]
    build.build(config)
    build.build(corpus(tmp_path / "here"))
    assert checksums(tmp_path / "out") == checksums(tmp_path / "here/out")


@pytest.mark.slow
@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("counted", [False, True])
def test_a_job_that_encodes_states_the_limits_of_sources(tmp_path: Path, counted: bool) -> None:
    settings = {**SETTINGS["limited"], "tokenizer": {"train_where": "worker"}}
    config = corpus(tmp_path, **settings)
    if counted:
        build.count(config)
    submitted = build.encode(config, no_wait=True) if counted else build.build(config, no_wait=True)
    assert states(submitted)[-1] == ("encode", "submitted")
    stated = json.loads((tmp_path / "out/tokens/_plan.json").read_bytes())
    build.build(config)
    assert stated["limits"]
    for stage in ("counts", "tokens"):
        run = json.loads((tmp_path / "out" / stage / "run.json").read_bytes())
        assert run["limits"] == stated["limits"]


@pytest.mark.slow
@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("counted", [False, True])
def test_training_alone_may_be_submitted(tmp_path: Path, counted: bool) -> None:
    config = corpus(tmp_path, tokenizer={"train_where": "worker"})
    if counted:
        build.count(config)
    expected = [("count", "already finished" if counted else "submitted"), ("train", "submitted")]
    assert states(build.train(config, no_wait=True)) == expected
    assert not (tmp_path / "out/tokens").exists()
    assert states(build.train(config))[1] == ("train", "resumed")
    build.build(config)
    build.build(corpus(tmp_path / "here"))
    assert checksums(tmp_path / "out") == checksums(tmp_path / "here/out")


@pytest.mark.usefixtures("at_once")
def test_where_the_command_trains_only_the_counts_are_submitted(tmp_path: Path) -> None:
    config = corpus(tmp_path)
    assert states(build.train(config, no_wait=True)) == [("count", "submitted")]
    trained = build.train(config, no_wait=True)
    assert states(trained) == [("count", "resumed"), ("train", "done")]
    assert trained.submitted is None


@pytest.mark.slow
@pytest.mark.usefixtures("at_once")
def test_files_added_to_a_dataset_are_encoded_by_a_job_of_their_own(tmp_path: Path) -> None:
    config = corpus(tmp_path)
    build.build(config)
    write_corpus(tmp_path / "data", {"c.txt": some_text(20, start=70)})
    grown = config.model_copy(
        update={"tokenizer": type(config.tokenizer)(path=str(tmp_path / "out/tokenizer"))}
    )
    assert states(build.encode(grown, no_wait=True)) == [("encode", "submitted")]
    assert states(build.encode(grown)) == [("encode add001", "resumed")]


@pytest.mark.slow
@pytest.mark.usefixtures("at_once")
def test_a_configuration_that_was_changed_meanwhile_is_refused(tmp_path: Path) -> None:
    config = corpus(tmp_path, tokenizer={"train_where": "worker"})
    build.build(config, no_wait=True)
    changed = config_for(
        tmp_path, tokenizer={"train_where": "worker"}, encode={"validation_fraction": 0.5}
    )
    with pytest.raises(DifferentConfigurationError, match=r"encode\.validation_fraction"):
        build.build(changed)


@pytest.mark.slow
@pytest.mark.usefixtures("at_once")
def test_refusal_of_a_later_stage_precedes_the_job(tmp_path: Path) -> None:
    """Nothing is begun, let alone submitted, if a stage of the command would be refused."""
    build.build(corpus(tmp_path))
    for stage in ("counts", "tokenizer"):
        shutil.rmtree(tmp_path / "out" / stage)
    config = corpus(tmp_path, encode={"validation_fraction": 0.5})
    with pytest.raises(DifferentConfigurationError, match=r"encode\.validation_fraction"):
        build.build(config, no_wait=True)
    assert not (tmp_path / "out/counts").exists()
    assert states(build.train(config, no_wait=True)) == [("count", "submitted")]


@pytest.mark.slow
@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("damage", ["lost", "changed"])
def test_a_tokenizer_of_a_job_that_is_not_whole_is_trained_again(
    tmp_path: Path, damage: str
) -> None:
    config = corpus(tmp_path, tokenizer={"train_where": "worker"})
    build.build(config, no_wait=True)
    file = tmp_path / "out/tokenizer/vocab.json"
    data = file.read_bytes()
    file.unlink()
    if damage == "changed":  # to as many bytes
        file.write_bytes(data[:-1] + b"!")
    assert states(build.build(config))[1] == ("train", "done")
    build.build(corpus(tmp_path / "here"))
    assert checksums(tmp_path / "out") == checksums(tmp_path / "here/out")


@pytest.mark.slow
@pytest.mark.usefixtures("at_once")
def test_a_job_that_counts_anew_keeps_a_tokenizer_that_is_finished(tmp_path: Path) -> None:
    config = corpus(tmp_path, tokenizer={"train_where": "worker"})
    build.train(config)
    before = checksums(tmp_path / "out/tokenizer", but=())
    build.count(config, restart=True, no_wait=True)
    (tmp_path / "out/counts/_runs").rename(tmp_path / "gone")  # so that all is counted again
    build.encode(config, no_wait=True)
    done = build.build(config)
    assert states(done) == [
        ("count", "resumed"),
        ("train", "already finished"),
        ("encode", "resumed"),
    ]
    assert checksums(tmp_path / "out/tokenizer", but=()) == before


@pytest.mark.slow
@pytest.mark.usefixtures("at_once")
def test_a_job_that_is_at_work_is_left_alone_until_it_is_taken_over(tmp_path: Path) -> None:
    config = corpus(tmp_path)
    build.build(config, no_wait=True)
    (tmp_path / "out" / FINISHED).unlink()  # as long as it has not finished
    before = checksums(tmp_path / "out")
    for command in (build.count, build.train, build.encode, build.build):
        with pytest.raises(OutputError, match="job-7, for count"):
            command(config)
        with pytest.raises(OutputError, match="job-7, for count"):
            command(config, restart=True)
    assert checksums(tmp_path / "out") == before
    assert states(build.train(config, take_over=True)) == [("count", "resumed"), ("train", "done")]
    assert LOCK not in Directory(url=str(tmp_path / "out")).sizes()


def test_a_job_that_nobody_took_leaves_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options, "check_detaches", lambda *_: None)

    def refuse(*_: object, **__: object) -> DetachedJob:
        raise OutputError("no room for jobs")

    monkeypatch.setattr(runners, "submit", refuse)
    with pytest.raises(OutputError, match="no room for jobs"):
        build.build(corpus(tmp_path), no_wait=True)
    assert LOCK not in Directory(url=str(tmp_path / "out")).sizes()
    with OutputLock(Directory(url=str(tmp_path / "out"))) as lock:
        lock.acquire()
    assert json.loads((tmp_path / "out/counts/_plan.json").read_bytes())["tasks"]
