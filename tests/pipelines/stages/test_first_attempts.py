"""Attempts that finished nothing, changed configurations, and inputs that have grown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from build_support import checksums, command, config_for, some_text, write_corpus

from pipelines import build
from pipelines.config import BuildConfig
from pipelines.errors import DifferentConfigurationError, InputError, PipelineError
from pipelines.manifest import stage_facts
from pipelines.manifest.stage import Identity
from pipelines.manifest.stage_facts import read_commits, read_limits
from pipelines.manifest.stage_writing import begin_stage
from pipelines.stages import lifecycle
from pipelines.storage.directory import Directory
from pipelines.verification.verify import verify

DOCUMENTS = [document.decode() for document in some_text(40)]


def json_lines(directory: Path, **records: Any) -> BuildConfig:
    """Return the configuration of a build of JSON lines with the field `content`."""
    (directory / "data").mkdir()
    lines = "".join(json.dumps({"content": text}) + "\n" for text in DOCUMENTS)
    (directory / "data" / "a.jsonl").write_text(lines)
    return config_for(directory, input={"format": "jsonl", **records})


@pytest.mark.slow
@pytest.mark.parametrize("path", [None, "tokenizer"])
def test_after_a_wrong_field_is_corrected_the_same_command_goes_on(
    path: str | None, tmp_path: Path
) -> None:
    wrong = json_lines(tmp_path, text_field="text")
    right = config_for(tmp_path, input={"format": "jsonl", "text_field": "content"})
    if path is not None:
        build.train(right.model_copy(update={"output": str(tmp_path / "other")}))
        tokenizer = type(right.tokenizer)(path=str(tmp_path / "other" / "tokenizer"))
        wrong, right = (c.model_copy(update={"tokenizer": tokenizer}) for c in (wrong, right))
    with pytest.raises(PipelineError):
        build.build(wrong)
    assert build.plan(right).refusal is None
    assert build.build(right).documents == len(DOCUMENTS)
    again = right.model_copy(update={"output": str(tmp_path / "fresh")})
    build.build(again)
    assert checksums(tmp_path / "out") == checksums(tmp_path / "fresh")


def test_what_is_finished_binds_the_configuration(tmp_path: Path) -> None:
    write_corpus(tmp_path / "data", {"a.txt": some_text(40)})
    build.count(config_for(tmp_path))
    with pytest.raises(DifferentConfigurationError, match=r"counts/, \d"):
        build.build(config_for(tmp_path, counts={"shards": 3}))


def test_refusals_name_the_file_and_the_options_of_the_command_line(tmp_path: Path) -> None:
    write_corpus(tmp_path / "data", {"a.txt": some_text(40)})
    config = config_for(tmp_path)
    build.train(config)
    path = tmp_path / "my build.yaml"
    path.write_text(yaml.safe_dump(config.model_dump(mode="json", exclude_unset=True)))
    refused = command("plan", path, "--set", "tokenizer.vocab_size=301")
    assert refused.returncode == 3
    given = f"'{path}' --set tokenizer.vocab_size=301"
    assert f"keep the counts: `beam-bpe train {given} --restart`, then `beam-bpe " in refused.stderr


@pytest.mark.slow
def test_files_are_added_in_one_step_and_known_afterwards(tmp_path: Path) -> None:
    write_corpus(tmp_path / "data", {"a.txt": some_text(40)})
    config = config_for(tmp_path)
    with pytest.raises(InputError, match="no finished dataset"):
        build.add(config)
    build.build(config)
    former = checksums(tmp_path / "out" / "tokenizer")
    write_corpus(tmp_path / "data", {"b.txt": some_text(20, start=40)})
    with pytest.raises(DifferentConfigurationError, match="`beam-bpe add CONFIG`"):
        build.build(config)

    added = build.add(config)
    assert [stage.name for stage in added.stages] == ["count", "train", "encode add001"]
    assert added.train_rows == 60
    assert checksums(tmp_path / "out" / "tokenizer") == former
    finished = build.build(config)
    assert {stage.state for stage in finished.stages} == {"already finished"}
    plan = build.plan(config)
    assert plan.refusal is None
    assert plan.finished_tasks == plan.tasks
    assert not verify(tmp_path / "out").problems

    with pytest.raises(DifferentConfigurationError, match="vocab_size"):
        build.add(config_for(tmp_path, tokenizer={"vocab_size": 301}))


def test_the_effective_configuration_is_kept_without_secrets(tmp_path: Path) -> None:
    write_corpus(tmp_path / "data", {"a.txt": some_text(40)})
    config = config_for(tmp_path, beam={"options": {"job_name": "hidden"}})
    build.count(config)
    text = (tmp_path / "out" / "configuration.json").read_text()
    kept = json.loads(text)
    assert kept["counts"]["max_pretoken_bytes"] == 1 << 20
    assert "hidden" not in text
    assert "storage_options" not in text
    assert build.count(config).warnings == ()
    (warning,) = build.count(config_for(tmp_path, beam={"workers": 1})).warnings
    assert "beam.workers: 2 → 1" in warning


@pytest.mark.slow
def test_a_command_writes_its_configuration_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    write = lifecycle.write_configuration
    monkeypatch.setattr(lifecycle, "write_configuration", lambda *a: (written.append(1), write(*a)))
    write_corpus(tmp_path / "data", {"a.txt": some_text(40)})
    for times in (1, 1):  # the second command changes nothing
        build.build(config_for(tmp_path))
        assert len(written) == times


def test_notes_of_workers_are_read_only_for_facts_that_they_bind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = []
    monkeypatch.setattr(stage_facts, "has_finished_work", lambda *a: listed.append(a) or True)
    output = Directory(url=str(tmp_path))
    identity = Identity(configuration={}, inputs={}, marks={})
    begin_stage(output / "counts", identity)
    assert (read_limits(output), read_commits(output), listed) == ({}, {}, [])
    begin_stage(output / "tokens", identity, commits={"hf://datasets/a/b": "0"})
    assert read_commits(output) == {"hf://datasets/a/b": "0"}
    assert len(listed) == 1
